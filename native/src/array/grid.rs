//! Which items an array has: its shape, how it is cut into chunks, and what an item is.

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
}

impl Grid {
    pub fn new(
        shape: Vec<usize>,
        chunk: Vec<usize>,
        order: Vec<usize>,
        fill: Vec<u8>,
        items: Option<Items>,
        short: Option<(usize, usize)>,
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
        Ok(Self { shape, chunk, order, itemsize, items, fill, chunk_bytes, short })
    }

    /// The same array in another shape; `None` for another number of axes.
    pub fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> Option<Self> {
        (shape.len() == self.shape.len()).then(|| Self { shape, short, ..self.clone() })
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

/// Cut `count` indices from `start` on, `step` apart, by chunks of `chunk` items.
pub fn cut(start: usize, count: usize, step: usize, chunk: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut position = 0;
    while position < count {
        let index = start + position * step;
        let inside = index % chunk;
        let items = ((chunk - 1 - inside) / step + 1).min(count - position);
        parts.push(Part { chunk: index / chunk, start: inside, count: items, position, list: None });
        position += items;
    }
    parts
}
