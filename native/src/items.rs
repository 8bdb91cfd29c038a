//! Packs of variable-length items: the lengths and the bytes of the items in two Blosc chunks, each with
//! its digest, encoded and decoded on several threads.
//!
//! A pack that is wrong in any way is an error. The caller then decodes packs one by one, and says what
//! is wrong with which.

use crate::checksum::{Checksum, Digest};
use crate::chunk::decode::Decoder;
use crate::chunk::encode::{Packer, Recipe, encode};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome, corrupt, malformed};
use crate::interrupt::Interrupt;
use crate::memory::reserved;
use std::sync::Mutex;

/// The bytes of a length.
pub const LENGTH_BYTES: usize = 4;
/// The length of a null.
const NULL: u32 = u32::MAX;
/// The newest version of chunks that a pack has.
const NEWEST: u8 = 2;

/// A chunk in a pack, with the digest behind it.
struct Stored<'a> {
    header: Header,
    chunk: &'a [u8],
    digest: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Find the chunk at the start of some bytes, and what follows its digest.
    fn find(bytes: &'a [u8], checksum: Option<Checksum>, limit: usize) -> Outcome<(Self, &'a [u8])> {
        let Some(size) = bytes.get(12..HEADER_BYTES).and_then(|raw| raw.try_into().ok()).map(i32::from_le_bytes) else {
            return corrupt!("pack: a chunk needs {HEADER_BYTES} bytes, {} are stored", bytes.len());
        };
        let extra = checksum.map_or(0, Checksum::size);
        let size = usize::try_from(size).unwrap_or(0);
        if size < HEADER_BYTES || bytes.len() < extra || size > bytes.len() - extra {
            return corrupt!("pack: a chunk claims {size} bytes, {} are stored", bytes.len());
        }
        let (chunk, behind) = bytes.split_at(size);
        let (digest, rest) = behind.split_at(extra);
        let header = Header::parse(chunk, size, limit)?;
        if header.version > NEWEST || header.extended() {
            return malformed!("pack: a chunk of Blosc version {}", header.version);
        }
        Ok((Self { header, chunk, digest }, rest))
    }

    /// Decode the chunk, after its digest is verified.
    fn decode(
        &self,
        checksum: Option<Checksum>,
        out: &mut [u8],
        scratch: &mut Scratch,
        interrupt: &Interrupt,
    ) -> Outcome<()> {
        if let Some(kind) = checksum
            && kind.digest(self.chunk) != Digest::of(self.digest)
        {
            return corrupt!("pack: the {} does not agree", kind.name());
        }
        let decoder = Decoder::new(&self.header, &self.chunk[HEADER_BYTES..self.header.data_start()]);
        decoder.decode_whole(self.chunk, out, scratch, 1, interrupt)
    }
}

/// Packs whose chunks were found, and how many bytes their items have.
pub struct Packs<'a> {
    found: Vec<(Stored<'a>, Stored<'a>)>,
    checksum: Option<Checksum>,
    pub data_bytes: usize,
}

impl<'a> Packs<'a> {
    /// Find the chunks of packs that hold `counts` items; their items have at most `most` bytes in all.
    pub fn find(packs: &[&'a [u8]], counts: &[usize], checksum: Option<Checksum>, most: usize) -> Outcome<Self> {
        let mut found = reserved(packs.len())?;
        let mut data_bytes = 0;
        for (pack, count) in packs.iter().zip(counts) {
            let (lengths, behind) = Stored::find(pack, checksum, most)?;
            let (data, _) = Stored::find(behind, checksum, most)?;
            if Some(lengths.header.nbytes) != count.checked_mul(LENGTH_BYTES) {
                return corrupt!("pack: {} bytes of lengths for {count} items", lengths.header.nbytes);
            }
            data_bytes += data.header.nbytes;
            if data_bytes > most {
                return Err(Error::new(Kind::Limit, format!("packs of more than {most} bytes")));
            }
            found.push((lengths, data));
        }
        Ok(Self { found, checksum, data_bytes })
    }

    /// Decode the lengths and the bytes of all items, one behind the other.
    pub fn decode(
        &self,
        mut lengths: &mut [u8],
        mut data: &mut [u8],
        threads: usize,
        interrupt: &Interrupt,
    ) -> Outcome<()> {
        let mut work = reserved(self.found.len())?;
        for pack in &self.found {
            let (own_lengths, others) = lengths.split_at_mut(pack.0.header.nbytes);
            let (own_data, behind) = data.split_at_mut(pack.1.header.nbytes);
            (lengths, data) = (others, behind);
            work.push((pack, own_lengths, own_data));
        }
        let threads = threads.min(work.len());
        let queue = Mutex::new(work.into_iter());
        interrupt.share(threads, &mut Scratch::default(), |scratch| {
            let next = queue.lock().expect("no thread panics").next();
            let Some(((lengths, data), own_lengths, own_data)) = next else {
                return Ok(false);
            };
            // The thread that made the call checks between packs.
            let never = Interrupt::never();
            lengths.decode(self.checksum, own_lengths, scratch, &never)?;
            let (each, _) = own_lengths.as_chunks::<LENGTH_BYTES>();
            let total: u64 =
                each.iter().map(|raw| u32::from_le_bytes(*raw)).filter(|length| *length != NULL).map(u64::from).sum();
            if total != own_data.len() as u64 {
                return corrupt!("pack: the lengths add up to {total} bytes, {} are stored", own_data.len());
            }
            data.decode(self.checksum, own_data, scratch, &never)?;
            Ok(true)
        })
    }
}

/// How packs are encoded.
#[derive(Clone, Copy)]
pub struct PackRecipe {
    pub lengths: Recipe,
    pub data: Recipe,
    pub checksum: Option<Checksum>,
}

/// The memory of one thread.
#[derive(Default)]
struct Workspace {
    chunk: Packer,
    scratch: Scratch,
}

/// Encode packs, each from the lengths and the bytes of its items.
pub fn encode_packs(
    parts: &[(&[u8], &[u8])],
    recipe: &PackRecipe,
    threads: usize,
    interrupt: &Interrupt,
) -> Outcome<Vec<Vec<u8>>> {
    let mut images = Vec::new();
    images.resize_with(parts.len(), Vec::new);
    let queue = Mutex::new(parts.iter().zip(images.iter_mut()));
    interrupt.share(threads.min(parts.len()), &mut Workspace::default(), |own| {
        let next = queue.lock().expect("no thread panics").next();
        let Some(((lengths, data), image)) = next else {
            return Ok(false);
        };
        let never = Interrupt::never();
        for (plain, recipe_of) in [(lengths, recipe.lengths), (data, recipe.data)] {
            encode(plain, recipe_of, &mut own.chunk, &mut own.scratch, 1, &never)?;
            let digest = recipe.checksum.map(|kind| kind.digest(own.chunk.bytes()));
            let digest = digest.as_ref().map_or(&[][..], Digest::bytes);
            image
                .try_reserve_exact(own.chunk.bytes().len() + digest.len())
                .map_err(|_| crate::memory::out_of_memory(own.chunk.bytes().len()))?;
            image.extend_from_slice(own.chunk.bytes());
            image.extend_from_slice(digest);
        }
        Ok(true)
    })?;
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::header::Filter;

    fn recipe(checksum: Option<Checksum>) -> PackRecipe {
        let data = Recipe {
            codec: Codec::parse("lz4").unwrap(),
            level: 5,
            filter: Filter::None,
            typesize: 1,
            blocksize: 0,
            gain: 0,
        };
        PackRecipe { lengths: Recipe { filter: Filter::Shuffle, typesize: LENGTH_BYTES, ..data }, data, checksum }
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

    #[test]
    fn packs_come_back_on_any_number_of_threads() {
        let plain = sample(9);
        let parts: Vec<(&[u8], &[u8])> = plain.iter().map(|(lengths, data)| (&lengths[..], &data[..])).collect();
        for checksum in [None, Some(Checksum::Crc32), Some(Checksum::Sha512)] {
            for threads in [1, 3] {
                let images = encode_packs(&parts, &recipe(checksum), threads, &Interrupt::never()).unwrap();
                let stored: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
                let counts: Vec<usize> = plain.iter().map(|(lengths, _)| lengths.len() / LENGTH_BYTES).collect();
                let packs = Packs::find(&stored, &counts, checksum, 1 << 20).unwrap();
                let mut lengths = vec![0; counts.iter().sum::<usize>() * LENGTH_BYTES];
                let mut data = vec![0; packs.data_bytes];
                packs.decode(&mut lengths, &mut data, threads, &Interrupt::never()).unwrap();
                assert_eq!(lengths, plain.iter().flat_map(|pack| pack.0.clone()).collect::<Vec<u8>>());
                assert_eq!(data, plain.iter().flat_map(|pack| pack.1.clone()).collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_found() {
        let plain = sample(1);
        let parts = [(&plain[0].0[..], &plain[0].1[..])];
        let checksum = Some(Checksum::Crc32);
        let image = encode_packs(&parts, &recipe(checksum), 1, &Interrupt::never()).unwrap().remove(0);
        let count = plain[0].0.len() / LENGTH_BYTES;
        let read = |bytes: &[u8]| -> Outcome<()> {
            let packs = Packs::find(&[bytes], &[count], checksum, 1 << 20)?;
            let (mut lengths, mut data) = (vec![0; count * LENGTH_BYTES], vec![0; packs.data_bytes]);
            packs.decode(&mut lengths, &mut data, 1, &Interrupt::never())
        };
        assert!(read(&image).is_ok());
        for place in 0..image.len() {
            let mut wrong = image.clone();
            wrong[place] ^= 0x20;
            assert!(read(&wrong).is_err(), "byte {place}");
            assert!(read(&image[..place]).is_err(), "{place} bytes");
        }
    }

    #[test]
    fn claims_are_bounded() {
        let plain = sample(2);
        let parts: Vec<(&[u8], &[u8])> = plain.iter().map(|(lengths, data)| (&lengths[..], &data[..])).collect();
        let images = encode_packs(&parts, &recipe(None), 1, &Interrupt::never()).unwrap();
        let stored: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        let wrong =
            |counts: &[usize], most: usize| Packs::find(&stored, counts, None, most).err().map(|error| error.kind);
        assert_eq!(wrong(&[100, 101], 1 << 20), None);
        assert_eq!(wrong(&[100, 100], 1 << 20), Some(Kind::Corruption));
        assert_eq!(wrong(&[100, usize::MAX / 2], 1 << 20), Some(Kind::Corruption));
        assert_eq!(wrong(&[100, 101], 3000), Some(Kind::Limit));
    }
}
