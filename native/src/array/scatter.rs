//! Where decoded items go: a box of a chunk, written into a strided destination.
//!
//! Knows geometry only. Positions are counted in the chunk's own bytes ("linear"), so the
//! decoder can hand over whatever block it has and ask what of it is wanted.
//!
//! `unsafe`: `Region::piece` makes a slice at an offset of the destination. That every
//! offset it can be asked for lies inside is checked once, in `Region::new`.

use crate::error::{Error, Kind, Outcome};
use std::ops::Range;

/// Memory of the caller that this call may write, and nobody reads while it does.
#[derive(Clone, Copy)]
pub struct Destination {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the pointer comes from a Python buffer that is held (and so neither moved nor
// freed) for the whole call; threads of one call write disjoint parts of it.
unsafe impl Send for Destination {}
unsafe impl Sync for Destination {}

impl Destination {
    /// # Safety
    /// `start..start + bytes` must stay valid for writes while the value is used.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// `bytes` of it from `offset` on, to be written at once; they must lie inside.
    #[allow(clippy::mut_from_ref, reason = "it names the memory, it does not own it")]
    pub fn piece(&self, offset: isize, bytes: usize) -> &mut [u8] {
        assert!(offset >= 0 && offset as usize + bytes <= self.bytes, "a place outside the destination");
        // SAFETY: inside by the check, valid by `new`.
        unsafe { std::slice::from_raw_parts_mut(self.start.offset(offset), bytes) }
    }

    /// All of it as one slice.
    ///
    /// # Safety
    /// Nobody else may use the memory while the slice lives.
    pub unsafe fn whole<'a>(self) -> &'a mut [u8] {
        // SAFETY: valid by `new`, unshared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

/// One axis of a box: `count` indices from `start` on, `step` apart, of `size` in the
/// chunk; neighbours lie `stride` bytes apart in the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pub size: usize,
    pub start: usize,
    pub count: usize,
    pub step: usize,
    pub stride: isize,
}

impl Axis {
    fn last(&self) -> usize {
        self.start + (self.count - 1) * self.step
    }
}

/// A box of a chunk and the place it goes to.
pub struct Region {
    itemsize: usize,
    /// Outermost first; neighbours that act as one are joined. Never empty.
    axes: Vec<Axis>,
    /// How many items one step along each axis is, in the chunk.
    pitches: Vec<usize>,
    /// Byte offset in the destination of the first item.
    origin: isize,
    destination: Destination,
}

/// Consecutive items of the chunk: `items` from linear item `start` on, `step` apart, the
/// first at byte `offset` of the destination and each next `stride` bytes further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: usize,
    pub items: usize,
    pub step: usize,
    pub offset: isize,
    pub stride: isize,
}

impl Run {
    /// Whether the items are neighbours on both sides.
    pub fn is_dense(&self, itemsize: usize) -> bool {
        self.items == 1 || (self.step == 1 && self.stride == itemsize as isize)
    }
}

impl Region {
    /// Check that the box lies inside its chunk and its image inside `destination`.
    pub fn new(axes: &[Axis], itemsize: usize, origin: isize, destination: Destination) -> Outcome<Self> {
        let wrong = |text: String| Err(Error::new(Kind::Argument, text));
        let (mut lowest, mut highest) = (origin as i128, origin as i128 + itemsize as i128);
        for (number, axis) in axes.iter().enumerate() {
            let end = (axis.count as u128 * axis.step as u128).saturating_sub(axis.step as u128) + axis.start as u128;
            if axis.count == 0 || axis.step == 0 || end >= axis.size as u128 {
                return wrong(format!("axis {number} of the box, {axis:?}, leaves its chunk"));
            }
            let reach = (axis.count as i128 - 1) * axis.stride as i128;
            lowest += reach.min(0);
            highest += reach.max(0);
        }
        if itemsize == 0 || lowest < 0 || highest > destination.bytes as i128 {
            return wrong(format!(
                "the box reaches bytes {lowest}..{highest} of a destination of {} bytes",
                destination.bytes
            ));
        }
        let axes = joined(axes, itemsize);
        let mut pitches = vec![1; axes.len()];
        for axis in (1..axes.len()).rev() {
            pitches[axis - 1] = pitches[axis] * axes[axis].size;
        }
        Ok(Self { itemsize, axes, pitches, origin, destination })
    }

    pub fn itemsize(&self) -> usize {
        self.itemsize
    }

    /// Linear item number of the first and behind the last wanted item.
    pub fn span(&self) -> (usize, usize) {
        let dot =
            |pick: fn(&Axis) -> usize| self.axes.iter().zip(&self.pitches).map(|(a, p)| pick(a) * p).sum::<usize>();
        (dot(|axis| axis.start), dot(Axis::last) + 1)
    }

    /// How many items are wanted.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.count).product()
    }

    /// How many wanted items lie before linear item `limit`.
    pub fn rank(&self, limit: usize) -> usize {
        let mut inner = self.count();
        let (mut rest, mut found) = (limit, 0);
        for (axis, pitch) in self.axes.iter().zip(&self.pitches) {
            inner /= axis.count;
            let index = rest / pitch;
            if index < axis.start {
                return found;
            }
            let below = (index - axis.start).div_ceil(axis.step).min(axis.count);
            found += below * inner;
            // Only items that share this very index can lie on both sides of the limit.
            if below == axis.count || axis.start + below * axis.step != index {
                return found;
            }
            rest -= index * pitch;
        }
        found
    }

    /// Wanted item number `rank` (in linear order), as a linear item number.
    pub fn item(&self, mut rank: usize) -> usize {
        let mut linear = 0;
        for (axis, pitch) in self.axes.iter().zip(&self.pitches).rev() {
            linear += (axis.start + rank % axis.count * axis.step) * pitch;
            rank /= axis.count;
        }
        linear
    }

    /// The run that wanted item `rank` begins or lies in, from that item on.
    pub fn run(&self, rank: usize) -> Run {
        let (outer, last) = self.axes.split_at(self.axes.len() - 1);
        let last = last[0];
        let within = rank % last.count;
        let mut rest = rank / last.count;
        let mut start = last.start + within * last.step;
        let mut offset = self.origin + within as isize * last.stride;
        for (axis, pitch) in outer.iter().zip(&self.pitches).rev() {
            let index = rest % axis.count;
            start += (axis.start + index * axis.step) * pitch;
            offset += index as isize * axis.stride;
            rest /= axis.count;
        }
        Run { start, items: last.count - within, step: last.step, offset, stride: last.stride }
    }

    /// Items per run, and whether a run is contiguous on both sides.
    pub fn run_shape(&self) -> (usize, bool) {
        let last = self.axes[self.axes.len() - 1];
        let dense = last.step == 1 && (last.stride == self.itemsize as isize || last.count == 1);
        (last.count, dense)
    }

    /// The memory of the whole box, when it is one run on both sides.
    #[allow(clippy::mut_from_ref, reason = "as for `piece`")]
    pub fn as_one_piece(&self) -> Option<&mut [u8]> {
        self.one_place().map(|(offset, bytes)| self.piece(offset, bytes))
    }

    /// The same as a place in the destination: where it begins, and its bytes.
    pub fn one_place(&self) -> Option<(isize, usize)> {
        let run = self.run(0);
        let one = self.axes.len() == 1 && run.is_dense(self.itemsize);
        one.then(|| (run.offset, run.items * self.itemsize))
    }

    /// Write `item` to every place of the box.
    pub fn fill(&self, item: &[u8]) {
        let alike = item.iter().all(|byte| *byte == item[0]);
        self.each_run(|run| {
            if alike && run.is_dense(self.itemsize) {
                return self.piece(run.offset, run.items * self.itemsize).fill(item[0]);
            }
            for index in 0..run.items {
                self.piece(run.offset + index as isize * run.stride, self.itemsize).copy_from_slice(item);
            }
        });
    }

    /// The other way: copy the box's memory to its place in `chunk`, which is whole.
    pub fn gather(&self, chunk: &mut [u8]) {
        let size = self.itemsize;
        self.each_run(|run| {
            let start = run.start * size;
            if run.is_dense(size) {
                let bytes = run.items * size;
                return chunk[start..start + bytes].copy_from_slice(self.piece(run.offset, bytes));
            }
            let places = chunk[start..].chunks_mut(run.step * size).take(run.items);
            match size {
                1 => self.gather_items::<1>(&run, places),
                2 => self.gather_items::<2>(&run, places),
                4 => self.gather_items::<4>(&run, places),
                8 => self.gather_items::<8>(&run, places),
                _ => {
                    for (index, place) in places.enumerate() {
                        let item = self.piece(run.offset + index as isize * run.stride, size);
                        place[..size].copy_from_slice(item);
                    }
                }
            }
        });
    }

    /// Whether every place of the box holds `item`, byte for byte.
    pub fn is_all(&self, item: &[u8]) -> bool {
        let last = self.axes[self.axes.len() - 1].count;
        (0..self.count() / last).all(|number| {
            let run = self.run(number * last);
            (0..run.items).all(|index| self.piece(run.offset + index as isize * run.stride, self.itemsize) == item)
        })
    }

    /// Items of a size known when compiling: one load and one store each.
    fn gather_items<'a, const N: usize>(&self, run: &Run, places: impl Iterator<Item = &'a mut [u8]>) {
        for (index, place) in places.enumerate() {
            let item = self.piece(run.offset + index as isize * run.stride, N);
            place[..N].copy_from_slice(item);
        }
    }

    fn each_run(&self, visit: impl FnMut(Run)) {
        self.for_each_run(0..self.count(), visit);
    }

    /// Visit the wanted items number `ranks`, run by run.
    pub fn for_each_run(&self, ranks: Range<usize>, mut visit: impl FnMut(Run)) {
        let outer = &self.axes[..self.axes.len() - 1];
        let mut left = ranks.len();
        if left == 0 {
            return;
        }
        let mut run = self.run(ranks.start);
        let last = self.axes[outer.len()];
        // Where the items of a whole run begin; the first visit may lie further on.
        let within = last.count - run.items;
        let (mut start, mut offset) = (run.start - within * last.step, run.offset - within as isize * last.stride);
        let mut indexes = self.indexes(ranks.start / last.count);
        loop {
            run.items = run.items.min(left);
            left -= run.items;
            visit(run);
            if left == 0 {
                return;
            }
            // To the next index of the innermost axis that has one; those inside begin again.
            for ((axis, pitch), index) in outer.iter().zip(&self.pitches).zip(&mut indexes).rev() {
                *index += 1;
                start += axis.step * pitch;
                offset += axis.stride;
                if *index < axis.count {
                    break;
                }
                *index = 0;
                start -= axis.count * axis.step * pitch;
                offset -= axis.count as isize * axis.stride;
            }
            run = Run { start, items: last.count, offset, ..run };
        }
    }

    /// The index along each axis but the last of run number `number`.
    fn indexes(&self, mut number: usize) -> Vec<usize> {
        let outer = &self.axes[..self.axes.len() - 1];
        let mut indexes = vec![0; outer.len()];
        for (index, axis) in indexes.iter_mut().zip(outer).rev() {
            *index = number % axis.count;
            number /= axis.count;
        }
        indexes
    }

    /// Tell the processor that `bytes` from `offset` on will be wanted soon, if they are part
    /// of the destination at all.
    pub fn expect(&self, offset: isize, bytes: usize) {
        let Ok(offset) = usize::try_from(offset) else { return };
        if offset + bytes > self.destination.bytes {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        for line in (0..bytes).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: it lies inside the destination; and nothing is read.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.destination.start.add(offset + line).cast()) };
        }
    }

    /// `bytes` of the destination from `offset` on, to be written.
    #[allow(clippy::mut_from_ref, reason = "the region names the memory, it does not own it")]
    pub fn piece(&self, offset: isize, bytes: usize) -> &mut [u8] {
        debug_assert!(offset >= 0 && offset as usize + bytes <= self.destination.bytes);
        // SAFETY: callers pass offsets of runs (plus a part of an item), and `new` has shown
        // that every item of the box lies inside; the slice is used and dropped at once.
        unsafe { std::slice::from_raw_parts_mut(self.destination.start.offset(offset), bytes) }
    }
}

/// Join neighbouring axes that can be walked as one, so that runs get long.
fn joined(axes: &[Axis], itemsize: usize) -> Vec<Axis> {
    let mut result: Vec<Axis> = Vec::with_capacity(axes.len().max(1));
    for inner in axes {
        let Some(outer) = result.last_mut() else {
            result.push(*inner);
            continue;
        };
        let whole = inner.count == inner.size && outer.step == 1;
        if outer.count == 1 {
            *outer = Axis { size: outer.size * inner.size, start: outer.start * inner.size + inner.start, ..*inner };
        } else if whole && outer.stride == inner.stride * inner.count as isize {
            *outer = Axis {
                size: outer.size * inner.size,
                start: outer.start * inner.size,
                count: outer.count * inner.count,
                step: 1,
                stride: inner.stride,
            };
        } else {
            result.push(*inner);
        }
    }
    if result.is_empty() {
        result.push(Axis { size: 1, start: 0, count: 1, step: 1, stride: itemsize as isize });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(axes: &[Axis], out: &mut [u8]) -> Outcome<Region> {
        // SAFETY: the tests keep `out` alive and to themselves.
        Region::new(axes, 1, 0, unsafe { Destination::new(out.as_mut_ptr(), out.len()) })
    }

    fn axis(size: usize, start: usize, count: usize, step: usize, stride: isize) -> Axis {
        Axis { size, start, count, step, stride }
    }

    #[test]
    fn ranks_and_items_are_inverse() {
        let mut out = vec![0; 10_000];
        let boxes = [
            vec![axis(7, 1, 3, 2, 100), axis(5, 0, 5, 1, 10), axis(6, 2, 2, 3, 1)],
            vec![axis(4, 0, 4, 1, 20), axis(4, 0, 4, 1, 5), axis(5, 0, 5, 1, 1)],
            vec![axis(4, 3, 1, 1, 9), axis(9, 1, 8, 1, 1)],
            vec![],
        ];
        for axes in boxes {
            let region = region(&axes, &mut out).unwrap();
            let total: usize = axes.iter().map(|a| a.count).product();
            let items: Vec<_> = (0..total).map(|rank| region.item(rank)).collect();
            assert!(items.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(region.span(), (items[0], items[total - 1] + 1));
            for limit in 0..=items[total - 1] + 2 {
                assert_eq!(region.rank(limit), items.iter().filter(|item| **item < limit).count());
            }
            for (rank, item) in items.iter().enumerate() {
                assert_eq!(region.run(rank).start, *item);
            }
            for first in 0..=total {
                for end in first..=total {
                    let mut rank = first;
                    region.for_each_run(first..end, |run| {
                        let expected = region.run(rank);
                        assert_eq!(run, Run { items: expected.items.min(end - rank), ..expected });
                        rank += run.items;
                    });
                    assert_eq!(rank, end);
                }
            }
        }
    }

    #[test]
    fn whole_boxes_become_one_run() {
        let mut out = vec![0; 200];
        let region = region(&[axis(4, 1, 2, 1, 30), axis(5, 0, 5, 1, 6), axis(6, 0, 6, 1, 1)], &mut out).unwrap();
        assert_eq!(region.run_shape(), (60, true));
    }

    #[test]
    fn boxes_that_leave_anything_are_refused() {
        let mut out = vec![0; 10];
        assert!(region(&[axis(10, 0, 10, 1, 1)], &mut out).is_ok());
        for bad in [
            axis(10, 1, 10, 1, 1),
            axis(10, 0, 0, 1, 1),
            axis(10, 0, 2, 0, 1),
            axis(20, 0, 11, 1, 1),
            axis(10, 0, 2, 1, -1),
        ] {
            assert!(region(&[bad], &mut out).is_err(), "{bad:?}");
        }
        assert!(region(&[axis(9, 0, usize::MAX, usize::MAX, isize::MAX)], &mut out).is_err());
    }
}
