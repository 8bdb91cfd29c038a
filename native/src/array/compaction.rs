//! Arrays of rows, some of which are removed: the rows behind them move up. Each new chunk is decoded from
//! the old ones that hold its rows, and encoded; chunks in front of the first removed row stay.

use crate::array::chunk_file;
use crate::array::coding::Compression;
use crate::array::images::{Made, Outcomes, Target, make_all};
use crate::array::layout::{Failure, Layout};
use crate::array::rows;
use crate::array::scatter::{Axis, Region};
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::workspace::{Buffers, Workspace};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::grow;
use std::ops::Range;

/// Make the chunks `numbers` of `after`: the array `before` without the rows `removed`, whose numbers
/// ascend. The chunks of `before` are `held` where the caller hands them over.
#[allow(clippy::too_many_arguments, reason = "both arrays have chunks and places")]
pub fn remove_rows(
    before: &Layout,
    held: Option<&Held<'_>>,
    after: &Layout,
    numbers: Range<usize>,
    removed: &[usize],
    transaction: Option<&str>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Outcomes> {
    let (old, new) = (&before.grid, &after.grid);
    let fits = before.coding.framed
        && after.coding.framed
        && old.row_bytes() == new.row_bytes()
        && removed.is_sorted_by(|one, other| one < other)
        && removed.last().is_none_or(|last| *last < old.shape[0])
        && new.shape[0] + removed.len() == old.shape[0]
        && numbers.end <= new.shape[0].div_ceil(new.chunk[0]);
    if !fits {
        return Err(Error::new(Kind::Argument, "the array does not get shorter by the removed rows"));
    }
    let source = Source { layout: before, stored: &Stored::open(before, held, false)?, removed };
    let target = Target::new(after, numbers.clone().collect(), transaction.into())?;
    make_all(&target, threads, workspace, interrupt, |place, workspace| {
        make(&source, &target, numbers.start + place, workspace)
    })
}

/// Where the kept rows of an array lie.
struct Source<'a> {
    layout: &'a Layout,
    stored: &'a Stored<'a>,
    removed: &'a [usize],
}

fn make(
    source: &Source<'_>,
    target: &Target<'_>,
    number: usize,
    workspace: &mut Workspace,
) -> Result<Option<Made>, Failure> {
    let Workspace { scratch, buffers, chunk, packer, framed, .. } = workspace;
    let grid = &target.layout.grid;
    let noted = |error: Error| Failure { coords: vec![number], key: String::new(), error };
    let first = number * grid.chunk[0];
    let rows = first..first + grid.rows(number);
    let bytes = rows.len() * grid.row_bytes();
    source.gather(rows, chunk, scratch, buffers)?;
    let chunk = &chunk[..bytes];
    let Compression::Blosc(recipe) = target.layout.coding.compression else {
        return Err(noted(Error::new(Kind::Argument, "only Blosc chunks have a head and a trailer")));
    };
    let packed = rows::pack(recipe, grid, chunk, number, scratch, packer, framed);
    packed.and_then(|()| target.keep(number, &[framed])).map(Some).map_err(noted)
}

impl Source<'_> {
    /// Write the rows that get the numbers `rows` to the beginning of `out`. Of each old chunk all between the
    /// first and the last of them are decoded at once and move together there, so that memory is bounded by
    /// the size of a chunk of both arrays.
    fn gather(
        &self,
        rows: Range<usize>,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Result<(), Failure> {
        let (row_bytes, length) = (self.layout.grid.row_bytes(), self.layout.grid.chunk[0]);
        let (mut row, mut next) = old_row(self.removed, rows.start);
        let end = old_row(self.removed, rows.end - 1).0 + 1;
        let most = rows.len() + length.min(end - row);
        let mut out = grow(out, most * row_bytes).map_err(|error| self.failure(row, error))?;
        while row < end {
            let stop = end.min((row / length + 1) * length);
            let behind = next + self.removed[next..].partition_point(|removed| *removed < stop);
            let gone = &self.removed[next..behind];
            if gone.len() < stop - row {
                let place = &mut out[..(stop - row) * row_bytes];
                self.decode(row..stop, place, scratch, buffers)?;
                close_gaps(place, row, gone, row_bytes);
            }
            out = &mut out[(stop - row - gone.len()) * row_bytes..];
            (row, next) = (stop, behind);
        }
        Ok(())
    }

    /// Decode old rows that lie in one chunk.
    fn decode(
        &self,
        rows: Range<usize>,
        out: &mut [u8],
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Result<(), Failure> {
        let grid = &self.layout.grid;
        let number = rows.start / grid.chunk[0];
        let key = self.stored.key(grid, &[number]);
        let (size, row) = (grid.itemsize, grid.row_bytes() / grid.itemsize);
        let start = (rows.start - number * grid.chunk[0]) * row;
        let wanted = out.len();
        let done = match self.stored.chunk(grid, &[number], &key) {
            Ok(Chunk::Stored(extent)) => {
                let count = rows.len() * row;
                let axis = |stored| Axis { size: stored * row, start, count, step: 1, stride: size as isize };
                let region = |stored, memory| Region::new(&[axis(stored)], size, 0, memory);
                let expected = rows::expected(grid, number);
                let done =
                    chunk_file::decode(&extent, &expected, (wanted, None), |rows| region(rows, out), scratch, buffers);
                done.map(|_| ())
            }
            Ok(_) => corrupt!("the chunk is missing"),
            Err(error) => Err(error),
        };
        done.map_err(|error| Failure { coords: vec![number], key, error })
    }

    fn failure(&self, row: usize, error: Error) -> Failure {
        Failure { coords: vec![row / self.layout.grid.chunk[0]], key: String::new(), error }
    }
}

/// The number that a row had before rows were removed, and how many of these lie in front of it.
fn old_row(removed: &[usize], row: usize) -> (usize, usize) {
    // In front of row `removed[n]`, all but n rows are kept.
    let (mut low, mut high) = (0, removed.len());
    while low < high {
        let middle = low.midpoint(high);
        if removed[middle] - middle <= row {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (row + low, low)
}

/// Move rows, the first of which has the number `first`, to the places of those in front of them that are gone.
fn close_gaps(rows: &mut [u8], first: usize, gone: &[usize], row_bytes: usize) {
    let ends = gone.iter().skip(1).map(|row| row - first).chain([rows.len() / row_bytes]);
    for (count, (row, end)) in gone.iter().zip(ends).enumerate() {
        let start = row - first + 1;
        rows.copy_within(start * row_bytes..end * row_bytes, (start - count - 1) * row_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_behind_removed_ones() {
        let removed = [0, 1, 4, 9];
        let kept = [2, 3, 5, 6, 7, 8, 10, 11];
        for (row, old) in kept.into_iter().enumerate() {
            let before = removed.iter().filter(|gone| **gone < old).count();
            assert_eq!(old_row(&removed, row), (old, before), "{row}");
        }
        assert_eq!(old_row(&[], 7), (7, 0));
    }

    #[test]
    fn kept_rows_move_together() {
        let rows: Vec<u8> = (20..30).flat_map(|row| [row, row]).collect();
        for gone in [vec![], vec![20], vec![29], vec![20, 21, 25, 29], (20..30).collect(), vec![24], vec![22, 24]] {
            let kept: Vec<u8> =
                (20..30_u8).filter(|row| !gone.contains(&usize::from(*row))).flat_map(|r| [r, r]).collect();
            let mut moved = rows.clone();
            close_gaps(&mut moved, 20, &gone, 2);
            assert_eq!(moved[..kept.len()], kept, "{gone:?}");
        }
    }
}
