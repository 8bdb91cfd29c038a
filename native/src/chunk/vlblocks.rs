//! Chunks with blocks of variable length (format version 6).
//!
//! Each block starts with its decoded size and ends where the next one starts. It is one stream, stored
//! uncompressed when it did not shrink. Blocks lie in order and are independent of each other.

use crate::array::scatter::Region;
use crate::chunk::decode::{Block, Decoder, Window};
use crate::chunk::filters;
use crate::chunk::header::Filter;
use crate::chunk::scratch::Scratch;
use crate::error::{Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::{grow, reserved};
use std::ops::Range;

/// A block: its stream, and the bytes of the chunk that it decodes to.
struct Part<'a> {
    stream: &'a [u8],
    range: Range<usize>,
}

/// Decode all of `chunk` into `out`.
pub fn decode_whole(
    decoder: &Decoder<'_>,
    chunk: &[u8],
    out: &mut [u8],
    scratch: &mut Scratch,
    interrupt: &Interrupt,
) -> Outcome<()> {
    for (index, part) in parts(decoder, chunk)?.iter().enumerate() {
        interrupt.check()?;
        decode_part(decoder, index, part, &mut out[part.range.clone()], scratch)?;
    }
    Ok(())
}

/// Decode the blocks that `region` wants something of; `window` holds the whole chunk.
pub fn decode_region(
    decoder: &Decoder<'_>,
    window: Window<'_>,
    region: &mut Region<'_>,
    scratch: &mut Scratch,
) -> Outcome<()> {
    let size = region.itemsize();
    for (index, part) in parts(decoder, window.bytes)?.iter().enumerate() {
        let range = part.range.clone();
        if region.rank(range.start / size) == region.rank(range.end.div_ceil(size)) {
            continue;
        }
        let mut plain = std::mem::take(&mut scratch.plain);
        let bytes = grow(&mut plain, range.len())?;
        decode_part(decoder, index, part, bytes, scratch)?;
        region.scatter(range.clone(), Window { bytes, offset: range.start });
        scratch.plain = plain;
    }
    Ok(())
}

/// All blocks: none overlaps another, and together they are as large as the chunk.
fn parts<'a>(decoder: &Decoder<'_>, chunk: &'a [u8]) -> Outcome<Vec<Part<'a>>> {
    let header = decoder.header;
    let count = header.block_count();
    let mut parts = reserved(count)?;
    let mut made = 0;
    for index in 0..count {
        let start = decoder.block_start(index)?;
        let end = if index + 1 < count { decoder.block_start(index + 1)? } else { header.cbytes };
        // An end before the start is no range, so that blocks never overlap.
        let Some((size, stream)) = chunk.get(start..end).and_then(|bytes| bytes.split_first_chunk::<4>()) else {
            return corrupt!("Blosc chunk: block {index} lies from {start} to {end}, its size alone takes 4 bytes");
        };
        let size = i32::from_le_bytes(*size);
        if size < 0 || size as usize > header.nbytes - made {
            return corrupt!("Blosc chunk: block {index} claims {size} bytes, {} are left", header.nbytes - made);
        }
        let most = header.format.longest(size as usize);
        if stream.len() > most || stream.len() < (size as usize).min(1) {
            return corrupt!("Blosc chunk: block {index} has {} bytes for {size} bytes of data", stream.len());
        }
        parts.push(Part { stream, range: made..made + size as usize });
        made += size as usize;
    }
    if made != header.nbytes {
        return corrupt!("Blosc chunk: its blocks hold {made} bytes, nbytes claims {}", header.nbytes);
    }
    Ok(parts)
}

fn decode_part(
    decoder: &Decoder<'_>,
    index: usize,
    part: &Part<'_>,
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Outcome<()> {
    let block = Block { index, size: out.len(), bytes: part.stream, streams: 1 };
    decoder.decode_filtered(&block, out, None, scratch, undo_first)
}

/// Decompress `block` into `out` and undo its first filter.
fn undo_first(decoder: &Decoder<'_>, block: &Block<'_>, out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
    let header = decoder.header;
    let Scratch { codecs, filtered, planes, .. } = scratch;
    let count = header.filtered_items(block.size);
    let unfiltered = count == 0;
    let target = if unfiltered { &mut *out } else { grow(filtered, block.size)? };
    if block.bytes.len() == block.size {
        target.copy_from_slice(block.bytes);
    } else {
        decoder.decompress(block, 0, codecs, block.bytes, target, block.size)?;
    }
    if unfiltered {
        return Ok(());
    }
    let typesize = header.typesize;
    let (items, tail) = out.split_at_mut(count * typesize);
    tail.copy_from_slice(&filtered[count * typesize..block.size]);
    if header.filter == Filter::Shuffle {
        filters::unshuffle(filtered, count, typesize, items);
    } else {
        filters::unbitshuffle(filtered, count / 8, typesize, grow(planes, block.size)?, items);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::header::{HEADER_BYTES, Header};
    use crate::error::Kind;

    /// Uncompressed blocks of these sizes: 32 bytes of header, starts, blocks.
    fn chunk(sizes: &[usize]) -> Vec<u8> {
        let nbytes: usize = sizes.iter().sum();
        let cbytes = 32 + 8 * sizes.len() + nbytes;
        let mut chunk = vec![6, 1, 0x35, 1];
        for field in [nbytes, sizes.len(), cbytes] {
            chunk.extend((field as u32).to_le_bytes());
        }
        chunk.resize(32, 0);
        chunk[30] = 1;
        let mut start = 32 + 4 * sizes.len();
        for size in sizes {
            chunk.extend((start as u32).to_le_bytes());
            start += 4 + size;
        }
        for (number, size) in sizes.iter().enumerate() {
            chunk.extend((*size as u32).to_le_bytes());
            chunk.resize(chunk.len() + size, number as u8);
        }
        chunk
    }

    fn unpacked(chunk: &[u8]) -> Outcome<Vec<u8>> {
        let header = Header::parse(chunk, chunk.len(), 1 << 20)?;
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let mut out = vec![0xee; header.nbytes];
        decoder.decode_whole(chunk, &mut out, &mut Scratch::default(), 1, &Interrupt::never())?;
        Ok(out)
    }

    #[test]
    fn blocks_of_any_size_follow_each_other() {
        let found = unpacked(&chunk(&[3, 0, 1, 4])).unwrap();
        assert_eq!(found, [0, 0, 0, 2, 3, 3, 3, 3]);
    }

    #[test]
    fn wrong_claims_are_refused() {
        let sound = chunk(&[30, 20, 10]);
        assert!(unpacked(&sound).is_ok());
        // Starts swapped, a start inside the starts, sizes too large, too small and negative.
        for (at, value) in [(32, 80u32), (36, 44), (36, 32), (44, 31), (44, 29), (44, u32::MAX), (78, 1 << 30)] {
            let mut wrong = sound.clone();
            wrong[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(unpacked(&wrong).unwrap_err().kind, Kind::Corruption, "{at} {value}");
        }
        for (at, value, kind) in [(2, 0x37, Kind::Corruption), (31, 0x10, Kind::Format), (21, 3, Kind::Unsupported)] {
            let mut wrong = sound.clone();
            wrong[at] = value;
            assert_eq!(unpacked(&wrong).unwrap_err().kind, kind, "{at} {value}");
        }
    }
}
