//! New images of shards, made from a box of memory: chunks that the box covers are encoded
//! anew, all others are taken over from the old shard byte for byte.
//!
//! Threads share the chunks of a few shards at a time. Whoever encodes the last chunk of a
//! shard writes its image: chunks in C order, and the index.
//!
//! A shard that is all there is to write, and whose chunks lie in the memory as they are stored,
//! is written from there. One of several goes into a journal with its checksum, so that bytes
//! which the caller changes meanwhile must not come between the two: those are copied first.

use crate::array::layout::{Failure, Job, Part, WORTH_A_THREAD, Workspace};
use crate::array::shards::{Cut, Shard, Sharding, Touched};
use crate::array::staging::{Image, Staged, in_order, is_all};
use crate::chunk::scratch::{grow, out_of_memory};
use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::interrupt::Interrupt;
use std::collections::HashMap;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Mutex};

struct Staging<'a> {
    job: &'a Job<'a>,
    sharding: &'a Sharding,
    root: &'a Root,
    transaction: &'a str,
    cut: Cut<'a>,
    last: usize,
    threads: usize,
    queue: Mutex<Queue<'a>>,
    /// Memory of shards that are written.
    spare: Mutex<Vec<Vec<u8>>>,
    staged: Mutex<Vec<(usize, Staged)>>,
    failures: Mutex<Vec<Failure>>,
}

#[derive(Default)]
struct Queue<'a> {
    /// The next shard to begin with.
    next: usize,
    /// How many are being begun.
    beginning: usize,
    pieces: Vec<(Arc<Making<'a>>, Range<usize>)>,
}

/// A shard in the making.
struct Making<'a> {
    number: usize,
    touched: Touched<'a>,
    /// The old shard, where the box does not cover all of it.
    old: Option<Shard>,
    progress: Mutex<Progress>,
}

struct Progress {
    /// Rows that are still to be encoded.
    left: usize,
    done: Vec<Encoded>,
    failed: bool,
}

/// Chunks that were encoded one after the other: the number of each, and where its bytes lie;
/// none for one that holds nothing but fill.
#[derive(Default)]
struct Encoded {
    bytes: Vec<u8>,
    chunks: Vec<(usize, Option<Lying>)>,
}

/// Where the bytes of a chunk lie.
enum Lying {
    /// Among those that were encoded with it.
    Here(Range<usize>),
    /// In the memory of the caller, from an offset on.
    There(isize, usize),
}

impl Job<'_> {
    /// Stage the images of the shards number `shards` that the box touches.
    #[allow(clippy::too_many_arguments, reason = "as of its caller")]
    pub fn stage_shards(
        &self,
        sharding: &Sharding,
        root: &Root,
        shards: Range<usize>,
        threads: usize,
        transaction: &str,
        workspace: &mut Workspace,
        interrupt: &Interrupt,
    ) -> Outcome<(Vec<Staged>, Vec<Failure>)> {
        let each = sharding.total().saturating_mul(self.layout.chunk_bytes);
        let threads = self.threads(threads, shards.len().saturating_mul(each));
        let staging = Staging {
            job: self,
            sharding,
            root,
            transaction,
            cut: sharding.cut(self),
            last: shards.end,
            threads,
            queue: Mutex::new(Queue { next: shards.start, ..Queue::default() }),
            spare: Mutex::default(),
            staged: Mutex::default(),
            failures: Mutex::default(),
        };
        let outcome = interrupt.share(threads, workspace, |workspace| staging.step(workspace));
        let staged = in_order(root, staging.staged.into_inner().expect("no thread panics"), outcome)?;
        Ok((staged, staging.failures.into_inner().expect("no thread panics")))
    }
}

impl<'a> Staging<'a> {
    /// Do one piece of work; `false` when there is none left.
    fn step(&self, workspace: &mut Workspace) -> Outcome<bool> {
        let mut queue = self.queue.lock().expect("no thread panics");
        if let Some((making, rows)) = queue.pieces.pop() {
            drop(queue);
            return self.encode(&making, rows, workspace).map(|()| true);
        }
        if queue.next < self.last {
            let number = queue.next;
            queue.next += 1;
            queue.beginning += 1;
            drop(queue);
            let begun = self.begin(number, workspace);
            let mut queue = self.queue.lock().expect("no thread panics");
            queue.beginning -= 1;
            if let Some(making) = begun? {
                let rows = making.touched.rows();
                let size = rows.div_ceil(self.pieces(making.number));
                let starts = (0..rows).step_by(size).rev();
                queue.pieces.extend(starts.map(|start| (Arc::clone(&making), start..rows.min(start + size))));
            }
            return Ok(true);
        }
        let waiting = queue.beginning > 0;
        drop(queue);
        if waiting {
            std::thread::yield_now();
        }
        Ok(waiting)
    }

    /// Into how many pieces of work a shard is divided: the last ones are shared, so that no
    /// thread waits long for another.
    fn pieces(&self, number: usize) -> usize {
        if number + self.threads < self.last { 1 } else { 2 * self.threads }
    }

    /// Whether there is only this one shard to write.
    fn is_alone(&self) -> bool {
        self.cut.count() == 1
    }

    /// Find out what a shard holds now, where that matters.
    fn begin(&self, number: usize, workspace: &mut Workspace) -> Outcome<Option<Arc<Making<'a>>>> {
        let touched = self.cut.touched(number);
        let mut old = None;
        if !self.covers(&touched) {
            let key = self.job.layout.key(&touched.coords);
            match self.sharding.open(self.root, &touched.coords, key.clone(), &mut workspace.buffers) {
                Ok(shard) => old = shard,
                Err(error) => {
                    self.note(&touched.row(0), key, error)?;
                    return Ok(None);
                }
            }
        }
        let progress = Progress { left: touched.rows(), done: Vec::new(), failed: false };
        Ok(Some(Arc::new(Making { number, touched, old, progress: Mutex::new(progress) })))
    }

    /// Whether the box replaces every item of a shard that lies inside the array.
    fn covers(&self, touched: &Touched<'_>) -> bool {
        let layout = self.job.layout;
        (0..touched.coords.len()).all(|axis| {
            let (chunk, length, parts) = (layout.chunk[axis], layout.shape[axis], touched.parts[axis]);
            let inside = self.sharding.chunks_inside(axis, touched.coords[axis], length.div_ceil(chunk));
            let whole = |part: &Part| part.count == chunk.min(length - part.chunk * chunk);
            self.job.steps[axis] == 1 && parts.len() == inside && parts.iter().all(whole)
        })
    }

    fn encode(&self, making: &Making<'_>, rows: Range<usize>, workspace: &mut Workspace) -> Outcome<()> {
        let spare = self.spare.lock().expect("no thread panics").pop();
        let mut encoded = Encoded { bytes: spare.unwrap_or_default(), chunks: Vec::with_capacity(rows.len()) };
        // Only what is written to becomes memory; to room step by step would copy it each time.
        let most = rows.len().saturating_mul(self.job.layout.chunk_bytes);
        encoded.bytes.try_reserve(most).map_err(|_| out_of_memory(most))?;
        let (count, memory) = (rows.len(), self.job.memory());
        let mut failed = false;
        for row in rows {
            let parts = making.touched.row(row);
            let coords: Vec<usize> = parts.iter().map(|part| part.chunk).collect();
            let number = self.sharding.number(&parts);
            if self.is_alone()
                && let Some((offset, size)) = self.job.find_plain(&parts)?
            {
                let filled = is_all(memory.piece(offset, size), &self.job.layout.fill);
                encoded.chunks.push((number, (!filled).then_some(Lying::There(offset, size))));
                continue;
            }
            let old = || match &making.old {
                Some(shard) => Ok(shard.index.range(number)?.map(|range| shard.extent(range))),
                None => Ok(None),
            };
            let bytes = &mut encoded.bytes;
            let keep = |chunk: &[u8]| {
                bytes.extend_from_slice(chunk);
                Ok(Lying::Here(bytes.len() - chunk.len()..bytes.len()))
            };
            match self.job.encode_row(old, &coords, &parts, workspace, keep) {
                Ok(lying) => encoded.chunks.push((number, lying)),
                Err(error) => {
                    self.note(&parts, self.job.layout.key(&making.touched.coords), error)?;
                    failed = true;
                }
            }
        }
        let mut progress = making.progress.lock().expect("no thread panics");
        progress.done.push(encoded);
        progress.failed |= failed;
        progress.left -= count;
        if progress.left > 0 || progress.failed {
            return Ok(());
        }
        let done = std::mem::take(&mut progress.done);
        drop(progress);
        self.finish(making, &done)?;
        let mut spare = self.spare.lock().expect("no thread panics");
        spare.extend(done.into_iter().map(|Encoded { mut bytes, .. }| {
            bytes.clear();
            bytes
        }));
        Ok(())
    }

    /// Write the image of a shard whose chunks are all encoded.
    fn finish(&self, making: &Making<'_>, done: &[Encoded]) -> Outcome<()> {
        let coords = making.touched.coords.clone();
        match self.write(making, done) {
            Ok(image) => {
                let staged = Staged { coords, image };
                self.staged.lock().expect("no thread panics").push((making.number, staged));
                Ok(())
            }
            Err(error) => self.note(&making.touched.row(0), self.job.layout.key(&coords), error),
        }
    }

    fn write(&self, making: &Making<'_>, done: &[Encoded]) -> Outcome<Option<Image>> {
        let memory = self.job.memory();
        let mut chunks: HashMap<usize, Option<&[u8]>> = HashMap::new();
        for Encoded { bytes, chunks: made } in done {
            for (number, lying) in made {
                let found = lying.as_ref().map(|lying| match lying {
                    Lying::Here(range) => &bytes[range.clone()],
                    Lying::There(offset, size) => memory.piece(*offset, *size),
                });
                chunks.insert(*number, found);
            }
        }
        let kept = match &making.old {
            Some(shard) => Kept::read(shard, self.sharding.total(), &chunks)?,
            None => Kept::default(),
        };
        let mut entries = vec![None; self.sharding.total()];
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut end = self.sharding.first_chunk();
        let mut placed: HashMap<usize, usize> = HashMap::new();
        for (number, entry) in entries.iter_mut().enumerate() {
            if let Some(chunk) = chunks.get(&number) {
                if let Some(bytes) = chunk {
                    *entry = Some(end..end + bytes.len());
                    end += bytes.len();
                    pieces.push(bytes);
                }
            } else if let Some((range, segment)) = kept.chunks.get(&number) {
                let base = *placed.entry(segment.start).or_insert_with(|| {
                    pieces.push(&kept.bytes[segment.clone()]);
                    end += segment.len();
                    end - segment.len()
                });
                let start = base + range.start - segment.start;
                *entry = Some(start..start + range.len());
            }
        }
        if entries.iter().all(Option::is_none) {
            return Ok(None);
        }
        let index = self.sharding.pack_index(&entries);
        pieces.insert(if self.sharding.at_start() { 0 } else { pieces.len() }, &index);
        self.write_pieces(&making.touched.coords, &pieces).map(Some)
    }

    fn write_pieces(&self, coords: &[usize], pieces: &[&[u8]]) -> Outcome<Image> {
        let key = self.job.layout.staged_key(coords, self.transaction);
        let size = pieces.iter().map(|piece| piece.len()).sum();
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let write = || self.root.write_pieces(&key, &mut slices);
        // The system copies the bytes on one thread; where another is idle, it sums them up.
        let helpers = if self.is_alone() && size >= WORTH_A_THREAD { self.threads - 1 } else { 0 };
        let (written, checksum) = beside(helpers > 0, write, || checksum(pieces));
        written?;
        Ok(Image { key, size, checksum })
    }

    /// Note what went wrong with a chunk; the caller's own mistakes are handed on.
    fn note(&self, parts: &[Part], key: String, error: Error) -> Outcome<()> {
        if error.kind == Kind::Argument {
            return Err(error);
        }
        let coords = parts.iter().map(|part| part.chunk).collect();
        self.failures.lock().expect("no thread panics").push(Failure { coords, key, error });
        Ok(())
    }
}

/// Do both, side by side if that is worth a thread and the machine has one to give.
fn beside<A, B: Send>(worth: bool, first: impl FnOnce() -> A, second: impl Fn() -> B + Sync) -> (A, B) {
    if !worth {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let helper = std::thread::Builder::new().spawn_scoped(scope, &second).ok();
        let made = first();
        (made, helper.map_or_else(&second, |helper| helper.join().expect("no thread panics")))
    })
}

fn checksum(pieces: &[&[u8]]) -> u32 {
    let mut sum = libdeflater::Crc::new();
    for piece in pieces {
        sum.update(piece);
    }
    sum.sum()
}

/// What stays of an old shard: its bytes, and for each chunk its place and that of the bytes
/// that are copied for it, since chunks that share bytes are copied together.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    chunks: HashMap<usize, (Range<usize>, Range<usize>)>,
}

impl Kept {
    fn read(shard: &Shard, total: usize, replaced: &HashMap<usize, Option<&[u8]>>) -> Outcome<Self> {
        let mut found = Vec::new();
        for number in (0..total).filter(|number| !replaced.contains_key(number)) {
            if let Some(range) = shard.index.range(number)? {
                found.push((number, range));
            }
        }
        if found.is_empty() {
            return Ok(Self::default());
        }
        found.sort_by_key(|(_, range)| range.start);
        let mut segments: Vec<Range<usize>> = Vec::new();
        let mut members = Vec::with_capacity(found.len());
        for (number, range) in found {
            match segments.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => segments.push(range.clone()),
            }
            members.push((number, range, segments.len() - 1));
        }
        let mut bytes = Vec::new();
        grow(&mut bytes, shard.index.size())?;
        shard.extent(0..shard.index.size()).read(0, &mut bytes)?;
        let chunks = members.into_iter().map(|(number, range, segment)| (number, (range, segments[segment].clone())));
        Ok(Self { bytes, chunks: chunks.collect() })
    }
}
