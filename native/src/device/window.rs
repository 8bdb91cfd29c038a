//! The tables of a window, as the kernels of a device take them: blocks, boxes and axes.

use super::blocks::{Block, Draft, Source, Stored, draft};
use super::region::{Part, Steps, Wanted};
use crate::chunk::filters::pipeline::{BITSHUFFLE, SHUFFLE};
use crate::error::Outcome;
use crate::interrupt::Interrupt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many items of a box one warp moves.
const UNIT_ITEMS: i64 = 4096;
/// Decoded chunks begin at multiples of this, so that the kernels can store 16 bytes at once.
const ALIGNMENT: i64 = 16;
/// A thread is started for so many chunks; fewer are planned sooner without it.
const CHUNKS_EACH: usize = 64;

/// The record of a box.
#[derive(Clone, Copy, Debug)]
pub struct WindowBox {
    pub source: i64,
    pub target: i64,
    pub items: i64,
    pub first_axis: u32,
    pub axes: u32,
    pub itemsize: u32,
    pub side: u32,
    pub first_unit: i64,
}

impl WindowBox {
    pub fn units(&self) -> i64 {
        (self.items + UNIT_ITEMS - 1) / UNIT_ITEMS
    }
}

/// The record of an axis of a box. Tables are places in `offsets`, -1 for none.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub count: i64,
    pub source_step: i64,
    pub target_step: i64,
    pub source_table: i64,
    pub target_table: i64,
}

/// The tables of a window.
#[derive(Default)]
pub struct Window {
    pub blocks: Vec<Block>,
    /// The chunk of each block.
    pub chunk_owners: Vec<u32>,
    pub boxes: Vec<WindowBox>,
    pub axes: Vec<Axis>,
    pub offsets: Vec<i64>,
    /// Stored bytes that lie behind the memory of the window, each with its chunk.
    pub pieces: Vec<(usize, Source)>,
    pub input_size: i64,
    /// The size of each of the two buffers for decoded bytes.
    pub room: i64,
    /// The chunks that are not taken.
    pub refused: Vec<usize>,
    /// For each box: where the blocks of its chunk begin, and how many there are.
    box_blocks: Vec<(usize, usize)>,
}

/// Plan the chunks of a window, of which `stored` has the bytes. `memory` is where some of them lie, which a
/// device gets as a whole.
pub fn plan(
    wanted: &[Wanted],
    itemsize: i64,
    stored: &[Option<Stored<'_>>],
    memory: &[u8],
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<Window> {
    let drafts = drafts(wanted, stored, threads, interrupt)?;
    let mut window = Window { input_size: memory.len() as i64, ..Window::default() };
    for (number, draft) in drafts.into_iter().enumerate() {
        let (Some(draft), Some(stored)) = (draft, &stored[number]) else {
            window.refused.push(number);
            continue;
        };
        let (first, side) = (window.blocks.len(), draft.side);
        let start = window.add_blocks(number, draft, stored, memory);
        let own = (first, window.blocks.len() - first);
        let several = wanted[number].regions.len() > 1;
        for region in &wanted[number].regions {
            window.add_box(start, side, &region.source, &region.target, itemsize);
            // Only where one box has all of a chunk may its blocks go to the result at once.
            window.box_blocks.push(if several { (first, 0) } else { own });
        }
    }
    window.direct();
    window.number();
    Ok(window)
}

fn drafts(
    wanted: &[Wanted],
    stored: &[Option<Stored<'_>>],
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<Vec<Option<Draft>>> {
    let of = |number: usize| {
        let wanted = &wanted[number];
        draft(stored[number].as_ref()?, wanted.nbytes?, &wanted.spans)
    };
    let threads = threads.min(wanted.len() / CHUNKS_EACH);
    if threads < 2 {
        return Ok((0..wanted.len()).map(of).collect());
    }
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    interrupt.share(threads, &mut (), |()| {
        let first = next.fetch_add(CHUNKS_EACH, Ordering::Relaxed);
        if first >= wanted.len() {
            return Ok(false);
        }
        let some: Vec<_> = (first..wanted.len().min(first + CHUNKS_EACH)).map(of).collect();
        found.lock().expect("no thread panics").push((first, some));
        Ok(true)
    })?;
    let mut found = found.into_inner().expect("no thread panics");
    found.sort_unstable_by_key(|(first, _)| *first);
    Ok(found.into_iter().flat_map(|(_, some)| some).collect())
}

impl Window {
    fn take_room(&mut self, size: i64) -> i64 {
        let start = (self.room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        self.room = start + size;
        start
    }

    /// Add the blocks of a chunk; return where its first decoded byte is, or would be.
    fn add_blocks(&mut self, owner: usize, draft: Draft, stored: &Stored<'_>, memory: &[u8]) -> i64 {
        let apart = draft.reference.map(|size| self.take_room(size));
        let start = self.take_room(draft.room);
        let reference = apart.unwrap_or(start);
        let (mut from, mut blocks) = (0, draft.blocks);
        for (to, source) in draft.inputs {
            let place = self.place(owner, source, stored, memory);
            for (number, block) in blocks[from..to].iter_mut().enumerate() {
                block.source += place;
                block.source_end += place;
                block.target += if from + number == 0 { apart.unwrap_or(start) } else { start };
                block.reference = if draft.delta { reference } else { 0 };
            }
            from = to;
        }
        self.chunk_owners.resize(self.chunk_owners.len() + blocks.len(), owner as u32);
        self.blocks.append(&mut blocks);
        start - draft.begin
    }

    /// Where some stored bytes begin: in the memory of the window, or behind it.
    fn place(&mut self, owner: usize, source: Source, stored: &Stored<'_>, memory: &[u8]) -> i64 {
        if let Source::Piece { number, start, end } = source {
            let bytes = &stored.pieces[number].1[start..end];
            let (first, least) = (bytes.as_ptr() as usize, memory.as_ptr() as usize);
            if !bytes.is_empty() && first >= least && first + bytes.len() <= least + memory.len() {
                return (first - least) as i64;
            }
        }
        self.pieces.push((owner, source));
        self.input_size += source.len() as i64;
        self.input_size - source.len() as i64
    }

    fn add_box(&mut self, start: i64, side: u32, source: &Part, target: &Part, itemsize: i64) {
        let (mut from, mut to, mut items) = (start + source.start, target.start, 1);
        let mut kept: Vec<(Steps, Steps)> = Vec::with_capacity(source.axes.len().max(1));
        for (one, other) in source.axes.iter().zip(&target.axes) {
            items *= one.length;
            let joins = |outer: &Steps, inner: &Steps| {
                outer.table.is_none() && inner.table.is_none() && outer.step == inner.length * inner.step
            };
            if one.length == 1 {
                from += one.table.as_ref().map_or(0, |table| table[0]);
                to += other.table.as_ref().map_or(0, |table| table[0]);
            } else if let Some(last) = kept.last_mut().filter(|last| joins(&last.0, one) && joins(&last.1, other)) {
                let length = last.0.length * one.length;
                last.0 = Steps { length, ..one.clone() };
                last.1 = Steps { length, ..other.clone() };
            } else {
                kept.push((one.clone(), other.clone()));
            }
        }
        if kept.is_empty() {
            let step = Steps { length: 1, step: itemsize, table: None };
            kept.push((step.clone(), step));
        }
        let first_axis = self.axes.len() as u32;
        let axes = kept.len() as u32;
        for (one, other) in kept {
            let (count, source_step, target_step) = (one.length, one.step, other.step);
            let (source_table, target_table) = (self.add_offsets(one.table), self.add_offsets(other.table));
            self.axes.push(Axis { count, source_step, target_step, source_table, target_table });
        }
        self.boxes.push(WindowBox {
            source: from,
            target: to,
            items,
            first_axis,
            axes,
            itemsize: itemsize as u32,
            side,
            first_unit: 0,
        });
    }

    fn add_offsets(&mut self, table: Option<Vec<i64>>) -> i64 {
        let Some(mut table) = table else { return -1 };
        let start = self.offsets.len();
        self.offsets.append(&mut table);
        start as i64
    }

    /// Let blocks go to the result at once where one box wants all of their bytes as they lie. Boxes have what is
    /// left.
    fn direct(&mut self) {
        let (mut rest, mut heads, mut tails) = (Vec::with_capacity(self.boxes.len()), Vec::new(), Vec::new());
        for (each, (first, count)) in self.boxes.iter().zip(&self.box_blocks) {
            let reached = direct_blocks(each, &self.axes, &mut self.blocks[*first..first + count]);
            let Some((begin, end)) = reached else {
                rest.push(*each);
                continue;
            };
            let length = each.items * i64::from(each.itemsize);
            if begin > 0 {
                heads.push(WindowBox { items: begin, ..*each });
            }
            if end < length {
                let (source, target) = (each.source + end, each.target + end);
                tails.push(WindowBox { source, target, items: length - end, ..*each });
            }
        }
        for end in heads.into_iter().chain(tails) {
            // Blocks may end inside of items.
            rest.push(WindowBox { itemsize: 1, first_axis: self.axes.len() as u32, ..end });
            let step = Axis { count: end.items, source_step: 1, target_step: 1, source_table: -1, target_table: -1 };
            self.axes.push(step);
        }
        self.boxes = rest;
    }

    /// Number streams and units.
    fn number(&mut self) {
        let mut streams = 0;
        for block in &mut self.blocks {
            block.first_stream = streams;
            streams += block.streams;
        }
        let mut units = 0;
        for each in &mut self.boxes {
            each.first_unit = units;
            units += each.units();
        }
    }
}

/// Direct the blocks of a chunk that lie in a run of items as a whole; return where in the run they begin and end.
/// `None` where there are none, or where they would begin at an address that no wide store can have.
fn direct_blocks(each: &WindowBox, axes: &[Axis], blocks: &mut [Block]) -> Option<(i64, i64)> {
    let (axis, itemsize) = (&axes[each.first_axis as usize], i64::from(each.itemsize));
    let is_run = each.axes == 1 && axis.source_table < 0 && axis.target_table < 0;
    if !is_run || axis.source_step != itemsize || axis.target_step != itemsize {
        return None;
    }
    let length = each.items * itemsize;
    let inside = |block: &Block| {
        let offset = block.target - each.source;
        let turns = block.filters.iter().filter(|filter| matches!(**filter, SHUFFLE | BITSHUFFLE)).count();
        let turns_only = block.filters.iter().all(|filter| matches!(*filter, 0 | SHUFFLE | BITSHUFFLE));
        let ends = offset + i64::from(block.nbytes);
        (offset >= 0 && ends <= length && turns_only && turns as u32 == each.side).then_some((offset, ends))
    };
    let (mut begin, mut end) = (length, 0);
    for (offset, ends) in blocks.iter().filter_map(inside) {
        if (each.target + offset) % ALIGNMENT != 0 {
            return None;
        }
        (begin, end) = (begin.min(offset), end.max(ends));
    }
    if end == 0 {
        return None;
    }
    for block in blocks {
        if let Some((offset, _)) = inside(block) {
            block.direct = each.target + offset;
        }
    }
    Some((begin, end))
}
