//! From items to the bytes of a Blosc-1 chunk (format version 2).
//!
//! The input is read, never changed; every byte written is defined.

use crate::decode::{Scratch, out_of_memory, room};
use crate::fault::{Fault, Kind, Outcome};
use crate::filters;
use crate::header::{
    FLAG_BITSHUFFLE, FLAG_MEMCPYED, FLAG_SHUFFLE, FLAG_UNSPLIT, Filter, HEADER_BYTES, Header, MAX_BLOCK_BYTES,
    MAX_SPLIT_TYPESIZE, MIN_SPLIT_ITEMS,
};
use crate::streams::Codec;
use crate::watch::Watch;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest input: a chunk that has to be stored uncompressed still fits its i32 fields.
pub const MAX_INPUT: usize = i32::MAX as usize - HEADER_BYTES;
/// Blocks are the unit of partial reads: large enough to compress well, small enough that
/// one item does not cost a whole chunk.
const BLOCK_BYTES: usize = 128 << 10;
/// Below this size there is nothing to gain.
const MIN_COMPRESSED: usize = 32;

/// How a chunk is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub codec: Codec,
    pub level: u8,
    pub filter: Filter,
    pub typesize: usize,
    /// 0 leaves it to the policy.
    pub blocksize: usize,
}

impl Recipe {
    /// Check arguments and settle the block size for `nbytes` bytes of input.
    fn settled(mut self, nbytes: usize) -> Outcome<Self> {
        let wrong = |text: String| Err(Fault::new(Kind::Argument, text));
        if self.typesize == 0 {
            return wrong("typesize is 0, at least 1 is needed".into());
        }
        if self.level > 9 {
            return wrong(format!("level is {}, levels go from 0 to 9", self.level));
        }
        if self.blocksize > MAX_BLOCK_BYTES {
            return wrong(format!("blocksize is {}, at most {MAX_BLOCK_BYTES} is possible", self.blocksize));
        }
        if nbytes > MAX_INPUT {
            return Err(Fault::new(
                Kind::Limit,
                format!("a Blosc chunk holds at most {MAX_INPUT} bytes, {nbytes} were given"),
            ));
        }
        if self.typesize > 255 {
            self.typesize = 1;
        }
        let unit = if self.blocksize == 0 { 8 * self.typesize } else { self.typesize };
        let wanted = if self.blocksize == 0 { BLOCK_BYTES } else { self.blocksize };
        self.blocksize = (wanted / unit * unit).max(self.typesize).min(nbytes.max(1));
        Ok(self)
    }

    /// One stream per byte of the item: what fast codecs gain from, and what lets partial
    /// reads stop early. Readers of every version agree on it within these bounds.
    fn splits(&self) -> bool {
        self.filter == Filter::Shuffle
            && matches!(self.codec, Codec::BloscLz | Codec::Lz4 | Codec::Lz4Hc | Codec::Zlib)
            && (2..=MAX_SPLIT_TYPESIZE).contains(&self.typesize)
            && self.blocksize / self.typesize >= MIN_SPLIT_ITEMS
            && self.blocksize.is_multiple_of(self.typesize)
    }

    fn flags(&self) -> u8 {
        let filter = match self.filter {
            Filter::None => 0,
            Filter::Shuffle => FLAG_SHUFFLE,
            Filter::Bitshuffle => FLAG_BITSHUFFLE,
        };
        filter | self.codec.format().flag_bits() | if self.splits() { 0 } else { FLAG_UNSPLIT }
    }

    fn header(&self, flags: u8, nbytes: usize, cbytes: usize) -> Header {
        Header {
            version: 2,
            flags,
            typesize: self.typesize,
            nbytes,
            blocksize: self.blocksize,
            cbytes,
            format: self.codec.format(),
            filter: self.filter,
        }
    }
}

/// A buffer that is filled from the front. Its memory stays initialised and is used again,
/// so that nothing is cleared twice.
#[derive(Default)]
pub struct Packer {
    memory: Vec<u8>,
    used: usize,
}

impl Packer {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// At least `size` bytes behind what is used.
    fn space(&mut self, size: usize) -> Outcome<&mut [u8]> {
        let needed = self.used + size;
        if self.memory.len() < needed {
            let target = needed.max(2 * self.memory.len());
            self.memory.try_reserve_exact(target - self.memory.len()).map_err(|_| out_of_memory(target))?;
            self.memory.resize(target, 0);
        }
        Ok(&mut self.memory[self.used..needed])
    }

    fn push(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.space(bytes.len())?.copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    fn put(&mut self, at: usize, value: u32) {
        self.memory[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// Encode `source` as a chunk into `out` (which is emptied first).
pub fn encode(
    source: &[u8],
    recipe: Recipe,
    out: &mut Packer,
    scratch: &mut Scratch,
    threads: usize,
    watch: &Watch,
) -> Outcome<()> {
    let recipe = recipe.settled(source.len())?;
    out.used = 0;
    if recipe.level > 0 && source.len() >= MIN_COMPRESSED {
        encode_blocks(source, &recipe, out, scratch, threads, watch)?;
        if out.used < source.len() + HEADER_BYTES {
            let header = recipe.header(recipe.flags(), source.len(), out.used);
            out.memory[..HEADER_BYTES].copy_from_slice(&header.pack());
            return Ok(());
        }
        out.used = 0;
    }
    let cbytes = source.len() + HEADER_BYTES;
    out.space(cbytes)?;
    out.push(&recipe.header(recipe.flags() | FLAG_MEMCPYED, source.len(), cbytes).pack())?;
    out.push(source)
}

/// Room for the header, then block starts, then blocks. Stops as soon as the result is
/// no smaller than the input stored as it is.
fn encode_blocks(
    source: &[u8],
    recipe: &Recipe,
    out: &mut Packer,
    scratch: &mut Scratch,
    threads: usize,
    watch: &Watch,
) -> Outcome<()> {
    let count = source.len().div_ceil(recipe.blocksize);
    let ceiling = source.len() + HEADER_BYTES;
    let start = |index: usize| HEADER_BYTES + 4 * index;
    let plain = |index: usize| &source[index * recipe.blocksize..source.len().min((index + 1) * recipe.blocksize)];
    out.space(start(count))?;
    out.used = start(count);
    if threads.min(count) <= 1 {
        for index in 0..count {
            watch.look()?;
            out.put(start(index), out.used as u32);
            encode_block(plain(index), recipe, out, scratch)?;
            if out.used >= ceiling {
                return Ok(());
            }
        }
        return Ok(());
    }
    let next = AtomicUsize::new(0);
    let blocks = Mutex::new(vec![Vec::new(); count]);
    watch.share(threads.min(count), scratch, |scratch| {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return Ok(false);
        }
        let mut block = Packer::default();
        encode_block(plain(index), recipe, &mut block, scratch)?;
        block.memory.truncate(block.used);
        blocks.lock().expect("no thread panics")[index] = block.memory;
        Ok(true)
    })?;
    for (index, block) in blocks.into_inner().expect("no thread panics").iter().enumerate() {
        out.put(start(index), out.used as u32);
        out.push(block)?;
    }
    Ok(())
}

/// Filter and compress one block: for each stream its size, then its bytes.
fn encode_block(plain: &[u8], recipe: &Recipe, out: &mut Packer, scratch: &mut Scratch) -> Outcome<()> {
    let Scratch { codecs, filtered, planes, .. } = scratch;
    let streams = if recipe.splits() && plain.len() == recipe.blocksize { recipe.typesize } else { 1 };
    let filtered = filter_block(plain, recipe, filtered, planes)?;
    for stream in filtered.chunks_exact(plain.len() / streams) {
        let space = out.space(4 + stream.len())?;
        let (size, packed) = space.split_at_mut(4);
        // One byte less than the input: a stream that does not shrink is stored as it is.
        let room = stream.len() - 1;
        let kept = codecs.encode(recipe.codec, recipe.level, stream, &mut packed[..room]).unwrap_or_else(|| {
            packed.copy_from_slice(stream);
            stream.len()
        });
        size.copy_from_slice(&(kept as u32).to_le_bytes());
        out.used += 4 + kept;
    }
    Ok(())
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
            let filtered = room(filtered, plain.len())?;
            filters::shuffle(items, typesize, filtered, count);
            filtered
        }
        Filter::Bitshuffle if filters::bitshuffles(plain.len(), typesize) => {
            let filtered = room(filtered, plain.len())?;
            filters::bitshuffle(items, typesize, room(planes, items.len())?, &mut filtered[..items.len()]);
            filtered
        }
        _ => return Ok(plain),
    };
    filtered[items.len()..].copy_from_slice(tail);
    Ok(filtered)
}
