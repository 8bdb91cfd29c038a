//! Reading a selection: each chunk that it touches is opened, read, decoded and scattered, on
//! several threads where there is enough to do.
//!
//! Failures are reported chunk by chunk, and absent chunks are filled and counted: only the caller
//! knows what an absent chunk means.

use crate::array::addresses::Addresses;
use crate::array::layout::{Failure, Failures};
use crate::array::scatter::Destination;
use crate::array::selection::{ChunkPart, Files, Selection};
use crate::array::workspace::Workspace;
use crate::array::{rows, shards};
use crate::error::{Kind, Outcome};
use crate::files::Extent;
use crate::interrupt::Interrupt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The result of a read.
#[derive(Default)]
pub struct Report {
    /// How many chunks were absent; their part holds the fill value.
    pub absent: usize,
    pub failures: Vec<Failure>,
}

/// Read a selection into its memory: all chunks, or those in the files of the numbers `only`.
pub fn read(
    selection: &Selection<'_, Destination<'_>>,
    only: Option<&[usize]>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Report> {
    let keys = match &*selection.layout.addresses {
        Addresses::Keyed(keys) => keys,
        Addresses::Indexed(keys, format) => {
            return shards::read(selection, only, keys, format, threads, workspace, interrupt);
        }
    };
    let alone = selection.count() == 1;
    let files = Files::new(only, selection.count(), 0..usize::MAX)?;
    let root = if alone { None } else { keys.find()? };
    let absent = AtomicUsize::new(0);
    let failures = Failures::default();
    let next = AtomicUsize::new(0);
    let work = |workspace: &mut Workspace| {
        let Some(number) = files.number(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(false);
        };
        let part = selection.chunk(number);
        let coords = part.coords();
        let key = keys.key(&coords);
        let extent = match &root {
            Some(root) => root.extent(&key),
            None if alone => keys.extent(&key),
            None => Ok(None),
        };
        match extent.and_then(|extent| read_chunk(selection, extent, &part, workspace)) {
            Ok(true) => {}
            Ok(false) => {
                absent.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.kind == Kind::Argument => return Err(error),
            Err(error) => return Ok(failures.note(Failure { coords, key, error })),
        }
        Ok(true)
    };
    let threads = if alone { 1 } else { selection.threads(threads, selection.work(files.len())?) };
    interrupt.share(threads, workspace, work)?;
    Ok(Report { absent: absent.into_inner(), failures: failures.into_inner() })
}

/// Read what is wanted of a chunk, or fill it; return whether the chunk is stored.
fn read_chunk(
    selection: &Selection<'_, Destination<'_>>,
    extent: Option<Extent<'_>>,
    part: &ChunkPart<'_, Destination<'_>>,
    workspace: &mut Workspace,
) -> Outcome<bool> {
    let Workspace { scratch, buffers, chunk, enclosing, .. } = workspace;
    let layout = selection.layout;
    let (coding, grid) = (&layout.coding, &layout.grid);
    part.write(enclosing, |region| match &extent {
        extent if coding.framed => {
            let number = part.parts().first().map_or(0, |part| part.chunk);
            rows::read(grid, extent.as_ref(), number, region, scratch, buffers)
        }
        Some(extent) => {
            coding.read_verified(&layout.verified, extent, grid.chunk_bytes, region, scratch, buffers, chunk)
        }
        None => {
            region.fill(&grid.fill);
            Ok(())
        }
    })?;
    Ok(extent.is_some())
}
