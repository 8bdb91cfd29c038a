//! Reading a selection of an array whose chunks lie in shards.
//!
//! Threads share two kinds of work: opening a shard, which plans its reads, and carrying out
//! one of these reads. A read fetches chunks that lie near each other at once and decodes
//! them one after the other, so memory is bounded by what one read fetches.

use super::{Cut, InnerIndexes, Shard, ShardFormat, Touched};
use crate::array::addresses::Keys;
use crate::array::coding::Coding;
use crate::array::layout::{Failure, Failures};
use crate::array::read::Report;
use crate::array::scatter::Destination;
use crate::array::selection::{ChunkPart, Files, Selection};
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::files::verified::Verify;
use crate::interrupt::Interrupt;
use crate::memory::{grow, push};
use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A gap between wanted chunks up to this size is read along.
const GAP: usize = 32 << 10;
/// One read fetches no more than this, unless a single chunk is larger.
const MOST_FETCHED: usize = 2 << 20;
/// One read decodes about this much, so that there is something for every thread.
const LEAST_DECODED: usize = 128 << 10;
const MOST_DECODED: usize = 1 << 20;

struct Reading<'a> {
    selection: &'a Selection<'a, Destination<'a>>,
    keys: &'a Keys,
    format: &'a ShardFormat,
    root: Option<Root>,
    cut: Cut,
    /// The shards that are visited.
    files: Files<'a>,
    /// How many chunks are decoded per read.
    batch: usize,
    queue: Mutex<Queue>,
    absent: AtomicUsize,
    failures: Failures,
}

#[derive(Default)]
struct Queue {
    /// The next shard to open.
    next: usize,
    /// How many are being opened.
    opening: usize,
    reads: Vec<Read>,
}

/// Some chunks of a shard that are read at once.
struct Read {
    touched: Arc<Touched>,
    /// `None` when all chunks are absent.
    shard: Option<Arc<Shard>>,
    chunks: Chunks,
}

enum Chunks {
    /// Numbers of chunks that the selection touches, each with its bytes in the shard.
    Near(Vec<(usize, Range<usize>)>),
    /// One of which only a part is read.
    Part(usize, Range<usize>),
    /// Chunks that hold nothing but the fill value.
    Absent(Vec<Range<usize>>),
}

/// Read a selection into its memory: all chunks, or those in the shards of the numbers `only`.
pub fn read(
    selection: &Selection<'_, Destination<'_>>,
    only: Option<&[usize]>,
    keys: &Keys,
    format: &ShardFormat,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Report> {
    let cut = format.cut(selection);
    let files = Files::new(only, cut.count(), 0..usize::MAX)?;
    let chunk_bytes = selection.layout.grid.chunk_bytes;
    let count = match only {
        None => selection.count(),
        Some(_) => selection.count().min(files.len().saturating_mul(format.total())),
    };
    let threads = if count == 1 { 1 } else { selection.threads(threads, selection.work(count)?) };
    let decoded = count.saturating_mul(chunk_bytes) / (4 * threads);
    let reading = Reading {
        selection,
        keys,
        format,
        root: keys.find()?,
        cut,
        files,
        batch: (decoded.clamp(LEAST_DECODED, MOST_DECODED) / chunk_bytes).max(1),
        queue: Mutex::default(),
        absent: AtomicUsize::new(0),
        failures: Failures::default(),
    };
    interrupt.share(threads, workspace, |workspace| reading.step(workspace))?;
    Ok(Report { absent: reading.absent.into_inner(), failures: reading.failures.into_inner() })
}

impl<'a> Reading<'a> {
    /// Chunk `index` of those that the selection touches in a shard.
    fn chunk(&self, touched: &Touched, index: usize) -> ChunkPart<'a, Destination<'a>> {
        self.selection.chunk(touched.number(self.selection, index))
    }

    /// Do one piece of work; `false` when there is none left.
    fn step(&self, workspace: &mut Workspace) -> Outcome<bool> {
        let mut queue = self.queue.lock().expect("no thread panics");
        if let Some(read) = queue.reads.pop() {
            drop(queue);
            return self.carry_out(&read, workspace).map(|()| true);
        }
        if let Some(number) = self.files.number(queue.next).filter(|_| self.failures.are_few()) {
            let touched = self.cut.touched(number);
            queue.next += 1;
            queue.opening += 1;
            drop(queue);
            let reads = self.plan(touched, workspace);
            let mut queue = self.queue.lock().expect("no thread panics");
            queue.opening -= 1;
            queue.reads.extend(reads?.into_iter().rev());
            return Ok(true);
        }
        let waiting = queue.opening > 0;
        drop(queue);
        if waiting {
            std::thread::yield_now();
        }
        Ok(waiting)
    }

    /// Open a shard, and plan how what is wanted of it is read.
    fn plan(&self, touched: Touched, workspace: &mut Workspace) -> Outcome<Vec<Read>> {
        let touched = Arc::new(touched);
        let key = self.keys.key(&touched.coords);
        let opened = match &self.root {
            Some(root) => {
                let cache = &self.selection.layout.indexes;
                self.format.open(cache, root, &touched.coords, key.clone(), &mut workspace.buffers.body)
            }
            None => Ok(None),
        };
        let (shard, mut wanted, absent) = match opened {
            Ok(Some(shard)) => {
                let (wanted, absent) = self.look_up(&touched, &shard, &mut workspace.buffers.body)?;
                (Some(Arc::new(shard)), wanted, absent)
            }
            Ok(None) => (None, Vec::new(), iter::once(0..touched.count()).collect()),
            Err(error) => {
                self.note(&self.chunk(&touched, 0), &key, error)?;
                return Ok(Vec::new());
            }
        };
        let read = |chunks| Read { touched: Arc::clone(&touched), shard: shard.clone(), chunks };
        let mut reads = Vec::new();
        if !absent.is_empty() {
            reads.push(read(Chunks::Absent(absent)));
        }
        wanted.sort_unstable_by_key(|(_, range)| range.start);
        let mut near: Vec<(usize, Range<usize>)> = Vec::new();
        let (mut start, mut end) = (0, 0);
        for (index, range) in wanted {
            if self.reads_part(&touched, index, range.len()) {
                reads.push(read(Chunks::Part(index, range)));
                continue;
            }
            let apart = range.start > end + GAP || range.end.max(end) - start > MOST_FETCHED;
            if near.len() == self.batch || (apart && !near.is_empty()) {
                reads.push(read(Chunks::Near(std::mem::take(&mut near))));
            }
            if near.is_empty() {
                (start, end) = (range.start, range.end);
            }
            end = end.max(range.end);
            near.push((index, range));
        }
        if !near.is_empty() {
            reads.push(read(Chunks::Near(near)));
        }
        Ok(reads)
    }

    /// The chunks that a shard holds, each with its bytes, and those that are absent.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn look_up(
        &self,
        touched: &Touched,
        shard: &Shard,
        buffer: &mut Vec<u8>,
    ) -> Outcome<(Vec<(usize, Range<usize>)>, Vec<Range<usize>>)> {
        let mut wanted = Vec::new();
        let mut absent: Vec<Range<usize>> = Vec::new();
        let mut inner = InnerIndexes::default();
        let layout = self.selection.layout;
        for index in 0..touched.count() {
            let part = self.chunk(touched, index);
            let found = self.format.find(&layout.indexes, shard, part.parts(), &mut inner, buffer);
            let found = found.and_then(|range| {
                if let Some(range) = &range {
                    layout.coding.check_stored(range.len(), layout.grid.chunk_bytes)?;
                }
                Ok(range)
            });
            match (found, absent.last_mut()) {
                (Ok(Some(range)), _) => push(&mut wanted, (index, range))?,
                (Ok(None), Some(last)) if last.end == index => last.end = index + 1,
                (Ok(None), _) => push(&mut absent, index..index + 1)?,
                (Err(error), _) => {
                    self.note(&part, &shard.key, error)?;
                    if !self.failures.are_few() {
                        break;
                    }
                }
            }
        }
        Ok((wanted, absent))
    }

    /// Whether so little of a chunk is wanted that it gets a read of its own.
    fn reads_part(&self, touched: &Touched, index: usize, stored: usize) -> bool {
        let (coding, grid) = (&self.selection.layout.coding, &self.selection.layout.grid);
        let items = || self.chunk(touched, index).parts().iter().map(|part| part.count).product::<usize>();
        coding.reads_part(stored) && items() * grid.itemsize * 3 < grid.chunk_bytes
    }

    fn carry_out(&self, read: &Read, workspace: &mut Workspace) -> Outcome<()> {
        let layout = self.selection.layout;
        let (coding, chunk_bytes) = (&layout.coding, layout.grid.chunk_bytes);
        let Workspace { scratch, buffers, chunk, enclosing, .. } = workspace;
        match (&read.chunks, &read.shard) {
            (Chunks::Near(chunks), Some(shard)) => {
                let start = chunks[0].1.start;
                let end = chunks.iter().map(|(_, range)| range.end).max().unwrap_or(start);
                let bytes = grow(&mut buffers.body, end - start)?;
                let fetched = shard.extent(start..end).read(0, bytes);
                for (index, range) in chunks {
                    let part = self.chunk(&read.touched, *index);
                    let (coding, stored) = unwrapped(coding, &bytes[range.start - start..range.end - start]);
                    let decoded = fetched.clone().and_then(|()| {
                        part.write(enclosing, |region| coding.decode(stored, chunk_bytes, region, scratch, chunk))
                    });
                    self.settle(decoded, &part, &shard.key)?;
                }
            }
            (Chunks::Part(index, range), Some(shard)) => {
                let part = self.chunk(&read.touched, *index);
                let extent = shard.extent(range.clone());
                let decoded = part.write(enclosing, |region| {
                    coding.read_verified(&layout.verified, &extent, chunk_bytes, region, scratch, buffers, chunk)
                });
                self.settle(decoded, &part, &shard.key)?;
            }
            (Chunks::Absent(ranges), _) => {
                for index in ranges.iter().cloned().flatten() {
                    self.chunk(&read.touched, index).write(enclosing, |region| {
                        region.fill(&layout.grid.fill);
                        Ok(())
                    })?;
                    self.absent.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn settle(&self, outcome: Outcome<()>, part: &ChunkPart<'_, Destination<'_>>, key: &str) -> Outcome<()> {
        outcome.or_else(|error| self.note(part, key, error))
    }

    /// Note why a chunk could not be read; errors of the caller's arguments end the call.
    fn note(&self, part: &ChunkPart<'_, Destination<'_>>, key: &str, error: Error) -> Outcome<()> {
        if error.kind == Kind::Argument {
            return Err(error);
        }
        let failure = Failure { coords: part.coords(), key: key.to_owned(), error };
        self.failures.note(failure);
        Ok(())
    }
}

/// How to decode a stored chunk, and which bytes of it: without the checksum, if checksums are
/// never compared.
fn unwrapped<'b>(coding: &Coding, stored: &'b [u8]) -> (Coding, &'b [u8]) {
    match coding.checksum.and_then(|checksum| checksum.split(stored)) {
        Some((inside, _)) if coding.verify == Verify::Never => (coding.without_checksum(), inside),
        _ => (*coding, stored),
    }
}
