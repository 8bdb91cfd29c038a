//! How the stored bytes of a chunk become items, and items bytes to be stored.
//!
//! A chain is one codec, and maybe a seal behind it: a CRC-32C of all that it made. The bytes
//! are in memory, or still in a file; then only those that are needed are read, as far as the
//! codec and the seal allow.

use crate::array::scatter::Region;
use crate::chunk::codecs::streams::{Codecs, Whole};
use crate::chunk::decode::{Decoder, Window, copy_plain};
use crate::chunk::encode::{self, Packer};
use crate::chunk::header::HEADER_BYTES;
use crate::chunk::scratch::{Scratch, grow};
use crate::error::{Outcome, corrupt};
use crate::files::verified::SEAL;
use crate::files::{self, Buffers, Extent};
use crate::interrupt::Interrupt;

/// How the bytes of a chunk are coded.
#[derive(Clone, Copy, Debug)]
pub enum Coding {
    Raw,
    Blosc(encode::Recipe),
    /// One compressed stream over the whole chunk.
    Stream(Whole),
}

#[derive(Clone, Copy, Debug)]
pub struct Chain {
    pub coding: Coding,
    pub sealed: bool,
}

impl Chain {
    /// The same chain for what lies inside the seal.
    pub fn unsealed(self) -> Self {
        Self { sealed: false, ..self }
    }

    /// Decode what `region` wants of a chunk of `expected` bytes that lies in a file.
    pub fn read(
        &self,
        extent: &Extent<'_>,
        expected: usize,
        region: &Region,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        chunk: &mut Vec<u8>,
    ) -> Outcome<()> {
        match self.coding {
            Coding::Blosc(_) if !self.sealed => files::decode_extent(extent, expected, region, scratch, buffers),
            Coding::Raw if !self.sealed => read_raw(extent, expected, region, buffers),
            _ => {
                self.check_stored(extent.length, expected)?;
                self.decode(extent.all(buffers)?, expected, region, scratch, chunk)
            }
        }
    }

    /// Decode what `region` wants of a chunk of `expected` bytes that is stored as `bytes`.
    pub fn decode(
        &self,
        bytes: &[u8],
        expected: usize,
        region: &Region,
        scratch: &mut Scratch,
        chunk: &mut Vec<u8>,
    ) -> Outcome<()> {
        let bytes = self.opened(bytes)?;
        match self.coding {
            Coding::Blosc(_) => {
                let header = files::due(bytes, bytes.len(), expected)?;
                let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
                decoder.decode_region(Window { bytes, offset: 0 }, decoder.blocks_of(region), region, scratch)
            }
            Coding::Raw => {
                check_raw(bytes.len(), expected)?;
                copy_plain(region, 0..expected, Window { bytes, offset: 0 })
            }
            Coding::Stream(whole) => {
                if let Some(out) = region.as_one_piece().filter(|out| out.len() == expected) {
                    return scratch.codecs.decode_whole(whole, bytes, out);
                }
                let chunk = grow(chunk, expected)?;
                scratch.codecs.decode_whole(whole, bytes, chunk)?;
                copy_plain(region, 0..expected, Window { bytes: chunk, offset: 0 })
            }
        }
    }

    /// Decode a whole chunk that lies in a file.
    pub fn read_whole(
        &self,
        extent: &Extent<'_>,
        out: &mut [u8],
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Outcome<()> {
        if matches!(self.coding, Coding::Raw) && !self.sealed {
            check_raw(extent.length, out.len())?;
            return extent.read(0, out);
        }
        self.check_stored(extent.length, out.len())?;
        let bytes = self.opened(extent.all(buffers)?)?;
        match self.coding {
            Coding::Blosc(_) => {
                let header = files::due(bytes, bytes.len(), out.len())?;
                let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
                decoder.decode_whole(bytes, out, scratch, 1, &Interrupt::never())
            }
            Coding::Raw => {
                check_raw(bytes.len(), out.len())?;
                out.copy_from_slice(bytes);
                Ok(())
            }
            Coding::Stream(whole) => scratch.codecs.decode_whole(whole, bytes, out),
        }
    }

    /// Encode a chunk, and hand the bytes to be stored to `keep`.
    pub fn encode<T>(
        &self,
        chunk: &[u8],
        scratch: &mut Scratch,
        packer: &mut Packer,
        keep: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<T> {
        match self.coding {
            Coding::Raw if !self.sealed => return keep(chunk),
            Coding::Raw => {
                packer.clear();
                packer.push(chunk)?;
            }
            Coding::Blosc(recipe) => encode::encode(chunk, recipe, packer, scratch, 1, &Interrupt::never())?,
            Coding::Stream(whole) => {
                packer.clear();
                let mut used = Ok(0);
                packer.fill(Codecs::most_encoded(chunk.len()), |space| {
                    used = scratch.codecs.encode_whole(whole, chunk, space);
                    *used.as_ref().unwrap_or(&0)
                })?;
                used?;
            }
        }
        self.seal(packer, keep)
    }

    /// Put the seal behind what the codec has made, and hand all of it to `keep`.
    pub fn seal<T>(&self, packer: &mut Packer, keep: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T> {
        if self.sealed {
            let seal = crc32c::crc32c(packer.bytes());
            packer.push(&seal.to_le_bytes())?;
        }
        keep(packer.bytes())
    }

    /// Whether a part of a chunk that is stored in `stored` bytes can be had for less.
    pub fn reads_part(&self, stored: usize) -> bool {
        stored > files::SMALL && !matches!(self.coding, Coding::Stream(_))
    }

    /// No encoder makes twice as much of what it gets; what is longer is not worth a look.
    pub fn check_stored(&self, stored: usize, expected: usize) -> Outcome<()> {
        if stored / 2 > expected + (32 << 10) {
            return corrupt!("{stored} bytes are stored for a chunk of {expected} bytes");
        }
        Ok(())
    }

    /// The bytes inside the seal, which they agree with.
    fn opened<'a>(&self, bytes: &'a [u8]) -> Outcome<&'a [u8]> {
        if !self.sealed {
            return Ok(bytes);
        }
        match bytes.split_last_chunk::<SEAL>() {
            Some((inside, seal)) => {
                let (claim, fact) = (u32::from_le_bytes(*seal), crc32c::crc32c(inside));
                if claim != fact {
                    return corrupt!("crc32c: the checksum is {fact:#010x}, {claim:#010x} is stored");
                }
                Ok(inside)
            }
            None => corrupt!("crc32c: {} bytes hold no checksum", bytes.len()),
        }
    }
}

fn check_raw(stored: usize, expected: usize) -> Outcome<()> {
    if stored != expected {
        return corrupt!("the chunk has {stored} bytes, the array needs {expected}");
    }
    Ok(())
}

fn read_raw(extent: &Extent<'_>, expected: usize, region: &Region, buffers: &mut Buffers) -> Outcome<()> {
    check_raw(extent.length, expected)?;
    let (first, end) = region.span();
    let (first, end) = (first * region.itemsize(), end * region.itemsize());
    if let Some(out) = region.as_one_piece() {
        return extent.read(first, out);
    }
    let bytes = grow(&mut buffers.body, end - first)?;
    extent.read(first, bytes)?;
    copy_plain(region, first..end, Window { bytes, offset: first })
}
