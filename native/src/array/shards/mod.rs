//! Shards: many chunks in one file, and the index that says where each of them lies.
//!
//! Two numbers for each chunk, in C order: its offset and its length, both all ones when it is
//! absent. Chunks may lie in any order and share bytes, but all inside their file, which is checked
//! before any memory is taken for them. The indexes of files that were read are kept, within a
//! budget, for as long as the identity of the files stays the same.

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
    /// Chunks along each axis of a shard.
    counts: Vec<usize>,
    total: usize,
    /// Whether the index comes before the chunks.
    at_start: bool,
    big_endian: bool,
    /// Whether a CRC-32C lies behind the index.
    checksum: bool,
}

/// The index of one shard.
pub struct Index {
    entries: Vec<[u64; 2]>,
    /// The bytes of the shard.
    size: usize,
}

/// A shard whose index has been read.
pub struct Shard {
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
    /// `None` for a shard without chunks, or with too many.
    pub fn new(counts: Vec<usize>, at_start: bool, big_endian: bool, checksum: bool) -> Option<Self> {
        let total = counts.iter().try_fold(1usize, |total, count| total.checked_mul(*count))?;
        total.checked_mul(ENTRY).filter(|size| *size > 0 && *size < isize::MAX as usize)?;
        Some(Self { counts, total, at_start, big_endian, checksum })
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn axes(&self) -> usize {
        self.counts.len()
    }

    /// How many chunks shard `number` along an axis has, of `all` chunks of the array.
    pub fn chunks_inside(&self, axis: usize, number: usize, all: usize) -> usize {
        let count = self.counts[axis];
        count.min(all - number * count)
    }

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

    /// The number of a chunk in its shard.
    pub fn number(&self, parts: &[Part]) -> usize {
        self.counts.iter().zip(parts).fold(0, |number, (count, part)| number * count + part.chunk % count)
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
        let index = match identity.and_then(|identity| cache.find(coords, identity)) {
            Some(index) => index,
            None => {
                let index = Arc::new(self.read_index(&extent, buffer)?);
                if let Some(identity) = identity {
                    cache.keep(coords, identity, Arc::clone(&index));
                }
                index
            }
        };
        let Bytes::File(file) = extent.bytes else {
            return corrupt!("shard: it is not a file");
        };
        Ok(Some(Shard { key, file, identity, index }))
    }

    fn read_index(&self, extent: &Extent<'_>, buffer: &mut Vec<u8>) -> Outcome<Index> {
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
        Ok(Index { entries: parsed, size })
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

impl Index {
    /// Where a chunk lies in its shard; `None` when it is absent.
    pub fn range(&self, number: usize) -> Outcome<Option<Range<usize>>> {
        let [start, length] = self.entries[number];
        if [start, length] == [ABSENT; 2] {
            return Ok(None);
        }
        match start.checked_add(length) {
            Some(end) if end <= self.size as u64 => Ok(Some(start as usize..end as usize)),
            _ => corrupt!(
                "shard index: inner chunk {number} claims {length} bytes from {start} on, the shard has {}",
                self.size
            ),
        }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    fn kept_bytes(&self) -> usize {
        self.entries.len() * ENTRY
    }
}

impl Shard {
    /// Bytes `range` of the shard.
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
        Arc::new(Index { entries: vec![[ABSENT; 2]; bytes / ENTRY], size })
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
}
