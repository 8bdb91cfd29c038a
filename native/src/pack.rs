//! Files and memory packed into runs of Blosc chunks, and files unpacked again: read by position, coded
//! and written by several threads at once.
//!
//! Each thread works on one chunk at a time in memory of its own, which it uses again, or on a run of
//! chunks where their digests are computed faster together. Nothing else is held, so that the size of a
//! file does not matter. Every chunk may be followed by a digest of its bytes. Where the chunks lie in
//! their file is known to the caller.

use crate::checksum::{Checksum, Digest};
use crate::chunk::decode::Decoder;
use crate::chunk::encode::{Packer, Recipe, encode};
use crate::chunk::header::{EXTENDED_BYTES, HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::gains_by_reserving;
use crate::interrupt::Interrupt;
use crate::memory::{grow, out_of_memory, push, reserved};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long a thread waits for its turn before it checks for an interrupt.
const PATIENCE: Duration = Duration::from_millis(20);

/// What is packed.
#[derive(Clone, Copy)]
pub enum Plain<'a> {
    /// The first bytes of a file.
    File {
        file: &'a File,
        size: u64,
    },
    Memory(&'a [u8]),
}

impl<'a> Plain<'a> {
    fn size(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// `size` bytes from `at` on, which lie inside; those of a file are read into `buffer`.
    fn part<'b>(&self, at: u64, size: usize, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]>
    where
        'a: 'b,
    {
        match self {
            Self::File { file, .. } => {
                let plain = grow(buffer, size)?;
                read(file, plain, at, "the file that is packed")?;
                Ok(plain)
            }
            Self::Memory(bytes) => Ok(&bytes[at as usize..at as usize + size]),
        }
    }
}

/// How it is packed.
#[derive(Clone, Copy)]
pub struct Packing {
    /// The bytes of each chunk but the last.
    pub chunk_size: usize,
    pub recipe: Recipe,
    pub checksum: Option<Checksum>,
    /// Where the first chunk is written.
    pub start: u64,
}

impl Packing {
    /// How many chunks there are for so many bytes: no bytes have one chunk, which is empty.
    fn count(&self, size: u64) -> Outcome<usize> {
        let count = size.div_ceil(self.chunk_size.max(1) as u64).max(1);
        usize::try_from(count).map_err(|_| Error::new(Kind::Limit, format!("{count} chunks are too many")))
    }
}

/// The memory of one thread.
#[derive(Default)]
struct Workspace {
    plain: Vec<u8>,
    /// Chunks with their digests, as they stand in the file.
    stored: Vec<u8>,
    /// Where each of them ends in there.
    ends: Vec<usize>,
    packed: Packer,
    scratch: Scratch,
}

/// Where chunks lie that follow each other, as far as it is known.
struct Ends {
    known: Mutex<Vec<u64>>,
    grown: Condvar,
}

impl Ends {
    /// Wait until chunk `number` has a place, and reserve it for chunks that end so many bytes behind it.
    fn reserve(&self, number: usize, ends: &[usize], interrupt: &Interrupt) -> Outcome<u64> {
        let mut known = self.known.lock().expect("no thread panics");
        while known.len() <= number {
            known = self.grown.wait_timeout(known, PATIENCE).expect("no thread panics").0;
            interrupt.check()?;
        }
        let place = known[number];
        known.extend(ends.iter().map(|end| place + *end as u64));
        drop(known);
        self.grown.notify_all();
        Ok(place)
    }
}

/// Pack a file or memory; return where the chunks start, and where the last one ends.
///
/// `done` counts the bytes that are packed.
pub fn pack(
    source: Plain<'_>,
    target: &File,
    packing: &Packing,
    threads: usize,
    interrupt: &Interrupt,
    done: &AtomicU64,
) -> Outcome<Vec<u64>> {
    let (size, count) = (source.size(), packing.count(source.size())?);
    let mut known = reserved(count + 1)?;
    known.push(packing.start);
    let ends = Ends { known: Mutex::new(known), grown: Condvar::new() };
    let next = AtomicUsize::new(0);
    let run = run_length(packing.checksum, count, threads, packing.chunk_size);
    interrupt.share_long(threads.min(count), |own: &mut Workspace, interrupt| {
        let Some(numbers) = next_run(&next, run, count) else {
            return Ok(false);
        };
        let from = numbers.start as u64 * packing.chunk_size as u64;
        let whole = (size - from).min(numbers.len() as u64 * packing.chunk_size as u64);
        let digest_bytes = packing.checksum.map_or(0, Checksum::size);
        own.stored.clear();
        own.ends.clear();
        for number in numbers.clone() {
            let at = number as u64 * packing.chunk_size as u64;
            let size = (from + whole - at).min(packing.chunk_size as u64) as usize;
            let plain = source.part(at, size, &mut own.plain)?;
            encode(plain, packing.recipe, &mut own.packed, &mut own.scratch, 1, interrupt)?;
            own.packed.push(&[0; Checksum::MOST_BYTES][..digest_bytes])?;
            if run > 1 {
                append(&mut own.stored, own.packed.bytes())?;
                own.ends.push(own.stored.len());
            }
        }
        // One chunk stays where it was encoded.
        if run == 1 {
            own.ends.push(own.packed.bytes().len());
        }
        let stored = if run == 1 { own.packed.bytes_mut() } else { &mut own.stored };
        if let Some(kind) = packing.checksum {
            fill_digests(kind, stored, &own.ends);
        }
        let place = ends.reserve(numbers.start, &own.ends, interrupt)?;
        write(target, stored, place)?;
        done.fetch_add(whole, Ordering::Relaxed);
        Ok(true)
    })?;
    Ok(ends.known.into_inner().expect("no thread panics"))
}

/// The stored and the decoded bytes of chunks that follow each other from the start of `data` on, each
/// with `gap` bytes behind it; `room` bytes lie from there to the end of their file.
///
/// Ends at the first header that is wrong, or that does not lie in `data` as a whole.
pub fn walk(data: &[u8], room: u64, gap: u64, most: usize) -> Outcome<Vec<(usize, usize)>> {
    let mut found = Vec::new();
    let mut at = 0;
    while found.len() < most && at as u64 <= room {
        let Some(raw) = data.get(at..at + EXTENDED_BYTES) else {
            break;
        };
        let stored = (room - at as u64).min(claimed(raw)) as usize;
        let Ok(header) = Header::parse(raw, stored, i32::MAX as usize) else {
            break;
        };
        if header.cbytes as u64 + gap > room - at as u64 {
            break;
        }
        push(&mut found, (header.cbytes, header.nbytes))?;
        at += header.cbytes + gap as usize;
    }
    Ok(found)
}

/// The stored bytes that a header claims.
fn claimed(raw: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes([raw[12], raw[13], raw[14], raw[15]]))
}

/// Where the chunks of a file lie, and where their bytes belong.
pub struct Places<'a> {
    /// Where each chunk starts in its file, and where the last one ends, digests included.
    pub stored: &'a [u64],
    /// Where the bytes of each chunk start in the unpacked file, and where the last ones end.
    pub plain: &'a [u64],
}

impl Places<'_> {
    pub fn check(&self) -> Outcome<()> {
        let ascending = |places: &[u64]| places.windows(2).all(|pair| pair[0] <= pair[1]);
        if self.stored.len() != self.plain.len() || !ascending(self.stored) || !ascending(self.plain) {
            return Err(Error::new(Kind::Argument, "the places of chunks do not follow each other"));
        }
        Ok(())
    }
}

/// Unpack a file into another one, or only verify it.
///
/// The caller has compared all places with the size of the file. A chunk that is not what its places
/// say, and one whose digest differs, is an error before any of its bytes are used.
pub fn unpack(
    source: &File,
    target: Option<&File>,
    places: &Places<'_>,
    checksum: Option<Checksum>,
    threads: usize,
    interrupt: &Interrupt,
    done: &AtomicU64,
) -> Outcome<()> {
    places.check()?;
    let count = places.stored.len().saturating_sub(1);
    let space = target.map(|file| Space::new(file, places.plain.last().copied().unwrap_or(0)));
    let next = AtomicUsize::new(0);
    let largest = places.plain.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let run = run_length(checksum, count, threads, largest as usize);
    // Memory for the longest run is taken once, not again for each run that is a little longer.
    let bounds = (0..=count).step_by(run).map(|number| places.stored[number]).chain(places.stored.last().copied());
    let longest = bounds.clone().zip(bounds.skip(1)).map(|(start, end)| end - start).max().unwrap_or(0) as usize;
    interrupt.share_long(threads.min(count), |own: &mut Workspace, interrupt| {
        let Some(numbers) = next_run(&next, run, count) else {
            return Ok(false);
        };
        let first = places.stored[numbers.start];
        let stored = &mut grow(&mut own.stored, longest)?[..(places.stored[numbers.end] - first) as usize];
        read(source, stored, first, "the packed file")?;
        let part = |number: usize| {
            &stored[(places.stored[number] - first) as usize..(places.stored[number + 1] - first) as usize]
        };
        let named = |number: usize| {
            move |mut error: Error| {
                error.text = format!("chunk {number} at {}: {}", places.stored[number], error.text);
                error
            }
        };
        let mut chunks = reserved(numbers.len())?;
        for number in numbers.clone() {
            let nbytes = (places.plain[number + 1] - places.plain[number]) as usize;
            chunks.push(Chunk::parse(part(number), nbytes, checksum).map_err(named(number))?);
        }
        if let Some(kind) = checksum {
            let bytes: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.bytes).collect();
            for ((digest, chunk), number) in kind.digests(&bytes).iter().zip(&chunks).zip(numbers.clone()) {
                chunk.compare(kind, digest).map_err(named(number))?;
            }
        }
        for (chunk, number) in chunks.iter().zip(numbers) {
            let plain = chunk.decode(&mut own.plain, &mut own.scratch, interrupt).map_err(named(number))?;
            if let Some(space) = &space {
                space.reach(places.plain[number + 1])?;
                write(space.file, plain, places.plain[number])?;
            }
            done.fetch_add(plain.len() as u64, Ordering::Relaxed);
        }
        Ok(true)
    })
}

/// Replace the last bytes of each chunk by the digest of the bytes before them.
fn fill_digests(kind: Checksum, stored: &mut [u8], ends: &[usize]) {
    let starts = || std::iter::once(0).chain(ends.iter().copied());
    let chunks: Vec<&[u8]> = starts().zip(ends).map(|(start, end)| &stored[start..end - kind.size()]).collect();
    let digests = kind.digests(&chunks);
    for (digest, end) in digests.iter().zip(ends) {
        stored[end - kind.size()..*end].copy_from_slice(digest.bytes());
    }
}

/// Append bytes to a vector that grows with what a file holds.
fn append(stored: &mut Vec<u8>, bytes: &[u8]) -> Outcome<()> {
    stored.try_reserve(bytes.len()).map_err(|_| out_of_memory(stored.len() + bytes.len()))?;
    stored.extend_from_slice(bytes);
    Ok(())
}

/// How many chunks a thread works on together: as many as their digests are computed faster for, in
/// little memory, and so few that there is work for all threads.
fn run_length(checksum: Option<Checksum>, count: usize, threads: usize, chunk_size: usize) -> usize {
    const MEMORY: usize = 32 << 20;
    let room = MEMORY / threads.max(1) / chunk_size.max(1);
    checksum.map_or(1, Checksum::together).min(count.div_ceil(threads.max(1))).min(room).max(1)
}

/// The numbers of the next chunks that no thread works on yet.
fn next_run(next: &AtomicUsize, run: usize, count: usize) -> Option<Range<usize>> {
    let first = next.fetch_add(run, Ordering::Relaxed);
    (first < count).then(|| first..(first + run).min(count))
}

/// A stored chunk, whose header is checked.
struct Chunk<'a> {
    header: Header,
    bytes: &'a [u8],
    digest: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The chunk and its digest that are all of `stored`, and decode to `nbytes` bytes.
    fn parse(stored: &'a [u8], nbytes: usize, checksum: Option<Checksum>) -> Outcome<Self> {
        let size = stored.len().checked_sub(checksum.map_or(0, Checksum::size));
        let Some((bytes, digest)) = size.and_then(|size| stored.split_at_checked(size)) else {
            return corrupt!("{} bytes hold no chunk and its digest", stored.len());
        };
        let header = Header::parse(bytes, bytes.len(), i32::MAX as usize)?;
        if header.cbytes != bytes.len() {
            return corrupt!("cbytes is {}, the place of what follows makes it {}", header.cbytes, bytes.len());
        }
        if header.nbytes != nbytes {
            return corrupt!("nbytes is {}, the header of the file makes it {nbytes}", header.nbytes);
        }
        Ok(Self { header, bytes, digest })
    }

    fn compare(&self, kind: Checksum, fact: &Digest) -> Outcome<()> {
        if fact.bytes() != self.digest {
            let claim = Digest::of(self.digest);
            return corrupt!("{}: the checksum is {fact}, {claim} is stored", kind.name());
        }
        Ok(())
    }

    /// The decoded bytes: in `plain`, or in the chunk itself.
    fn decode<'b>(&'b self, plain: &'b mut Vec<u8>, scratch: &mut Scratch, interrupt: &Interrupt) -> Outcome<&'b [u8]> {
        let header = &self.header;
        if header.memcpyed() {
            return Ok(&self.bytes[header.header_bytes()..]);
        }
        let plain = grow(plain, header.nbytes)?;
        let decoder = Decoder::new(header, &self.bytes[HEADER_BYTES..header.data_start()]);
        decoder.decode_whole(self.bytes, plain, scratch, 1, interrupt)?;
        Ok(plain)
    }
}

/// Disk space that is set aside for a new file, some way ahead of what is written: it takes a third off
/// the time of writing on ext4. Only some way, because the size that a file claims may be a lie.
struct Space<'a> {
    file: &'a File,
    size: u64,
    /// How far the space reaches; all of the file where it is of no use.
    end: Mutex<u64>,
}

impl<'a> Space<'a> {
    const STEP: u64 = 64 << 20;

    fn new(file: &'a File, size: u64) -> Self {
        Self { file, size, end: Mutex::new(if gains_by_reserving(file) { 0 } else { size }) }
    }

    /// Set space aside for the bytes up to `place`, which were decoded.
    fn reach(&self, place: u64) -> Outcome<()> {
        let mut end = self.end.lock().expect("no thread panics");
        if *end >= place {
            return Ok(());
        }
        let next = (place + Self::STEP).min(self.size);
        match set_aside(self.file, *end, next - *end) {
            Ok(()) => *end = next,
            Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::FileTooLarge) => {
                return Err(failed(&error, "writing"));
            }
            // Not every file system can do it.
            Err(_) => *end = self.size,
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn set_aside(file: &File, start: u64, size: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), start, size)?)
}

#[cfg(not(target_os = "linux"))]
fn set_aside(_: &File, _: u64, _: u64) -> io::Result<()> {
    Ok(())
}

fn read(file: &File, buffer: &mut [u8], at: u64, what: &str) -> Outcome<()> {
    match file.read_exact_at(buffer, at) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            corrupt!("{what} has become shorter: {} bytes at {at} are wanted", buffer.len())
        }
        Err(error) => Err(failed(&error, "reading")),
    }
}

fn write(file: &File, bytes: &[u8], at: u64) -> Outcome<()> {
    file.write_all_at(bytes, at).map_err(|error| failed(&error, "writing"))
}

fn failed(error: &io::Error, doing: &str) -> Error {
    Error::new(Kind::System(error.raw_os_error().unwrap_or(0)), format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::header::Filter;

    const CHUNK: usize = 1000;

    /// A file without a name; tests run beside each other.
    fn file(bytes: &[u8]) -> File {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ingot-pack-{}-{number}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn content(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn plain(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * at / 500) as u8).collect()
    }

    fn packed(source: &[u8], checksum: Option<Checksum>, threads: usize) -> (File, Vec<u64>) {
        let recipe =
            Recipe { codec: Codec::Lz4, level: 5, filter: Filter::Shuffle, typesize: 4, blocksize: 0, gain: 0 };
        let packing = Packing { chunk_size: CHUNK, recipe, checksum, start: 7 };
        let (stored, size) = (file(source), source.len() as u64);
        let made = [Plain::File { file: &stored, size }, Plain::Memory(source)].map(|source| {
            let (target, done) = (file(b""), AtomicU64::new(0));
            let ends = pack(source, &target, &packing, threads, &Interrupt::never(), &done).unwrap();
            assert_eq!(done.into_inner(), size);
            (target, ends)
        });
        let [(target, ends), (other, same)] = made;
        assert_eq!((content(&target), &ends), (content(&other), &same), "from a file and from memory");
        (target, ends)
    }

    fn unpacked(source: &File, ends: &[u64], size: u64, checksum: Option<Checksum>) -> Outcome<Vec<u8>> {
        let last = ends.len() as u64 - 1;
        let plain: Vec<u64> = (0..=last).map(|n| if n == last { size } else { n * CHUNK as u64 }).collect();
        let target = file(b"");
        let places = Places { stored: ends, plain: &plain };
        unpack(source, Some(&target), &places, checksum, 2, &Interrupt::never(), &AtomicU64::new(0))?;
        Ok(content(&target))
    }

    #[test]
    fn files_come_back_whatever_their_size_and_the_number_of_threads() {
        let kinds = ["none", "crc32", "md5", "sha256", "sha512"];
        let sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 70 * CHUNK + 3];
        for (kind, size) in kinds.iter().flat_map(|kind| sizes.map(|size| (kind, size))) {
            let kind = Checksum::parse(kind).unwrap();
            let source = plain(size);
            let (first, ends) = packed(&source, kind, 1);
            assert_eq!(ends.len(), size.div_ceil(CHUNK).max(1) + 1);
            assert_eq!((ends[0], ends.last()), (7, Some(&(content(&first).len() as u64))));
            assert_eq!(unpacked(&first, &ends, size as u64, kind).unwrap(), source);
            let (second, others) = packed(&source, kind, 4);
            assert_eq!((content(&second), others), (content(&first), ends));
        }
    }

    #[test]
    fn a_flipped_bit_a_wrong_place_and_a_wrong_size_are_errors() {
        let kind = Checksum::parse("md5").unwrap();
        let size = 3 * CHUNK as u64 + 5;
        let (target, ends) = packed(&plain(size as usize), kind, 2);
        let mut moved = ends.clone();
        moved[2] += 1;
        // Two chunks are wrong then, and either of them may be noticed first.
        assert!(matches!(unpacked(&target, &moved, size, kind).unwrap_err().kind, Kind::Corruption | Kind::Format));
        assert_eq!(unpacked(&target, &ends, size + 1, kind).unwrap_err().kind, Kind::Corruption);
        moved[1] = moved[2] + 1;
        assert_eq!(unpacked(&target, &moved, size, kind).unwrap_err().kind, Kind::Argument);
        let mut bytes = content(&target);
        for at in 7..bytes.len() {
            bytes[at] ^= 1;
            let error = unpacked(&file(&bytes), &ends, size, kind).unwrap_err();
            assert!(error.text.starts_with("chunk "), "{at}: {error}");
            bytes[at] ^= 1;
        }
        let short = file(&bytes[..bytes.len() - 1]);
        assert!(unpacked(&short, &ends, size, kind).unwrap_err().text.contains("shorter"));
    }

    #[test]
    fn a_walk_finds_the_chunks_up_to_the_first_that_is_wrong() {
        let (target, ends) = packed(&plain(5 * CHUNK + 3), Checksum::parse("crc32").unwrap(), 1);
        let bytes = content(&target);
        let (data, room) = (&bytes[7..], bytes.len() as u64 - 7);
        let expected: Vec<_> = ends
            .windows(2)
            .enumerate()
            .map(|(number, pair)| ((pair[1] - pair[0]) as usize - 4, if number < 5 { CHUNK } else { 3 }))
            .collect();
        // The last header has no room for an extension behind it, which it does not have.
        assert_eq!(walk(data, room, 4, 100).unwrap(), expected[..5]);
        assert_eq!(walk(&[data, &[0; 32]].concat(), room, 4, 100).unwrap(), expected);
        assert_eq!(walk(data, room, 4, 2).unwrap(), expected[..2]);
        let second = (ends[1] - 7) as usize;
        assert_eq!(walk(data, second as u64 - 1, 4, 100).unwrap(), [], "without its checksum");
        let mut damaged = data.to_vec();
        damaged[second] = 0;
        assert_eq!(walk(&damaged, room, 4, 100).unwrap(), expected[..1]);
        assert_eq!(walk(&[], 0, 4, 100).unwrap(), []);
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_packed_is_an_error() {
        let recipe = Recipe { codec: Codec::Lz4, level: 5, filter: Filter::None, typesize: 1, blocksize: 0, gain: 0 };
        let packing = Packing { chunk_size: CHUNK, recipe, checksum: None, start: 0 };
        let (source, target) = (file(&plain(4999)), file(b""));
        let source = Plain::File { file: &source, size: 5000 };
        let error = pack(source, &target, &packing, 3, &Interrupt::never(), &AtomicU64::new(0)).unwrap_err();
        assert_eq!(error.kind, Kind::Corruption);
    }

    #[test]
    fn a_failure_ends_the_call_that_waits_for_another_thread() {
        let ends = Ends { known: Mutex::new(vec![0]), grown: Condvar::new() };
        let caller = std::thread::current().id();
        let outcome = Interrupt::never().share_long(2, |_: &mut (), interrupt| {
            // The thread of chunk 0 fails, so that chunk 1 never gets a place.
            if std::thread::current().id() == caller {
                return ends.reserve(1, &[10], interrupt).map(|_| true);
            }
            corrupt!("chunk 0")
        });
        assert_eq!(outcome.unwrap_err().text, "chunk 0");
    }

    #[test]
    fn an_interrupt_ends_threads_that_wait_for_their_turn() {
        let ends = Ends { known: Mutex::new(vec![0]), grown: Condvar::new() };
        let first = AtomicUsize::new(0);
        let outcome = Interrupt::never().share_long(3, |_: &mut (), interrupt| {
            // Chunk 0 fails, so that the others never get a place.
            match first.fetch_add(1, Ordering::Relaxed) {
                0 => corrupt!("chunk 0"),
                number => ends.reserve(number, &[10], interrupt).map(|_| true),
            }
        });
        assert_eq!(outcome.unwrap_err().text, "chunk 0");
    }
}
