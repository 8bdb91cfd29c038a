//! Which items an array has: its shape, how it is cut into chunks, and what an item is.

use crate::array::trailer::Stated;
use crate::array::zones::Items;
use crate::error::{Error, Kind, Outcome};
use crate::memory::push;
use std::sync::Arc;

/// How an axis is cut into chunks.
#[derive(Clone, Copy, Debug)]
pub enum Cut<'a> {
    /// Into chunks of one length.
    Regular(usize),
    /// Into chunks of several lengths: where each of them starts, and where the last one ends.
    Rectilinear(&'a [usize]),
}

impl Cut<'_> {
    /// The chunk that an index lies in, and its place there.
    pub fn locate(&self, index: usize) -> (usize, usize) {
        match self {
            Self::Regular(length) => (index / length, index % length),
            Self::Rectilinear(bounds) => {
                let chunk = bounds.partition_point(|bound| *bound <= index) - 1;
                (chunk, index - bounds[chunk])
            }
        }
    }

    pub fn start(&self, chunk: usize) -> usize {
        match self {
            Self::Regular(length) => chunk * length,
            Self::Rectilinear(bounds) => bounds[chunk],
        }
    }

    pub fn length(&self, chunk: usize) -> usize {
        match self {
            Self::Regular(length) => *length,
            Self::Rectilinear(bounds) => bounds[chunk + 1] - bounds[chunk],
        }
    }

    /// How many chunks `length` items need.
    fn count(&self, length: usize) -> usize {
        match self {
            Self::Regular(chunk) => length.div_ceil(*chunk),
            Self::Rectilinear(bounds) => bounds.partition_point(|bound| *bound < length),
        }
    }
}

/// Shape and chunks of an array, and its items.
#[derive(Clone, Debug)]
pub struct Grid {
    pub shape: Vec<usize>,
    /// The longest chunk along each axis.
    pub chunk: Vec<usize>,
    /// Where the chunks of rectilinear axes start, and where the last one ends; empty if all axes are
    /// regular.
    bounds: Vec<Option<Arc<[usize]>>>,
    /// The order in which a chunk's axes are stored, slowest first.
    pub order: Vec<usize>,
    pub itemsize: usize,
    /// How items are ordered, if they are; for zone maps and comparisons.
    pub items: Option<Items>,
    /// One item.
    pub fill: Vec<u8>,
    /// The size of a decoded chunk, of the largest where there are several.
    pub chunk_bytes: usize,
    /// While an array of rows grows: the chunk that was its last, and the rows that it is stored with.
    pub short: Option<(usize, usize)>,
    /// Of rows in chunk files: the number of the first chunk and the identity of each array that they
    /// are in, which counts its chunks from 0.
    pub parts: Vec<(usize, Option<u64>)>,
}

impl Grid {
    pub fn new(
        shape: Vec<usize>,
        chunk: Vec<usize>,
        order: Vec<usize>,
        fill: Vec<u8>,
        items: Option<Items>,
        short: Option<(usize, usize)>,
        parts: Vec<(usize, Option<u64>)>,
    ) -> Outcome<Self> {
        let wrong = |text: &str| Err(Error::new(Kind::Argument, text));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if chunk.len() != shape.len() || chunk.contains(&0) || !sorted.into_iter().eq(0..shape.len()) {
            return wrong("shape, chunk and order of axes do not fit together");
        }
        let itemsize = fill.len();
        let chunk_bytes = chunk.iter().try_fold(itemsize, |size, axis| size.checked_mul(*axis));
        let Some(chunk_bytes) = chunk_bytes.filter(|size| *size <= isize::MAX as usize && itemsize > 0) else {
            return wrong("a chunk of this shape is too large, or its items have no bytes");
        };
        if !parts.is_sorted_by_key(|part| part.0) || parts.first().is_some_and(|part| part.0 != 0) {
            return wrong("the first chunks of the parts do not ascend from 0");
        }
        let bounds = Vec::new();
        Ok(Self { shape, chunk, bounds, order, itemsize, items, fill, chunk_bytes, short, parts })
    }

    /// The same array with some axes cut into chunks of several lengths: where these start, and where the
    /// last one ends.
    pub fn cut_at(self, bounds: Vec<Option<Arc<[usize]>>>) -> Outcome<Self> {
        let fits = |(axis, bounds): (usize, &Option<Arc<[usize]>>)| {
            let Some(bounds) = bounds else { return true };
            let longest = bounds.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
            bounds.first() == Some(&0)
                && bounds.is_sorted_by(|one, other| one < other)
                && bounds.last().is_some_and(|last| *last >= self.shape[axis])
                && longest == Some(self.chunk[axis])
        };
        if bounds.len() != self.shape.len() || !bounds.iter().enumerate().all(fits) {
            return Err(Error::new(Kind::Argument, "the chunks of an axis do not ascend from 0 to its end"));
        }
        Ok(Self { bounds, ..self })
    }

    /// The same array in another shape; `None` for another number of axes, and for axes with chunks of
    /// several lengths.
    pub fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> Option<Self> {
        (shape.len() == self.shape.len() && !self.is_rectilinear()).then(|| Self { shape, short, ..self.clone() })
    }

    /// Whether chunks have several lengths along some axis.
    pub fn is_rectilinear(&self) -> bool {
        !self.bounds.is_empty()
    }

    /// How an axis is cut.
    pub fn cut(&self, axis: usize) -> Cut<'_> {
        match self.bounds.get(axis) {
            Some(Some(bounds)) => Cut::Rectilinear(bounds),
            _ => Cut::Regular(self.chunk[axis]),
        }
    }

    /// The number of a chunk, in C order over the grid.
    pub fn number(&self, coords: &[usize]) -> usize {
        let counts = self.shape.iter().enumerate().map(|(axis, length)| self.cut(axis).count(*length));
        coords.iter().zip(counts).fold(0, |number: usize, (coord, count)| number.saturating_mul(count) + coord)
    }

    /// What the trailer of a chunk of rows states: its number in its part, and whose part that is.
    pub fn stated(&self, number: usize) -> Stated {
        let part = self.parts.partition_point(|part| part.0 <= number);
        let (first, identity) = part.checked_sub(1).map_or((0, None), |part| self.parts[part]);
        Stated { number: (number - first) as u64, identity }
    }

    /// Whether chunks hold their items in C order.
    pub fn is_c_order(&self) -> bool {
        self.order.is_sorted()
    }

    /// How many rows chunk `number` holds, of an array that is cut along its first axis only.
    pub fn rows(&self, number: usize) -> usize {
        self.chunk[0].min(self.shape[0] - number * self.chunk[0])
    }

    /// The bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.chunk_bytes / self.chunk[0]
    }
}

/// A part of an axis that lies in one chunk.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The number of the chunk along the axis.
    pub chunk: usize,
    /// The first item in the chunk.
    pub start: usize,
    pub count: usize,
    /// The first item in the selection.
    pub position: usize,
    /// When the items are no range: the number of the list that has them.
    pub list: Option<usize>,
}

/// The parts of an axis, one for each chunk that is touched. Part number n is computed when it is asked
/// for: a file may claim more chunks than memory could hold parts.
#[derive(Clone, Copy, Debug)]
pub struct RangeParts {
    start: usize,
    count: usize,
    step: usize,
    chunk: usize,
    parts: usize,
}

impl RangeParts {
    /// Cut `count` indices from `start` on, `step` apart, by chunks of `chunk` items. None of the
    /// numbers is 0, and the last index fits `usize`.
    pub fn new(start: usize, count: usize, step: usize, chunk: usize) -> Self {
        let last = start + (count - 1) * step;
        let parts = if step >= chunk { count } else { last / chunk - start / chunk + 1 };
        Self { start, count, step, chunk, parts }
    }

    pub fn len(&self) -> usize {
        self.parts
    }

    /// The same indices, cut by chunks that are `times` as long.
    pub fn coarser(&self, times: usize) -> Self {
        Self::new(self.start, self.count, self.step, self.chunk.saturating_mul(times))
    }

    pub fn part(&self, number: usize) -> Part {
        let Self { start, count, step, chunk, .. } = *self;
        if step >= chunk {
            let index = start + number * step;
            return Part { chunk: index / chunk, start: index % chunk, count: 1, position: number, list: None };
        }
        let touched = start / chunk + number;
        let begin = touched * chunk;
        let position = begin.saturating_sub(start).div_ceil(step);
        let end = (begin.saturating_add(chunk) - start).div_ceil(step).min(count);
        let inside = start + position * step - begin;
        Part { chunk: touched, start: inside, count: end - position, position, list: None }
    }

    /// The number of the part that holds index `position` of the selection.
    pub fn number(&self, position: usize) -> usize {
        if self.step >= self.chunk {
            return position;
        }
        (self.start + position * self.step) / self.chunk - self.start / self.chunk
    }
}

/// Cut `count` indices from `start` on, `step` apart, by chunks of several lengths. None of the numbers is
/// 0, and the last index lies before the last bound.
pub fn bounded_parts(start: usize, count: usize, step: usize, bounds: &[usize]) -> Outcome<Vec<Part>> {
    let mut parts = Vec::new();
    let (mut position, mut chunk) = (0, 0);
    while position < count {
        let index = start + position * step;
        chunk += bounds[chunk + 1..].partition_point(|bound| *bound <= index);
        let inside = (bounds[chunk + 1] - 1 - index) / step + 1;
        let items = inside.min(count - position);
        push(&mut parts, Part { chunk, start: index - bounds[chunk], count: items, position, list: None })?;
        position += items;
    }
    Ok(parts)
}

/// The parts of an axis that is a range, or of one with an index array.
pub enum AxisParts {
    Range(RangeParts),
    /// The same, with a list of all parts: looking one up takes no division.
    ListedRange(RangeParts, Vec<Part>),
    /// Of an index array, or of chunks of several lengths.
    Listed(Vec<Part>),
}

/// The most parts of a range that are listed.
const MOST_LISTED: usize = 1024;

impl AxisParts {
    pub fn of_range(parts: RangeParts) -> Self {
        match parts.len() {
            2..=MOST_LISTED => Self::ListedRange(parts, (0..parts.len()).map(|number| parts.part(number)).collect()),
            _ => Self::Range(parts),
        }
    }

    /// The range that was cut, if the axis is one with chunks of one length.
    pub fn range(&self) -> Option<RangeParts> {
        match self {
            Self::Range(parts) | Self::ListedRange(parts, _) => Some(*parts),
            Self::Listed(_) => None,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Range(parts) => parts.len(),
            Self::ListedRange(_, parts) | Self::Listed(parts) => parts.len(),
        }
    }

    pub fn part(&self, number: usize) -> Part {
        match self {
            Self::Range(parts) => parts.part(number),
            Self::ListedRange(_, parts) | Self::Listed(parts) => parts[number],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_cutting_step_by_step() {
        for start in [0, 1, 4, 5, 17] {
            for count in 1..20 {
                for step in 1..14 {
                    for chunk in 1..9 {
                        let parts = RangeParts::new(start, count, step, chunk);
                        let (mut position, mut number) = (0, 0);
                        while position < count {
                            let (index, part) = (start + position * step, parts.part(number));
                            let items = ((chunk - 1 - index % chunk) / step + 1).min(count - position);
                            let found = (part.chunk, part.start, part.count, part.position);
                            assert_eq!(found, (index / chunk, index % chunk, items, position));
                            for inside in position..position + items {
                                assert_eq!(parts.number(inside), number);
                            }
                            position += items;
                            number += 1;
                        }
                        assert_eq!(parts.len(), number);
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_several_lengths_are_those_of_cutting_step_by_step() {
        let bounds = [0, 3, 4, 9, 10, 20];
        let cut = Cut::Rectilinear(&bounds);
        for start in 0..20 {
            for step in 1..12 {
                for count in 1..=(19 - start) / step + 1 {
                    let parts = bounded_parts(start, count, step, &bounds).unwrap();
                    let listed = parts.iter().flat_map(|part| (0..part.count).map(move |place| (part, place)));
                    let found: Vec<_> = listed
                        .map(|(part, place)| {
                            assert!(part.start + place * step < cut.length(part.chunk));
                            (part.position + place, cut.start(part.chunk) + part.start + place * step)
                        })
                        .collect();
                    let wanted: Vec<_> = (0..count).map(|position| (position, start + position * step)).collect();
                    assert_eq!(found, wanted, "{start} {count} {step}");
                    assert!(parts.windows(2).all(|pair| pair[0].chunk < pair[1].chunk));
                }
            }
        }
        for index in 0..20 {
            let (chunk, place) = cut.locate(index);
            assert!(cut.start(chunk) + place == index && place < cut.length(chunk));
        }
    }

    #[test]
    fn bounds_that_do_not_fit_are_refused() {
        let grid = || Grid::new(vec![10, 4], vec![5, 4], vec![0, 1], vec![0], None, None, Vec::new()).unwrap();
        let cut = |bounds: &[usize]| grid().cut_at(vec![Some(bounds.into()), None]);
        let made = cut(&[0, 5, 6, 11]).unwrap();
        assert_eq!((made.number(&[2, 0]), made.is_rectilinear()), (2, true));
        assert!(made.resized(vec![11, 4], None).is_none() && grid().resized(vec![11, 4], None).is_some());
        for wrong in
            [&[][..], &[0], &[1, 5, 11], &[0, 5, 5, 11], &[0, 5, 9], &[0, 4, 8, 12], &[0, 5, 11], &[0, 6, 5, 10]]
        {
            assert!(cut(wrong).is_err(), "{wrong:?}");
        }
        assert!(grid().cut_at(vec![None]).is_err());
    }

    #[test]
    fn an_axis_of_the_largest_length_is_cut() {
        let length = isize::MAX as usize;
        let parts = RangeParts::new(0, length, 1, 1);
        assert_eq!((parts.len(), parts.part(length - 1).chunk), (length, length - 1));
        let parts = RangeParts::new(5, length - 5, 1, length);
        assert_eq!((parts.len(), parts.part(0).count), (1, length - 5));
        assert_eq!(parts.coarser(7).part(0).start, 5);
    }
}
