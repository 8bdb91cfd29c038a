//! Where the chunks of one array lie and how they are coded: all that a selection needs.
//!
//! A `Layout` is made once per opened array. Reading a box of the array then is one call:
//! the box is cut by the grid, and each chunk it touches is opened, read, decoded and
//! scattered, on several threads where there is enough to do. What became of each chunk is
//! reported, not judged: only the caller knows what a missing one means.

use crate::decode::{Window, copy_plain};
use crate::encode::{self, Packer};
use crate::fault::{Fault, Kind, Outcome, corrupt};
use crate::files::{self, Buffers, Extent, Root};
use crate::scatter::{Axis, Destination, Region};
use crate::scratch::{Scratch, room};
use crate::streams::{Codecs, Whole};
use crate::superchunk::Framing;
use crate::watch::Watch;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this much decoded data a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 1 << 20;

/// A usual size of blocks, which are decoded whole.
const BLOCK_BYTES: usize = 128 << 10;

/// How the bytes of a chunk are coded.
#[derive(Clone, Copy, Debug)]
pub enum Coding {
    Raw,
    Blosc(encode::Recipe),
    /// One compressed stream over the whole chunk.
    Stream(Whole),
}

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
    pub coding: Coding,
    /// Chunks lie in files with a head and a trailer, as short as they are, and all are there.
    pub framing: Option<Framing>,
    /// One item.
    pub fill: Vec<u8>,
    /// The size of a decoded chunk.
    pub chunk_bytes: usize,
}

/// A part of an axis: which chunk, where in it, how many items, where in the box.
#[derive(Clone, Copy)]
pub struct Part {
    pub chunk: usize,
    pub start: usize,
    pub count: usize,
    position: usize,
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
    pub rows: usize,
}

/// What became of a chunk that could not be decoded as it should.
pub struct Trouble {
    pub coords: Vec<usize>,
    pub key: String,
    pub fault: Fault,
}

/// The result of a read: chunks that were not there (their part was filled), and troubles.
#[derive(Default)]
pub struct Report {
    pub absent: usize,
    pub troubles: Vec<Trouble>,
}

/// What a thread needs.
#[derive(Default)]
pub struct Tools {
    pub scratch: Scratch,
    pub buffers: Buffers,
    pub chunk: Vec<u8>,
    pub packer: Packer,
    pub framed: Vec<u8>,
}

impl Tools {
    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        let buffers = self.buffers.body.capacity() + self.chunk.capacity() + self.framed.capacity();
        self.scratch.kept_bytes() + buffers + self.packer.capacity()
    }
}

impl Layout {
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
            return Err(Fault::new(Kind::Argument, format!("the array has {dimensions} axes, not {lengths:?}")));
        }
        let mut job = Job {
            layout: self,
            parts: Vec::with_capacity(dimensions),
            steps: Vec::with_capacity(dimensions),
            strides: strides.to_vec(),
            origin: 0,
            memory,
            rows: 1,
        };
        for axis in 0..dimensions {
            let (mut start, count, step) = (starts[axis], counts[axis], steps[axis]);
            let last = start as i128 + (count as i128 - 1) * step as i128;
            if count == 0 || step == 0 || start >= self.shape[axis] || last < 0 || last >= self.shape[axis] as i128 {
                let text = format!("axis {axis}: {count} items from {start} by {step} of {}", self.shape[axis]);
                return Err(Fault::new(Kind::Selection, text));
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
        parts.push(Part { chunk: index / chunk, start: inside, count: items, position });
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

    /// About how many bytes have to be decoded: of each chunk all between the first and the
    /// last wanted item, and no less than a block.
    fn work(&self) -> Outcome<usize> {
        let (first, end) = self.region(&self.row(0))?.span();
        let each = ((end - first) * self.layout.itemsize).max(BLOCK_BYTES).min(self.layout.chunk_bytes);
        Ok(self.rows.saturating_mul(each))
    }

    /// Threads worth having for this much work.
    pub fn threads(&self, allowed: usize, bytes: usize) -> usize {
        allowed.min(self.rows).min(bytes / WORTH_A_THREAD + 1).max(1)
    }

    /// Read all rows into the memory.
    pub fn read(&self, threads: usize, tools: &mut Tools, watch: &Watch) -> Outcome<Report> {
        let root = Root::open(&self.layout.root)?;
        let absent = AtomicUsize::new(0);
        let troubles = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        let work = |tools: &mut Tools| {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= self.rows {
                return Ok(false);
            }
            let parts = self.row(row);
            let coords: Vec<usize> = parts.iter().map(|part| part.chunk).collect();
            let key = self.layout.key(&coords);
            match self.read_row(root.as_ref(), &key, &parts, tools) {
                Ok(true) => {}
                Ok(false) => {
                    absent.fetch_add(1, Ordering::Relaxed);
                }
                Err(fault) if fault.kind == Kind::Argument => return Err(fault),
                Err(fault) => troubles.lock().expect("no thread panics").push(Trouble { coords, key, fault }),
            }
            Ok(true)
        };
        let threads = if self.rows == 1 { 1 } else { self.threads(threads, self.work()?) };
        watch.share(threads, tools, work)?;
        Ok(Report { absent: absent.into_inner(), troubles: troubles.into_inner().expect("no thread panics") })
    }

    fn read_row(&self, root: Option<&Root>, key: &str, parts: &[Part], tools: &mut Tools) -> Outcome<bool> {
        let region = self.region(parts)?;
        let extent = match root {
            Some(root) => root.extent(key)?,
            None => None,
        };
        if self.layout.framing.is_some() {
            return self.layout.read_rows(extent.as_ref(), parts[0].chunk, region, tools).map(|()| true);
        }
        let Some(extent) = extent else {
            region.fill(&self.layout.fill);
            return Ok(false);
        };
        let Tools { scratch, buffers, chunk, .. } = tools;
        let expected = self.layout.chunk_bytes;
        match self.layout.coding {
            Coding::Blosc(_) => files::decode_extent(&extent, expected, &region, scratch, buffers)?,
            Coding::Raw => read_raw(&extent, expected, &region, buffers)?,
            Coding::Stream(whole) => {
                read_stream(&extent, whole, room(chunk, expected)?, &mut scratch.codecs, buffers)?;
                copy_plain(&region, 0..expected, Window { bytes: &chunk[..expected], offset: 0 })?;
            }
        }
        Ok(true)
    }
}

pub fn check_raw(extent: &Extent<'_>, expected: usize) -> Outcome<()> {
    if extent.length != expected {
        return corrupt!("the chunk has {} bytes, the array needs {expected}", extent.length);
    }
    Ok(())
}

fn read_raw(extent: &Extent<'_>, expected: usize, region: &Region, buffers: &mut Buffers) -> Outcome<()> {
    check_raw(extent, expected)?;
    let (first, end) = region.span();
    let (first, end) = (first * region.itemsize(), end * region.itemsize());
    if let Some(out) = region.as_one_piece() {
        return extent.read(first, out);
    }
    let bytes = room(&mut buffers.body, end - first)?;
    extent.read(first, bytes)?;
    copy_plain(region, first..end, Window { bytes, offset: first })
}

pub fn read_stream(
    extent: &Extent<'_>,
    whole: Whole,
    out: &mut [u8],
    codecs: &mut Codecs,
    buffers: &mut Buffers,
) -> Outcome<()> {
    // No encoder makes twice as much of what it gets; what is longer is not worth a look.
    if extent.length > 2 * out.len() + (64 << 10) {
        return corrupt!("{} bytes are stored for a chunk of {} bytes", extent.length, out.len());
    }
    let bytes = extent.all(buffers)?;
    codecs.decode_whole(whole, bytes, out)
}
