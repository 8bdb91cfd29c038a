//! The new value of a key: a file under a staged name, which gets the name of the key by one step.
//!
//! Where nothing has to survive a power cut, the file that a value replaces is kept under a name of its own,
//! and the next value is written into it: a file that is made, and one that is removed, take longer than all
//! the rest of a small commit. The bytes of such a spare file mean nothing; the next writer after one that died
//! removes it with all other staged files.

use super::commit::{close, exchange, start_writing, sync_data, write_all};
use super::root::{LARGE, gains_by_reserving};
use super::{Root, reserve};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, ftruncate, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
const SPARE: OFlags =
    OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// Files of more bytes are not kept.
const MOST_SPARE_BYTES: u64 = 1 << 20;

/// A value that is staged.
pub struct NewValue<'a> {
    folder: &'a str,
    name: &'a str,
    /// The open folder.
    place: OwnedFd,
    /// The name under which it is staged: in the folder of the key, unless it is in a spare file.
    staged: String,
    /// The name that the spare file of such values has in the root, where they are to have one.
    spare: Option<&'a str>,
    in_spare: bool,
    /// What the key has now.
    old: Option<Stat>,
    file: Option<OwnedFd>,
    published: bool,
}

/// Write the value of `key` under a staged name. `None` where that cannot be done, and where something that is
/// no file has the name or is on the way to it.
pub fn stage<'a>(
    root: &Root<impl AsFd>,
    key: &'a str,
    transaction: &str,
    spare: Option<&'a str>,
    bytes: &[u8],
) -> Option<NewValue<'a>> {
    stage_like(root, key, transaction, spare, None, bytes)
}

/// Write the value of a new key, which gets the rights of the file that `like` replaces.
pub fn stage_new<'a>(
    root: &Root<impl AsFd>,
    key: &'a str,
    transaction: &str,
    spare: Option<&'a str>,
    like: &NewValue<'_>,
    bytes: &[u8],
) -> Option<NewValue<'a>> {
    stage_like(root, key, transaction, spare, like.old.as_ref(), bytes)
}

fn stage_like<'a>(
    root: &Root<impl AsFd>,
    key: &'a str,
    transaction: &str,
    spare: Option<&'a str>,
    like: Option<&Stat>,
    bytes: &[u8],
) -> Option<NewValue<'a>> {
    let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
    let place = root.open_folder(if folder.is_empty() { "." } else { folder }).ok()?;
    let old = match statat(&place, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) if is_file(&facts) => Some(facts),
        Err(Errno::NOENT) => None,
        _ => return None,
    };
    let kept = spare.zip(old.as_ref().or(like)).and_then(|(spare, old)| open_spare(root.folder(), spare, old));
    let in_spare = kept.is_some();
    let (file, staged) = match (kept, spare) {
        (Some(file), Some(spare)) => (file, spare.to_owned()),
        _ => {
            let staged = format!(".g-{transaction}-{name}");
            let file = File::from(openat(&place, &*staged, NEW, FILE_MODE).ok()?);
            if bytes.len() >= LARGE && gains_by_reserving(&file) {
                reserve(&file, 0, bytes.len() as u64);
            }
            (OwnedFd::from(file), staged)
        }
    };
    let mut value = NewValue { folder, name, place, staged, spare, in_spare, old, file: None, published: false };
    let written = write_all(&file, 0, bytes).and_then(|()| if in_spare { cut(&file, bytes.len()) } else { Ok(()) });
    value.file = Some(file);
    if written.is_err() {
        // A part of a value would be taken for all of it.
        value.discard(root);
        return None;
    }
    Some(value)
}

/// Let a file end behind its first bytes.
fn cut(file: &OwnedFd, length: usize) -> Result<()> {
    if fstat(file)?.st_size as u64 == length as u64 { Ok(()) } else { ftruncate(file, length as u64) }
}

impl NewValue<'_> {
    pub fn folder(&self) -> &str {
        self.folder
    }

    /// Begin to write the value back.
    pub fn start_writing(&self) {
        if let Some(file) = &self.file {
            start_writing(file.as_fd());
        }
    }

    pub fn sync(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| sync_data(file.as_fd()))
    }

    pub fn close(&mut self) -> Result<()> {
        self.file.take().map_or(Ok(()), close)
    }

    /// Let the key have the value. An error may come when it has it: see `is_published`.
    pub fn publish(&mut self, root: &Root<impl AsFd>) -> Result<()> {
        let (root, staged, name) = (root.folder(), &*self.staged, self.name);
        let source = if self.in_spare { root } else { self.place.as_fd() };
        let exchanged =
            self.spare.is_some() && self.old.is_some() && exchange(source, staged, &self.place, name).is_ok();
        if !exchanged {
            renameat(source, staged, &self.place, name)?;
        }
        self.published = true;
        if !exchanged {
            return Ok(());
        }
        // The staged name is that of the old value now.
        let keep = self.old.is_some_and(|old| old.st_size as u64 <= MOST_SPARE_BYTES);
        match self.spare {
            Some(_) if keep && self.in_spare => Ok(()),
            Some(spare) if keep && renameat(source, staged, root, spare).is_ok() => Ok(()),
            _ => unlinkat(source, staged, AtFlags::empty()),
        }
    }

    /// Remove the key again, and keep its file as the spare one.
    pub fn withdraw(&mut self, root: &Root<impl AsFd>) -> Result<()> {
        let kept = self.spare.is_some_and(|spare| renameat(&self.place, self.name, root.folder(), spare).is_ok());
        if kept { Ok(()) } else { unlinkat(&self.place, self.name, AtFlags::empty()) }
    }

    /// Whether readers of the key see the value.
    pub fn is_published(&self) -> bool {
        self.published
    }

    /// Remove a value that no key has got.
    pub fn discard(&mut self, root: &Root<impl AsFd>) {
        self.file = None;
        if !self.published {
            let place = if self.in_spare { root.folder() } else { self.place.as_fd() };
            // The next writer after one that died removes a file that stays.
            let _ = unlinkat(place, &*self.staged, AtFlags::empty());
        }
    }
}

/// Open the spare file of the root, if it can take the place of `old`: it belongs to the same user, it has no
/// second name, and no process has it open.
fn open_spare(root: BorrowedFd<'_>, name: &str, old: &Stat) -> Option<OwnedFd> {
    let file = openat(root, name, SPARE, Mode::empty()).ok()?;
    let facts = fstat(&file).ok()?;
    let like = (facts.st_mode, facts.st_uid, facts.st_gid) == (old.st_mode, old.st_uid, old.st_gid);
    let usual = is_file(&facts) && facts.st_nlink == 1 && like;
    (usual && is_open_once(file.as_fd())).then_some(file)
}

fn is_file(facts: &Stat) -> bool {
    FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
}

/// Whether no other process has a file open, or mapped into memory: only then the system gives a lease of it.
///
/// An old value that a program without the lock is still reading must keep its bytes.
#[cfg(target_os = "linux")]
fn is_open_once(file: BorrowedFd<'_>) -> bool {
    use std::os::fd::AsRawFd;
    const SET_SIGNAL: libc::c_int = 10;
    let ask = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: the call takes numbers and uses no memory of this process.
        unsafe { libc::fcntl(file.as_raw_fd(), command, argument) == 0 }
    };
    // A process that opens the file in between waits until the lease is given up, and this process gets a
    // signal: one that is ignored unless asked for, and not the one that ends the process.
    ask(SET_SIGNAL, libc::SIGURG)
        && ask(libc::F_SETLEASE, libc::F_WRLCK as libc::c_int)
        && ask(libc::F_SETLEASE, libc::F_UNLCK as libc::c_int)
}

#[cfg(not(target_os = "linux"))]
fn is_open_once(_file: BorrowedFd<'_>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};

    const SPARE_NAME: &str = ".g-spare-chunk";

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("value-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("c")).unwrap();
            Self(path)
        }

        fn root(&self) -> Root {
            Root::open(&self.0).unwrap().unwrap()
        }

        fn put(&self, key: &str, spare: Option<&str>, bytes: &[u8]) {
            let root = self.root();
            let mut value = stage(&root, key, "1", spare, bytes).unwrap();
            value.close().unwrap();
            assert!(!value.is_published());
            value.publish(&root).unwrap();
            assert!(value.is_published());
            assert_eq!(self.read(key), bytes);
        }

        fn read(&self, key: &str) -> Vec<u8> {
            fs::read(self.0.join(key)).unwrap()
        }

        fn names(&self, folder: &str) -> Vec<String> {
            let entries = fs::read_dir(self.0.join(folder)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn a_value_that_is_synced_is_renamed() {
        let folder = Folder::new("renamed");
        folder.put("c/0", None, b"one");
        folder.put("c/0", None, b"two");
        assert_eq!((folder.names("c"), folder.names("")), (vec!["0".to_owned()], vec!["c".to_owned()]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_file_of_an_old_value_takes_the_next_one() {
        let folder = Folder::new("spare");
        folder.put("c/0", Some(SPARE_NAME), b"one");
        assert_eq!(folder.names(""), ["c"], "nothing was replaced");
        let first = inode(&folder.0.join("c/0"));
        folder.put("c/0", Some(SPARE_NAME), b"longer");
        assert_eq!(
            (folder.names(""), folder.read(SPARE_NAME)),
            (vec![SPARE_NAME.to_owned(), "c".to_owned()], b"one".to_vec())
        );
        let second = inode(&folder.0.join("c/0"));
        folder.put("c/0", Some(SPARE_NAME), b"3");
        assert_eq!(inode(&folder.0.join("c/0")), first);
        folder.put("c/0", Some(SPARE_NAME), b"four");
        assert_eq!(inode(&folder.0.join("c/0")), second);
        assert_eq!(folder.names("c"), ["0"]);
        let mut value = stage(&folder.root(), "c/0", "1", Some(SPARE_NAME), b"never").unwrap();
        value.discard(&folder.root());
        assert_eq!((folder.names(""), folder.read("c/0")), (vec!["c".to_owned()], b"four".to_vec()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_is_read_or_has_a_second_name_keeps_its_bytes() {
        let folder = Folder::new("held");
        folder.put("c/0", Some(SPARE_NAME), b"one");
        fs::hard_link(folder.0.join("c/0"), folder.0.join("copy")).unwrap();
        folder.put("c/0", Some(SPARE_NAME), b"two");
        folder.put("c/0", Some(SPARE_NAME), b"333");
        assert_eq!(folder.read("copy"), b"one");
        let reader = fs::File::open(folder.0.join("c/0")).unwrap();
        folder.put("c/0", Some(SPARE_NAME), b"four");
        folder.put("c/0", Some(SPARE_NAME), b"five");
        assert_eq!(std::io::read_to_string(&reader).unwrap(), "333");
        assert_eq!(folder.names("c"), ["0"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_of_other_rights_is_not_used() {
        let folder = Folder::new("rights");
        folder.put("c/0", Some(SPARE_NAME), b"one");
        folder.put("c/0", Some(SPARE_NAME), b"two");
        fs::set_permissions(folder.0.join(SPARE_NAME), fs::Permissions::from_mode(0o600)).unwrap();
        folder.put("c/0", Some(SPARE_NAME), b"333");
        assert_ne!(fs::metadata(folder.0.join("c/0")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(folder.read(SPARE_NAME), b"two");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_file_of_a_key_that_goes_takes_the_next_value() {
        let folder = Folder::new("withdrawn");
        folder.put("c/0", None, b"one");
        let root = folder.root();
        let like = stage(&root, "c/0", "1", None, b"two").unwrap();
        let mut first = None;
        for bytes in [&b"some"[..], b"other bytes"] {
            let mut value = stage_new(&root, "j", "1", Some(SPARE_NAME), &like, bytes).unwrap();
            value.close().unwrap();
            value.publish(&root).unwrap();
            assert_eq!(folder.read("j"), bytes);
            let found = inode(&folder.0.join("j"));
            assert_eq!(*first.get_or_insert(found), found);
            value.withdraw(&root).unwrap();
            assert_eq!(folder.names(""), [SPARE_NAME, "c"]);
        }
        let mut value = stage_new(&root, "j", "2", None, &like, b"x").unwrap();
        value.publish(&root).unwrap();
        value.withdraw(&root).unwrap();
        assert_eq!(folder.names(""), [SPARE_NAME, "c"]);
    }

    #[test]
    fn a_large_file_is_not_kept() {
        let folder = Folder::new("large");
        let large = vec![7; 1 + MOST_SPARE_BYTES as usize];
        folder.put("c/0", Some(SPARE_NAME), &large);
        folder.put("c/0", Some(SPARE_NAME), b"two");
        assert_eq!((folder.names(""), folder.names("c")), (vec!["c".to_owned()], vec!["0".to_owned()]));
    }

    #[test]
    fn what_is_no_file_is_left_to_python() {
        let folder = Folder::new("left");
        fs::create_dir(folder.0.join("c/0")).unwrap();
        std::os::unix::fs::symlink("1", folder.0.join("c/2")).unwrap();
        for key in ["c/0", "c/2", "d/0"] {
            assert!(stage(&folder.root(), key, "1", None, b"x").is_none(), "{key}");
        }
        fs::write(folder.0.join("c/.g-1-3"), b"").unwrap();
        assert!(stage(&folder.root(), "c/3", "1", None, b"x").is_none(), "the staged name is taken");
        assert_eq!(folder.names("c"), [".g-1-3", "0", "2"]);
    }
}
