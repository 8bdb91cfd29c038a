//! Runs of a flat array: its chunks hold runs of units, one behind the other, and a selection wants other
//! runs of the same units.
//!
//! The grid has one axis, and its items are units. All runs of a call have one length; where they begin
//! is an outer product of offsets. A chunk is opened once for all runs that touch it, and only what lies
//! between runs that are near to each other is decoded.
//!
//! `unsafe`: threads write the parts of several chunks into one destination at the same time. Different
//! units of the payload have different places there: `Runs::is_disjoint` finds out whether any two runs
//! share a byte, and where they might, one thread does all of the work.

use crate::array::coding::Compression;
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::read::Report;
use crate::array::scatter::{Axis, Destination, Geometry, Region};
use crate::array::selection::WORTH_A_THREAD;
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::grow;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What lies between two runs is decoded along with them up to this size, about that of a small block.
const GAP: usize = 16 << 10;
/// About what has to be decoded for a run, however short it is.
const LEAST_WORK: usize = 32 << 10;

/// Offsets along one axis.
pub enum Offsets {
    Range { first: i64, step: i64, count: usize },
    List(Vec<i64>),
}

impl Offsets {
    fn len(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(offsets) => offsets.len(),
        }
    }

    #[inline(always)]
    fn at(&self, index: usize) -> i64 {
        match self {
            Self::Range { first, step, .. } => first + index as i64 * step,
            Self::List(offsets) => offsets[index],
        }
    }

    /// The smallest offset, the largest, and the least distance between two of them.
    fn spread(&self) -> (i128, i128, i128) {
        match self {
            Self::Range { first, step, count } => {
                let (first, step) = (*first as i128, *step as i128);
                let last = first + (*count as i128 - 1) * step;
                (first.min(last), first.max(last), if *count > 1 { step.abs() } else { i128::MAX })
            }
            Self::List(offsets) => {
                let mut sorted = offsets.clone();
                sorted.sort_unstable();
                let gap = sorted.windows(2).map(|pair| pair[1] as i128 - pair[0] as i128).min();
                let (least, most) = (sorted.first(), sorted.last());
                (
                    least.map_or(0, |least| *least as i128),
                    most.map_or(0, |most| *most as i128),
                    gap.unwrap_or(i128::MAX),
                )
            }
        }
    }

    fn ascends(&self) -> bool {
        match self {
            Self::Range { step, count, .. } => *step > 0 || *count == 1,
            Self::List(offsets) => offsets.is_sorted_by(|one, next| one < next),
        }
    }
}

/// One axis of the outer product: where runs begin in the payload, ascending, and in the destination.
pub struct RunAxis {
    pub sources: Offsets,
    pub targets: Offsets,
}

/// Runs of `length` units, numbered with the last axis fastest. They begin at ascending places.
pub struct Runs {
    axes: Vec<RunAxis>,
    start: usize,
    length: usize,
    count: usize,
}

impl Runs {
    /// Check that all runs lie inside a payload of `units` units and a destination of `room` units.
    pub fn new(axes: Vec<RunAxis>, start: usize, length: usize, units: usize, room: usize) -> Outcome<Self> {
        let wrong = |text: &str| Err(Error::new(Kind::Argument, text));
        let mut count = 1usize;
        // Behind the first unit of the runs along the axes so far, how far they reach.
        let (mut low, mut high) = (start as i128, start as i128 + length as i128);
        let (mut first, mut behind) = (0, length as i128);
        let mut reach = 0;
        for axis in axes.iter().rev() {
            let ascending = axis.sources.ascends() && axis.sources.len() == axis.targets.len();
            let (least, most, gap) = axis.sources.spread();
            if !ascending || axis.sources.len() == 0 || gap <= reach {
                return wrong("the runs do not ascend");
            }
            reach += most - least;
            low += least;
            high += most;
            let (least, most, _) = axis.targets.spread();
            first += least;
            behind += most;
            match count.checked_mul(axis.sources.len()).filter(|count| *count <= isize::MAX as usize) {
                Some(product) => count = product,
                None => return wrong("there are too many runs"),
            }
        }
        if length == 0 || low < 0 || high > units as i128 || first < 0 || behind > room as i128 {
            return Err(Error::new(
                Kind::Argument,
                format!("runs reach {low}..{high} of {units} units, and {first}..{behind} of {room}"),
            ));
        }
        Ok(Self { axes, start, length, count })
    }

    /// Whether no two runs share a unit of the destination; runs that interleave are taken for ones that do.
    fn is_disjoint(&self) -> bool {
        let mut axes: Vec<_> = self.axes.iter().map(|axis| axis.targets.spread()).collect();
        axes.sort_unstable_by_key(|(_, _, gap)| *gap);
        let mut span = self.length as i128;
        axes.iter().all(|(least, most, gap)| {
            let apart = *gap >= span;
            span += most - least;
            apart
        })
    }

    fn source(&self, mut number: usize) -> usize {
        let mut place = self.start as i64;
        for axis in self.axes.iter().rev() {
            place += axis.sources.at(number % axis.sources.len());
            number /= axis.sources.len();
        }
        place as usize
    }

    /// The number of the first run that ends behind a place.
    fn first_behind(&self, place: usize) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.source(middle) + self.length > place { high = middle } else { low = middle + 1 }
        }
        low
    }

    fn cursor(&self, number: usize) -> Cursor<'_> {
        let mut cursor =
            Cursor { runs: self, digits: vec![0; self.axes.len()], left: self.count - number, place: (0, 0) };
        let mut rest = number;
        for (digit, axis) in cursor.digits.iter_mut().zip(&self.axes).rev() {
            *digit = rest % axis.sources.len();
            rest /= axis.sources.len();
        }
        cursor.find();
        cursor
    }
}

/// A run, and those behind it.
#[derive(Clone)]
struct Cursor<'r> {
    runs: &'r Runs,
    digits: Vec<usize>,
    left: usize,
    /// Where the run begins in the payload and in the destination.
    place: (usize, usize),
}

impl Cursor<'_> {
    fn find(&mut self) {
        let (mut source, mut target) = (self.runs.start as i64, 0);
        for (digit, axis) in self.digits.iter().zip(&self.runs.axes) {
            source += axis.sources.at(*digit);
            target += axis.targets.at(*digit);
        }
        self.place = (source as usize, target as usize);
    }

    /// Go on to the next run.
    #[inline(always)]
    fn advance(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            return;
        }
        let last = self.digits.len() - 1;
        let axis = &self.runs.axes[last];
        let digit = self.digits[last];
        if digit + 1 < axis.sources.len() {
            let (source, target) = self.place;
            let step = |offsets: &Offsets| offsets.at(digit + 1) - offsets.at(digit);
            self.place = (
                source.wrapping_add_signed(step(&axis.sources) as isize),
                target.wrapping_add_signed(step(&axis.targets) as isize),
            );
            self.digits[last] = digit + 1;
            return;
        }
        for (digit, axis) in self.digits.iter_mut().zip(&self.runs.axes).rev() {
            *digit += 1;
            if *digit < axis.sources.len() {
                break;
            }
            *digit = 0;
        }
        self.find();
    }

    /// How many runs from this one on lie at constant distances, and the distances on both sides.
    #[inline(always)]
    fn row(&self) -> Option<(usize, usize, isize)> {
        let (digit, axis) = (self.digits.last()?, self.runs.axes.last()?);
        match (&axis.sources, &axis.targets) {
            (Offsets::Range { step, count, .. }, Offsets::Range { step: target, .. }) => {
                Some((count - digit, *step as usize, *target as isize))
            }
            _ => None,
        }
    }

    /// Go on by `count` runs of a row, and past its end if these are all.
    fn skip(&mut self, count: usize, source: usize, target: isize) {
        let last = self.digits.len() - 1;
        self.digits[last] += count - 1;
        self.left -= count - 1;
        self.place.0 += (count - 1) * source;
        self.place.1 = self.place.1.wrapping_add_signed((count as isize - 1) * target);
        self.advance();
    }

    /// The part of the run before unit `end`, if any.
    #[inline(always)]
    fn before(&self, end: usize) -> Option<Range<usize>> {
        let (source, _) = self.place;
        (self.left > 0 && source < end).then(|| source..end.min(source + self.runs.length))
    }
}

/// Read runs into `out`: from all chunks that they touch, or from those of the numbers `only`. `held` has
/// the chunks where the caller hands them over.
#[allow(clippy::too_many_arguments, reason = "one call from Python")]
pub fn read(
    layout: &Layout,
    runs: &Runs,
    out: &Destination<'_>,
    only: Option<&[usize]>,
    held: Option<&Held<'_>>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Report> {
    let grid = &layout.grid;
    if grid.shape.len() != 1 || layout.coding.framed || grid.is_rectilinear() {
        return Err(Error::new(Kind::Argument, "runs are read from flat arrays"));
    }
    let step = grid.chunk[0];
    let first = runs.source(0) / step;
    let last = (runs.source(runs.count - 1) + runs.length - 1) / step;
    let count = only.map_or(last - first + 1, <[usize]>::len);
    let stored = Stored::open(layout, held, false)?;
    let failures = Failures::default();
    let next = AtomicUsize::new(0);
    let work = |workspace: &mut Workspace| {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return Ok(false);
        }
        let number = only.map_or(first + index, |only| only[index]);
        let units = number.saturating_mul(step)..number.saturating_add(1).saturating_mul(step).min(grid.shape[0]);
        let cursor = runs.cursor(runs.first_behind(units.start).min(runs.count - 1));
        if cursor.place.0 + runs.length <= units.start || cursor.place.0 >= units.end {
            return Ok(true);
        }
        let coords = vec![number];
        let key = stored.key(grid, &coords);
        let found = stored.chunk(grid, &coords, &key);
        match found.and_then(|found| read_chunk(layout, &found, units, cursor, out, workspace)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind == Kind::Argument => Err(error),
            Err(error) => Ok(failures.note(Failure { coords, key, error })),
        }
    };
    let wanted = runs.count.saturating_mul(runs.length).saturating_mul(grid.itemsize);
    let least = count.min(runs.count).saturating_mul(LEAST_WORK);
    let worth = wanted.max(least) / WORTH_A_THREAD + 1;
    let threads =
        if threads > 1 && worth > 1 && count > 1 && runs.is_disjoint() { threads.min(count).min(worth) } else { 1 };
    interrupt.share(threads, workspace, work)?;
    Ok(Report { absent: 0, failures: failures.into_inner() })
}

/// Read the parts of runs, from that at `cursor` on, that lie in the chunk of some units.
fn read_chunk(
    layout: &Layout,
    found: &Chunk<'_>,
    units: Range<usize>,
    mut cursor: Cursor<'_>,
    out: &Destination<'_>,
    workspace: &mut Workspace,
) -> Outcome<()> {
    let Layout { coding, grid, verified, .. } = layout;
    let size = grid.itemsize;
    let Workspace { scratch, buffers, chunk, enclosing, framed, .. } = workspace;
    let expected = units.len() * size;
    let opened = match found {
        Chunk::Stored(extent) => Some(coding.open_verified(verified, extent, expected, framed)?),
        Chunk::Constant(_) => None,
        Chunk::Absent => return corrupt!("the chunk is missing"),
    };
    // A stream is decoded as a whole, whatever is wanted of it.
    let gap = if matches!(coding.compression, Compression::Stream(_)) { usize::MAX } else { GAP / size };
    let mut decode = |region: &mut Region<'_>| match (&opened, found) {
        (Some((coding, extent)), _) => coding.read(extent, expected, region, scratch, buffers, chunk),
        (None, Chunk::Constant(item)) => {
            region.fill(item);
            Ok(())
        }
        _ => Ok(()),
    };
    while let Some(part) = cursor.before(units.end) {
        let group = cursor.clone();
        let start = part.start.max(units.start);
        let (mut end, mut parts) = (part.end, 0);
        while let Some(next) = cursor.before(units.end)
            && next.start <= end.saturating_add(gap)
        {
            end = end.max(next.end);
            // Runs of a row that are near to each other are taken together.
            if let Some((count, source, target)) = cursor.row()
                && source <= gap
            {
                let inside = count.min((units.end - 1 - next.start) / source + 1);
                end = end.max(units.end.min(next.start + (inside - 1) * source + cursor.runs.length));
                parts += inside;
                cursor.skip(inside, source, target);
                continue;
            }
            parts += 1;
            cursor.advance();
        }
        let axis =
            |count| [Axis { size: units.len(), start: start - units.start, count, step: 1, stride: size as isize }];
        if parts == 1 {
            let target = (group.place.1 + start - group.place.0) * size;
            let geometry = Geometry::new(&axis(end - start), size, target as isize, out.len())?;
            // SAFETY: no other run has these bytes, or no other thread writes.
            decode(&mut unsafe { Region::shared(geometry, out) })?;
            continue;
        }
        let memory = grow(enclosing, (end - start) * size)?;
        decode(&mut Region::new(&axis(end - start), size, 0, memory)?)?;
        // SAFETY: as above.
        unsafe { copy_parts(group, parts, start..end, memory, out, size) };
    }
    Ok(())
}

/// Copy parts of runs, from that at `cursor` on, out of `memory`, which holds some units.
///
/// # Safety
/// Nothing else may access the bytes of these runs in `out`.
unsafe fn copy_parts(
    mut cursor: Cursor<'_>,
    parts: usize,
    units: Range<usize>,
    memory: &[u8],
    out: &Destination<'_>,
    size: usize,
) {
    let length = cursor.runs.length;
    let mut left = parts;
    while left > 0 {
        let (source, target) = cursor.place;
        if source >= units.start
            && let Some((count, step, stride)) = cursor.row()
        {
            // Those that do not reach beyond the units.
            let whole = (units.end - source).checked_sub(length).map_or(0, |room| room / step + 1);
            let count = count.min(left).min(whole);
            if count > 1 {
                let run = Row { start: source - units.start, target, count, step, stride, size };
                // SAFETY: the caller's promise.
                unsafe {
                    match length * size {
                        1 => run.copy::<1>(memory, out),
                        2 => run.copy::<2>(memory, out),
                        4 => run.copy::<4>(memory, out),
                        8 => run.copy::<8>(memory, out),
                        16 => run.copy::<16>(memory, out),
                        bytes => run.copy_any(bytes, memory, out),
                    }
                }
                left -= count;
                cursor.skip(count, step, stride);
                continue;
            }
        }
        let (start, end) = (source.max(units.start), (source + length).min(units.end));
        let bytes = &memory[(start - units.start) * size..(end - units.start) * size];
        // SAFETY: the caller's promise.
        let place = unsafe { out.slice(((target + start - source) * size) as isize, bytes.len()) };
        place.copy_from_slice(bytes);
        left -= 1;
        cursor.advance();
    }
}

/// Runs at constant distances: `start` and `step` in the memory, `target` and `stride` in the destination.
struct Row {
    start: usize,
    target: usize,
    count: usize,
    step: usize,
    stride: isize,
    size: usize,
}

impl Row {
    /// Copy runs of a size that is known when compiling: one load and one store each.
    ///
    /// # Safety
    /// Nothing else may access the bytes of these runs in `out`.
    unsafe fn copy<const N: usize>(&self, memory: &[u8], out: &Destination<'_>) {
        let (mut from, mut to) = (self.start * self.size, (self.target * self.size) as isize);
        for _ in 0..self.count {
            // SAFETY: the caller's promise.
            unsafe { out.slice(to, N) }.copy_from_slice(&memory[from..from + N]);
            from += self.step * self.size;
            to += self.stride * self.size as isize;
        }
    }

    /// Copy runs of any size.
    ///
    /// # Safety
    /// Nothing else may access the bytes of these runs in `out`.
    unsafe fn copy_any(&self, bytes: usize, memory: &[u8], out: &Destination<'_>) {
        let (mut from, mut to) = (self.start * self.size, (self.target * self.size) as isize);
        for _ in 0..self.count {
            // SAFETY: the caller's promise.
            unsafe { out.slice(to, bytes) }.copy_from_slice(&memory[from..from + bytes]);
            from += self.step * self.size;
            to += self.stride * self.size as isize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::addresses::Addresses;
    use crate::array::coding::Coding;
    use crate::array::grid::Grid;
    use crate::array::stored::HeldChunk;
    use crate::checksum::Checksum;
    use crate::files::verified::Verify;
    use std::collections::HashMap;
    use std::sync::Arc;

    const SIZE: usize = 60;

    fn layout(chunk: usize) -> Layout {
        let checksum = Some(Checksum::Md5);
        let coding =
            Coding { compression: Compression::Raw, checksum, verify: Verify::First, framed: false, slotted: false };
        let grid = Grid::new(vec![SIZE], vec![chunk], vec![0], vec![0], None, None, Vec::new()).unwrap();
        Layout::new(Arc::new(Addresses::Handed), coding, grid).unwrap()
    }

    fn range(first: i64, step: i64, count: usize) -> Offsets {
        Offsets::Range { first, step, count }
    }

    fn chunks(chunk: usize) -> Vec<Vec<u8>> {
        let payload: Vec<u8> = (0..SIZE as u8).collect();
        payload.chunks(chunk).map(|units| [units, Checksum::Md5.digest(units).bytes()].concat()).collect()
    }

    fn read_from(stored: &[Vec<u8>], chunk: usize, runs: &Runs, room: usize) -> (Vec<u8>, Vec<Failure>) {
        let held: HashMap<_, _> =
            stored.iter().enumerate().map(|(number, bytes)| (number, HeldChunk::Stored(bytes))).collect();
        let mut out = vec![255; room];
        // SAFETY: the vector outlives the call, and nothing else uses it.
        let memory = unsafe { Destination::new(out.as_mut_ptr(), out.len()) };
        let (layout, workspace) = (layout(chunk), &mut Workspace::default());
        let report = read(&layout, runs, &memory, None, Some(&held), 3, workspace, &Interrupt::never()).unwrap();
        (out, report.failures)
    }

    #[test]
    fn runs_are_those_of_looking_up_each() {
        for chunk in [1, 3, 7, 20, 59, 60, 61] {
            for length in 1..4 {
                let axes = || {
                    vec![
                        RunAxis { sources: range(10, 20, 2), targets: range(12, -12, 2) },
                        RunAxis { sources: Offsets::List(vec![0, 4, 9]), targets: Offsets::List(vec![4, 8, 0]) },
                    ]
                };
                let runs = Runs::new(axes(), 2, length, SIZE, 24).unwrap();
                assert!(runs.is_disjoint());
                let (found, failures) = read_from(&chunks(chunk), chunk, &runs, 24);
                assert!(failures.is_empty());
                let mut expected = vec![255; 24];
                for (outer, target) in [(12, 12), (32, 0)] {
                    for (inner, place) in [(0, 4), (4, 8), (9, 0)] {
                        for unit in 0..length {
                            expected[target + place + unit] = (outer + inner + unit) as u8;
                        }
                    }
                }
                assert_eq!(found, expected, "chunks of {chunk}, runs of {length}");
            }
        }
    }

    #[test]
    fn a_damaged_chunk_fails_where_it_is_touched() {
        let mut stored = chunks(10);
        stored[2][3] ^= 1;
        let whole = Runs::new(Vec::new(), 0, SIZE, SIZE, SIZE).unwrap();
        let (found, failures) = read_from(&stored, 10, &whole, SIZE);
        assert_eq!((failures.len(), &failures[0].coords, found[30]), (1, &vec![2], 30));
        let others = vec![RunAxis { sources: range(0, 30, 2), targets: range(0, 20, 2) }];
        let others = Runs::new(others, 0, 20, SIZE, 40).unwrap();
        assert!(read_from(&stored, 10, &others, 40).1.is_empty());
    }

    #[test]
    fn runs_outside_are_refused() {
        let one = |sources, targets| vec![RunAxis { sources, targets }];
        assert!(Runs::new(one(range(0, 30, 2), range(0, 10, 2)), 20, 10, SIZE, 20).is_ok());
        assert!(Runs::new(one(range(0, 30, 2), range(0, 10, 2)), 21, 10, SIZE, 20).is_err());
        assert!(Runs::new(one(range(0, 30, 2), range(0, 11, 2)), 20, 10, SIZE, 20).is_err());
        assert!(Runs::new(one(range(0, 30, 2), range(-1, 10, 2)), 0, 10, SIZE, 20).is_err());
        assert!(Runs::new(one(range(30, -30, 2), range(0, 10, 2)), 0, 10, SIZE, 20).is_err(), "descending");
        assert!(Runs::new(one(Offsets::List(vec![3, 3]), range(0, 10, 2)), 0, 10, SIZE, 20).is_err());
        assert!(Runs::new(one(Offsets::List(vec![3]), range(0, 10, 2)), 0, 10, SIZE, 20).is_err());
        assert!(Runs::new(Vec::new(), 0, 0, SIZE, 20).is_err());
        let near = vec![
            RunAxis { sources: range(0, 10, 2), targets: range(0, 1, 2) },
            RunAxis { sources: range(0, 5, 3), targets: range(0, 2, 3) },
        ];
        assert!(Runs::new(near, 0, 1, SIZE, 20).is_err(), "rows of 10 with offsets up to 10");
        let shared = Runs::new(one(range(0, 30, 2), range(0, 9, 2)), 20, 10, SIZE, 20).unwrap();
        assert!(!shared.is_disjoint());
    }
}
