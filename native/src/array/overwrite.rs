//! A Blosc chunk of which a part is overwritten: only the blocks that hold new items are decoded, and
//! encoded again. The bytes of the other blocks are copied, whatever they are.

use crate::array::scatter::Source;
use crate::array::zones::{Items, ZoneChange};
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::encode::{self, BlockBytes, MIN_COMPRESSED, Packer, Recipe};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::Outcome;
use crate::memory::{push, reserved};
use std::ops::Range;

/// Items are few when a chunk has at least so many times as many.
pub const FEW: usize = 16;

/// Items that are put into a chunk. Positions are counted in items of the chunk.
pub trait NewItems {
    fn itemsize(&self) -> usize;

    /// The first and behind the last item that is put.
    fn span(&self) -> (usize, usize);

    /// How many of them lie before item `limit`.
    fn rank(&self, limit: usize) -> usize;

    /// Copy the items to their places in `chunk`, which is whole.
    fn gather(&self, chunk: &mut [u8]);

    /// The bytes of all items, when they are neighbours in the chunk and in memory.
    fn as_slice(&self) -> Option<&[u8]>;

    /// Copy what `chunk` has at their places to `out`, where they are few items of it, all at different
    /// places; return whether they are.
    fn pick(&self, _chunk: &[u8], _out: &mut Vec<u8>) -> bool {
        false
    }
}

impl NewItems for Source<'_> {
    fn itemsize(&self) -> usize {
        (**self).itemsize()
    }

    fn span(&self) -> (usize, usize) {
        (**self).span()
    }

    fn rank(&self, limit: usize) -> usize {
        (**self).rank(limit)
    }

    fn gather(&self, chunk: &mut [u8]) {
        Source::gather(self, chunk);
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Source::as_slice(self)
    }

    fn pick(&self, chunk: &[u8], out: &mut Vec<u8>) -> bool {
        let few = self.count().saturating_mul((**self).itemsize()) < chunk.len() / FEW;
        if few {
            Source::pick(self, chunk, out);
        }
        few
    }
}

/// Which blocks of a chunk get new items.
pub struct Overwrite {
    /// Settled.
    recipe: Recipe,
    nbytes: usize,
    touched: Vec<usize>,
}

impl Overwrite {
    /// Plan to put the items of `source` into a chunk of `nbytes` bytes. `None` where they lie in all
    /// blocks, or where the recipe makes none.
    pub fn plan(recipe: Recipe, nbytes: usize, source: &dyn NewItems) -> Outcome<Option<Self>> {
        let recipe = recipe.settled(nbytes, HEADER_BYTES)?;
        if recipe.level == 0 || nbytes < MIN_COMPRESSED {
            return Ok(None);
        }
        let touched = touched(source, nbytes, recipe.blocksize)?;
        let some = touched.len() < nbytes.div_ceil(recipe.blocksize);
        Ok(some.then_some(Self { recipe, nbytes, touched }))
    }

    /// Whether the blocks of a stored chunk are those that the recipe makes.
    pub fn fits(&self, header: &Header) -> bool {
        header.nbytes == self.nbytes && self.recipe.encoded(header)
    }

    /// The bytes of each block that gets new items, counted in the decoded chunk.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.touched.iter().map(|index| self.range(*index))
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index * self.recipe.blocksize;
        start..self.nbytes.min(start + self.recipe.blocksize)
    }

    /// Decode the blocks that get new items to their places in `chunk`, which is as large as the decoded
    /// chunk. Its other bytes are not written. `bytes` are the whole chunk as it is stored.
    pub fn decode(&self, decoder: &Decoder<'_>, bytes: &[u8], chunk: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        let window = Window { bytes, offset: 0 };
        for (index, range) in self.touched.iter().zip(self.ranges()) {
            decoder.decode_block(window, *index, &mut chunk[range], None, scratch)?;
        }
        Ok(())
    }

    /// Write the new chunk to `packer`: the blocks in `chunk` that `decode` has written, and the other ones
    /// as they are stored. `bytes` agree with every checksum that there is, since the new chunk gets new
    /// checksums. Return false where the whole chunk has to be encoded.
    pub fn encode(
        &self,
        decoder: &Decoder<'_>,
        bytes: &[u8],
        chunk: &[u8],
        packer: &mut Packer,
        scratch: &mut Scratch,
    ) -> Outcome<bool> {
        let count = self.nbytes.div_ceil(self.recipe.blocksize);
        let mut blocks = reserved(count)?;
        let mut touched = self.touched.iter().peekable();
        for index in 0..count {
            if touched.next_if(|next| **next == index).is_some() {
                blocks.push(BlockBytes::Plain(&chunk[self.range(index)]));
            } else if let Some(stored) = decoder.stored_block(bytes, index)? {
                blocks.push(BlockBytes::Encoded(stored));
            } else {
                return Ok(false);
            }
        }
        encode::encode_mixed(self.nbytes, &blocks, &self.recipe, packer, scratch)
    }

    /// Write to `packer` the chunk `bytes`, which `fits`, with the items of `source` over it; `chunk` is
    /// memory for the decoded chunk. Return its zone map: that of the stored chunk in `zoned`, as the items
    /// change it, or an empty one. `None` where the whole chunk has to be encoded, or where nothing but
    /// `fill` may be left in it.
    #[allow(clippy::too_many_arguments, reason = "memory of the thread is handed on in parts")]
    pub fn apply(
        &self,
        decoder: &Decoder<'_>,
        bytes: &[u8],
        source: &dyn NewItems,
        zoned: Option<(Items, &[u8])>,
        fill: Option<&[u8]>,
        chunk: &mut [u8],
        packer: &mut Packer,
        scratch: &mut Scratch,
    ) -> Outcome<Option<Vec<u8>>> {
        let mut change = None;
        if let Some((items, zone)) = zoned {
            change = ZoneChange::new(items, zone, self.nbytes / items.size);
            if change.is_none() || self.ranges().any(|range| !range.len().is_multiple_of(items.size)) {
                return Ok(None);
            }
        }
        self.decode(decoder, bytes, chunk, scratch)?;
        let mut picked = Vec::new();
        let mut few = false;
        if let Some(change) = &mut change {
            few = source.pick(chunk, &mut picked);
            if few {
                change.remove_some(&picked);
                self.ranges().for_each(|range| change.note_edges(&chunk[range]));
            } else {
                self.ranges().for_each(|range| change.remove(&chunk[range]));
            }
        }
        source.gather(chunk);
        let is_filled = |fill: &[u8]| self.ranges().all(|range| repeats(&chunk[range.clone()], fill, range.start));
        if fill.is_some_and(is_filled) {
            return Ok(None);
        }
        let zone = match change {
            None => Some(Vec::new()),
            Some(mut change) if few => {
                source.pick(chunk, &mut picked);
                change.add_some(&picked);
                self.ranges().enumerate().for_each(|(place, range)| change.compare_edges(place, &chunk[range]));
                change.zone().or_else(|| {
                    // The lowest or the highest item has changed: another one may be as low or as high.
                    self.ranges().for_each(|range| change.add_others(&chunk[range]));
                    change.zone()
                })
            }
            Some(mut change) => {
                self.ranges().enumerate().for_each(|(place, range)| change.add(place, &chunk[range]));
                change.zone()
            }
        };
        match zone {
            Some(zone) if self.encode(decoder, bytes, chunk, packer, scratch)? => Ok(Some(zone)),
            _ => Ok(None),
        }
    }
}

/// Write to `packer` the chunk `bytes` with the items of `source` over it; `chunk` is memory for the
/// decoded chunk. Return false where the whole chunk has to be encoded, and where nothing but `fill` may
/// be left in it.
#[allow(clippy::too_many_arguments, reason = "memory of the thread is handed on in parts")]
pub fn overwrite(
    decoder: &Decoder<'_>,
    bytes: &[u8],
    recipe: Recipe,
    source: &dyn NewItems,
    fill: &[u8],
    chunk: &mut [u8],
    packer: &mut Packer,
    scratch: &mut Scratch,
) -> Outcome<bool> {
    let Some(plan) = Overwrite::plan(recipe, chunk.len(), source)?.filter(|plan| plan.fits(decoder.header)) else {
        return Ok(false);
    };
    Ok(plan.apply(decoder, bytes, source, None, Some(fill), chunk, packer, scratch)?.is_some())
}

/// Whether `bytes` hold only copies of `item`, from byte `start` of an endless row of them on.
fn repeats(bytes: &[u8], item: &[u8], start: usize) -> bool {
    let one = bytes.len().min(item.len());
    (0..one).all(|place| bytes[place] == item[(start + place) % item.len()])
        && bytes[one..] == bytes[..bytes.len() - one]
}

/// The numbers of the blocks of `blocksize` bytes that hold items of `source`, in a chunk of `nbytes`.
fn touched(source: &dyn NewItems, nbytes: usize, blocksize: usize) -> Outcome<Vec<usize>> {
    let (size, (first, end)) = (source.itemsize(), source.span());
    let mut touched = Vec::new();
    for index in first * size / blocksize..(end * size).min(nbytes).div_ceil(blocksize) {
        let (start, stop) = (index * blocksize, nbytes.min((index + 1) * blocksize));
        if source.rank(start / size) < source.rank(stop.div_ceil(size)) {
            push(&mut touched, index)?;
        }
    }
    Ok(touched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::scatter::{Axis, Geometry};
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::header::Filter;
    use crate::chunk::samples::packed;
    use crate::interrupt::Interrupt;

    const RECIPE: Recipe =
        Recipe { codec: Codec::Lz4, level: 5, filter: Filter::Shuffle, typesize: 4, blocksize: 1024, gain: 0 };

    fn sample(count: u32) -> Vec<u8> {
        (0..count).flat_map(|number| (number / 3 * 7).to_le_bytes()).collect()
    }

    /// Overwrite `count` items from `start` on, `step` apart, with sevens.
    fn sevens(chunk: &[u8], recipe: Recipe, start: usize, count: usize, step: usize) -> Outcome<Option<Vec<u8>>> {
        let header = Header::parse(chunk, chunk.len(), usize::MAX)?;
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let values = vec![7; 4 * count];
        let axis = Axis { size: header.nbytes / 4, start, count, step, stride: 4 };
        let source = Source::new(Geometry::new(&[axis], 4, 0, values.len())?, values[..].into());
        let (mut memory, mut packer) = (vec![0xee; header.nbytes], Packer::default());
        let scratch = &mut Scratch::default();
        let done = overwrite(&decoder, chunk, recipe, &source, &[0; 4], &mut memory, &mut packer, scratch)?;
        Ok(done.then(|| packer.bytes().to_vec()))
    }

    fn unpacked(chunk: &[u8]) -> Outcome<Vec<u8>> {
        let header = Header::parse(chunk, chunk.len(), usize::MAX)?;
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let mut out = vec![0xee; header.nbytes];
        decoder.decode_whole(chunk, &mut out, &mut Scratch::default(), 1, &Interrupt::never())?;
        Ok(out)
    }

    fn stored(chunk: &[u8], index: usize) -> Vec<u8> {
        let header = Header::parse(chunk, chunk.len(), usize::MAX).unwrap();
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        decoder.stored_block(chunk, index).unwrap().unwrap().to_vec()
    }

    #[test]
    fn blocks_without_new_items_keep_their_bytes() {
        let plain = sample(1100);
        for codec in Codec::NAMES.map(|(_, codec)| codec) {
            let recipe = Recipe { codec, ..RECIPE };
            let chunk = packed(&plain, recipe);
            for (start, count, step, touched) in
                [(0, 1, 1, vec![0]), (1099, 1, 1, vec![4]), (250, 20, 1, vec![0, 1]), (10, 2, 600, vec![0, 2])]
            {
                let new = sevens(&chunk, recipe, start, count, step).unwrap().expect("some blocks are kept");
                let mut expected = plain.clone();
                (0..count).for_each(|item| expected[4 * (start + item * step)..][..4].fill(7));
                assert_eq!(unpacked(&new).unwrap(), expected, "{codec:?} {start}");
                for index in (0..5).filter(|index| !touched.contains(index)) {
                    assert_eq!(stored(&new, index), stored(&chunk, index), "{codec:?} {start} {index}");
                }
            }
        }
    }

    #[test]
    fn only_blocks_with_new_items_are_touched() {
        // Items of four bytes, of which a block of 1024 bytes holds 256, and one of 6 bytes one and a half.
        for (start, count, step, blocksize, expected) in [
            (10, 2, 600, 1024, vec![0, 2]),
            (255, 2, 1, 1024, vec![0, 1]),
            (256, 256, 1, 1024, vec![1]),
            (1099, 1, 1, 1024, vec![4]),
            (1, 1, 1, 6, vec![0, 1]),
            (2, 2, 4, 6, vec![1, 4]),
        ] {
            let axis = Axis { size: 1100, start, count, step, stride: 4 };
            let values = vec![0; 4 * count];
            let source = Source::new(Geometry::new(&[axis], 4, 0, 4 * count).unwrap(), values[..].into());
            assert_eq!(touched(&source, 4400, blocksize).unwrap(), expected, "{start} {count} {blocksize}");
        }
    }

    #[test]
    fn chunks_of_other_recipes_are_encoded_as_a_whole() {
        let chunk = packed(&sample(1100), RECIPE);
        assert!(sevens(&chunk, RECIPE, 0, 1100, 1).unwrap().is_none(), "all blocks are touched");
        for recipe in [
            Recipe { level: 0, ..RECIPE },
            Recipe { codec: Codec::Zlib, ..RECIPE },
            Recipe { filter: Filter::Bitshuffle, ..RECIPE },
            Recipe { typesize: 8, ..RECIPE },
            Recipe { blocksize: 2048, ..RECIPE },
        ] {
            assert!(sevens(&chunk, recipe, 0, 1, 1).unwrap().is_none(), "{recipe:?}");
        }
        let mut state = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(4400)
        .collect();
        let copied = packed(&noise, Recipe { filter: Filter::None, ..RECIPE });
        assert!(Header::parse(&copied, copied.len(), usize::MAX).unwrap().memcpyed());
        assert!(sevens(&copied, Recipe { filter: Filter::None, ..RECIPE }, 0, 1, 1).unwrap().is_none());
    }

    #[test]
    fn a_chunk_that_may_be_fill_is_encoded_as_a_whole() {
        let mut plain = vec![0; 4400];
        plain[4..8].fill(7);
        let chunk = packed(&plain, RECIPE);
        let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let axis = Axis { size: 1100, start: 1, count: 1, step: 1, stride: 4 };
        for (value, done) in [([0; 4], false), ([1, 0, 0, 0], true)] {
            let source = Source::new(Geometry::new(&[axis], 4, 0, 4).unwrap(), value[..].into());
            let (mut memory, mut packer, scratch) = (vec![0; 4400], Packer::default(), &mut Scratch::default());
            let found = overwrite(&decoder, &chunk, RECIPE, &source, &[0; 4], &mut memory, &mut packer, scratch);
            assert_eq!(found.unwrap(), done);
        }
        assert!(repeats(&[3, 1, 2, 3, 1], &[1, 2, 3], 5) && !repeats(&[3, 1, 2, 3, 2], &[1, 2, 3], 5));
        assert!(repeats(&[2], &[1, 2, 3], 4) && !repeats(&[1], &[1, 2, 3], 4));
    }

    /// Blocks that claim each other's bytes, or more than there are, are never cut: the chunk is either
    /// encoded as a whole, which reports the damage, or decodes to the same bytes as before.
    #[test]
    fn damage_of_kept_blocks_is_neither_healed_nor_spread() {
        let plain = sample(1100);
        let chunk = packed(&plain, RECIPE);
        for at in (HEADER_BYTES..HEADER_BYTES + 20).chain((HEADER_BYTES + 20..chunk.len()).step_by(3)) {
            for change in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = chunk.clone();
                damaged[at] ^= change;
                let Ok(Some(new)) = sevens(&damaged, RECIPE, 520, 1, 1) else { continue };
                match (unpacked(&damaged), unpacked(&new)) {
                    (Ok(mut old), Ok(new)) => {
                        old[2080..2084].fill(7);
                        assert_eq!(old, new, "{at} {change}");
                    }
                    (old, new) => assert!(old.is_err() && new.is_err(), "{at} {change}"),
                }
            }
        }
    }
}
