//! Where the chunks of one array lie and how they are coded: all that a selection needs.
//!
//! A `Layout` is made once per opened array. Reading a box of the array then is one call:
//! the box is cut by the grid, and each chunk it touches is opened, read, decoded and
//! scattered, on several threads where there is enough to do. What became of each chunk is
//! reported, not judged: only the caller knows what a missing one means.

use crate::array::chunk_file::Framing;
use crate::array::coding::Chain;
use crate::array::index_arrays::{self, Pick};
use crate::array::scatter::{Axis, Destination, Region};
use crate::array::shards::Sharding;
use crate::chunk::encode::Packer;
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome};
use crate::files::verified::Seals;
use crate::files::{Buffers, Extent, Root};
use crate::interrupt::Interrupt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this much decoded data a second thread costs more than it brings.
pub const WORTH_A_THREAD: usize = 1 << 20;

/// A usual size of blocks, which are decoded whole.
const BLOCK_BYTES: usize = 128 << 10;

pub struct Layout {
    pub root: PathBuf,
    pub prefix: String,
    pub separator: String,
    pub suffix: String,
    /// The name of the only chunk of an array without axes.
    pub scalar: String,
    /// How many of the first axes are in a key; along the others the array is not cut.
    pub leading: usize,
    pub shape: Vec<usize>,
    pub chunk: Vec<usize>,
    /// The order in which a chunk's axes are stored, slowest first.
    pub axes: Vec<usize>,
    pub itemsize: usize,
    pub chain: Chain,
    /// Chunks lie in files with a head and a trailer, as short as they are, and all are there.
    pub framing: Option<Framing>,
    /// Which files have been held against the seals of their chunks.
    pub seals: Seals,
    /// One item.
    pub fill: Vec<u8>,
    /// The size of a decoded chunk.
    pub chunk_bytes: usize,
    /// When files hold not one chunk but many.
    pub sharding: Option<Sharding>,
}

/// A part of an axis: which chunk, where in it, how many items, where in the box.
#[derive(Clone, Copy)]
pub struct Part {
    pub chunk: usize,
    pub start: usize,
    pub count: usize,
    pub position: usize,
    /// When the items are no range: the number of the pick that says which ones they are.
    pub pick: Option<usize>,
}

/// A box of the array, cut by the grid, and the memory it is read into or written from.
pub struct Job<'a> {
    pub layout: &'a Layout,
    /// Per axis of the array.
    parts: Vec<Vec<Part>>,
    pub steps: Vec<usize>,
    strides: Vec<isize>,
    origin: isize,
    memory: Destination,
    /// Per axis of the array; of none when all axes are ranges.
    pub picks: Vec<Vec<Pick>>,
    pub rows: usize,
}

/// What became of a chunk that could not be decoded as it should.
pub struct Failure {
    pub coords: Vec<usize>,
    pub key: String,
    pub error: Error,
}

/// The result of a read: chunks that were not there (their part was filled), and troubles.
#[derive(Default)]
pub struct Report {
    pub absent: usize,
    pub failures: Vec<Failure>,
}

/// What a thread needs. That of threads which ended serves the next ones: memory that is new
/// has to be cleared by the system, page by page.
pub struct Workspace {
    pub scratch: Scratch,
    pub buffers: Buffers,
    pub chunk: Vec<u8>,
    /// The box around items of a chunk that are no box.
    pub around: Vec<u8>,
    pub packer: Packer,
    pub framed: Vec<u8>,
}

/// What is kept of threads that ended, at the most.
const SPARE_BYTES: usize = 32 << 20;
static SPARE: Mutex<Vec<Workspace>> = Mutex::new(Vec::new());

impl Workspace {
    fn empty() -> Self {
        Self {
            scratch: Scratch::default(),
            buffers: Buffers::default(),
            chunk: Vec::new(),
            around: Vec::new(),
            packer: Packer::default(),
            framed: Vec::new(),
        }
    }

    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        let Self { scratch, buffers, chunk, around, packer, framed } = self;
        let Buffers { head, body, tail } = buffers;
        let kept = [head, body, tail, chunk, around, framed].map(|buffer| buffer.capacity());
        scratch.kept_bytes() + packer.capacity() + kept.iter().sum::<usize>()
    }
}

impl Default for Workspace {
    fn default() -> Self {
        // Never waited for: after a fork, whoever held the lock may be gone.
        SPARE.try_lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_else(Self::empty)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let Ok(mut spare) = SPARE.try_lock() else { return };
        let kept: usize = spare.iter().map(Self::kept_bytes).sum();
        if self.kept_bytes() > 0 && kept + self.kept_bytes() <= SPARE_BYTES {
            spare.push(std::mem::replace(self, Self::empty()));
        }
    }
}

impl Layout {
    /// The same array in another shape; `None` for what has to be made anew.
    pub fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> Option<Self> {
        if self.sharding.is_some() || shape.len() != self.shape.len() {
            return None;
        }
        Some(Self {
            root: self.root.clone(),
            prefix: self.prefix.clone(),
            separator: self.separator.clone(),
            suffix: self.suffix.clone(),
            scalar: self.scalar.clone(),
            leading: self.leading,
            shape,
            chunk: self.chunk.clone(),
            axes: self.axes.clone(),
            itemsize: self.itemsize,
            chain: self.chain,
            framing: self.framing.map(|framing| Framing { short, ..framing }),
            seals: self.seals.renewed(),
            fill: self.fill.clone(),
            chunk_bytes: self.chunk_bytes,
            sharding: None,
        })
    }

    pub fn key(&self, coords: &[usize]) -> String {
        let mut key = self.prefix.clone();
        for (axis, coord) in coords.iter().take(self.leading).enumerate() {
            if axis > 0 {
                key.push_str(&self.separator);
            }
            key.push_str(itoa(*coord, &mut [0; 20]));
        }
        if coords.is_empty() {
            key.push_str(&self.scalar);
        }
        key + &self.suffix
    }

    /// Cut a box: per axis its first index, how many, and the (signed) step; `strides` are
    /// those of the memory, `origin` the offset of the box's first item in it.
    pub fn job(
        &self,
        starts: &[usize],
        counts: &[usize],
        steps: &[isize],
        strides: &[isize],
        mut origin: isize,
        memory: Destination,
    ) -> Outcome<Job<'_>> {
        let dimensions = self.shape.len();
        let lengths = [starts.len(), counts.len(), steps.len(), strides.len()];
        if lengths.iter().any(|length| *length != dimensions) {
            return Err(Error::new(Kind::Argument, format!("the array has {dimensions} axes, not {lengths:?}")));
        }
        let mut job = Job {
            layout: self,
            parts: Vec::with_capacity(dimensions),
            steps: Vec::with_capacity(dimensions),
            strides: strides.to_vec(),
            origin: 0,
            memory,
            picks: Vec::new(),
            rows: 1,
        };
        for axis in 0..dimensions {
            let (mut start, count, step) = (starts[axis], counts[axis], steps[axis]);
            let last = start as i128 + (count as i128 - 1) * step as i128;
            if count == 0 || step == 0 || start >= self.shape[axis] || last < 0 || last >= self.shape[axis] as i128 {
                let text = format!("axis {axis}: {count} items from {start} by {step} of {}", self.shape[axis]);
                return Err(Error::new(Kind::Selection, text));
            }
            if step < 0 {
                // The same items from the other end.
                origin += (count as isize - 1) * job.strides[axis];
                job.strides[axis] = -job.strides[axis];
                start = last as usize;
            }
            let step = step.unsigned_abs();
            let parts = cut(start, count, step, self.chunk[axis]);
            job.rows = job.rows.saturating_mul(parts.len());
            job.parts.push(parts);
            job.steps.push(step);
        }
        job.origin = origin;
        Ok(job)
    }

    /// The same with an index array along some axes, in the place of their ranges.
    #[allow(clippy::too_many_arguments, reason = "as for `job`")]
    pub fn outer_job(
        &self,
        starts: &[usize],
        counts: &[usize],
        steps: &[isize],
        indices: &[Option<Vec<i64>>],
        strides: &[isize],
        origin: isize,
        memory: Destination,
    ) -> Outcome<Job<'_>> {
        let fits = |(indices, count): (&Option<Vec<i64>>, &usize)| indices.as_ref().is_none_or(|i| i.len() == *count);
        if indices.len() != counts.len() || !indices.iter().zip(counts).all(fits) {
            return Err(Error::new(Kind::Argument, "the index arrays do not have the shape of the result"));
        }
        // One item stands for an axis until it is cut.
        let single: Vec<usize> = indices.iter().zip(counts).map(|(i, n)| if i.is_some() { 1 } else { *n }).collect();
        let mut job = self.job(starts, &single, steps, strides, origin, memory)?;
        job.picks.resize_with(counts.len(), Vec::new);
        for (axis, indices) in indices.iter().enumerate() {
            if let Some(indices) = indices {
                (job.parts[axis], job.picks[axis]) = index_arrays::cut(indices, self.shape[axis], self.chunk[axis])?;
            }
        }
        job.rows = job.parts.iter().fold(1usize, |rows, parts| rows.saturating_mul(parts.len()));
        Ok(job)
    }
}

/// Decimal digits without going through the formatting machinery: keys are hot.
fn itoa(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return std::str::from_utf8(&digits[at..]).expect("digits are ASCII");
        }
    }
}

fn cut(start: usize, count: usize, step: usize, chunk: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut position = 0;
    while position < count {
        let index = start + position * step;
        let inside = index % chunk;
        let items = ((chunk - 1 - inside) / step + 1).min(count - position);
        parts.push(Part { chunk: index / chunk, start: inside, count: items, position, pick: None });
        position += items;
    }
    parts
}

impl Job<'_> {
    /// The part of each axis that row number `row` has, in C order over the chunks.
    pub fn row(&self, mut row: usize) -> Vec<Part> {
        let mut parts: Vec<Part> = self
            .parts
            .iter()
            .rev()
            .map(|parts| {
                let part = parts[row % parts.len()];
                row /= parts.len();
                part
            })
            .collect();
        parts.reverse();
        parts
    }

    /// Where a row's part of the chunk and its part of the memory meet.
    pub fn region(&self, parts: &[Part]) -> Outcome<Region> {
        let mut origin = self.origin;
        for (part, stride) in parts.iter().zip(&self.strides) {
            origin += part.position as isize * stride;
        }
        let axes: Vec<Axis> = self
            .layout
            .axes
            .iter()
            .map(|axis| Axis {
                size: self.layout.chunk[*axis],
                start: parts[*axis].start,
                count: parts[*axis].count,
                step: self.steps[*axis],
                stride: self.strides[*axis],
            })
            .collect();
        Region::new(&axes, self.layout.itemsize, origin, self.memory)
    }

    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    pub fn origin(&self) -> isize {
        self.origin
    }

    pub fn memory(&self) -> Destination {
        self.memory
    }

    /// About how many bytes have to be decoded: of each chunk all between the first and the
    /// last wanted item, and no less than a block.
    pub fn work(&self) -> Outcome<usize> {
        if !self.picks.is_empty() {
            return Ok(self.rows.saturating_mul(self.layout.chunk_bytes));
        }
        let (first, end) = self.region(&self.row(0))?.span();
        let each = ((end - first) * self.layout.itemsize).max(BLOCK_BYTES).min(self.layout.chunk_bytes);
        Ok(self.rows.saturating_mul(each))
    }

    /// Threads worth having for this much work.
    pub fn threads(&self, allowed: usize, bytes: usize) -> usize {
        allowed.min(self.rows).min(bytes / WORTH_A_THREAD + 1).max(1)
    }

    /// The parts of each axis.
    pub fn parts(&self) -> &[Vec<Part>] {
        &self.parts
    }

    /// How many files the box touches.
    pub fn files(&self) -> usize {
        self.layout.sharding.as_ref().map_or(self.rows, |sharding| sharding.cut(self).count())
    }

    /// Read all rows into the memory.
    pub fn read(&self, threads: usize, workspace: &mut Workspace, interrupt: &Interrupt) -> Outcome<Report> {
        if let Some(sharding) = &self.layout.sharding {
            return self.read_shards(sharding, threads, workspace, interrupt);
        }
        let alone = self.rows == 1;
        let root = if alone { None } else { Root::open(&self.layout.root)? };
        let absent = AtomicUsize::new(0);
        let failures = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let work = |workspace: &mut Workspace| {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= self.rows {
                return Ok(false);
            }
            let parts = self.row(row);
            let coords: Vec<usize> = parts.iter().map(|part| part.chunk).collect();
            let key = self.layout.key(&coords);
            let extent = match &root {
                Some(root) => root.extent(&key),
                None if alone => Root::extent_in(&self.layout.root, &key),
                None => Ok(None),
            };
            match extent.and_then(|extent| self.read_row(extent, &parts, workspace)) {
                Ok(true) => {}
                Ok(false) => {
                    absent.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.kind == Kind::Argument => return Err(error),
                Err(error) => failures.lock().expect("no thread panics").push(Failure { coords, key, error }),
            }
            Ok(true)
        };
        let threads = if alone { 1 } else { self.threads(threads, self.work()?) };
        interrupt.share(threads, workspace, work)?;
        Ok(Report { absent: absent.into_inner(), failures: failures.into_inner().expect("no thread panics") })
    }

    /// Read what a row wants of its chunk, or fill it; whether the chunk is there.
    fn read_row(&self, extent: Option<Extent<'_>>, parts: &[Part], workspace: &mut Workspace) -> Outcome<bool> {
        let Workspace { scratch, buffers, chunk, around, .. } = workspace;
        let Layout { chain, seals, chunk_bytes, fill, .. } = self.layout;
        let number = parts.first().map_or(0, |part| part.chunk);
        self.place(parts, around, |region| match &extent {
            extent if self.layout.framing.is_some() => {
                self.layout.read_rows(extent.as_ref(), number, region, scratch, buffers)
            }
            Some(extent) if chain.sealed => seals.read(chain, extent, *chunk_bytes, region, scratch, buffers, chunk),
            Some(extent) => chain.read(extent, *chunk_bytes, region, scratch, buffers, chunk),
            None => {
                region.fill(fill);
                Ok(())
            }
        })?;
        Ok(extent.is_some())
    }
}
