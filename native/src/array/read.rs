//! Reading a selection: each chunk that it touches is opened, read, decoded and scattered, on
//! several threads where there is enough to do.
//!
//! Failures are reported chunk by chunk, and absent chunks are filled and counted: only the caller
//! knows what an absent chunk means.

use crate::array::addresses::Addresses;
use crate::array::coding::Compression;
use crate::array::layout::{Failure, Failures};
use crate::array::partial_read;
use crate::array::scatter::Destination;
use crate::array::selection::{ChunkPart, Files, Selection};
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::workspace::Workspace;
use crate::array::{chunk_file, rows, shards, slots};
use crate::error::{Kind, Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::reserved;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The result of a read.
#[derive(Default)]
pub struct Report {
    /// How many chunks were absent; their part holds the fill value.
    pub absent: usize,
    pub failures: Vec<Failure>,
}

/// Read a selection into its memory: all chunks, or those in the files of the numbers `only`. `held` has
/// the chunks where the caller hands them over.
pub fn read(
    selection: &Selection<'_, Destination<'_>>,
    only: Option<&[usize]>,
    held: Option<&Held<'_>>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Report> {
    if let Addresses::Indexed(keys, format) = &*selection.layout.addresses {
        return shards::read(selection, only, keys, format, threads, workspace, interrupt);
    }
    let alone = selection.count() == 1;
    let files = Files::new(only, selection.count(), 0..usize::MAX)?;
    let stored = Stored::open(selection.layout, held, alone)?;
    let absent = AtomicUsize::new(0);
    let failures = Failures::default();
    let next = AtomicUsize::new(0);
    let work = |workspace: &mut Workspace| {
        let Some(number) = files.number(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(false);
        };
        let part = selection.chunk(number);
        let coords = part.coords();
        let key = stored.key(&selection.layout.grid, &coords);
        let found = stored.chunk(&selection.layout.grid, &coords, &key);
        match found.and_then(|found| read_chunk(selection, &found, &part, workspace)) {
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

/// The bytes of a chunk that a read needs beside its first ones: how many bytes the chunk has in front of
/// its checksum or trailer, and the ranges. `None` where all are needed.
pub type Needed = Option<(usize, Vec<Range<usize>>)>;

/// Find out which bytes of chunks a read needs, for chunks of the numbers `only` of which the first bytes
/// are `heads`.
pub fn needed(
    selection: &Selection<'_, Destination<'_>>,
    only: &[usize],
    heads: &[&[u8]],
    interrupt: &Interrupt,
) -> Outcome<Vec<Needed>> {
    let coding = &selection.layout.coding;
    let files = Files::new(Some(only), selection.count(), 0..usize::MAX)?;
    let blosc = matches!(coding.compression, Compression::Blosc(_)) && !coding.slotted;
    let mut found = reserved(files.len())?;
    for (index, head) in (0..files.len()).zip(heads) {
        interrupt.check()?;
        let Some(number) = files.number(index).filter(|_| blosc) else {
            found.push(None);
            continue;
        };
        let part = selection.chunk(number);
        let wanted = part.enclosing()?;
        found.push(match coding.framed {
            true => chunk_file::needed(head, &wanted),
            false => partial_read::needed(head, part.bytes(), &wanted),
        });
    }
    Ok(found)
}

/// Read what is wanted of a chunk, or fill it; return whether the chunk is stored.
fn read_chunk(
    selection: &Selection<'_, Destination<'_>>,
    found: &Chunk<'_>,
    part: &ChunkPart<'_, Destination<'_>>,
    workspace: &mut Workspace,
) -> Outcome<bool> {
    let Workspace { scratch, buffers, chunk, enclosing, .. } = workspace;
    let layout = selection.layout;
    let (coding, grid) = (&layout.coding, &layout.grid);
    part.write(enclosing, |region| match found {
        Chunk::Stored(extent) if coding.framed => {
            let number = part.parts().first().map_or(0, |part| part.chunk);
            rows::read(grid, extent, number, layout.fronts(), region, scratch, buffers)
        }
        Chunk::Stored(extent) if coding.slotted => {
            slots::read(grid, extent, grid.number(&part.coords()), layout.fronts(), region, scratch, buffers)
        }
        Chunk::Stored(extent) => {
            coding.read_verified(&layout.verified, extent, part.bytes(), region, scratch, buffers, chunk)
        }
        Chunk::Absent if coding.framed => corrupt!("the chunk is missing"),
        Chunk::Absent => {
            region.fill(&grid.fill);
            Ok(())
        }
        Chunk::Constant(item) => {
            region.fill(item);
            Ok(())
        }
    })?;
    Ok(!matches!(found, Chunk::Absent))
}
