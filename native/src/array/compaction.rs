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
    let target = Target::new(after, numbers.clone().collect(), transaction)?;
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
    let Workspace { scratch, buffers, chunk, enclosing, packer, framed } = workspace;
    let grid = &target.layout.grid;
    let noted = |error: Error| Failure { coords: vec![number], key: String::new(), error };
    let first = number * grid.chunk[0];
    let rows = first..first + grid.rows(number);
    let chunk = grow(chunk, rows.len() * grid.row_bytes()).map_err(noted)?;
    source.gather(rows, chunk, enclosing, scratch, buffers)?;
    let Compression::Blosc(recipe) = target.layout.coding.compression else {
        return Err(noted(Error::new(Kind::Argument, "only Blosc chunks have a head and a trailer")));
    };
    let packed = rows::pack(recipe, grid, chunk, number, scratch, packer, framed);
    packed.and_then(|()| target.keep(number, &[framed])).map(Some).map_err(noted)
}

impl Source<'_> {
    /// Copy the rows that get the numbers `rows` to `out`. Of each old chunk all between the first and the
    /// last of them are decoded at once, so that memory is bounded by the size of a chunk.
    fn gather(
        &self,
        rows: Range<usize>,
        mut out: &mut [u8],
        enclosing: &mut Vec<u8>,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Result<(), Failure> {
        let (row_bytes, length) = (self.layout.grid.row_bytes(), self.layout.grid.chunk[0]);
        let (mut row, mut next) = old_row(self.removed, rows.start);
        let end = old_row(self.removed, rows.end - 1).0 + 1;
        while row < end {
            let stop = end.min((row / length + 1) * length);
            let behind = next + self.removed[next..].partition_point(|removed| *removed < stop);
            let gone = &self.removed[next..behind];
            let (place, rest) = out.split_at_mut((stop - row - gone.len()) * row_bytes);
            if gone.is_empty() {
                self.decode(row..stop, place, scratch, buffers)?;
            } else if !place.is_empty() {
                let memory = grow(enclosing, (stop - row) * row_bytes).map_err(|error| self.failure(row, error))?;
                self.decode(row..stop, memory, scratch, buffers)?;
                copy_kept(memory, row, gone, row_bytes, place);
            }
            (row, next, out) = (stop, behind, rest);
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
                let done = chunk_file::decode(&extent, &expected, wanted, |rows| region(rows, out), scratch, buffers);
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

/// Copy rows from `first` on to `out`, without those that are gone.
fn copy_kept(rows: &[u8], first: usize, gone: &[usize], row_bytes: usize, mut out: &mut [u8]) {
    let mut start = first;
    let ends = gone.iter().copied().chain([first + rows.len() / row_bytes]);
    for end in ends {
        let kept = &rows[(start - first) * row_bytes..(end - first) * row_bytes];
        let (place, rest) = out.split_at_mut(kept.len());
        place.copy_from_slice(kept);
        (start, out) = (end + 1, rest);
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
    fn kept_rows_are_copied_together() {
        let rows: Vec<u8> = (20..30).flat_map(|row| [row, row]).collect();
        for gone in [vec![20], vec![29], vec![20, 21, 25, 29], (20..30).collect(), vec![24]] {
            let kept: Vec<u8> =
                (20..30_u8).filter(|row| !gone.contains(&usize::from(*row))).flat_map(|r| [r, r]).collect();
            let mut out = vec![0; kept.len()];
            copy_kept(&rows, 20, &gone, 2, &mut out);
            assert_eq!(out, kept, "{gone:?}");
        }
    }
}
