//! Rows found by comparisons, in one array or in several of one length.
//!
//! For arrays of chunk files (`rows`). A row is found if all conditions of one alternative are true. Of
//! its first array all blocks are decoded; of each further one only those that still have a candidate.
//! Marks, a byte for each row, say which rows are candidates.

use crate::array::chunk_file::OpenChunk;
use crate::array::comparison::Test;
use crate::array::gather::{argument, decode_all, is_simple};
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::rows::RowChunks;
use crate::array::stored::Held;
use crate::array::workspace::Workspace;
use crate::array::zones::Items;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::header::Filter;
use crate::chunk::scratch::Scratch;
use crate::error::Outcome;
use crate::interrupt::Interrupt;
use crate::memory::{grow, grow_aligned, push};
use std::ops::Range;
use std::sync::Mutex;

/// Up to so many rows of a block are looked up in its planes; for more, all of it is decoded.
const FEW: usize = 64;
/// The widest item that is compared.
const WIDEST: usize = 8;
/// So many neighbouring rows without a mark are not read along with marked ones.
const STRETCH: usize = 4096;

/// An array, and the comparisons with its items.
pub struct Condition<'a> {
    pub layout: &'a Layout,
    pub tests: Vec<Test>,
    /// The number of the alternative that the condition belongs to; they ascend.
    pub alternative: usize,
    /// The chunks, where the caller hands them over.
    pub held: Option<&'a Held<'a>>,
}

/// The rows that were found, and the failures of each array.
#[derive(Default)]
pub struct Matches {
    pub count: usize,
    /// The numbers of the rows, ascending, in parts.
    pub numbers: Vec<Vec<i64>>,
    pub failures: Vec<(usize, Failure)>,
}

/// Find the rows of `spans`, which ascend, for which all conditions of any alternative are true. The
/// rows are only counted unless their `numbers` are wanted.
pub fn find(
    conditions: &[Condition<'_>],
    spans: &[Range<usize>],
    numbers: bool,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Matches> {
    let mut columns = Vec::with_capacity(conditions.len());
    for condition in conditions {
        columns.push(Column::of(condition, spans.last().map_or(0, |span| span.end))?);
    }
    let longest = columns.iter().map(|column| column.chunks.layout.grid.chunk[0]).max().unwrap_or(1);
    // Cut one by one: an array may claim more chunks than memory holds.
    let units = spans.iter().flat_map(|span| cut(span.clone(), longest)).enumerate();
    // Exactly as many as there are: a thread too many costs more than most searches.
    let count = spans
        .iter()
        .filter(|span| !span.is_empty())
        .fold(0usize, |count, span| count.saturating_add((span.end - 1) / longest - span.start / longest + 1));
    let units = Mutex::new(units);
    let found = Mutex::new(Matches::default());
    let parts = Mutex::new(Vec::new());
    interrupt.share(threads.min(count).max(1), workspace, |workspace| {
        let next = units.lock().expect("no thread panics").next();
        let Some((index, unit)) = next else { return Ok(false) };
        // Taken out of the workspace for as long as the marks are in use.
        let mut memory = std::mem::take(&mut workspace.enclosing);
        let marks = grow(&mut memory, unit.len())?;
        let wrong = mark_any(&columns, &unit, marks, workspace)?;
        let mut rows = Vec::new();
        let mut count = 0;
        if wrong.is_none() {
            for_each_mark(marks, |place| {
                count += 1;
                if numbers {
                    rows.push((unit.start + place) as i64);
                }
            });
        }
        workspace.enclosing = memory;
        let mut found = found.lock().expect("no thread panics");
        found.count += count;
        if !rows.is_empty() {
            push(&mut parts.lock().expect("no thread panics"), (index, rows))?;
        }
        found.failures.extend(wrong);
        Ok(found.failures.len() < Failures::MOST)
    })?;
    let mut parts = parts.into_inner().expect("no thread panics");
    parts.sort_unstable_by_key(|(index, _)| *index);
    let numbers = parts.into_iter().map(|(_, rows)| rows).collect();
    Ok(Matches { numbers, ..found.into_inner().expect("no thread panics") })
}

/// Write to `out`, a byte for each row from `start` on, whether all comparisons are true.
pub fn compare(
    condition: &Condition<'_>,
    start: usize,
    out: &mut [u8],
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Failure>> {
    let column = Column::of(condition, start.saturating_add(out.len()))?;
    let mut parts = Vec::new();
    let mut rest = out;
    for rows in cut(start..start + rest.len(), condition.layout.grid.chunk[0]) {
        let (marks, behind) = rest.split_at_mut(rows.len());
        push(&mut parts, (rows, marks))?;
        rest = behind;
    }
    let threads = threads.min(parts.len()).max(1);
    let queue = Mutex::new(parts.into_iter());
    let failures = Failures::default();
    interrupt.share(threads, workspace, |workspace| {
        let Some((rows, marks)) = queue.lock().expect("no thread panics").next() else {
            return Ok(false);
        };
        Ok(column.mark(&rows, marks, false, workspace).map_or_else(|failure| failures.note(failure), |()| true))
    })?;
    Ok(failures.into_inner())
}

/// Rows cut at multiples of `length`.
fn cut(rows: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let mut at = rows.start;
    std::iter::from_fn(move || {
        let begin = at;
        at = rows.end.min((begin / length + 1) * length);
        (begin < rows.end).then_some(begin..at)
    })
}

/// Mark the rows of `unit` for which an alternative is true; return the failure, if there is one,
/// with the number of its array.
fn mark_any(
    columns: &[Column<'_>],
    unit: &Range<usize>,
    marks: &mut [u8],
    workspace: &mut Workspace,
) -> Outcome<Option<(usize, Failure)>> {
    let mut before = 0;
    let mut others = Vec::new();
    for alternative in columns.chunk_by(|one, next| one.alternative == next.alternative) {
        let own = if before == 0 { &mut *marks } else { grow(&mut others, unit.len())? };
        if let Err((number, failure)) = mark(alternative, unit, own, workspace) {
            return Ok(Some((before + number, failure)));
        }
        if before > 0 {
            marks.iter_mut().zip(&others).for_each(|(mark, other)| *mark |= *other);
        }
        before += alternative.len();
    }
    Ok(None)
}

/// Mark the rows of `unit` for which all conditions are true.
fn mark(
    columns: &[Column<'_>],
    unit: &Range<usize>,
    marks: &mut [u8],
    workspace: &mut Workspace,
) -> Result<(), (usize, Failure)> {
    for (number, column) in columns.iter().enumerate() {
        for rows in cut(unit.clone(), column.chunks.layout.grid.chunk[0]) {
            let marks = &mut marks[rows.start - unit.start..rows.end - unit.start];
            column.mark(&rows, marks, number > 0, workspace).map_err(|failure| (number, failure))?;
        }
    }
    Ok(())
}

/// Call `work` with the place of every mark; a mark is 1, and a place without one is 0.
fn for_each_mark(marks: &[u8], mut work: impl FnMut(usize)) {
    const WORD: usize = 8;
    let (words, rest) = marks.as_chunks::<WORD>();
    for (number, word) in words.iter().enumerate() {
        let mut left = u64::from_le_bytes(*word);
        while left != 0 {
            work(number * WORD + left.trailing_zeros() as usize / 8);
            left &= left - 1;
        }
    }
    for (place, _) in rest.iter().enumerate().filter(|(_, mark)| **mark != 0) {
        work(words.len() * WORD + place);
    }
}

/// A condition on the rows of an array.
struct Column<'a> {
    chunks: RowChunks<'a>,
    items: Items,
    tests: &'a [Test],
    alternative: usize,
}

impl<'a> Column<'a> {
    /// Check that the array has `end` rows, and that the kernel can compare them.
    fn of(condition: &'a Condition<'a>, end: usize) -> Outcome<Self> {
        let &Condition { layout, ref tests, alternative, held } = condition;
        let grid = &layout.grid;
        let items = grid.items.filter(|_| layout.coding.framed || layout.coding.slotted);
        let Some(items) = items.filter(|items| items.comparable() && tests.iter().all(|test| items.testable(test)))
        else {
            return argument("items of this type are not compared natively");
        };
        if grid.row_bytes() != grid.itemsize || end > grid.shape[0] {
            return argument("the array has fewer rows, or its rows are no single items");
        }
        Ok(Self { chunks: RowChunks::open(layout, held)?, items, tests, alternative })
    }

    /// Mark those of `rows`, which lie in one chunk, for which the condition is true; with `marked`,
    /// only among those that have a mark.
    fn mark(
        &self,
        rows: &Range<usize>,
        marks: &mut [u8],
        marked: bool,
        workspace: &mut Workspace,
    ) -> Result<(), Failure> {
        let stretches = match marked {
            true => marks.chunks(STRETCH).filter(|marks| marks.contains(&1)).count(),
            false => marks.len().div_ceil(STRETCH),
        };
        if stretches == 0 {
            return Ok(());
        }
        let length = self.chunks.layout.grid.chunk[0];
        let (number, wanted) = (rows.start / length, (stretches * STRETCH).min(marks.len()) * self.items.size);
        let first = rows.start % length;
        let Workspace { scratch, buffers, chunk, .. } = workspace;
        self.chunks.visit(number, wanted, buffers, |open| self.mark_chunk(open, first, marks, marked, scratch, chunk))
    }

    fn mark_chunk(
        &self,
        mut open: OpenChunk<'_>,
        first: usize,
        marks: &mut [u8],
        marked: bool,
        scratch: &mut Scratch,
        plain: &mut Vec<u8>,
    ) -> Outcome<()> {
        let decoder = open.decoder;
        let header = decoder.header;
        let size = self.items.size;
        if header.memcpyed() || !is_simple(header) || !header.blocksize.is_multiple_of(size) {
            let bytes = match header.memcpyed() {
                true => &open.all()?[header.header_bytes()..],
                false => decode_all(&mut open, scratch, plain)?,
            };
            self.items.mark(&bytes[first * size..][..marks.len() * size], self.tests, marks, marked);
            return Ok(());
        }
        let end = first + marks.len();
        for rows in cut(first..end, header.blocksize / size) {
            let marks = &mut marks[rows.start - first..rows.end - first];
            if marked && !marks.contains(&1) {
                continue;
            }
            let window = open.block(rows.start * size / header.blocksize)?;
            let looked_up = marked && self.look_up(decoder, window, &rows, marks, scratch)?;
            if !looked_up {
                let block = rows.start * size / header.blocksize;
                let range = header.block_range(block);
                let bytes = grow(plain, range.len())?;
                decoder.decode_block(window, block, bytes, None, scratch)?;
                let bytes = &bytes[rows.start * size - range.start..][..marks.len() * size];
                self.items.mark(bytes, self.tests, marks, marked);
            }
        }
        Ok(())
    }

    /// Remove the marks of rows of a block for which the condition is not true, if only a few have
    /// one and the block has planes to look them up in; otherwise return false.
    fn look_up(
        &self,
        decoder: &Decoder<'_>,
        window: Window<'_>,
        rows: &Range<usize>,
        marks: &mut [u8],
        scratch: &mut Scratch,
    ) -> Outcome<bool> {
        let (header, size) = (decoder.header, self.items.size);
        let block = decoder.block(window, rows.start * size / header.blocksize)?;
        let each = header.filtered_items(block.size);
        if header.filter != Filter::Shuffle || size != header.typesize || each * size != block.size {
            return Ok(false);
        }
        let (mut places, mut count) = ([0; FEW], 0);
        for_each_mark(marks, |place| {
            if let Some(free) = places.get_mut(count) {
                *free = place;
            }
            count += 1;
        });
        let Some(places) = places.get(..count) else { return Ok(false) };
        let (mut items, mut answers) = ([0; FEW * WIDEST], [0; FEW]);
        let (items, answers) = (&mut items[..count * size], &mut answers[..count]);
        let filtered = grow_aligned(&mut scratch.filtered, block.size)?;
        let planes = decoder.decode_planes(&block, &mut scratch.codecs, filtered, each)?;
        let first = rows.start - header.block_range(block.index).start / size;
        for (place, item) in places.iter().zip(items.chunks_exact_mut(size)) {
            planes.unshuffle(first + place, size, item);
        }
        self.items.mark(items, self.tests, answers, false);
        for (place, answer) in places.iter().zip(answers) {
            marks[*place] = *answer;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_at_chunks() {
        let parts = |rows, length| cut(rows, length).collect::<Vec<_>>();
        assert_eq!(parts(3..20, 8), [3..8, 8..16, 16..20]);
        assert_eq!(parts(8..24, 8), [8..16, 16..24]);
        assert!(parts(5..5, 8).is_empty());
    }

    #[test]
    fn every_mark_is_visited_in_order() {
        for length in [0, 1, 7, 8, 9, 64, 100] {
            let marks: Vec<u8> = (0..length).map(|place| u8::from(place % 3 == 0 || place % 7 == 6)).collect();
            let mut places = Vec::new();
            for_each_mark(&marks, |place| places.push(place));
            let expected: Vec<_> = (0..length).filter(|place| marks[*place] == 1).collect();
            assert_eq!(places, expected);
        }
    }
}
