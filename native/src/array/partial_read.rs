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
