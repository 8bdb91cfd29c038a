//! A part of a Blosc chunk that lies in a file: header and block starts are read first, then only
//! the blocks that hold what is wanted.

use crate::array::scatter::{Geometry, Region};
use crate::array::workspace::Buffers;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Outcome, corrupt};
use crate::files::Extent;
use crate::memory::{push, reserved};
use std::ops::Range;

/// The first read of a part: header and block starts of all but huge chunks.
pub const FIRST_READ: usize = 4096;
/// Chunks up to this size are read whole: a second read would cost more.
pub const SMALL: usize = 16 << 10;
/// A gap between wanted blocks up to this size is read along.
const GAP: usize = 32 << 10;

/// Decode what `region` wants of the chunk in `extent`, reading only what that takes.
/// `expected` is the size the chunk must decode to; `trusted` is explained at `Decoder::trust`.
pub fn decode(
    extent: &Extent<'_>,
    expected: usize,
    trusted: bool,
    region: &mut Region<'_>,
    scratch: &mut Scratch,
    buffers: &mut Buffers,
) -> Outcome<()> {
    // A chunk that is small, or wanted for the most part, is read at once; the size that it
    // may have is checked before any memory is taken for it.
    let at_once = extent.length <= SMALL || region.count() * region.itemsize() * 3 >= expected;
    let first = extent.length.min(if at_once { 2 * expected + SMALL } else { FIRST_READ });
    let Buffers { head, body, .. } = buffers;
    let mut front = extent.view(0..first, head)?;
    let header = parse_header(front, extent.length, expected)?;
    if first < header.data_start() {
        front = extent.view(0..header.data_start(), head)?;
    }
    let head = front;
    let decoder = Decoder::new(&header, &head[HEADER_BYTES..header.data_start()]).trust(trusted);
    let blocks = decoder.blocks_of(region);
    if head.len() == extent.length {
        return decoder.decode_region(Window { bytes: head, offset: 0 }, blocks, region, scratch);
    }
    if header.rest.has_delta() && blocks.start > 0 {
        // Other blocks are differences from the first one.
        for (_, span) in reads(&decoder, 0..1, region)? {
            decoder.decode_first(read_window(extent, span, body)?, scratch)?;
        }
    }
    for (blocks, span) in reads(&decoder, blocks, region)? {
        decoder.decode_region(read_window(extent, span, body)?, blocks, region, scratch)?;
    }
    Ok(())
}

/// How many bytes a chunk has whose first bytes are `head`, and which others are needed to decode
/// `wanted` of it. `None` where most of them are, or where the first bytes do not say.
pub fn needed(head: &[u8], expected: usize, wanted: &Geometry) -> Option<(usize, Vec<Range<usize>>)> {
    let claim = head.get(12..16)?.first_chunk().copied().map(u32::from_le_bytes)? as usize;
    if claim <= SMALL || wanted.count() * wanted.itemsize() * 3 >= expected {
        return None;
    }
    let header = parse_header(head, claim, expected).ok()?;
    let front = header.data_start();
    let decoder = Decoder::new(&header, head.get(HEADER_BYTES..front).filter(|_| front < claim)?);
    let blocks = decoder.blocks_of(wanted);
    let mut spans = Vec::new();
    if header.rest.has_delta() && blocks.start > 0 {
        spans = reads(&decoder, 0..1, wanted).ok()?;
    }
    spans.extend(reads(&decoder, blocks, wanted).ok()?);
    // Most of a chunk is had faster as a whole.
    let bytes: usize = spans.iter().map(|(_, span)| span.len()).sum();
    (bytes < claim / 4 * 3).then(|| (claim, spans.into_iter().map(|(_, span)| span).collect()))
}

/// Bytes `span` of the extent, read into `buffer`.
fn read_window<'b>(extent: &'b Extent<'_>, span: Range<usize>, buffer: &'b mut Vec<u8>) -> Outcome<Window<'b>> {
    Ok(Window { bytes: extent.view(span.clone(), buffer)?, offset: span.start })
}

/// Parse the header of a chunk that is stored in `stored` bytes and must decode to `expected`:
/// the array says how large a chunk is, so any other size is corruption.
pub fn parse_header(head: &[u8], stored: usize, expected: usize) -> Outcome<Header> {
    if let Some(claim) = head.get(12..16).and_then(|claim| claim.first_chunk().copied()).map(i32::from_le_bytes)
        && (HEADER_BYTES as i64..stored as i64).contains(&i64::from(claim))
    {
        return corrupt!("Blosc chunk: cbytes claims {claim} bytes, {stored} are stored");
    }
    let header = Header::parse(head, stored, usize::MAX)?;
    if header.nbytes != expected {
        return corrupt!("Blosc chunk: nbytes is {}, the array needs {expected}", header.nbytes);
    }
    Ok(header)
}

/// Which bytes to read for `blocks`, and the blocks that each read serves.
pub fn reads(
    decoder: &Decoder<'_>,
    blocks: Range<usize>,
    wanted: &Geometry,
) -> Outcome<Vec<(Range<usize>, Range<usize>)>> {
    let header = decoder.header;
    if header.memcpyed() {
        let (first, end) = wanted.span();
        let (size, head) = (wanted.itemsize(), header.header_bytes());
        return Ok(vec![(blocks, first * size + head..end * size + head)]);
    }
    // Blocks may lie in any order: one ends where the next one in the file starts.
    let mut starts = reserved(header.block_count())?;
    for index in 0..header.block_count() {
        starts.push(header.block_start(decoder.starts, index)?);
    }
    let mut sorted = reserved(starts.len())?;
    sorted.extend_from_slice(&starts);
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
            _ => push(&mut reads, (index..index + 1, span))?,
        }
    }
    Ok(reads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::scatter::Axis;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::encode::Packer;
    use crate::chunk::encode2::{Recipe, Split, encode};
    use crate::chunk::filters::pipeline;
    use crate::interrupt::Interrupt;

    const NBYTES: usize = 64 << 10;

    /// A chunk of 16 blocks that compress a little.
    fn chunk(filters: &[(u8, u8)]) -> Vec<u8> {
        let mut state = 1_u64;
        let numbers = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 16
        });
        let source: Vec<u8> = numbers.take(NBYTES / 8).flat_map(u64::to_le_bytes).collect();
        let (codec, split, dictionary) = (Codec::Lz4, Split::Never, None);
        let recipe = Recipe { codec, level: 5, filters, typesize: 8, blocksize: 4096, split, dictionary };
        let mut packer = Packer::default();
        encode(&source, recipe, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
        packer.bytes().to_vec()
    }

    /// The bytes of a block, by the table of starts behind the header; the blocks lie in order.
    fn block(chunk: &[u8], index: usize) -> Range<usize> {
        let start = |index: usize| {
            let at = 32 + 4 * index;
            if index < 16 { u32::from_le_bytes(chunk[at..at + 4].try_into().unwrap()) as usize } else { chunk.len() }
        };
        start(index)..start(index + 1)
    }

    fn needed_of(chunk: &[u8], first: usize, count: usize) -> Option<(usize, Vec<Range<usize>>)> {
        let axis = Axis { size: NBYTES / 8, start: first, count, step: 1, stride: 8 };
        needed(&chunk[..FIRST_READ], NBYTES, &Geometry::new(&[axis], 8, 0, 8 * count).unwrap())
    }

    #[test]
    fn blocks_with_wanted_items_are_needed_and_with_delta_the_first() {
        let shuffled = chunk(&[(pipeline::SHUFFLE, 0)]);
        let delta = chunk(&[(pipeline::DELTA, 0), (pipeline::SHUFFLE, 0)]);
        for (chunk, first) in [(&shuffled, false), (&delta, true)] {
            let starting = first.then(|| block(chunk, 0));
            for (item, index) in [(511, 0), (512, 1), (9 * 512 + 100, 9), (8191, 15)] {
                let mut spans: Vec<_> = starting.clone().into_iter().filter(|_| index > 0).collect();
                spans.push(block(chunk, index));
                assert_eq!(needed_of(chunk, item, 1), Some((chunk.len(), spans)), "item {item}, delta {first}");
            }
            // Two blocks beside each other are one read.
            let mut spans: Vec<_> = starting.into_iter().collect();
            spans.push(block(chunk, 14).start..block(chunk, 15).end);
            assert_eq!(needed_of(chunk, 15 * 512 - 1, 2), Some((chunk.len(), spans)));
        }
    }

    #[test]
    fn most_of_a_chunk_is_read_as_a_whole() {
        let chunk = chunk(&[(pipeline::SHUFFLE, 0)]);
        let all = NBYTES / 8;
        assert!(needed_of(&chunk, 0, all / 4).is_some());
        assert!(needed_of(&chunk, 0, all / 3).is_some());
        assert!(needed_of(&chunk, 0, all / 3 + 1).is_none());
        assert!(needed_of(&chunk, 0, all).is_none());
    }
}
