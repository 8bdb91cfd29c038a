//! A box of an array, cut by its grid, and the memory that it is read into or written from.
//!
//! `unsafe`: threads write the parts of several chunks into one destination at the same time.
//! `Selection::new` finds out whether any two items of the destination share a byte. Where none do,
//! the parts of two chunks are disjoint, and each part can be claimed by one region at a time;
//! otherwise (memory that was broadcast) there is one claim for all of the destination.

use crate::array::grid::{AxisParts, Cut, Part, RangeParts, bounded_parts};
use crate::array::index_arrays::{self, IndexList};
use crate::array::layout::Layout;
use crate::array::scatter::{Axis, Destination, Geometry, Memory, Region, Source, SourceMemory};
use crate::error::{Error, Kind, Outcome};
use crate::memory::{grow, out_of_memory};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below this much decoded data a second thread costs more than it brings.
pub const WORTH_A_THREAD: usize = 1 << 20;

/// A usual size of blocks, which are decoded whole.
const BLOCK_BYTES: usize = 128 << 10;

/// Memory with a shape: `origin` is the offset of the first item, and neighbours along an axis lie
/// a stride apart.
pub struct Strided<'a, M> {
    pub memory: M,
    pub origin: isize,
    pub shape: &'a [usize],
    pub strides: &'a [isize],
}

/// A box of an array, cut by its grid.
pub struct Selection<'a, M> {
    pub layout: &'a Layout,
    /// Per axis of the array.
    parts: Vec<AxisParts>,
    steps: Vec<usize>,
    /// Per axis of the array; empty when all axes are ranges.
    lists: Vec<Vec<IndexList>>,
    count: usize,
    nbytes: usize,
    memory: M,
    strides: Vec<isize>,
    origin: isize,
    claims: Claims,
}

impl<'a, M: Memory> Selection<'a, M> {
    /// Cut a box: per axis its first index and the (signed) step. An axis that has an index array
    /// in `indices` has those indices instead.
    pub fn new(
        layout: &'a Layout,
        starts: &[usize],
        steps: &[isize],
        indices: &[Option<Vec<i64>>],
        memory: Strided<'_, M>,
    ) -> Outcome<Self> {
        let grid = &layout.grid;
        let dimensions = grid.shape.len();
        let Strided { memory, mut origin, shape: counts, strides } = memory;
        let lengths = [starts.len(), counts.len(), steps.len(), strides.len()];
        if lengths.iter().any(|length| *length != dimensions) {
            return Err(Error::new(Kind::Argument, format!("the array has {dimensions} axes, not {lengths:?}")));
        }
        let fits = |(indices, count): (&Option<Vec<i64>>, &usize)| indices.as_ref().is_none_or(|i| i.len() == *count);
        if !indices.is_empty() && (indices.len() != dimensions || !indices.iter().zip(counts).all(fits)) {
            return Err(Error::new(Kind::Argument, "the index arrays do not have the shape of the result"));
        }
        let mut strides = strides.to_vec();
        let (mut parts, mut absolute_steps) = (Vec::with_capacity(dimensions), Vec::with_capacity(dimensions));
        let mut lists = Vec::new();
        lists.resize_with(indices.len(), Vec::new);
        let mut count = 1usize;
        for axis in 0..dimensions {
            let (length, chunks) = (grid.shape[axis], grid.cut(axis));
            let cut = if let Some(Some(indices)) = indices.get(axis) {
                let (cut, cut_lists) = index_arrays::cut(indices, length, chunks)?;
                lists[axis] = cut_lists;
                absolute_steps.push(1);
                AxisParts::Listed(cut)
            } else {
                let (mut start, count, step) = (starts[axis], counts[axis], steps[axis]);
                let last = start as i128 + (count as i128 - 1) * step as i128;
                if count == 0 || step == 0 || start >= length || last < 0 || last >= length as i128 {
                    let text = format!("axis {axis}: {count} items from {start} by {step} of {length}");
                    return Err(Error::new(Kind::Selection, text));
                }
                if step < 0 {
                    // The same items from the other end.
                    origin += (count as isize - 1) * strides[axis];
                    strides[axis] = -strides[axis];
                    start = last as usize;
                }
                let step = step.unsigned_abs();
                absolute_steps.push(step);
                match chunks {
                    Cut::Regular(chunk) => AxisParts::of_range(RangeParts::new(start, count, step, chunk)),
                    Cut::Rectilinear(bounds) => AxisParts::Listed(bounded_parts(start, count, step, bounds)?),
                }
            };
            count = count.saturating_mul(cut.len());
            parts.push(cut);
        }
        let claims = match M::WRITTEN {
            true => Claims::new(count, || is_disjoint(counts, &strides, grid.itemsize))?,
            false => Claims::default(),
        };
        let nbytes = counts.iter().fold(grid.itemsize, |size, count| size.saturating_mul(*count));
        Ok(Self { layout, parts, steps: absolute_steps, lists, count, nbytes, memory, strides, origin, claims })
    }

    /// How many chunks the box touches.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all items of the box.
    pub fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// The parts of an axis.
    pub fn parts(&self, axis: usize) -> &AxisParts {
        &self.parts[axis]
    }

    pub fn steps(&self) -> &[usize] {
        &self.steps
    }

    /// What is wanted of chunk `number`, in C order over the chunks.
    pub fn chunk(&self, number: usize) -> ChunkPart<'_, M> {
        assert!(number < self.count, "a chunk outside the selection");
        let mut rest = number;
        let digit = |parts: &AxisParts| {
            let (length, number) = (parts.len(), rest);
            rest /= length;
            parts.part(number % length)
        };
        let mut parts: Vec<Part> = self.parts.iter().rev().map(digit).collect();
        parts.reverse();
        ChunkPart { selection: self, number, parts }
    }

    /// The number of the chunk that has part `numbers[axis]` of every axis.
    pub fn number(&self, numbers: impl Iterator<Item = usize>) -> usize {
        self.parts.iter().zip(numbers).fold(0, |number, (parts, part)| number * parts.len() + part)
    }

    /// About how many bytes have to be decoded of `chunks` chunks: of each all between the first
    /// and the last wanted item, and no less than a block.
    pub fn work(&self, chunks: usize) -> Outcome<usize> {
        let grid = &self.layout.grid;
        if !self.lists.is_empty() {
            return Ok(chunks.saturating_mul(grid.chunk_bytes));
        }
        let (first, end) = self.chunk(0).geometry()?.span();
        let each = ((end - first) * grid.itemsize).max(BLOCK_BYTES).min(grid.chunk_bytes);
        Ok(chunks.saturating_mul(each))
    }

    /// How many threads are worth having for this much work; one, where they would write the same bytes.
    pub fn threads(&self, allowed: usize, bytes: usize) -> usize {
        let allowed = if M::WRITTEN && self.claims.is_single { 1 } else { allowed };
        worth(allowed, self.count, bytes)
    }
}

/// How many threads are worth having for so many chunks, and this much work.
pub fn worth(allowed: usize, chunks: usize, bytes: usize) -> usize {
    allowed.min(chunks).min(bytes / WORTH_A_THREAD + 1).max(1)
}

/// The files that a call visits, of those that a selection touches: all, or those of given numbers. A
/// file is a chunk or a shard; numbers are in C order.
pub struct Files<'a> {
    only: Option<&'a [usize]>,
    visited: Range<usize>,
}

impl<'a> Files<'a> {
    /// Number `range` of the files in `only`, or of all `touched` files.
    pub fn new(only: Option<&'a [usize]>, touched: usize, range: Range<usize>) -> Outcome<Self> {
        if only.is_some_and(|numbers| numbers.iter().any(|number| *number >= touched)) {
            return Err(Error::new(Kind::Argument, format!("the selection touches {touched} files only")));
        }
        let end = range.end.min(only.map_or(touched, <[usize]>::len));
        Ok(Self { only, visited: range.start.min(end)..end })
    }

    pub fn len(&self) -> usize {
        self.visited.len()
    }

    /// The number of visited file `index` among those that the selection touches.
    pub fn number(&self, index: usize) -> Option<usize> {
        let place = self.visited.start.checked_add(index).filter(|place| *place < self.visited.end)?;
        Some(self.only.map_or(place, |numbers| numbers[place]))
    }
}

/// What a selection wants of one chunk.
pub struct ChunkPart<'s, M> {
    selection: &'s Selection<'s, M>,
    number: usize,
    /// Per axis of the array.
    parts: Vec<Part>,
}

impl<M: Memory> ChunkPart<'_, M> {
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub fn coords(&self) -> Vec<usize> {
        self.parts.iter().map(|part| part.chunk).collect()
    }

    /// The size of the decoded chunk.
    pub fn bytes(&self) -> usize {
        let grid = &self.selection.layout.grid;
        if !grid.is_rectilinear() {
            return grid.chunk_bytes;
        }
        let lengths = self.parts.iter().enumerate().map(|(axis, part)| grid.cut(axis).length(part.chunk));
        lengths.product::<usize>() * grid.itemsize
    }

    /// The box around all wanted items of the chunk, in a memory of its own.
    pub fn enclosing(&self) -> Outcome<Geometry> {
        let order = &self.selection.layout.grid.order;
        let axes: Vec<Axis> = order.iter().map(|axis| self.axis(*axis, 0)).collect();
        let itemsize = self.selection.layout.grid.itemsize;
        Geometry::new(&axes, itemsize, 0, itemsize)
    }

    /// The wanted box of the chunk, and where its items lie in the memory. Only for ranges.
    pub fn geometry(&self) -> Outcome<Geometry> {
        let Selection { layout, strides, origin, memory, .. } = self.selection;
        let mut origin = *origin;
        for (part, stride) in self.parts.iter().zip(strides) {
            origin += part.position as isize * stride;
        }
        let axes: Vec<Axis> = layout.grid.order.iter().map(|axis| self.axis(*axis, strides[*axis])).collect();
        Geometry::new(&axes, layout.grid.itemsize, origin, memory.bytes())
    }

    fn axis(&self, axis: usize, stride: isize) -> Axis {
        let Part { chunk, start, count, list, .. } = self.parts[axis];
        let step = if list.is_some() { 1 } else { self.selection.steps[axis] };
        Axis { size: self.selection.layout.grid.cut(axis).length(chunk), start, count, step, stride }
    }
}

impl ChunkPart<'_, Destination<'_>> {
    /// Let `decode` write what is wanted of the chunk. `enclosing` is memory for the box around
    /// items that are no box.
    pub fn write(&self, enclosing: &mut Vec<u8>, decode: impl FnOnce(&mut Region<'_>) -> Outcome<()>) -> Outcome<()> {
        let Selection { layout, memory, claims, strides, origin, lists, .. } = self.selection;
        let _claim = claims.take(self.number);
        if self.parts.iter().all(|part| part.list.is_none()) {
            // SAFETY: the part of this chunk is claimed, and shares no byte with other parts.
            return decode(&mut unsafe { Region::shared(self.geometry()?, memory) });
        }
        let itemsize = layout.grid.itemsize;
        let mut box_strides = vec![itemsize; self.parts.len()];
        for axis in (1..self.parts.len()).rev() {
            box_strides[axis - 1] = box_strides[axis] * self.parts[axis].count;
        }
        let enclosing = grow(enclosing, box_strides[0] * self.parts[0].count)?;
        let axes: Vec<Axis> =
            layout.grid.order.iter().map(|axis| self.axis(*axis, box_strides[*axis] as isize)).collect();
        decode(&mut Region::new(&axes, itemsize, 0, enclosing)?)?;
        // SAFETY: as above; parts of an axis have no position in common.
        unsafe {
            index_arrays::scatter(&self.parts, lists, enclosing, &box_strides, memory, *origin, strides, itemsize)
        };
        Ok(())
    }
}

impl<'m> ChunkPart<'_, SourceMemory<'m>> {
    /// The items of the memory that belong to the chunk. Only for ranges.
    pub fn source(&self) -> Outcome<Source<'m>> {
        Ok(Source::new(self.geometry()?, self.selection.memory))
    }
}

/// Which parts of a destination are being written.
#[derive(Default)]
struct Claims {
    /// Whether there is one claim for all parts.
    is_single: bool,
    /// A bit for each of the first parts.
    first: AtomicU64,
    /// A bit for each of the others.
    others: Vec<AtomicU64>,
}

impl Claims {
    fn new(count: usize, is_disjoint: impl FnOnce() -> bool) -> Outcome<Self> {
        let is_single = count <= 1 || !is_disjoint();
        let words = if is_single { 0 } else { count.div_ceil(64) - 1 };
        let mut others = Vec::new();
        others.try_reserve_exact(words).map_err(|_| out_of_memory(8 * words))?;
        others.resize_with(words, AtomicU64::default);
        Ok(Self { is_single, first: AtomicU64::default(), others })
    }

    fn take(&self, number: usize) -> Claim<'_> {
        let number = if self.is_single { 0 } else { number };
        let word = if number < 64 { &self.first } else { &self.others[number / 64 - 1] };
        let bit = 1 << (number % 64);
        let before = word.fetch_or(bit, Ordering::Acquire);
        assert!(before & bit == 0, "a part of the destination is written by two regions at once");
        Claim { word, bit }
    }
}

/// The right to write a part of a destination, given back when it is dropped.
struct Claim<'c> {
    word: &'c AtomicU64,
    bit: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!self.bit, Ordering::Release);
    }
}

/// Whether no two items of a strided memory share a byte. Strides that interleave without meeting
/// are taken for ones that do: each axis has to step over all of the axes with shorter strides.
fn is_disjoint(counts: &[usize], strides: &[isize], itemsize: usize) -> bool {
    let axes = counts.iter().zip(strides).filter(|(count, _)| **count > 1);
    let mut axes: Vec<(usize, usize)> = axes.map(|(count, stride)| (stride.unsigned_abs(), *count)).collect();
    axes.sort_unstable();
    let mut span = itemsize as u128;
    axes.iter().all(|(stride, count)| {
        let apart = *stride as u128 >= span;
        span += *stride as u128 * (*count as u128 - 1);
        apart
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_that_share_bytes_are_found() {
        assert!(is_disjoint(&[], &[], 4));
        assert!(is_disjoint(&[10, 20], &[80, 4], 4));
        assert!(is_disjoint(&[20, 10], &[4, 80], 4), "transposed");
        assert!(is_disjoint(&[5, 10], &[-800, 8], 4), "every second item, rows from the end");
        assert!(is_disjoint(&[1, 10], &[0, 4], 4), "one row has no next one");
        assert!(!is_disjoint(&[2, 10], &[0, 4], 4), "broadcast");
        assert!(!is_disjoint(&[9, 3], &[4, 4], 4), "windows that slide");
        assert!(!is_disjoint(&[10], &[3], 4));
    }

    #[test]
    fn files_are_visited_in_ranges() {
        let found = |only: Option<&[usize]>, range| {
            let files = Files::new(only, 10, range).unwrap();
            (0..files.len() + 1).map_while(|index| files.number(index)).collect::<Vec<_>>()
        };
        assert_eq!(found(None, 8..20), [8, 9]);
        assert_eq!(found(Some(&[1, 5, 9]), 1..20), [5, 9]);
        assert!(found(Some(&[]), 0..20).is_empty() && found(None, 30..40).is_empty());
        assert!(Files::new(Some(&[10]), 10, 0..1).is_err());
    }

    #[test]
    fn a_claim_holds_until_it_is_dropped() {
        let claims = Claims::new(200, || true).unwrap();
        let first = claims.take(7);
        drop(claims.take(71));
        drop(first);
        drop(claims.take(7));
    }

    #[test]
    #[should_panic(expected = "two regions at once")]
    fn a_part_is_not_claimed_twice() {
        let claims = Claims::new(200, || true).unwrap();
        let _first = claims.take(7);
        claims.take(7);
    }

    #[test]
    #[should_panic(expected = "two regions at once")]
    fn parts_that_share_bytes_have_one_claim() {
        let claims = Claims::new(200, || false).unwrap();
        let _first = claims.take(7);
        claims.take(8);
    }
}
