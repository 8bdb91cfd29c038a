//! Single rows of an array, in any place.
//!
//! For arrays of chunk files (`rows`). A chunk is opened once for all rows that are wanted of it, and
//! only the blocks that hold any of them are decoded.

use crate::array::chunk_file::OpenChunk;
use crate::array::grid::Grid;
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::rows::RowChunks;
use crate::array::scatter::{Axis, Region};
use crate::array::stored::Held;
use crate::array::workspace::Workspace;
use crate::chunk::header::{Filter, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome};
use crate::interrupt::Interrupt;
use crate::memory::{grow, grow_aligned, push};
use std::sync::Mutex;

/// With fewer chunks for each, a second thread costs more than it brings.
const CHUNKS_PER_THREAD: usize = 2;
/// Up to so many rows of a block are looked up in its planes; for more, all of it is decoded.
const FEW: usize = 4;

/// A part of the result, and which rows of which chunk it holds.
struct Part<'a> {
    number: usize,
    wanted: &'a [i64],
    out: &'a mut [u8],
}

/// Copy `rows`, which ascend, to `out`, one behind the other.
pub fn gather(
    layout: &Layout,
    rows: &[i64],
    out: &mut [u8],
    held: Option<&Held<'_>>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Failure>> {
    if !layout.coding.framed && !layout.coding.slotted {
        return argument("single rows are read from chunk files only");
    }
    let (size, length) = (layout.grid.row_bytes(), layout.grid.chunk[0] as i64);
    check_rows(&layout.grid, rows, out.len())?;
    let mut parts = Vec::new();
    let mut rest = out;
    for wanted in rows.chunk_by(|one, next| one / length == next / length) {
        let (out, behind) = rest.split_at_mut(wanted.len() * size);
        push(&mut parts, Part { number: (wanted[0] / length) as usize, wanted, out })?;
        rest = behind;
    }
    let chunks = RowChunks::open(layout, held)?;
    let threads = threads.min(parts.len() / CHUNKS_PER_THREAD).max(1);
    let queue = Mutex::new(parts.into_iter());
    let failures = Failures::default();
    interrupt.share(threads, workspace, |workspace| {
        let Some(Part { number, wanted, out }) = queue.lock().expect("no thread panics").next() else {
            return Ok(false);
        };
        let Workspace { scratch, buffers, chunk, .. } = workspace;
        let first = number as i64 * length;
        let row = |index: usize| (wanted[index] - first) as usize;
        let done = chunks
            .visit(number, out.len(), buffers, |open| gather_rows(open, row, wanted.len(), size, out, scratch, chunk));
        Ok(done.map_or_else(|failure| failures.note(failure), |()| true))
    })?;
    Ok(failures.into_inner())
}

fn check_rows(grid: &Grid, rows: &[i64], bytes: usize) -> Outcome<()> {
    if rows.len().checked_mul(grid.row_bytes()) != Some(bytes) {
        return argument("the rows do not fit the memory that they are to fill");
    }
    let inside = rows.first().is_none_or(|row| *row >= 0)
        && rows.last().is_none_or(|row| (*row as usize) < grid.shape[0])
        && rows.is_sorted();
    if !inside {
        return Err(Error::new(Kind::Selection, format!("rows do not ascend from 0 to {}", grid.shape[0])));
    }
    Ok(())
}

pub fn argument<T>(text: &str) -> Outcome<T> {
    Err(Error::new(Kind::Argument, text))
}

/// Whether blocks can be decoded one by one, and single items looked up in their planes.
pub fn is_simple(header: &Header) -> bool {
    let filters = header.rest.is_empty() || (header.filter == Filter::None && !header.rest.has_delta());
    !header.memcpyed() && header.special.is_none() && !header.variable && filters && header.nbytes > 0
}

/// Copy `count` rows of a chunk, of `size` bytes each, number `index` of them being `row(index)`.
fn gather_rows(
    mut open: OpenChunk<'_>,
    row: impl Fn(usize) -> usize,
    count: usize,
    size: usize,
    out: &mut [u8],
    scratch: &mut Scratch,
    plain: &mut Vec<u8>,
) -> Outcome<()> {
    let decoder = open.decoder;
    let header = decoder.header;
    if !is_simple(header) {
        let bytes = decode_all(&mut open, scratch, plain)?;
        for (index, out) in out.chunks_exact_mut(size).enumerate() {
            out.copy_from_slice(&bytes[row(index) * size..][..size]);
        }
        return Ok(());
    }
    let mut first = 0;
    let mut block = row(0) * size / header.blocksize;
    while first < count {
        let range = header.block_range(block);
        let last = first + (first..count).take_while(|index| row(*index) * size < range.end).count();
        let window = open.block(block)?;
        let inside = row(first) * size >= range.start && (row(last - 1) + 1) * size <= range.end;
        if last - first == 1 && inside {
            // Every block is visited once, so that looking up is paid for once.
            let axis = Axis { size: header.nbytes / size, start: row(first), count: 1, step: 1, stride: size as isize };
            let mut region = Region::new(&[axis], size, 0, &mut out[first * size..][..size])?;
            decoder.decode_region(window, block..block + 1, &mut region, scratch)?;
            first = last;
            block = if first < count { row(first) * size / header.blocksize } else { block };
            continue;
        }
        let few = last - first <= FEW && inside && header.filter == Filter::Shuffle && size == header.typesize;
        if few && header.filtered_items(range.len()) * size == range.len() {
            let block = decoder.block(window, block)?;
            let each = header.filtered_items(block.size);
            let filtered = grow_aligned(&mut scratch.filtered, block.size)?;
            let planes = decoder.decode_planes(&block, &mut scratch.codecs, filtered, each)?;
            for index in first..last {
                let item = (row(index) * size - range.start) / size;
                planes.unshuffle(item, size, &mut out[index * size..][..size]);
            }
        } else {
            let bytes = grow(plain, range.len())?;
            decoder.decode_block(window, block, bytes, None, scratch)?;
            for index in first..last {
                let begin = row(index) * size;
                let (from, to) = (begin.max(range.start), (begin + size).min(range.end));
                out[index * size + from - begin..][..to - from]
                    .copy_from_slice(&bytes[from - range.start..to - range.start]);
            }
        }
        // A row may continue in the next block.
        first = if (row(last - 1) + 1) * size > range.end { last - 1 } else { last };
        block = if first < last {
            block + 1
        } else if first < count {
            row(first) * size / header.blocksize
        } else {
            block
        };
    }
    Ok(())
}

/// All items of a chunk.
pub fn decode_all<'p>(open: &mut OpenChunk<'_>, scratch: &mut Scratch, plain: &'p mut Vec<u8>) -> Outcome<&'p [u8]> {
    let decoder = open.decoder;
    let bytes = open.all()?;
    let out = grow(plain, decoder.header.nbytes)?;
    decoder.decode_whole(bytes, out, scratch, 1, &Interrupt::never())?;
    Ok(out)
}
