//! Decoding: from the bytes of a chunk to items.
//!
//! A block is the unit: its streams are decompressed, then its filter is undone, straight
//! into the destination; further filters, if there are any, are undone on the whole block
//! (`partial` does all this for only a part of a block). Every number
//! that is used here was checked by `header`, and all blocks of a call together may use no more bytes
//! than the chunk has, so that overlapping blocks cannot cost more than others.

use crate::chunk::codecs::streams::{Codecs, Dictionary};
use crate::chunk::filters::{self, Plane};
use crate::chunk::header::{Filter, HEADER_BYTES, Header, MAX_SPLIT_TYPESIZE};
use crate::chunk::scratch::Scratch;
use crate::chunk::special;
use crate::chunk::vlblocks;
use crate::error::{Error, Outcome, corrupt, unsupported};
use crate::interrupt::Interrupt;
use crate::memory::{grow, grow_aligned};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// How much is decoded between two checks for an interrupt, at least.
const CHECK_BYTES: usize = 64 << 10;

/// The bytes of a chunk that were read: all of them, or those from `offset` on.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    pub bytes: &'a [u8],
    pub offset: usize,
}

/// A chunk whose header is checked.
pub struct Decoder<'a> {
    pub header: &'a Header,
    /// The bytes of the block starts, empty for chunks without blocks.
    pub starts: &'a [u8],
    /// Only for chunks with a dictionary or with delta.
    pub extras: Option<Box<Extras<'a>>>,
    /// Where the bytes of the blocks start.
    floor: usize,
    /// Stored bytes that the streams of this call may still use up.
    budget: AtomicUsize,
    trusted: bool,
}

pub struct Extras<'a> {
    /// The dictionary of the streams, or why it could not be parsed.
    dictionary: Option<Outcome<Dictionary<'a>>>,
    /// The first block, decoded, for chunks whose other blocks are differences from it.
    pub first: OnceLock<Vec<u8>>,
}

/// Where the streams of one block lie and what they hold.
pub struct Block<'a> {
    pub index: usize,
    pub size: usize,
    /// Stored bytes from the block's start on.
    pub bytes: &'a [u8],
    pub streams: usize,
}

impl Block<'_> {
    /// The same error, with the block and the stream named.
    pub fn error(&self, stream: usize, mut error: Error) -> Error {
        error.text = format!("Blosc chunk: block {}, stream {stream}: {}", self.index, error.text);
        error
    }
}

/// One stream as it is stored.
#[derive(Clone, Copy)]
pub enum Stream<'a> {
    /// Uncompressed.
    Raw(&'a [u8]),
    Compressed(&'a [u8]),
    /// One repeated byte.
    Run(u8),
}

/// The planes of a shuffled block.
#[allow(clippy::large_enum_variant, reason = "lives on the stack for the time of one block")]
pub enum Planes<'a> {
    /// One behind the other, this many bytes apart.
    Together(&'a [u8], usize),
    /// Each in its own place: in the chunk itself, decompressed, or constant.
    Apart([Plane<'a>; MAX_SPLIT_TYPESIZE]),
}

impl Planes<'_> {
    /// Fill `out` with whole items from item `first` on.
    pub fn unshuffle(&self, first: usize, typesize: usize, out: &mut [u8]) {
        match self {
            Self::Together(bytes, stride) => filters::unshuffle(&bytes[first..], *stride, typesize, out),
            Self::Apart(planes) => filters::unshuffle_planes(&planes[..typesize], first, out),
        }
    }
}

impl<'a> Decoder<'a> {
    /// `head` is the bytes behind the first 16, up to `Header::data_start`.
    pub fn new(header: &'a Header, head: &'a [u8]) -> Self {
        let (head, behind) = head.split_at(header.blocks_start() - HEADER_BYTES);
        let starts = &head[header.header_bytes() - HEADER_BYTES..];
        let mut floor = header.blocks_start();
        let extras = (header.dictionary || header.rest.has_delta()).then(|| {
            let dictionary = header.dictionary.then(|| Dictionary::parse(behind, header.format));
            if let Some(Ok(dictionary)) = &dictionary {
                floor += dictionary.stored_bytes();
            }
            Box::new(Extras { dictionary, first: OnceLock::new() })
        });
        let budget = AtomicUsize::new(header.cbytes - floor);
        Self { header, starts, extras, floor, budget, trusted: false }
    }

    /// Say whether the bytes of the blocks agree with a checksum already, or shall not be verified;
    /// then a checksum inside a stream is not looked for when its first bytes suffice.
    pub fn trust(mut self, trusted: bool) -> Self {
        self.trusted = trusted;
        self
    }

    #[inline(always)]
    fn dictionary(&self) -> Outcome<Option<&Dictionary<'a>>> {
        match self.extras.as_ref().and_then(|extras| extras.dictionary.as_ref()) {
            None => Ok(None),
            Some(Ok(dictionary)) => Ok(Some(dictionary)),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Decode all of a chunk whose bytes are `chunk` into `out`, on up to `threads` threads.
    pub fn decode_whole(
        &self,
        chunk: &[u8],
        out: &mut [u8],
        scratch: &mut Scratch,
        threads: usize,
        interrupt: &Interrupt,
    ) -> Outcome<()> {
        debug_assert_eq!(out.len(), self.header.nbytes);
        if self.header.memcpyed() {
            out.copy_from_slice(&chunk[self.header.header_bytes()..]);
            return Ok(());
        }
        if let Some(special) = self.header.special {
            special::fill(special, self.header, chunk, out);
            return Ok(());
        }
        if self.header.nbytes == 0 {
            return Ok(());
        }
        if self.header.variable {
            return vlblocks::decode_whole(self, chunk, out, scratch, interrupt);
        }
        let window = Window { bytes: chunk, offset: 0 };
        if !self.header.rest.has_delta() {
            let blocks = out.chunks_mut(self.header.blocksize).enumerate();
            return self.decode_blocks(window, blocks, None, scratch, threads, interrupt);
        }
        let (first, others) = out.split_at_mut(self.header.blocksize);
        self.decode_block(window, 0, first, None, scratch)?;
        let blocks = others.chunks_mut(self.header.blocksize).enumerate().map(|(index, part)| (index + 1, part));
        self.decode_blocks(window, blocks, Some(first), scratch, threads, interrupt)
    }

    fn decode_blocks<'o>(
        &self,
        window: Window<'_>,
        blocks: impl ExactSizeIterator<Item = (usize, &'o mut [u8])> + Send,
        first: Option<&[u8]>,
        scratch: &mut Scratch,
        threads: usize,
        interrupt: &Interrupt,
    ) -> Outcome<()> {
        let threads = threads.min(blocks.len());
        if threads <= 1 {
            // A check costs as much as a very small block.
            let often = (CHECK_BYTES / self.header.blocksize).max(1);
            for (index, part) in blocks {
                if index % often == 0 {
                    interrupt.check()?;
                }
                self.decode_block(window, index, part, first, scratch)?;
            }
            return Ok(());
        }
        let queue = Mutex::new(blocks);
        interrupt.share(threads, scratch, |scratch| {
            let next = queue.lock().expect("no thread panics").next();
            match next {
                Some((index, part)) => self.decode_block(window, index, part, first, scratch).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// Decode block `index` into `out`, which has its size. `first` is the decoded first
    /// block where others depend on it.
    pub fn decode_block(
        &self,
        window: Window<'_>,
        index: usize,
        out: &mut [u8],
        first: Option<&[u8]>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let block = self.block(window, index)?;
        self.decode_filtered(&block, out, first, scratch, Self::undo_first)
    }

    /// Let `begin` make the block with the first filter undone, then undo the others.
    pub fn decode_filtered(
        &self,
        block: &Block<'_>,
        out: &mut [u8],
        first: Option<&[u8]>,
        scratch: &mut Scratch,
        begin: impl Fn(&Self, &Block<'_>, &mut [u8], &mut Scratch) -> Outcome<()>,
    ) -> Outcome<()> {
        let rest = &self.header.rest;
        if rest.is_empty() {
            return begin(self, block, out, scratch);
        }
        // Taken out of the scratch for as long as `begin` uses the scratch.
        let mut between = std::mem::take(&mut scratch.between);
        let other = grow(&mut between, block.size)?;
        begin(self, block, if rest.starts_in_second() { &mut *other } else { &mut *out }, scratch)?;
        rest.undo(out, other, grow(&mut scratch.planes, block.size)?, first);
        scratch.between = between;
        Ok(())
    }

    /// Decompress `block` into `out` and undo its first filter.
    fn undo_first(&self, block: &Block<'_>, out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        let typesize = self.header.typesize;
        let count = self.header.filtered_items(block.size);
        let Scratch { codecs, filtered, planes, .. } = scratch;
        if count == 0 {
            return self.decode_streams(block, codecs, out, block.size);
        }
        let (items, tail) = out.split_at_mut(count * typesize);
        let filtered = grow_aligned(filtered, block.size)?;
        if self.header.filter == Filter::Shuffle {
            self.decode_planes(block, codecs, filtered, count)?.unshuffle(0, typesize, items);
        } else {
            self.decode_streams(block, codecs, filtered, block.size)?;
            filters::unbitshuffle(filtered, count / 8, typesize, grow(planes, block.size)?, items);
        }
        // A split block has no tail behind its planes, so that only decompressed bytes are copied.
        tail.copy_from_slice(&filtered[count * typesize..]);
        Ok(())
    }

    /// Where the bytes of block `index` start.
    #[inline]
    pub fn block_start(&self, index: usize) -> Outcome<usize> {
        // A damaged dictionary is reported before a damaged block.
        self.dictionary()?;
        match self.header.block_start(self.starts, index)? {
            start if start < self.floor => corrupt!(
                "Blosc chunk: block {index} starts at {start}, blocks lie from {} to {}",
                self.floor,
                self.header.cbytes
            ),
            start => Ok(start),
        }
    }

    pub fn block<'b>(&self, window: Window<'b>, index: usize) -> Outcome<Block<'b>> {
        let range = self.header.block_range(index);
        let start = self.block_start(index)?;
        let bytes = start.checked_sub(window.offset).and_then(|at| window.bytes.get(at..));
        let Some(bytes) = bytes else {
            return corrupt!("Blosc chunk: block {index} starts at {start}, outside the bytes that were read");
        };
        let streams = self.header.stream_count(range.len());
        let block = Block { index, size: range.len(), bytes, streams };
        if self.header.extended() {
            self.check_tokens(&block)?;
        }
        Ok(block)
    }

    /// The stored bytes of block `index` of a Blosc 1 chunk, whose bytes are `chunk`: its streams, as long
    /// as they say they are. `None` where they lead out of the chunk.
    pub fn stored_block<'b>(&self, chunk: &'b [u8], index: usize) -> Outcome<Option<&'b [u8]>> {
        let block = self.block(Window { bytes: chunk, offset: 0 }, index)?;
        let mut end = 0;
        for _ in 0..block.streams {
            let size = block.bytes.get(end..).and_then(|rest| rest.first_chunk().copied());
            let Some(size) = size.map(u32::from_le_bytes) else { return Ok(None) };
            end += 4 + size as usize;
        }
        Ok(block.bytes.get(..end))
    }

    /// Refuse a block with a stream of an unknown kind before any of its streams is decoded, so that
    /// the kind of the error does not depend on the other streams. A stream that cannot be followed
    /// ends the search; decoding reports it.
    fn check_tokens(&self, block: &Block<'_>) -> Outcome<()> {
        let each = block.size / block.streams;
        let mut rest = block.bytes;
        for number in 0..block.streams {
            let Some((size, behind)) = rest.split_first_chunk::<4>() else { break };
            let size = i32::from_le_bytes(*size);
            let skipped = match (usize::try_from(size), behind.first()) {
                (Ok(0), _) => 0,
                (Ok(size), _) if size > self.header.format.longest(each) => break,
                (Ok(size), _) if each > self.header.format.most_from(size) => break,
                (Ok(size), _) => size,
                (Err(_), Some(token)) if token & !1 != 0 => {
                    let index = block.index;
                    return unsupported!(
                        "Blosc chunk: block {index}, stream {number} has token {token:#04x}, not a run's"
                    );
                }
                (Err(_), Some(1)) if size >= -255 => 1,
                (Err(_), _) => break,
            };
            let Some(next) = behind.get(skipped..) else { break };
            rest = next;
        }
        Ok(())
    }

    /// Decompress the streams of a block into `out` (as large as the block), each at least
    /// as far as `wanted` bytes, counted in the whole block for one stream and in each
    /// stream for several.
    pub fn decode_streams(&self, block: &Block<'_>, codecs: &mut Codecs, out: &mut [u8], wanted: usize) -> Outcome<()> {
        let each = block.size / block.streams;
        let mut rest = block.bytes;
        for (number, out) in out.chunks_exact_mut(each).take(block.streams).enumerate() {
            let (stream, behind) = self.stream(block, number, rest, each)?;
            rest = behind;
            let wanted = wanted.min(each);
            match stream {
                Stream::Raw(bytes) => out[..wanted].copy_from_slice(&bytes[..wanted]),
                Stream::Compressed(bytes) => self.decompress(block, number, codecs, bytes, out, wanted)?,
                Stream::Run(byte) => out[..wanted].fill(byte),
            }
        }
        Ok(())
    }

    pub fn decompress(
        &self,
        block: &Block<'_>,
        number: usize,
        codecs: &mut Codecs,
        stream: &[u8],
        out: &mut [u8],
        wanted: usize,
    ) -> Outcome<()> {
        let format = self.header.format;
        let made = match self.dictionary()? {
            None => codecs.decode_prefix(format, stream, out, wanted, self.trusted),
            Some(dictionary) => codecs.decode_with(dictionary, format, stream, out),
        };
        made.map_err(|error| block.error(number, error))
    }

    /// Decompress a shuffled block as far as its planes' first `wanted` items. Planes that
    /// need no work are left where they are.
    pub fn decode_planes<'b>(
        &self,
        block: &Block<'b>,
        codecs: &mut Codecs,
        filtered: &'b mut [u8],
        wanted: usize,
    ) -> Outcome<Planes<'b>> {
        let each = block.size / block.streams;
        if block.streams == 1 || block.streams > MAX_SPLIT_TYPESIZE {
            self.decode_streams(block, codecs, filtered, each)?;
            return Ok(Planes::Together(filtered, block.size / self.header.typesize));
        }
        let mut rest = block.bytes;
        let mut planes = [Plane::Constant(0); MAX_SPLIT_TYPESIZE];
        for (number, (plane, out)) in planes.iter_mut().zip(filtered.chunks_exact_mut(each)).enumerate() {
            let (stream, behind) = self.stream(block, number, rest, each)?;
            rest = behind;
            *plane = match self.recognised(stream, each) {
                Stream::Raw(bytes) => Plane::Bytes(bytes),
                Stream::Run(byte) => Plane::Constant(byte),
                Stream::Compressed(bytes) => {
                    self.decompress(block, number, codecs, bytes, out, wanted)?;
                    Plane::Bytes(out)
                }
            };
        }
        Ok(Planes::Apart(planes))
    }

    /// The next stream, of `each` decoded bytes, and what follows it.
    pub fn stream<'b>(
        &self,
        block: &Block<'_>,
        number: usize,
        rest: &'b [u8],
        each: usize,
    ) -> Outcome<(Stream<'b>, &'b [u8])> {
        let index = block.index;
        let Some((size, rest)) = rest.split_first_chunk::<4>() else {
            return corrupt!("Blosc chunk: block {index}, stream {number}: its size lies behind the chunk's end");
        };
        let size = i32::from_le_bytes(*size);
        if size <= 0 && self.header.extended() {
            return self.run(block, number, size, rest);
        }
        let most = self.header.format.longest(each);
        if size <= 0 || size as usize > most {
            return corrupt!(
                "Blosc chunk: block {index}, stream {number} claims {size} bytes for {each} bytes of data; 1 to {most} are possible"
            );
        }
        let Some((stream, behind)) = rest.split_at_checked(size as usize) else {
            return corrupt!(
                "Blosc chunk: block {index}, stream {number} claims {size} bytes, {} are left",
                rest.len()
            );
        };
        self.spend(block, 4 + stream.len())?;
        let stream = if stream.len() == each { Stream::Raw(stream) } else { Stream::Compressed(stream) };
        Ok((stream, behind))
    }

    /// The same stream, as a run if its form shows that it is one.
    pub fn recognised<'b>(&self, stream: Stream<'b>, each: usize) -> Stream<'b> {
        match stream {
            Stream::Compressed(bytes) => Codecs::run(self.header.format, bytes, each).map_or(stream, Stream::Run),
            other => other,
        }
    }

    /// A stream that is one repeated byte: zero, or the byte that `size` is the negative of.
    #[cold]
    fn run<'b>(&self, block: &Block<'_>, number: usize, size: i32, rest: &'b [u8]) -> Outcome<(Stream<'b>, &'b [u8])> {
        let index = block.index;
        if size == 0 {
            self.spend(block, 4)?;
            return Ok((Stream::Run(0), rest));
        }
        let Some((token, behind)) = rest.split_first() else {
            return corrupt!("Blosc chunk: block {index}, stream {number}: its token lies behind the chunk's end");
        };
        match u8::try_from(-i64::from(size)) {
            Ok(byte) if *token == 1 => {
                self.spend(block, 5)?;
                Ok((Stream::Run(byte), behind))
            }
            _ => corrupt!("Blosc chunk: block {index}, stream {number}: size {size}, token {token} are no run"),
        }
    }

    /// Account for stored bytes: bytes of overlapping blocks are counted twice and exceed the budget.
    fn spend(&self, block: &Block<'_>, cost: usize) -> Outcome<()> {
        if self.budget.fetch_sub(cost, Ordering::Relaxed) < cost {
            // Other threads may still subtract before they stop.
            self.budget.store(0, Ordering::Relaxed);
            return corrupt!("Blosc chunk: block {} overlaps another block", block.index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::encode::Recipe;
    use crate::chunk::samples::{packed, recipes, sample};
    use crate::error::Kind;

    #[test]
    fn whole_chunks_come_back_on_any_number_of_threads() {
        for (typesize, length) in [(1, 5000), (4, 10_001), (8, 8 * 1024), (12, 12 * 800 + 5), (24, 2400)] {
            let source = sample(length);
            for recipe in recipes(typesize) {
                let chunk = packed(&source, recipe);
                let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
                for threads in [1, 3] {
                    let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
                    let mut out = vec![0xee; length];
                    let mut scratch = Scratch::default();
                    decoder.decode_whole(&chunk, &mut out, &mut scratch, threads, &Interrupt::never()).unwrap();
                    assert_eq!(out, source, "{recipe:?}");
                }
            }
        }
    }

    #[test]
    fn overlapping_blocks_are_refused() {
        let source = sample(100_000);
        let recipe =
            Recipe { codec: Codec::Lz4, level: 5, filter: Filter::None, typesize: 1, blocksize: 1000, gain: 0 };
        let mut chunk = packed(&source, recipe);
        let first: [u8; 4] = chunk[16..20].try_into().unwrap();
        for block in 1..100 {
            chunk[16 + 4 * block..20 + 4 * block].copy_from_slice(&first);
        }
        // The first block takes fewer bytes than the average, so claim a long one too.
        let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        decoder.budget.store(500, Ordering::Relaxed);
        let mut out = vec![0; source.len()];
        let error =
            decoder.decode_whole(&chunk, &mut out, &mut Scratch::default(), 1, &Interrupt::never()).unwrap_err();
        assert!(error.kind == Kind::Corruption && error.text.contains("overlaps"), "{error}");
    }
}
