//! Reading a box of an array whose chunks lie in shards.
//!
//! Threads share two kinds of work: opening a shard, which plans its reads, and carrying out
//! one of these reads. A read fetches chunks that lie near each other at once and decodes
//! them one after the other, so memory is bounded by what one read fetches.

use crate::array::coding::Chain;
use crate::array::layout::{Failure, Job, Layout, Part, Report, Workspace};
use crate::array::shards::{Cut, Shard, Sharding, Touched};
use crate::chunk::scratch::grow;
use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::files::verified::SEAL;
use crate::interrupt::Interrupt;
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
    job: &'a Job<'a>,
    sharding: &'a Sharding,
    root: Option<Root>,
    cut: Cut<'a>,
    /// How many chunks are decoded per read.
    batch: usize,
    queue: Mutex<Queue<'a>>,
    absent: AtomicUsize,
    failures: Mutex<Vec<Failure>>,
}

#[derive(Default)]
struct Queue<'a> {
    /// The next shard to open.
    next: usize,
    /// How many are being opened.
    opening: usize,
    reads: Vec<Read<'a>>,
}

/// Some chunks of a shard that are read at once.
struct Read<'a> {
    touched: Arc<Touched<'a>>,
    /// `None` when all chunks are absent.
    shard: Option<Arc<Shard>>,
    chunks: Chunks,
}

enum Chunks {
    /// By row of the box's part, each with its place in the shard.
    Near(Vec<(usize, Range<usize>)>),
    /// One of which only a part is read.
    Part(usize, Range<usize>),
    /// Rows that hold nothing but fill.
    Absent(Vec<Range<usize>>),
}

impl Job<'_> {
    /// Read all rows into the memory.
    pub fn read_shards(
        &self,
        sharding: &Sharding,
        threads: usize,
        workspace: &mut Workspace,
        interrupt: &Interrupt,
    ) -> Outcome<Report> {
        let threads = if self.rows == 1 { 1 } else { self.threads(threads, self.work()?) };
        let decoded = self.rows.saturating_mul(self.layout.chunk_bytes) / (4 * threads);
        let reading = Reading {
            job: self,
            sharding,
            root: Root::open(&self.layout.root)?,
            cut: sharding.cut(self),
            batch: (decoded.clamp(LEAST_DECODED, MOST_DECODED) / self.layout.chunk_bytes).max(1),
            queue: Mutex::default(),
            absent: AtomicUsize::new(0),
            failures: Mutex::default(),
        };
        interrupt.share(threads, workspace, |workspace| reading.step(workspace))?;
        Ok(Report {
            absent: reading.absent.into_inner(),
            failures: reading.failures.into_inner().expect("no thread panics"),
        })
    }
}

impl<'a> Reading<'a> {
    /// Do one piece of work; `false` when there is none left.
    fn step(&self, workspace: &mut Workspace) -> Outcome<bool> {
        let mut queue = self.queue.lock().expect("no thread panics");
        if let Some(read) = queue.reads.pop() {
            drop(queue);
            return self.carry_out(&read, workspace).map(|()| true);
        }
        if queue.next < self.cut.count() {
            let touched = self.cut.touched(queue.next);
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

    /// Open a shard, and say how what the box wants of it is read.
    fn plan(&self, touched: Touched<'a>, workspace: &mut Workspace) -> Outcome<Vec<Read<'a>>> {
        let touched = Arc::new(touched);
        let key = self.job.layout.key(&touched.coords);
        let opened = match &self.root {
            Some(root) => self.sharding.open(root, &touched.coords, key.clone(), &mut workspace.buffers),
            None => Ok(None),
        };
        let (shard, mut wanted, absent) = match opened {
            Ok(Some(shard)) => {
                let (wanted, absent) = self.look_up(&touched, &shard)?;
                (Some(Arc::new(shard)), wanted, absent)
            }
            Ok(None) => (None, Vec::new(), iter::once(0..touched.rows()).collect()),
            Err(error) => {
                self.note(&touched.row(0), &key, error)?;
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
        for (row, range) in wanted {
            if self.reads_part(&touched, row, range.len()) {
                reads.push(read(Chunks::Part(row, range)));
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
            near.push((row, range));
        }
        if !near.is_empty() {
            reads.push(read(Chunks::Near(near)));
        }
        Ok(reads)
    }

    /// The rows that a shard has, each with its place, and those that it has not.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn look_up(
        &self,
        touched: &Touched<'_>,
        shard: &Shard,
    ) -> Outcome<(Vec<(usize, Range<usize>)>, Vec<Range<usize>>)> {
        let mut wanted = Vec::with_capacity(touched.rows());
        let mut absent: Vec<Range<usize>> = Vec::new();
        let layout = self.job.layout;
        for row in 0..touched.rows() {
            let parts = touched.row(row);
            let found = shard.index.range(self.sharding.number(&parts)).and_then(|range| {
                if let Some(range) = &range {
                    layout.chain.check_stored(range.len(), layout.chunk_bytes)?;
                }
                Ok(range)
            });
            match (found, absent.last_mut()) {
                (Ok(Some(range)), _) => wanted.push((row, range)),
                (Ok(None), Some(last)) if last.end == row => last.end = row + 1,
                (Ok(None), _) => absent.push(row..row + 1),
                (Err(error), _) => self.note(&parts, &shard.key, error)?,
            }
        }
        Ok((wanted, absent))
    }

    /// Whether so little of a chunk is wanted that it gets a read of its own.
    fn reads_part(&self, touched: &Touched<'_>, row: usize, stored: usize) -> bool {
        let layout = self.job.layout;
        let items = || touched.row(row).iter().map(|part| part.count).product::<usize>();
        layout.chain.reads_part(stored) && items() * layout.itemsize * 3 < layout.chunk_bytes
    }

    fn carry_out(&self, read: &Read<'_>, workspace: &mut Workspace) -> Outcome<()> {
        let layout = self.job.layout;
        let Workspace { scratch, buffers, chunk, around, .. } = workspace;
        match (&read.chunks, &read.shard) {
            (Chunks::Near(chunks), Some(shard)) => {
                let start = chunks[0].1.start;
                let end = chunks.iter().map(|(_, range)| range.end).max().unwrap_or(start);
                let bytes = grow(&mut buffers.body, end - start)?;
                let fetched = shard.extent(start..end).read(0, bytes);
                for (row, range) in chunks {
                    let parts = read.touched.row(*row);
                    let (chain, stored) = self.inside(&bytes[range.start - start..range.end - start]);
                    let decoded = fetched.clone().and_then(|()| {
                        self.job.place(&parts, around, |region| {
                            chain.decode(stored, layout.chunk_bytes, region, scratch, chunk)
                        })
                    });
                    self.settle(decoded, &parts, &shard.key)?;
                }
            }
            (Chunks::Part(row, range), Some(shard)) => {
                let parts = read.touched.row(*row);
                let extent = shard.extent(range.clone());
                let decoded = self.job.place(&parts, around, |region| {
                    let Layout { chain, seals, chunk_bytes, .. } = layout;
                    if chain.sealed {
                        return seals.read(chain, &extent, *chunk_bytes, region, scratch, buffers, chunk);
                    }
                    chain.read(&extent, *chunk_bytes, region, scratch, buffers, chunk)
                });
                self.settle(decoded, &parts, &shard.key)?;
            }
            (Chunks::Absent(rows), _) => {
                for row in rows.iter().cloned().flatten() {
                    self.job.place(&read.touched.row(row), around, |region| {
                        region.fill(&layout.fill);
                        Ok(())
                    })?;
                    self.absent.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// How to decode a stored chunk, and which bytes of it.
    fn inside<'b>(&self, stored: &'b [u8]) -> (Chain, &'b [u8]) {
        let Layout { chain, seals, .. } = self.job.layout;
        match stored.split_last_chunk::<SEAL>() {
            Some((inside, _)) if chain.sealed && seals.are_ignored() => (chain.unsealed(), inside),
            _ => (*chain, stored),
        }
    }

    fn settle(&self, outcome: Outcome<()>, parts: &[Part], key: &str) -> Outcome<()> {
        outcome.or_else(|error| self.note(parts, key, error))
    }

    /// Note what went wrong with a chunk; the caller's own mistakes are handed on.
    fn note(&self, parts: &[Part], key: &str, error: Error) -> Outcome<()> {
        if error.kind == Kind::Argument {
            return Err(error);
        }
        let coords = parts.iter().map(|part| part.chunk).collect();
        let failure = Failure { coords, key: key.to_owned(), error };
        self.failures.lock().expect("no thread panics").push(failure);
        Ok(())
    }
}
