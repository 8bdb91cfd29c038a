//! Super-chunk files: a head, an index of offsets, and slots with a chunk each. The index is not read as a
//! whole: a call reads the entries of the chunks that it visits, so that it costs nothing to begin anew when
//! another state is committed.

use crate::array::addresses::itoa;
use crate::array::chunk_file::slot_bytes;
use crate::array::fronts::{Fronts, Slot};
use crate::array::grid::Grid;
use crate::array::stored::Chunk;
use crate::chunk::header::{EXTENDED_BYTES, HEADER_BYTES};
use crate::error::{Outcome, corrupt, malformed, unsupported};
use crate::files::identity::Identity;
use crate::files::{Bytes, Extent, Root};
use crate::memory::{grow, reserved};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

pub const HEAD_BYTES: usize = 16;
pub const ENTRY_BYTES: usize = 8;
const MAGIC: &[u8] = b"blsk";
const VERSION: u8 = 1;
const TRAILERS: u8 = 1;
/// The most files that a call keeps open for chunks to come.
const MOST_OPEN: usize = 64;
/// The entry of a chunk that is not stored.
pub const ABSENT: i64 = -1;

/// The files of an array, in parts that count their chunks and files from 0.
pub struct SuperChunks {
    pub root: PathBuf,
    parts: Vec<Part>,
    patches: HashMap<String, Patches>,
}

/// Bytes of heads and indexes that a journal has, each with the place where they start.
pub type Patches = Vec<(usize, Vec<u8>)>;

/// Chunks that follow each other, in files of their own.
pub struct Part {
    /// The number of its first chunk in the array.
    pub first: usize,
    /// How many chunks it has.
    pub count: usize,
    /// What is in front of the number of a file in its key, and behind it.
    pub prefix: String,
    pub suffix: String,
    /// How many entries the index of a file has.
    pub capacity: usize,
}

/// A file: its part, and its number in the part.
type FilePlace = (usize, usize);

/// The place of a chunk: its file, and its entry in the file.
type Place = (FilePlace, usize);

struct OpenFile {
    bytes: Bytes<'static>,
    size: usize,
    identity: Option<Identity>,
    /// Read when the index is needed.
    head: OnceLock<Head>,
}

/// The head of a file, found to be what the array needs.
struct Head {
    nchunks: usize,
    /// Where the slots of a file without trailers start, in ascending order: there, nothing but the order of
    /// the slots tells which chunk is whose. `None` with trailers.
    starts: Option<Vec<usize>>,
}

/// The files that a call has opened: each once, where they are few.
pub struct OpenFiles<'a> {
    files: &'a SuperChunks,
    /// What was read of the files before.
    fronts: &'a Fronts,
    root: Option<Root>,
    open: Mutex<HashMap<FilePlace, Option<Arc<OpenFile>>>>,
}

impl SuperChunks {
    /// The parts are in the order of their chunks; `patches` are by the keys of files. `None` where a file of a
    /// part has no chunks.
    pub fn new(root: PathBuf, parts: Vec<Part>, patches: HashMap<String, Patches>) -> Option<Self> {
        let sound = parts.iter().all(|part| part.capacity > 0) && parts.is_sorted_by_key(|part| part.first);
        sound.then_some(Self { root, parts, patches })
    }

    fn patches(&self, key: &str) -> &[(usize, Vec<u8>)] {
        self.patches.get(key).map_or(&[], Vec::as_slice)
    }

    pub fn open<'a>(&'a self, fronts: &'a Fronts) -> Outcome<OpenFiles<'a>> {
        Ok(OpenFiles { files: self, fronts, root: Root::open(&self.root)?, open: Mutex::default() })
    }

    /// `None` for a chunk that no part has.
    fn place(&self, number: usize) -> Option<Place> {
        // Of parts with one first chunk all but the last are empty.
        let index = self.parts.partition_point(|part| part.first <= number).checked_sub(1)?;
        let Part { first, count, capacity, .. } = self.parts[index];
        let own = number - first;
        (own < count).then_some(((index, own / capacity), own % capacity))
    }
}

impl Part {
    fn key(&self, file: usize) -> String {
        [&*self.prefix, itoa(file + 1, &mut [0; 20]), &self.suffix].concat()
    }

    /// Read the head of a file, and compare it with the size of the file and with what it should hold.
    fn read_head(
        &self,
        extent: &Extent<'_>,
        file: usize,
        itemsize: usize,
        patches: &[(usize, Vec<u8>)],
    ) -> Outcome<Head> {
        let (key, size) = (extent.key, extent.length);
        if size < HEAD_BYTES {
            return corrupt!("{key}: a head needs {HEAD_BYTES} bytes, {size} are stored");
        }
        let mut head = [0; HEAD_BYTES];
        read_over(extent, 0, &mut head, patches)?;
        let [magic, [version, flags, reserved @ ..], typesize, nchunks] = head.as_chunks::<4>().0 else {
            return corrupt!("{key}: a head has {HEAD_BYTES} bytes");
        };
        let (typesize, nchunks) = (i32::from_le_bytes(*typesize), i32::from_le_bytes(*nchunks));
        if magic != MAGIC {
            return malformed!("{key}: it begins with b'{}', not with b'blsk'", magic.escape_ascii());
        }
        if *version != VERSION {
            return unsupported!("{key}: version {version} is unknown");
        }
        if flags & !TRAILERS != 0 || *reserved != [0, 0] {
            let reserved = u16::from_le_bytes(*reserved);
            return unsupported!("{key}: flags {flags:#04x} and reserved bytes {reserved:#06x} are unknown");
        }
        if typesize < 1 {
            return malformed!("{key}: typesize is {typesize}");
        }
        let Ok(nchunks) = usize::try_from(nchunks) else {
            return malformed!("{key}: nchunks is {nchunks}");
        };
        if nchunks > self.capacity {
            return corrupt!("{key}: nchunks claims {nchunks} chunks, the index has {} entries", self.capacity);
        }
        let begin = self.slots_begin();
        if begin > size {
            return corrupt!("{key}: an index of {} entries ends at byte {begin}, {size} are stored", self.capacity);
        }
        let due = self.capacity.min(self.count.saturating_sub(file * self.capacity));
        if nchunks < due {
            return corrupt!("{key}: nchunks is {nchunks}, by meta/nrows and the shape of chunks it holds {due}");
        }
        if typesize as usize != itemsize {
            return corrupt!("{key}: typesize is {typesize}, items have {itemsize} bytes");
        }
        let starts = if flags & TRAILERS == 0 { Some(self.read_starts(extent)?) } else { None };
        Ok(Head { nchunks, starts })
    }

    /// Read the whole index of a file, which lies inside it, and refuse slots that overlap.
    fn read_starts(&self, extent: &Extent<'_>) -> Outcome<Vec<usize>> {
        let mut index = Vec::new();
        extent.read(HEAD_BYTES, grow(&mut index, self.capacity * ENTRY_BYTES)?)?;
        let entries = index.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| i64::from_le_bytes(*entry));
        let mut starts: Vec<usize> = reserved(self.capacity)?;
        // What lies outside of the file is refused when it is wanted.
        starts.extend(entries.filter_map(|start| usize::try_from(start).ok()));
        starts.sort_unstable();
        if let Some(pair) = starts.windows(2).find(|pair| pair[1] - pair[0] < HEADER_BYTES) {
            return corrupt!("{}: two chunks start at {} and {}", extent.key, pair[0], pair[1]);
        }
        Ok(starts)
    }

    fn slots_begin(&self) -> usize {
        self.capacity.saturating_mul(ENTRY_BYTES).saturating_add(HEAD_BYTES)
    }

    /// Where the slot of an entry lies, with nothing behind its chunk but what may be its trailer; `None` without
    /// a chunk. `all` is the file.
    fn slot(&self, all: &Extent<'_>, head: &Head, entry: usize, patches: &[(usize, Vec<u8>)]) -> Outcome<Option<Slot>> {
        let (key, size) = (all.key, all.length);
        let mut word = [0; ENTRY_BYTES];
        read_over(all, HEAD_BYTES + entry * ENTRY_BYTES, &mut word, patches)?;
        let start = i64::from_le_bytes(word);
        if start == ABSENT {
            return Ok(None);
        }
        if entry >= head.nchunks {
            return corrupt!("{key}: chunk {entry} has an offset, nchunks is {}", head.nchunks);
        }
        let begin = self.slots_begin();
        let Some(at) =
            usize::try_from(start).ok().filter(|at| (begin..=size.saturating_sub(HEADER_BYTES)).contains(at))
        else {
            return corrupt!("{key}: chunk {entry} starts at {start}, slots lie from byte {begin} to {size}");
        };
        // Half of it is the header of Blosc 1.
        let mut header = [0; EXTENDED_BYTES];
        let header = &mut header[..EXTENDED_BYTES.min(size - at)];
        all.read(at, header)?;
        let end = head.starts.as_ref().and_then(|starts| starts.get(starts.partition_point(|start| *start <= at)));
        let room = end.map_or(size, |end| size.min(*end)) - at;
        let length = slot_bytes(header, room, head.starts.is_none());
        Ok(Some(Slot { start: at as u64, length }))
    }
}

impl OpenFiles<'_> {
    /// The key of the file that a chunk lies in; empty for a chunk that no part has.
    pub fn key(&self, number: usize) -> String {
        self.files.place(number).map_or_else(String::new, |((part, file), _)| self.files.parts[part].key(file))
    }

    /// Find chunk `number` in its file, whose key is `key`.
    pub fn chunk<'k>(&self, grid: &Grid, number: usize, key: &'k str) -> Outcome<Chunk<'k>> {
        let Some((place, entry)) = self.files.place(number) else { return Ok(Chunk::Absent) };
        let Some(file) = self.file(place, key)? else { return Ok(Chunk::Absent) };
        let (part, patches) = (&self.files.parts[place.0], self.files.patches(key));
        let all = file.extent(key);
        // Under patches, an entry is not what the file has.
        let identity = file.identity.filter(|_| patches.is_empty());
        let slot = match self.fronts.slot(identity, entry) {
            Some(known) => known,
            None => {
                let head = match file.head.get() {
                    Some(head) => head,
                    None => {
                        let head = part.read_head(&all, place.1, grid.itemsize, patches)?;
                        file.head.get_or_init(|| head)
                    }
                };
                let Some(found) = part.slot(&all, head, entry, patches)? else { return Ok(Chunk::Absent) };
                self.fronts.remember_slot(identity, entry, found);
                found
            }
        };
        all.narrowed(slot.start, Some(slot.length)).map(Chunk::Stored)
    }

    fn file(&self, place: FilePlace, key: &str) -> Outcome<Option<Arc<OpenFile>>> {
        let mut open = self.open.lock().expect("no thread panics");
        if let Some(found) = open.get(&place) {
            return Ok(found.clone());
        }
        let extent = self.root.as_ref().map_or(Ok(None), |root| root.extent(key))?;
        let found = match extent {
            Some(Extent { bytes: Bytes::File(file), length, identity, .. }) => {
                Some(Arc::new(OpenFile { bytes: Bytes::File(file), size: length, identity, head: OnceLock::new() }))
            }
            Some(_) => return corrupt!("{key}: it is not a file"),
            None => None,
        };
        if open.len() >= MOST_OPEN {
            open.clear(); // Those in use stay open until their chunks are read.
        }
        open.insert(place, found.clone());
        Ok(found)
    }
}

impl OpenFile {
    fn extent<'k>(&self, key: &'k str) -> Extent<'k> {
        Extent { key, bytes: self.bytes.clone(), offset: 0, length: self.size, identity: self.identity }
    }
}

/// Read bytes of a file as they are under patches.
fn read_over(extent: &Extent<'_>, at: usize, out: &mut [u8], patches: &[(usize, Vec<u8>)]) -> Outcome<()> {
    extent.read(at, out)?;
    for (start, data) in patches {
        let (first, last) = (at.max(*start), (at + out.len()).min(start + data.len()));
        if first < last {
            out[first - at..last - at].copy_from_slice(&data[first - start..last - start]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_lie_over_the_bytes_of_a_file() {
        let file = Extent::held("file", b"0123456789");
        let patches = [(2, b"abc".to_vec()), (8, b"xyz".to_vec())];
        for (at, found) in [(0, b"01ab"), (1, b"1abc"), (3, b"bc56"), (5, b"567x"), (6, b"67xy")] {
            let mut out = [0; 4];
            read_over(&file, at, &mut out, &patches).unwrap();
            assert_eq!(&out, found, "{at}");
        }
    }
}
