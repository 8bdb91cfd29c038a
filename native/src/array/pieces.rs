//! The wanted bytes of a chunk that is not filtered, or no more: from where to where.

use crate::array::scatter::{Region, Run};
use crate::chunk::decode::Window;
use crate::error::Outcome;
use std::ops::Range;

/// Asks for the memory of runs before they are visited: they lie apart, so no processor
/// guesses by itself where the next ones are.
#[derive(Default)]
pub struct Prefetch {
    last: Option<isize>,
}

impl Prefetch {
    /// So many runs ahead memory is asked for.
    const AHEAD: isize = 3;

    /// To be called with each run in turn.
    #[inline]
    pub fn expect(&mut self, region: &Region, run: &Run) {
        if let Some(last) = self.last.replace(run.offset) {
            region.expect(run.offset + Self::AHEAD * (run.offset - last), run.items * region.itemsize());
        }
    }
}

/// Visit the contiguous bytes that the wanted items number `ranks` are made of: where each
/// lies in the chunk, and its place.
pub fn for_each_piece(region: &Region, ranks: Range<usize>, mut visit: impl FnMut(usize, &mut [u8])) {
    region.for_each_run(ranks, |run| {
        for Piece { start, bytes, offset } in Pieces::of(&run, region.itemsize()) {
            visit(start, region.piece(offset, bytes));
        }
    });
}

/// Contiguous bytes of the chunk and where they go.
pub struct Piece {
    pub start: usize,
    pub bytes: usize,
    pub offset: isize,
}

/// The pieces of a run: one when it is contiguous on both sides, else one per item.
pub struct Pieces {
    next: Piece,
    left: usize,
    jump: usize,
    stride: isize,
}

impl Pieces {
    pub fn of(run: &Run, size: usize) -> Self {
        let dense = run.is_dense(size);
        let (bytes, left) = if dense { (run.items * size, 1) } else { (size, run.items) };
        let next = Piece { start: run.start * size, bytes, offset: run.offset };
        Self { next, left, jump: run.step * size, stride: run.stride }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece> {
        self.left = self.left.checked_sub(1)?;
        let Piece { start, bytes, offset } = self.next;
        self.next.start += self.jump;
        self.next.offset += self.stride;
        Some(Piece { start, bytes, offset })
    }
}

/// Copy what `region` wants of chunk bytes `range`, which lie in `window` unfiltered.
pub fn copy_plain(region: &Region, range: Range<usize>, window: Window<'_>) -> Outcome<()> {
    let size = region.itemsize();
    let first = region.rank(range.start / size);
    let end = region.rank(range.end.div_ceil(size));
    region.for_each_run(first..end, |run| {
        for piece in Pieces::of(&run, size) {
            let from = piece.start.max(range.start);
            let to = (piece.start + piece.bytes).min(range.end);
            let out = region.piece(piece.offset + (from - piece.start) as isize, to - from);
            let at = from.wrapping_sub(window.offset);
            out.copy_from_slice(&window.bytes[at..at + to - from]);
        }
    });
    Ok(())
}
