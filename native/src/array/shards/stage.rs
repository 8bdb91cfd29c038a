//! New images of shards, staged from memory: chunks that the selection covers are encoded anew, all
//! others are copied from the old shard byte for byte.
//!
//! Threads share the chunks of a few shards at a time. The thread that encodes the last chunk of a
//! shard writes its image: chunks in C order, and the index. Where shards lie in shards, those inside that
//! the selection touches are put together in the same way, and all others are copied whole.
//!
//! A single shard whose chunks lie in the memory as they are stored is written from there. One of
//! several shards goes into a journal with its checksum, and the caller's memory must not change
//! between the two: its chunks are copied first.

use super::{Cut, Index, IndexCache, InnerIndexes, Shard, ShardFormat, Touched};
use crate::array::addresses::Keys;
use crate::array::layout::{Failure, Failures};
use crate::array::scatter::SourceMemory;
use crate::array::selection::{ChunkPart, Files, Selection, WORTH_A_THREAD};
use crate::array::staging::{Image, Staged, checksum, encode_chunk, in_order, is_all};
use crate::array::stored::Chunk;
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::interrupt::Interrupt;
use crate::memory::{grow, out_of_memory, push, reserved};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Mutex};

struct Staging<'a> {
    selection: &'a Selection<'a, SourceMemory<'a>>,
    keys: &'a Keys,
    format: &'a ShardFormat,
    root: &'a Root,
    transaction: &'a str,
    cut: Cut,
    /// The shards that are staged.
    files: Files<'a>,
    threads: usize,
    queue: Mutex<Queue<'a>>,
    /// Memory of shards that are written.
    spare: Mutex<Vec<Vec<u8>>>,
    staged: Mutex<Vec<(usize, Staged)>>,
    failures: Failures,
}

#[derive(Default)]
struct Queue<'a> {
    /// The next shard to start with.
    next: usize,
    /// How many are being started.
    starting: usize,
    pieces: Vec<(Arc<NewShard<'a>>, Range<usize>)>,
}

/// A shard whose chunks are being encoded.
struct NewShard<'a> {
    number: usize,
    touched: Touched,
    /// The old shard, where the selection does not cover all of it.
    old: Option<Shard>,
    progress: Mutex<Progress<'a>>,
}

struct Progress<'a> {
    /// Chunks that are still to be encoded.
    left: usize,
    done: Vec<Encoded<'a>>,
    failed: bool,
}

/// Chunks that were encoded one after the other: the number of each in its shard, and its bytes;
/// none for one that holds nothing but the fill value.
#[derive(Default)]
struct Encoded<'a> {
    bytes: Vec<u8>,
    chunks: Vec<(usize, Option<ChunkBytes<'a>>)>,
}

/// Where the bytes of a chunk lie.
enum ChunkBytes<'a> {
    /// Among those that were encoded with it.
    Encoded(Range<usize>),
    /// In the memory of the caller.
    Plain(&'a [u8]),
}

/// Stage the images of the shards number `shards` that the selection touches.
#[allow(clippy::too_many_arguments, reason = "as of its caller")]
pub fn stage(
    selection: &Selection<'_, SourceMemory<'_>>,
    keys: &Keys,
    format: &ShardFormat,
    shards: Range<usize>,
    threads: usize,
    transaction: &str,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<(Vec<Staged>, Vec<Failure>)> {
    let root = keys.create()?;
    let cut = format.cut(selection);
    let files = Files::new(None, cut.count(), shards)?;
    let each = format.total().saturating_mul(selection.layout.grid.chunk_bytes);
    let threads = selection.threads(threads, files.len().saturating_mul(each));
    let staging = Staging {
        selection,
        keys,
        format,
        root: &root,
        transaction,
        cut,
        files,
        threads,
        queue: Mutex::default(),
        spare: Mutex::default(),
        staged: Mutex::default(),
        failures: Failures::default(),
    };
    let outcome = interrupt.share(threads, workspace, |workspace| staging.step(workspace));
    let staged = in_order(&root, staging.staged.into_inner().expect("no thread panics"), outcome)?;
    Ok((staged, staging.failures.into_inner()))
}

impl<'a> Staging<'a> {
    /// Chunk `index` of those that the selection touches in a shard.
    fn chunk(&self, touched: &Touched, index: usize) -> ChunkPart<'a, SourceMemory<'a>> {
        self.selection.chunk(touched.number(self.selection, index))
    }

    /// Do one piece of work; `false` when there is none left.
    fn step(&self, workspace: &mut Workspace) -> Outcome<bool> {
        let mut queue = self.queue.lock().expect("no thread panics");
        if let Some((shard, chunks)) = queue.pieces.pop() {
            drop(queue);
            return self.encode(&shard, chunks, workspace).map(|()| true);
        }
        if queue.next < self.files.len() && self.failures.are_few() {
            let number = queue.next;
            queue.next += 1;
            queue.starting += 1;
            drop(queue);
            let started = self.start(number, workspace);
            let mut queue = self.queue.lock().expect("no thread panics");
            queue.starting -= 1;
            if let Some(shard) = started? {
                let count = shard.touched.count();
                let size = count.div_ceil(self.pieces(shard.number));
                let starts = (0..count).step_by(size).rev();
                queue.pieces.extend(starts.map(|start| (Arc::clone(&shard), start..count.min(start + size))));
            }
            return Ok(true);
        }
        let waiting = queue.starting > 0;
        drop(queue);
        if waiting {
            std::thread::yield_now();
        }
        Ok(waiting)
    }

    /// Into how many pieces of work a shard is divided: the last shards are shared, so that no thread
    /// waits long for another.
    fn pieces(&self, number: usize) -> usize {
        if number + self.threads < self.files.len() { 1 } else { 2 * self.threads }
    }

    /// Whether this is the only shard to write.
    fn is_alone(&self) -> bool {
        self.cut.count() == 1
    }

    /// Open the old shard, where parts of it stay.
    fn start(&self, number: usize, workspace: &mut Workspace) -> Outcome<Option<Arc<NewShard<'a>>>> {
        let Some(touched) = self.files.number(number).map(|number| self.cut.touched(number)) else {
            return Ok(None);
        };
        let mut old = None;
        if !self.covers(&touched) {
            let key = self.keys.key(&touched.coords);
            let cache = &self.selection.layout.indexes;
            match self.format.open(cache, self.root, &touched.coords, key.clone(), &mut workspace.buffers.body) {
                Ok(shard) => old = shard,
                Err(error) => {
                    self.note(&self.chunk(&touched, 0), key, error)?;
                    return Ok(None);
                }
            }
        }
        let progress = Progress { left: touched.count(), done: Vec::new(), failed: false };
        Ok(Some(Arc::new(NewShard { number, touched, old, progress: Mutex::new(progress) })))
    }

    /// Whether the selection replaces every item of a shard that lies inside the array.
    fn covers(&self, touched: &Touched) -> bool {
        let grid = &self.selection.layout.grid;
        (0..touched.coords.len()).all(|axis| {
            let (chunk, length) = (grid.chunk[axis], grid.shape[axis]);
            let (parts, touched_parts) = (self.selection.parts(axis), &touched.parts[axis]);
            let inside = self.format.chunks_inside(axis, touched.coords[axis], length.div_ceil(chunk));
            let whole = |number: usize| {
                let part = parts.part(number);
                part.count == chunk.min(length - part.chunk * chunk)
            };
            // By a step of 1, all parts between the first and the last are whole.
            self.selection.steps()[axis] == 1
                && touched_parts.len() == inside
                && whole(touched_parts.start)
                && whole(touched_parts.end - 1)
        })
    }

    fn encode(&self, shard: &NewShard<'a>, chunks: Range<usize>, workspace: &mut Workspace) -> Outcome<()> {
        let spare = self.spare.lock().expect("no thread panics").pop();
        let mut encoded = Encoded { bytes: spare.unwrap_or_default(), chunks: reserved(chunks.len())? };
        // Only pages that are written to take memory; growing step by step would copy them each time.
        let grid = &self.selection.layout.grid;
        let most = chunks.len().saturating_mul(grid.chunk_bytes);
        encoded.bytes.try_reserve(most).map_err(|_| out_of_memory(most))?;
        let count = chunks.len();
        let mut failed = false;
        let mut inner = InnerIndexes::default();
        for index in chunks {
            let part = self.chunk(&shard.touched, index);
            let number = self.format.number(part.parts());
            if self.is_alone()
                && let Some(plain) = self.find_plain(&part)?
            {
                let filled = is_all(plain, &grid.fill);
                encoded.chunks.push((number, (!filled).then_some(ChunkBytes::Plain(plain))));
                continue;
            }
            let old = || {
                let Some(old) = &shard.old else { return Ok(Chunk::Absent) };
                let cache = &self.selection.layout.indexes;
                let found = self.format.find(cache, old, part.parts(), &mut inner, &mut Vec::new())?;
                Ok(found.map_or(Chunk::Absent, |range| Chunk::Stored(old.extent(range))))
            };
            let bytes = &mut encoded.bytes;
            let keep = |chunk: &[u8]| {
                bytes.extend_from_slice(chunk);
                Ok(ChunkBytes::Encoded(bytes.len() - chunk.len()..bytes.len()))
            };
            match encode_chunk(self.selection, &part, old, workspace, keep) {
                Ok(chunk) => encoded.chunks.push((number, chunk)),
                Err(error) => {
                    self.note(&part, self.keys.key(&shard.touched.coords), error)?;
                    failed = true;
                }
            }
        }
        let mut progress = shard.progress.lock().expect("no thread panics");
        progress.done.push(encoded);
        progress.failed |= failed;
        progress.left -= count;
        if progress.left > 0 || progress.failed {
            return Ok(());
        }
        let done = std::mem::take(&mut progress.done);
        drop(progress);
        self.finish(shard, &done)?;
        let mut spare = self.spare.lock().expect("no thread panics");
        spare.extend(done.into_iter().map(|Encoded { mut bytes, .. }| {
            bytes.clear();
            bytes
        }));
        Ok(())
    }

    /// The memory of a whole chunk, when it lies there just as it is stored.
    fn find_plain(&self, part: &ChunkPart<'_, SourceMemory<'a>>) -> Outcome<Option<&'a [u8]>> {
        let layout = self.selection.layout;
        if !layout.coding.is_plain() {
            return Ok(None);
        }
        Ok(part.source()?.as_slice().filter(|bytes| bytes.len() == layout.grid.chunk_bytes))
    }

    /// Write the image of a shard whose chunks are all encoded.
    fn finish(&self, shard: &NewShard<'_>, done: &[Encoded<'_>]) -> Outcome<()> {
        let coords = shard.touched.coords.clone();
        match self.write(shard, done) {
            Ok(image) => {
                let staged = Staged { coords, image };
                self.staged.lock().expect("no thread panics").push((shard.number, staged));
                Ok(())
            }
            Err(error) => self.note(&self.chunk(&shard.touched, 0), self.keys.key(&coords), error),
        }
    }

    fn write(&self, shard: &NewShard<'_>, done: &[Encoded<'_>]) -> Outcome<Option<Image>> {
        let mut chunks = BTreeMap::new();
        for Encoded { bytes, chunks: made } in done {
            for (number, chunk) in made {
                let found = chunk.as_ref().map(|chunk| match chunk {
                    ChunkBytes::Encoded(range) => &bytes[range.clone()],
                    ChunkBytes::Plain(bytes) => bytes,
                });
                chunks.insert(*number, found);
            }
        }
        let mut stored = Vec::new();
        // Where every chunk is new, nothing stays.
        let old = shard.old.as_ref().filter(|_| chunks.len() < self.format.total());
        if let Some(old) = old {
            grow(&mut stored, old.index.size())?;
            old.extent(0..old.index.size()).read(0, &mut stored)?;
        }
        let mut pieces = Vec::new();
        let indexes = &self.selection.layout.indexes;
        let assembly = Assembly { format: self.format, indexes, old, stored: &stored, chunks };
        let index = old.map(|old| Arc::clone(&old.index));
        if assembly.push(0, 0, index, &mut InnerIndexes::default(), &mut pieces)?.is_none() {
            return Ok(None);
        }
        self.write_pieces(&shard.touched.coords, &pieces).map(Some)
    }

    fn write_pieces(&self, coords: &[usize], pieces: &[Cow<'_, [u8]>]) -> Outcome<Image> {
        let key = self.keys.staged_key(coords, self.transaction);
        let size = pieces.iter().map(|piece| piece.len()).sum();
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let write = || self.root.write_pieces(&key, &mut slices);
        // The system copies the bytes on one thread; an idle thread computes their checksum meanwhile.
        let worth = self.is_alone() && size >= WORTH_A_THREAD && self.threads > 1;
        let (written, checksum) = run_both(worth, write, || checksum(pieces));
        written?;
        Ok(Image { key, size, checksum })
    }

    /// Note why a chunk could not be staged; errors of the caller's arguments end the call.
    fn note(&self, part: &ChunkPart<'_, SourceMemory<'_>>, key: String, error: Error) -> Outcome<()> {
        if error.kind == Kind::Argument {
            return Err(error);
        }
        let coords = part.coords();
        self.failures.note(Failure { coords, key, error });
        Ok(())
    }
}

/// Do both, at the same time if that is worth a thread and one can be started.
fn run_both<A, B: Send>(worth: bool, first: impl FnOnce() -> A, second: impl Fn() -> B + Sync) -> (A, B) {
    if !worth {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, &second).ok();
        let made = first();
        (made, thread.map_or_else(&second, |thread| thread.join().expect("no thread panics")))
    })
}

/// A shard that is put together from new chunks and from what stays of the old one.
struct Assembly<'a> {
    format: &'a ShardFormat,
    indexes: &'a IndexCache,
    old: Option<&'a Shard>,
    /// The bytes of the old shard.
    stored: &'a [u8],
    /// The new chunks by their numbers in the file; none for one that holds nothing but the fill value.
    chunks: BTreeMap<usize, Option<&'a [u8]>>,
}

impl<'a> Assembly<'a> {
    /// Push the pieces of a shard of a level, whose first chunk is number `first` of the file, and return its size;
    /// `None` when it has no chunks. `old` is the index of what is stored of it.
    fn push(
        &self,
        depth: usize,
        first: usize,
        old: Option<Arc<Index>>,
        inner: &mut InnerIndexes,
        pieces: &mut Vec<Cow<'a, [u8]>>,
    ) -> Outcome<Option<usize>> {
        let level = &self.format.levels[depth];
        let each = self.format.chunks_of_entry(depth);
        let numbers = |entry: usize| first + entry * each..first + (entry + 1) * each;
        let is_new = |entry: usize| self.chunks.range(numbers(entry)).next().is_some();
        let kept = old.as_ref().map_or(Ok(Kept::new()), |old| find_kept(old, level.total, is_new))?;
        let mut entries = reserved(level.total)?;
        entries.resize(level.total, None);
        let begin = pieces.len();
        let mut end = level.first_chunk();
        let mut placed: HashMap<usize, usize> = HashMap::new();
        for (entry, range) in entries.iter_mut().enumerate() {
            if is_new(entry) {
                let size = self.push_new(depth, entry, numbers(entry), old.as_deref(), inner, pieces)?;
                *range = size.map(|size| end..end + size);
                end += size.unwrap_or(0);
            } else if let Some((kept, segment)) = kept.get(&entry) {
                let base = *placed.entry(segment.start).or_insert_with(|| {
                    pieces.push(Cow::Borrowed(&self.stored[segment.clone()]));
                    end += segment.len();
                    end - segment.len()
                });
                let start = base + kept.start - segment.start;
                *range = Some(start..start + kept.len());
            }
        }
        if entries.iter().all(Option::is_none) {
            return Ok(None);
        }
        let index = level.pack_index(&entries)?;
        let (place, behind) = if level.at_start() { (begin, 0) } else { (pieces.len(), index.len()) };
        pieces.insert(place, Cow::Owned(index));
        Ok(Some(end + behind))
    }

    /// Push what is new: a chunk, or a shard with new chunks in it.
    fn push_new(
        &self,
        depth: usize,
        entry: usize,
        numbers: Range<usize>,
        old: Option<&Index>,
        inner: &mut InnerIndexes,
        pieces: &mut Vec<Cow<'a, [u8]>>,
    ) -> Outcome<Option<usize>> {
        if depth + 1 == self.format.levels.len() {
            let chunk = self.chunks.get(&numbers.start).copied().flatten();
            pieces.extend(chunk.map(Cow::Borrowed));
            return Ok(chunk.map(<[u8]>::len));
        }
        let mut stored = None;
        if let (Some(shard), Some(index)) = (self.old, old)
            && let Some(range) = index.range(entry)?
        {
            let place = (depth + 1, range.start, range.end);
            stored = Some(self.format.inner_index(self.indexes, shard, place, inner, &mut Vec::new())?);
        }
        self.push(depth + 1, numbers.start, stored, inner, pieces)
    }
}

/// For each entry of an old shard that stays, its range and the range that is copied for it, since chunks
/// that share bytes are copied together.
type Kept = HashMap<usize, (Range<usize>, Range<usize>)>;

fn find_kept(old: &Index, total: usize, is_new: impl Fn(usize) -> bool) -> Outcome<Kept> {
    let mut found = Vec::new();
    for entry in (0..total).filter(|entry| !is_new(*entry)) {
        if let Some(range) = old.range(entry)? {
            push(&mut found, (entry, range))?;
        }
    }
    found.sort_by_key(|(_, range)| range.start);
    let mut segments: Vec<Range<usize>> = Vec::new();
    let mut members = reserved(found.len())?;
    for (entry, range) in found {
        match segments.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => segments.push(range.clone()),
        }
        members.push((entry, range, segments.len() - 1));
    }
    let kept = members.into_iter().map(|(entry, range, segment)| (entry, (range, segments[segment].clone())));
    Ok(kept.collect())
}
