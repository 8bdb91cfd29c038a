//! Some items of packs, of which only the blocks that hold them are decoded.

use super::source::Sources;
use super::{LENGTH_BYTES, each_length};
use crate::error::{Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::{grow, reserved};
use std::ops::Range;

/// Items that were taken: their lengths, as packs store them, and their bytes.
#[derive(Default)]
pub struct Taken {
    pub lengths: Vec<u32>,
    pub data: Vec<u8>,
}

impl Sources<'_> {
    /// Return the items of each pack that `rows` names, by ascending numbers within the pack. Items that are
    /// `text` are checked.
    pub fn take(&self, rows: &[&[u64]], text: bool, threads: usize, interrupt: &Interrupt) -> Outcome<Vec<Taken>> {
        let mut taken = reserved(rows.len())?;
        taken.resize_with(rows.len(), Taken::default);
        let parts = rows.iter().zip(taken.iter_mut()).collect::<Vec<_>>();
        self.each(parts, threads, interrupt, |pack, stated, (rows, taken), own| {
            let size = pack.lengths.header.nbytes;
            let lengths = grow(&mut own.lengths, size)?;
            pack.decode_lengths(self.guard, stated, lengths, &mut own.scratch)?;
            let places = places(lengths, rows)?;
            let mut wanted = reserved(pack.data.block_count())?;
            wanted.resize(pack.data.block_count(), false);
            for place in places.iter().filter(|place| !place.is_empty()) {
                let blocksize = pack.data.header.blocksize;
                wanted[place.start / blocksize..=(place.end - 1) / blocksize].fill(true);
            }
            let data = grow(&mut own.data, pack.data.header.nbytes)?;
            pack.data.decode_blocks(self.guard, stated, size / LENGTH_BYTES, &wanted, data, &mut own.scratch)?;
            taken.data = reserved(places.iter().map(ExactSizeIterator::len).sum())?;
            taken.lengths = reserved(places.len())?;
            for (row, place) in rows.iter().zip(places) {
                let item = &data[place];
                if text && std::str::from_utf8(item).is_err() {
                    return corrupt!("pack: item {row} is no text in UTF-8");
                }
                let length = lengths.as_chunks::<LENGTH_BYTES>().0[*row as usize];
                taken.lengths.push(u32::from_le_bytes(length));
                taken.data.extend_from_slice(item);
            }
            Ok(())
        })?;
        Ok(taken)
    }
}

/// Where the bytes of items lie, by ascending numbers of these; a null has none.
fn places(lengths: &[u8], rows: &[u64]) -> Outcome<Vec<Range<usize>>> {
    let mut found = reserved(rows.len())?;
    let (mut at, mut next) = (0, rows.iter().peekable());
    for (number, length) in each_length(lengths).enumerate() {
        let end = at + length.unwrap_or(0);
        while next.next_if(|row| **row == number as u64).is_some() {
            found.push(at..end);
        }
        if next.peek().is_none() {
            break;
        }
        at = end;
    }
    if found.len() < rows.len() {
        return corrupt!("pack: its items do not ascend to number {}", rows[found.len()]);
    }
    Ok(found)
}
