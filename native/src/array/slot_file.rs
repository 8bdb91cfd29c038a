//! A super-chunk file as the writer knows it that changed it last, and the change of one of its chunks as a
//! commit of one call: the lock is taken, the chunk read, merged, encoded and written where nothing reaches,
//! and its entry in the index switched. Whatever is unusual is left to Python; then nothing has changed.

use crate::array::room::Room;
use crate::array::scatter::SourceMemory;
use crate::array::selection::Selection;
use crate::array::staging::encode_chunk;
use crate::array::stored::Chunk;
use crate::array::super_chunks::{ABSENT, ENTRY_BYTES, HEAD_BYTES};
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome};
use crate::files::commit::{OLD, close, sync_data, write_all};
use crate::files::kernel_commit::{Changed, Dataset, Expected, Failed, KernelTurn};
use crate::files::{Bytes, Extent, Root};
use crate::fork;
use rustix::fs::{FileType, Mode, Stat, fstat, ftruncate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard};

/// A file, as of one version of the dataset.
pub struct SlotFile {
    key: String,
    /// The number of its first chunk in the array.
    first: usize,
    state: Mutex<State>,
    /// The process that made it; in a fork of it, the lock may be one that nothing releases.
    process: u32,
}

struct State {
    /// The head and the index, as they are stored.
    index: Vec<u8>,
    /// How many bytes the image of each entry has.
    lengths: Vec<u64>,
    room: Room,
    /// What the system said of the file when this writer had changed it.
    left: Option<Facts>,
    /// Whether nothing is known of the file any more: another program has changed it, or a change failed.
    stale: bool,
}

/// The device, the number, the size, and the time of the last change of a file.
type Facts = (u64, u64, i64, i64, u64);

/// A change of one chunk, as a commit.
pub struct Change<'a> {
    /// What the chunk gets.
    pub selection: &'a Selection<'a, SourceMemory<'a>>,
    /// The room behind an image at the end of the file, as a fraction of its size.
    pub spare: f64,
}

/// A new image that nothing refers to yet.
struct Written {
    file: Arc<File>,
    entry: usize,
    start: u64,
    length: u64,
    /// Where the file ended before.
    end: u64,
}

impl SlotFile {
    /// `index` are the head and the index, `lengths` how many bytes the image of each entry has.
    pub fn new(key: String, first: usize, index: Vec<u8>, lengths: Vec<u64>, size: u64) -> Outcome<Self> {
        let begin = HEAD_BYTES + ENTRY_BYTES * lengths.len();
        let wrong = |text: &str| Err(Error::new(Kind::Argument, text));
        if index.len() != begin {
            return wrong("an index and lengths of other numbers of entries");
        }
        let mut images: Vec<(u64, u64)> =
            (0..lengths.len()).filter_map(|entry| Some((start_of(&index, entry)?, lengths[entry]))).collect();
        images.sort_unstable();
        let (mut gaps, mut end) = (Vec::new(), begin as u64);
        for (start, length) in images {
            if start < end {
                return wrong("chunks of a super-chunk file overlap");
            }
            gaps.push(end..start);
            end = start.saturating_add(length);
        }
        if end > size {
            return wrong("a chunk reaches behind the end of its file");
        }
        gaps.push(end..size);
        let state = State { index, lengths, room: Room::new(gaps, size), left: None, stale: false };
        Ok(Self { key, first, state: Mutex::new(state), process: process::id() })
    }

    /// The head and the index, the lengths of all images, and the size of the file; `None` where another
    /// program has changed it, and in a fork that cannot tell.
    pub fn known(&self) -> Option<(Vec<u8>, Vec<u64>, u64)> {
        let state = self.lock()?;
        Some((state.index.clone(), state.lengths.clone(), state.room.end))
    }

    /// How many bytes no image uses, of how many; `None` as of `known`.
    pub fn free(&self) -> Option<(u64, u64)> {
        let state = self.lock()?;
        Some((state.room.free, state.room.end - state.index.len() as u64))
    }

    /// Change a chunk, and return the new version of the dataset. `None` where that is left to Python.
    pub fn change(
        &self,
        dataset: &Dataset<'_>,
        expected: &Expected<'_>,
        change: &Change<'_>,
        workspace: &mut Workspace,
    ) -> Changed {
        let mut state = self.lock()?;
        let changed = dataset.commit(expected, |turn| self.change_in(turn, change, &mut state, workspace));
        state.stale |= matches!(changed, Some(Err(_)));
        changed
    }

    fn change_in(
        &self,
        turn: &KernelTurn<'_>,
        change: &Change<'_>,
        state: &mut State,
        workspace: &mut Workspace,
    ) -> Changed {
        let Some(file) = self.open(&turn.root, state, workspace) else {
            state.stale = true;
            return None;
        };
        let written = self.write(&file, change, state, workspace)?;
        if turn.sync
            && let Err(error) = sync_data(written.file.as_fd())
        {
            return Some(Err(Failed::early(error).syncing()));
        }
        if !turn.begin_apply() {
            // A reader pins the state. Python waits for it.
            state.withdraw(&file, written.start, written.length, written.end);
            return None;
        }
        drop(file);
        Some(state.switch(turn, written))
    }

    /// Open the file; `None` unless it is as it is known.
    fn open(&self, root: &Root<impl AsFd>, state: &State, workspace: &mut Workspace) -> Option<Arc<File>> {
        let file = root.open_with(&self.key, OLD, Mode::empty()).ok()?;
        let now = fstat(&file).ok()?;
        let plain = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
        let same = state.left.is_none_or(|left| left == facts(&now));
        if !plain || !same || u64::try_from(now.st_size) != Ok(state.room.end) {
            return None;
        }
        let file = Arc::new(File::from(file));
        let all = Extent {
            key: &self.key,
            bytes: Bytes::File(Arc::clone(&file)),
            offset: 0,
            length: state.index.len(),
            identity: None,
        };
        // Programs that know no lock may have changed it.
        (all.read_all(&mut workspace.buffers.head).ok()? == &state.index[..]).then_some(file)
    }

    /// Write the new image of the chunk where nothing reaches. `None` where the chunk is not stored, cannot be
    /// read, or holds nothing but the fill value now; and where the image cannot be written.
    fn write(
        &self,
        file: &Arc<File>,
        change: &Change<'_>,
        state: &mut State,
        workspace: &mut Workspace,
    ) -> Option<Written> {
        let part = change.selection.chunk(0);
        let number = change.selection.layout.grid.number(&part.coords());
        let entry = number.checked_sub(self.first).filter(|entry| *entry < state.lengths.len())?;
        let offset = start_of(&state.index, entry)?;
        let length = usize::try_from(state.lengths[entry]).ok()?;
        let bytes = Bytes::File(Arc::clone(file));
        let old = Extent { key: &self.key, bytes, offset, length, identity: None };
        let end = state.room.end;
        let room = &mut state.room;
        let mut taken = None;
        let keep = |image: &[u8]| {
            let (size, spare) = (image.len() as u64, (image.len() as f64 * change.spare) as u64);
            let start = room.take(size, spare);
            taken = Some((start, size));
            let written = file.write_all_at(image, start);
            let written = written.and_then(|()| if room.end > end { file.set_len(room.end) } else { Ok(()) });
            written.map_err(|error| Error::new(Kind::System(error.raw_os_error().unwrap_or(0)), "writing a chunk"))
        };
        let kept = encode_chunk(change.selection, &part, || Ok(Chunk::Stored(old)), workspace, keep);
        let (start, length) = taken?;
        if kept.is_err() {
            state.withdraw(file, start, length, end);
            return None;
        }
        Some(Written { file: Arc::clone(file), entry, start, length, end })
    }

    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        let state = if process::id() == self.process { self.state.lock().ok() } else { fork::lock(&self.state) };
        state.filter(|state| !state.stale)
    }
}

impl State {
    /// Make the room of an image free again that nothing refers to; the file ended at `end` before.
    fn withdraw(&mut self, file: &File, start: u64, length: u64, end: u64) {
        if self.room.end > end {
            self.room.end = end;
            // What stays behind the end is not reached, and overwritten.
            let _ = ftruncate(file, end);
        } else {
            self.room.give(start..start + length);
        }
    }

    /// Let the entry of a chunk refer to its new image, and settle the state.
    fn switch(&mut self, turn: &KernelTurn<'_>, written: Written) -> Result<u64, Failed> {
        let Written { file, entry, start, length, end } = written;
        let at = HEAD_BYTES + ENTRY_BYTES * entry;
        let word = start.to_le_bytes();
        let publish = || {
            write_all(&*file, at as u64, &word).map_err(Failed::early)?;
            settle(file, turn.sync)
        };
        let (left, version) = turn.switch(publish)?;
        self.left = Some(left);
        if let Some(old) = start_of(&self.index, entry) {
            self.room.give(old..old + self.lengths[entry]);
        }
        if self.room.end > end {
            self.room.give(start + length..self.room.end);
        }
        self.lengths[entry] = length;
        self.index[at..at + ENTRY_BYTES].copy_from_slice(&word);
        Ok(version)
    }
}

/// Sync a file and close it; return what the system says of it.
fn settle(file: Arc<File>, sync: bool) -> Result<Facts, Failed> {
    if sync {
        sync_data(file.as_fd()).map_err(|error| Failed::late(error).syncing())?;
    }
    let now = retry_on_intr(|| fstat(&*file)).map_err(Failed::late)?;
    match Arc::into_inner(file) {
        Some(file) => close(file.into()).map_err(Failed::late)?,
        None => return Err(Failed::late(Errno::BUSY)),
    }
    Ok(facts(&now))
}

/// Where the image of an entry starts; `None` without one.
fn start_of(index: &[u8], entry: usize) -> Option<u64> {
    let at = HEAD_BYTES + ENTRY_BYTES * entry;
    let word = index.get(at..at + ENTRY_BYTES)?.first_chunk().copied().map(i64::from_le_bytes)?;
    if word == ABSENT { None } else { u64::try_from(word).ok() }
}

#[expect(clippy::unnecessary_cast, reason = "the types differ between systems")]
fn facts(of: &Stat) -> Facts {
    (of.st_dev as u64, of.st_ino as u64, of.st_size as i64, of.st_mtime as i64, of.st_mtime_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(starts: &[i64]) -> Vec<u8> {
        let entries = starts.iter().flat_map(|start| start.to_le_bytes());
        [0; HEAD_BYTES].into_iter().chain(entries).collect()
    }

    #[test]
    fn what_no_image_uses_is_free() {
        let file = SlotFile::new("a".into(), 0, index(&[100, -1, 60]), vec![20, 0, 10], 130).unwrap();
        assert_eq!(file.free(), Some((20 + 30 + 10, 90)));
        assert_eq!(file.known(), Some((index(&[100, -1, 60]), vec![20, 0, 10], 130)));
    }

    #[test]
    fn images_that_do_not_fit_are_refused() {
        for (starts, lengths, size) in [
            ([40, 50], vec![11, 5], 100),
            ([31, 60], vec![5, 5], 100),
            ([40, 60], vec![5, 41], 100),
            ([40, 60], vec![5], 100),
        ] {
            let known = SlotFile::new("a".into(), 0, index(&starts), lengths, size);
            assert!(known.is_err(), "{starts:?}");
        }
    }
}
