//! Which items an array has: its shape, how it is cut into chunks, and what an item is.

use crate::array::trailer::Stated;
use crate::array::zones::Items;
use crate::error::{Error, Kind, Outcome};

/// Shape and chunks of an array, and its items.
#[derive(Clone, Debug)]
pub struct Grid {
    pub shape: Vec<usize>,
    pub chunk: Vec<usize>,
    /// The order in which a chunk's axes are stored, slowest first.
    pub order: Vec<usize>,
    pub itemsize: usize,
    /// How items are ordered, if they are; for zone maps and comparisons.
    pub items: Option<Items>,
    /// One item.
    pub fill: Vec<u8>,
    /// The size of a decoded chunk.
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
        Ok(Self { shape, chunk, order, itemsize, items, fill, chunk_bytes, short, parts })
    }

    /// The same array in another shape; `None` for another number of axes.
    pub fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> Option<Self> {
        (shape.len() == self.shape.len()).then(|| Self { shape, short, ..self.clone() })
    }

    /// The number of a chunk, in C order over the grid.
    pub fn number(&self, coords: &[usize]) -> usize {
        let counts = self.shape.iter().zip(&self.chunk).map(|(length, chunk)| length.div_ceil(*chunk));
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

/// The parts of an axis that is a range, or of one with an index array.
pub enum AxisParts {
    Range(RangeParts),
    /// The same, with a list of all parts: looking one up takes no division.
    ListedRange(RangeParts, Vec<Part>),
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

    /// The range that was cut, if the axis is one.
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
    fn an_axis_of_the_largest_length_is_cut() {
        let length = isize::MAX as usize;
        let parts = RangeParts::new(0, length, 1, 1);
        assert_eq!((parts.len(), parts.part(length - 1).chunk), (length, length - 1));
        let parts = RangeParts::new(5, length - 5, 1, length);
        assert_eq!((parts.len(), parts.part(0).count), (1, length - 5));
        assert_eq!(parts.coarser(7).part(0).start, 5);
    }
}
