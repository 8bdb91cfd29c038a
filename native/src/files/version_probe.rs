//! The first bytes of a small file that others write, read again and again at little cost.
//!
//! Knows how to keep the file open and to notice that another one has taken its place. Refuses to
//! know what the bytes mean.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::pread;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes are looked at.
pub const SEEN: usize = 32;

/// So many files are kept open in all; beyond, each look opens and closes its own.
const MOST_HELD: usize = 256;
static HELD: AtomicUsize = AtomicUsize::new(0);

const READING: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// A place where a file may be, and the file that was there at the last look.
pub struct Lookout {
    path: PathBuf,
    held: Mutex<Option<Held>>,
}

struct Held {
    file: OwnedFd,
    identity: (i128, i128),
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lookout {
    pub fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::new(None) }
    }

    /// Return the first bytes of the file; None when it is absent, shorter, or no plain file.
    pub fn look(&self) -> Option<[u8; SEEN]> {
        self.look_along(CWD, &self.path)
    }

    /// The same for a file of which the folder is open; it must be the folder of the path.
    pub fn look_inside(&self, folder: BorrowedFd<'_>) -> Option<[u8; SEEN]> {
        self.look_along(folder, Path::new(self.path.file_name()?))
    }

    fn look_along(&self, folder: BorrowedFd<'_>, path: &Path) -> Option<[u8; SEEN]> {
        let mut held = self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(kept) = held.as_ref() {
            // As long as it is open, no other file gets its number.
            match statat(folder, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) if kept.identity == identity(&there) => return first_bytes(&kept.file),
                _ => *held = None,
            }
        }
        let file = openat(folder, path, READING, Mode::empty()).ok()?;
        let bytes = first_bytes(&file);
        let identity = identity(&fstat(&file).ok()?);
        if HELD.fetch_add(1, Ordering::Relaxed) < MOST_HELD {
            *held = Some(Held { file, identity });
        } else {
            HELD.fetch_sub(1, Ordering::Relaxed);
        }
        bytes
    }

    /// The first bytes of the file that was there at the last look, if it is still open. Less
    /// than a look: another file may be there by now.
    pub fn last_seen(&self) -> Option<[u8; SEEN]> {
        let held = self.held.try_lock().ok()?;
        held.as_ref().and_then(|kept| first_bytes(&kept.file))
    }
}

/// Device and number; how wide these are differs between systems.
fn identity(facts: &Stat) -> (i128, i128) {
    (i128::from(facts.st_dev), i128::from(facts.st_ino))
}

fn first_bytes(file: &OwnedFd) -> Option<[u8; SEEN]> {
    let mut bytes = [0; SEEN];
    match pread(file, &mut bytes, 0) {
        Ok(SEEN) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn another_file_in_its_place_is_noticed() {
        let folder = std::env::temp_dir().join(format!("lookout-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("lock");
        let lookout = Lookout::new(path.clone());
        assert_eq!(lookout.look(), None);
        fs::write(&path, [1; SEEN]).unwrap();
        assert_eq!(lookout.last_seen(), None);
        assert_eq!(lookout.look(), Some([1; SEEN]));
        fs::write(&path, [2; SEEN]).unwrap();
        assert_eq!(lookout.last_seen(), Some([2; SEEN]));
        assert_eq!(lookout.look(), Some([2; SEEN]));
        fs::write(folder.join("other"), [3; SEEN + 1]).unwrap();
        fs::rename(folder.join("other"), &path).unwrap();
        assert_eq!(lookout.look(), Some([3; SEEN]));
        fs::write(&path, b"short").unwrap();
        assert_eq!(lookout.look(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(lookout.look(), None);
        std::os::unix::fs::symlink("other", &path).unwrap();
        fs::write(folder.join("other"), [4; SEEN]).unwrap();
        assert_eq!(lookout.look(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn more_places_than_may_be_open() {
        let folder = std::env::temp_dir().join(format!("lookouts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let lookouts: Vec<_> = (0..MOST_HELD + 20)
            .map(|number| {
                let path = folder.join(number.to_string());
                fs::write(&path, [number as u8; SEEN]).unwrap();
                Lookout::new(path)
            })
            .collect();
        for _ in 0..2 {
            for (number, lookout) in lookouts.iter().enumerate() {
                assert_eq!(lookout.look(), Some([number as u8; SEEN]));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
