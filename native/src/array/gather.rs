//! Single rows of an array, wherever they lie.
//!
//! For arrays that are cut along their first axis only (`rows`). A chunk is opened once for
//! all rows that are wanted of it, and of its blocks only those are decoded that hold any.
//!
//! `unsafe`: a region is made of the part of the result that one row has, as elsewhere of a
//! whole result; it does not outlive the step that fills it.

use crate::array::chunk_file::{self, Found};
use crate::array::layout::{Failure, Layout, Workspace};
use crate::array::scatter::{Axis, Destination, Region};
use crate::chunk::header::{Filter, Header};
use crate::chunk::scratch::{Scratch, grow, grow_aligned};
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::{Buffers, Root};
use crate::interrupt::Interrupt;
use std::sync::Mutex;

/// Below so many chunks for each, a second thread costs more than it brings.
const CHUNKS_PER_THREAD: usize = 2;
/// Up to so many rows of a block are looked up in its planes; for more all of it is decoded.
const FEW: usize = 4;

/// A part of the result, and which rows of which chunk it is about.
struct Part<'a, T> {
    number: usize,
    wanted: T,
    out: &'a mut [u8],
}

impl Layout {
    /// Copy `rows`, which ascend, to `out`, one behind the other.
    pub fn gather(
        &self,
        rows: &[i64],
        out: &mut [u8],
        threads: usize,
        workspace: &mut Workspace,
        interrupt: &Interrupt,
    ) -> Outcome<Vec<Failure>> {
        let size = self.chunk_bytes / self.chunk[0];
        self.check_rows(rows, out.len(), size)?;
        let length = self.chunk[0] as i64;
        let mut parts = Vec::new();
        let mut rest = out;
        for wanted in rows.chunk_by(|one, next| one / length == next / length) {
            let (out, behind) = rest.split_at_mut(wanted.len() * size);
            parts.push(Part { number: (wanted[0] / length) as usize, wanted, out });
            rest = behind;
        }
        self.each(parts, threads, workspace, interrupt, |part, found, scratch, plain| {
            let first = part.number as i64 * length;
            pick(
                found,
                |index| (part.wanted[index] - first) as usize,
                part.wanted.len(),
                size,
                part.out,
                scratch,
                plain,
            )
        })
    }

    fn check_rows(&self, rows: &[i64], bytes: usize, size: usize) -> Outcome<()> {
        if self.framing.is_none() || rows.len().checked_mul(size) != Some(bytes) {
            return argument("the rows do not fit the memory that they are to fill");
        }
        let inside = rows.first().is_none_or(|row| *row >= 0)
            && rows.last().is_none_or(|row| (*row as usize) < self.shape[0])
            && rows.is_sorted();
        if !inside {
            return Err(Error::new(Kind::Selection, format!("rows do not ascend from 0 to {}", self.shape[0])));
        }
        Ok(())
    }

    /// Let `work` do each part with its chunk, on several threads.
    fn each<T: Send>(
        &self,
        parts: Vec<Part<'_, T>>,
        threads: usize,
        workspace: &mut Workspace,
        interrupt: &Interrupt,
        work: impl Fn(Part<'_, T>, Found<'_>, &mut Scratch, &mut Vec<u8>) -> Outcome<()> + Sync,
    ) -> Outcome<Vec<Failure>> {
        let root = self.open_root()?;
        let threads = threads.min(parts.len() / CHUNKS_PER_THREAD).max(1);
        let queue = Mutex::new(parts.into_iter());
        let failures = Mutex::new(Vec::new());
        interrupt.share(threads, workspace, |workspace| {
            let Some(part) = queue.lock().expect("no thread panics").next() else {
                return Ok(false);
            };
            let Workspace { scratch, buffers, chunk, .. } = workspace;
            let (number, wanted) = (part.number, part.out.len());
            let done = self.visit(&root, number, wanted, buffers, |found| work(part, found, scratch, chunk));
            if let Err(failure) = done {
                failures.lock().expect("no thread panics").push(failure);
            }
            Ok(true)
        })?;
        Ok(failures.into_inner().expect("no thread panics"))
    }

    /// The folder of an array whose chunks are all there.
    pub fn open_root(&self) -> Outcome<Root> {
        match Root::open(&self.root)? {
            Some(root) => Ok(root),
            None => corrupt!("{} is missing", self.root.display()),
        }
    }

    /// Let `work` have the chunk of a number, of which it wants about `wanted` bytes.
    pub fn visit(
        &self,
        root: &Root,
        number: usize,
        wanted: usize,
        buffers: &mut Buffers,
        work: impl FnOnce(Found<'_>) -> Outcome<()>,
    ) -> Result<(), Failure> {
        let key = self.key(&[number]);
        let done = match root.extent(&key) {
            Ok(Some(extent)) => chunk_file::open(&extent, &self.due(number, false), wanted, buffers, work),
            Ok(None) => corrupt!("the chunk is missing"),
            Err(error) => Err(error),
        };
        done.map_err(|error| Failure { coords: vec![number], key, error })
    }
}

pub fn argument<T>(text: &str) -> Outcome<T> {
    Err(Error::new(Kind::Argument, text))
}

/// Whether blocks can be decoded one by one, and their bytes be had from planes.
pub fn is_simple(header: &Header) -> bool {
    !header.memcpyed() && header.special.is_none() && !header.variable && header.rest.is_empty() && header.nbytes > 0
}

/// Copy `count` rows of a chunk, of `size` bytes each, number `index` of them being `row(index)`.
fn pick(
    mut found: Found<'_>,
    row: impl Fn(usize) -> usize,
    count: usize,
    size: usize,
    out: &mut [u8],
    scratch: &mut Scratch,
    plain: &mut Vec<u8>,
) -> Outcome<()> {
    let decoder = found.decoder;
    let header = decoder.header;
    if !is_simple(header) {
        let bytes = decoded(&mut found, scratch, plain)?;
        for (index, out) in out.chunks_exact_mut(size).enumerate() {
            out.copy_from_slice(&bytes[row(index) * size..][..size]);
        }
        return Ok(());
    }
    let mut first = 0;
    let mut block = row(0) * size / header.blocksize;
    while first < count {
        let range = header.block_range(block);
        let last = first + (first..count).take_while(|index| row(*index) * size < range.end).count();
        let window = found.block(block)?;
        let inside = row(first) * size >= range.start && (row(last - 1) + 1) * size <= range.end;
        if last - first == 1 && inside {
            // Every block is met once, so looking up is paid for once.
            let region = one_row(header, row(first), size, &mut out[first * size..][..size])?;
            decoder.decode_region(window, block..block + 1, &region, scratch)?;
            first = last;
            block = if first < count { row(first) * size / header.blocksize } else { block };
            continue;
        }
        let few = last - first <= FEW && inside && header.filter == Filter::Shuffle && size == header.typesize;
        if few && header.filtered_items(range.len()) * size == range.len() {
            let block = decoder.block(window, block)?;
            let each = header.filtered_items(block.size);
            let filtered = grow_aligned(&mut scratch.filtered, block.size)?;
            let planes = decoder.decode_planes(&block, &mut scratch.codecs, filtered, each)?;
            for index in first..last {
                let item = (row(index) * size - range.start) / size;
                planes.unshuffle(item, size, &mut out[index * size..][..size]);
            }
        } else {
            let bytes = grow(plain, range.len())?;
            decoder.decode_block(window, block, bytes, None, scratch)?;
            for index in first..last {
                let begin = row(index) * size;
                let (from, to) = (begin.max(range.start), (begin + size).min(range.end));
                out[index * size + from - begin..][..to - from]
                    .copy_from_slice(&bytes[from - range.start..to - range.start]);
            }
        }
        // A row may go on in the next block.
        first = if (row(last - 1) + 1) * size > range.end { last - 1 } else { last };
        block = if first < last {
            block + 1
        } else if first < count {
            row(first) * size / header.blocksize
        } else {
            block
        };
    }
    Ok(())
}

/// The region of one row of a chunk, which goes to `out`.
fn one_row(header: &Header, row: usize, size: usize, out: &mut [u8]) -> Outcome<Region> {
    // SAFETY: the region is used up before `out` is used again.
    let memory = unsafe { Destination::new(out.as_mut_ptr(), out.len()) };
    let axis = Axis { size: header.nbytes / size, start: row, count: 1, step: 1, stride: size as isize };
    Region::new(&[axis], size, 0, memory)
}

/// All items of a chunk.
pub fn decoded<'p>(found: &mut Found<'_>, scratch: &mut Scratch, plain: &'p mut Vec<u8>) -> Outcome<&'p [u8]> {
    let decoder = found.decoder;
    let bytes = found.all()?;
    let out = grow(plain, decoder.header.nbytes)?;
    decoder.decode_whole(bytes, out, scratch, 1, &Interrupt::never())?;
    Ok(out)
}
