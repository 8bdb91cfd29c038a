//! Rows that get new values, by their numbers in any order; of several values for one row the last counts.
//! Only the blocks that hold these rows are encoded again where that is possible.

use crate::array::images::{Destination, Outcomes, Target, make_all};
use crate::array::layout::{Failure, Layout};
use crate::array::overwrite::{FEW, NewItems};
use crate::array::scatter::SourceMemory;
use crate::array::staging::encode_over;
use crate::array::stored::{Held, Stored};
use crate::array::workspace::Workspace;
use crate::array::{rows, slots};
use crate::error::{Error, Kind, Outcome};
use crate::interrupt::Interrupt;
use crate::memory::reserved;

/// Values of rows of an array, whose chunks are `held` where the caller hands them over. There is one value
/// for each of `rows`, or a single one for all; they lie in `values`, of so many bytes.
pub struct Assignment<'a> {
    pub layout: &'a Layout,
    pub held: Option<&'a Held<'a>>,
    pub rows: &'a [i64],
    pub values: SourceMemory<'a>,
    pub bytes: usize,
}

/// The rows of one chunk that get values: their numbers in the chunk, which ascend, and the places of the
/// values.
struct RowValues<'a> {
    rows: &'a [(usize, usize)],
    /// The first row of the chunk.
    first: usize,
    row_bytes: usize,
    values: SourceMemory<'a>,
    /// Bytes from one value to the next.
    stride: usize,
}

/// Make the new chunks of an array.
pub fn assign(
    assignment: &Assignment<'_>,
    destination: Destination<'_>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Outcomes> {
    let Assignment { layout, held, .. } = assignment;
    let plan = Plan::new(assignment)?;
    let numbers = plan.chunks.iter().map(|(number, _, _)| *number).collect();
    let (stored, target) = (Stored::open(layout, *held, false)?, Target::new(layout, numbers, destination)?);
    make_all(&target, threads, workspace, interrupt, |place, workspace| {
        let (number, values) = plan.values(place, assignment);
        let key = stored.key(&layout.grid, &[number]);
        let old = || stored.chunk(&layout.grid, &[number], &key);
        let keep = |bytes: &[u8]| target.keep(number, &[bytes]);
        let made = if layout.coding.framed {
            rows::encode(&layout.coding, &layout.grid, old, number, &values, false, workspace, keep).map(Some)
        } else if layout.coding.slotted {
            slots::encode(&layout.coding, &layout.grid, old, number, &values, (false, true), workspace, keep)
        } else {
            encode_over(layout, layout.grid.chunk_bytes, &values, old, workspace, keep)
        };
        made.map_err(|error| Failure { coords: vec![number], key, error })
    })
}

/// The rows of an assignment in the order of their numbers, and which of them each chunk has.
struct Plan {
    rows: Vec<(usize, usize)>,
    /// The number of a chunk, and where its rows begin and end.
    chunks: Vec<(usize, usize, usize)>,
    row_bytes: usize,
    stride: usize,
}

impl Plan {
    fn new(assignment: &Assignment<'_>) -> Outcome<Self> {
        let Assignment { layout, rows, bytes, .. } = assignment;
        let (grid, wrong) = (&layout.grid, |text: &str| Err(Error::new(Kind::Argument, text)));
        let boxes = grid.shape.len() != 1 || grid.is_rectilinear();
        if !layout.coding.framed && boxes {
            return wrong("the chunks of this array are no rows");
        }
        let row_bytes = grid.row_bytes();
        if *bytes != row_bytes && *bytes != row_bytes.saturating_mul(rows.len()) {
            return wrong("the values are neither one, nor one for each row");
        }
        if let Some(bad) = rows.iter().find(|row| **row < 0 || **row as u64 >= grid.shape[0] as u64) {
            return Err(Error::new(Kind::Selection, format!("row {bad} of an array of {} rows", grid.shape[0])));
        }
        let mut places = reserved(rows.len())?;
        places.extend(rows.iter().enumerate().map(|(place, row)| (*row as usize, place)));
        if !rows.is_sorted() {
            // Pairs differ in their places, so that the last value of a row stays the last.
            places.sort_unstable();
        }
        let mut chunks = Vec::new();
        let mut start = 0;
        for rows in places.chunk_by(|one, other| one.0 / grid.chunk[0] == other.0 / grid.chunk[0]) {
            chunks.push((rows[0].0 / grid.chunk[0], start, start + rows.len()));
            start += rows.len();
        }
        let stride = if *bytes == row_bytes { 0 } else { row_bytes };
        Ok(Self { rows: places, chunks, row_bytes, stride })
    }

    /// The number of a chunk, and the values that it gets.
    fn values<'a>(&'a self, place: usize, assignment: &Assignment<'a>) -> (usize, RowValues<'a>) {
        let (number, start, end) = self.chunks[place];
        let Self { rows, row_bytes, stride, .. } = self;
        let (first, values) = (number * assignment.layout.grid.chunk[0], assignment.values);
        (number, RowValues { rows: &rows[start..end], first, row_bytes: *row_bytes, values, stride: *stride })
    }
}

impl RowValues<'_> {
    fn copy<const N: usize>(&self, chunk: &mut [u8]) {
        for (row, place) in self.rows {
            let start = (row - self.first) * N;
            chunk[start..start + N].copy_from_slice(self.values.slice((place * self.stride) as isize, N));
        }
    }
}

impl NewItems for RowValues<'_> {
    fn itemsize(&self) -> usize {
        self.row_bytes
    }

    fn span(&self) -> (usize, usize) {
        (self.rows[0].0 - self.first, self.rows[self.rows.len() - 1].0 - self.first + 1)
    }

    fn rank(&self, limit: usize) -> usize {
        self.rows.partition_point(|(row, _)| row - self.first < limit)
    }

    fn gather(&self, chunk: &mut [u8]) {
        match self.row_bytes {
            1 => self.copy::<1>(chunk),
            2 => self.copy::<2>(chunk),
            4 => self.copy::<4>(chunk),
            8 => self.copy::<8>(chunk),
            bytes => {
                for (row, place) in self.rows {
                    let start = (row - self.first) * bytes;
                    let value = self.values.slice((place * self.stride) as isize, bytes);
                    chunk[start..start + bytes].copy_from_slice(value);
                }
            }
        }
    }

    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    fn pick(&self, chunk: &[u8], out: &mut Vec<u8>) -> bool {
        let size = self.row_bytes;
        let few = self.rows.len().saturating_mul(size) < chunk.len() / FEW;
        if !few || self.rows.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return false;
        }
        out.clear();
        self.rows.iter().for_each(|(row, _)| out.extend_from_slice(&chunk[(row - self.first) * size..][..size]));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_row_counts() {
        let values: Vec<u8> = (0..12).collect();
        // Rows in the order of their numbers, each with the place of its value.
        let rows = [(10, 2), (11, 0), (11, 3), (13, 1)];
        let given = RowValues { rows: &rows, first: 10, row_bytes: 3, values: values[..].into(), stride: 3 };
        let mut chunk = [99; 15];
        given.gather(&mut chunk);
        assert_eq!(chunk, [6, 7, 8, 9, 10, 11, 99, 99, 99, 3, 4, 5, 99, 99, 99]);
        assert_eq!((given.span(), given.itemsize()), ((0, 4), 3));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|limit| given.rank(limit)), [0, 1, 3, 3, 4, 4]);
        let mut old = Vec::new();
        assert!(!given.pick(&[0; 15], &mut old), "a row has two values");
        let rows = [(10, 0), (12, 1)];
        let few = RowValues { rows: &rows, ..given };
        assert!(!few.pick(&[0; 96], &mut old), "these are not few");
        let numbers: Vec<u8> = (0..120).collect();
        assert!(few.pick(&numbers, &mut old));
        assert_eq!(old, [0, 1, 2, 6, 7, 8]);
        let given = RowValues { rows: &[(10, 2), (11, 0), (11, 3), (13, 1)], ..few };
        let single = RowValues { values: values[..3].into(), stride: 0, ..given };
        single.gather(&mut chunk);
        assert_eq!(chunk, [0, 1, 2, 0, 1, 2, 99, 99, 99, 0, 1, 2, 99, 99, 99]);
    }
}
