//! How the stored bytes of a chunk become items, and items bytes to be stored.
//!
//! One codec, and perhaps a checksum of any kind behind all that the codec made. The bytes are
//! in memory, or still in a file; then only those that are needed are read, as far as the codec and
//! the checksum allow.

use crate::array::overwrite::{NewItems, overwrite};
use crate::array::partial_read;
use crate::array::scatter::Region;
use crate::array::workspace::Buffers;
use crate::checksum::Checksum;
use crate::chunk::codecs::streams::{Codecs, Whole};
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::encode::{self, Packer};
use crate::chunk::encode2;
use crate::chunk::header::HEADER_BYTES;
use crate::chunk::scratch::Scratch;
use crate::error::{Outcome, corrupt};
use crate::files::Extent;
use crate::files::verified::{Check, Verified, Verify};
use crate::interrupt::Interrupt;
use crate::memory::grow;

/// How the bytes of a chunk are compressed.
#[derive(Clone, Copy, Debug)]
pub enum Compression {
    Raw,
    Blosc(encode::Recipe),
    /// Chunks of Blosc 2, for filters that Blosc 1 does not have.
    Blosc2(encode2::Recipe<'static>),
    /// One compressed stream over the whole chunk.
    Stream(Whole),
}

#[derive(Clone, Copy, Debug)]
pub struct Coding {
    pub compression: Compression,
    /// What lies behind each chunk.
    pub checksum: Option<Checksum>,
    pub verify: Verify,
    /// Whether each chunk lies in a chunk file, with a head and a trailer.
    pub framed: bool,
    /// Whether each chunk lies in a slot, with a trailer and spare bytes behind it.
    pub slotted: bool,
}

impl Coding {
    /// The same for the bytes in front of a checksum that was compared, or never is.
    pub fn without_checksum(self) -> Self {
        Self { checksum: None, verify: Verify::Never, ..self }
    }

    /// Whether the bytes of a chunk were compared with a checksum when they are decoded, or never are.
    fn trusted(&self) -> bool {
        self.checksum.is_some() || self.verify == Verify::Never
    }

    /// Decode what `region` wants of a chunk of `expected` bytes that lies in a file: by parts, once
    /// it was found to agree with its checksum.
    #[allow(clippy::too_many_arguments, reason = "memory of the thread is handed on in parts")]
    pub fn read_verified(
        &self,
        verified: &Verified,
        extent: &Extent<'_>,
        expected: usize,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        chunk: &mut Vec<u8>,
    ) -> Outcome<()> {
        let Some(checksum) = self.checksum else {
            return self.read(extent, expected, region, scratch, buffers, chunk);
        };
        if extent.is_in_pieces() {
            return self.without_checksum().read(extent, expected, region, scratch, buffers, chunk);
        }
        match verified.check(self.verify, extent, checksum.size()) {
            Check::Compare(unverified) => {
                self.read(extent, expected, region, scratch, buffers, chunk)?;
                verified.remember(unverified);
                Ok(())
            }
            Check::Skip => {
                let length = extent.length.saturating_sub(checksum.size());
                let inside = Extent { key: extent.key, bytes: extent.bytes.clone(), length, ..*extent };
                self.without_checksum().read(&inside, expected, region, scratch, buffers, chunk)
            }
        }
    }

    /// Find the bytes in front of the checksum of a chunk of `expected` bytes, and how they are coded.
    /// They are read into `buffer` where the checksum has to be compared.
    pub fn open_verified<'e>(
        &self,
        verified: &Verified,
        extent: &'e Extent<'_>,
        expected: usize,
        buffer: &'e mut Vec<u8>,
    ) -> Outcome<(Self, Extent<'e>)> {
        let part = |length| Extent { key: extent.key, bytes: extent.bytes.clone(), length, ..*extent };
        let Some(checksum) = self.checksum else {
            return Ok((*self, part(extent.length)));
        };
        let inside = match verified.check(self.verify, extent, checksum.size()) {
            Check::Skip => part(extent.length - checksum.size()),
            Check::Compare(unverified) => {
                self.check_stored(extent.length, expected)?;
                let inside = Extent::held(extent.key, checksum.checked(extent.read_all(buffer)?)?);
                verified.remember(unverified);
                inside
            }
        };
        Ok((self.without_checksum(), inside))
    }

    /// Decode what `region` wants of a chunk of `expected` bytes that lies in a file.
    pub fn read(
        &self,
        extent: &Extent<'_>,
        expected: usize,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        chunk: &mut Vec<u8>,
    ) -> Outcome<()> {
        match self.compression {
            Compression::Blosc(_) | Compression::Blosc2(_) if self.checksum.is_none() => {
                partial_read::decode(extent, expected, self.trusted(), region, scratch, buffers)
            }
            Compression::Raw if self.checksum.is_none() => read_raw(extent, expected, region, buffers),
            _ => {
                self.check_stored(extent.length, expected)?;
                self.decode(extent.read_all(&mut buffers.body)?, expected, region, scratch, chunk)
            }
        }
    }

    /// Decode what `region` wants of a chunk of `expected` bytes that is stored as `bytes`.
    pub fn decode(
        &self,
        bytes: &[u8],
        expected: usize,
        region: &mut Region<'_>,
        scratch: &mut Scratch,
        chunk: &mut Vec<u8>,
    ) -> Outcome<()> {
        let bytes = self.checked(bytes)?;
        match self.compression {
            Compression::Blosc(_) | Compression::Blosc2(_) => {
                let header = partial_read::parse_header(bytes, bytes.len(), expected)?;
                let head = &bytes[HEADER_BYTES..header.data_start()];
                let decoder = Decoder::new(&header, head).trust(self.trusted());
                decoder.decode_region(Window { bytes, offset: 0 }, decoder.blocks_of(region), region, scratch)
            }
            Compression::Raw => {
                check_raw(bytes.len(), expected)?;
                region.scatter(0..expected, Window { bytes, offset: 0 });
                Ok(())
            }
            Compression::Stream(whole) => {
                if let Some(out) = region.as_slice().filter(|out| out.len() == expected) {
                    return scratch.codecs.decode_whole(whole, bytes, out);
                }
                let chunk = grow(chunk, expected)?;
                scratch.codecs.decode_whole(whole, bytes, chunk)?;
                region.scatter(0..expected, Window { bytes: chunk, offset: 0 });
                Ok(())
            }
        }
    }

    /// All bytes of a chunk of `expected` bytes, in front of its checksum, which they agree with.
    pub fn read_checked<'b>(
        &self,
        extent: &'b Extent<'_>,
        expected: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Outcome<&'b [u8]> {
        self.check_stored(extent.length, expected)?;
        self.checked(extent.read_all(buffer)?)
    }

    /// Check the size that the bytes in front of a checksum state, where they state one.
    pub fn check_claim(&self, bytes: &[u8], expected: usize) -> Outcome<()> {
        match self.compression {
            Compression::Blosc(_) | Compression::Blosc2(_) => {
                partial_read::parse_header(bytes, bytes.len(), expected).map(drop)
            }
            Compression::Raw => check_raw(bytes.len(), expected),
            Compression::Stream(_) => Ok(()),
        }
    }

    /// Decode a whole chunk whose bytes in front of the checksum are `bytes`.
    pub fn decode_whole(&self, bytes: &[u8], out: &mut [u8], scratch: &mut Scratch) -> Outcome<()> {
        match self.compression {
            Compression::Blosc(_) | Compression::Blosc2(_) => {
                let header = partial_read::parse_header(bytes, bytes.len(), out.len())?;
                let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
                decoder.decode_whole(bytes, out, scratch, 1, &Interrupt::never())
            }
            Compression::Raw => {
                check_raw(bytes.len(), out.len())?;
                out.copy_from_slice(bytes);
                Ok(())
            }
            Compression::Stream(whole) => scratch.codecs.decode_whole(whole, bytes, out),
        }
    }

    /// Write the encoded chunk to `packer`: the chunk in `extent` with the items of `source` over it,
    /// where only the blocks that hold these items have to be encoded. Return false where all of them
    /// do; then `chunk` holds the decoded chunk, with the new items.
    pub fn overwrite(
        &self,
        extent: &Extent<'_>,
        source: &dyn NewItems,
        fill: &[u8],
        chunk: &mut [u8],
        workspace: (&mut Scratch, &mut Buffers, &mut Packer),
    ) -> Outcome<bool> {
        let (scratch, buffers, packer) = workspace;
        if matches!(self.compression, Compression::Raw) && self.checksum.is_none() {
            check_raw(extent.length, chunk.len())?;
            extent.read(0, chunk)?;
            source.gather(chunk);
            return Ok(false);
        }
        let bytes = self.read_checked(extent, chunk.len(), &mut buffers.body)?;
        if let Compression::Blosc(recipe) = self.compression {
            let header = partial_read::parse_header(bytes, bytes.len(), chunk.len())?;
            let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
            if overwrite(&decoder, bytes, recipe, source, fill, chunk, packer, scratch)? {
                return Ok(true);
            }
        }
        self.decode_whole(bytes, chunk, scratch)?;
        source.gather(chunk);
        Ok(false)
    }

    /// Encode a chunk, and hand the bytes to be stored to `keep`.
    pub fn encode<T>(
        &self,
        chunk: &[u8],
        scratch: &mut Scratch,
        packer: &mut Packer,
        keep: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<T> {
        match self.compression {
            Compression::Raw if self.checksum.is_none() => return keep(chunk),
            Compression::Raw => {
                packer.clear();
                packer.push(chunk)?;
            }
            Compression::Blosc(recipe) => encode::encode(chunk, recipe, packer, scratch, 1, &Interrupt::never())?,
            Compression::Blosc2(recipe) => encode2::encode(chunk, recipe, packer, scratch, 1, &Interrupt::never())?,
            Compression::Stream(whole) => {
                packer.clear();
                let mut used = Ok(0);
                packer.fill(Codecs::most_encoded(chunk.len()), |space| {
                    used = scratch.codecs.encode_whole(whole, chunk, space);
                    *used.as_ref().unwrap_or(&0)
                })?;
                used?;
            }
        }
        self.finish(packer, keep)
    }

    /// Put the checksum behind what the codec has made, and hand all of it to `keep`.
    pub fn finish<T>(&self, packer: &mut Packer, keep: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T> {
        if let Some(checksum) = self.checksum {
            let digest = checksum.digest(packer.bytes());
            packer.push(digest.bytes())?;
        }
        keep(packer.bytes())
    }

    /// Whether chunks are stored as their items lie in memory.
    pub fn is_plain(&self) -> bool {
        matches!(self.compression, Compression::Raw) && self.checksum.is_none() && !self.framed
    }

    /// Whether a part of a chunk of `stored` bytes can be read for less than all of it.
    pub fn reads_part(&self, stored: usize) -> bool {
        stored > partial_read::SMALL && !matches!(self.compression, Compression::Stream(_))
    }

    /// No encoder makes twice as much of its input; longer chunks are refused before they are read.
    pub fn check_stored(&self, stored: usize, expected: usize) -> Outcome<()> {
        if stored / 2 > expected + (32 << 10) {
            return corrupt!("{stored} bytes are stored for a chunk of {expected} bytes");
        }
        Ok(())
    }

    /// The bytes in front of the checksum, which they agree with.
    fn checked<'a>(&self, bytes: &'a [u8]) -> Outcome<&'a [u8]> {
        self.checksum.map_or(Ok(bytes), |checksum| checksum.checked(bytes))
    }
}

fn check_raw(stored: usize, expected: usize) -> Outcome<()> {
    if stored != expected {
        return corrupt!("the chunk has {stored} bytes, the array needs {expected}");
    }
    Ok(())
}

fn read_raw(extent: &Extent<'_>, expected: usize, region: &mut Region<'_>, buffers: &mut Buffers) -> Outcome<()> {
    check_raw(extent.length, expected)?;
    let (first, end) = region.span();
    let (first, end) = (first * region.itemsize(), end * region.itemsize());
    if let Some(out) = region.as_slice() {
        return extent.read(first, out);
    }
    let bytes = extent.view(first..end, &mut buffers.body)?;
    region.scatter(first..end, Window { bytes, offset: first });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::header::Filter;

    #[test]
    fn parts_of_large_chunks_are_read_unless_they_are_one_stream() {
        let filter = Filter::Shuffle;
        let recipe = encode::Recipe { codec: Codec::Lz4, level: 5, filter, typesize: 4, blocksize: 0, gain: 0 };
        for (compression, parts) in [
            (Compression::Raw, true),
            (Compression::Blosc(recipe), true),
            (Compression::Stream(Whole::Zstd { level: 1, checksum: false }), false),
        ] {
            let coding = Coding { compression, checksum: None, verify: Verify::First, framed: false, slotted: false };
            assert!(!coding.reads_part(partial_read::SMALL));
            assert_eq!(coding.reads_part(partial_read::SMALL + 1), parts, "{compression:?}");
        }
    }

    #[test]
    fn chunks_that_no_encoder_makes_are_refused() {
        let coding = Coding {
            compression: Compression::Raw,
            checksum: None,
            verify: Verify::First,
            framed: false,
            slotted: false,
        };
        let most = 2 * (1000 + (32 << 10)) + 1;
        assert!(coding.check_stored(most, 1000).is_ok());
        assert!(coding.check_stored(most + 1, 1000).is_err());
    }
}
