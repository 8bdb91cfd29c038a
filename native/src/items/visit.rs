//! All items of packs, pack by pack, in the memory of the thread that decodes them.

use super::source::Sources;
use super::{LENGTH_BYTES, check_text, each_length};
use crate::error::Outcome;
use crate::interrupt::Interrupt;
use crate::memory::grow;

/// The items of one pack; a null is `None`.
pub struct Visited<'a> {
    /// The number of the first item among those of all packs.
    pub first: usize,
    lengths: &'a [u8],
    data: &'a [u8],
}

impl<'a> Visited<'a> {
    /// The items in their order.
    pub fn items(&self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut rest = self.data;
        each_length(self.lengths).map(move |length| {
            let (item, behind) = rest.split_at(length?);
            rest = behind;
            Some(item)
        })
    }
}

impl Sources<'_> {
    /// Call `work` with the items of every pack, on several threads and in any order. Items that are `text` are
    /// checked.
    pub fn visit(
        &self,
        text: bool,
        threads: usize,
        interrupt: &Interrupt,
        work: impl Fn(&Visited<'_>) -> Outcome<()> + Sync,
    ) -> Outcome<()> {
        let firsts = self.counts.iter().scan(0, |next, count| {
            *next += count;
            Some(*next - count)
        });
        self.each(firsts, threads, interrupt, |pack, stated, first, own| {
            let lengths = grow(&mut own.lengths, pack.lengths.header.nbytes)?;
            pack.decode_lengths(self.guard, stated, lengths, &mut own.scratch)?;
            let data = grow(&mut own.data, pack.data.header.nbytes)?;
            pack.data.decode(self.guard, stated, lengths.len() / LENGTH_BYTES, data, &mut own.scratch)?;
            if text {
                check_text(lengths, data)?;
            }
            work(&Visited { first, lengths, data })
        })
    }
}
