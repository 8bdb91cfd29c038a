//! Whole chunks in memory, each decoded into or encoded from an array of its own shape.
//!
//! For what no box describes: single points, chunks of several lengths, chunks that are merged by the
//! caller. Many chunks are shared out over threads.

use crate::array::chunk_file::{self, Expected};
use crate::array::coding::Compression;
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::rows;
use crate::array::scatter::{Axis, Destination, Geometry, Region, Source, SourceMemory};
use crate::array::selection::WORTH_A_THREAD;
use crate::array::slots;
use crate::array::staging::{copied, is_all};
use crate::array::stored::HeldChunk;
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::Extent;
use crate::interrupt::Interrupt;
use crate::memory::{grow, reserved};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chunk to decode: its number, its shape, what is stored of it, and the memory for its items, in C
/// order.
pub struct ToDecode<'a> {
    pub number: usize,
    pub shape: &'a [usize],
    pub stored: HeldChunk<'a>,
    pub out: Destination<'a>,
}

/// A chunk to encode: its number, its shape and its items, in C order.
pub struct ToEncode<'a> {
    pub number: usize,
    pub shape: &'a [usize],
    pub items: SourceMemory<'a>,
    pub bytes: usize,
}

/// Decode chunks. A chunk that is absent gets the fill value.
pub fn decode(
    layout: &Layout,
    chunks: Vec<ToDecode<'_>>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Failure>> {
    let bytes = chunks.iter().fold(0usize, |sum, chunk| sum.saturating_add(chunk.out.len()));
    let threads = count_threads(threads, chunks.len(), bytes);
    let queue = Mutex::new(chunks.into_iter());
    let failures = Failures::default();
    interrupt.share(threads, workspace, |workspace| {
        let Some(chunk) = queue.lock().expect("no thread panics").next() else {
            return Ok(false);
        };
        let number = chunk.number;
        match decode_one(layout, chunk, workspace) {
            Ok(()) => Ok(true),
            Err(error) if error.kind == Kind::Argument => Err(error),
            Err(error) => Ok(failures.note(Failure { coords: vec![number], key: String::new(), error })),
        }
    })?;
    Ok(failures.into_inner())
}

fn decode_one(layout: &Layout, chunk: ToDecode<'_>, workspace: &mut Workspace) -> Outcome<()> {
    let ToDecode { number, shape, stored, out } = chunk;
    let Layout { coding, grid, .. } = layout;
    let Workspace { scratch, buffers, chunk, .. } = workspace;
    let memory = out.into_slice();
    let expected = memory.len();
    let mut region = Region::new(&axes(layout, shape, expected)?, grid.itemsize, 0, memory)?;
    let extent = match stored {
        HeldChunk::Stored(bytes) | HeldChunk::Numbered(bytes, _) => Extent::held("", bytes),
        HeldChunk::File(extent) => extent,
        HeldChunk::Pieces(..) => return Err(Error::new(Kind::Argument, "whole chunks do not come in pieces")),
        HeldChunk::Absent if coding.framed => return corrupt!("the chunk is missing"),
        HeldChunk::Absent => {
            region.fill(&grid.fill);
            return Ok(());
        }
        HeldChunk::Constant(item) if item.len() == grid.itemsize => {
            region.fill(item);
            return Ok(());
        }
        HeldChunk::Constant(_) => return Err(Error::new(Kind::Argument, "a constant of another size than an item")),
    };
    if coding.framed {
        let rows = Expected {
            stated: grid.stated(number),
            row_bytes: grid.row_bytes(),
            least: expected / grid.row_bytes(),
            most: grid.chunk[0],
            slotted: false,
        };
        chunk_file::decode(&extent, &rows, (expected, None), |_| Ok(&mut region), scratch, buffers)?;
        return Ok(());
    }
    if coding.slotted {
        return slots::read(grid, &extent, number, None, &mut region, scratch, buffers);
    }
    coding.read_verified(&layout.verified, &extent, expected, &mut region, scratch, buffers, chunk)
}

/// Encode chunks, in their order. With `sparse`, there are no bytes for one that holds nothing but the
/// fill value.
pub fn encode(
    layout: &Layout,
    chunks: &[ToEncode<'_>],
    sparse: bool,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Option<Vec<u8>>>> {
    let bytes = chunks.iter().fold(0usize, |sum, chunk| sum.saturating_add(chunk.bytes));
    let mut made = reserved(chunks.len())?;
    made.resize_with(chunks.len(), || None);
    let made = Mutex::new(made);
    let next = AtomicUsize::new(0);
    interrupt.share(count_threads(threads, chunks.len(), bytes), workspace, |workspace| {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = chunks.get(index) else {
            return Ok(false);
        };
        let encoded = encode_one(layout, chunk, sparse, workspace)?;
        made.lock().expect("no thread panics")[index] = encoded;
        Ok(true)
    })?;
    Ok(made.into_inner().expect("no thread panics"))
}

fn encode_one(
    layout: &Layout,
    chunk: &ToEncode<'_>,
    sparse: bool,
    workspace: &mut Workspace,
) -> Outcome<Option<Vec<u8>>> {
    let Layout { coding, grid, .. } = layout;
    let Workspace { scratch, chunk: gathered, packer, framed, .. } = workspace;
    let axes = axes(layout, chunk.shape, chunk.bytes)?;
    let source = Source::new(Geometry::new(&axes, grid.itemsize, 0, chunk.bytes)?, chunk.items);
    // A zone map must fit what is encoded, and another thread may write to the caller's memory.
    let items = match source.as_slice() {
        Some(items) if grid.items.is_none() => items,
        _ => {
            let memory = grow(gathered, chunk.bytes)?;
            source.gather(memory);
            memory
        }
    };
    if sparse && is_all(items, &grid.fill) {
        return Ok(None);
    }
    if coding.framed {
        let Compression::Blosc(recipe) = coding.compression else {
            return Err(Error::new(Kind::Argument, "only Blosc chunks have a head and a trailer"));
        };
        rows::pack(recipe, grid, items, chunk.number, scratch, packer, framed)?;
        return copied(framed).map(Some);
    }
    if coding.slotted {
        let rows = slots::counted_rows(grid, chunk.number);
        slots::pack(coding, grid, items, chunk.number, rows, scratch, packer, framed)?;
        return copied(framed).map(Some);
    }
    coding.encode(items, scratch, packer, copied).map(Some)
}

/// The axes of a chunk in the order in which they are stored; all of it, in C order, is `bytes` long.
fn axes(layout: &Layout, shape: &[usize], bytes: usize) -> Outcome<Vec<Axis>> {
    let grid = &layout.grid;
    let wrong = || Error::new(Kind::Argument, format!("a chunk of shape {shape:?} in {bytes} bytes"));
    let mut strides = vec![0; shape.len()];
    let mut size = grid.itemsize;
    for (stride, length) in strides.iter_mut().zip(shape).rev() {
        *stride = size as isize;
        size = size.checked_mul(*length).ok_or_else(wrong)?;
    }
    let order = &grid.order;
    if order.len() != shape.len() || size != bytes || bytes == 0 {
        return Err(wrong());
    }
    let axis =
        |axis: &usize| Axis { size: shape[*axis], start: 0, count: shape[*axis], step: 1, stride: strides[*axis] };
    Ok(order.iter().map(axis).collect())
}

fn count_threads(allowed: usize, chunks: usize, bytes: usize) -> usize {
    allowed.min(chunks).min(bytes / WORTH_A_THREAD + 1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::addresses::Addresses;
    use crate::array::coding::Coding;
    use crate::array::grid::Grid;
    use crate::checksum::Checksum;
    use crate::files::verified::Verify;
    use std::sync::Arc;

    fn layout(order: Vec<usize>) -> Layout {
        let checksum = Some(Checksum::Crc32c);
        let coding =
            Coding { compression: Compression::Raw, checksum, verify: Verify::Always, framed: false, slotted: false };
        let axes = order.len();
        let grid = Grid::new(vec![9; axes], vec![3; axes], order, vec![7], None, None, Vec::new()).unwrap();
        Layout::new(Arc::new(Addresses::Handed), coding, grid).unwrap()
    }

    fn encoded(layout: &Layout, shape: &[usize], items: &[u8]) -> Vec<Option<Vec<u8>>> {
        let chunks = [ToEncode { number: 0, shape, items: items.into(), bytes: items.len() }];
        encode(layout, &chunks, true, 1, &mut Workspace::default(), &Interrupt::never()).unwrap()
    }

    fn decoded(layout: &Layout, shape: &[usize], stored: HeldChunk<'_>, out: &mut [u8]) -> Vec<Failure> {
        // SAFETY: the slice is borrowed mutably, and outlives the call.
        let memory = unsafe { Destination::new(out.as_mut_ptr(), out.len()) };
        let chunks = vec![ToDecode { number: 5, shape, stored, out: memory }];
        decode(layout, chunks, 1, &mut Workspace::default(), &Interrupt::never()).unwrap()
    }

    #[test]
    fn chunks_of_any_shape_come_back_in_either_order() {
        for order in [vec![0, 1], vec![1, 0]] {
            let (layout, items) = (layout(order.clone()), [1, 2, 3, 4, 5, 6]);
            let made = encoded(&layout, &[2, 3], &items).remove(0).unwrap();
            assert_eq!(made[..6], if order[0] == 0 { [1, 2, 3, 4, 5, 6] } else { [1, 4, 2, 5, 3, 6] });
            let mut out = [0; 6];
            assert!(decoded(&layout, &[2, 3], HeldChunk::Stored(&made), &mut out).is_empty());
            assert_eq!(out, items);
        }
    }

    #[test]
    fn absent_and_constant_chunks_are_filled_and_a_damaged_one_is_reported() {
        let (layout, mut out) = (layout(vec![0]), [0; 3]);
        assert!(decoded(&layout, &[3], HeldChunk::Absent, &mut out).is_empty());
        assert_eq!(out, [7; 3]);
        assert!(decoded(&layout, &[3], HeldChunk::Constant(&[9]), &mut out).is_empty());
        assert_eq!(out, [9; 3]);
        assert!(encoded(&layout, &[3], &[7; 3])[0].is_none());
        let failures = decoded(&layout, &[3], HeldChunk::Stored(&[1, 2, 3, 0, 0, 0, 0]), &mut out);
        assert_eq!((failures[0].coords.clone(), failures[0].error.kind), (vec![5], Kind::Corruption));
    }
}
