//! What was learnt of chunks that have trailers: where a slot lies, the header, the block starts and the
//! trailer of a chunk, which were found to agree, and which blocks agreed with their checksums. A later read
//! takes the blocks alone.
//!
//! All of it is known by the identity of a file, and forgotten with it: a file that changes has another one.

use crate::array::chunk_file::Expected;
use crate::array::trailer::{Spans, Stated};
use crate::chunk::header::Header;
use crate::files::Extent;
use crate::files::identity::Identity;
use crate::fork;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The most bytes that are kept; when there are more, all are forgotten.
const MOST_BYTES: usize = 4 << 20;
/// What an entry of a map takes beside its bytes, about.
const ENTRY: usize = 128;

/// What lies before and behind the blocks of a chunk that has a trailer.
pub struct Front {
    pub header: Header,
    /// From the header to the end of the block starts.
    pub head: Box<[u8]>,
    pub trailer: Box<[u8]>,
    pub spans: Spans,
    pub compared: Compared,
    pub rows: usize,
    /// What the trailer was compared with.
    pub stated: Stated,
    /// Where the chunk begins in its extent.
    pub begin: usize,
}

/// The blocks of a chunk that agreed with their checksums, one bit for each.
pub struct Compared(Box<[AtomicU64]>);

impl Compared {
    pub fn none_of(blocks: usize) -> Self {
        Self((0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn has(&self, block: usize) -> bool {
        // A bit says nothing of other memory: the bytes of a block are read anew each time.
        self.0[block / 64].load(Ordering::Relaxed) & 1 << (block % 64) != 0
    }

    pub fn add(&self, block: usize) {
        self.0[block / 64].fetch_or(1 << (block % 64), Ordering::Relaxed);
    }
}

/// Where a slot lies in its file: its start, and how many bytes may belong to its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub start: u64,
    pub length: usize,
}

#[derive(Default)]
pub struct Fronts(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By the place where the extent of a chunk starts.
    fronts: HashMap<(Identity, u64), Arc<Front>>,
    /// By the number of an entry in the index of a file.
    slots: HashMap<(Identity, usize), Slot>,
    bytes: usize,
}

impl Known {
    fn make_room(&mut self, size: usize) {
        if self.bytes + size > MOST_BYTES {
            *self = Self::default();
        }
        self.bytes += size;
    }
}

impl Fronts {
    /// The front of the chunk in an extent, if it is what is expected.
    pub fn find(&self, extent: &Extent<'_>, expected: &Expected) -> Option<Arc<Front>> {
        let place = (extent.identity?, extent.offset);
        let found = fork::lock(&self.0)?.fronts.get(&place).cloned()?;
        let fits = found.stated == expected.stated && (expected.least..=expected.most).contains(&found.rows);
        fits.then_some(found)
    }

    /// Whether the front of the chunk at a place of a file is known.
    pub fn has(&self, file: Identity, start: u64) -> bool {
        fork::lock(&self.0).is_some_and(|known| known.fronts.contains_key(&(file, start)))
    }

    /// Remember a front, if its file can be told from a changed one. The identity of the file was taken before it
    /// was read.
    pub fn remember(&self, extent: &Extent<'_>, front: impl FnOnce() -> Front) -> Option<Arc<Front>> {
        let identity = extent.identity?;
        let front = Arc::new(front());
        let mut known = fork::lock(&self.0)?;
        known.make_room(ENTRY + front.head.len() + front.trailer.len() + front.spans.memory());
        known.fronts.insert((identity, extent.offset), Arc::clone(&front));
        Some(front)
    }

    /// Where the slot of an entry lies.
    pub fn slot(&self, file: Option<Identity>, entry: usize) -> Option<Slot> {
        fork::lock(&self.0)?.slots.get(&(file?, entry)).copied()
    }

    pub fn remember_slot(&self, file: Option<Identity>, entry: usize, slot: Slot) {
        if let (Some(identity), Some(mut known)) = (file, fork::lock(&self.0)) {
            known.make_room(ENTRY);
            known.slots.insert((identity, entry), slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::header::Header;
    use crate::files::Bytes;
    use rustix::fs::fstat;
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    const STATED: Stated = Stated { number: 7, identity: Some(9) };
    const DUE: Expected = Expected { stated: STATED, row_bytes: 1, least: 10, most: 10, slotted: true };

    fn file(name: &str) -> Arc<File> {
        let path = std::env::temp_dir().join(format!("ingot-fronts-{}-{name}", std::process::id()));
        std::fs::write(&path, [7; 20]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_times(FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(10))).unwrap();
        Arc::new(file)
    }

    fn extent(file: &Arc<File>, offset: u64) -> Extent<'static> {
        let identity = Identity::of(&fstat(file).unwrap());
        Extent { key: "file", bytes: Bytes::File(Arc::clone(file)), offset, length: 10, identity }
    }

    /// The front of a chunk whose trailer has `size` bytes.
    fn front(size: usize) -> Front {
        let chunk = [2, 1, 2, 1, 10, 0, 0, 0, 10, 0, 0, 0, 26, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
        let spans = Spans::of(&header, &[]).unwrap();
        let (trailer, compared) = (vec![0; size].into(), Compared::none_of(1));
        Front { header, head: [].into(), trailer, spans, compared, rows: 10, stated: STATED, begin: 0 }
    }

    #[test]
    fn a_front_is_known_of_its_chunk_until_the_file_changes() {
        let (file, fronts) = (file("change"), Fronts::default());
        fronts.remember(&extent(&file, 0), || front(40));
        let found = |offset, due: &Expected| fronts.find(&extent(&file, offset), due).is_some();
        assert!(found(0, &DUE));
        assert!(!found(4, &DUE));
        assert!(!found(0, &Expected { stated: Stated { number: 8, ..STATED }, ..DUE }));
        assert!(!found(0, &Expected { stated: Stated { identity: None, ..STATED }, ..DUE }));
        assert!(!found(0, &Expected { least: 11, most: 11, ..DUE }));
        file.set_times(FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(5))).unwrap();
        assert!(!found(0, &DUE));
        let unsettled = Extent { identity: None, ..extent(&file, 0) };
        assert!(fronts.remember(&unsettled, || unreachable!("such a file is not known")).is_none());
    }

    #[test]
    fn blocks_are_compared_one_by_one() {
        let compared = Compared::none_of(130);
        for block in [0, 63, 64, 129] {
            compared.add(block);
        }
        let found: Vec<_> = (0..130).filter(|block| compared.has(*block)).collect();
        assert_eq!(found, [0, 63, 64, 129]);
    }

    #[test]
    fn a_slot_is_known_until_the_file_changes() {
        let (file, fronts) = (file("slot"), Fronts::default());
        let identity = Identity::of(&fstat(&file).unwrap());
        let slot = Slot { start: 100, length: 50 };
        fronts.remember_slot(identity, 3, slot);
        fronts.remember_slot(None, 4, slot);
        assert_eq!(fronts.slot(identity, 3), Some(slot));
        assert_eq!(fronts.slot(identity, 4), None);
        assert_eq!(fronts.slot(None, 4), None);
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let (file, fronts) = (file("room"), Fronts::default());
        let size = 1000;
        let known = |offset| fronts.find(&extent(&file, offset), &DUE).is_some();
        let most = (MOST_BYTES / (ENTRY + size)) as u64;
        for offset in 0..most {
            fronts.remember(&extent(&file, offset), || front(size));
        }
        assert!(known(0) && known(most - 1));
        fronts.remember(&extent(&file, most), || front(size));
        assert!(!known(0) && known(most));
    }
}
