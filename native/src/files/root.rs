//! Chunks inside files, read with positioned reads and nothing else: no mapping, since a
//! foreign writer that truncates the file would kill the process.
//!
//! Only regular files are read; whatever else a path leads to is refused after opening it,
//! on the descriptor, so nothing can be exchanged in between.

use crate::array::scatter::Region;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::{Scratch, grow};
use crate::error::{Error, Kind, Outcome, corrupt};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The first read of a partial decode: header and block starts of all but huge chunks.
const FIRST_READ: usize = 4096;
/// Chunks up to this size are read whole: a second read would cost more.
pub const SMALL: usize = 16 << 10;
/// A gap between wanted blocks up to this size is read along.
const GAP: usize = 32 << 10;
/// Pieces that one call may write.
const MOST_PIECES: usize = 1024;
/// How often the kernel is asked again when a path changed while it was resolved.
const PATIENCE: usize = 100;

/// A folder that keys cannot leave.
pub struct Root {
    folder: OwnedFd,
}

impl Root {
    /// `None` when there is no such folder.
    pub fn open(path: &Path) -> Outcome<Option<Self>> {
        match rustix::fs::open(path, FOLDER, Mode::empty()) {
            Ok(folder) => Ok(Some(Self { folder })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(system(error, "opening", &path.display().to_string())),
        }
    }

    /// Make the folder, and those above it.
    pub fn make(path: &Path) -> Outcome<()> {
        std::fs::create_dir_all(path).map_err(|error| failed(&error, "making folder", &path.display().to_string()))
    }

    /// The whole of the regular file that `key` names; `None` when there is none.
    pub fn extent<'a>(&self, key: &'a str) -> Outcome<Option<Extent<'a>>> {
        let file = match self.open_beneath(key) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::XDEV | Errno::LOOP) => return refuse(key, "leads out of the dataset"),
            Err(Errno::NXIO | Errno::NODEV | Errno::ISDIR) => return refuse(key, "is not a regular file"),
            Err(error) => return Err(system(error, "opening", key)),
        };
        Extent::of(key, file).map(Some)
    }

    /// The same for one file of a folder that nothing else is wanted from: where no folder lies
    /// between and no link is followed, the folder need not be opened.
    pub fn extent_in<'a>(folder: &Path, key: &'a str) -> Outcome<Option<Extent<'a>>> {
        if !key.contains('/') && !matches!(key, "" | "." | "..") {
            match rustix::fs::open(folder.join(key), READING | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(file) => return Extent::of(key, file).map(Some),
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
                Err(_) => {} // A link may lead to a file inside; whatever else it is, is said below.
            }
        }
        Self::open(folder)?.map_or(Ok(None), |root| root.extent(key))
    }

    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Whether anything has this name, as seen from the folder; what cannot be seen may be there.
    pub fn may_have(&self, name: &str) -> bool {
        let there = rustix::fs::statat(&self.folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        !matches!(there, Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Write `bytes` as a new file; nothing may be there yet. Folders on the way are made.
    pub fn write_new(&self, key: &str, bytes: &[u8]) -> Outcome<()> {
        self.write_pieces(key, &mut [IoSlice::new(bytes)])
    }

    /// The same, the bytes being in several pieces.
    pub fn write_pieces(&self, key: &str, pieces: &mut [IoSlice<'_>]) -> Outcome<()> {
        let mut file = match self.create(key) {
            Err(Errno::NOENT) => {
                self.make_folders(key)?;
                self.create(key)
            }
            other => other,
        }
        .map(File::from)
        .map_err(|error| match error {
            Errno::XDEV | Errno::LOOP => Error::new(Kind::Unsafe, format!("{key} leads out of the dataset")),
            error => system(error, "creating", key),
        })?;
        write_all(&mut file, pieces).map_err(|error| {
            // Half a file is worse than none.
            self.remove(key);
            failed(&error, "writing", key)
        })
    }

    /// Remove a file that was written here. What cannot be removed, the next writer sweeps.
    pub fn remove(&self, key: &str) {
        let _ = rustix::fs::unlinkat(&self.folder, key, rustix::fs::AtFlags::empty());
    }

    fn create(&self, key: &str) -> rustix::io::Result<OwnedFd> {
        self.open_with(key, WRITING, ANYBODY.difference(Mode::XUSR | Mode::XGRP | Mode::XOTH))
    }

    /// Make the folders that `key` lies in; those that are there already are fine.
    fn make_folders(&self, key: &str) -> Outcome<()> {
        for (end, _) in key.match_indices('/') {
            let folder = &key[..end];
            let made = match folder.rsplit_once('/') {
                None => rustix::fs::mkdirat(&self.folder, folder, ANYBODY),
                Some((parent, name)) => self
                    .open_with(parent, FOLDER, Mode::empty())
                    .and_then(|parent| rustix::fs::mkdirat(parent, name, ANYBODY)),
            };
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(system(error, "making folder", folder)),
            }
        }
        Ok(())
    }

    fn open_beneath(&self, key: &str) -> rustix::io::Result<OwnedFd> {
        self.open_with(key, READING, Mode::empty())
    }

    #[cfg(target_os = "linux")]
    fn open_with(&self, key: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        use rustix::fs::ResolveFlags;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..PATIENCE {
            match rustix::fs::openat2(&self.folder, key, flags, mode, inside) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => return self.walk(key, flags, mode),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    #[cfg(not(target_os = "linux"))]
    fn open_with(&self, key: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        self.walk(key, flags, mode)
    }

    /// Folder by folder, following no link: for systems that cannot be asked to stay inside.
    fn walk(&self, key: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let mut parts = key.split('/').peekable();
        let mut folder = None;
        while let Some(part) = parts.next() {
            if matches!(part, "" | "." | "..") {
                return Err(Errno::XDEV);
            }
            let last = parts.peek().is_none();
            let flags = if last { flags } else { FOLDER };
            let inside = folder.as_ref().unwrap_or(&self.folder);
            let opened = rustix::fs::openat(inside, part, flags | OFlags::NOFOLLOW, mode)?;
            if last {
                return Ok(opened);
            }
            folder = Some(opened);
        }
        Err(Errno::NOENT)
    }
}

// Without NONBLOCK opening a FIFO would wait for a writer that never comes.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// What the process's own mask leaves of it.
const ANYBODY: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
const WRITING: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
#[cfg(target_os = "linux")]
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

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

fn failed(error: &io::Error, doing: &str, name: &str) -> Error {
    Error::new(Kind::System(error.raw_os_error().unwrap_or(0)), format!("{doing} {name}: {error}"))
}

fn refuse<T>(key: &str, why: &str) -> Outcome<T> {
    Err(Error::new(Kind::Unsafe, format!("{key} {why}")))
}

/// Bytes of an open file.
pub struct Extent<'a> {
    pub key: &'a str,
    pub file: Arc<File>,
    pub offset: u64,
    pub length: usize,
}

impl<'a> Extent<'a> {
    /// The whole of an open file, if it is a regular one.
    fn of(key: &'a str, file: OwnedFd) -> Outcome<Self> {
        let file = File::from(file);
        let facts = file.metadata().map_err(|error| failed(&error, "looking at", key))?;
        if !facts.is_file() {
            return refuse(key, "is not a regular file");
        }
        let length = usize::try_from(facts.len()).unwrap_or(usize::MAX);
        Ok(Self { key, file: Arc::new(file), offset: 0, length })
    }

    /// Only the `length` bytes from `offset` on, or all to the end.
    pub fn narrowed(self, offset: u64, length: Option<usize>) -> Outcome<Self> {
        let left = (self.length as u64).saturating_sub(offset) as usize;
        match length {
            Some(length) if length > left => {
                corrupt!("{}: {length} bytes at {offset} are wanted, {left} are there", self.key)
            }
            _ => Ok(Self { offset, length: length.unwrap_or(left), ..self }),
        }
    }

    /// What the system knows of the file.
    pub fn facts(&self) -> Outcome<Metadata> {
        self.file.metadata().map_err(|error| failed(&error, "looking at", self.key))
    }

    /// All bytes, read into `buffers`.
    pub fn all<'b>(&self, buffers: &'b mut Buffers) -> Outcome<&'b [u8]> {
        let bytes = grow(&mut buffers.body, self.length)?;
        self.read(0, bytes)?;
        Ok(bytes)
    }

    /// Bytes `span` of the extent, read into `buffer`.
    fn window<'b>(&self, span: Range<usize>, buffer: &'b mut Vec<u8>) -> Outcome<Window<'b>> {
        let bytes = grow(buffer, span.len())?;
        self.read(span.start, bytes)?;
        Ok(Window { bytes, offset: span.start })
    }

    /// Fill `out` from byte `at` of the extent on.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Outcome<()> {
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], self.offset + (at + done) as u64) {
                Ok(0) => return corrupt!("{}: ends at byte {}, more was there before", self.key, at + done),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error, "reading", self.key)),
            }
        }
        Ok(())
    }
}

/// Decode what `region` wants of the chunk in `extent`, reading only what that takes.
/// `expected` is the size the chunk must decode to.
pub fn decode_extent(
    extent: &Extent<'_>,
    expected: usize,
    region: &Region,
    scratch: &mut Scratch,
    buffers: &mut Buffers,
) -> Outcome<()> {
    // A chunk that is small, or wanted for the most part, is read at once; the size that it
    // may have is checked before any memory is taken for it.
    let at_once = extent.length <= SMALL || region.count() * region.itemsize() * 3 >= expected;
    let first = extent.length.min(if at_once { 2 * expected + SMALL } else { FIRST_READ });
    let Buffers { head, body, .. } = buffers;
    extent.read(0, grow(head, first)?)?;
    let header = due(&head[..first], extent.length, expected)?;
    if first < header.data_start() {
        extent.read(0, grow(head, header.data_start())?)?;
    }
    let head = &head[..first.max(header.data_start())];
    let decoder = Decoder::new(&header, &head[HEADER_BYTES..header.data_start()]);
    let blocks = decoder.blocks_of(region);
    if head.len() == extent.length {
        return decoder.decode_region(Window { bytes: head, offset: 0 }, blocks, region, scratch);
    }
    if header.rest.has_delta() && blocks.start > 0 {
        // Other blocks are differences from the first one.
        for (_, span) in reads(&decoder, 0..1, region)? {
            decoder.decode_first(extent.window(span, body)?, scratch)?;
        }
    }
    for (blocks, span) in reads(&decoder, blocks, region)? {
        decoder.decode_region(extent.window(span, body)?, blocks, region, scratch)?;
    }
    Ok(())
}

/// What one thread reuses for the bytes it reads.
#[derive(Default)]
pub struct Buffers {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    pub tail: Vec<u8>,
}

/// The header of a chunk that is stored in `stored` bytes and must decode to `expected`:
/// where the array says what is due, anything else is corruption.
pub fn due(head: &[u8], stored: usize, expected: usize) -> Outcome<Header> {
    if let Some(claim) = head.get(12..16).and_then(|claim| claim.first_chunk().copied()).map(i32::from_le_bytes)
        && (0..stored as i64).contains(&i64::from(claim))
    {
        return corrupt!("Blosc chunk: cbytes claims {claim} bytes, {stored} are stored");
    }
    let header = Header::parse(head, stored, usize::MAX)?;
    check_size(&header, expected)?;
    Ok(header)
}

pub fn check_size(header: &Header, expected: usize) -> Outcome<()> {
    if header.nbytes != expected {
        return corrupt!("Blosc chunk: nbytes is {}, the array needs {expected}", header.nbytes);
    }
    Ok(())
}

/// Which bytes to read for `blocks`, and the blocks that each read serves.
pub fn reads(
    decoder: &Decoder<'_>,
    blocks: Range<usize>,
    region: &Region,
) -> Outcome<Vec<(Range<usize>, Range<usize>)>> {
    let header = decoder.header;
    if header.memcpyed() {
        let (first, end) = region.span();
        let (size, head) = (region.itemsize(), header.header_bytes());
        return Ok(vec![(blocks, first * size + head..end * size + head)]);
    }
    // Blocks may lie in any order: one ends where the next one in the file begins.
    let mut starts = Vec::with_capacity(header.block_count());
    for index in 0..header.block_count() {
        starts.push(header.block_start(decoder.starts, index)?);
    }
    let mut sorted = starts.clone();
    sorted.sort_unstable();
    let end = |start: usize| {
        let next = sorted.partition_point(|other| *other <= start);
        sorted.get(next).copied().unwrap_or(header.cbytes)
    };
    let mut reads: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for index in blocks {
        let span = starts[index]..end(starts[index]);
        match reads.last_mut() {
            Some((served, read)) if read.end <= span.start && span.start - read.end <= GAP => {
                served.end = index + 1;
                read.end = span.end;
            }
            _ => reads.push((index..index + 1, span)),
        }
    }
    Ok(reads)
}
