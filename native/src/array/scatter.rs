//! The items of a box of a chunk, and where they lie in the memory of the caller.
//!
//! Positions in the chunk are counted in items of the chunk's own order ("linear"), so that the
//! decoder can hand over any block that it has and ask which of its items are wanted.
//!
//! `Geometry` has the numbers, and `Geometry::new` checks once that all items of the box lie inside
//! the chunk and inside the memory. `Region` adds the right to write the items, `Source` the right
//! to read them. Neither takes an offset from its caller: offsets are derived from the checked
//! numbers only.
//!
//! `unsafe`: slices of the memory are made at these offsets. A `Region` has exclusive access to the
//! bytes of its items, by a mutable borrow of the memory (`Region::new`) or by the promise of its
//! maker (`Region::shared`), and its methods that return a slice borrow the region mutably. So no
//! safe code can get two slices that overlap. Bounds are checked again for each slice, in release
//! builds too.

use crate::chunk::decode::Window;
use crate::error::{Error, Kind, Outcome};
use crate::memory::repeat;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

/// Memory of the caller to be written, to which nothing else has access for `'m`.
pub struct Destination<'m> {
    start: *mut u8,
    bytes: usize,
    exclusive: PhantomData<&'m mut [u8]>,
}

// SAFETY: it stands for a `&mut [u8]`, which both are.
unsafe impl Send for Destination<'_> {}
unsafe impl Sync for Destination<'_> {}

impl<'m> Destination<'m> {
    /// # Safety
    /// `start..start + bytes` must be valid for reads and writes for `'m`, and nothing else may
    /// access it in that time.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes, exclusive: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// All of it as one slice.
    pub fn into_slice(self) -> &'m mut [u8] {
        // SAFETY: valid and exclusive for `'m` by `new`, and the value is used up.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// `bytes` of it from `offset` on, which must lie inside.
    ///
    /// # Safety
    /// Nothing else may access these bytes while the slice lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "threads that write disjoint parts share the value")]
    pub unsafe fn slice(&self, offset: isize, bytes: usize) -> &mut [u8] {
        check_inside(offset, bytes, self.bytes);
        // SAFETY: inside by the check, valid by `new`, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.offset(offset), bytes) }
    }
}

/// Memory of the caller to be read.
#[derive(Clone, Copy)]
pub struct SourceMemory<'m> {
    start: *const u8,
    bytes: usize,
    shared: PhantomData<&'m [u8]>,
}

// SAFETY: it stands for a `&[u8]`, which both are.
unsafe impl Send for SourceMemory<'_> {}
unsafe impl Sync for SourceMemory<'_> {}

impl<'m> SourceMemory<'m> {
    /// # Safety
    /// `start..start + bytes` must be valid for reads for `'m`.
    pub unsafe fn new(start: *const u8, bytes: usize) -> Self {
        Self { start, bytes, shared: PhantomData }
    }

    /// `bytes` of it from `offset` on, which must lie inside.
    #[inline(always)]
    pub fn slice(&self, offset: isize, bytes: usize) -> &'m [u8] {
        check_inside(offset, bytes, self.bytes);
        // SAFETY: inside by the check, valid by `new`.
        unsafe { std::slice::from_raw_parts(self.start.offset(offset), bytes) }
    }
}

impl<'m> From<&'m [u8]> for SourceMemory<'m> {
    fn from(memory: &'m [u8]) -> Self {
        Self { start: memory.as_ptr(), bytes: memory.len(), shared: PhantomData }
    }
}

/// Memory of a known size.
pub trait Memory {
    /// Whether parts of it are written.
    const WRITTEN: bool;

    fn bytes(&self) -> usize;
}

impl Memory for Destination<'_> {
    const WRITTEN: bool = true;

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Memory for SourceMemory<'_> {
    const WRITTEN: bool = false;

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[inline(always)]
fn check_inside(offset: isize, bytes: usize, all: usize) {
    // A negative offset becomes a very large one.
    assert!(offset as usize <= all && bytes <= all - offset as usize, "bytes outside the memory");
}

/// One axis of a box: `count` indices from `start` on, `step` apart, of `size` in the
/// chunk; neighbours lie `stride` bytes apart in the memory.
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

/// A box of a chunk, and where each of its items lies in memory.
pub struct Geometry {
    itemsize: usize,
    /// Outermost first; neighbours that act as one are joined. Never empty.
    axes: Vec<Axis>,
    /// How many items one step along each axis is, in the chunk.
    pitches: Vec<usize>,
    /// Byte offset in the memory of the first item.
    origin: isize,
}

/// Items of the chunk along the innermost axis: `items` from linear item `start` on, `step` apart,
/// the first at byte `offset` of the memory and each next `stride` bytes further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    items: usize,
    step: usize,
    offset: isize,
    stride: isize,
}

impl Run {
    /// Whether the items are neighbours on both sides.
    fn is_dense(&self, itemsize: usize) -> bool {
        self.items == 1 || (self.step == 1 && self.stride == itemsize as isize)
    }
}

impl Geometry {
    /// Check that the box lies inside its chunk and its items inside a memory of `bytes` bytes.
    pub fn new(axes: &[Axis], itemsize: usize, origin: isize, bytes: usize) -> Outcome<Self> {
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
        if itemsize == 0 || lowest < 0 || highest > bytes as i128 {
            return wrong(format!("the box reaches bytes {lowest}..{highest} of a memory of {bytes} bytes"));
        }
        let axes = joined(axes, itemsize);
        let mut pitches = vec![1; axes.len()];
        for axis in (1..axes.len()).rev() {
            pitches[axis - 1] = pitches[axis] * axes[axis].size;
        }
        Ok(Self { itemsize, axes, pitches, origin })
    }

    pub fn itemsize(&self) -> usize {
        self.itemsize
    }

    /// Linear item number of the first and behind the last wanted item.
    pub fn span(&self) -> (usize, usize) {
        let dot =
            |index: fn(&Axis) -> usize| self.axes.iter().zip(&self.pitches).map(|(a, p)| index(a) * p).sum::<usize>();
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

    /// Items per run, and whether a run is contiguous on both sides.
    pub fn run_shape(&self) -> (usize, bool) {
        let last = self.axes[self.axes.len() - 1];
        let dense = last.step == 1 && (last.stride == self.itemsize as isize || last.count == 1);
        (last.count, dense)
    }

    /// The run that wanted item `rank` starts or lies in, from that item on.
    fn run(&self, rank: usize) -> Run {
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

    /// Offset and bytes of the whole box, when it is one run on both sides.
    fn whole(&self) -> Option<(isize, usize)> {
        let run = self.run(0);
        let one = self.axes.len() == 1 && run.is_dense(self.itemsize);
        one.then(|| (run.offset, run.items * self.itemsize))
    }

    /// Visit the wanted items number `ranks`, run by run.
    #[inline(always)]
    fn for_each_run(&self, ranks: Range<usize>, mut visit: impl FnMut(Run)) {
        let mut left = ranks.len().min(self.count().saturating_sub(ranks.start));
        if left == 0 {
            return;
        }
        let outer = self.axes.len() - 1;
        let last = self.axes[outer];
        // The axis around the runs, whose runs are a constant distance apart.
        let (count, jump, stride) = match outer {
            0 => (1, 0, 0),
            _ => (
                self.axes[outer - 1].count,
                self.axes[outer - 1].step * self.pitches[outer - 1],
                self.axes[outer - 1].stride,
            ),
        };
        let mut rank = ranks.start;
        let mut run = self.run(rank);
        // The first run may have started before the first item.
        let within = last.count - run.items;
        let (mut back, mut back_stride) = (within * last.step, within as isize * last.stride);
        loop {
            for _ in rank / last.count % count..count {
                run.items = run.items.min(left);
                visit(run);
                left -= run.items;
                if left == 0 {
                    return;
                }
                run.start = run.start + jump - back;
                run.offset = run.offset + stride - back_stride;
                (run.items, back, back_stride) = (last.count, 0, 0);
            }
            rank = ranks.end.min(self.count()) - left;
            run = self.run(rank);
        }
    }
}

/// A box of a chunk, and the memory that its items are written to.
pub struct Region<'m> {
    geometry: Geometry,
    memory: ItemMemory<'m>,
}

/// Memory in which a region has exclusive access to the bytes of its items, and to no others.
struct ItemMemory<'m> {
    start: *mut u8,
    bytes: usize,
    exclusive: PhantomData<&'m mut [u8]>,
}

impl ItemMemory<'_> {
    /// `bytes` from `offset` on, which must be bytes of items of the region.
    #[inline(always)]
    fn slice(&mut self, offset: isize, bytes: usize) -> &mut [u8] {
        check_inside(offset, bytes, self.bytes);
        // SAFETY: inside by the check. The methods of `Region` pass offsets of runs of its geometry
        // only, so these are bytes that nothing but the region has access to, and the region itself
        // is borrowed mutably for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start.offset(offset), bytes) }
    }
}

impl Deref for Region<'_> {
    type Target = Geometry;

    fn deref(&self) -> &Geometry {
        &self.geometry
    }
}

impl<'m> Region<'m> {
    pub fn new(axes: &[Axis], itemsize: usize, origin: isize, memory: &'m mut [u8]) -> Outcome<Self> {
        let geometry = Geometry::new(axes, itemsize, origin, memory.len())?;
        let memory = ItemMemory { start: memory.as_mut_ptr(), bytes: memory.len(), exclusive: PhantomData };
        Ok(Self { geometry, memory })
    }

    /// A region of memory that other regions share.
    ///
    /// # Safety
    /// Nothing else may access the bytes of the items while the region lives.
    pub unsafe fn shared(geometry: Geometry, memory: &'m Destination<'_>) -> Self {
        Self { geometry, memory: ItemMemory { start: memory.start, bytes: memory.bytes, exclusive: PhantomData } }
    }

    /// The memory of the whole box, when it is one run on both sides.
    pub fn as_slice(&mut self) -> Option<&mut [u8]> {
        self.geometry.whole().map(|(offset, bytes)| self.memory.slice(offset, bytes))
    }

    /// The memory of wanted item `rank`.
    pub fn item_mut(&mut self, rank: usize) -> &mut [u8] {
        assert!(rank < self.count(), "an item outside the box");
        self.memory.slice(self.geometry.run(rank).offset, self.geometry.itemsize)
    }

    /// The memory of the wanted items number `ranks`, when they are neighbours on both sides and
    /// the first one is linear item `start`.
    pub fn dense_mut(&mut self, ranks: Range<usize>, start: usize) -> Option<&mut [u8]> {
        if ranks.end > self.count() {
            return None;
        }
        let (run, size) = (self.run(ranks.start), self.itemsize);
        let dense = run.start == start && run.items >= ranks.len() && run.is_dense(size);
        dense.then(|| self.memory.slice(run.offset, ranks.len() * size))
    }

    /// Write `item` to every place of the box.
    pub fn fill(&mut self, item: &[u8]) {
        let Self { geometry, memory } = self;
        let size = geometry.itemsize;
        geometry.for_each_run(0..geometry.count(), |run| {
            if run.is_dense(size) {
                return repeat(item, 0, memory.slice(run.offset, run.items * size));
            }
            for index in 0..run.items {
                memory.slice(run.offset + index as isize * run.stride, size).copy_from_slice(item);
            }
        });
    }

    /// Visit the contiguous bytes that the wanted items number `ranks` are made of: the chunk byte
    /// that each piece starts at, and its memory.
    #[inline]
    pub fn for_each_piece(&mut self, ranks: Range<usize>, mut visit: impl FnMut(usize, &mut [u8])) {
        let Self { geometry, memory } = self;
        let size = geometry.itemsize;
        if geometry.run_shape().1 {
            return geometry
                .for_each_run(ranks, |run| visit(run.start * size, memory.slice(run.offset, run.items * size)));
        }
        geometry.for_each_run(ranks, |run| {
            for Piece { start, bytes, offset } in Pieces::of(&run, size) {
                visit(start, memory.slice(offset, bytes));
            }
        });
    }

    /// The same, with the memory of later runs prefetched: they lie apart, so that no processor
    /// predicts where the next ones are.
    #[inline]
    pub fn for_each_piece_prefetched(&mut self, ranks: Range<usize>, mut visit: impl FnMut(usize, &mut [u8])) {
        let Self { geometry, memory } = self;
        let mut prefetch = Prefetch::new(memory.start, memory.bytes);
        geometry.for_each_run(ranks, |run| {
            prefetch.next(run.offset, run.items * geometry.itemsize);
            for Piece { start, bytes, offset } in Pieces::of(&run, geometry.itemsize) {
                visit(start, memory.slice(offset, bytes));
            }
        });
    }

    /// Copy what is wanted of chunk bytes `range`, which lie in `window` unfiltered.
    pub fn scatter(&mut self, range: Range<usize>, window: Window<'_>) {
        let size = self.itemsize;
        let ranks = self.rank(range.start / size)..self.rank(range.end.div_ceil(size));
        if !self.run_shape().1 {
            // Items of a usual size, none of which lies in two blocks.
            let whole = range.start.is_multiple_of(size) && range.end.is_multiple_of(size);
            match size {
                1 => return self.scatter_items::<1>(ranks, window),
                2 if whole => return self.scatter_items::<2>(ranks, window),
                4 if whole => return self.scatter_items::<4>(ranks, window),
                8 if whole => return self.scatter_items::<8>(ranks, window),
                _ => {}
            }
        }
        self.for_each_piece(ranks, |start, out| {
            let (from, to) = (start.max(range.start), (start + out.len()).min(range.end));
            let at = from.wrapping_sub(window.offset);
            out[from - start..to - start].copy_from_slice(&window.bytes[at..at + to - from]);
        });
    }

    /// Whole items of a size known when compiling: one load and one store each.
    fn scatter_items<const N: usize>(&mut self, ranks: Range<usize>, window: Window<'_>) {
        let Self { geometry, memory } = self;
        geometry.for_each_run(ranks, |run| {
            let (mut start, mut offset) = ((run.start * N).wrapping_sub(window.offset), run.offset);
            for _ in 0..run.items {
                memory.slice(offset, N).copy_from_slice(&window.bytes[start..start + N]);
                start += run.step * N;
                offset += run.stride;
            }
        });
    }
}

/// A box of a chunk, and the memory that its items are read from.
pub struct Source<'m> {
    geometry: Geometry,
    memory: SourceMemory<'m>,
}

impl Deref for Source<'_> {
    type Target = Geometry;

    fn deref(&self) -> &Geometry {
        &self.geometry
    }
}

impl<'m> Source<'m> {
    pub fn new(geometry: Geometry, memory: SourceMemory<'m>) -> Self {
        Self { geometry, memory }
    }

    /// The memory of the whole box, when it is one run on both sides.
    pub fn as_slice(&self) -> Option<&'m [u8]> {
        self.whole().map(|(offset, bytes)| self.memory.slice(offset, bytes))
    }

    /// Whether every item of the box is `item`, byte for byte.
    pub fn is_all(&self, item: &[u8]) -> bool {
        let last = self.axes[self.axes.len() - 1].count;
        (0..self.count() / last).all(|number| {
            let run = self.run(number * last);
            (0..run.items)
                .all(|index| self.memory.slice(run.offset + index as isize * run.stride, self.itemsize) == item)
        })
    }

    /// Copy the items to their places in `chunk`, which is whole.
    pub fn gather(&self, chunk: &mut [u8]) {
        let size = self.itemsize;
        self.for_each_run(0..self.count(), |run| {
            let start = run.start * size;
            if run.is_dense(size) {
                let bytes = run.items * size;
                return chunk[start..start + bytes].copy_from_slice(self.memory.slice(run.offset, bytes));
            }
            let places = chunk[start..].chunks_mut(run.step * size).take(run.items);
            match size {
                1 => self.gather_items::<1>(&run, places),
                2 => self.gather_items::<2>(&run, places),
                4 => self.gather_items::<4>(&run, places),
                8 => self.gather_items::<8>(&run, places),
                _ => {
                    for (index, place) in places.enumerate() {
                        let item = self.memory.slice(run.offset + index as isize * run.stride, size);
                        place[..size].copy_from_slice(item);
                    }
                }
            }
        });
    }

    /// Copy what `chunk`, which is whole, has at the places of the items to `out`.
    pub fn pick(&self, chunk: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let size = self.itemsize;
        self.for_each_run(0..self.count(), |run| {
            for start in (0..run.items).map(|index| (run.start + index * run.step) * size) {
                out.extend_from_slice(&chunk[start..start + size]);
            }
        });
    }

    /// Items of a size known when compiling: one load and one store each.
    fn gather_items<'c, const N: usize>(&self, run: &Run, places: impl Iterator<Item = &'c mut [u8]>) {
        for (index, place) in places.enumerate() {
            let item = self.memory.slice(run.offset + index as isize * run.stride, N);
            place[..N].copy_from_slice(item);
        }
    }

    /// Visit the items number `ranks` run by run: the linear item that each run starts at, and its
    /// memory. Only for boxes whose runs are contiguous on both sides.
    #[inline]
    pub fn for_each_dense_run(&self, ranks: Range<usize>, mut visit: impl FnMut(usize, &[u8])) {
        let mut prefetch = Prefetch::new(self.memory.start, self.memory.bytes);
        self.for_each_run(ranks, |run| {
            prefetch.next(run.offset, run.items * self.itemsize);
            visit(run.start, self.memory.slice(run.offset, run.items * self.itemsize));
        });
    }
}

/// Contiguous bytes of the chunk and where they go.
struct Piece {
    start: usize,
    bytes: usize,
    offset: isize,
}

/// The pieces of a run: one when it is contiguous on both sides, else one per item.
struct Pieces {
    next: Piece,
    left: usize,
    jump: usize,
    stride: isize,
}

impl Pieces {
    #[inline(always)]
    fn of(run: &Run, size: usize) -> Self {
        let dense = run.is_dense(size);
        let (bytes, left) = if dense { (run.items * size, 1) } else { (size, run.items) };
        let next = Piece { start: run.start * size, bytes, offset: run.offset };
        Self { next, left, jump: run.step * size, stride: run.stride }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece> {
        self.left = self.left.checked_sub(1)?;
        let Piece { start, bytes, offset } = self.next;
        self.next.start += self.jump;
        self.next.offset += self.stride;
        Some(Piece { start, bytes, offset })
    }
}

/// Asks the processor for the memory of runs before they are visited.
struct Prefetch {
    memory: *const u8,
    bytes: usize,
    last: Option<isize>,
}

impl Prefetch {
    /// Memory is asked for so many runs ahead, and more of them as long as they are no more than so many bytes.
    const LEAST_AHEAD: usize = 3;
    const MOST_AHEAD: usize = 8;
    const BYTES_AHEAD: usize = 4096;

    fn new(memory: *const u8, bytes: usize) -> Self {
        Self { memory, bytes, last: None }
    }

    /// Called with each run in order.
    #[inline]
    fn next(&mut self, offset: isize, bytes: usize) {
        let Some(last) = self.last.replace(offset) else { return };
        let runs = (Self::BYTES_AHEAD / bytes.max(1)).clamp(Self::LEAST_AHEAD, Self::MOST_AHEAD);
        let Ok(ahead) = usize::try_from(offset + runs as isize * (offset - last)) else { return };
        if ahead + bytes > self.bytes {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        for line in (0..bytes).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the address lies inside the memory, and a prefetch reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.memory.add(ahead + line).cast()) };
        }
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

    fn geometry(axes: &[Axis], bytes: usize) -> Outcome<Geometry> {
        Geometry::new(axes, 1, 0, bytes)
    }

    fn axis(size: usize, start: usize, count: usize, step: usize, stride: isize) -> Axis {
        Axis { size, start, count, step, stride }
    }

    #[test]
    fn ranks_and_items_are_inverse() {
        let boxes = [
            vec![axis(7, 1, 3, 2, 100), axis(5, 0, 5, 1, 10), axis(6, 2, 2, 3, 1)],
            vec![axis(4, 0, 4, 1, 20), axis(4, 0, 4, 1, 5), axis(5, 0, 5, 1, 1)],
            vec![axis(4, 3, 1, 1, 9), axis(9, 1, 8, 1, 1)],
            vec![],
        ];
        for axes in boxes {
            let region = geometry(&axes, 10_000).unwrap();
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
        let region = geometry(&[axis(4, 1, 2, 1, 30), axis(5, 0, 5, 1, 6), axis(6, 0, 6, 1, 1)], 200).unwrap();
        assert_eq!(region.run_shape(), (60, true));
    }

    #[test]
    fn boxes_that_leave_anything_are_refused() {
        assert!(geometry(&[axis(10, 0, 10, 1, 1)], 10).is_ok());
        for bad in [
            axis(10, 1, 10, 1, 1),
            axis(10, 0, 0, 1, 1),
            axis(10, 0, 2, 0, 1),
            axis(20, 0, 11, 1, 1),
            axis(10, 0, 2, 1, -1),
        ] {
            assert!(geometry(&[bad], 10).is_err(), "{bad:?}");
        }
        assert!(geometry(&[axis(9, 0, usize::MAX, usize::MAX, isize::MAX)], 10).is_err());
    }

    #[test]
    fn only_items_of_the_box_are_written() {
        let mut out = vec![0; 40];
        let mut region = Region::new(&[axis(4, 1, 2, 2, 20), axis(5, 1, 3, 1, 2)], 2, 3, &mut out).unwrap();
        region.fill(&[7, 8]);
        assert!(region.dense_mut(0..3, 6).is_some() && region.dense_mut(0..3, 5).is_none());
        assert!(region.dense_mut(0..4, 6).is_none() && region.dense_mut(5..7, 18).is_none());
        region.item_mut(5).copy_from_slice(&[9, 9]);
        let mut pieces = Vec::new();
        // Ranks behind the last item are none.
        region.for_each_piece(1..100, |start, bytes| pieces.push((start, bytes.to_vec())));
        assert_eq!(pieces, [(14, vec![7, 8, 7, 8]), (32, vec![7, 8, 7, 8, 9, 9])]);
        let expected: Vec<usize> = (3..9).chain(23..29).collect();
        let written: Vec<usize> = (0..out.len()).filter(|place| out[*place] != 0).collect();
        assert_eq!(written, expected);
    }

    #[test]
    #[should_panic(expected = "an item outside the box")]
    fn an_item_outside_the_box_is_refused() {
        let mut out = vec![0; 10];
        Region::new(&[axis(10, 0, 5, 1, 1)], 1, 0, &mut out).unwrap().item_mut(5);
    }
}
