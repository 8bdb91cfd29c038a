//! Single rows of an array, wherever they lie: read one by one, or found by a comparison.
//!
//! For arrays that are cut along their first axis only (`rows`). A chunk is opened once for
//! all rows that are wanted of it, and of its blocks only those are decoded that hold any.
//!
//! `unsafe`: a region is made of the part of the result that one row has, as elsewhere of a
//! whole result; it does not outlive the step that fills it.

use crate::fault::{Fault, Kind, Outcome, corrupt};
use crate::files::Root;
use crate::header::{Filter, Header};
use crate::layout::{Layout, Tools, Trouble};
use crate::scatter::{Axis, Destination, Region};
use crate::scratch::{Scratch, aligned_room, room};
use crate::superchunk::{self, Found};
use crate::watch::Watch;
use crate::zone::{Items, Order};
use std::ops::Range;
use std::sync::Mutex;

/// Below so many chunks for each, a second thread costs more than it brings.
const CHUNKS_PER_THREAD: usize = 2;
/// Up to so many rows of a block are looked up in its planes; for more all of it is decoded.
const FEW: usize = 4;

/// What is asked of every item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }
}

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
        tools: &mut Tools,
        watch: &Watch,
    ) -> Outcome<Vec<Trouble>> {
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
        self.each(parts, threads, tools, watch, |part, found, scratch, plain| {
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

    /// Say in `out`, a byte for each, of which rows from `start` on all comparisons are true.
    pub fn compare(
        &self,
        start: usize,
        tests: &[Test],
        out: &mut [u8],
        threads: usize,
        tools: &mut Tools,
        watch: &Watch,
    ) -> Outcome<Vec<Trouble>> {
        let items = self.framing.and_then(|framing| framing.items);
        let Some(items) =
            items.filter(|items| items.comparable() && tests.iter().all(|(_, value)| value.len() == items.size))
        else {
            return argument("items of this type are not compared natively");
        };
        if self.chunk_bytes != self.chunk[0] * self.itemsize || start.saturating_add(out.len()) > self.shape[0] {
            return argument("these rows are not there, or are no single items");
        }
        let length = self.chunk[0];
        let mut parts = Vec::new();
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let (number, first) = (at / length, at % length);
            let count = rest.len().min(length - first);
            let (out, behind) = rest.split_at_mut(count);
            parts.push(Part { number, wanted: first..first + count, out });
            (at, rest) = (at + count, behind);
        }
        self.each(parts, threads, tools, watch, |part, found, scratch, plain| {
            compare_chunk(found, part.wanted, &items, tests, part.out, scratch, plain)
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
            return Err(Fault::new(Kind::Selection, format!("rows do not ascend from 0 to {}", self.shape[0])));
        }
        Ok(())
    }

    /// Let `work` do each part with its chunk, on several threads.
    fn each<T: Send>(
        &self,
        parts: Vec<Part<'_, T>>,
        threads: usize,
        tools: &mut Tools,
        watch: &Watch,
        work: impl Fn(Part<'_, T>, Found<'_>, &mut Scratch, &mut Vec<u8>) -> Outcome<()> + Sync,
    ) -> Outcome<Vec<Trouble>> {
        let Some(root) = Root::open(&self.root)? else {
            return corrupt!("{} is missing", self.root.display());
        };
        let threads = threads.min(parts.len() / CHUNKS_PER_THREAD).max(1);
        let queue = Mutex::new(parts.into_iter());
        let troubles = Mutex::new(Vec::new());
        watch.share(threads, tools, |tools| {
            let Some(part) = queue.lock().expect("no thread panics").next() else {
                return Ok(false);
            };
            let (number, key) = (part.number, self.key(&[part.number]));
            let wanted = part.out.len();
            let Tools { scratch, buffers, chunk, .. } = tools;
            let done = match root.extent(&key) {
                Ok(Some(extent)) => superchunk::open(&extent, &self.due(number, false), wanted, buffers, |found| {
                    work(part, found, scratch, chunk)
                }),
                Ok(None) => corrupt!("the chunk is missing"),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = done {
                troubles.lock().expect("no thread panics").push(Trouble { coords: vec![number], key, fault });
            }
            Ok(true)
        })?;
        Ok(troubles.into_inner().expect("no thread panics"))
    }
}

fn argument<T>(text: &str) -> Outcome<T> {
    Err(Fault::new(Kind::Argument, text))
}

/// A comparison, and the item that others are compared with.
pub type Test = (Comparison, Vec<u8>);

/// So many answers stay near the processor until the next ones join them.
const STRETCH: usize = 1024;

/// Whether blocks can be decoded one by one, and their bytes be had from planes.
fn is_simple(header: &Header) -> bool {
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
            let filtered = aligned_room(&mut scratch.filtered, block.size)?;
            let planes = decoder.decode_planes(&block, &mut scratch.codecs, filtered, each)?;
            for index in first..last {
                let item = (row(index) * size - range.start) / size;
                planes.unshuffle(item, size, &mut out[index * size..][..size]);
            }
        } else {
            let bytes = room(plain, range.len())?;
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
fn decoded<'p>(found: &mut Found<'_>, scratch: &mut Scratch, plain: &'p mut Vec<u8>) -> Outcome<&'p [u8]> {
    let decoder = found.decoder;
    let bytes = found.all()?;
    let out = room(plain, decoder.header.nbytes)?;
    decoder.decode_whole(bytes, out, scratch, 1, &Watch::unasked())?;
    Ok(out)
}

fn compare_chunk(
    mut found: Found<'_>,
    wanted: Range<usize>,
    items: &Items,
    tests: &[Test],
    out: &mut [u8],
    scratch: &mut Scratch,
    plain: &mut Vec<u8>,
) -> Outcome<()> {
    let decoder = found.decoder;
    let header = decoder.header;
    let size = items.size;
    if header.memcpyed() {
        let bytes = &found.all()?[header.header_bytes()..];
        items.all_true(&bytes[wanted.start * size..wanted.end * size], tests, out);
        return Ok(());
    }
    if !is_simple(header) || !header.blocksize.is_multiple_of(size) {
        let bytes = decoded(&mut found, scratch, plain)?;
        items.all_true(&bytes[wanted.start * size..wanted.end * size], tests, out);
        return Ok(());
    }
    let each = header.blocksize / size;
    let mut at = wanted.start;
    while at < wanted.end {
        let block = at / each;
        let range = header.block_range(block);
        let stop = wanted.end.min(range.end / size);
        let window = found.block(block)?;
        let bytes = room(plain, range.len())?;
        decoder.decode_block(window, block, bytes, None, scratch)?;
        let begin = range.start / size;
        let (from, to) = ((at - begin) * size, (stop - begin) * size);
        items.all_true(&bytes[from..to], tests, &mut out[at - wanted.start..stop - wanted.start]);
        at = stop;
    }
    Ok(())
}

impl Items {
    /// Whether `compare` knows how; text is left to others.
    pub fn comparable(&self) -> bool {
        !self.big_endian
            && match self.order {
                Order::Signed | Order::Unsigned | Order::Time => true,
                Order::Float => self.size > 2,
                Order::Bytes | Order::Text => false,
            }
    }

    /// Say in `out` of which items in `bytes` all comparisons are true.
    fn all_true(&self, bytes: &[u8], tests: &[Test], out: &mut [u8]) {
        let Some(((comparison, value), others)) = tests.split_first() else {
            return out.fill(1);
        };
        self.compare(bytes, *comparison, value, out);
        let mut also = [0; STRETCH];
        for (comparison, value) in others {
            for (out, bytes) in out.chunks_mut(STRETCH).zip(bytes.chunks(STRETCH * self.size)) {
                let also = &mut also[..out.len()];
                self.compare(bytes, *comparison, value, also);
                out.iter_mut().zip(also).for_each(|(out, also)| *out &= *also);
            }
        }
    }

    /// Say in `out` of which items in `bytes` the comparison with `value` is true.
    fn compare(&self, bytes: &[u8], comparison: Comparison, value: &[u8], out: &mut [u8]) {
        match (self.order, self.size) {
            (Order::Unsigned, 1) => compared(bytes, value, comparison, out, u8::from_le_bytes),
            (Order::Unsigned, 2) => compared(bytes, value, comparison, out, u16::from_le_bytes),
            (Order::Unsigned, 4) => compared(bytes, value, comparison, out, u32::from_le_bytes),
            (Order::Unsigned, _) => compared(bytes, value, comparison, out, u64::from_le_bytes),
            (Order::Signed, 1) => compared(bytes, value, comparison, out, i8::from_le_bytes),
            (Order::Signed, 2) => compared(bytes, value, comparison, out, i16::from_le_bytes),
            (Order::Signed, 4) => compared(bytes, value, comparison, out, i32::from_le_bytes),
            (Order::Signed, _) => compared(bytes, value, comparison, out, i64::from_le_bytes),
            (Order::Float, 4) => compared(bytes, value, comparison, out, f32::from_le_bytes),
            (Order::Float, _) => compared(bytes, value, comparison, out, f64::from_le_bytes),
            (Order::Time, _) => compared_times(bytes, value, comparison, out),
            (Order::Bytes | Order::Text, _) => unreachable!("not comparable"),
        }
    }
}

fn compared<const N: usize, T: PartialOrd + Copy>(
    bytes: &[u8],
    value: &[u8],
    comparison: Comparison,
    out: &mut [u8],
    parse: impl Fn([u8; N]) -> T,
) {
    let value = parse(*value.first_chunk().expect("the value has the size of an item"));
    let (items, _) = bytes.as_chunks::<N>();
    macro_rules! fill {
        ($operator:tt) => {
            for (out, item) in out.iter_mut().zip(items) {
                *out = u8::from(parse(*item) $operator value);
            }
        };
    }
    match comparison {
        Comparison::Equal => fill!(==),
        Comparison::Unequal => fill!(!=),
        Comparison::Less => fill!(<),
        Comparison::LessOrEqual => fill!(<=),
        Comparison::Greater => fill!(>),
        Comparison::GreaterOrEqual => fill!(>=),
    }
}

/// The lowest number is no time: it equals nothing, and is not before anything.
fn compared_times(bytes: &[u8], value: &[u8], comparison: Comparison, out: &mut [u8]) {
    if value == NO_TIME {
        out.fill(u8::from(comparison == Comparison::Unequal));
        return;
    }
    compared(bytes, value, comparison, out, i64::from_le_bytes);
    if matches!(comparison, Comparison::Less | Comparison::LessOrEqual) {
        for (out, item) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *out &= u8::from(*item != NO_TIME);
        }
    }
}

const NO_TIME: [u8; 8] = i64::MIN.to_le_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_none_compare_with_nothing() {
        let items = Items::parse('M', 8, false).unwrap();
        let bytes: Vec<u8> = [i64::MIN, -5, 7].iter().flat_map(|number| number.to_le_bytes()).collect();
        let ask = |comparison, value: i64| {
            let mut out = [9; 3];
            items.compare(&bytes, comparison, &value.to_le_bytes(), &mut out);
            out
        };
        assert_eq!(ask(Comparison::Less, 7), [0, 1, 0]);
        assert_eq!(ask(Comparison::LessOrEqual, 7), [0, 1, 1]);
        assert_eq!(ask(Comparison::Unequal, 7), [1, 1, 0]);
        assert_eq!(ask(Comparison::GreaterOrEqual, i64::MIN), [0, 0, 0]);
        assert_eq!(ask(Comparison::Unequal, i64::MIN), [1, 1, 1]);
    }

    #[test]
    fn numbers_compare_as_they_are() {
        let items = Items::parse('f', 4, false).unwrap();
        let bytes: Vec<u8> = [1.5_f32, f32::NAN, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut out = [9; 3];
        items.compare(&bytes, Comparison::Unequal, &1.5_f32.to_le_bytes(), &mut out);
        assert_eq!(out, [0, 1, 1]);
        items.compare(&bytes, Comparison::GreaterOrEqual, &(-2.0_f32).to_le_bytes(), &mut out);
        assert_eq!(out, [1, 0, 1]);
    }
}
