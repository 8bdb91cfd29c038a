//! The blocks of one Blosc chunk that hold wanted bytes. Its header and block starts are checked; a chunk that is
//! not plainly sound, or that no kernel of a device decodes, is not taken: the caller decodes it, or finds out
//! what is wrong with it.

use crate::chunk::filters::pipeline::{BITSHUFFLE, BYTEDELTA, DELTA, SHUFFLE, SLOTS};
use crate::chunk::header::{EXTENDED_BYTES, HEADER_BYTES, Header, StreamFormat};
use crate::chunk::header2::{Header2, Special, implied};

/// Bytes that need no decoding are cut into parts of this size, each for one warp.
const PART: i64 = 1 << 16;
/// Reading up to this many unneeded bytes costs less than another read.
const SMALLEST_GAP: i64 = 4096;
/// The kinds of streams, as the kernels number them.
const PATTERN: u8 = 1;
const BLOSCLZ: u8 = 2;
const LZ4: u8 = 3;

/// A byte for each filter.
pub type Filters = [u8; SLOTS];

/// The record of a block, as the kernels have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub source: i64,
    pub source_end: i64,
    pub target: i64,
    pub reference: i64,
    pub direct: i64,
    pub nbytes: u32,
    pub typesize: u32,
    pub streams: u32,
    pub first_stream: u32,
    pub kind: u8,
    pub runs: u8,
    pub partial: u8,
    pub referring: u8,
    pub filters: Filters,
    pub metas: Filters,
}

/// Some bytes of a stored chunk: its size, and pieces with the place of the first byte of each. The first piece
/// begins with the chunk.
pub struct Stored<'a> {
    pub size: usize,
    pub pieces: Vec<(i64, &'a [u8])>,
}

/// Bytes of a piece of a chunk, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Piece { number: usize, start: usize, end: usize },
    Zero,
    Nan(usize),
}

impl Source {
    pub fn len(self) -> usize {
        match self {
            Self::Piece { start, end, .. } => end - start,
            Self::Zero => 1,
            Self::Nan(width) => width,
        }
    }
}

impl<'a> Stored<'a> {
    /// Where the bytes from one place to another lie; `None` unless they are in one piece.
    fn cut(&self, start: i64, end: i64) -> Option<Source> {
        self.pieces.iter().enumerate().find_map(|(number, (first, piece))| {
            let inside = *first <= start && start <= end && end <= first + piece.len() as i64;
            inside.then(|| Source::Piece { number, start: (start - first) as usize, end: (end - first) as usize })
        })
    }

    fn bytes(&self, source: Source) -> &'a [u8] {
        match source {
            Source::Piece { number, start, end } => &self.pieces[number].1[start..end],
            Source::Zero | Source::Nan(_) => &[],
        }
    }
}

/// What a chunk brings into a window: blocks whose places count from its own bytes.
pub struct Draft {
    /// The size of the room for the first block, where it lies by itself and others refer to it.
    pub reference: Option<i64>,
    pub room: i64,
    /// The decoded byte of the chunk that the room begins with.
    pub begin: i64,
    /// The buffer that has the items in the end.
    pub side: u32,
    pub blocks: Vec<Block>,
    /// The stored bytes of some blocks that follow each other, up to the one with this number.
    pub inputs: Vec<(usize, Source)>,
    /// Whether blocks refer to the first one.
    pub delta: bool,
}

/// The header of a chunk of `nbytes` decoded bytes; `None` where no kernel decodes it.
fn sound_header(stored: &Stored<'_>, nbytes: i64) -> Option<Header> {
    let nbytes = usize::try_from(nbytes).ok()?;
    let header = Header::parse(stored.pieces.first()?.1, stored.size, nbytes).ok()?;
    if header.nbytes != nbytes || nbytes == 0 {
        return None;
    }
    let plain = !header.variable && !header.dictionary;
    let decoded = plain && matches!(header.format, StreamFormat::Lz4 | StreamFormat::BloscLz);
    (header.block_count() == 0 || decoded).then_some(header)
}

/// The filters of a chunk that a reader undoes, in the order of encoding, and whether delta is among them.
fn steps(header: &Header, head: &[u8]) -> Option<Vec<(u8, u8)>> {
    let filters = if header.extended() {
        Header2::parse(head.get(HEADER_BYTES..)?.first_chunk()?, header.version).ok()?.filters
    } else {
        implied(header.flags)
    };
    let undone = [SHUFFLE, BITSHUFFLE, DELTA, BYTEDELTA];
    Some(filters.into_iter().filter(|(number, _)| undone.contains(number)).collect())
}

/// Where the blocks of a chunk begin and end: at the next start, or with the chunk. `None` unless all starts are
/// at hand, differ, and lie behind the starts themselves.
fn extents(header: &Header, stored: &Stored<'_>) -> Option<Vec<(i64, i64)>> {
    let (first, size) = (header.blocks_start() as i64, header.cbytes as i64);
    let raw = stored.bytes(stored.cut(header.header_bytes() as i64, first)?);
    let starts: Vec<i64> =
        raw.chunks_exact(4).map(|raw| i64::from(i32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]))).collect();
    let mut order: Vec<usize> = (0..starts.len()).collect();
    if !starts.is_sorted() {
        order.sort_by_key(|number| starts[*number]);
    }
    let mut found = vec![(0, 0); starts.len()];
    for (place, number) in order.iter().enumerate() {
        let (start, end) = (starts[*number], order.get(place + 1).map_or(size, |next| starts[*next]));
        if start < first || end <= start {
            return None;
        }
        found[*number] = (start, end);
    }
    Some(found)
}

/// The ascending numbers of the blocks that decoding some bytes takes; with delta also the first.
fn numbers(header: &Header, spans: &[(i64, i64)], delta: bool) -> Option<Vec<usize>> {
    let size = header.blocksize as i64;
    let mut wanted = vec![false; header.block_count()];
    for (begin, end) in spans {
        let (first, behind) = (usize::try_from(begin / size).ok()?, usize::try_from((end + size - 1) / size).ok()?);
        wanted.get_mut(first..behind)?.fill(true);
    }
    *wanted.first_mut()? |= delta;
    Some((0..wanted.len()).filter(|number| wanted[*number]).collect())
}

fn bounds(spans: &[(i64, i64)]) -> Option<(i64, i64)> {
    Some((spans.iter().map(|span| span.0).min()?, spans.iter().map(|span| span.1).max()?))
}

/// The size of a chunk, and the ranges of its bytes that hold wanted ones. `head` is its first bytes. Neighbouring
/// ranges are joined, small gaps included. `None` where that does not follow from the first bytes, where no
/// kernel decodes the chunk, and where most of it is needed.
pub fn needed(head: &[u8], nbytes: i64, spans: &[(i64, i64)]) -> Option<(i64, Vec<(i64, i64)>)> {
    let claim = i32::from_le_bytes(*head.get(12..)?.first_chunk()?);
    let stored = Stored { size: usize::try_from(claim).ok()?, pieces: vec![(0, head)] };
    let header = sound_header(&stored, nbytes)?;
    let size = header.cbytes as i64;
    if header.special.is_some() {
        return None;
    }
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    if header.memcpyed() {
        let ((begin, end), first) = (bounds(spans)?, header.header_bytes() as i64);
        ranges.push((first + begin, first + end));
    } else {
        let delta = steps(&header, head)?.iter().any(|(number, _)| *number == DELTA);
        let found = extents(&header, &stored)?;
        let mut wanted: Vec<_> = numbers(&header, spans, delta)?.into_iter().map(|number| found[number]).collect();
        wanted.sort_unstable();
        for (start, end) in wanted {
            match ranges.last_mut() {
                Some(last) if start - last.1 <= SMALLEST_GAP => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
    }
    let bytes: i64 = ranges.iter().map(|(start, end)| end - start).sum();
    (bytes < size / 4 * 3).then_some((size, ranges))
}

/// The blocks of a chunk that hold some of its `nbytes` decoded bytes; `None` where it is not taken, and where a
/// block that is needed lies in no piece of it.
pub fn draft(stored: &Stored<'_>, nbytes: i64, spans: &[(i64, i64)]) -> Option<Draft> {
    let header = sound_header(stored, nbytes)?;
    let (begin, end) = bounds(spans)?;
    if begin < 0 || end > nbytes {
        return None;
    }
    if let Some(special) = header.special {
        let source = match special {
            Special::Zeros | Special::Uninitialised => Source::Zero,
            Special::Nan => Source::Nan(header.typesize),
            Special::Repeated => stored.cut(EXTENDED_BYTES as i64, header.cbytes as i64)?,
        };
        return Some(repeated(source, begin, end));
    }
    if header.memcpyed() {
        let first = header.header_bytes() as i64;
        let source = stored.cut(first + begin, first + end)?;
        let mut blocks = parts(end - begin, PART);
        for block in &mut blocks {
            (block.source, block.source_end) = (block.target, block.target + i64::from(block.nbytes));
        }
        let inputs = vec![(blocks.len(), source)];
        return Some(Draft { reference: None, room: end - begin, begin, side: 0, blocks, inputs, delta: false });
    }
    of_blocks(&header, stored, spans, begin)
}

/// A chunk that repeats a value.
fn repeated(source: Source, begin: i64, end: i64) -> Draft {
    let width = source.len() as i64;
    // Parts begin with the value, so that all of them repeat the same bytes.
    let begin = begin - begin % width;
    let mut blocks = parts(end - begin, (PART / width).max(1) * width);
    for block in &mut blocks {
        (block.kind, block.source_end) = (PATTERN, width);
    }
    let inputs = vec![(blocks.len(), source)];
    Draft { reference: None, room: end - begin, begin, side: 0, blocks, inputs, delta: false }
}

/// Blocks of up to `step` plain bytes; their targets count from 0.
fn parts(size: i64, step: i64) -> Vec<Block> {
    let mut block = Block { direct: -1, typesize: 1, streams: 1, ..Block::default() };
    let mut found = Vec::new();
    for target in (0..size).step_by(step as usize) {
        (block.target, block.nbytes) = (target, step.min(size - target) as u32);
        found.push(block);
    }
    found
}

fn of_blocks(header: &Header, stored: &Stored<'_>, spans: &[(i64, i64)], begin: i64) -> Option<Draft> {
    let found = extents(header, stored)?;
    let steps = steps(header, stored.pieces.first()?.1)?;
    let delta = steps.iter().any(|(number, _)| *number == DELTA);
    let (size, nbytes, numbers) = (header.blocksize as i64, header.nbytes as i64, numbers(header, spans, delta)?);
    let mut record = Block {
        direct: -1,
        typesize: header.typesize as u32,
        streams: header.stream_count(header.blocksize) as u32,
        kind: if header.format == StreamFormat::Lz4 { LZ4 } else { BLOSCLZ },
        runs: u8::from(header.extended()),
        partial: u8::from(header.version > 2),
        ..Block::default()
    };
    for (place, (number, meta)) in steps.iter().enumerate() {
        (record.filters[place], record.metas[place]) = (*number, *meta);
    }
    // Delta refers to the first block, which lies by itself where later ones are wanted.
    let apart = numbers[0] == 0 && numbers.len() > 1 && begin >= size;
    let (first, last) = (numbers[usize::from(apart)] as i64, numbers[numbers.len() - 1] as i64);
    let mut inputs: Vec<(usize, Source)> = Vec::new();
    let mut joined = (0, 0);
    let mut blocks = Vec::with_capacity(numbers.len());
    for (place, number) in numbers.iter().enumerate() {
        let ((start, end), at) = (found[*number], *number as i64 * size);
        let short = nbytes < at + size;
        if place > 0 && start == joined.1 {
            joined.1 = end;
        } else {
            if place > 0 {
                inputs.push((place, stored.cut(joined.0, joined.1)?));
            }
            joined = (start, end);
        }
        blocks.push(Block {
            source: start - joined.0,
            source_end: end - joined.0,
            target: if apart && place == 0 { 0 } else { at - first * size },
            nbytes: size.min(nbytes - at) as u32,
            streams: if short { 1 } else { record.streams },
            referring: u8::from(delta && *number > 0),
            ..record
        });
    }
    inputs.push((blocks.len(), stored.cut(joined.0, joined.1)?));
    let turns = steps.iter().filter(|(number, _)| matches!(*number, SHUFFLE | BITSHUFFLE)).count();
    Some(Draft {
        reference: apart.then_some(size),
        room: nbytes.min((last + 1) * size) - first * size,
        begin: first * size,
        side: turns as u32 % 2,
        blocks,
        inputs,
        delta,
    })
}
