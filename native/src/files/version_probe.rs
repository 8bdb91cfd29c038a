//! The version of a dataset, read from its lock file again and again at little cost.
//!
//! The file is kept open, and it is noticed when another file has taken its place. The first bytes
//! are a magic (8), the sequence number of the last commit (8), the identity of the running system
//! (8), and a state (1). The sequence number counts only behind the right magic. The state is
//! certain only when it is one of the settled ones and was left by the running system.

use super::Root;
use super::small_files::SmallFiles;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes are read.
const HEAD_BYTES: usize = 32;
type Head = [u8; HEAD_BYTES];

/// The most files that are kept open in all; beyond that, each probe opens and closes its own.
const MOST_OPEN: usize = 256;
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Set in the sequence number while one version becomes the next.
const SWITCHING: u64 = 1 << 63;

const READING: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// What the first bytes of a lock file must be.
pub struct LockFormat {
    pub magic: [u8; 8],
    pub system: [u8; 8],
    /// The states in which no commit is under way.
    pub settled: Vec<u8>,
}

/// What a lock file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub sequence: u64,
    /// Whether no commit can be under way.
    pub certain: bool,
}

impl LockFormat {
    fn parse(&self, head: &Head) -> Option<Version> {
        let field = |start: usize| <[u8; 8]>::try_from(&head[start..start + 8]).ok();
        if field(0)? != self.magic {
            return None;
        }
        let certain = field(16)? == self.system && self.settled.contains(&head[24]);
        Some(Version { sequence: u64::from_le_bytes(field(8)?), certain })
    }
}

/// The path of a lock file, and the file that the last read found there.
pub struct VersionProbe {
    path: PathBuf,
    format: LockFormat,
    open: Mutex<Option<OpenFile>>,
}

/// A sequence number, and the number of a group of files with what they hold, and the path of their
/// folder.
pub type Settled = (Option<u64>, Option<(usize, Vec<Option<Vec<u8>>>, Option<String>)>);

struct OpenFile {
    file: OwnedFd,
    identity: (i128, i128),
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl VersionProbe {
    pub fn new(path: PathBuf, format: LockFormat) -> Self {
        Self { path, format, open: Mutex::new(None) }
    }

    /// Return the version; `None` when the file is absent, short, no regular file, or no lock file.
    /// A file that cannot be read is an error: it may have a version.
    pub fn read(&self) -> io::Result<Option<Version>> {
        Ok(self.read_head(CWD, &self.path)?.and_then(|head| self.format.parse(&head)))
    }

    /// Return whether the sequence number is `sequence`, for certain; `None` stands for no lock file.
    pub fn confirms(&self, sequence: Option<u64>) -> bool {
        match self.read() {
            Ok(Some(version)) => version.certain && sequence == Some(version.sequence),
            Ok(None) => sequence.is_none(),
            Err(_) => false,
        }
    }

    /// Return whether the sequence number is no longer `sequence`, as far as the file that is open
    /// shows. Cheaper than `read`, but blind to another file in its place.
    pub fn moved(&self, sequence: Option<u64>) -> bool {
        let head = self.open.try_lock().ok().and_then(|open| read_head(&open.as_ref()?.file).ok()?);
        let version = head.and_then(|head| self.format.parse(&head));
        version.is_some_and(|version| sequence != Some(version.sequence))
    }

    /// Read small files below the folder `root`, which is the folder of the lock file, while no
    /// commit is under way: the sequence number, and the first group of `files` whose first file is
    /// present, with its number and, if its reader needs it, the path of the folder without symbolic
    /// links.
    ///
    /// `None` where that takes more than one call: a commit is not settled, the name `journal` is
    /// taken, a file is large or no regular file, or one of the names `above` of `files` is taken in
    /// the folder above, to which this one may belong.
    pub fn read_settled(&self, root: &Path, journal: &str, files: &SmallFiles) -> Option<Settled> {
        let root = Root::open(root).ok()??;
        let name = Path::new(self.path.file_name()?);
        let read = || self.read_head(root.folder(), name).map(|head| head.and_then(|head| self.format.parse(&head)));
        let before = read().ok()?;
        if before.is_some_and(|version| !version.certain) || root.may_have(journal) || files.may_be_part(&root) {
            return None;
        }
        let found = files.read_first(&root).ok()?.map(|(number, contents)| {
            let path = files.real_path(&root, number);
            (number, contents, path)
        });
        (read().ok()? == before).then(|| (before.map(|version| version.sequence), found))
    }

    /// Return whether the sequence number is `sequence`, and no commit that a reader must know of was published before
    /// this call; `None` where one of the names of `records` is taken in the folder of the lock file.
    pub fn stays(&self, sequence: u64, records: &[String]) -> Option<bool> {
        let read = || self.read().ok().flatten().filter(|version| version.sequence == sequence);
        let Some(version) = read() else { return Some(false) };
        if version.certain || sequence & SWITCHING != 0 {
            return Some(version.certain);
        }
        // A commit that was published before had a record here, or has changed the number.
        let folder = self.path.parent()?;
        let absent = |name: &String| {
            let found = statat(CWD, folder.join(name), AtFlags::SYMLINK_NOFOLLOW);
            matches!(found, Err(Errno::NOENT | Errno::NOTDIR))
        };
        if records.iter().all(absent) { Some(read().is_some()) } else { None }
    }

    /// Return the sequence number of the committed state, as long as one look can tell: no commit is under way that
    /// has published anything, or may have one of the names of `records` in the folder of the lock file.
    pub fn committed(&self, root: &Root<impl AsFd>, records: &[String]) -> Option<u64> {
        let name = Path::new(self.path.file_name()?);
        let version = self.format.parse(&self.read_head(root.folder(), name).ok()??)?;
        let published = || version.sequence & SWITCHING != 0 || records.iter().any(|name| root.may_have(name));
        (version.certain || !published()).then_some(version.sequence)
    }

    fn read_head(&self, folder: BorrowedFd<'_>, path: &Path) -> io::Result<Option<Head>> {
        // Never waited for: after a fork, the thread that held the lock may not exist.
        let Ok(mut open) = self.open.try_lock() else {
            return open_file(folder, path)?.map_or(Ok(None), |file| read_head(&file));
        };
        if let Some(kept) = open.as_ref() {
            // As long as it is open, no other file gets its number.
            match statat(folder, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if kept.identity == identity(&found) => return read_head(&kept.file),
                _ => *open = None,
            }
        }
        let Some(file) = open_file(folder, path)? else { return Ok(None) };
        let head = read_head(&file)?;
        let identity = identity(&fstat(&file)?);
        if OPEN.fetch_add(1, Ordering::Relaxed) < MOST_OPEN {
            *open = Some(OpenFile { file, identity });
        } else {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(head)
    }
}

/// Open a lock file; `None` when it is absent, or what has its name cannot be one.
fn open_file(folder: BorrowedFd<'_>, path: &Path) -> io::Result<Option<OwnedFd>> {
    match openat(folder, path, READING, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Device and inode; their width differs between systems.
fn identity(facts: &Stat) -> (i128, i128) {
    (i128::from(facts.st_dev), i128::from(facts.st_ino))
}

fn read_head(file: &OwnedFd) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD_BYTES];
    match pread(file, &mut bytes, 0) {
        Ok(HEAD_BYTES) => Ok(Some(bytes)),
        Ok(_) | Err(Errno::ISDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MAGIC: [u8; 8] = *b"lockfile";
    const SYSTEM: [u8; 8] = *b"thishost";

    fn probe(path: PathBuf) -> VersionProbe {
        VersionProbe::new(path, LockFormat { magic: MAGIC, system: SYSTEM, settled: vec![0, 2] })
    }

    fn head(sequence: u64, system: [u8; 8], state: u8) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&sequence.to_le_bytes());
        head[16..24].copy_from_slice(&system);
        head[24] = state;
        head
    }

    #[test]
    fn a_state_stays_until_its_number_changes_or_a_record_is_there() {
        let folder = std::env::temp_dir().join(format!("version-stays-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (probe, records) = (probe(folder.join("lock")), [String::from("journal")]);
        let root = Root::open(&folder).unwrap().unwrap();
        let both = |number| (probe.stays(number, &records), probe.committed(&root, &records));
        assert_eq!(both(7), (Some(false), None), "there is no lock file");
        let write = |sequence, system, state| fs::write(folder.join("lock"), head(sequence, system, state)).unwrap();
        for (state, settled) in [(2, true), (1, false)] {
            write(7, SYSTEM, state);
            assert_eq!(both(7), (Some(true), Some(7)));
            assert_eq!(both(6).0, Some(false));
            fs::write(folder.join("journal"), b"").unwrap();
            let unknown = if settled { (Some(true), Some(7)) } else { (None, None) };
            assert_eq!(both(7), unknown);
            fs::remove_file(folder.join("journal")).unwrap();
        }
        write(7 | SWITCHING, SYSTEM, 1);
        assert_eq!(both(7), (Some(false), None));
        assert_eq!(both(7 | SWITCHING), (Some(false), None));
        // After a restart of the system, only a record says that something was published.
        write(7, *b"was.here", 2);
        assert_eq!(both(7), (Some(true), Some(7)));
        fs::write(folder.join("journal"), b"").unwrap();
        assert_eq!(both(7), (None, None));
        fs::remove_dir_all(&folder).unwrap();
    }

    fn certain(sequence: u64) -> Option<Version> {
        Some(Version { sequence, certain: true })
    }

    #[test]
    fn another_file_in_its_place_is_noticed() {
        let folder = std::env::temp_dir().join(format!("version-probe-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("lock");
        let probe = probe(path.clone());
        assert_eq!(probe.read().unwrap(), None);
        assert!(probe.confirms(None) && !probe.moved(None));
        fs::write(&path, head(1, SYSTEM, 0)).unwrap();
        assert!(!probe.moved(Some(9)), "no file is open yet");
        assert_eq!(probe.read().unwrap(), certain(1));
        fs::write(&path, head(2, SYSTEM, 2)).unwrap();
        assert!(probe.moved(Some(1)) && !probe.moved(Some(2)));
        assert_eq!(probe.read().unwrap(), certain(2));
        fs::write(folder.join("other"), [&head(3, SYSTEM, 0)[..], &[0]].concat()).unwrap();
        fs::rename(folder.join("other"), &path).unwrap();
        assert_eq!(probe.read().unwrap(), certain(3));
        assert!(probe.confirms(Some(3)) && !probe.confirms(Some(2)) && !probe.confirms(None));
        fs::write(&path, b"short").unwrap();
        assert_eq!(probe.read().unwrap(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(probe.read().unwrap(), None);
        std::os::unix::fs::symlink("other", &path).unwrap();
        fs::write(folder.join("other"), head(4, SYSTEM, 0)).unwrap();
        assert_eq!(probe.read().unwrap(), None);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(probe.read().unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error() {
        let probe = probe(std::env::temp_dir().join("x".repeat(300)));
        assert!(probe.read().is_err());
        assert!(!probe.confirms(None) && !probe.confirms(Some(1)) && !probe.moved(Some(1)));
    }

    #[test]
    fn only_settled_states_of_the_running_system_are_certain() {
        let format = LockFormat { magic: MAGIC, system: SYSTEM, settled: vec![0, 2] };
        assert_eq!(format.parse(&head(7, SYSTEM, 2)), certain(7));
        assert_eq!(format.parse(&head(7, SYSTEM, 1)), Some(Version { sequence: 7, certain: false }));
        assert_eq!(format.parse(&head(7, *b"another.", 0)), Some(Version { sequence: 7, certain: false }));
        assert_eq!(format.parse(&[7; HEAD_BYTES]), None);
    }

    #[test]
    fn more_files_than_may_be_open() {
        let folder = std::env::temp_dir().join(format!("version-probes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let probes: Vec<_> = (0..MOST_OPEN + 20)
            .map(|number| {
                let path = folder.join(number.to_string());
                fs::write(&path, head(number as u64, SYSTEM, 0)).unwrap();
                probe(path)
            })
            .collect();
        for _ in 0..2 {
            for (number, probe) in probes.iter().enumerate() {
                assert_eq!(probe.read().unwrap(), certain(number as u64));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
