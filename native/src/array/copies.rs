//! Copies of chunk files in another array of rows, under other numbers. Every checksum is compared, the
//! trailer states the new number and identity, and all other bytes stay as they are.

use crate::array::chunk_file::{self, FRAME};
use crate::array::grid::Grid;
use crate::array::images::{Made, Outcomes, Target, make_all};
use crate::array::layout::{Failure, Layout};
use crate::array::rows;
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::trailer;
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::Extent;
use crate::interrupt::Interrupt;
use std::ops::Range;

/// Copy chunk `number + offset` of `source` as chunk `number` of `layout`, for each of `numbers`. `held` has
/// the chunks of `source` where the caller hands them over.
#[allow(clippy::too_many_arguments, reason = "both arrays have chunks and places")]
pub fn copy(
    source: &Layout,
    held: Option<&Held<'_>>,
    layout: &Layout,
    numbers: Range<usize>,
    offset: usize,
    transaction: Option<&str>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Outcomes> {
    let counts = [source, layout].map(|layout| layout.grid.shape[0].div_ceil(layout.grid.chunk[0]));
    let fits = [source, layout].iter().all(|layout| layout.coding.framed)
        && source.grid.row_bytes() == layout.grid.row_bytes()
        && source.grid.chunk[0] == layout.grid.chunk[0]
        && numbers.end.checked_add(offset).is_some_and(|end| end <= counts[0])
        && numbers.end <= counts[1];
    if !fits {
        return Err(Error::new(Kind::Argument, "these are no chunks of rows of both arrays"));
    }
    let stored = Stored::open(source, held, false)?;
    let target = Target::new(layout, numbers.clone().collect(), transaction.into())?;
    make_all(&target, threads, workspace, interrupt, |place, workspace| {
        let number = numbers.start + place;
        let coords = [number + offset];
        let key = stored.key(&source.grid, &coords);
        let copied = match stored.chunk(&source.grid, &coords, &key) {
            Ok(Chunk::Stored(extent)) => copy_one(&source.grid, &extent, coords[0], &target, number, workspace),
            Ok(_) => corrupt!("the chunk is missing"),
            Err(error) => Err(error),
        };
        copied.map(Some).map_err(|error| Failure { coords: coords.to_vec(), key, error })
    })
}

fn copy_one(
    grid: &Grid,
    extent: &Extent<'_>,
    old: usize,
    target: &Target<'_>,
    number: usize,
    workspace: &mut Workspace,
) -> Outcome<Made> {
    let Workspace { buffers, chunk: whole, framed, .. } = workspace;
    chunk_file::open(extent, &rows::expected(grid, old), (usize::MAX, None), buffers, |mut open| {
        let front = trailer::front(open.decoder.header);
        let Some((trailer, _)) = open.trailer() else {
            return target.keep(number, &[extent.read_all(whole)?]);
        };
        let chunk = open.all()?;
        framed.clear();
        trailer.moved(&chunk[..front], target.layout.grid.stated(number), framed);
        target.keep(number, &[&FRAME, chunk, framed])
    })
}
