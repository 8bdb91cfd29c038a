//! Encoding: from items to the bytes of a Blosc 1 chunk (format version 2).
//!
//! The input is read, never changed; every byte written is defined.

use crate::chunk::codecs::streams::{Codec, Codecs};
use crate::chunk::filters;
use crate::chunk::header::{
    FLAG_BITSHUFFLE, FLAG_MEMCPYED, FLAG_SHUFFLE, FLAG_UNSPLIT, Filter, HEADER_BYTES, Header, MAX_BLOCK_BYTES,
    MAX_SPLIT_TYPESIZE, MIN_SPLIT_ITEMS,
};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome};
use crate::interrupt::Interrupt;
use crate::memory::{grow, grow_aligned, out_of_memory, reserved};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Blocks are the unit of partial reads: large enough to compress well, small enough that
/// one item does not cost a whole chunk.
const BLOCK_BYTES: usize = 128 << 10;
/// The version of the format that is written.
const VERSION: u8 = 2;
/// Smaller inputs are stored uncompressed.
pub const MIN_COMPRESSED: usize = 32;

/// How a chunk is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub codec: Codec,
    pub level: u8,
    pub filter: Filter,
    pub typesize: usize,
    /// 0 for the default.
    pub blocksize: usize,
    /// A stream that does not shrink by one byte in so many is stored uncompressed; 0 for any gain.
    pub gain: usize,
}

impl Recipe {
    /// Check the recipe and choose the block size for `nbytes` bytes of input, which together with a
    /// header of `head` bytes must fit the fields of a chunk.
    pub fn settled(mut self, nbytes: usize, head: usize) -> Outcome<Self> {
        let wrong = |text: String| Err(Error::new(Kind::Argument, text));
        if self.typesize == 0 {
            return wrong("typesize is 0, at least 1 is needed".into());
        }
        if self.level > 9 {
            return wrong(format!("level is {}, levels go from 0 to 9", self.level));
        }
        if self.blocksize > MAX_BLOCK_BYTES {
            return wrong(format!("blocksize is {}, at most {MAX_BLOCK_BYTES} is possible", self.blocksize));
        }
        let most = i32::MAX as usize - head;
        if nbytes > most {
            let text = format!("a Blosc chunk holds at most {most} bytes, {nbytes} were given");
            return Err(Error::new(Kind::Limit, text));
        }
        if self.typesize > 255 {
            self.typesize = 1;
        }
        let chosen = self.blocksize == 0;
        let unit = if chosen { 8 * self.typesize } else { self.typesize };
        let wanted = if chosen { BLOCK_BYTES } else { self.blocksize };
        self.blocksize = (wanted / unit * unit).max(self.typesize).min(nbytes.max(1));
        if chosen && self.splits() {
            self.blocksize = self.even_blocksize(nbytes);
        }
        Ok(self)
    }

    /// A block size, little below the one at hand, of which `nbytes` is a multiple, if there is one: a
    /// shorter block at the end of a chunk would not be split.
    fn even_blocksize(&self, nbytes: usize) -> usize {
        let fewest = nbytes.div_ceil(self.blocksize);
        let count = (fewest..=fewest + fewest / 8).find(|count| nbytes.is_multiple_of(count * self.typesize));
        count.map_or(self.blocksize, |count| nbytes / count)
    }

    /// The same recipe with a least gain, so that reading stays fast: below it, the copies of LZ4 are
    /// so short that decoding them takes longer than reading the bytes that they save.
    pub fn fast_to_read(mut self) -> Self {
        const GAIN: usize = 8;
        self.gain = if self.codec == Codec::Lz4 && self.level <= 5 { GAIN } else { 0 };
        self
    }

    /// The most bytes that a compressed stream of `size` bytes may have.
    fn ceiling(&self, size: usize) -> usize {
        // One byte less than the input: a stream that does not shrink is stored uncompressed.
        size - size.checked_div(self.gain).unwrap_or(0).max(1)
    }

    /// The most bytes that an encoded block of `size` bytes has: its streams as they are, and their sizes.
    pub fn room(&self, size: usize) -> usize {
        size + 4 * self.typesize
    }

    /// Whether there is one stream per byte of the item: fast codecs gain from it, and partial reads
    /// can stop early. Readers of every version agree on it within these bounds.
    fn splits(&self) -> bool {
        self.filter == Filter::Shuffle
            && (2..=MAX_SPLIT_TYPESIZE).contains(&self.typesize)
            && self.blocksize / self.typesize >= self.fewest_split_items()
            && self.blocksize.is_multiple_of(self.typesize)
    }

    /// The fewest items of a block that are worth one stream per byte.
    fn fewest_split_items(&self) -> usize {
        match self.codec {
            Codec::BloscLz | Codec::Lz4 | Codec::Lz4Hc => MIN_SPLIT_ITEMS,
            // Each zlib stream has its own tables.
            Codec::Zlib => 4096,
            Codec::Snappy | Codec::Zstd => usize::MAX,
        }
    }

    fn flags(&self) -> u8 {
        let filter = match self.filter {
            Filter::None => 0,
            Filter::Shuffle => FLAG_SHUFFLE,
            Filter::Bitshuffle => FLAG_BITSHUFFLE,
        };
        filter | self.codec.format().flag_bits() | if self.splits() { 0 } else { FLAG_UNSPLIT }
    }

    /// Whether the blocks of a chunk were encoded by this recipe, which is settled.
    pub fn encoded(&self, header: &Header) -> bool {
        let Header { version, flags, typesize, blocksize, .. } = *header;
        (version, flags, typesize, blocksize) == (VERSION, self.flags(), self.typesize, self.blocksize)
    }

    fn header(&self, flags: u8, nbytes: usize, cbytes: usize) -> [u8; HEADER_BYTES] {
        Header::pack_first(VERSION, flags, self.typesize, nbytes, self.blocksize, cbytes)
    }
}

/// A buffer that is filled from the front. Its memory stays initialised and is used again, so that it
/// is not cleared again.
#[derive(Default)]
pub struct Packer {
    memory: Vec<u8>,
    used: usize,
}

impl Packer {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.used]
    }

    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Overwrite bytes.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Let `write` fill up to `size` bytes behind those in use; it returns how many.
    pub fn fill(&mut self, size: usize, write: impl FnOnce(&mut [u8]) -> usize) -> Outcome<()> {
        let kept = write(self.space(size)?);
        self.used += kept;
        Ok(())
    }

    /// `size` bytes behind those in use.
    fn space(&mut self, size: usize) -> Outcome<&mut [u8]> {
        let needed = self.used + size;
        if self.memory.len() < needed {
            let target = needed.max(2 * self.memory.len());
            self.memory.try_reserve_exact(target - self.memory.len()).map_err(|_| out_of_memory(target))?;
            self.memory.resize(target, 0);
        }
        Ok(&mut self.memory[self.used..needed])
    }

    pub fn push(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.space(bytes.len())?.copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }
}

/// Encode `source` as a chunk into `out` (which is emptied first).
pub fn encode(
    source: &[u8],
    recipe: Recipe,
    out: &mut Packer,
    scratch: &mut Scratch,
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<()> {
    let recipe = recipe.settled(source.len(), HEADER_BYTES)?;
    out.clear();
    // At once: memory that grows block by block is copied again and again.
    out.space(source.len() + HEADER_BYTES)?;
    if recipe.level > 0 && source.len() >= MIN_COMPRESSED {
        let plan = Plan { head: HEADER_BYTES, blocksize: recipe.blocksize, behind_starts: &[] };
        let raw = AtomicU32::new(0);
        let block = |_, plain: &[u8], out: &mut Packer, scratch: &mut Scratch| {
            // With several threads no block comes before another, and the same data must give the same bytes.
            let mut bits = if threads <= 1 { raw.load(Ordering::Relaxed) } else { 0 };
            encode_block(plain, &recipe, out, scratch, &mut bits)?;
            raw.store(bits, Ordering::Relaxed);
            Ok(())
        };
        encode_blocks(source, &plan, out, scratch, threads, interrupt, block)?;
        if out.used < source.len() + HEADER_BYTES {
            out.patch(0, &recipe.header(recipe.flags(), source.len(), out.used));
            return Ok(());
        }
    }
    out.clear();
    out.fill(source.len() + HEADER_BYTES, |space| {
        store(&recipe, space).copy_from_slice(source);
        space.len()
    })
}

/// How the blocks of a chunk lie.
pub struct Plan<'a> {
    /// The size of the header.
    pub head: usize,
    pub blocksize: usize,
    /// The bytes between the block starts and the blocks.
    pub behind_starts: &'a [u8],
}

/// Write room for the header, then block starts, then blocks, which `encode_block` makes from their
/// number and their bytes. Stop as soon as the result is no smaller than the uncompressed input.
pub fn encode_blocks(
    source: &[u8],
    plan: &Plan<'_>,
    out: &mut Packer,
    scratch: &mut Scratch,
    threads: usize,
    interrupt: &Interrupt,
    encode_block: impl Fn(usize, &[u8], &mut Packer, &mut Scratch) -> Outcome<()> + Sync,
) -> Outcome<()> {
    let count = source.len().div_ceil(plan.blocksize);
    let ceiling = source.len() + plan.head;
    let start = |index: usize| plan.head + 4 * index;
    let plain = |index: usize| &source[index * plan.blocksize..source.len().min((index + 1) * plan.blocksize)];
    out.fill(start(count), |space| space.len())?;
    out.push(plan.behind_starts)?;
    if threads.min(count) <= 1 {
        for index in 0..count {
            interrupt.check()?;
            out.patch(start(index), &(out.used as u32).to_le_bytes());
            encode_block(index, plain(index), out, scratch)?;
            if out.used >= ceiling {
                return Ok(());
            }
        }
        return Ok(());
    }
    let next = AtomicUsize::new(0);
    let mut blocks = reserved(count)?;
    blocks.resize_with(count, Vec::new);
    let blocks = Mutex::new(blocks);
    interrupt.share(threads.min(count), scratch, |scratch| {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return Ok(false);
        }
        let mut block = Packer::default();
        encode_block(index, plain(index), &mut block, scratch)?;
        block.memory.truncate(block.used);
        blocks.lock().expect("no thread panics")[index] = block.memory;
        Ok(true)
    })?;
    for (index, block) in blocks.into_inner().expect("no thread panics").iter().enumerate() {
        out.patch(start(index), &(out.used as u32).to_le_bytes());
        out.push(block)?;
    }
    Ok(())
}

/// Encode a chunk of `nbytes` bytes, whose shuffled blocks `shuffle` makes from the position of their
/// first byte. Return false when the chunk is better stored uncompressed.
pub fn encode_shuffled(
    nbytes: usize,
    recipe: Recipe,
    out: &mut Packer,
    scratch: &mut Scratch,
    shuffle: impl Fn(usize, &mut [u8]),
) -> Outcome<bool> {
    let recipe = recipe.settled(nbytes, HEADER_BYTES)?;
    out.clear();
    if recipe.level == 0 || nbytes < MIN_COMPRESSED {
        return Ok(false);
    }
    let count = nbytes.div_ceil(recipe.blocksize);
    out.fill(HEADER_BYTES + 4 * count, |space| space.len())?;
    let mut raw = 0;
    for index in 0..count {
        out.patch(HEADER_BYTES + 4 * index, &(out.used as u32).to_le_bytes());
        let start = index * recipe.blocksize;
        let Scratch { codecs, filtered, .. } = &mut *scratch;
        let filtered = grow_aligned(filtered, recipe.blocksize.min(nbytes - start))?;
        shuffle(start, filtered);
        pack_streams(filtered, &recipe, out, codecs, &mut raw)?;
        if out.used >= nbytes + HEADER_BYTES {
            return Ok(false);
        }
    }
    out.patch(0, &recipe.header(recipe.flags(), nbytes, out.used));
    Ok(true)
}

/// A block of a chunk that is to be encoded.
#[derive(Clone, Copy)]
pub enum BlockBytes<'a> {
    /// As it is stored, to be copied.
    Encoded(&'a [u8]),
    Plain(&'a [u8]),
}

/// Encode a chunk of `nbytes` bytes, some blocks of which are encoded already, by the same recipe,
/// which is settled. Return false when the chunk is better stored uncompressed.
pub fn encode_mixed(
    nbytes: usize,
    blocks: &[BlockBytes<'_>],
    recipe: &Recipe,
    out: &mut Packer,
    scratch: &mut Scratch,
) -> Outcome<bool> {
    debug_assert_eq!(blocks.len(), nbytes.div_ceil(recipe.blocksize));
    let ceiling = nbytes + HEADER_BYTES;
    out.clear();
    out.fill(HEADER_BYTES + 4 * blocks.len(), |space| space.len())?;
    let mut raw = 0;
    for (index, block) in blocks.iter().enumerate() {
        out.patch(HEADER_BYTES + 4 * index, &(out.used as u32).to_le_bytes());
        match *block {
            // Checked before it is copied: blocks may claim the same bytes many times over.
            BlockBytes::Encoded(bytes) if out.used + bytes.len() >= ceiling => return Ok(false),
            BlockBytes::Encoded(bytes) => out.push(bytes)?,
            BlockBytes::Plain(plain) => encode_block(plain, recipe, out, scratch, &mut raw)?,
        }
        if out.used >= ceiling {
            return Ok(false);
        }
    }
    out.patch(0, &recipe.header(recipe.flags(), nbytes, out.used));
    Ok(true)
}

/// The bytes of a chunk of `nbytes` bytes that is made of encoded blocks, by one recipe, which is settled.
/// `None` when the chunk is better stored uncompressed.
pub fn joined_size<'b>(nbytes: usize, blocks: impl Iterator<Item = &'b [u8]>, recipe: &Recipe) -> Option<usize> {
    let head = HEADER_BYTES + 4 * nbytes.div_ceil(recipe.blocksize);
    let (count, size) = blocks.fold((0, head), |(count, sum), block| (count + 1, sum.saturating_add(block.len())));
    // A chunk that is not compressed has no blocks.
    (count > 0 && size < nbytes + HEADER_BYTES).then_some(size)
}

/// Write a chunk that is made of encoded blocks to `out`, which has the size of it.
pub fn join<'b>(nbytes: usize, blocks: impl Iterator<Item = &'b [u8]> + Clone, recipe: &Recipe, out: &mut [u8]) {
    let mut start = HEADER_BYTES + 4 * nbytes.div_ceil(recipe.blocksize);
    let header = recipe.header(recipe.flags(), nbytes, out.len());
    out[..HEADER_BYTES].copy_from_slice(&header);
    for (index, block) in blocks.enumerate() {
        out[HEADER_BYTES + 4 * index..][..4].copy_from_slice(&(start as u32).to_le_bytes());
        out[start..start + block.len()].copy_from_slice(block);
        start += block.len();
    }
}

/// Write the header of a chunk that is not compressed to `out`, and return where its bytes belong.
pub fn store<'o>(recipe: &Recipe, out: &'o mut [u8]) -> &'o mut [u8] {
    let cbytes = out.len();
    let (head, plain) = out.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&recipe.header(recipe.flags() | FLAG_MEMCPYED, plain.len(), cbytes));
    plain
}

/// Filter and compress one block. `raw` has a bit for each stream of the block before that did not
/// shrink.
pub fn encode_block(
    plain: &[u8],
    recipe: &Recipe,
    out: &mut Packer,
    scratch: &mut Scratch,
    raw: &mut u32,
) -> Outcome<()> {
    let Scratch { codecs, filtered, planes, .. } = scratch;
    let filtered = filter_block(plain, recipe, filtered, planes)?;
    pack_streams(filtered, recipe, out, codecs, raw)
}

/// Compress a filtered block: for each stream its size, then its bytes.
fn pack_streams(filtered: &[u8], recipe: &Recipe, out: &mut Packer, codecs: &mut Codecs, raw: &mut u32) -> Outcome<()> {
    let streams = if recipe.splits() && filtered.len() == recipe.blocksize { recipe.typesize } else { 1 };
    for (number, stream) in filtered.chunks_exact(filtered.len() / streams).enumerate() {
        let space = out.space(4 + stream.len())?;
        let (size, packed) = space.split_at_mut(4);
        let room = recipe.ceiling(stream.len());
        let bit = 1u32.checked_shl(number as u32).unwrap_or(0);
        let shrunk = if *raw & bit != 0 && !start_shrinks(codecs, recipe, stream, packed) {
            None
        } else {
            codecs.encode(recipe.codec, recipe.level, stream, &mut packed[..room])
        };
        let kept = shrunk.unwrap_or_else(|| {
            packed.copy_from_slice(stream);
            stream.len()
        });
        *raw = if shrunk.is_none() { *raw | bit } else { *raw & !bit };
        size.copy_from_slice(&(kept as u32).to_le_bytes());
        out.used += 4 + kept;
    }
    Ok(())
}

/// Whether the start of a stream shrinks, where the same stream of the block before did not: the low
/// bytes of numbers are noise in all blocks, and compressing all of it each time would be wasted.
fn start_shrinks(codecs: &mut Codecs, recipe: &Recipe, stream: &[u8], packed: &mut [u8]) -> bool {
    const PROBE: usize = 2048;
    recipe.codec != Codec::Lz4
        || stream.len() < 4 * PROBE
        || codecs.encode(recipe.codec, recipe.level, &stream[..PROBE], &mut packed[..PROBE - 16]).is_some()
}

/// The block with its filter applied: in `filtered`, or `plain` itself without one.
fn filter_block<'a>(
    plain: &'a [u8],
    recipe: &Recipe,
    filtered: &'a mut Vec<u8>,
    planes: &mut Vec<u8>,
) -> Outcome<&'a [u8]> {
    let typesize = recipe.typesize;
    let count = plain.len() / typesize;
    let (items, tail) = plain.split_at(count * typesize);
    let filtered = match recipe.filter {
        Filter::Shuffle if typesize > 1 => {
            let filtered = grow_aligned(filtered, plain.len())?;
            filters::shuffle(items, typesize, filtered, count);
            filtered
        }
        Filter::Bitshuffle if filters::bitshuffled_items(plain.len(), typesize, false) > 0 => {
            let filtered = grow_aligned(filtered, plain.len())?;
            filters::bitshuffle(items, typesize, grow(planes, items.len())?, &mut filtered[..items.len()]);
            filtered
        }
        _ => return Ok(plain),
    };
    filtered[items.len()..].copy_from_slice(tail);
    Ok(filtered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::samples::packed;

    /// Noise of which each piece of 64 bytes repeats the first bytes of the one before.
    fn repetitive(repeated: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut source: Vec<u8> = Vec::new();
        for _ in 0..64 {
            let before = source.len().saturating_sub(64);
            let copied = if source.is_empty() { 0 } else { repeated };
            source.extend_from_within(before..before + copied);
            source.extend((copied..64).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            }));
        }
        source
    }

    #[test]
    fn a_header_says_whether_a_recipe_made_its_chunk() {
        let recipe =
            Recipe { codec: Codec::Lz4, level: 5, filter: Filter::Shuffle, typesize: 4, blocksize: 1024, gain: 0 };
        let chunk = packed(&[1, 2, 3, 4].repeat(1024), recipe);
        let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
        assert!(recipe.encoded(&header));
        // The level is not stored.
        assert!(Recipe { level: 9, ..recipe }.encoded(&header));
        for other in [
            Recipe { codec: Codec::Zstd, ..recipe },
            Recipe { filter: Filter::None, ..recipe },
            Recipe { typesize: 8, ..recipe },
            Recipe { blocksize: 2048, ..recipe },
        ] {
            assert!(!other.encoded(&header), "{other:?}");
        }
        assert!(!recipe.encoded(&Header { version: VERSION - 1, ..header }));
    }

    #[test]
    fn chunks_are_divided_evenly_where_blocks_are_split() {
        let recipe =
            Recipe { codec: Codec::Lz4, level: 5, filter: Filter::Shuffle, typesize: 4, blocksize: 0, gain: 0 };
        let size = |recipe: Recipe, nbytes: usize| recipe.settled(nbytes, HEADER_BYTES).unwrap().blocksize;
        assert_eq!(size(recipe, 3_125_000), 125_000);
        assert_eq!(size(recipe, 2 * 100_000), 100_000);
        assert_eq!(size(recipe, 8 << 20), BLOCK_BYTES);
        // 24 blocks would do, and 25, 26 and 27: no such number divides the items.
        assert_eq!(size(recipe, 3_125_004), BLOCK_BYTES);
        assert_eq!(size(Recipe { filter: Filter::Bitshuffle, ..recipe }, 3_125_000), BLOCK_BYTES);
        assert_eq!(size(Recipe { blocksize: 1 << 16, ..recipe }, 3_125_000), 1 << 16);
    }

    #[test]
    fn streams_that_gain_little_are_stored_uncompressed() {
        let recipe =
            Recipe { codec: Codec::Lz4, level: 5, filter: Filter::None, typesize: 1, blocksize: 4096, gain: 0 };
        let stream = |source: &[u8], recipe: Recipe| packed(source, recipe).len() - HEADER_BYTES - 8;
        let (little, much) = (repetitive(10), repetitive(32));
        let thrifty = stream(&little, recipe);
        assert!((4096 * 7 / 8..4096).contains(&thrifty), "{thrifty}");
        assert_eq!(packed(&little, recipe.fast_to_read()).len(), 4096 + HEADER_BYTES);
        assert_eq!(stream(&much, recipe.fast_to_read()), stream(&much, recipe));
        assert!(stream(&much, recipe) < 4096 * 7 / 8);
        let strong = Recipe { level: 9, ..recipe };
        assert!(packed(&little, strong.fast_to_read()).len() < 4096);
    }
}
