//! From the bytes of a chunk to items: whole, or only what a region wants.
//!
//! A block is the unit: its streams are decompressed (only as far as they are needed),
//! then its filter is undone (only for the items that are needed), straight into the
//! destination. Nothing here trusts a number that `header.rs` has not checked, and all
//! blocks of a call together may use no more bytes than the chunk has, so overlapping
//! blocks cannot cost more than honest ones.

use crate::fault::{Fault, Kind, Outcome, corrupt};
use crate::filters::{self, Plane};
use crate::header::{Filter, HEADER_BYTES, Header, MAX_SPLIT_TYPESIZE};
use crate::scatter::{Region, Run};
use crate::streams::Codecs;
use crate::watch::Watch;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs shorter than this are not worth a vector step each.
const SHORT_RUN: usize = 32;
/// One in so many items wanted: then single bytes are gathered, nothing is unshuffled.
const SPARSE: usize = 8;

/// What one thread reuses from block to block and call to call.
#[derive(Default)]
pub struct Scratch {
    pub codecs: Codecs,
    /// A block as its streams hold it, filters still applied.
    pub filtered: Vec<u8>,
    /// Room for the second step of bitshuffle.
    pub planes: Vec<u8>,
    /// A block, or a part of it, with filters undone.
    plain: Vec<u8>,
}

impl Scratch {
    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        [&self.filtered, &self.planes, &self.plain].iter().map(|buffer| buffer.capacity()).sum()
    }
}

/// Grow `buffer` to `size` bytes; contents are unspecified. Never shrinks, so that
/// calls in a row do not clear the same memory again and again.
pub fn room(buffer: &mut Vec<u8>, size: usize) -> Outcome<&mut [u8]> {
    if buffer.len() < size {
        buffer.clear();
        buffer.try_reserve_exact(size).map_err(|_| out_of_memory(size))?;
        buffer.resize(size, 0);
    }
    Ok(&mut buffer[..size])
}

pub fn out_of_memory(size: usize) -> Fault {
    Fault::new(Kind::Limit, format!("{size} bytes of memory are not to be had"))
}

/// The bytes of a chunk that are at hand: all of them, or those from `offset` on.
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
    /// Stored bytes that the streams of this call may still use up.
    budget: AtomicUsize,
}

/// Where the streams of one block lie and what they hold.
struct Block<'a> {
    index: usize,
    size: usize,
    /// Stored bytes from the block's start on.
    bytes: &'a [u8],
    streams: usize,
}

/// The planes of a shuffled block.
#[allow(clippy::large_enum_variant, reason = "lives on the stack for the time of one block")]
enum Planes<'a> {
    /// One behind the other, this many bytes apart.
    Together(&'a [u8], usize),
    /// Each where it was found: in the chunk itself, decompressed, or known to be constant.
    Apart([Plane<'a>; MAX_SPLIT_TYPESIZE]),
}

impl Planes<'_> {
    /// Fill `out` with whole items from item `first` on.
    fn unshuffle(&self, first: usize, typesize: usize, out: &mut [u8]) {
        match self {
            Self::Together(bytes, stride) => filters::unshuffle(&bytes[first..], *stride, typesize, out),
            Self::Apart(planes) => filters::unshuffle_planes(&planes[..typesize], first, out),
        }
    }
}

impl<'a> Decoder<'a> {
    pub fn new(header: &'a Header, starts: &'a [u8]) -> Self {
        let budget = AtomicUsize::new(header.cbytes - header.data_start());
        Self { header, starts, budget }
    }

    /// Decode all of a chunk whose bytes are `chunk` into `out`, on up to `threads` threads.
    pub fn decode_whole(
        &self,
        chunk: &[u8],
        out: &mut [u8],
        scratch: &mut Scratch,
        threads: usize,
        watch: &Watch,
    ) -> Outcome<()> {
        debug_assert_eq!(out.len(), self.header.nbytes);
        if self.header.memcpyed() {
            out.copy_from_slice(&chunk[HEADER_BYTES..]);
            return Ok(());
        }
        if self.header.nbytes == 0 {
            return Ok(());
        }
        let window = Window { bytes: chunk, offset: 0 };
        let blocks = out.chunks_mut(self.header.blocksize).enumerate();
        let threads = threads.min(self.header.block_count());
        if threads <= 1 {
            for (index, part) in blocks {
                watch.look()?;
                self.decode_block(window, index, part, scratch)?;
            }
            return Ok(());
        }
        let queue = Mutex::new(blocks);
        watch.share(threads, scratch, |scratch| {
            let next = queue.lock().expect("no thread panics").next();
            match next {
                Some((index, part)) => self.decode_block(window, index, part, scratch).map(|()| true),
                None => Ok(false),
            }
        })
    }

    /// Decode block `index` into `out`, which has its size.
    fn decode_block(&self, window: Window<'_>, index: usize, out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        let block = self.block(window, index)?;
        let Header { typesize, filter, .. } = *self.header;
        let Scratch { codecs, filtered, planes, .. } = scratch;
        if !self.is_filtered(block.size) {
            return self.decode_streams(&block, codecs, out, block.size);
        }
        let count = block.size / typesize;
        let (items, tail) = out.split_at_mut(count * typesize);
        let filtered = room(filtered, block.size)?;
        if filter == Filter::Shuffle {
            self.decode_planes(&block, codecs, filtered, count)?.unshuffle(0, typesize, items);
        } else {
            self.decode_streams(&block, codecs, filtered, block.size)?;
            filters::unbitshuffle(filtered, count / 8, typesize, room(planes, block.size)?, items);
        }
        // A split block has no tail, so whatever was not decompressed is not looked at.
        tail.copy_from_slice(&filtered[count * typesize..]);
        Ok(())
    }

    /// Whether a block of `size` bytes is stored in another order than its items'.
    fn is_filtered(&self, size: usize) -> bool {
        let typesize = self.header.typesize;
        match self.header.filter {
            Filter::None => false,
            Filter::Shuffle => typesize > 1 && size >= typesize,
            Filter::Bitshuffle => filters::bitshuffles(size, typesize),
        }
    }

    fn block<'b>(&self, window: Window<'b>, index: usize) -> Outcome<Block<'b>> {
        let range = self.header.block_range(index);
        let start = self.header.block_start(self.starts, index)?;
        let bytes = start.checked_sub(window.offset).and_then(|at| window.bytes.get(at..));
        let Some(bytes) = bytes else {
            return corrupt!("Blosc chunk: block {index} starts at {start}, outside the bytes that were read");
        };
        let streams = self.header.stream_count(range.len());
        if !range.len().is_multiple_of(streams) {
            return corrupt!(
                "Blosc chunk: block {index} of {} bytes cannot be split into {streams} streams",
                range.len()
            );
        }
        Ok(Block { index, size: range.len(), bytes, streams })
    }

    /// Decompress the streams of a block into `out` (as large as the block), each at least
    /// as far as `wanted` bytes, counted in the whole block for one stream and in each
    /// stream for several.
    fn decode_streams(&self, block: &Block<'_>, codecs: &mut Codecs, out: &mut [u8], wanted: usize) -> Outcome<()> {
        let each = block.size / block.streams;
        let mut rest = block.bytes;
        for (number, out) in out.chunks_exact_mut(each).take(block.streams).enumerate() {
            let (stream, behind) = self.stream(block, number, rest, each)?;
            rest = behind;
            let wanted = wanted.min(each);
            if stream.len() == each {
                out[..wanted].copy_from_slice(&stream[..wanted]);
            } else {
                self.decompress(block, number, codecs, stream, out, wanted)?;
            }
        }
        Ok(())
    }

    fn decompress(
        &self,
        block: &Block<'_>,
        number: usize,
        codecs: &mut Codecs,
        stream: &[u8],
        out: &mut [u8],
        wanted: usize,
    ) -> Outcome<()> {
        codecs.decode_prefix(self.header.format, stream, out, wanted).map_err(|mut fault| {
            fault.text = format!("Blosc chunk: block {}, stream {number}: {}", block.index, fault.text);
            fault
        })
    }

    /// Decompress a shuffled block as far as its planes' first `wanted` items. Planes that
    /// need no work are left where they are.
    fn decode_planes<'b>(
        &self,
        block: &Block<'b>,
        codecs: &mut Codecs,
        filtered: &'b mut [u8],
        wanted: usize,
    ) -> Outcome<Planes<'b>> {
        if block.streams == 1 {
            self.decode_streams(block, codecs, filtered, block.size)?;
            return Ok(Planes::Together(filtered, block.size / self.header.typesize));
        }
        let each = block.size / block.streams;
        let mut rest = block.bytes;
        let mut planes = [Plane::Constant(0); MAX_SPLIT_TYPESIZE];
        for (number, (plane, out)) in planes.iter_mut().zip(filtered.chunks_exact_mut(each)).enumerate() {
            let (stream, behind) = self.stream(block, number, rest, each)?;
            rest = behind;
            *plane = if stream.len() == each {
                Plane::Bytes(stream)
            } else if let Some(byte) = Codecs::run(self.header.format, stream, each) {
                Plane::Constant(byte)
            } else {
                self.decompress(block, number, codecs, stream, out, wanted)?;
                Plane::Bytes(out)
            };
        }
        Ok(Planes::Apart(planes))
    }

    /// The stored bytes of the next stream, and what follows it.
    fn stream<'b>(
        &self,
        block: &Block<'_>,
        number: usize,
        rest: &'b [u8],
        each: usize,
    ) -> Outcome<(&'b [u8], &'b [u8])> {
        let index = block.index;
        let Some((size, rest)) = rest.split_first_chunk::<4>() else {
            return corrupt!("Blosc chunk: block {index}, stream {number}: its size lies behind the chunk's end");
        };
        let size = i32::from_le_bytes(*size);
        let most = self.header.format.longest(each);
        if size <= 0 || size as usize > most {
            return corrupt!(
                "Blosc chunk: block {index}, stream {number} claims {size} bytes, 1 to {most} are possible"
            );
        }
        let Some((stream, behind)) = rest.split_at_checked(size as usize) else {
            return corrupt!(
                "Blosc chunk: block {index}, stream {number} claims {size} bytes, {} are left",
                rest.len()
            );
        };
        let cost = 4 + stream.len();
        if self.budget.fetch_sub(cost, Ordering::Relaxed) < cost {
            // Leave room for other threads' subtractions on the way out.
            self.budget.store(0, Ordering::Relaxed);
            return corrupt!("Blosc chunk: block {index} overlaps another block");
        }
        Ok((stream, behind))
    }

    /// The blocks that hold the items of `region`, as a range of block numbers.
    pub fn blocks_of(&self, region: &Region) -> Range<usize> {
        let (first, end) = region.span();
        let size = region.itemsize();
        first * size / self.header.blocksize..(end * size - 1) / self.header.blocksize + 1
    }

    /// Decode what `region` wants of blocks `blocks`, whose bytes lie in `window`.
    pub fn decode_region(
        &self,
        window: Window<'_>,
        blocks: Range<usize>,
        region: &Region,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        if self.header.memcpyed() {
            let bytes = Window { offset: window.offset.wrapping_sub(HEADER_BYTES), ..window };
            return copy_plain(region, 0..self.header.nbytes, bytes);
        }
        for index in blocks {
            let range = self.header.block_range(index);
            let size = region.itemsize();
            // An item that begins before the block may reach into it.
            let ranks = region.rank(range.start / size)..region.rank(range.end.div_ceil(size));
            if !ranks.is_empty() {
                self.decode_block_region(window, index, ranks, region, scratch)?;
            }
        }
        Ok(())
    }

    /// Decode the wanted items number `ranks`, all of which reach into block `index`.
    fn decode_block_region(
        &self,
        window: Window<'_>,
        index: usize,
        ranks: Range<usize>,
        region: &Region,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let range = self.header.block_range(index);
        let size = region.itemsize();
        let low = (region.item(ranks.start) * size).max(range.start) - range.start;
        let high = ((region.item(ranks.end - 1) + 1) * size).min(range.end) - range.start;
        let run = region.run(ranks.start);
        if low == 0
            && high == range.len()
            && run.is_dense(size)
            && run.items >= ranks.len()
            && run.start * size == range.start
        {
            return self.decode_block(window, index, region.piece(run.offset, range.len()), scratch);
        }
        let block = self.block(window, index)?;
        if !self.is_filtered(block.size) {
            return self.copy_unfiltered(&block, range, high, region, scratch);
        }
        let typesize = self.header.typesize;
        let whole_items = block.size / typesize * typesize;
        // The items' own bytes begin and end inside planes only when the two sizes fit.
        let aligned = range.start.is_multiple_of(size) && size.is_multiple_of(typesize) && high <= whole_items;
        let shuffled = self.header.filter == Filter::Shuffle;
        if !(aligned && shuffled) {
            return self.copy_span(&block, range, low..high, region, scratch);
        }
        let (items, dense) = region.run_shape();
        let wanted = ranks.len() * size;
        if (dense && items * size / typesize >= SHORT_RUN) || wanted * SPARSE < high - low {
            return self.unshuffle_runs(&block, range, high, ranks, region, scratch);
        }
        self.copy_span(&block, range, low..high, region, scratch)
    }

    /// A block without filters: its streams hold the items in order.
    fn copy_unfiltered(
        &self,
        block: &Block<'_>,
        range: Range<usize>,
        high: usize,
        region: &Region,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let each = block.size / block.streams;
        let plain = room(&mut scratch.plain, block.size)?;
        let wanted = if block.streams == 1 { high } else { each };
        self.decode_streams(block, &mut scratch.codecs, plain, wanted)?;
        copy_plain(region, range.clone(), Window { bytes: plain, offset: range.start })
    }

    /// Undo the filter for bytes `span` of the block, then copy what is wanted of them.
    fn copy_span(
        &self,
        block: &Block<'_>,
        range: Range<usize>,
        span: Range<usize>,
        region: &Region,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let typesize = self.header.typesize;
        let count = block.size / typesize;
        let bits = self.header.filter == Filter::Bitshuffle;
        let step = if bits { 8 * typesize } else { typesize };
        let first = span.start / step * step;
        let end = span.end.next_multiple_of(step).min(count * typesize).max(first);
        let Scratch { codecs, filtered, planes, plain, .. } = scratch;
        let filtered = room(filtered, block.size)?;
        let plain = room(plain, block.size)?;
        let items = &mut plain[first..end];
        if bits {
            self.decode_streams(block, codecs, filtered, block.size)?;
            let rows = &filtered[first / step..];
            filters::unbitshuffle(rows, count / 8, typesize, room(planes, items.len())?, items);
        } else {
            self.decode_planes(block, codecs, filtered, end / typesize)?.unshuffle(first / typesize, typesize, items);
        }
        plain[count * typesize..].copy_from_slice(&filtered[count * typesize..block.size]);
        copy_plain(region, range.clone(), Window { bytes: plain, offset: range.start })
    }

    /// Unshuffle each run straight into the destination.
    fn unshuffle_runs(
        &self,
        block: &Block<'_>,
        range: Range<usize>,
        high: usize,
        ranks: Range<usize>,
        region: &Region,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let typesize = self.header.typesize;
        let size = region.itemsize();
        let Scratch { codecs, filtered, .. } = scratch;
        let filtered = room(filtered, block.size)?;
        let planes = self.decode_planes(block, codecs, filtered, high / typesize)?;
        for_each_run(region, ranks, |run| {
            let pieces = Pieces::of(&run, size);
            for piece in pieces {
                // Items begin inside this block; the last may reach into the next one.
                let from = piece.start - range.start;
                let to = (from + piece.bytes).min(block.size);
                let out = region.piece(piece.offset, to - from);
                planes.unshuffle(from / typesize, typesize, out);
            }
        });
        Ok(())
    }
}

/// Visit the wanted items number `ranks`, run by run.
fn for_each_run(region: &Region, ranks: Range<usize>, mut visit: impl FnMut(Run)) {
    let mut rank = ranks.start;
    while rank < ranks.end {
        let mut run = region.run(rank);
        run.items = run.items.min(ranks.end - rank);
        rank += run.items;
        visit(run);
    }
}

/// Contiguous bytes of the chunk and where they go.
struct Piece {
    start: usize,
    bytes: usize,
    offset: isize,
}

/// The pieces of a run: one when it is contiguous on both sides, else one per item.
struct Pieces {
    next: Piece,
    left: usize,
    jump: usize,
    stride: isize,
}

impl Pieces {
    fn of(run: &Run, size: usize) -> Self {
        let dense = run.is_dense(size);
        let (bytes, left) = if dense { (run.items * size, 1) } else { (size, run.items) };
        let next = Piece { start: run.start * size, bytes, offset: run.offset };
        Self { next, left, jump: run.step * size, stride: run.stride }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece> {
        self.left = self.left.checked_sub(1)?;
        let Piece { start, bytes, offset } = self.next;
        self.next.start += self.jump;
        self.next.offset += self.stride;
        Some(Piece { start, bytes, offset })
    }
}

/// Copy what `region` wants of chunk bytes `range`, which lie in `window` unfiltered.
pub fn copy_plain(region: &Region, range: Range<usize>, window: Window<'_>) -> Outcome<()> {
    let size = region.itemsize();
    let first = region.rank(range.start / size);
    let end = region.rank(range.end.div_ceil(size));
    for_each_run(region, first..end, |run| {
        for piece in Pieces::of(&run, size) {
            let from = piece.start.max(range.start);
            let to = (piece.start + piece.bytes).min(range.end);
            let out = region.piece(piece.offset + (from - piece.start) as isize, to - from);
            let at = from.wrapping_sub(window.offset);
            out.copy_from_slice(&window.bytes[at..at + to - from]);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Packer, Recipe, encode};
    use crate::scatter::{Axis, Destination};
    use crate::streams::Codec;

    fn sample(length: usize) -> Vec<u8> {
        (0..length).map(|index| (((index / 11) * (index % 7)) >> 3) as u8).collect()
    }

    fn packed(source: &[u8], recipe: Recipe) -> Vec<u8> {
        let mut packer = Packer::default();
        encode(source, recipe, &mut packer, &mut Scratch::default(), 1, &Watch::unasked()).unwrap();
        packer.bytes().to_vec()
    }

    fn recipes(typesize: usize) -> Vec<Recipe> {
        let mut recipes = Vec::new();
        for codec in [Codec::BloscLz, Codec::Lz4, Codec::Zstd, Codec::Zlib, Codec::Snappy] {
            for filter in [Filter::None, Filter::Shuffle, Filter::Bitshuffle] {
                for blocksize in [0, 700, 4096] {
                    recipes.push(Recipe { codec, level: 5, filter, typesize, blocksize });
                }
            }
        }
        recipes
    }

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
                    decoder.decode_whole(&chunk, &mut out, &mut scratch, threads, &Watch::unasked()).unwrap();
                    assert_eq!(out, source, "{recipe:?}");
                }
            }
        }
    }

    /// Items of four bytes, 20 x 15 x 30 of them, a strided box of them into a larger array.
    #[test]
    fn boxes_go_to_their_place_and_nowhere_else() {
        let source = sample(20 * 15 * 30 * 4);
        let axis = |size, start, count, step, stride| Axis { size, start, count, step, stride };
        let boxes = [
            [axis(20, 0, 20, 1, 1800), axis(15, 0, 15, 1, 120), axis(30, 0, 30, 1, 4)],
            [axis(20, 3, 5, 3, 2000), axis(15, 14, 1, 1, 4), axis(30, 1, 10, 2, 8)],
            [axis(20, 7, 1, 1, 4), axis(15, 2, 9, 1, 400), axis(30, 5, 20, 1, 4)],
            [axis(20, 0, 20, 1, 4), axis(15, 0, 15, 1, 80), axis(30, 29, 1, 1, 4)],
        ];
        for typesize in [4, 2, 1, 3, 8] {
            for recipe in recipes(typesize) {
                let chunk = packed(&source, recipe);
                let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
                for axes in &boxes {
                    let mut out = vec![0xee; 40_000];
                    let mut expected = out.clone();
                    for index in 0..axes.iter().map(|axis| axis.count).product() {
                        let (mut rest, mut linear, mut offset, mut pitch) = (index, 0, 0, 1);
                        for axis in axes.iter().rev() {
                            let place = rest % axis.count;
                            linear += (axis.start + place * axis.step) * pitch;
                            offset += place * axis.stride as usize;
                            rest /= axis.count;
                            pitch *= axis.size;
                        }
                        expected[offset..offset + 4].copy_from_slice(&source[4 * linear..4 * linear + 4]);
                    }
                    // SAFETY: `out` lives on and is not used while the region is.
                    let destination = unsafe { Destination::new(out.as_mut_ptr(), out.len()) };
                    let region = Region::new(axes, 4, 0, destination).unwrap();
                    let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
                    let window = Window { bytes: &chunk, offset: 0 };
                    let blocks = decoder.blocks_of(&region);
                    decoder.decode_region(window, blocks, &region, &mut Scratch::default()).unwrap();
                    assert!(out == expected, "{recipe:?} {axes:?}");
                    let mut gathered = vec![0; source.len()];
                    region.gather(&mut gathered);
                    let mut again = vec![0xee; out.len()];
                    // SAFETY: as above.
                    let destination = unsafe { Destination::new(again.as_mut_ptr(), again.len()) };
                    let back = Region::new(axes, 4, 0, destination).unwrap();
                    copy_plain(&back, 0..gathered.len(), Window { bytes: &gathered, offset: 0 }).unwrap();
                    assert!(again == expected, "gathering is the reverse");
                }
            }
        }
    }

    #[test]
    fn overlapping_blocks_are_refused() {
        let source = sample(100_000);
        let recipe = Recipe { codec: Codec::Lz4, level: 5, filter: Filter::None, typesize: 1, blocksize: 1000 };
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
        let fault = decoder.decode_whole(&chunk, &mut out, &mut Scratch::default(), 1, &Watch::unasked()).unwrap_err();
        assert!(fault.kind == Kind::Corruption && fault.text.contains("overlaps"), "{fault}");
    }
}
