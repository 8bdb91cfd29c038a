//! Whether a file is still the one that was read before.

use rustix::fs::{FileType, Stat};
use std::time::{Duration, SystemTime};

/// A file that was changed within this time may be changed again without a new time of change:
/// file systems count time in steps.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// What differs between two files, and between two states of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    /// Return the identity of a regular file by what the system says of it; `None` as long as a
    /// further change could go unnoticed.
    #[expect(clippy::unnecessary_cast, reason = "the types differ between systems")]
    pub fn of(facts: &Stat) -> Option<Self> {
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return None;
        }
        Self {
            device: facts.st_dev as u64,
            inode: facts.st_ino as u64,
            size: facts.st_size as u64,
            modified: (facts.st_mtime as i64, facts.st_mtime_nsec as i64),
        }
        .settled()
    }

    /// Return the identity of bytes in memory, which the caller numbers: `state` is another number whenever the
    /// bytes at `place` are others.
    pub fn of_memory(state: u64, place: usize, size: usize) -> Self {
        Self { device: u64::MAX, inode: place as u64, size: size as u64, modified: (state.cast_signed(), 0) }
    }

    fn settled(self) -> Option<Self> {
        let since = Duration::new(self.modified.0.try_into().ok()?, self.modified.1.try_into().ok()?);
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since).ok()?;
        (age >= SETTLED_AFTER).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use std::fs::{File, FileTimes};

    #[test]
    fn bytes_in_memory_are_others_in_another_state_and_at_another_place() {
        let known = Identity::of_memory(3, 1, 20);
        assert_eq!(known, Identity::of_memory(3, 1, 20));
        for other in [Identity::of_memory(4, 1, 20), Identity::of_memory(3, 2, 20), Identity::of_memory(3, 1, 21)] {
            assert_ne!(known, other);
        }
    }

    #[test]
    fn only_settled_files_have_an_identity() {
        let path = std::env::temp_dir().join(format!("ingot-identity-{}", std::process::id()));
        std::fs::write(&path, [7; 20]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let aged = |age: Duration| {
            file.set_times(FileTimes::new().set_modified(SystemTime::now() - age)).unwrap();
            Identity::of(&fstat(&file).unwrap())
        };
        assert_eq!(aged(Duration::ZERO), None);
        let before = aged(Duration::from_secs(10));
        assert!(before.is_some());
        assert_ne!(aged(Duration::from_secs(5)), before);
        file.set_times(FileTimes::new().set_modified(SystemTime::now() + Duration::from_secs(60))).unwrap();
        assert_eq!(Identity::of(&fstat(&file).unwrap()), None, "a time in the future");
    }
}
