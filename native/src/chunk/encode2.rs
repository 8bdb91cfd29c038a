//! Encoding: from items to the bytes of a Blosc 2 chunk (format version 5, with an extended header).
//!
//! As for Blosc 1, the input is read, never changed, and every byte written is defined: the
//! filters work in memory of their own, and delta refers to the first block as readers will
//! see it.

use crate::chunk::codecs::streams::{Codec, Codecs, Primer};
use crate::chunk::encode::{self, MIN_COMPRESSED, Packer, Plan};
use crate::chunk::filters::pipeline::{self, Pipeline, SLOTS};
use crate::chunk::header::{
    EXTENDED_BYTES, FLAG_DELTA, FLAG_EXTENDED, FLAG_MEMCPYED, FLAG_UNSPLIT, Filter, Header, MAX_BLOCK_BYTES,
    MAX_SPLIT_TYPESIZE,
};
use crate::chunk::header2::{FLAG2_DICTIONARY, Header2, Special};
use crate::chunk::scratch::Scratch;
use crate::chunk::special::{NAN_32, NAN_64};
use crate::error::{Error, Kind, Outcome};
use crate::interrupt::Interrupt;
use crate::memory::{grow, grow_aligned, reserved};
use std::borrow::Cow;

const VERSION: u8 = 5;
/// Fewer items per block are not worth a stream for each of their bytes.
const MIN_SPLIT_ITEMS: usize = 32;
/// The strongest level at which Zstandard still gains from split blocks.
const MAX_SPLIT_ZSTD: u8 = 5;
/// Streams shorter than this compress worse and take longer: split blocks have longer ones,
/// within bounds.
const STREAM_BYTES: usize = 32 << 10;
const MAX_CHOSEN_BLOCK: usize = 512 << 10;

/// When blocks are stored as one stream per byte of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    Auto,
    Always,
    Never,
}

impl Split {
    pub fn parse(name: &str) -> Outcome<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            other => {
                let text = format!("split {other:?} is unknown; known: auto, always, never");
                Err(Error::new(Kind::Argument, text))
            }
        }
    }
}

/// How a chunk is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    pub codec: Codec,
    pub level: u8,
    /// Numbers and metadata, in the order in which they are applied.
    pub filters: &'a [(u8, u8)],
    pub typesize: usize,
    /// 0 for the default.
    pub blocksize: usize,
    pub split: Split,
    pub dictionary: Option<&'a [u8]>,
}

/// A recipe that is checked, with the block size chosen for one input.
pub struct Settled<'a> {
    pub recipe: Recipe<'a>,
    pipeline: Pipeline,
    /// Of a whole block.
    pub streams: usize,
    primer: Option<Primer<'a>>,
}

impl<'a> Recipe<'a> {
    pub fn settled(mut self, nbytes: usize) -> Outcome<Settled<'a>> {
        let Self { codec, level, .. } = self;
        let chosen = self.blocksize == 0;
        self.settle_sizes(nbytes)?;
        let wider = MAX_CHOSEN_BLOCK.min(STREAM_BYTES * self.typesize);
        if chosen && self.splits() && wider > self.blocksize {
            self.blocksize = wider / (8 * self.typesize) * (8 * self.typesize);
            self.settle_sizes(nbytes)?;
        }
        let pipeline = Pipeline::build(self.filters, self.typesize)?;
        let primer = self.dictionary.map(|content| Primer::new(content, codec, level)).transpose()?;
        let streams = if self.splits() { self.typesize } else { 1 };
        Ok(Settled { recipe: self, pipeline, streams, primer })
    }

    fn settle_sizes(&mut self, nbytes: usize) -> Outcome<()> {
        let Self { codec, level, typesize, blocksize, .. } = *self;
        let sizes = encode::Recipe { codec, level, filter: Filter::None, typesize, blocksize, gain: 0 };
        let sizes = sizes.settled(nbytes, EXTENDED_BYTES)?;
        (self.typesize, self.blocksize) = (sizes.typesize, sizes.blocksize);
        Ok(())
    }

    fn splits(&self) -> bool {
        let Self { codec, level, typesize, blocksize, .. } = *self;
        let gains = || {
            (matches!(codec, Codec::BloscLz | Codec::Lz4) || (codec == Codec::Zstd && level <= MAX_SPLIT_ZSTD))
                && self.filters.iter().any(|(id, _)| *id == pipeline::SHUFFLE)
                && typesize <= MAX_SPLIT_TYPESIZE
                && blocksize / typesize >= MIN_SPLIT_ITEMS
        };
        blocksize.is_multiple_of(typesize)
            && match self.split {
                Split::Auto => gains(),
                Split::Always => true,
                Split::Never => false,
            }
    }
}

impl Settled<'_> {
    /// Both halves of the header; `flags` are those of the first half that the recipe does not imply.
    fn header(&self, flags: u8, nbytes: usize, cbytes: usize) -> [u8; EXTENDED_BYTES] {
        let Recipe { codec, filters, typesize, blocksize, .. } = self.recipe;
        let mut flags = flags | FLAG_EXTENDED | codec.format().flag_bits();
        if !self.recipe.splits() {
            flags |= FLAG_UNSPLIT;
        }
        if self.pipeline.has_delta() {
            flags |= FLAG_DELTA;
        }
        let mut header2 = Header2 { codec: codec.number(), ..Header2::default() };
        // At the end: readers of a header of 16 bytes put a single filter there too.
        header2.filters[SLOTS - filters.len()..].copy_from_slice(filters);
        for (id, meta) in &mut header2.filters {
            // C-Blosc2 takes the size from the metadata, not from the header.
            if (*id, *meta) == (pipeline::BYTEDELTA, 0) {
                *meta = typesize as u8;
            }
        }
        if self.primer.is_some() && flags & FLAG_MEMCPYED == 0 {
            header2.flags2 |= FLAG2_DICTIONARY;
        }
        joined(flags, typesize, nbytes, blocksize, cbytes, &header2)
    }
}

fn joined(
    flags: u8,
    typesize: usize,
    nbytes: usize,
    blocksize: usize,
    cbytes: usize,
    header2: &Header2,
) -> [u8; EXTENDED_BYTES] {
    let mut raw = [0; EXTENDED_BYTES];
    let (first, second) = raw.split_at_mut(EXTENDED_BYTES / 2);
    first.copy_from_slice(&Header::pack_first(VERSION, flags, typesize, nbytes, blocksize, cbytes));
    second.copy_from_slice(&header2.pack());
    raw
}

/// Encode `source` as a chunk into `out` (which is emptied first).
pub fn encode(
    source: &[u8],
    recipe: Recipe<'_>,
    out: &mut Packer,
    scratch: &mut Scratch,
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<()> {
    let settled = recipe.settled(source.len())?;
    let Recipe { level, typesize, blocksize, dictionary, .. } = settled.recipe;
    out.clear();
    if level > 0
        && !settled.pipeline.truncates()
        && let Some(special) = find_special(source, typesize)
    {
        return push_special(special, source, typesize, out);
    }
    if level > 0 && source.len() >= MIN_COMPRESSED {
        let mut behind_starts = Vec::new();
        if let Some(dictionary) = dictionary {
            behind_starts.extend((dictionary.len() as u32).to_le_bytes());
            behind_starts.extend(dictionary);
        }
        let plan = Plan { head: EXTENDED_BYTES, blocksize, behind_starts: &behind_starts };
        let first = settled.first_block(source, scratch)?;
        encode::encode_blocks(source, &plan, out, scratch, threads, interrupt, |index, plain, out, scratch| {
            let reference = first.as_deref().filter(|_| index > 0);
            settled.encode_block(plain, reference, out, scratch)
        })?;
        let cbytes = out.bytes().len();
        if cbytes < source.len() + EXTENDED_BYTES {
            out.patch(0, &settled.header(0, source.len(), cbytes));
            return Ok(());
        }
        out.clear();
    }
    out.push(&settled.header(FLAG_MEMCPYED, source.len(), source.len() + EXTENDED_BYTES))?;
    out.push(source)
}

/// The special value that all of the data repeat, if there is one.
fn find_special(source: &[u8], typesize: usize) -> Option<Special> {
    let value = source.get(..typesize).unwrap_or(source);
    if value.iter().all(|byte| *byte == 0) {
        let zeros = !source.is_empty() && source[1..] == source[..source.len() - 1];
        return zeros.then_some(Special::Zeros);
    }
    if !source.len().is_multiple_of(typesize) || source[typesize..] != source[..source.len() - typesize] {
        return None;
    }
    Some(if *value == NAN_32 || *value == NAN_64 { Special::Nan } else { Special::Repeated })
}

/// Write a special chunk, which repeats the first item of `source`.
fn push_special(special: Special, source: &[u8], typesize: usize, out: &mut Packer) -> Outcome<()> {
    let value = if special == Special::Repeated { &source[..typesize] } else { &[] };
    let blocksize = source.len().min(MAX_BLOCK_BYTES / typesize * typesize);
    let header2 = Header2 { flags2: special.number() << 4, ..Header2::default() };
    out.push(&joined(FLAG_EXTENDED, typesize, source.len(), blocksize, EXTENDED_BYTES + value.len(), &header2))?;
    out.push(value)
}

impl Settled<'_> {
    /// The first block as readers will see it, if others refer to it.
    pub fn first_block<'s>(&self, source: &'s [u8], scratch: &mut Scratch) -> Outcome<Option<Cow<'s, [u8]>>> {
        let plain = &source[..source.len().min(self.recipe.blocksize)];
        if !self.pipeline.has_delta() {
            return Ok(None);
        }
        if !self.pipeline.truncates() {
            return Ok(Some(Cow::Borrowed(plain)));
        }
        let (mut block, mut second) = (reserved(plain.len())?, reserved(plain.len())?);
        block.extend_from_slice(self.filter(plain, None, scratch)?.0);
        second.extend_from_slice(&block);
        self.pipeline.undo(&mut block, &mut second, grow(&mut scratch.planes, plain.len())?, None);
        Ok(Some(Cow::Owned(block)))
    }

    /// The block with all filters applied, and the codecs that were not needed for that.
    pub fn filter<'s>(
        &self,
        plain: &'s [u8],
        reference: Option<&[u8]>,
        scratch: &'s mut Scratch,
    ) -> Outcome<(&'s [u8], &'s mut Codecs)> {
        let Scratch { codecs, filtered, between, planes, .. } = scratch;
        let steps = self.pipeline.steps().len();
        let one = grow_aligned(filtered, if steps > 0 { plain.len() } else { 0 })?;
        let two = grow(between, if steps > 1 { plain.len() } else { 0 })?;
        let planes = grow(planes, plain.len())?;
        Ok((self.pipeline.apply(plain, one, two, planes, reference), codecs))
    }

    /// Filter and compress one block: for each stream its size, then its bytes.
    fn encode_block(
        &self,
        plain: &[u8],
        reference: Option<&[u8]>,
        out: &mut Packer,
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        let streams = if plain.len() == self.recipe.blocksize { self.streams } else { 1 };
        let (filtered, codecs) = self.filter(plain, reference, scratch)?;
        for stream in filtered.chunks_exact(plain.len() / streams) {
            out.fill(4 + stream.len(), |space| {
                let (size, packed) = space.split_at_mut(4);
                let (claim, kept) = self.encode_stream(codecs, stream, packed);
                size.copy_from_slice(&claim.to_le_bytes());
                4 + kept
            })?;
        }
        Ok(())
    }

    /// Encode one stream into `out`, which has its size; return the size field, and how many bytes lie
    /// behind it.
    fn encode_stream(&self, codecs: &mut Codecs, stream: &[u8], out: &mut [u8]) -> (i32, usize) {
        let byte = stream[0];
        if stream[1..] == stream[..stream.len() - 1] {
            if byte == 0 {
                return (0, 0);
            }
            out[0] = 1;
            return (-i32::from(byte), 1);
        }
        let Recipe { codec, level, .. } = self.recipe;
        // One byte less than the input: a stream that does not shrink is stored uncompressed.
        let room = stream.len() - 1;
        let kept = match &self.primer {
            None => codecs.encode(codec, level, stream, &mut out[..room]),
            Some(primer) => codecs.encode_with(primer, level, stream, &mut out[..room]),
        };
        let kept = kept.unwrap_or_else(|| {
            out.copy_from_slice(stream);
            stream.len()
        });
        (kept as i32, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::scatter::{Axis, Region};
    use crate::chunk::decode::{Decoder, Window};
    use crate::chunk::header::HEADER_BYTES;

    fn packed(source: &[u8], recipe: Recipe<'_>, threads: usize) -> Outcome<Vec<u8>> {
        let mut out = Packer::default();
        encode(source, recipe, &mut out, &mut Scratch::default(), threads, &Interrupt::never())?;
        Ok(out.bytes().to_vec())
    }

    fn unpacked(chunk: &[u8], threads: usize) -> Outcome<Vec<u8>> {
        let header = Header::parse(chunk, chunk.len(), 1 << 24)?;
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let mut out = vec![0xee; header.nbytes];
        decoder.decode_whole(chunk, &mut out, &mut Scratch::default(), threads, &Interrupt::never())?;
        Ok(out)
    }

    /// Bytes `start..start + count` of what the chunk holds.
    fn part(chunk: &[u8], start: usize, count: usize) -> Outcome<Vec<u8>> {
        let header = Header::parse(chunk, chunk.len(), 1 << 24)?;
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let mut out = vec![0xee; count];
        let axis = Axis { size: header.nbytes, start, count, step: 1, stride: 1 };
        let mut region = Region::new(&[axis], 1, 0, &mut out)?;
        let window = Window { bytes: chunk, offset: 0 };
        decoder.decode_region(window, decoder.blocks_of(&region), &mut region, &mut Scratch::default())?;
        Ok(out)
    }

    fn sample(length: usize) -> Vec<u8> {
        let numbers = (0..length.div_ceil(8) as u64).map(|index| index * index / 3 % 5000);
        let mut bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length);
        bytes
    }

    const PLAIN: Recipe<'_> = Recipe {
        codec: Codec::Lz4,
        level: 5,
        filters: &[(pipeline::SHUFFLE, 0)],
        typesize: 8,
        blocksize: 4096,
        split: Split::Auto,
        dictionary: None,
    };

    #[test]
    fn chunks_come_back_whole_and_in_parts() {
        let pipelines: [&[(u8, u8)]; 6] = [
            &[],
            &[(pipeline::SHUFFLE, 0)],
            &[(pipeline::BITSHUFFLE, 0)],
            &[(pipeline::DELTA, 0), (pipeline::SHUFFLE, 0)],
            &[(pipeline::SHUFFLE, 0), (pipeline::BYTEDELTA, 0)],
            &[(pipeline::SHUFFLE, 3), (pipeline::DELTA, 0), (pipeline::BITSHUFFLE, 0)],
        ];
        let dictionary = sample(3000);
        for (typesize, length) in [(1, 5000), (4, 20_001), (8, 32_768), (24, 12_005), (255, 9000)] {
            let source = sample(length);
            for filters in pipelines {
                for codec in Codec::NAMES.map(|(_, codec)| codec) {
                    for split in [Split::Auto, Split::Always, Split::Never] {
                        let primed = matches!(codec, Codec::Lz4 | Codec::Lz4Hc | Codec::Zstd) && split == Split::Never;
                        let dictionary = primed.then_some(&dictionary[..]);
                        let recipe = Recipe { codec, filters, typesize, split, dictionary, ..PLAIN };
                        let chunk = packed(&source, recipe, 1).unwrap();
                        assert_eq!(unpacked(&chunk, 3).unwrap(), source, "{recipe:?}");
                        assert_eq!(unpacked(&packed(&source, recipe, 3).unwrap(), 1).unwrap(), source, "{recipe:?}");
                        for (start, count) in [(0, 1), (4000, 200), (4096, 3), (length - 1, 1), (100, length - 100)] {
                            let found = part(&chunk, start, count).unwrap();
                            assert_eq!(found, source[start..start + count], "{recipe:?} from {start} on");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_repeated_value_takes_a_header() {
        let nan: Vec<u8> = std::iter::repeat_n(f64::NAN.to_le_bytes(), 500).flatten().collect();
        let repeated: Vec<u8> = (0..4000).map(|index| b"ingotbar"[index % 8]).collect();
        for (source, size, special) in
            [(vec![0; 4001], 32, Special::Zeros), (nan, 32, Special::Nan), (repeated, 40, Special::Repeated)]
        {
            let chunk = packed(&source, PLAIN, 1).unwrap();
            assert_eq!((chunk.len(), chunk[31]), (size, special.number() << 4));
            assert_eq!(unpacked(&chunk, 1).unwrap(), source);
            assert_eq!(part(&chunk, 1003, 50).unwrap(), source[1003..1053]);
        }
        let filters = [(pipeline::TRUNCATE, 3)];
        let chunk = packed(&7.7f64.to_le_bytes().repeat(100), Recipe { filters: &filters, ..PLAIN }, 1).unwrap();
        assert_eq!(unpacked(&chunk, 1).unwrap(), 7.5f64.to_le_bytes().repeat(100), "truncated all the same");
    }

    #[test]
    fn delta_refers_to_truncated_items() {
        let source: Vec<u8> = (0..3000).flat_map(|index| (f64::from(index) * 1.1 + 0.3).to_le_bytes()).collect();
        let filters = [(pipeline::TRUNCATE, 10), (pipeline::DELTA, 0), (pipeline::SHUFFLE, 0)];
        let decoded = unpacked(&packed(&source, Recipe { filters: &filters, ..PLAIN }, 1).unwrap(), 1).unwrap();
        for (found, given) in decoded.as_chunks::<8>().0.iter().zip(source.as_chunks::<8>().0) {
            assert_eq!(u64::from_le_bytes(*found), u64::from_le_bytes(*given) >> 42 << 42);
        }
    }

    #[test]
    fn impossible_recipes_are_refused() {
        let wrong = |recipe| packed(&sample(100), recipe, 1).unwrap_err().kind;
        assert_eq!(wrong(Recipe { typesize: 0, ..PLAIN }), Kind::Argument);
        assert_eq!(wrong(Recipe { level: 10, ..PLAIN }), Kind::Argument);
        assert_eq!(wrong(Recipe { filters: &[(34, 0)], ..PLAIN }), Kind::Argument);
        assert_eq!(wrong(Recipe { dictionary: Some(&[]), ..PLAIN }), Kind::Argument);
        assert_eq!(wrong(Recipe { dictionary: Some(&[1; 40_000]), ..PLAIN }), Kind::Argument);
        assert_eq!(wrong(Recipe { dictionary: Some(&[1; 40]), codec: Codec::Zlib, ..PLAIN }), Kind::Argument);
    }

    /// Every changed byte gives data or an error, and no part differs from the whole.
    #[test]
    fn damage_gives_the_same_whole_and_in_parts() {
        let filters = [(pipeline::DELTA, 0), (pipeline::SHUFFLE, 0)];
        let dictionary = sample(300);
        let recipe = Recipe { filters: &filters, dictionary: Some(&dictionary), blocksize: 1024, ..PLAIN };
        let chunk = packed(&sample(3000), recipe, 1).unwrap();
        for at in (0..60).chain((60..chunk.len()).step_by(7)) {
            for change in [0x01, 0x08, 0x10, 0x80, 0xff] {
                let mut damaged = chunk.clone();
                damaged[at] ^= change;
                if let Ok(whole) = unpacked(&damaged, 1) {
                    let half = whole.len() / 2;
                    assert_eq!(part(&damaged, half, whole.len() - half).unwrap(), whole[half..], "{at} {change}");
                }
            }
        }
    }
}
