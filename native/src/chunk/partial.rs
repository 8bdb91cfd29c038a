//! Partial decoding: only the items of a chunk that a region wants.
//!
//! Streams are decompressed as far as the last wanted item, filters undone for wanted items
//! alone, and both only for blocks that hold any; a pipeline of several filters is undone on
//! the whole block.

use crate::array::scatter::{Geometry, Region};
use crate::chunk::decode::{Block, Decoder, Stream, Window};
use crate::chunk::filters;
use crate::chunk::header::{Filter, MAX_SPLIT_TYPESIZE, StreamFormat};
use crate::chunk::scratch::Scratch;
use crate::chunk::special;
use crate::chunk::vlblocks;
use crate::error::Outcome;
use crate::memory::{grow, grow_aligned};
use std::ops::Range;

/// Up to so many items are looked up one by one in LZ4 streams.
const FEW: usize = 8;
/// Runs shorter than this are not worth a vector step each.
const SHORT_RUN: usize = 32;
/// When only one in so many items is wanted, single bytes are gathered instead of unshuffling all.
const SPARSE: usize = 8;

impl Decoder<'_> {
    /// The blocks that hold the wanted items, as a range of block numbers.
    pub fn blocks_of(&self, wanted: &Geometry) -> Range<usize> {
        let (first, end) = wanted.span();
        let size = wanted.itemsize();
        if self.header.block_count() == 0 || self.header.variable {
            return 0..self.header.block_count();
        }
        first * size / self.header.blocksize..(end * size - 1) / self.header.blocksize + 1
    }

    /// Whether the blocks of the chunk are decoded one by one, and not all at once.
    pub fn has_plain_blocks(&self) -> bool {
        !self.header.memcpyed() && self.header.special.is_none() && !self.header.variable
    }

    /// Decode what `region` wants of blocks `blocks`, whose bytes lie in `window`.
    pub fn decode_region(
        &self,
        window: Window<'_>,
        blocks: Range<usize>,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        if self.header.memcpyed() {
            let bytes = Window { offset: window.offset.wrapping_sub(self.header.header_bytes()), ..window };
            region.scatter(0..self.header.nbytes, bytes);
            return Ok(());
        }
        if let Some(special) = self.header.special {
            special::fill_region(special, self.header, window, region)?;
            return Ok(());
        }
        if self.header.variable {
            return vlblocks::decode_region(self, window, region, scratch);
        }
        for index in blocks {
            let range = self.header.block_range(index);
            let size = region.itemsize();
            // An item that begins before the block may reach into it.
            let ranks = region.rank(range.start / size)..region.rank(range.end.div_ceil(size));
            if !ranks.is_empty() {
                self.decode_block_region(window, index, ranks, region, scratch)?;
            }
        }
        Ok(())
    }

    /// Decode the wanted items number `ranks`, all of which reach into block `index`.
    fn decode_block_region(
        &self,
        window: Window<'_>,
        index: usize,
        ranks: Range<usize>,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let range = self.header.block_range(index);
        let size = region.itemsize();
        let low = (region.item(ranks.start) * size).max(range.start) - range.start;
        let high = ((region.item(ranks.end - 1) + 1) * size).min(range.end) - range.start;
        if low == 0
            && high == range.len()
            && range.start.is_multiple_of(size)
            && let Some(out) = region.dense_mut(ranks.clone(), range.start / size)
        {
            // The last item may reach into the next block.
            return self.decode_dependent(window, index, &mut out[..range.len()], scratch);
        }
        if !self.header.rest.is_empty() {
            return self.copy_dependent(window, index, region, scratch);
        }
        let block = self.block(window, index)?;
        if self.header.filtered_items(block.size) == 0 {
            return self.copy_unfiltered(&block, range, high, region, scratch);
        }
        let typesize = self.header.typesize;
        let whole_items = block.size / typesize * typesize;
        // The items' own bytes begin and end inside planes only when the two sizes fit.
        let aligned = range.start.is_multiple_of(size) && size.is_multiple_of(typesize) && high <= whole_items;
        let shuffled = self.header.filter == Filter::Shuffle;
        if !(aligned && shuffled) {
            return self.copy_span(&block, range, low..high, region, scratch);
        }
        if ranks.len() <= FEW && size == typesize && self.can_find(&block) {
            return self.find_items(&block, range.start, ranks, region, scratch);
        }
        let (items, dense) = region.run_shape();
        let wanted = ranks.len() * size;
        if (dense && items * size / typesize >= SHORT_RUN) || wanted * SPARSE < high - low {
            return self.unshuffle_runs(&block, range, high, ranks, region, scratch);
        }
        self.copy_span(&block, range, low..high, region, scratch)
    }

    /// Decode the first block, whose bytes lie in `window`, for others that depend on it.
    pub fn decode_first(&self, window: Window<'_>, scratch: &mut Scratch) -> Outcome<()> {
        if let Some(extras) = &self.extras {
            let made = self.make_first(window, scratch)?;
            extras.first.get_or_init(|| made);
        }
        Ok(())
    }

    fn make_first(&self, window: Window<'_>, scratch: &mut Scratch) -> Outcome<Vec<u8>> {
        let mut first = Vec::new();
        grow(&mut first, self.header.blocksize)?;
        self.decode_block(window, 0, &mut first, None, scratch)?;
        Ok(first)
    }

    /// Decode block `index` into `out`, and before it the first block, if it is needed and
    /// was not decoded before.
    fn decode_dependent(&self, window: Window<'_>, index: usize, out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        let Some(extras) = self.extras.as_ref().filter(|_| self.header.rest.has_delta()) else {
            return self.decode_block(window, index, out, None, scratch);
        };
        let first = match extras.first.get() {
            Some(first) => first,
            None => {
                let made = self.make_first(window, scratch)?;
                extras.first.get_or_init(|| made)
            }
        };
        if index == 0 {
            out.copy_from_slice(first);
            return Ok(());
        }
        self.decode_block(window, index, out, Some(first), scratch)
    }

    /// Decode a whole block, then copy what is wanted of it.
    fn copy_dependent(
        &self,
        window: Window<'_>,
        index: usize,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let range = self.header.block_range(index);
        let mut plain = std::mem::take(&mut scratch.plain);
        let bytes = grow(&mut plain, range.len())?;
        self.decode_dependent(window, index, bytes, scratch)?;
        region.scatter(range.clone(), Window { bytes, offset: range.start });
        scratch.plain = plain;
        Ok(())
    }

    /// Copy what is wanted of a block without filters, whose streams hold the items in order.
    fn copy_unfiltered(
        &self,
        block: &Block<'_>,
        range: Range<usize>,
        high: usize,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let each = block.size / block.streams;
        let plain = grow(&mut scratch.plain, block.size)?;
        let wanted = if block.streams == 1 { high } else { each };
        self.decode_streams(block, &mut scratch.codecs, plain, wanted)?;
        region.scatter(range.clone(), Window { bytes: plain, offset: range.start });
        Ok(())
    }

    /// Undo the filter for bytes `span` of the block, then copy what is wanted of them.
    fn copy_span(
        &self,
        block: &Block<'_>,
        range: Range<usize>,
        span: Range<usize>,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let typesize = self.header.typesize;
        let count = self.header.filtered_items(block.size);
        let bits = self.header.filter == Filter::Bitshuffle;
        let step = if bits { 8 * typesize } else { typesize };
        let first = span.start / step * step;
        let end = span.end.next_multiple_of(step).min(count * typesize).max(first);
        let Scratch { codecs, filtered, planes, plain, .. } = scratch;
        let filtered = grow_aligned(filtered, block.size)?;
        let plain = grow(plain, block.size)?;
        let items = &mut plain[first..end];
        if bits {
            self.decode_streams(block, codecs, filtered, block.size)?;
            let rows = &filtered[first / step..];
            filters::unbitshuffle(rows, count / 8, typesize, grow(planes, items.len())?, items);
        } else {
            self.decode_planes(block, codecs, filtered, end / typesize)?.unshuffle(first / typesize, typesize, items);
        }
        plain[count * typesize..].copy_from_slice(&filtered[count * typesize..block.size]);
        region.scatter(range.clone(), Window { bytes: plain, offset: range.start });
        Ok(())
    }

    /// Whether single bytes of the block can be found without decoding it.
    fn can_find(&self, block: &Block<'_>) -> bool {
        let planes = [1, self.header.typesize].contains(&block.streams) && self.header.typesize <= MAX_SPLIT_TYPESIZE;
        planes && self.header.format == StreamFormat::Lz4 && !self.header.dictionary
    }

    /// Look up a few items of a shuffled block, byte by byte.
    fn find_items(
        &self,
        block: &Block<'_>,
        start: usize,
        ranks: Range<usize>,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let (typesize, count) = (self.header.typesize, ranks.len());
        // All items of the first plane, then of the next one: their positions ascend.
        let (mut positions, mut found) = ([0; FEW * MAX_SPLIT_TYPESIZE], [0; FEW * MAX_SPLIT_TYPESIZE]);
        for (index, rank) in ranks.clone().enumerate() {
            for byte in 0..typesize {
                positions[byte * count + index] = region.item(rank) - start / typesize + byte * (block.size / typesize);
            }
        }
        let (each, share) = (block.size / block.streams, count * typesize / block.streams);
        let mut rest = block.bytes;
        for (number, found) in found.chunks_mut(share).take(block.streams).enumerate() {
            let (stream, behind) = self.stream(block, number, rest, each)?;
            rest = behind;
            // Positions count from the start of each stream.
            self.find_bytes(block, number, stream, &positions[..share], scratch, found)?;
        }
        for (index, rank) in ranks.enumerate() {
            for (byte, place) in region.item_mut(rank).iter_mut().enumerate() {
                *place = found[byte * count + index];
            }
        }
        Ok(())
    }

    /// The bytes of one stream at `positions`.
    fn find_bytes(
        &self,
        block: &Block<'_>,
        number: usize,
        stream: Stream<'_>,
        positions: &[usize],
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Outcome<()> {
        let Scratch { codecs, filtered, .. } = scratch;
        let each = block.size / block.streams;
        match self.recognised(stream, each) {
            Stream::Raw(bytes) => copy_at(bytes, positions, out),
            Stream::Run(byte) => out.fill(byte),
            Stream::Compressed(bytes) => {
                let found = codecs.find(bytes, positions, out).map_err(|error| block.error(number, error))?;
                if !found {
                    let filtered = grow(filtered, each)?;
                    self.decompress(block, number, codecs, bytes, filtered, positions[positions.len() - 1] + 1)?;
                    copy_at(filtered, positions, out);
                }
            }
        }
        Ok(())
    }

    /// Unshuffle each run straight into the destination.
    fn unshuffle_runs(
        &self,
        block: &Block<'_>,
        range: Range<usize>,
        high: usize,
        ranks: Range<usize>,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let typesize = self.header.typesize;
        let Scratch { codecs, filtered, .. } = scratch;
        let filtered = grow_aligned(filtered, block.size)?;
        let planes = self.decode_planes(block, codecs, filtered, high / typesize)?;
        region.for_each_piece_prefetched(ranks, |start, out| {
            // Items start inside this block; the last may reach into the next one.
            let from = start - range.start;
            let to = (from + out.len()).min(block.size);
            planes.unshuffle(from / typesize, typesize, &mut out[..to - from]);
        });
        Ok(())
    }
}

fn copy_at(bytes: &[u8], positions: &[usize], out: &mut [u8]) {
    for (position, place) in positions.iter().zip(out) {
        *place = bytes[*position];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::scatter::{Axis, Source, SourceMemory};
    use crate::chunk::header::{HEADER_BYTES, Header};
    use crate::chunk::samples::{packed, recipes, sample};

    /// 20 x 15 x 30 items of four bytes, of which a strided box goes into a larger array.
    #[test]
    fn boxes_are_written_to_their_places_only() {
        let source = sample(20 * 15 * 30 * 4);
        let axis = |size, start, count, step, stride| Axis { size, start, count, step, stride };
        let boxes = [
            [axis(20, 0, 20, 1, 1800), axis(15, 0, 15, 1, 120), axis(30, 0, 30, 1, 4)],
            [axis(20, 3, 5, 3, 2000), axis(15, 14, 1, 1, 4), axis(30, 1, 10, 2, 8)],
            [axis(20, 7, 1, 1, 4), axis(15, 2, 9, 1, 400), axis(30, 5, 20, 1, 4)],
            [axis(20, 0, 20, 1, 4), axis(15, 0, 15, 1, 80), axis(30, 29, 1, 1, 4)],
            [axis(20, 19, 1, 1, 4), axis(15, 7, 1, 1, 4), axis(30, 11, 1, 1, 4)],
            [axis(20, 4, 2, 10, 400), axis(15, 3, 2, 1, 40), axis(30, 2, 2, 20, 8)],
            [axis(20, 11, 1, 1, 4), axis(15, 3, 1, 1, 4), axis(30, 3, 7, 1, 4)],
        ];
        for typesize in [4, 2, 1, 3, 8] {
            for recipe in recipes(typesize) {
                let chunk = packed(&source, recipe);
                let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
                for axes in &boxes {
                    let mut out = vec![0xee; 40_000];
                    let mut expected = out.clone();
                    for index in 0..axes.iter().map(|axis| axis.count).product() {
                        let (mut rest, mut linear, mut offset, mut pitch) = (index, 0, 0, 1);
                        for axis in axes.iter().rev() {
                            let place = rest % axis.count;
                            linear += (axis.start + place * axis.step) * pitch;
                            offset += place * axis.stride as usize;
                            rest /= axis.count;
                            pitch *= axis.size;
                        }
                        expected[offset..offset + 4].copy_from_slice(&source[4 * linear..4 * linear + 4]);
                    }
                    let mut region = Region::new(axes, 4, 0, &mut out).unwrap();
                    let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
                    let window = Window { bytes: &chunk, offset: 0 };
                    let blocks = decoder.blocks_of(&region);
                    decoder.decode_region(window, blocks, &mut region, &mut Scratch::default()).unwrap();
                    assert!(out == expected, "{recipe:?} {axes:?}");
                    let mut gathered = vec![0; source.len()];
                    let geometry = Geometry::new(axes, 4, 0, out.len()).unwrap();
                    Source::new(geometry, SourceMemory::from(&out[..])).gather(&mut gathered);
                    let mut again = vec![0xee; out.len()];
                    let mut back = Region::new(axes, 4, 0, &mut again).unwrap();
                    back.scatter(0..gathered.len(), Window { bytes: &gathered, offset: 0 });
                    assert!(again == expected, "gathering is the reverse");
                }
            }
        }
    }
}
