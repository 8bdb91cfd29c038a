//! Packs of variable-length items: the lengths and the bytes of the items in two Blosc chunks, each with
//! its digest or its trailer, encoded and decoded on several threads.
//!
//! A pack that is wrong in any way is an error. The caller then decodes packs one by one, and says what
//! is wrong with which. `search` finds the items that pass tests, `take` returns some items, and `visit`
//! shows all: they read packs by themselves (`source`), and keep one at a time in the memory of a thread.

pub mod framed;
pub mod search;
pub mod source;
pub mod take;
pub mod visit;

use crate::array::trailer::{self, Spans, Stated, Trailer};
use crate::checksum::{Checksum, Digest};
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::encode::{Packer, Recipe, encode};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome, corrupt, malformed};
use crate::interrupt::Interrupt;
use crate::memory::{grow, reserved};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of an offset.
pub const OFFSET_BYTES: usize = 8;
/// The bytes of a length.
pub const LENGTH_BYTES: usize = 4;
/// The length of a null.
const NULL: u32 = u32::MAX;
/// The most bytes that a stored byte stands for, by any codec.
const LARGEST_EXPANSION: usize = 1 << 15;
/// The newest version of chunks that a pack has.
const NEWEST: u8 = 2;
/// The first bytes of items that a zone map compares.
const PREFIX: usize = 16;
/// About how many bytes a digest or a trailer has.
const SLACK: usize = 256;
/// What packs state that have no trailers.
const UNSTATED: Stated = Stated { number: 0, identity: None };

/// What stands behind each chunk of a pack, by which damage is found.
#[derive(Clone, Copy)]
pub enum Guard<'a> {
    /// A digest of the chunk, or nothing.
    Digest(Option<Checksum>),
    /// A trailer. `head` stands in front of the first chunk; an `exact` pack ends with its last trailer.
    Trailer { head: &'a [u8], exact: bool },
}

/// A chunk in a pack, with what guards it.
struct Stored<'a> {
    header: Header,
    chunk: &'a [u8],
    behind: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Find the chunk at the start of some bytes, and what follows its guard.
    fn find(bytes: &'a [u8], guard: Guard<'_>, limit: usize) -> Outcome<(Self, &'a [u8])> {
        let Some(size) = bytes.get(12..HEADER_BYTES).and_then(|raw| raw.try_into().ok()).map(i32::from_le_bytes) else {
            return corrupt!("pack: a chunk needs {HEADER_BYTES} bytes, {} are stored", bytes.len());
        };
        let size = usize::try_from(size).unwrap_or(0);
        if size < HEADER_BYTES || size > bytes.len() {
            return corrupt!("pack: a chunk claims {size} bytes, {} are stored", bytes.len());
        }
        let (chunk, rest) = bytes.split_at(size);
        let extra = match guard {
            Guard::Digest(checksum) => checksum.map_or(0, Checksum::size),
            Guard::Trailer { .. } => trailer::first(rest)?.len(),
        };
        let Some((behind, rest)) = rest.split_at_checked(extra) else {
            return corrupt!("pack: a digest has {extra} bytes, {} are stored", rest.len());
        };
        let header = Header::parse(chunk, size, limit)?;
        if header.version > NEWEST || header.extended() {
            return malformed!("pack: a chunk of Blosc version {}", header.version);
        }
        Ok((Self { header, chunk, behind }, rest))
    }

    /// Decode the chunk, after it is verified; `rows` is the number of items of the pack.
    fn decode(
        &self,
        guard: Guard<'_>,
        stated: Stated,
        rows: usize,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        self.verify(guard, stated, rows, |_| true)?;
        // The thread that made the call checks between packs.
        self.decoder().decode_whole(self.chunk, out, scratch, 1, &Interrupt::never())
    }

    /// Decode the blocks that are `wanted` into their places of `out`, after they are verified.
    fn decode_blocks(
        &self,
        guard: Guard<'_>,
        stated: Stated,
        rows: usize,
        wanted: &[bool],
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Outcome<()> {
        self.verify(guard, stated, rows, |index| wanted[index])?;
        let (decoder, window) = (self.decoder(), Window { bytes: self.chunk, offset: 0 });
        for index in (0..wanted.len()).filter(|index| wanted[*index]) {
            let range = self.header.block_range(index);
            if self.header.memcpyed() {
                let stored = &self.chunk[self.header.header_bytes()..];
                out[range.clone()].copy_from_slice(&stored[range]);
            } else {
                decoder.decode_block(window, index, &mut out[range], None, scratch)?;
            }
        }
        Ok(())
    }

    /// The number of blocks, also of a chunk that is stored as it is.
    fn block_count(&self) -> usize {
        if self.header.nbytes == 0 { 0 } else { self.header.nbytes.div_ceil(self.header.blocksize) }
    }

    fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.header, &self.chunk[HEADER_BYTES..self.header.data_start()])
    }

    /// Compare the chunk with what guards it: all of it with a digest, and with a trailer those blocks
    /// that are `wanted`.
    fn verify(&self, guard: Guard<'_>, stated: Stated, rows: usize, wanted: impl Fn(usize) -> bool) -> Outcome<()> {
        match guard {
            Guard::Digest(None) => {}
            Guard::Digest(Some(kind)) => {
                if kind.digest(self.chunk) != Digest::of(self.behind) {
                    return corrupt!("pack: the {} does not agree", kind.name());
                }
            }
            Guard::Trailer { .. } => {
                let found = Trailer::parse(self.behind)?;
                let front = trailer::front(&self.header);
                let spans = Spans::of(&self.header, &self.chunk[HEADER_BYTES..front])?;
                found.check(&self.chunk[..front], spans.count(), stated, rows)?;
                for index in (0..spans.count()).filter(|index| wanted(*index)) {
                    found.check_block(index, &self.chunk[spans.span(index)])?;
                }
            }
        }
        Ok(())
    }
}

/// The two chunks of a pack.
struct Pack<'a> {
    lengths: Stored<'a>,
    data: Stored<'a>,
}

impl<'a> Pack<'a> {
    /// Find the chunks of a pack of `count` items, each of which decodes to at most `most` bytes.
    fn find(bytes: &'a [u8], count: usize, guard: Guard<'_>, most: usize) -> Outcome<Self> {
        // A stored byte stands for at most so many: nothing more is allocated for a claim.
        let most = most.min(bytes.len().saturating_mul(LARGEST_EXPANSION));
        let mut bytes = bytes;
        if let Guard::Trailer { head, .. } = guard {
            let Some(rest) = bytes.strip_prefix(head) else {
                return malformed!("pack: it begins with another head");
            };
            bytes = rest;
        }
        let (lengths, behind) = Stored::find(bytes, guard, most)?;
        let (data, rest) = Stored::find(behind, guard, most)?;
        if matches!(guard, Guard::Trailer { exact: true, .. }) && !rest.is_empty() {
            return corrupt!("pack: {} bytes lie behind it", rest.len());
        }
        if Some(lengths.header.nbytes) != count.checked_mul(LENGTH_BYTES) {
            return corrupt!("pack: {} bytes of lengths for {count} items", lengths.header.nbytes);
        }
        Ok(Self { lengths, data })
    }

    /// Decode the lengths into `out`; they add up to the bytes of the items.
    fn decode_lengths(&self, guard: Guard<'_>, stated: Stated, out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        self.lengths.decode(guard, stated, out.len() / LENGTH_BYTES, out, scratch)?;
        let total: u64 = each_length(out).map(|length| length.unwrap_or(0) as u64).sum();
        if total != self.data.header.nbytes as u64 {
            let stored = self.data.header.nbytes;
            return corrupt!("pack: the lengths add up to {total} bytes, {stored} are stored");
        }
        Ok(())
    }
}

/// The lengths of items, as packs store them; `None` for a null.
fn each_length(lengths: &[u8]) -> impl Iterator<Item = Option<usize>> {
    let (each, _) = lengths.as_chunks::<LENGTH_BYTES>();
    each.iter().map(|raw| u32::from_le_bytes(*raw)).map(|length| (length != NULL).then_some(length as usize))
}

/// Return an error unless every item is text in UTF-8; the lengths add up to the bytes.
fn check_text(lengths: &[u8], data: &[u8]) -> Outcome<()> {
    if data.is_ascii() {
        return Ok(());
    }
    let mut at = 0;
    // Text as a whole, but an item may begin inside of a character.
    let whole = std::str::from_utf8(data).is_ok_and(|text| {
        each_length(lengths).all(|length| {
            at += length.unwrap_or(0);
            text.is_char_boundary(at)
        })
    });
    if whole { Ok(()) } else { corrupt!("pack: an item is no text in UTF-8") }
}

/// Packs whose chunks were found, and how many bytes their items have.
pub struct Packs<'a> {
    found: Vec<Pack<'a>>,
    guard: Guard<'a>,
    pub data_bytes: usize,
}

/// Where decoded items go: an offset for each of them and one for the end of all, a byte that says
/// whether an item exists, and the bytes of all items.
pub struct Items<'a> {
    pub offsets: &'a mut [u8],
    pub validity: &'a mut [u8],
    pub data: &'a mut [u8],
}

impl<'a> Packs<'a> {
    /// Find the chunks of packs that hold `counts` items; their items have at most `most` bytes in all.
    pub fn find(packs: &[&'a [u8]], counts: &[usize], guard: Guard<'a>, most: usize) -> Outcome<Self> {
        let mut found = reserved(packs.len())?;
        let mut data_bytes = 0;
        for (pack, count) in packs.iter().zip(counts) {
            let pack = Pack::find(pack, *count, guard, most)?;
            data_bytes += pack.data.header.nbytes;
            if data_bytes > most {
                return Err(Error::new(Kind::Limit, format!("packs of more than {most} bytes")));
            }
            found.push(pack);
        }
        Ok(Self { found, guard, data_bytes })
    }

    /// Decode all items, one behind the other, and return how many of them are null. `stated` says what
    /// the trailers of each pack state, where there are trailers. Items that are `text` are checked.
    pub fn decode(
        &self,
        stated: &[Stated],
        text: bool,
        out: Items<'_>,
        threads: usize,
        interrupt: &Interrupt,
    ) -> Outcome<usize> {
        let Items { offsets, mut validity, mut data } = out;
        let (end, mut offsets) = offsets.as_chunks_mut::<OFFSET_BYTES>().0.split_last_mut().expect("room for the end");
        *end = (data.len() as i64).to_le_bytes();
        let mut work = reserved(self.found.len())?;
        let mut start = 0;
        for (number, pack) in self.found.iter().enumerate() {
            let count = pack.lengths.header.nbytes / LENGTH_BYTES;
            let stated = stated.get(number).copied().unwrap_or(UNSTATED);
            let out = (
                offsets.split_off_mut(..count).expect("room for all offsets"),
                validity.split_off_mut(..count).expect("room for all items"),
                data.split_off_mut(..pack.data.header.nbytes).expect("room for all bytes"),
            );
            work.push((pack, stated, start, out));
            start += pack.data.header.nbytes;
        }
        let threads = threads.min(work.len());
        let nulls = AtomicUsize::new(0);
        let queue = Mutex::new(work.into_iter());
        interrupt.share(threads, &mut Workspace::default(), |own| {
            let next = queue.lock().expect("no thread panics").next();
            let Some((pack, stated, start, (offsets, validity, data))) = next else {
                return Ok(false);
            };
            let lengths = grow(&mut own.lengths, pack.lengths.header.nbytes)?;
            pack.decode_lengths(self.guard, stated, lengths, &mut own.scratch)?;
            pack.data.decode(self.guard, stated, validity.len(), data, &mut own.scratch)?;
            if text {
                check_text(lengths, data)?;
            }
            let (mut at, mut missing) = (start as i64, 0);
            for ((length, offset), exists) in each_length(lengths).zip(offsets).zip(validity) {
                *offset = at.to_le_bytes();
                *exists = u8::from(length.is_some());
                missing += usize::from(length.is_none());
                at += length.unwrap_or(0) as i64;
            }
            nulls.fetch_add(missing, Ordering::Relaxed);
            Ok(true)
        })?;
        Ok(nulls.into_inner())
    }
}

/// What encoded packs have behind their chunks.
#[derive(Clone, Copy)]
pub enum Closing<'a> {
    /// A digest of the chunk, or nothing.
    Digest(Option<Checksum>),
    /// A trailer: the first pack has the number of `first`, the others follow. `head` stands in front of
    /// each pack. With `zones` the trailer of the lengths has the zone map of the items.
    Trailer { head: &'a [u8], first: Stated, zones: bool },
}

/// How packs are encoded.
#[derive(Clone, Copy)]
pub struct PackRecipe<'a> {
    pub lengths: Recipe,
    pub data: Recipe,
    pub closing: Closing<'a>,
}

/// The memory of one thread.
#[derive(Default)]
struct Workspace {
    chunk: Packer,
    /// A pack, as it is stored.
    image: Vec<u8>,
    lengths: Vec<u8>,
    data: Vec<u8>,
    scratch: Scratch,
}

/// Encode packs, each from the lengths and the bytes of its items.
pub fn encode_packs(
    parts: &[(&[u8], &[u8])],
    recipe: &PackRecipe<'_>,
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<Vec<Vec<u8>>> {
    let mut images = Vec::new();
    images.resize_with(parts.len(), Vec::new);
    let queue = Mutex::new(parts.iter().zip(images.iter_mut()).enumerate());
    interrupt.share(threads.min(parts.len()), &mut Workspace::default(), |own| {
        let next = queue.lock().expect("no thread panics").next();
        let Some((number, ((lengths, data), image))) = next else {
            return Ok(false);
        };
        if let Closing::Trailer { head, .. } = recipe.closing {
            image.extend_from_slice(head);
        }
        let never = Interrupt::never();
        for (index, (plain, recipe_of)) in [(lengths, recipe.lengths), (data, recipe.data)].into_iter().enumerate() {
            encode(plain, recipe_of, &mut own.chunk, &mut own.scratch, 1, &never)?;
            let chunk = own.chunk.bytes();
            image.try_reserve(chunk.len() + SLACK).map_err(|_| crate::memory::out_of_memory(chunk.len()))?;
            image.extend_from_slice(chunk);
            match recipe.closing {
                Closing::Digest(checksum) => {
                    let digest = checksum.map(|kind| kind.digest(chunk));
                    image.extend_from_slice(digest.as_ref().map_or(&[][..], Digest::bytes));
                }
                Closing::Trailer { first, zones, .. } => {
                    let stated = Stated { number: first.number + number as u64, ..first };
                    let zone = if zones && index == 0 { zone_map(lengths, data) } else { Vec::new() };
                    trailer::pack(chunk, stated, lengths.len() / LENGTH_BYTES, &zone, image)?;
                }
            }
        }
        image.shrink_to_fit();
        Ok(true)
    })?;
    Ok(images)
}

/// The zone map of items by their first bytes, padded with zeros: the smallest, the largest, the number of
/// nulls, and whether items ascend. The lengths add up to the bytes.
fn zone_map(lengths: &[u8], data: &[u8]) -> Vec<u8> {
    let (lengths, _) = lengths.as_chunks::<LENGTH_BYTES>();
    let (mut low, mut high, mut nulls) = ([u8::MAX; PREFIX], [0; PREFIX], 0_u64);
    let (mut ascending, mut last, mut rest) = (true, &data[..0], data);
    for length in lengths {
        let length = u32::from_le_bytes(*length);
        if length == NULL {
            nulls += 1;
            continue;
        }
        let (item, behind) = rest.split_at((length as usize).min(rest.len()));
        rest = behind;
        let mut prefix = [0; PREFIX];
        let most = item.len().min(PREFIX);
        prefix[..most].copy_from_slice(&item[..most]);
        low = low.min(prefix);
        high = high.max(prefix);
        ascending = ascending && item >= last;
        last = item;
    }
    if nulls == lengths.len() as u64 {
        low = high;
    }
    let mut zone = Vec::with_capacity(2 * PREFIX + 16);
    zone.extend_from_slice(&low);
    zone.extend_from_slice(&high);
    zone.extend_from_slice(&nulls.to_le_bytes());
    zone.extend_from_slice(&[u8::from(ascending && nulls == 0), 0, 0, 0, 0, 0, 0, 0]);
    zone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::header::Filter;

    fn recipe<'a>(closing: Closing<'a>) -> PackRecipe<'a> {
        let data = Recipe {
            codec: Codec::parse("lz4").unwrap(),
            level: 5,
            filter: Filter::None,
            typesize: 1,
            blocksize: 0,
            gain: 0,
        };
        PackRecipe { lengths: Recipe { filter: Filter::Shuffle, typesize: LENGTH_BYTES, ..data }, data, closing }
    }

    const HEAD: &[u8] = b"head";
    const FIRST: Stated = Stated { number: 7, identity: Some(9) };

    fn trailed(zones: bool) -> PackRecipe<'static> {
        recipe(Closing::Trailer { head: HEAD, first: FIRST, zones })
    }

    fn stated(count: usize) -> Vec<Stated> {
        (0..count as u64).map(|number| Stated { number: FIRST.number + number, ..FIRST }).collect()
    }

    /// Packs of items of 0 to 49 bytes, every seventh of them null.
    fn sample(packs: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..packs)
            .map(|pack| {
                let lengths: Vec<u32> =
                    (0..100 + pack as u32).map(|item| if item % 7 == 3 { NULL } else { item * 31 % 50 }).collect();
                let total: u32 = lengths.iter().filter(|length| **length != NULL).sum();
                let data = (0..total).map(|byte| (byte / 9 + pack as u32) as u8).collect();
                (lengths.iter().flat_map(|length| length.to_le_bytes()).collect(), data)
            })
            .collect()
    }

    /// The lengths of items, their bytes, and the number of nulls.
    type Decoded = (Vec<Option<usize>>, Vec<u8>, usize);

    fn decoded(packs: &Packs<'_>, counts: &[usize], stated: &[Stated], threads: usize) -> Outcome<Decoded> {
        let count = counts.iter().sum::<usize>();
        let (mut offsets, mut validity) = (vec![0; (count + 1) * OFFSET_BYTES], vec![0; count]);
        let mut data = vec![0; packs.data_bytes];
        let items = Items { offsets: &mut offsets, validity: &mut validity, data: &mut data };
        let nulls = packs.decode(stated, false, items, threads, &Interrupt::never())?;
        let ends: Vec<usize> = offsets.as_chunks().0.iter().map(|raw| i64::from_le_bytes(*raw) as usize).collect();
        let lengths = ends.windows(2).zip(validity).map(|(pair, exists)| (exists == 1).then_some(pair[1] - pair[0]));
        Ok((lengths.collect(), data, nulls))
    }

    #[test]
    fn packs_come_back_on_any_number_of_threads() {
        let plain = sample(9);
        let parts: Vec<(&[u8], &[u8])> = plain.iter().map(|(lengths, data)| (&lengths[..], &data[..])).collect();
        let digests = [None, Some(Checksum::Crc32), Some(Checksum::Sha512)];
        let mut forms: Vec<_> =
            digests.iter().map(|kind| (recipe(Closing::Digest(*kind)), Guard::Digest(*kind))).collect();
        forms.extend([true, false].map(|exact| (trailed(exact), Guard::Trailer { head: HEAD, exact })));
        for (recipe, guard) in forms {
            for threads in [1, 3] {
                let images = encode_packs(&parts, &recipe, threads, &Interrupt::never()).unwrap();
                let stored: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
                let counts: Vec<usize> = plain.iter().map(|(lengths, _)| lengths.len() / LENGTH_BYTES).collect();
                let packs = Packs::find(&stored, &counts, guard, 1 << 20).unwrap();
                let (found, data, nulls) = decoded(&packs, &counts, &stated(9), threads).unwrap();
                let lengths: Vec<Option<usize>> = plain.iter().flat_map(|pack| each_length(&pack.0)).collect();
                assert_eq!(found, lengths);
                assert_eq!(nulls, lengths.iter().filter(|length| length.is_none()).count());
                assert_eq!(data, plain.iter().flat_map(|pack| pack.1.clone()).collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_found() {
        let plain = sample(1);
        let parts = [(&plain[0].0[..], &plain[0].1[..])];
        let crc = Some(Checksum::Crc32);
        let count = plain[0].0.len() / LENGTH_BYTES;
        let trailers = Guard::Trailer { head: HEAD, exact: true };
        for (recipe, guard) in [(recipe(Closing::Digest(crc)), Guard::Digest(crc)), (trailed(true), trailers)] {
            let image = encode_packs(&parts, &recipe, 1, &Interrupt::never()).unwrap().remove(0);
            let read = |bytes: &[u8]| -> Outcome<()> {
                let packs = Packs::find(&[bytes], &[count], guard, 1 << 20)?;
                decoded(&packs, &[count], &stated(1), 1).map(drop)
            };
            assert!(read(&image).is_ok());
            for place in 0..image.len() {
                let mut wrong = image.clone();
                wrong[place] ^= 0x20;
                assert!(read(&wrong).is_err(), "byte {place}");
                assert!(read(&image[..place]).is_err(), "{place} bytes");
            }
        }
    }

    #[test]
    fn a_pack_states_its_number_and_its_column() {
        let plain = sample(1);
        let parts = [(&plain[0].0[..], &plain[0].1[..])];
        let image = encode_packs(&parts, &trailed(false), 1, &Interrupt::never()).unwrap().remove(0);
        let count = plain[0].0.len() / LENGTH_BYTES;
        for wrong in [Stated { number: 8, ..FIRST }, Stated { identity: Some(8), ..FIRST }] {
            let packs = Packs::find(&[&image], &[count], Guard::Trailer { head: HEAD, exact: true }, 1 << 20).unwrap();
            let error = decoded(&packs, &[count], &[wrong], 1).unwrap_err();
            assert_eq!(error.kind, Kind::Corruption);
        }
        let longer = [&image[..], b"x"].concat();
        let find = |exact| Packs::find(&[&longer], &[count], Guard::Trailer { head: HEAD, exact }, 1 << 20);
        assert!(find(false).is_ok());
        assert!(find(true).is_err());
    }

    #[test]
    fn zone_maps_have_the_first_bytes_of_the_extremes() {
        let zone = |items: &[Option<&str>]| {
            let lengths: Vec<u8> =
                items.iter().flat_map(|item| item.map_or(NULL, |text| text.len() as u32).to_le_bytes()).collect();
            let data: String = items.iter().flatten().copied().collect();
            zone_map(&lengths, data.as_bytes())
        };
        let padded = |text: &str| [text.as_bytes(), &[0; PREFIX]].concat()[..PREFIX].to_vec();
        let found = zone(&[Some("ape"), Some("bee"), Some("a very long sentence")]);
        assert_eq!(found[..PREFIX], padded("a very long sent"));
        assert_eq!(found[PREFIX..2 * PREFIX], padded("bee"));
        assert_eq!(found[2 * PREFIX..], [0; 16]);
        let ascends = |items: &[Option<&str>]| zone(items)[2 * PREFIX + 8];
        assert_eq!(ascends(&[Some(""), Some("a"), Some("a"), Some("b")]), 1);
        assert_eq!(ascends(&[Some("a very long sentence"), Some("a very long sentences")]), 1);
        assert_eq!(ascends(&[Some("a very long sentences"), Some("a very long sentence")]), 0);
        assert_eq!(ascends(&[Some("a"), None]), 0);
        let nulls = zone(&[None, None]);
        assert_eq!((&nulls[..2 * PREFIX], nulls[2 * PREFIX]), (&[0; 2 * PREFIX][..], 2));
    }

    #[test]
    fn claims_are_bounded() {
        let plain = sample(2);
        let parts: Vec<(&[u8], &[u8])> = plain.iter().map(|(lengths, data)| (&lengths[..], &data[..])).collect();
        let images = encode_packs(&parts, &recipe(Closing::Digest(None)), 1, &Interrupt::never()).unwrap();
        let stored: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        let wrong = |counts: &[usize], most: usize| {
            Packs::find(&stored, counts, Guard::Digest(None), most).err().map(|error| error.kind)
        };
        assert_eq!(wrong(&[100, 101], 1 << 20), None);
        assert_eq!(wrong(&[100, 100], 1 << 20), Some(Kind::Corruption));
        assert_eq!(wrong(&[100, usize::MAX / 2], 1 << 20), Some(Kind::Corruption));
        assert_eq!(wrong(&[100, 101], 3000), Some(Kind::Limit));
    }
}
