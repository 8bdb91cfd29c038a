//! The steps of a commit, run in one call.
//!
//! `ingot.stores.local.commit` compiles a commit to this list, and `ingot.stores.local.steps` has
//! the same steps in Python. A run ends at the first step that fails, or that is left to Python: a
//! folder in the way of a file, or a lock that another process holds. Such a step has changed nothing.

use super::root::LARGE;
use super::{Root, writer_lock};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, Result, pwrite, retry_on_intr};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// The operations, by the numbers of `ingot.stores.local.steps.Op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    Create,
    Open,
    Write,
    SyncFiles,
    CloseFiles,
    Require,
    RequireClear,
    Rename,
    Replace,
    Place,
    Unlink,
    Changed,
    SyncFolders,
    ForgetChanged,
    SyncAll,
    ApplyLock,
    Switch,
    Bump,
    Mark,
    Truncate,
}

impl Op {
    const ALL: [Self; 20] = [
        Self::Create,
        Self::Open,
        Self::Write,
        Self::SyncFiles,
        Self::CloseFiles,
        Self::Require,
        Self::RequireClear,
        Self::Rename,
        Self::Replace,
        Self::Place,
        Self::Unlink,
        Self::Changed,
        Self::SyncFolders,
        Self::ForgetChanged,
        Self::SyncAll,
        Self::ApplyLock,
        Self::Switch,
        Self::Bump,
        Self::Mark,
        Self::Truncate,
    ];

    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether a step of this operation needs its data.
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Create | Self::Write)
    }
}

/// One step; what its operation does not use is empty.
pub struct Step<'a> {
    pub op: Op,
    pub key: &'a str,
    pub source: &'a str,
    pub start: u64,
    pub data: &'a [u8],
}

/// Where in the lock file the sequence number and the state stand, and which byte is locked.
#[derive(Clone, Copy)]
pub struct LockPlaces {
    pub sequence: u64,
    pub state: u64,
    pub apply: u64,
}

/// What a run knows and changes.
pub struct State {
    /// The number of steps that are done.
    pub done: usize,
    /// The folders in which names have changed, in order, and which are not synced.
    pub changed: Vec<String>,
    /// The version number in the lock file, without the mark of a switch.
    pub sequence: u64,
    /// Whether the apply lock is held.
    pub applying: bool,
    /// The files that are open when a run ends, with their keys.
    pub files: Vec<(OwnedFd, String)>,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// All steps are done.
    Done,
    /// The next step is left to Python.
    Left,
    /// The next step failed, perhaps at a key that is not its own. The open files are closed.
    Failed(Errno, Option<String>),
}

/// The mark of a version number during a switch.
const SWITCHING: u64 = 1 << 63;

pub const LISTING: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
pub const OLD: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

enum Stop {
    Left,
    Failed(Errno, Option<String>),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Failed(error, None)
    }
}

type Outcome<T> = std::result::Result<T, Stop>;

/// Run the steps that are not done, from `state.done` on.
pub fn run(
    root: &Root<BorrowedFd<'_>>,
    lock: BorrowedFd<'_>,
    places: LockPlaces,
    steps: &[Step<'_>],
    state: &mut State,
) -> End {
    let mut run = Run { root, lock, places, state, folders: HashMap::new() };
    while let Some(step) = steps.get(run.state.done) {
        match run.step(step) {
            Ok(()) => run.state.done += 1,
            Err(Stop::Left) => return End::Left,
            Err(Stop::Failed(error, key)) => {
                run.state.files.clear();
                return End::Failed(error, key);
            }
        }
    }
    End::Done
}

struct Run<'a> {
    root: &'a Root<BorrowedFd<'a>>,
    lock: BorrowedFd<'a>,
    places: LockPlaces,
    state: &'a mut State,
    /// The folders that are open; a commit uses the same few again and again.
    folders: HashMap<String, Rc<OwnedFd>>,
}

impl Run<'_> {
    fn step(&mut self, step: &Step<'_>) -> Outcome<()> {
        let &Step { op, key, source, start, data } = step;
        match op {
            Op::Create => self.create(key, data),
            Op::Open => self.open(key),
            Op::Write => {
                let (file, _) = self.state.files.last().ok_or(Stop::Left)?;
                write_all(file, start, data).map_err(|error| self.at_last_file(error))
            }
            Op::Truncate => {
                let (file, _) = self.state.files.last().ok_or(Stop::Left)?;
                retry_on_intr(|| fs::ftruncate(file, start)).map_err(|error| self.at_last_file(error))
            }
            Op::SyncFiles => self.sync_files(),
            Op::CloseFiles => {
                while let Some((file, key)) = self.state.files.pop() {
                    close(file).map_err(|error| Stop::Failed(error, Some(key)))?;
                }
                Ok(())
            }
            Op::Require => match self.kind(source)? {
                Some(FileType::RegularFile) => Ok(()),
                _ => Err(Stop::Left), // Python says what is wrong.
            },
            Op::RequireClear => match self.kind(key)? {
                Some(FileType::RegularFile) | None => Ok(()),
                _ => Err(Stop::Left),
            },
            Op::Rename => self.rename(source, key),
            Op::Replace => self.replace(source, key),
            Op::Place => self.place(source, key),
            Op::Unlink => self.unlink(key),
            Op::Changed => {
                self.change(key);
                Ok(())
            }
            Op::SyncFolders => self.sync_folders(),
            Op::ForgetChanged => {
                self.state.changed.clear();
                Ok(())
            }
            Op::SyncAll => self.sync_all(),
            Op::ApplyLock => self.apply_lock(),
            Op::Switch => self.write_lock(self.places.sequence, &(self.state.sequence | SWITCHING).to_le_bytes()),
            Op::Bump => {
                let next = (self.state.sequence + 1) % SWITCHING;
                self.write_lock(self.places.sequence, &next.to_le_bytes())?;
                self.state.sequence = next;
                Ok(())
            }
            Op::Mark => self.write_lock(self.places.state, &start.to_le_bytes()[..1]),
        }
    }

    fn create(&mut self, key: &str, data: &[u8]) -> Outcome<()> {
        let (folder, name) = split(key);
        if self.folder(folder)?.is_none() {
            self.make_folders(folder)?;
        }
        let Some(place) = self.folder(folder)? else { return Err(Stop::Left) };
        let file = retry_on_intr(|| fs::openat(&place, name, NEW, FILE_MODE))?;
        match write_all(&file, 0, data) {
            Ok(()) => {
                self.state.files.push((file, key.to_owned()));
                Ok(())
            }
            Err(error) => {
                // A part of a file would be taken for all of it.
                let _ = fs::unlinkat(place, name, AtFlags::empty());
                Err(error.into())
            }
        }
    }

    fn open(&mut self, key: &str) -> Outcome<()> {
        let file = match self.root.open_with(key, OLD, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(Stop::Left),
            Err(error) => return Err(error.into()),
        };
        if FileType::from_raw_mode(fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(Stop::Left);
        }
        self.state.files.push((file, key.to_owned()));
        Ok(())
    }

    fn sync_files(&mut self) -> Outcome<()> {
        let files = &self.state.files;
        if files.len() > 1 {
            // Once all are being written back, waiting for the first mostly covers the others.
            for (file, _) in files {
                start_writing(file.as_fd());
            }
        }
        for (file, key) in files {
            sync_data(file.as_fd()).map_err(|error| Stop::Failed(error, Some(key.clone())))?;
        }
        Ok(())
    }

    fn rename(&mut self, source: &str, key: &str) -> Outcome<()> {
        let name = split(key).1;
        let place = &self.place_of(key)?;
        match fs::renameat(place, split(source).1, place, name) {
            Ok(()) => {
                self.change(split(key).0);
                Ok(())
            }
            // A folder that has the name is removed by Python.
            Err(Errno::ISDIR) => Err(Stop::Left),
            Err(error) => Err(error.into()),
        }
    }

    fn replace(&mut self, source: &str, key: &str) -> Outcome<()> {
        let (old, name) = (split(source).1, split(key).1);
        let place = &self.place_of(key)?;
        if kind_at(place, name)? != Some(FileType::RegularFile)
            || has_room(place, old)
            || exchange(place, old, place, name).is_err()
        {
            return self.rename(source, key);
        }
        remove(place, old).map_err(|error| Stop::Failed(error, Some(source.to_owned())))?;
        self.change(split(key).0);
        Ok(())
    }

    fn place(&mut self, source: &str, key: &str) -> Outcome<()> {
        let (old, name) = (split(source).1, split(key).1);
        let place = &self.place_of(key)?;
        let Some(second) = second_name(old) else { return self.rename(source, key) };
        if kind_at(place, name)? != Some(FileType::RegularFile)
            || has_room(place, old)
            || fs::linkat(place, old, place, &*second, AtFlags::empty()).is_err()
        {
            return self.rename(source, key); // No second names here, or a leftover has the name.
        }
        let exchanged = exchange(place, &second, place, name).is_ok();
        fs::unlinkat(place, &*second, AtFlags::empty())?;
        if !exchanged {
            return self.rename(source, key);
        }
        fs::unlinkat(place, old, AtFlags::empty())?;
        self.change(split(key).0);
        Ok(())
    }

    fn unlink(&mut self, key: &str) -> Outcome<()> {
        let (folder, name) = split(key);
        let Some(place) = self.folder(folder)? else { return Ok(()) };
        match fs::unlinkat(place, name, AtFlags::empty()) {
            Ok(()) => {
                self.change(folder);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            // A folder, which Python removes if there are no files in it.
            Err(Errno::ISDIR | Errno::PERM) => Err(Stop::Left),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_folders(&mut self) -> Outcome<()> {
        for folder in &self.state.changed {
            let failed = |error| Stop::Failed(error, Some(shown(folder).to_owned()));
            match self.root.open_with(shown(folder), LISTING, Mode::empty()) {
                Ok(open) => sync_folder(open.as_fd()).map_err(failed)?,
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        self.state.changed.clear();
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn sync_all(&self) -> Outcome<()> {
        let open = self.root.open_with(".", LISTING, Mode::empty())?;
        Ok(fs::syncfs(open)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_all(&self) -> Outcome<()> {
        Err(Stop::Left)
    }

    fn apply_lock(&mut self) -> Outcome<()> {
        // While a reader pins the state, Python waits.
        self.state.applying = self.state.applying || writer_lock::take(self.lock, self.places.apply);
        if self.state.applying { Ok(()) } else { Err(Stop::Left) }
    }

    fn write_lock(&self, start: u64, data: &[u8]) -> Outcome<()> {
        // An empty key stands for the lock file.
        write_all(self.lock, start, data).map_err(|error| Stop::Failed(error, Some(String::new())))
    }

    /// The open folder of a key, which must exist.
    fn place_of(&mut self, key: &str) -> Outcome<Rc<OwnedFd>> {
        self.folder(split(key).0)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// An open folder; `None` when it is absent.
    fn folder(&mut self, folder: &str) -> Outcome<Option<Rc<OwnedFd>>> {
        if let Some(open) = self.folders.get(folder) {
            return Ok(Some(Rc::clone(open)));
        }
        match self.root.open_folder(shown(folder)) {
            Ok(open) => {
                let open = Rc::new(open);
                self.folders.insert(folder.to_owned(), Rc::clone(&open));
                Ok(Some(open))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Create a folder and its parents, and note the folders in which a name was added.
    fn make_folders(&mut self, folder: &str) -> Outcome<()> {
        let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
        for end in ends {
            let (parent, name) = split(&folder[..end]);
            let Some(place) = self.folder(parent)? else { return Err(Stop::Left) };
            match fs::mkdirat(place, name, FOLDER_MODE) {
                Ok(()) => self.change(parent),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(Stop::Failed(error, Some(folder[..end].to_owned()))),
            }
        }
        Ok(())
    }

    fn kind(&mut self, key: &str) -> Outcome<Option<FileType>> {
        let (folder, name) = split(key);
        match self.folder(folder)? {
            Some(place) => Ok(kind_at(&place, name)?),
            None => Ok(None),
        }
    }

    fn change(&mut self, folder: &str) {
        if !self.state.changed.iter().any(|changed| changed == folder) {
            self.state.changed.push(folder.to_owned());
        }
    }

    fn at_last_file(&self, error: Errno) -> Stop {
        Stop::Failed(error, self.state.files.last().map(|(_, key)| key.clone()))
    }
}

/// The folder and the name of a key.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// The path of a folder; the root is the empty one.
fn shown(folder: &str) -> &str {
    if folder.is_empty() { "." } else { folder }
}

/// Another staged name for the same file: `.g-2f81.0-sizes` becomes `.g-2f81.0.x-sizes`.
fn second_name(staged: &str) -> Option<String> {
    let (mark, rest) = staged.split_once('-')?;
    let (transaction, name) = rest.split_once('-')?;
    Some(format!("{mark}-{transaction}.x-{name}"))
}

fn kind_at(place: &OwnedFd, name: &str) -> Result<Option<FileType>> {
    match fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) => Ok(Some(FileType::from_raw_mode(facts.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file has as many bytes as files for which room is reserved. A rename that replaces another file
/// begins to write such a file back only where it has no room yet, and takes fewer steps than an exchange.
fn has_room(place: &OwnedFd, name: &str) -> bool {
    fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|facts| facts.st_size >= LARGE as i64)
}

#[cfg(target_os = "linux")]
pub fn exchange(from: impl AsFd, one: &str, place: impl AsFd, other: &str) -> Result<()> {
    fs::renameat_with(from, one, place, other, fs::RenameFlags::EXCHANGE)
}

#[cfg(not(target_os = "linux"))]
pub fn exchange(_from: impl AsFd, _one: &str, _place: impl AsFd, _other: &str) -> Result<()> {
    Err(Errno::NOSYS)
}

fn remove(place: &OwnedFd, name: &str) -> Result<()> {
    match fs::unlinkat(place, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

pub fn write_all(file: impl AsFd, mut start: u64, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        match retry_on_intr(|| pwrite(file.as_fd(), data, start))? {
            0 => return Err(Errno::IO),
            count => {
                data = &data[count..];
                start += count as u64;
            }
        }
    }
    Ok(())
}

/// Close a file; an error here means that what was written may be lost.
pub fn close(file: OwnedFd) -> Result<()> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor is owned here, and is not used again.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => match std::io::Error::last_os_error().raw_os_error().map(Errno::from_raw_os_error) {
            // The descriptor is gone on this system all the same.
            None | Some(Errno::INTR) => Ok(()),
            Some(error) => Err(error),
        },
    }
}

#[cfg(target_os = "linux")]
pub fn start_writing(file: BorrowedFd<'_>) {
    use std::os::fd::AsRawFd;
    // An error here is met by the sync of the file as well.
    // SAFETY: the call uses no memory of this process.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
pub fn start_writing(_file: BorrowedFd<'_>) {}

#[cfg(not(target_vendor = "apple"))]
pub fn sync_data(file: BorrowedFd<'_>) -> Result<()> {
    retry_on_intr(|| fs::fdatasync(file))
}

#[cfg(not(target_vendor = "apple"))]
pub fn sync_folder(folder: BorrowedFd<'_>) -> Result<()> {
    retry_on_intr(|| fs::fsync(folder))
}

/// Sync past the cache of the drive, where fsync stops on this system.
#[cfg(target_vendor = "apple")]
pub fn sync_data(file: BorrowedFd<'_>) -> Result<()> {
    match fs::fcntl_fullfsync(file) {
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOTTY) => retry_on_intr(|| fs::fsync(file)),
        other => other,
    }
}

#[cfg(target_vendor = "apple")]
pub fn sync_folder(folder: BorrowedFd<'_>) -> Result<()> {
    sync_data(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const PLACES: LockPlaces = LockPlaces { sequence: 8, state: 24, apply: 1 << 30 };

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("commit-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join(".lock"), [0; 32]).unwrap();
            Self(path)
        }

        fn run(&self, steps: &[Step<'_>]) -> (End, State) {
            let folder = Root::open(&self.0).unwrap().unwrap();
            let root = Root::of(folder.folder());
            let lock = std::fs::File::options().read(true).write(true).open(self.0.join(".lock")).unwrap();
            let mut state = State { done: 0, changed: vec![], sequence: 7, applying: false, files: vec![] };
            let end = run(&root, lock.as_fd(), PLACES, steps, &mut state);
            (end, state)
        }

        fn read(&self, key: &str) -> Vec<u8> {
            std::fs::read(self.0.join(key)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn step<'a>(op: Op, key: &'a str, source: &'a str, data: &'a [u8]) -> Step<'a> {
        Step { op, key, source, start: 0, data }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_sync_that_the_system_refuses_is_an_error() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(sync_folder(reader.as_fd()), Err(Errno::INVAL));
        assert_eq!(sync_data(reader.as_fd()), Err(Errno::INVAL));
    }

    #[test]
    fn operations_have_the_numbers_of_their_order() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, number);
        }
        assert_eq!(Op::of(20), None);
    }

    #[test]
    fn a_file_is_staged_and_takes_the_place_of_another() {
        let large = vec![7; LARGE];
        for (op, new) in
            [Op::Rename, Op::Replace, Op::Place].into_iter().flat_map(|op| [(op, &b"new"[..]), (op, &large)])
        {
            let folder = Folder::new(&format!("{op:?}"));
            std::fs::create_dir(folder.0.join("c")).unwrap();
            std::fs::write(folder.0.join("c/0"), b"old").unwrap();
            let (end, state) = folder.run(&[
                step(Op::Create, "c/.g-1-0", "", new),
                step(Op::SyncFiles, "", "", b""),
                step(Op::CloseFiles, "", "", b""),
                step(Op::Switch, "", "", b""),
                step(op, "c/0", "c/.g-1-0", b""),
                step(Op::SyncFolders, "", "", b""),
                step(Op::Bump, "", "", b""),
            ]);
            assert_eq!((end, state.done, state.sequence), (End::Done, 7, 8));
            assert!(state.changed.is_empty());
            assert_eq!(folder.read("c/0"), new);
            assert_eq!(std::fs::read_dir(folder.0.join("c")).unwrap().count(), 1);
            assert_eq!(folder.read(".lock")[8..16], 8u64.to_le_bytes());
        }
    }

    #[test]
    fn folders_are_made_and_noted() {
        let folder = Folder::new("folders");
        let (end, state) = folder.run(&[step(Op::Create, "a/b/c", "", b"x"), step(Op::CloseFiles, "", "", b"")]);
        assert_eq!((end, state.changed), (End::Done, vec![String::new(), "a".to_owned()]));
    }

    #[test]
    fn a_failure_says_how_far_it_came_and_leaves_a_foreign_file() {
        let folder = Folder::new("failure");
        std::fs::write(folder.0.join("b"), b"foreign").unwrap();
        let (end, state) = folder.run(&[step(Op::Create, "a", "", b"x"), step(Op::Create, "b", "", b"x")]);
        assert_eq!((end, state.done, state.files.len()), (End::Failed(Errno::EXIST, None), 1, 0));
        assert_eq!(folder.read("b"), b"foreign");
    }

    #[test]
    fn a_folder_in_the_way_is_left_to_python() {
        let folder = Folder::new("way");
        std::fs::create_dir(folder.0.join("a")).unwrap();
        std::fs::write(folder.0.join("b"), b"x").unwrap();
        let (end, state) = folder.run(&[step(Op::RequireClear, "b", "", b""), step(Op::Rename, "a", "b", b"")]);
        assert_eq!((end, state.done), (End::Left, 1));
        assert_eq!(folder.run(&[step(Op::Unlink, "a", "", b"")]).0, End::Left);
        assert_eq!(folder.run(&[step(Op::RequireClear, "a", "", b"")]).0, End::Left);
        assert_eq!(folder.run(&[step(Op::Require, "c", "absent", b"")]).0, End::Left);
    }

    #[test]
    fn writes_go_to_the_file_that_was_opened_last() {
        let folder = Folder::new("write");
        std::fs::write(folder.0.join("a"), b"12345").unwrap();
        let write = Step { start: 1, ..step(Op::Write, "", "", b"xy") };
        let (end, _) = folder.run(&[step(Op::Open, "a", "", b""), write, step(Op::CloseFiles, "", "", b"")]);
        assert_eq!((end, folder.read("a")), (End::Done, b"1xy45".to_vec()));
    }

    #[test]
    fn a_second_staged_name() {
        assert_eq!(second_name(".g-2f81.0-sizes").as_deref(), Some(".g-2f81.0.x-sizes"));
        assert_eq!(second_name("sizes"), None);
    }
}
