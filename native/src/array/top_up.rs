//! A flat array that gets longer: its last chunk is topped up, and new ones follow.
//!
//! Blocks of the last chunk that were full keep their bytes; only the block at its end is decoded, and
//! encoded again with what follows. The blocks of all chunks are shared out over threads, since what is
//! appended is often one chunk, or less.

use crate::array::coding::{Coding, Compression};
use crate::array::layout::Layout;
use crate::array::stored::{Chunk, Stored};
use crate::array::workspace::Workspace;
use crate::checksum::Checksum;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::encode::{self, MIN_COMPRESSED, Recipe, encode_block};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::{grow, reserved};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Fewer bytes are not worth another thread.
const WORTH_A_THREAD: usize = 256 << 10;

/// What is appended: `stored` is the last chunk, which holds `held` bytes, and `added` is what comes
/// behind them. Chunks hold up to `chunk` bytes. Without a last chunk the first new one begins a chunk.
pub struct Growth<'a> {
    pub stored: &'a [u8],
    pub held: usize,
    pub added: &'a [u8],
    pub chunk: usize,
}

/// The stored bytes of the last chunk of an array, which holds `held` bytes; they are read into `buffer`.
pub fn read_last<'b>(layout: &Layout, held: usize, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]> {
    let grid = &layout.grid;
    let coords = [grid.shape[0] / grid.chunk[0]];
    let stored = Stored::open(layout, None, true)?;
    let key = stored.key(grid, &coords);
    match stored.chunk(grid, &coords, &key)? {
        Chunk::Stored(extent) => {
            layout.coding.check_stored(extent.length, held)?;
            let bytes = grow(buffer, extent.length)?;
            extent.read(0, bytes)?;
            Ok(bytes)
        }
        _ => corrupt!("the chunk is missing"),
    }
}

/// What is appended as it is stored: the blocks of the last chunk and of those behind it.
pub struct Topped<'a> {
    last: Last<'a>,
    chunks: Vec<Made>,
    /// The encoded blocks, each in room for the longest that it may be.
    memory: Vec<u8>,
}

/// Encode what is appended. `memory` is used for it.
///
/// `None` where chunks are not Blosc's. A chunk that does not agree with its checksum is an error.
pub fn top_up<'a>(
    coding: &Coding,
    growth: &'a Growth<'a>,
    mut memory: Vec<u8>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Option<Topped<'a>>> {
    let Compression::Blosc(recipe) = coding.compression else {
        return Ok(None);
    };
    if coding.framed || growth.held >= growth.chunk || growth.added.is_empty() {
        return Err(Error::new(Kind::Argument, "nothing is added to a chunk of a flat array"));
    }
    let last = Last::open(coding, recipe, growth, workspace)?;
    let mut chunks = last.chunks(recipe)?;
    let rooms = chunks.iter().flat_map(|chunk| chunk.blocks().map(|block| chunk.recipe.room(block.len())));
    let mut rest = grow(&mut memory, rooms.sum())?;
    let mut jobs = Vec::new();
    for (number, chunk) in chunks.iter_mut().enumerate() {
        for block in chunk.blocks() {
            let (room, behind) = rest.split_at_mut(chunk.recipe.room(block.len()));
            rest = behind;
            jobs.push(Mutex::new(Job { number, block, room, size: 0 }));
        }
    }
    let threads = threads.min(jobs.len()).min(growth.added.len() / WORTH_A_THREAD + 1).max(1);
    let (next, raw) = (AtomicUsize::new(0), AtomicU32::new(0));
    interrupt.share(threads, workspace, |workspace| {
        let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(false);
        };
        let mut job = job.lock().expect("no thread panics");
        let Workspace { scratch, chunk: plain, packer, .. } = workspace;
        // Copied: another thread of the caller may change what is added.
        let plain = grow(plain, job.block.len())?;
        last.copy(job.block.clone(), plain);
        // As in `encode`: with several threads no block comes before another.
        let first = job.block.start == chunks[job.number].bytes.start;
        let mut bits = if threads > 1 || first { 0 } else { raw.load(Ordering::Relaxed) };
        packer.clear();
        encode_block(plain, &chunks[job.number].recipe, packer, scratch, &mut bits)?;
        raw.store(bits, Ordering::Relaxed);
        job.size = packer.bytes().len();
        job.room[..packer.bytes().len()].copy_from_slice(packer.bytes());
        Ok(true)
    })?;
    let sizes: Vec<_> =
        jobs.into_iter().map(|job| job.into_inner().expect("no thread panics")).map(Job::done).collect();
    let mut start = 0;
    for (number, room, size) in sizes {
        chunks[number].made.push(start..start + size);
        start += room;
    }
    Ok(Some(Topped { last, chunks, memory }))
}

/// A block that is encoded into its room.
struct Job<'a> {
    number: usize,
    block: Range<usize>,
    room: &'a mut [u8],
    size: usize,
}

impl Job<'_> {
    fn done(self) -> (usize, usize, usize) {
        (self.number, self.room.len(), self.size)
    }
}

impl Topped<'_> {
    /// The memory that was given.
    pub fn into_memory(self) -> Vec<u8> {
        self.memory
    }

    /// The bytes that each chunk is stored in, its checksum included.
    pub fn sizes(&self, coding: &Coding) -> Vec<usize> {
        let digest = coding.checksum.map_or(0, Checksum::size);
        let size = |chunk: &Made| {
            let joined = encode::joined_size(chunk.bytes.len(), self.blocks(chunk), &chunk.recipe);
            joined.unwrap_or(chunk.bytes.len() + HEADER_BYTES) + digest
        };
        self.chunks.iter().map(size).collect()
    }

    /// Write a chunk, and its checksum, to `out`, which has the size of it.
    pub fn write(&self, coding: &Coding, number: usize, out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        let Made { bytes, recipe, .. } = &self.chunks[number];
        let end = out.len() - coding.checksum.map_or(0, Checksum::size);
        let (stored, digest) = out.split_at_mut(end);
        let blocks = self.blocks(&self.chunks[number]);
        if encode::joined_size(bytes.len(), blocks.clone(), recipe).is_some() {
            encode::join(bytes.len(), blocks, recipe, stored);
        } else {
            let plain = encode::store(recipe, stored);
            if number == 0 && self.last.start > 0 {
                let (old, new) = plain.split_at_mut(self.last.growth.held);
                coding.decode_whole(self.last.bytes, old, scratch)?;
                new.copy_from_slice(&self.last.growth.added[..new.len()]);
            } else {
                self.last.copy(bytes.clone(), plain);
            }
        }
        if let Some(checksum) = coding.checksum {
            digest.copy_from_slice(checksum.digest(stored).bytes());
        }
        Ok(())
    }

    fn blocks<'b>(&'b self, chunk: &'b Made) -> impl Iterator<Item = &'b [u8]> + Clone {
        let kept = if chunk.bytes.start == 0 { &self.last.kept[..] } else { &[] };
        kept.iter().copied().chain(chunk.made.iter().map(|place| &self.memory[place.clone()]))
    }
}

/// The last chunk, and what is added.
struct Last<'a> {
    growth: &'a Growth<'a>,
    /// The stored bytes of the blocks that stay as they are.
    kept: Vec<&'a [u8]>,
    /// The bytes that these blocks hold.
    start: usize,
    /// The bytes of the last chunk behind them.
    before: Vec<u8>,
    /// The last chunk without its checksum.
    bytes: &'a [u8],
}

impl<'a> Last<'a> {
    fn open(coding: &Coding, recipe: Recipe, growth: &'a Growth<'a>, workspace: &mut Workspace) -> Outcome<Self> {
        let Growth { stored, held, added, chunk } = *growth;
        let mut before = Vec::new();
        if held == 0 {
            return Ok(Self { growth, kept: Vec::new(), start: 0, before, bytes: &[] });
        }
        let bytes = coding.checksum.map_or(Ok(stored), |checksum| checksum.checked(stored))?;
        let header = Header::parse(bytes, bytes.len(), i32::MAX as usize)?;
        if header.nbytes != held {
            return corrupt!("the last chunk holds {} bytes, the array needs {held}", header.nbytes);
        }
        let size = chunk.min(held.saturating_add(added.len()));
        let recipe = recipe.settled(size, HEADER_BYTES)?;
        let mut kept = Vec::new();
        if recipe.encoded(&header) && !is_stored(&recipe, size) {
            let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
            let full = (held - 1) / recipe.blocksize;
            kept = reserved(full)?;
            for index in 0..full {
                let Some(block) = decoder.stored_block(bytes, index)? else { break };
                kept.push(block);
            }
            // Blocks may claim the same bytes many times over; no encoder makes more than there are.
            let stored = kept.iter().fold(0usize, |sum, block| sum.saturating_add(block.len()));
            if kept.len() < full || stored > bytes.len() {
                kept.clear();
            } else if full > 0 {
                let start = full * recipe.blocksize;
                let window = Window { bytes, offset: 0 };
                decoder.decode_block(window, full, grow(&mut before, held - start)?, None, &mut workspace.scratch)?;
                return Ok(Self { growth, kept, start, before, bytes });
            }
        }
        coding.decode_whole(bytes, grow(&mut before, held)?, &mut workspace.scratch)?;
        Ok(Self { growth, kept, start: 0, before, bytes })
    }

    /// The chunks to be made.
    fn chunks(&self, recipe: Recipe) -> Outcome<Vec<Made>> {
        let Growth { held, added, chunk, .. } = *self.growth;
        let size = held + added.len();
        let mut chunks = reserved(size.div_ceil(chunk))?;
        for first in (0..size).step_by(chunk) {
            let bytes = first..size.min(first + chunk);
            let kept = if first == 0 { self.kept.len() } else { 0 };
            let recipe = recipe.settled(bytes.len(), HEADER_BYTES)?;
            chunks.push(Made { bytes, kept, recipe, made: Vec::new() });
        }
        Ok(chunks)
    }

    /// Copy bytes, counted from the first one of the last chunk, none of which a kept block holds.
    fn copy(&self, bytes: Range<usize>, out: &mut [u8]) {
        let held = self.growth.held;
        let (old, new) = out.split_at_mut(bytes.end.min(held).saturating_sub(bytes.start));
        old.copy_from_slice(&self.before[bytes.start.min(held) - self.start..][..old.len()]);
        new.copy_from_slice(&self.growth.added[bytes.start.max(held) - held..][..new.len()]);
    }
}

/// A chunk that is made.
struct Made {
    /// What it holds, counted from the first byte of the last chunk.
    bytes: Range<usize>,
    /// How many of its blocks are there already.
    kept: usize,
    /// Settled for its size.
    recipe: Recipe,
    /// Where the other blocks lie in memory.
    made: Vec<Range<usize>>,
}

impl Made {
    /// What each block holds that is encoded; there is none where a chunk is stored as it is.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, step) = (self.bytes.end, self.recipe.blocksize);
        let start = if is_stored(&self.recipe, self.bytes.len()) { end } else { self.bytes.start + self.kept * step };
        (start..end).step_by(step).map(move |start| start..end.min(start + step))
    }
}

/// Whether a chunk of `size` bytes is stored as it is.
fn is_stored(recipe: &Recipe, size: usize) -> bool {
    recipe.level == 0 || size < MIN_COMPRESSED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::staging::copied;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::encode::{Packer, encode};
    use crate::chunk::header::Filter;
    use crate::files::verified::Verify;

    const BLOCK: usize = 1024;
    const CHUNK: usize = 6 * BLOCK;

    fn recipe() -> Recipe {
        let filter = Filter::Shuffle;
        Recipe { codec: Codec::BloscLz, level: 5, filter, typesize: 8, blocksize: BLOCK, gain: 0 }
    }

    fn coding(filter: Filter, typesize: usize) -> Coding {
        let recipe = Recipe { filter, typesize, ..recipe() };
        let checksum = Some(Checksum::Crc32);
        Coding {
            compression: Compression::Blosc(recipe),
            checksum,
            verify: Verify::Always,
            framed: false,
            slotted: false,
        }
    }

    fn bare() -> Coding {
        coding(Filter::Shuffle, 8).without_checksum()
    }

    fn items(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at / 64) as u8).collect()
    }

    fn encoded(coding: &Coding, plain: &[u8]) -> Vec<u8> {
        coding.encode(plain, &mut Scratch::default(), &mut Packer::default(), copied).unwrap()
    }

    /// A chunk of `held` bytes that is stored as `stored`, and `added` behind it.
    fn topped(coding: &Coding, stored: &[u8], held: usize, added: &[u8], threads: usize) -> Outcome<Vec<Vec<u8>>> {
        all(coding, &Growth { stored, held, added, chunk: CHUNK }, threads)
    }

    fn all(coding: &Coding, growth: &Growth<'_>, threads: usize) -> Outcome<Vec<Vec<u8>>> {
        let (workspace, memory) = (&mut Workspace::default(), vec![0xee; 100]);
        let made = top_up(coding, growth, memory, threads, workspace, &Interrupt::never())?.unwrap();
        let chunk = |(number, size)| {
            let mut out = vec![0; size];
            made.write(coding, number, &mut out, &mut Scratch::default()).map(|()| out)
        };
        made.sizes(coding).into_iter().enumerate().map(chunk).collect()
    }

    #[test]
    fn longer_arrays_have_the_chunks_of_all_items() {
        for (filter, typesize) in [(Filter::Shuffle, 8), (Filter::Bitshuffle, 4), (Filter::None, 1)] {
            let coding = coding(filter, typesize);
            let plain = items(2 * CHUNK + 300);
            for size in [CHUNK - 1, CHUNK, CHUNK + 1, plain.len()] {
                let whole: Vec<_> = plain[..size].chunks(CHUNK).map(|chunk| encoded(&coding, chunk)).collect();
                for held in [0, 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 40, CHUNK - 2] {
                    let before = encoded(&coding, &plain[..held]);
                    for threads in [1, 3] {
                        let found = topped(&coding, &before, held, &plain[held..size], threads).unwrap();
                        assert!(found == whole, "{filter:?} {held} {size} {threads}");
                    }
                }
            }
        }
    }

    #[test]
    fn many_threads_make_what_one_makes() {
        let coding = Coding { compression: Compression::Blosc(Recipe { blocksize: 0, ..recipe() }), ..bare() };
        let plain = items(5 << 18);
        let before = encoded(&coding, &plain[..300_000]);
        let growth = Growth { stored: &before, held: 300_000, added: &plain[300_000..], chunk: 1 << 19 };
        let whole: Vec<_> = plain.chunks(1 << 19).map(|chunk| encoded(&coding, chunk)).collect();
        for threads in [1, 4] {
            assert!(all(&coding, &growth, threads).unwrap() == whole, "{threads}");
        }
    }

    #[test]
    fn chunks_that_others_encoded_are_encoded_anew() {
        let (coding, plain) = (bare(), items(CHUNK - 50));
        let (old, added) = plain.split_at(4 * BLOCK);
        let whole = vec![encoded(&coding, &plain)];
        let mut packer = Packer::default();
        for other in [
            Recipe { level: 0, ..recipe() },
            Recipe { typesize: 4, ..recipe() },
            Recipe { blocksize: 512, ..recipe() },
            Recipe { codec: Codec::Lz4, ..recipe() },
        ] {
            encode(old, other, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
            assert!(topped(&coding, packer.bytes(), old.len(), added, 2).unwrap() == whole, "{other:?}");
        }
    }

    #[test]
    fn what_does_not_shrink_is_stored_as_it_is() {
        // The blocks that are kept shrink, and all others grow by as much.
        let noise: Vec<u8> = (0..CHUNK as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut plain = noise.clone();
        plain[..BLOCK].fill(7);
        let coding = bare();
        for held in [BLOCK + 1, BLOCK, 0] {
            let before = encoded(&coding, &plain[..held]);
            let found = topped(&coding, &before, held, &plain[held..], 2).unwrap();
            assert!(found == [encoded(&coding, &plain)], "{held}");
            let before = encoded(&coding, &noise[..held]);
            let found = topped(&coding, &before, held, &noise[held..], 2).unwrap();
            assert!(found == [encoded(&coding, &noise)], "{held}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let coding = coding(Filter::Shuffle, 8);
        let plain = items(4 * BLOCK);
        let (before, added) = (encoded(&coding, &plain), [7; 100]);
        for at in 0..before.len() {
            let mut damaged = before.clone();
            damaged[at] ^= 4;
            assert!(topped(&coding, &damaged, plain.len(), &added, 1).is_err(), "{at}");
            // Without a checksum damage may stay unseen, but nothing is read beyond the chunk.
            let bare = coding.without_checksum();
            let _ = topped(&bare, &damaged[..damaged.len() - 4], plain.len(), &added, 1);
        }
        let error = topped(&coding, &before, plain.len() - 8, &added, 1).unwrap_err();
        assert_eq!(error.kind, Kind::Corruption, "another length than the array says");
    }
}
