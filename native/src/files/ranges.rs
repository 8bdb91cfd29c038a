//! Ranges of open files, read into one memory by several threads.

use crate::error::Outcome;
use crate::files::Root;
use crate::interrupt::Interrupt;
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one thread reads at a time, about.
const PART: usize = 1 << 20;
/// A thread is started for so many bytes; fewer are read sooner without it.
const EACH: usize = 512 << 10;

/// Bytes of an open file: where they begin, and how many they are.
pub struct Range<'a> {
    pub file: BorrowedFd<'a>,
    pub start: u64,
    pub size: usize,
}

/// The first range that cannot be read: its number, how many of its bytes could be, and the code of the error;
/// `None` where the file has ended.
pub type Failure = (usize, usize, Option<i32>);

struct Part<'m> {
    range: usize,
    at: usize,
    memory: &'m mut [u8],
}

/// Open regular files below a folder, with their sizes; `None` for whatever else a key names, or does not.
pub fn open(folder: BorrowedFd<'_>, keys: &[String]) -> Vec<Option<(OwnedFd, u64)>> {
    let root = Root::of(folder);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |key: &String| {
        let file = root.open_with(key, flags, Mode::empty()).ok()?;
        let facts = fstat(&file).ok()?;
        let regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        regular.then_some((file, u64::try_from(facts.st_size).ok()?))
    };
    keys.iter().map(open).collect()
}

/// Read ranges into memory, one behind the other. All that can be read is, whatever fails.
pub fn read(
    ranges: &[Range<'_>],
    memory: &mut [u8],
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<Option<Failure>> {
    let mut parts = Vec::new();
    let mut rest = memory;
    for (number, range) in ranges.iter().enumerate() {
        let (own, behind) = std::mem::take(&mut rest).split_at_mut(range.size);
        rest = behind;
        let pieces = own.chunks_mut(PART).enumerate();
        parts.extend(pieces.map(|(piece, memory)| Mutex::new(Part { range: number, at: piece * PART, memory })));
    }
    let bytes: usize = ranges.iter().map(|range| range.size).sum();
    let threads = threads.min(parts.len()).min(bytes / EACH + 1);
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    let next = AtomicUsize::new(0);
    interrupt.share(threads, &mut (), |()| {
        let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(false);
        };
        let mut part = part.lock().expect("no thread panics");
        let Part { range, at, ref mut memory } = *part;
        if let Err((done, code)) = fill(&ranges[range], at, memory) {
            let mut first = failure.lock().expect("no thread panics");
            let own = (range, at + done, code);
            if first.is_none_or(|first| (own.0, own.1) < (first.0, first.1)) {
                *first = Some(own);
            }
        }
        Ok(true)
    })?;
    Ok(failure.into_inner().expect("no thread panics"))
}

/// Fill memory from byte `at` of a range on; else return how far that went, and why.
fn fill(range: &Range<'_>, at: usize, memory: &mut [u8]) -> Result<(), (usize, Option<i32>)> {
    let mut done = 0;
    while done < memory.len() {
        match rustix::io::pread(range.file, &mut memory[done..], range.start + (at + done) as u64) {
            Ok(0) => return Err((done, None)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err((done, Some(error.raw_os_error()))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn ranges_are_read_one_behind_the_other() {
        let folder = std::env::temp_dir().join(format!("ranges-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        let long: Vec<u8> = (0..3 * PART + 5).map(|number| (number % 251) as u8).collect();
        fs::write(folder.join("a"), b"spam eggs").unwrap();
        fs::write(folder.join("b"), &long).unwrap();
        let root = fs::File::open(&folder).unwrap();
        let keys = ["a", "b", "inner", "c", "../a"].map(String::from);
        let files = open(root.as_fd(), &keys);
        assert!(files[2..].iter().all(Option::is_none));
        let files: Vec<_> = files.into_iter().flatten().collect();
        assert_eq!(files.iter().map(|(_, size)| *size).collect::<Vec<_>>(), [9, long.len() as u64]);
        let (a, b) = (files[0].0.as_fd(), files[1].0.as_fd());
        let range = |file, start, size| Range { file, start, size };
        let ranges = [range(a, 5, 4), range(b, 1, long.len() - 1), range(a, 0, 0), range(a, 0, 4)];
        let mut memory = vec![0; 8 + long.len() - 1];
        assert_eq!(read(&ranges, &mut memory, 3, &Interrupt::never()).unwrap(), None);
        assert_eq!(&memory[..4], b"eggs");
        assert_eq!(&memory[4..memory.len() - 4], &long[1..]);
        assert_eq!(&memory[memory.len() - 4..], b"spam");
        let ranges = [range(a, 0, 9), range(b, long.len() as u64 - 3, 5), range(a, 8, 2)];
        let found = read(&ranges, &mut memory[..16], 2, &Interrupt::never()).unwrap();
        assert_eq!(found, Some((1, 3, None)));
        assert_eq!(&memory[14..15], b"s");
        fs::remove_dir_all(&folder).unwrap();
    }
}
