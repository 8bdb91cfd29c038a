//! The chunk file of bcolz: one Blosc chunk behind a head of 16 bytes and before a trailer. It holds
//! the rows of an array that is cut along its first axis only; the last one may hold more rows than
//! the array has. A slot of a super-chunk file is the same without a head, and with spare bytes behind
//! the trailer.

use crate::array::fronts::{Compared, Front, Fronts};
use crate::array::partial_read::{self, FIRST_READ, SMALL};
use crate::array::scatter::{Geometry, Region};
use crate::array::trailer::{self, Spans, Stated, Trailer};
use crate::array::workspace::Buffers;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Outcome, corrupt, malformed, unsupported};
use crate::files::Extent;
use std::borrow::{BorrowMut, Cow};
use std::ops::Range;

const FRAME_BYTES: usize = 16;
pub const FRAME: [u8; FRAME_BYTES] = *b"blpk\x01\0\0\0\x01\0\0\0\0\0\0\0";

/// What a file must hold: which chunk it is, and how many rows.
#[derive(Clone, Copy)]
pub struct Expected {
    pub stated: Stated,
    pub row_bytes: usize,
    pub least: usize,
    pub most: usize,
    /// Whether it is a slot.
    pub slotted: bool,
}

impl Expected {
    /// The bytes in front of the chunk.
    fn head_bytes(&self) -> usize {
        if self.slotted { 0 } else { FRAME_BYTES }
    }

    /// How many of the `stored` bytes behind a chunk the trailer may have.
    fn tail_bytes(&self, header: &Header, stored: usize) -> Outcome<usize> {
        if self.slotted { Ok(stored.min(most_trailer_bytes(header))) } else { trailer_bytes(header, stored) }
    }

    fn rows(&self, header: &Header) -> Outcome<usize> {
        let rows = header.nbytes / self.row_bytes;
        if !header.nbytes.is_multiple_of(self.row_bytes) || !(self.least..=self.most).contains(&rows) {
            let most = if self.most > self.least { format!(", or up to {}", self.most) } else { String::new() };
            return corrupt!(
                "Blosc chunk: nbytes claims {} bytes, {} rows of {} bytes are due{most}",
                header.nbytes,
                self.least,
                self.row_bytes
            );
        }
        Ok(rows)
    }
}

fn check_head(file: &[u8]) -> Outcome<()> {
    let Some(frame) = file.first_chunk::<FRAME_BYTES>() else {
        return corrupt!("chunk file: a head needs {FRAME_BYTES} bytes, {} are stored", file.len());
    };
    if frame[..4] != FRAME[..4] {
        return malformed!("chunk file: it begins with b'{}', not with b'blpk'", frame[..4].escape_ascii());
    }
    if frame[4] != FRAME[4] {
        return unsupported!("chunk file: version {} is unknown", frame[4]);
    }
    if frame[8..] != FRAME[8..] {
        return unsupported!("chunk file: nchunks is not 1");
    }
    Ok(())
}

fn parse_header(head: &[u8], stored: usize) -> Outcome<Header> {
    let claim = head.get(12..16).and_then(|claim| claim.first_chunk().copied()).map_or(0, u32::from_le_bytes) as usize;
    let stored = if (HEADER_BYTES..=stored).contains(&claim) { claim } else { stored };
    Header::parse(head, stored, usize::MAX)
}

/// Decode what `region` wants, given how many rows the chunk holds, and return that number.
/// `wanted` is about how many bytes that is, `known` what was read of chunks before.
pub fn decode<'m, R: BorrowMut<Region<'m>>>(
    extent: &Extent<'_>,
    expected: &Expected,
    (wanted, known): (usize, Option<&Fronts>),
    region: impl FnOnce(usize) -> Outcome<R>,
    scratch: &mut Scratch,
    buffers: &mut Buffers,
) -> Outcome<usize> {
    open(extent, expected, (wanted, known), buffers, |found| {
        let OpenChunk { decoder, checks, whole, extent, begin, body, rows } = found;
        let mut region = region(rows)?;
        let region = region.borrow_mut();
        let blocks = checks.blocks(decoder, region);
        // With delta, other blocks are differences from the first one.
        let first = if decoder.header.rest.has_delta() && blocks.start > 0 { 0..1 } else { 0..0 };
        if let Some(window) = whole {
            checks.check(window, first)?;
            if !decoder.has_plain_blocks() {
                checks.check(window, blocks.clone())?;
                decoder.decode_region(window, blocks, region, scratch)?;
                return Ok(rows);
            }
            // A block is decoded while the cache of the processor still has what was compared.
            for index in blocks {
                checks.check(window, index..index + 1)?;
                decoder.decode_region(window, index..index + 1, region, scratch)?;
            }
            return Ok(rows);
        }
        for (blocks, span) in checks.reads(decoder, first, region)? {
            let window = Window { bytes: extent.view(shifted(begin, &span), body)?, offset: span.start };
            checks.check(window, blocks)?;
            decoder.decode_first(window, scratch)?;
        }
        for (blocks, span) in checks.reads(decoder, blocks, region)? {
            let bytes = extent.view(shifted(begin, &span), body)?;
            let window = Window { bytes, offset: span.start };
            checks.check(window, blocks.clone())?;
            decoder.decode_region(window, blocks, region, scratch)?;
        }
        Ok(rows)
    })
}

/// A chunk whose header, block starts and trailer are read and agree.
pub struct OpenChunk<'a> {
    pub decoder: &'a Decoder<'a>,
    checks: &'a Checks<'a>,
    /// All bytes of the chunk, when they were read at once.
    whole: Option<Window<'a>>,
    extent: &'a Extent<'a>,
    /// Where the chunk begins in the extent.
    begin: usize,
    body: &'a mut Vec<u8>,
    pub rows: usize,
}

impl<'a> OpenChunk<'a> {
    /// The trailer, and where the blocks lie; `None` without a trailer.
    pub fn trailer(&self) -> Option<(&'a Trailer<'a>, &'a Spans)> {
        self.checks.found.as_ref().map(|(trailer, spans)| (trailer, &**spans))
    }

    /// All bytes of the chunk, with every checksum compared.
    pub fn all(&mut self) -> Outcome<&[u8]> {
        let cbytes = self.decoder.header.cbytes;
        let bytes = match self.whole {
            Some(window) => window.bytes,
            None => self.extent.view(shifted(self.begin, &(0..cbytes)), self.body)?,
        };
        let count = self.checks.found.as_ref().map_or(0, |(_, spans)| spans.count());
        self.checks.check(Window { bytes, offset: 0 }, 0..count)?;
        Ok(bytes)
    }

    /// The bytes that hold one block, with its checksum compared.
    pub fn block(&mut self, index: usize) -> Outcome<Window<'_>> {
        let window = match (self.whole, &self.checks.found) {
            (Some(window), _) => window,
            (None, Some((_, spans))) => {
                let span = spans.span(index);
                Window { bytes: self.extent.view(shifted(self.begin, &span), self.body)?, offset: span.start }
            }
            // Without a trailer, blocks end where others start; to read all of them is simpler.
            (None, None) => return Ok(Window { bytes: self.all()?, offset: 0 }),
        };
        self.checks.check(window, index..index + 1)?;
        Ok(window)
    }
}

/// Where bytes of a chunk lie in its file.
fn shifted(begin: usize, span: &Range<usize>) -> Range<usize> {
    begin + span.start..begin + span.end
}

/// Read what lies before and behind the blocks of a file, or all of it where `wanted` bytes are a
/// good part, and hand it to `then`. What is `known` of chunks that are read in part is not read again.
pub fn open<T>(
    extent: &Extent<'_>,
    expected: &Expected,
    (wanted, known): (usize, Option<&Fronts>),
    buffers: &mut Buffers,
    then: impl FnOnce(OpenChunk<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let most_bytes = expected.most * expected.row_bytes;
    let at_once = extent.length <= SMALL || wanted.saturating_mul(3) >= expected.least * expected.row_bytes;
    let at_once = at_once && !extent.is_in_pieces();
    // A small chunk is read faster than it is remembered.
    let known = known.filter(|_| extent.length > SMALL);
    if let Some(front) = known.and_then(|known| known.find(extent, expected)) {
        return open_known(extent, &front, at_once, buffers, then);
    }
    // The size that a file may have is checked before any memory is taken for it.
    let first = extent.length.min(if at_once { 2 * most_bytes + SMALL } else { FIRST_READ });
    let Buffers { head: buffer, body, tail } = buffers;
    let mut head = extent.view(0..first, buffer)?;
    let begin = expected.head_bytes();
    if !expected.slotted {
        check_head(head)?;
    }
    let stored = extent.length - begin;
    let header = parse_header(&head[begin..], stored)?;
    let rows = expected.rows(&header)?;
    let front = begin + header.data_start();
    if first < front {
        head = extent.view(0..front, buffer)?;
    }
    let behind = begin + header.cbytes;
    let end = behind + expected.tail_bytes(&header, extent.length - behind)?;
    let all = head.len() >= end;
    let tail = if all { &head[behind..end] } else { extent.view(behind..end, tail)? };
    let tail = if expected.slotted { trailer::first(tail)? } else { tail };
    let decoder = Decoder::new(&header, &head[begin + HEADER_BYTES..front]);
    let mut checks = Checks::new(&decoder, &head[begin..], tail, expected, rows)?;
    let kept = match (known, &checks.found) {
        // A chunk without blocks has nothing that is still to be read.
        (Some(known), Some((_, spans))) if header.special.is_none() => known.remember(extent, || Front {
            header: header.clone(),
            head: head[begin + HEADER_BYTES..front].into(),
            trailer: tail.into(),
            compared: Compared::none_of(spans.count()),
            spans: spans.clone().into_owned(),
            rows,
            stated: expected.stated,
            begin,
        }),
        _ => None,
    };
    checks.compared = kept.as_ref().map(|front| &front.compared);
    // A trailer has a checksum for every block.
    let decoder = decoder.trust(!tail.is_empty());
    let whole = (head.len() >= behind).then(|| Window { bytes: &head[begin..behind], offset: 0 });
    then(OpenChunk { decoder: &decoder, checks: &checks, whole, extent, begin, body, rows })
}

/// Hand a chunk to `then` of which only the blocks are still to be read: at once, or as they are wanted.
fn open_known<T>(
    extent: &Extent<'_>,
    front: &Front,
    at_once: bool,
    buffers: &mut Buffers,
    then: impl FnOnce(OpenChunk<'_>) -> Outcome<T>,
) -> Outcome<T> {
    let Buffers { head, body, .. } = buffers;
    let decoder = Decoder::new(&front.header, &front.head).trust(true);
    let found = Some((Trailer::known(&front.trailer), Cow::Borrowed(&front.spans)));
    let checks = Checks { found, compared: Some(&front.compared) };
    let (begin, rows) = (front.begin, front.rows);
    let whole = match at_once {
        true => Some(Window { bytes: extent.view(shifted(begin, &(0..front.header.cbytes)), head)?, offset: 0 }),
        false => None,
    };
    then(OpenChunk { decoder: &decoder, checks: &checks, whole, extent, begin, body, rows })
}

/// Which bytes of a chunk file are needed to decode `wanted` of it, given its first bytes: how many lie in
/// front of the trailer, which is always needed, and ranges of them. `None` where most of them are, or
/// where the first bytes do not say.
pub fn needed(head: &[u8], wanted: &Geometry) -> Option<(usize, Vec<Range<usize>>)> {
    check_head(head).ok()?;
    let chunk = &head[FRAME_BYTES..];
    let claim = chunk.get(12..16)?.first_chunk().copied().map(u32::from_le_bytes)? as usize;
    let header = Header::parse(chunk, claim, usize::MAX).ok()?;
    let (size, (first, end)) = (wanted.itemsize(), wanted.span());
    if claim <= SMALL || header.extended() || wanted.count() * size * 3 >= header.nbytes || end * size > header.nbytes {
        return None;
    }
    let front = header.data_start();
    let decoder = Decoder::new(&header, chunk.get(HEADER_BYTES..front).filter(|_| front < claim)?);
    let spans: Vec<Range<usize>> = if header.memcpyed() {
        // A trailer has the checksums of whole blocks.
        let (start, stop) = (first * size / header.blocksize, (end * size).div_ceil(header.blocksize));
        let span = HEADER_BYTES + start * header.blocksize..claim.min(HEADER_BYTES + stop * header.blocksize);
        std::iter::once(span).collect()
    } else {
        let reads = partial_read::reads(&decoder, decoder.blocks_of(wanted), wanted).ok()?;
        reads.into_iter().map(|(_, span)| span).collect()
    };
    let bytes: usize = spans.iter().map(ExactSizeIterator::len).sum();
    (bytes < claim / 4 * 3)
        .then(|| (FRAME_BYTES + claim, spans.iter().map(|span| shifted(FRAME_BYTES, span)).collect()))
}

/// Read the zone map of the chunk in a file, empty without a trailer, and where fewer than `counted` rows
/// counted when it was made; the checksums of the trailer are compared.
pub fn zone(extent: &Extent<'_>, expected: &Expected, counted: usize, buffers: &mut Buffers) -> Outcome<Vec<u8>> {
    let first = extent.length.min(FIRST_READ);
    let begin = expected.head_bytes();
    let Buffers { head: buffer, tail, .. } = buffers;
    let mut head = extent.view(0..first, buffer)?;
    if !expected.slotted {
        check_head(head)?;
    }
    let header = parse_header(&head[begin..], extent.length - begin)?;
    let rows = expected.rows(&header)?;
    let (front, behind) = (begin + trailer::front(&header), begin + header.cbytes);
    if extent.length == behind {
        return Ok(Vec::new());
    }
    if first < front {
        head = extent.view(0..front, buffer)?;
    }
    let end = behind + expected.tail_bytes(&header, extent.length - behind)?;
    let tail = extent.view(behind..end, tail)?;
    let tail = if expected.slotted { trailer::first(tail)? } else { tail };
    let decoder = Decoder::new(&header, &head[begin + HEADER_BYTES..front]);
    let checks = Checks::new(&decoder, &head[begin..], tail, expected, rows)?;
    Ok(checks
        .found
        .filter(|(found, _)| found.rows() >= counted)
        .map_or_else(Vec::new, |(found, _)| found.zone().to_vec()))
}

/// The size of the trailer, which has a checksum for each block, a zone map, and its two ends.
fn trailer_bytes(header: &Header, stored: usize) -> Outcome<usize> {
    let most = most_trailer_bytes(header);
    if stored > most {
        return corrupt!("chunk trailer: {stored} bytes behind the chunk, {most} are the most");
    }
    Ok(stored)
}

/// How many of the `stored` bytes from the beginning of a slot on may belong to its chunk, whose first bytes
/// are `head`, and to its trailer.
pub fn slot_bytes(head: &[u8], stored: usize, trailers: bool) -> usize {
    // What is wrong with a header is reported when the chunk is read.
    let Ok(header) = parse_header(head, stored) else { return stored };
    let tail = if trailers { most_trailer_bytes(&header) } else { 0 };
    stored.min(header.cbytes.saturating_add(tail))
}

fn most_trailer_bytes(header: &Header) -> usize {
    4 * header.nbytes.div_ceil(header.blocksize.max(1)) + 4096
}

/// The checksums of a chunk, if it has any.
struct Checks<'a> {
    found: Option<(Trailer<'a>, Cow<'a, Spans>)>,
    /// The blocks that need not be compared any more.
    compared: Option<&'a Compared>,
}

impl<'a> Checks<'a> {
    /// Parse the trailer, and compare everything but the blocks.
    fn new(decoder: &Decoder<'_>, chunk: &[u8], tail: &'a [u8], expected: &Expected, rows: usize) -> Outcome<Self> {
        if tail.is_empty() {
            return Ok(Self { found: None, compared: None });
        }
        let front = trailer::front(decoder.header);
        let spans = Spans::of(decoder.header, decoder.starts)?;
        let found = Trailer::parse(tail)?;
        // The chunk in a slot has all rows; those that did not count when it was written mean nothing.
        let counted = if expected.slotted { found.rows().min(rows) } else { rows };
        found.check(&chunk[..front], spans.count(), expected.stated, counted)?;
        Ok(Self { found: Some((found, Cow::Owned(spans))), compared: None })
    }

    /// The blocks that hold the wanted items; also of a chunk that is stored uncompressed.
    fn blocks(&self, decoder: &Decoder<'_>, wanted: &Geometry) -> Range<usize> {
        if !decoder.header.memcpyed() || self.found.is_none() {
            return decoder.blocks_of(wanted);
        }
        let (first, end) = wanted.span();
        let (size, block) = (wanted.itemsize(), decoder.header.blocksize);
        first * size / block..(end * size).div_ceil(block)
    }

    fn check(&self, window: Window<'_>, blocks: Range<usize>) -> Outcome<()> {
        let Some((trailer, spans)) = &self.found else { return Ok(()) };
        for index in blocks {
            if self.compared.is_some_and(|compared| compared.has(index)) {
                continue;
            }
            let span = spans.span(index);
            let (start, end) = (span.start - window.offset, span.end - window.offset);
            trailer.check_block(index, &window.bytes[start..end])?;
            if let Some(compared) = self.compared {
                compared.add(index);
            }
        }
        Ok(())
    }

    fn reads(
        &self,
        decoder: &Decoder<'_>,
        blocks: Range<usize>,
        wanted: &Geometry,
    ) -> Outcome<Vec<(Range<usize>, Range<usize>)>> {
        match &self.found {
            Some((_, spans)) if decoder.header.memcpyed() && !blocks.is_empty() => {
                let span = spans.span(blocks.start).start..spans.span(blocks.end - 1).end;
                Ok(vec![(blocks, span)])
            }
            _ => partial_read::reads(decoder, blocks, wanted),
        }
    }
}

/// Write the slot of `chunk` to `out`: chunk, trailer.
pub fn pack_slot(chunk: &[u8], zone: &[u8], stated: Stated, rows: usize, out: &mut Vec<u8>) -> Outcome<()> {
    out.clear();
    out.extend_from_slice(chunk);
    trailer::pack(chunk, stated, rows, zone, out)
}

/// Write the file of `chunk` to `out`: head, chunk, trailer.
pub fn pack(chunk: &[u8], zone: &[u8], stated: Stated, rows: usize, out: &mut Vec<u8>) -> Outcome<()> {
    out.clear();
    out.extend_from_slice(&FRAME);
    out.extend_from_slice(chunk);
    trailer::pack(chunk, stated, rows, zone, out)
}
