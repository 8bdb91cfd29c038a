//! The usual beginning of a writer's turn, in one call.
//!
//! The folder is opened, its lock file is locked and read, the writer is recorded in it, and the
//! journal is looked for. Whatever is unusual (no lock file yet, a lock that is held, another file in
//! its place, bytes of another version) is left to `ingot.stores.local.lock`: nothing has changed then.

use super::commit::write_all;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::{Errno, Result, pread, pwrite};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const WRITING: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// How many bytes a lock file has, and how many of them the record of a writer.
const LOCK_BYTES: usize = 256;
const STAGER_AT: usize = LOCK_BYTES - 8;
const SEQUENCE_AT: u64 = 8;
const STATE_AT: usize = 24;
/// Whether the files hold what the log says; its name follows.
const WRITTEN_AT: usize = STATE_AT + 1;
/// The mark of a version number during a switch.
const SWITCHING: u64 = 1 << 63;

/// What a lock file must look like, and what a writer records in it.
pub struct Record<'a> {
    pub magic: &'a [u8],
    pub system: &'a [u8],
    /// The state of a writer at work.
    pub busy: u8,
    /// The text that names the writer.
    pub holder: &'a [u8],
    /// The byte that is the lock of writers.
    pub byte: u64,
    /// The devices on which locks are known to hold.
    pub devices: &'a [u64],
}

/// A turn that has begun.
pub struct Turn {
    pub folder: OwnedFd,
    pub lock: OwnedFd,
    pub left: Left,
}

/// What the writer before left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub sequence: u64,
    /// A byte of the lock file.
    pub state: u8,
    pub stager: u64,
    /// Whether there may be a journal.
    pub journal: bool,
}

/// Begin a turn in the folder at `path`; `None` when that is not as usual, or not as it `suits` the caller.
pub fn begin(
    path: &Path,
    (name, journal): (&str, &str),
    record: &Record<'_>,
    suits: impl FnOnce(&Left) -> bool,
) -> Option<Turn> {
    let folder = openat(CWD, path, super::root::FOLDER, Mode::empty()).ok()?;
    let lock = openat(&folder, name, WRITING, Mode::empty()).ok()?;
    let facts = fstat(&lock).ok()?;
    let usual = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
    if !usual || !record.devices.contains(&facts.st_dev) || !take(lock.as_fd(), record.byte) {
        return None;
    }
    // From here on, dropping the file releases the lock.
    let there = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if (there.st_dev, there.st_ino) != (facts.st_dev, facts.st_ino) {
        return None;
    }
    let mut bytes = [0; LOCK_BYTES];
    if pread(&lock, &mut bytes, 0).ok()? != LOCK_BYTES {
        return None;
    }
    let (magic, system) = (bytes.get(..8)?, bytes.get(16..STATE_AT)?);
    if magic != record.magic || system != record.system {
        return None;
    }
    let number = |start: usize| Some(u64::from_le_bytes(bytes.get(start..start + 8)?.try_into().ok()?));
    let sequence = number(8)? % SWITCHING;
    let journal = !matches!(statat(&folder, journal, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT));
    let left = Left { sequence, state: bytes[STATE_AT], stager: number(STAGER_AT)?, journal };
    if !suits(&left) {
        return None;
    }
    bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
    if left.state == record.busy {
        // The writer before died. Until the log is applied, readers look through it.
        bytes[WRITTEN_AT] = 0;
    }
    bytes[STATE_AT] = record.busy;
    bytes.get_mut(32..STAGER_AT)?.fill(0);
    bytes.get_mut(32..32 + record.holder.len())?.copy_from_slice(record.holder);
    if pwrite(&lock, &bytes[..STAGER_AT], 0).ok()? != STAGER_AT {
        return None;
    }
    Some(Turn { folder, lock, left })
}

impl Turn {
    /// Take the lock that keeps readers from pinning the state; `false` while one does.
    pub fn begin_apply(&self, byte: u64) -> bool {
        take(self.lock.as_fd(), byte)
    }

    /// Note that the state is about to change by one step. It has changed or it has not until
    /// `end_switch`.
    pub fn begin_switch(&self) -> Result<()> {
        write_all(&self.lock, SEQUENCE_AT, &(self.left.sequence | SWITCHING).to_le_bytes())
    }

    /// Give the state a new version number, and return it.
    pub fn end_switch(&self) -> Result<u64> {
        self.advance(1)
    }

    /// Give the state the version number that follows the one that was found by `steps`, and return it.
    pub fn advance(&self, steps: u64) -> Result<u64> {
        let next = (self.left.sequence + steps) % SWITCHING;
        write_all(&self.lock, SEQUENCE_AT, &next.to_le_bytes())?;
        Ok(next)
    }

    /// Record what this writer leaves.
    pub fn mark(&self, state: u8) -> Result<()> {
        write_all(&self.lock, STATE_AT as u64, &[state])
    }

    /// End the turn. Closing the lock file is not enough while a forked child has it open, too.
    pub fn release(self) {
        release(self.lock.as_fd());
    }
}

/// Take the lock of one byte of a file; `false` when another open file has it, or it cannot be had.
#[cfg(target_os = "linux")]
pub fn take(file: BorrowedFd<'_>, byte: u64) -> bool {
    set_lock(file, libc::F_WRLCK, byte, 1)
}

/// Release all locks of a file.
#[cfg(target_os = "linux")]
fn release(file: BorrowedFd<'_>) {
    set_lock(file, libc::F_UNLCK, 0, 0);
}

/// Lock bytes of a file, or release them, all to the end without a `length`.
#[cfg(target_os = "linux")]
fn set_lock(file: BorrowedFd<'_>, kind: libc::c_int, start: u64, length: i64) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: `flock` is plain data, for which zeros are valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = start.cast_signed();
    range.l_len = length;
    // SAFETY: the call reads the range, which lives until it returns, and no other memory.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) == 0 }
}

/// Elsewhere locks belong to processes or to whole files; Python knows how.
#[cfg(not(target_os = "linux"))]
pub fn take(_file: BorrowedFd<'_>, _byte: u64) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn release(_file: BorrowedFd<'_>) {}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record<'_> =
        Record { magic: b"IngotL\x01\n", system: b"running.", busy: 3, holder: b"me", byte: 1 << 30, devices: &[] };

    fn lock_file(state: u8) -> Vec<u8> {
        let mut bytes = vec![0; LOCK_BYTES];
        bytes[..8].copy_from_slice(RECORD.magic);
        bytes[8] = 7;
        bytes[16..24].copy_from_slice(RECORD.system);
        bytes[STATE_AT] = state;
        bytes[WRITTEN_AT..32].copy_from_slice(b"\x01logged");
        bytes[40] = b'?';
        bytes[STAGER_AT] = 9;
        bytes
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_turn_is_recorded_and_excludes_another() {
        let path = std::env::temp_dir().join(format!("turn-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let begin_with = |record: &Record<'_>| begin(&path, (".lock", ".commit"), record, |_| true);
        let devices = [statat(CWD, &path, AtFlags::empty()).unwrap().st_dev];
        let record = Record { devices: &devices, ..RECORD };
        assert!(begin_with(&record).is_none(), "no lock file");
        std::fs::write(path.join(".lock"), lock_file(1)).unwrap();
        assert!(begin_with(&RECORD).is_none(), "an unknown device");
        let other = Record { system: b"another.", ..record };
        assert!(begin_with(&other).is_none(), "another system");
        assert_eq!(std::fs::read(path.join(".lock")).unwrap(), lock_file(1), "nothing has changed");
        assert!(begin(&path, (".lock", ".commit"), &record, |left| left.sequence == 8).is_none());
        assert_eq!(std::fs::read(path.join(".lock")).unwrap(), lock_file(1), "nothing has changed");
        let turn = begin_with(&record).unwrap();
        assert_eq!(turn.left, Left { sequence: 7, state: 1, stager: 9, journal: false });
        assert!(begin_with(&record).is_none(), "the lock is held");
        let written = std::fs::read(path.join(".lock")).unwrap();
        let mut expected = lock_file(3);
        expected[32..40].copy_from_slice(b"me\0\0\0\0\0\0");
        expected[40] = 0;
        assert_eq!(written, expected);
        turn.begin_switch().unwrap();
        assert_eq!(std::fs::read(path.join(".lock")).unwrap()[8..16], (SWITCHING | 7).to_le_bytes());
        assert_eq!(turn.end_switch().unwrap(), 8);
        assert_eq!(turn.advance(2).unwrap(), 9);
        assert_eq!(std::fs::read(path.join(".lock")).unwrap()[8..16], 9u64.to_le_bytes());
        assert_eq!(turn.advance(1).unwrap(), 8);
        turn.mark(2).unwrap();
        let copy = turn.lock.try_clone().unwrap();
        turn.release();
        std::fs::write(path.join(".commit"), b"").unwrap();
        let turn = begin_with(&record).unwrap();
        assert_eq!(turn.left, Left { sequence: 8, state: 2, stager: 9, journal: true });
        assert_eq!(std::fs::read(path.join(".lock")).unwrap()[WRITTEN_AT..32], *b"\x01logged");
        turn.release();
        let turn = begin_with(&record).unwrap();
        assert_eq!(turn.left.state, 3, "a writer died");
        assert_eq!(std::fs::read(path.join(".lock")).unwrap()[WRITTEN_AT..32], *b"\x00logged");
        drop(copy);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
