//! A folder whose files are opened beneath it and nowhere else.
//!
//! Only regular files are read. Anything else that a key names is refused after it was opened, on
//! the descriptor, so that nothing can be exchanged in between.

use super::{Extent, failed, refuse};
use crate::error::{Error, Kind, Outcome};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Pieces that one system call may write.
const MOST_PIECES: usize = 1024;
/// Longer paths take a second call.
const LONGEST_PATH: usize = 512;
/// How often the system is asked again when a path changed while it was resolved.
const MOST_RETRIES: usize = 100;

/// Keys that are read under another name, while that exists, or are absent.
///
/// A journal that is not applied yet says so: a name that is gone has become the key itself.
pub type Renamed = HashMap<String, Option<String>>;

/// A folder that keys cannot leave; the caller may have it open.
pub struct Root<F = OwnedFd> {
    folder: F,
    renamed: Option<Arc<Renamed>>,
}

impl Root {
    /// `None` when there is no such folder.
    pub fn open(path: &Path) -> Outcome<Option<Self>> {
        match rustix::fs::open(path, FOLDER, Mode::empty()) {
            Ok(folder) => Ok(Some(Self { folder, renamed: None })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(system(error, "opening", &path.display().to_string())),
        }
    }

    /// Create the folder and its parents.
    pub fn create_folder(path: &Path) -> Outcome<()> {
        std::fs::create_dir_all(path).map_err(|error| failed(&error, "creating folder", &path.display().to_string()))
    }

    /// The whole of a single file of a folder. The folder itself is not opened where the key names
    /// no folder and no link is followed.
    pub fn extent_in<'a>(folder: &Path, key: &'a str) -> Outcome<Option<Extent<'a>>> {
        if !key.contains('/') && !matches!(key, "" | "." | "..") {
            match rustix::fs::open(folder.join(key), READING | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(file) => return Extent::of(key, file).map(Some),
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
                Err(_) => {} // A link may lead to a file inside; any other error is reported below.
            }
        }
        Self::open(folder)?.map_or(Ok(None), |root| root.extent(key))
    }
}

impl<'a> Root<BorrowedFd<'a>> {
    /// The folder that a caller has open.
    pub const fn of(folder: BorrowedFd<'a>) -> Self {
        Self { folder, renamed: None }
    }
}

impl<F: AsFd> Root<F> {
    /// The same folder, of which some keys are read under other names.
    pub fn renaming(self, renamed: Option<&Arc<Renamed>>) -> Self {
        Self { renamed: renamed.map(Arc::clone), ..self }
    }

    /// The whole of the regular file that `key` names; `None` when it is absent.
    pub fn extent<'a>(&self, key: &'a str) -> Outcome<Option<Extent<'a>>> {
        match self.renamed.as_ref().and_then(|renamed| renamed.get(key)) {
            Some(None) => Ok(None),
            Some(Some(name)) => match self.extent_named(name, key)? {
                None => self.extent_named(key, key),
                found => Ok(found),
            },
            None => self.extent_named(key, key),
        }
    }

    fn extent_named<'a>(&self, name: &str, key: &'a str) -> Outcome<Option<Extent<'a>>> {
        let file = match self.open_beneath(name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::XDEV | Errno::LOOP) => return refuse(key, "leads out of the store"),
            Err(Errno::NXIO | Errno::NODEV | Errno::ISDIR) => return refuse(key, "is not a regular file"),
            Err(error) => return Err(system(error, "opening", key)),
        };
        Extent::of(key, file).map(Some)
    }

    /// Open a folder below.
    pub fn open_folder(&self, folder: &str) -> rustix::io::Result<OwnedFd> {
        self.open_with(folder, FOLDER, Mode::empty())
    }

    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The path of the folder without symbolic links; `None` where the system cannot name an open
    /// folder.
    pub fn real_path(&self) -> Option<String> {
        let link = format!("/proc/self/fd/{}", self.folder.as_fd().as_raw_fd());
        rustix::fs::readlink(link, Vec::with_capacity(LONGEST_PATH)).ok()?.into_string().ok()
    }

    /// Whether anything may have this name, as seen from the folder: only an absent name is ruled out.
    pub fn may_have(&self, name: &str) -> bool {
        let there = rustix::fs::statat(&self.folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        !matches!(there, Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Write `bytes` as a new file; the key must be free. Missing folders are created.
    pub fn write_new(&self, key: &str, bytes: &[u8]) -> Outcome<()> {
        self.write_pieces(key, &mut [IoSlice::new(bytes)])
    }

    /// Write several pieces, one behind the other, as a new file.
    pub fn write_pieces(&self, key: &str, pieces: &mut [IoSlice<'_>]) -> Outcome<()> {
        let mut file = match self.create(key) {
            Err(Errno::NOENT) => {
                self.create_folders(key)?;
                self.create(key)
            }
            other => other,
        }
        .map(File::from)
        .map_err(|error| match error {
            Errno::XDEV | Errno::LOOP => Error::new(Kind::Unsafe, format!("{key} leads out of the store")),
            error => system(error, "creating", key),
        })?;
        let size = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if size >= LARGE && gains_by_reserving(&file) {
            reserve(&file, 0, size as u64);
        }
        write_all(&mut file, pieces).map_err(|error| {
            // A part of a file would be taken for all of it.
            self.remove(key);
            failed(&error, "writing", key)
        })
    }

    /// Remove a file that was written here. The next writer removes a file that stays.
    pub fn remove(&self, key: &str) {
        let _ = rustix::fs::unlinkat(&self.folder, key, rustix::fs::AtFlags::empty());
    }

    fn create(&self, key: &str) -> rustix::io::Result<OwnedFd> {
        self.open_with(key, WRITING, EVERYBODY.difference(Mode::XUSR | Mode::XGRP | Mode::XOTH))
    }

    /// Create the folders that `key` lies in; existing ones stay.
    fn create_folders(&self, key: &str) -> Outcome<()> {
        for (end, _) in key.match_indices('/') {
            let folder = &key[..end];
            let made = match folder.rsplit_once('/') {
                None => rustix::fs::mkdirat(&self.folder, folder, EVERYBODY),
                Some((parent, name)) => self
                    .open_with(parent, FOLDER, Mode::empty())
                    .and_then(|parent| rustix::fs::mkdirat(parent, name, EVERYBODY)),
            };
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(system(error, "creating folder", folder)),
            }
        }
        Ok(())
    }

    fn open_beneath(&self, key: &str) -> rustix::io::Result<OwnedFd> {
        self.open_with(key, READING, Mode::empty())
    }

    /// Open what `key` names, without leaving the folder.
    #[cfg(target_os = "linux")]
    pub fn open_with(&self, key: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        use rustix::fs::ResolveFlags;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..MOST_RETRIES {
            match rustix::fs::openat2(&self.folder, key, flags, mode, inside) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => return self.walk(key, flags, mode),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Open what `key` names, without leaving the folder.
    #[cfg(not(target_os = "linux"))]
    pub fn open_with(&self, key: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        self.walk(key, flags, mode)
    }

    /// Open folder by folder and follow no link: for systems that cannot resolve a path beneath a folder.
    fn walk(&self, key: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let mut parts = key.split('/').peekable();
        let mut folder = None;
        while let Some(part) = parts.next() {
            if matches!(part, "" | "." | "..") {
                return Err(Errno::XDEV);
            }
            let last = parts.peek().is_none();
            let flags = if last { flags } else { FOLDER };
            let inside = folder.as_ref().map_or(self.folder.as_fd(), OwnedFd::as_fd);
            let opened = rustix::fs::openat(inside, part, flags | OFlags::NOFOLLOW, mode)?;
            if last {
                return Ok(opened);
            }
            folder = Some(opened);
        }
        Err(Errno::NOENT)
    }
}

// Without NONBLOCK, opening a FIFO would wait for a writer.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// The file mode creation mask of the process removes from it.
const EVERYBODY: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
const WRITING: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
#[cfg(target_os = "linux")]
pub(super) const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
pub(super) const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// The least bytes of a new file that are worth reserving room for.
pub const LARGE: usize = 256 << 10;

/// Whether writing to a file takes less time where room was reserved. In memory it takes longer.
#[cfg(target_os = "linux")]
pub fn gains_by_reserving(file: &File) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|facts| facts.f_type != TMPFS)
}

#[cfg(not(target_os = "linux"))]
pub fn gains_by_reserving(_: &File) -> bool {
    false
}

/// Have the file system reserve room for bytes that will be written, behind the end of a file as well: it finds
/// all of it at once, and writing takes less time. Where that cannot be done, nothing is.
pub fn reserve(file: &File, start: u64, size: u64) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, start, size);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, start, size);
}

fn write_all(file: &mut File, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match file.write_vectored(&pieces[..pieces.len().min(MOST_PIECES)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut pieces, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn system(error: Errno, doing: &str, name: &str) -> Error {
    failed(&io::Error::from(error), doing, name)
}
