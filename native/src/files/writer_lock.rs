//! The usual beginning of a writer's turn, in one call.
//!
//! The folder is opened, its lock file is locked and read, the writer is recorded in it, and the
//! journal is looked for. Whatever is unusual (no lock file yet, a lock that is held, another file in
//! its place, bytes of another version) is left to `ingot.stores.local.lock`: nothing has changed then.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const WRITING: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// How many bytes a lock file has, and how many of them the record of a writer.
const LOCK_BYTES: usize = 256;
const STAGER_AT: usize = LOCK_BYTES - 8;
const STATE_AT: usize = 24;
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
    pub sequence: u64,
    /// The state that the writer before left, a byte of the lock file.
    pub state: u8,
    pub stager: u64,
    /// Whether there may be a journal.
    pub journal: bool,
}

/// Begin a turn in the folder at `path`; `None` when that is not as usual.
pub fn begin(path: &Path, name: &str, journal: &str, record: &Record<'_>) -> Option<Turn> {
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
    let (state, stager) = (bytes[STATE_AT], number(STAGER_AT)?);
    bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
    bytes[STATE_AT..32].fill(0);
    bytes[STATE_AT] = record.busy;
    bytes.get_mut(32..STAGER_AT)?.fill(0);
    bytes.get_mut(32..32 + record.holder.len())?.copy_from_slice(record.holder);
    if pwrite(&lock, &bytes[..STAGER_AT], 0).ok()? != STAGER_AT {
        return None;
    }
    let journal = !matches!(statat(&folder, journal, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT));
    Some(Turn { folder, lock, sequence, state, stager, journal })
}

/// Take the lock of one byte of a file; `false` when another open file has it, or it cannot be had.
#[cfg(target_os = "linux")]
pub fn take(file: BorrowedFd<'_>, byte: u64) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: `flock` is plain data, for which zeros are valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = byte.cast_signed();
    range.l_len = 1;
    // SAFETY: the call reads the range, which lives until it returns, and no other memory.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) == 0 }
}

/// Elsewhere locks belong to processes or to whole files; Python knows how.
#[cfg(not(target_os = "linux"))]
pub fn take(_file: BorrowedFd<'_>, _byte: u64) -> bool {
    false
}

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
        bytes[40] = b'?';
        bytes[STAGER_AT] = 9;
        bytes
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_turn_is_recorded_and_excludes_another() {
        let path = std::env::temp_dir().join(format!("turn-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let begin_with = |record: &Record<'_>| begin(&path, ".lock", ".commit", record);
        let devices = [statat(CWD, &path, AtFlags::empty()).unwrap().st_dev];
        let record = Record { devices: &devices, ..RECORD };
        assert!(begin_with(&record).is_none(), "no lock file");
        std::fs::write(path.join(".lock"), lock_file(1)).unwrap();
        assert!(begin_with(&RECORD).is_none(), "an unknown device");
        let other = Record { system: b"another.", ..record };
        assert!(begin_with(&other).is_none(), "another system");
        assert_eq!(std::fs::read(path.join(".lock")).unwrap(), lock_file(1), "nothing has changed");
        let turn = begin_with(&record).unwrap();
        assert_eq!((turn.sequence, turn.state, turn.stager, turn.journal), (7, 1, 9, false));
        assert!(begin_with(&record).is_none(), "the lock is held");
        let written = std::fs::read(path.join(".lock")).unwrap();
        let mut expected = lock_file(3);
        expected[32..40].copy_from_slice(b"me\0\0\0\0\0\0");
        expected[40] = 0;
        assert_eq!(written, expected);
        drop(turn);
        std::fs::write(path.join(".commit"), b"").unwrap();
        assert!(begin_with(&record).unwrap().journal);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
