//! Shards: many chunks in one file, and the index that says where each of them lies.
//!
//! Two numbers for each chunk, in C order: where it begins and how many bytes it has, both
//! all ones when it is absent. Chunks may lie in any order and share bytes, but all inside
//! their file, which is checked before any memory is taken for them. The indexes of files
//! that were read are kept, within a budget, for as long as the files stay what they are.

mod read;
mod stage;

use crate::array::layout::{Job, Part};
use crate::chunk::scratch::grow;
use crate::error::{Outcome, corrupt};
use crate::files::verified::SEAL;
use crate::files::{Buffers, Extent, Root};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const ABSENT: u64 = u64::MAX;
const ENTRY: usize = 16;
/// What one array keeps of indexes.
const KEPT_BYTES: usize = 16 << 20;
/// A file that was changed just now may be changed again without its time telling.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// How the shards of an array are made.
pub struct Sharding {
    /// Chunks along each axis of a shard.
    counts: Vec<usize>,
    total: usize,
    at_start: bool,
    big_endian: bool,
    sealed: bool,
    indexes: Mutex<Indexes>,
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
    pub index: Arc<Index>,
}

/// A shard that a box touches, and the parts of each axis that lie in it.
pub struct Touched<'a> {
    pub coords: Vec<usize>,
    pub parts: Vec<&'a [Part]>,
}

impl Sharding {
    /// `None` when there is no such shard.
    pub fn new(counts: Vec<usize>, at_start: bool, big_endian: bool, sealed: bool) -> Option<Self> {
        let total = counts.iter().try_fold(1usize, |total, count| total.checked_mul(*count))?;
        total.checked_mul(ENTRY).filter(|size| *size > 0 && *size < isize::MAX as usize)?;
        Some(Self { counts, total, at_start, big_endian, sealed, indexes: Mutex::default() })
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn axes(&self) -> usize {
        self.counts.len()
    }

    /// How many chunks of shard `number` along an axis there are, of `all` chunks.
    pub fn chunks_inside(&self, axis: usize, number: usize, all: usize) -> usize {
        let count = self.counts[axis];
        count.min(all - number * count)
    }

    /// The bytes of a stored index.
    pub fn index_bytes(&self) -> usize {
        self.total * ENTRY + if self.sealed { SEAL } else { 0 }
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

    /// The shards that a box touches, per axis: from where to where its parts lie in each.
    pub fn cut<'a>(&self, job: &'a Job<'_>) -> Cut<'a> {
        let axes = self.counts.iter().zip(job.parts()).map(|(count, parts)| {
            let mut groups: Vec<(usize, &[Part])> = Vec::new();
            let mut start = 0;
            for end in 1..=parts.len() {
                let shard = parts[start].chunk / count;
                if end == parts.len() || parts[end].chunk / count != shard {
                    groups.push((shard, &parts[start..end]));
                    start = end;
                }
            }
            groups
        });
        Cut { axes: axes.collect() }
    }

    /// Open the shard `coords`, which lies at `key`, and read its index or recall it.
    pub fn open(&self, root: &Root, coords: &[usize], key: String, buffers: &mut Buffers) -> Outcome<Option<Shard>> {
        let Some(extent) = root.extent(&key)? else {
            return Ok(None);
        };
        let identity = Identity::of(&extent)?;
        let known = identity.and_then(|identity| self.indexes.lock().expect("no thread panics").find(coords, identity));
        let index = match known {
            Some(index) => index,
            None => {
                let index = Arc::new(self.read_index(&extent, buffers)?);
                if let Some(identity) = identity {
                    self.indexes.lock().expect("no thread panics").keep(coords, identity, Arc::clone(&index));
                }
                index
            }
        };
        let file = Arc::clone(&extent.file);
        Ok(Some(Shard { key, file, index }))
    }

    fn read_index(&self, extent: &Extent<'_>, buffers: &mut Buffers) -> Outcome<Index> {
        let (size, wanted) = (extent.length, self.index_bytes());
        if wanted > size {
            return corrupt!("shard: {size} bytes are stored, its index alone takes {wanted}");
        }
        let bytes = grow(&mut buffers.body, wanted)?;
        extent.read(if self.at_start { 0 } else { size - wanted }, bytes)?;
        let (table, seal) = bytes.split_at(self.total * ENTRY);
        if let Ok(seal) = <[u8; SEAL]>::try_from(seal) {
            let (claim, fact) = (u32::from_le_bytes(seal), crc32c::crc32c(table));
            if claim != fact {
                return corrupt!("shard index: crc32c: the checksum is {fact:#010x}, {claim:#010x} is stored");
            }
        }
        let number = |bytes: [u8; 8]| {
            if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
        };
        let (entries, _) = table.as_chunks::<8>().0.as_chunks::<2>();
        Ok(Index { entries: entries.iter().map(|entry| entry.map(number)).collect(), size })
    }

    /// The bytes of an index.
    pub fn pack_index(&self, entries: &[Option<Range<usize>>]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.index_bytes());
        for entry in entries {
            let numbers = entry.as_ref().map_or([ABSENT; 2], |range| [range.start as u64, range.len() as u64]);
            for number in numbers {
                bytes.extend(if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
            }
        }
        if self.sealed {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes
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
    /// Bytes of the shard as if they were a file.
    pub fn extent(&self, range: Range<usize>) -> Extent<'_> {
        Extent { key: &self.key, file: Arc::clone(&self.file), offset: range.start as u64, length: range.len() }
    }
}

/// How a box is cut by shards.
pub struct Cut<'a> {
    axes: Vec<Vec<(usize, &'a [Part])>>,
}

impl<'a> Cut<'a> {
    /// How many shards the box touches.
    pub fn count(&self) -> usize {
        self.axes.iter().fold(1usize, |count, groups| count.saturating_mul(groups.len()))
    }

    /// Shard `number` of them, in C order.
    pub fn touched(&self, mut number: usize) -> Touched<'a> {
        let mut groups = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            groups.push(axis[number % axis.len()]);
            number /= axis.len();
        }
        groups.reverse();
        let (coords, parts) = groups.into_iter().unzip();
        Touched { coords, parts }
    }
}

impl Touched<'_> {
    /// How many chunks of the shard the box touches.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|parts| parts.len()).product()
    }

    /// The part of each axis that chunk `row` of them has, in C order.
    pub fn row(&self, mut row: usize) -> Vec<Part> {
        let mut found: Vec<Part> = Vec::with_capacity(self.parts.len());
        for parts in self.parts.iter().rev() {
            found.push(parts[row % parts.len()]);
            row /= parts.len();
        }
        found.reverse();
        found
    }
}

/// What changes when a file may have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

impl Identity {
    /// `None` when nothing can be relied on.
    fn of(extent: &Extent<'_>) -> Outcome<Option<Self>> {
        let facts: Metadata = extent.facts()?;
        let settled = facts.modified().ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
        if settled.is_none_or(|age| age < SETTLED_AFTER) {
            return Ok(None);
        }
        let modified = (facts.mtime(), facts.mtime_nsec());
        Ok(Some(Self { device: facts.dev(), inode: facts.ino(), modified, size: facts.len() }))
    }
}

/// Indexes that are likely to be wanted again: two generations, of which the older one goes
/// when the younger one is full.
#[derive(Default)]
struct Indexes {
    young: HashMap<Vec<usize>, (Identity, Arc<Index>)>,
    old: HashMap<Vec<usize>, (Identity, Arc<Index>)>,
    used: usize,
}

impl Indexes {
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
