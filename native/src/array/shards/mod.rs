//! Shards: many chunks in one file, and the index that says where each of them lies.
//!
//! Two numbers for each chunk, in C order: its offset and its length, both all ones when it is
//! absent. Chunks may lie in any order and share bytes, but all inside their shard, which is checked
//! before any memory is taken for them. The indexes of files that were read are kept, within a
//! budget, for as long as the identity of the files stays the same.
//!
//! The chunks of a shard may be shards themselves. Then a file has an index for each level, and those
//! inside it are read when one of their chunks is wanted. Shards in a shard may be the same bytes,
//! but do not overlap otherwise: all indexes of a file together have no more bytes than the file.

mod read;
mod stage;

pub use read::read;
pub use stage::stage;

use crate::array::grid::{Part, RangeParts};
use crate::array::scatter::Memory;
use crate::array::selection::Selection;
use crate::error::{Outcome, corrupt};
use crate::files::identity::Identity;
use crate::files::{Bytes, Extent, Root};
use crate::fork;
use crate::memory::{grow, reserved};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex};

const ABSENT: u64 = u64::MAX;
const ENTRY: usize = 16;
/// The size of the checksum behind an index: a CRC-32C.
const CHECKSUM_BYTES: usize = 4;
/// The most memory that one array keeps for indexes.
const KEPT_BYTES: usize = 16 << 20;

/// The form of the shards of an array.
pub struct ShardFormat {
    /// Chunks along each axis of a file: innermost ones, where shards lie in shards.
    counts: Vec<usize>,
    total: usize,
    /// The form of the indexes, that of the files first.
    levels: Vec<Level>,
}

/// The form of shards of one level.
pub struct Level {
    /// Chunks along each axis: shards of the next level, or innermost chunks.
    counts: Vec<usize>,
    total: usize,
    /// Innermost chunks along each axis of one of these.
    unit: Vec<usize>,
    /// Whether the index comes before the chunks.
    at_start: bool,
    big_endian: bool,
    /// Whether a CRC-32C lies behind the index.
    checksum: bool,
}

/// What a caller says of shards of one level: chunks along each axis; whether the index is at the start,
/// is big-endian, has a checksum.
pub type LevelForm = (Vec<usize>, bool, bool, bool);

/// The index of one shard.
pub struct Index {
    entries: Vec<[u64; 2]>,
    /// Where the shard begins in its file.
    start: usize,
    /// The bytes of the shard.
    size: usize,
}

/// The indexes of shards in one file that a call has needed, by level and bytes.
#[derive(Default)]
pub struct InnerIndexes(HashMap<(usize, usize, usize), Outcome<Arc<Index>>>);

/// A shard whose index has been read.
pub struct Shard {
    coords: Vec<usize>,
    pub key: String,
    file: Arc<File>,
    identity: Option<Identity>,
    pub index: Arc<Index>,
}

/// A shard that a selection touches, and which parts of each axis lie in it.
pub struct Touched {
    pub coords: Vec<usize>,
    pub parts: Vec<Range<usize>>,
}

impl ShardFormat {
    /// The levels are in the order of the shards, that of the files first. `None` for a shard without
    /// chunks, or with too many, and where levels differ in their axes.
    pub fn new(forms: Vec<LevelForm>) -> Option<Self> {
        let mut unit = vec![1; forms.first()?.0.len()];
        let mut levels = Vec::with_capacity(forms.len());
        for (counts, at_start, big_endian, checksum) in forms.into_iter().rev() {
            if counts.len() != unit.len() {
                return None;
            }
            let total = product(&counts)?;
            let each = counts.iter().zip(&unit).map(|(count, unit)| count.checked_mul(*unit));
            let outer = each.collect::<Option<Vec<_>>>()?;
            levels.push(Level { counts, total, unit, at_start, big_endian, checksum });
            unit = outer;
        }
        levels.reverse();
        Some(Self { total: product(&unit)?, counts: unit, levels })
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn axes(&self) -> usize {
        self.counts.len()
    }

    /// The number of a chunk in its file: chunks are counted shard by shard, where shards lie in shards.
    pub fn number(&self, parts: &[Part]) -> usize {
        self.levels.iter().fold(0, |number, level| number * level.total + level.number(parts))
    }

    /// How many chunks an entry of an index of a level stands for.
    fn chunks_of_entry(&self, depth: usize) -> usize {
        self.levels[depth + 1..].iter().map(|level| level.total).product()
    }

    /// How many chunks shard `number` along an axis has, of `all` chunks of the array.
    pub fn chunks_inside(&self, axis: usize, number: usize, all: usize) -> usize {
        let count = self.counts[axis];
        count.min(all - number * count)
    }

    /// Where a chunk lies in its file; `None` when it is absent. Indexes of shards in the shard are read
    /// when they are needed, and kept in `inner` for the call.
    pub fn find(
        &self,
        cache: &IndexCache,
        shard: &Shard,
        parts: &[Part],
        inner: &mut InnerIndexes,
        buffer: &mut Vec<u8>,
    ) -> Outcome<Option<Range<usize>>> {
        let mut found = shard.index.range(self.levels[0].number(parts))?;
        for (depth, level) in self.levels.iter().enumerate().skip(1) {
            let Some(range) = found else { return Ok(None) };
            let index = self.inner_index(cache, shard, (depth, range.start, range.end), inner, buffer)?;
            found = index.range(level.number(parts))?;
        }
        Ok(found)
    }

    /// The index of a shard in a shard: its level, and where its bytes begin and end in the file.
    fn inner_index(
        &self,
        cache: &IndexCache,
        shard: &Shard,
        place: (usize, usize, usize),
        inner: &mut InnerIndexes,
        buffer: &mut Vec<u8>,
    ) -> Outcome<Arc<Index>> {
        let find = || {
            let (depth, start, end) = place;
            let name: Vec<usize> = shard.coords.iter().copied().chain([depth, start, end]).collect();
            cache.find_or(&name, shard.identity, || self.read_index(depth, start, &shard.extent(start..end), buffer))
        };
        inner.0.entry(place).or_insert_with(find).clone()
    }

    /// Cut a selection by shards: per axis, which of its parts lie in each.
    pub fn cut<M: Memory>(&self, selection: &Selection<'_, M>) -> Cut {
        let axes = self.counts.iter().enumerate().map(|(axis, count)| {
            let parts = selection.parts(axis);
            if let Some(parts) = parts.range() {
                return AxisCut::Range(parts, parts.coarser(*count));
            }
            let mut groups: Vec<(usize, Range<usize>)> = Vec::new();
            for number in 0..parts.len() {
                let shard = parts.part(number).chunk / count;
                match groups.last_mut() {
                    Some((last, inside)) if *last == shard => inside.end = number + 1,
                    _ => groups.push((shard, number..number + 1)),
                }
            }
            AxisCut::Listed(groups)
        });
        Cut { axes: axes.collect() }
    }

    /// Open the shard `coords`, whose key is `key`, and read its index or take it from the cache.
    pub fn open(
        &self,
        cache: &IndexCache,
        root: &Root,
        coords: &[usize],
        key: String,
        buffer: &mut Vec<u8>,
    ) -> Outcome<Option<Shard>> {
        let Some(extent) = root.extent(&key)? else {
            return Ok(None);
        };
        let identity = extent.identity;
        let index = cache.find_or(coords, identity, || self.read_index(0, 0, &extent, buffer))?;
        let Bytes::File(file) = extent.bytes else {
            return corrupt!("shard: it is not a file");
        };
        Ok(Some(Shard { coords: coords.to_vec(), key, file, identity, index }))
    }

    /// Read the index of a shard of a level, which begins at byte `start` of its file.
    fn read_index(&self, depth: usize, start: usize, extent: &Extent<'_>, buffer: &mut Vec<u8>) -> Outcome<Index> {
        let index = self.levels[depth].read_index(start, extent, buffer)?;
        if depth + 1 < self.levels.len() {
            index.check_shards()?;
        }
        Ok(index)
    }
}

impl Level {
    /// The bytes of a stored index.
    pub fn index_bytes(&self) -> usize {
        self.total * ENTRY + if self.checksum { CHECKSUM_BYTES } else { 0 }
    }

    /// Where the first chunk of a new shard lies.
    pub fn first_chunk(&self) -> usize {
        if self.at_start { self.index_bytes() } else { 0 }
    }

    pub fn at_start(&self) -> bool {
        self.at_start
    }

    /// The number, in its shard of this level, of what a chunk is or lies in.
    pub fn number(&self, parts: &[Part]) -> usize {
        let axes = self.counts.iter().zip(&self.unit).zip(parts);
        axes.fold(0, |number, ((count, unit), part)| number * count + part.chunk / unit % count)
    }

    fn read_index(&self, start: usize, extent: &Extent<'_>, buffer: &mut Vec<u8>) -> Outcome<Index> {
        let (size, wanted) = (extent.length, self.index_bytes());
        if wanted > size {
            return corrupt!("shard: {size} bytes are stored, its index alone takes {wanted}");
        }
        let bytes = grow(buffer, wanted)?;
        extent.read(if self.at_start { 0 } else { size - wanted }, bytes)?;
        let (table, checksum) = bytes.split_at(self.total * ENTRY);
        if let Ok(checksum) = <[u8; CHECKSUM_BYTES]>::try_from(checksum) {
            let (claim, fact) = (u32::from_le_bytes(checksum), crc32c::crc32c(table));
            if claim != fact {
                return corrupt!("shard index: crc32c: the checksum is {fact:#010x}, {claim:#010x} is stored");
            }
        }
        let number = |bytes: [u8; 8]| {
            if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
        };
        let (entries, _) = table.as_chunks::<8>().0.as_chunks::<2>();
        let mut parsed = reserved(entries.len())?;
        parsed.extend(entries.iter().map(|entry| entry.map(number)));
        Ok(Index { entries: parsed, start, size })
    }

    /// The bytes of an index.
    pub fn pack_index(&self, entries: &[Option<Range<usize>>]) -> Outcome<Vec<u8>> {
        let mut bytes = reserved(self.index_bytes())?;
        for entry in entries {
            let numbers = entry.as_ref().map_or([ABSENT; 2], |range| [range.start as u64, range.len() as u64]);
            for number in numbers {
                bytes.extend(if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
            }
        }
        if self.checksum {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        Ok(bytes)
    }
}

/// The product of the counts of chunks, where an index has room for so many.
fn product(counts: &[usize]) -> Option<usize> {
    let total = counts.iter().try_fold(1usize, |total, count| total.checked_mul(*count))?;
    total.checked_mul(ENTRY).filter(|size| *size > 0 && *size < isize::MAX as usize)?;
    Some(total)
}

impl Index {
    /// Where a chunk lies in the file of its shard; `None` when it is absent.
    pub fn range(&self, number: usize) -> Outcome<Option<Range<usize>>> {
        let [start, length] = self.entries[number];
        if [start, length] == [ABSENT; 2] {
            return Ok(None);
        }
        match start.checked_add(length) {
            Some(end) if end <= self.size as u64 => Ok(Some(self.start + start as usize..self.start + end as usize)),
            _ => corrupt!(
                "shard index: inner chunk {number} claims {length} bytes from {start} on, the shard has {}",
                self.size
            ),
        }
    }

    /// Refuse an index whose chunks are shards that overlap: the indexes of a small file would take any
    /// amount of memory and work. Shards that are the same bytes count once.
    fn check_shards(&self) -> Outcome<()> {
        let size = self.size as u64;
        let inside = |[start, length]: &[u64; 2]| start.checked_add(*length).is_some_and(|end| end <= size);
        let mut shards: Vec<[u64; 2]> = reserved(self.entries.len())?;
        shards.extend(self.entries.iter().filter(|entry| inside(entry)));
        shards.sort_unstable();
        shards.dedup();
        let claimed: u128 = shards.iter().map(|[_, length]| u128::from(*length)).sum();
        if claimed > u128::from(size) {
            return corrupt!("shard index: {} inner shards claim {claimed} bytes, the shard has {size}", shards.len());
        }
        Ok(())
    }

    pub fn size(&self) -> usize {
        self.size
    }

    fn kept_bytes(&self) -> usize {
        self.entries.len() * ENTRY
    }
}

impl Shard {
    /// Bytes `range` of the file.
    pub fn extent(&self, range: Range<usize>) -> Extent<'_> {
        let bytes = Bytes::File(Arc::clone(&self.file));
        let (offset, length) = (range.start as u64, range.len());
        Extent { key: &self.key, bytes, offset, length, identity: self.identity }
    }
}

/// A selection cut by shards.
pub struct Cut {
    axes: Vec<AxisCut>,
}

/// An axis of a selection, cut by shards.
enum AxisCut {
    /// The parts of a range, and the same range cut by shards.
    Range(RangeParts, RangeParts),
    /// The number of each shard, and the parts that lie in it.
    Listed(Vec<(usize, Range<usize>)>),
}

impl AxisCut {
    fn len(&self) -> usize {
        match self {
            Self::Range(_, shards) => shards.len(),
            Self::Listed(groups) => groups.len(),
        }
    }

    /// Shard `number` of the axis, and the parts that lie in it.
    fn group(&self, number: usize) -> (usize, Range<usize>) {
        match self {
            Self::Range(parts, shards) => {
                let Part { chunk, position, count, .. } = shards.part(number);
                (chunk, parts.number(position)..parts.number(position + count - 1) + 1)
            }
            Self::Listed(groups) => groups[number].clone(),
        }
    }
}

impl Cut {
    /// How many shards the selection touches.
    pub fn count(&self) -> usize {
        self.axes.iter().fold(1usize, |count, axis| count.saturating_mul(axis.len()))
    }

    /// Shard `number` of them, in C order.
    pub fn touched(&self, mut number: usize) -> Touched {
        let mut groups = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            groups.push(axis.group(number % axis.len()));
            number /= axis.len();
        }
        groups.reverse();
        let (coords, parts) = groups.into_iter().unzip();
        Touched { coords, parts }
    }
}

impl Touched {
    /// How many chunks of the shard the selection touches.
    pub fn count(&self) -> usize {
        self.parts.iter().map(ExactSizeIterator::len).product()
    }

    /// The number, in the selection, of chunk `index` of them, in C order.
    pub fn number<M: Memory>(&self, selection: &Selection<'_, M>, index: usize) -> usize {
        let mut inner = self.count();
        selection.number(self.parts.iter().map(|parts| {
            let outer = inner;
            inner /= parts.len();
            parts.start + index % outer / inner
        }))
    }
}

/// Indexes that are likely to be wanted again: two generations, of which the older one is dropped
/// when the younger one is full.
#[derive(Default)]
pub struct IndexCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<Vec<usize>, (Identity, Arc<Index>)>,
    old: HashMap<Vec<usize>, (Identity, Arc<Index>)>,
    used: usize,
}

impl IndexCache {
    /// The index that is kept under a name for a file, or the one that `read` returns.
    fn find_or(
        &self,
        name: &[usize],
        identity: Option<Identity>,
        read: impl FnOnce() -> Outcome<Index>,
    ) -> Outcome<Arc<Index>> {
        if let Some(index) = identity.and_then(|identity| self.find(name, identity)) {
            return Ok(index);
        }
        let index = Arc::new(read()?);
        if let Some(identity) = identity {
            self.keep(name, identity, Arc::clone(&index));
        }
        Ok(index)
    }

    fn find(&self, coords: &[usize], identity: Identity) -> Option<Arc<Index>> {
        fork::lock(&self.0)?.find(coords, identity)
    }

    fn keep(&self, coords: &[usize], identity: Identity, index: Arc<Index>) {
        if let Some(mut kept) = fork::lock(&self.0) {
            kept.keep(coords, identity, index);
        }
    }
}

impl Generations {
    fn find(&mut self, coords: &[usize], identity: Identity) -> Option<Arc<Index>> {
        if let Some((held, index)) = self.young.get(coords) {
            return (*held == identity).then(|| Arc::clone(index));
        }
        let (held, index) = self.old.remove(coords)?;
        (held == identity).then(|| {
            self.keep(coords, identity, Arc::clone(&index));
            index
        })
    }

    fn keep(&mut self, coords: &[usize], identity: Identity, index: Arc<Index>) {
        let size = index.kept_bytes();
        if size > KEPT_BYTES / 2 {
            return;
        }
        if self.used + size > KEPT_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.used = 0;
        }
        self.used += size;
        if let Some((_, replaced)) = self.young.insert(coords.to_vec(), (identity, index)) {
            self.used -= replaced.kept_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::time::{Duration, SystemTime};

    /// The identities of one file at some times of change.
    fn identities(name: &str, count: u64) -> Vec<Identity> {
        let path = std::env::temp_dir().join(format!("ingot-shards-{}-{name}", std::process::id()));
        std::fs::write(&path, [7; 20]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let aged = |seconds| {
            let time = SystemTime::now() - Duration::from_secs(seconds);
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
            Identity::of(&rustix::fs::fstat(&file).unwrap()).unwrap()
        };
        (10..10 + count).map(aged).collect()
    }

    /// An index of so many bytes; its shard has `size` bytes, by which it is known again.
    fn index(bytes: usize, size: usize) -> Arc<Index> {
        Arc::new(Index { entries: vec![[ABSENT; 2]; bytes / ENTRY], start: 0, size })
    }

    fn found(kept: &mut Generations, shard: usize, identity: Identity) -> Option<usize> {
        kept.find(&[shard], identity).map(|index| index.size())
    }

    #[test]
    fn the_index_of_a_changed_shard_is_not_found_in_either_generation() {
        let identity = identities("changed", 2);
        let mut kept = Generations::default();
        for shard in 0..11 {
            kept.keep(&[shard], identity[0], index(1 << 20, shard));
        }
        // The first eight filled the younger generation and are the older one now.
        assert_eq!((kept.old.len(), kept.young.len()), (8, 3));
        for shard in [0, 10] {
            assert_eq!(found(&mut kept, shard, identity[1]), None);
            kept.keep(&[shard], identity[1], index(1 << 20, 100 + shard));
            assert_eq!(found(&mut kept, shard, identity[1]), Some(100 + shard));
            assert_eq!(found(&mut kept, shard, identity[0]), None);
        }
        for shard in [1, 7, 8, 9] {
            assert_eq!(found(&mut kept, shard, identity[0]), Some(shard));
        }
    }

    #[test]
    fn the_memory_for_indexes_is_bounded() {
        let identity = identities("bounded", 4);
        let mut kept = Generations::default();
        let held = |kept: &Generations| -> usize {
            kept.young.values().chain(kept.old.values()).map(|(_, index)| index.kept_bytes()).sum()
        };
        for turn in 0..100 {
            let shard = turn * 7 % 40;
            if found(&mut kept, shard, identity[turn % 4]).is_none() {
                kept.keep(&[shard], identity[turn % 4], index(1 << 20, turn));
            }
            assert!(held(&kept) <= KEPT_BYTES, "turn {turn}");
            let young: usize = kept.young.values().map(|(_, index)| index.kept_bytes()).sum();
            assert_eq!(kept.used, young, "turn {turn}");
        }
        kept.keep(&[1000], identity[0], index(KEPT_BYTES / 2 + ENTRY, 1));
        assert_eq!(found(&mut kept, 1000, identity[0]), None, "larger than a generation");
        kept.keep(&[1000], identity[0], index(KEPT_BYTES / 2, 2));
        assert_eq!(found(&mut kept, 1000, identity[0]), Some(2));
    }
    fn part(chunk: usize) -> Part {
        Part { chunk, start: 0, count: 1, position: 0, list: None }
    }

    #[test]
    fn chunks_are_numbered_level_by_level() {
        let form = |counts: &[usize]| (counts.to_vec(), false, false, false);
        let format = ShardFormat::new(vec![form(&[2, 1]), form(&[3, 4]), form(&[1, 5])]).unwrap();
        assert_eq!((&format.counts[..], format.total, format.axes()), (&[6, 20][..], 120, 2));
        let numbers = |chunk: [usize; 2]| {
            let parts = chunk.map(part);
            format.levels.iter().map(|level| level.number(&parts)).collect::<Vec<_>>()
        };
        assert_eq!(numbers([0, 0]), [0, 0, 0]);
        assert_eq!(numbers([5, 19]), [1, 11, 4]);
        assert_eq!(numbers([6 + 4, 40 + 7]), [1, 5, 2], "counted in each file from 0");
        assert_eq!(format.number(&[part(6 + 4), part(40 + 7)]), (12 + 5) * 5 + 2);
        assert_eq!([0, 1, 2].map(|depth| format.chunks_of_entry(depth)), [60, 5, 1]);
        let wrong = [vec![], vec![form(&[0])], vec![form(&[2]), form(&[2, 2])], vec![form(&[1 << 31]); 2]];
        assert!(wrong.into_iter().all(|forms| ShardFormat::new(forms).is_none()));
    }

    #[test]
    fn shards_in_a_shard_are_the_same_bytes_or_do_not_overlap() {
        let check = |entries: &[[u64; 2]]| Index { entries: entries.to_vec(), start: 5, size: 100 }.check_shards();
        assert!(check(&[[0, 60], [60, 40], [ABSENT; 2], [0, 60]]).is_ok());
        let error = check(&[[0, 60], [59, 41], [ABSENT; 2], [0, 60]]).unwrap_err();
        assert!(error.text.contains("2 inner shards claim 101 bytes, the shard has 100"), "{error}");
        assert!(
            check(&[[0, 100], [1, 100], [u64::MAX - 1, 5]]).is_ok(),
            "those outside are refused when they are used"
        );
    }
}
