//! The 16 bytes in front of a Blosc chunk, the block starts behind them, and the
//! geometry they imply. Checks every claim against the bytes that exist; decodes nothing.

use crate::fault::{Fault, Kind, Outcome, corrupt, malformed, unsupported};
use std::ops::Range;

pub const HEADER_BYTES: usize = 16;
/// C-Blosc2's limit; C-Blosc 1 never came near it.
pub const MAX_BLOCK_BYTES: usize = 536_866_816;
/// A stream is split into one per byte of the item only up to this item size ...
pub const MAX_SPLIT_TYPESIZE: usize = 16;
/// ... and from this many items per block on (Blosc 1 readers infer the rule).
pub const MIN_SPLIT_ITEMS: usize = 128;

pub const FLAG_SHUFFLE: u8 = 0x01;
pub const FLAG_MEMCPYED: u8 = 0x02;
pub const FLAG_BITSHUFFLE: u8 = 0x04;
pub const FLAG_DELTA: u8 = 0x08;
pub const FLAG_UNSPLIT: u8 = 0x10;

/// The formats of compressed streams, as the header numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    BloscLz,
    Lz4,
    Snappy,
    Zlib,
    Zstd,
}

impl StreamFormat {
    fn parse(flags: u8) -> Outcome<Self> {
        match flags >> 5 {
            0 => Ok(Self::BloscLz),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Zlib),
            4 => Ok(Self::Zstd),
            other => unsupported!("Blosc chunk: codec {other} in flags {flags:#04x} is not a codec of Blosc 1"),
        }
    }

    pub fn flag_bits(self) -> u8 {
        match self {
            Self::BloscLz => 0,
            Self::Lz4 => 1 << 5,
            Self::Snappy => 2 << 5,
            Self::Zlib => 3 << 5,
            Self::Zstd => 4 << 5,
        }
    }

    /// The most bytes that a stream of `size` decoded bytes can take. Writers store what does
    /// not shrink as it is, but C-Blosc 1 gave Snappy all the room it might ask for.
    pub fn longest(self, size: usize) -> usize {
        if self == Self::Snappy { 32 + size + size / 6 } else { size }
    }

    /// The most bytes that `stored` compressed bytes can possibly decode to.
    fn most_from(self, stored: usize) -> usize {
        match self {
            // A byte that lengthens a copy stands for 255 bytes at the most.
            Self::BloscLz | Self::Lz4 | Self::Snappy => stored.saturating_mul(255),
            Self::Zlib => stored.saturating_mul(1032),
            // A block of one repeated byte turns four bytes into 128 KiB.
            Self::Zstd => stored.saturating_mul(1 << 15),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    None,
    Shuffle,
    Bitshuffle,
}

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u8,
    pub flags: u8,
    pub typesize: usize,
    pub nbytes: usize,
    /// Never larger than `nbytes`; 0 only in an empty chunk.
    pub blocksize: usize,
    pub cbytes: usize,
    pub format: StreamFormat,
    pub filter: Filter,
}

fn signed(raw: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}

impl Header {
    /// Parse the header in `raw`, the start of a chunk of which `stored` bytes exist.
    /// `nbytes` above `limit` is refused.
    pub fn parse(raw: &[u8], stored: usize, limit: usize) -> Outcome<Self> {
        if raw.len() < HEADER_BYTES || stored < HEADER_BYTES {
            return corrupt!("Blosc chunk: a header needs {HEADER_BYTES} bytes, {} are stored", stored.min(raw.len()));
        }
        let (version, flags, typesize) = (raw[0], raw[2], raw[3] as usize);
        let (nbytes, blocksize, cbytes) = (signed(raw, 4), signed(raw, 8), signed(raw, 12));
        check_version(version, flags, stored)?;
        if typesize == 0 {
            return malformed!("Blosc chunk: typesize is 0, at least 1 is needed");
        }
        if nbytes < 0 {
            return malformed!("Blosc chunk: nbytes is {nbytes}, it cannot be negative");
        }
        if cbytes < HEADER_BYTES as i32 {
            return malformed!("Blosc chunk: cbytes is {cbytes}, the header alone has {HEADER_BYTES}");
        }
        let (nbytes, cbytes) = (nbytes as usize, cbytes as usize);
        if nbytes > limit {
            return Err(Fault::new(
                Kind::Limit,
                format!("Blosc chunk: nbytes claims {nbytes} bytes, the limit is {limit}"),
            ));
        }
        if stored < cbytes {
            return corrupt!("Blosc chunk: cbytes claims {cbytes} bytes, {stored} are stored");
        }
        if stored > cbytes {
            return malformed!("Blosc chunk: cbytes claims {cbytes} bytes, {stored} are stored");
        }
        let memcpyed = flags & FLAG_MEMCPYED != 0;
        let plain = memcpyed || nbytes == 0;
        let header = Self {
            version,
            flags,
            typesize,
            nbytes,
            blocksize: if nbytes == 0 { 0 } else { checked_blocksize(blocksize, nbytes)? },
            cbytes,
            // The codec bits of a stored or empty chunk may hold anything.
            format: if plain { StreamFormat::BloscLz } else { StreamFormat::parse(flags)? },
            filter: Filter::parse(flags, plain)?,
        };
        header.check_room()?;
        Ok(header)
    }

    fn check_room(&self) -> Outcome<()> {
        if self.memcpyed() {
            if self.cbytes != self.nbytes + HEADER_BYTES {
                return corrupt!(
                    "Blosc chunk: stored uncompressed, cbytes is {} but nbytes {} + {HEADER_BYTES} = {}",
                    self.cbytes,
                    self.nbytes,
                    self.nbytes + HEADER_BYTES
                );
            }
            return Ok(());
        }
        if self.nbytes == 0 {
            return Ok(());
        }
        let blocks = self.block_count();
        if self.data_start() > self.cbytes {
            return corrupt!(
                "Blosc chunk: {blocks} block starts need {} bytes, cbytes is {}",
                self.data_start(),
                self.cbytes
            );
        }
        let payload = self.cbytes - self.data_start();
        if self.nbytes > self.format.most_from(payload) {
            return corrupt!(
                "Blosc chunk: nbytes claims {} bytes, {payload} bytes of {:?} cannot hold that many",
                self.nbytes,
                self.format
            );
        }
        Ok(())
    }

    pub fn memcpyed(&self) -> bool {
        self.flags & FLAG_MEMCPYED != 0
    }

    pub fn block_count(&self) -> usize {
        if self.memcpyed() || self.nbytes == 0 { 0 } else { self.nbytes.div_ceil(self.blocksize) }
    }

    /// Where the blocks' own bytes begin: behind the header and the block starts.
    pub fn data_start(&self) -> usize {
        HEADER_BYTES + 4 * self.block_count()
    }

    /// The decoded bytes that block `index` holds.
    pub fn block_range(&self, index: usize) -> Range<usize> {
        let start = index * self.blocksize;
        start..self.nbytes.min(start + self.blocksize)
    }

    /// How many streams a block of `size` bytes is stored in. Chunks older than the
    /// split flag rely on readers inferring the rule, so all of it applies to them.
    pub fn stream_count(&self, size: usize) -> usize {
        let split = self.flags & FLAG_UNSPLIT == 0
            && size == self.blocksize
            && self.typesize <= MAX_SPLIT_TYPESIZE
            && self.blocksize / self.typesize >= MIN_SPLIT_ITEMS;
        if split { self.typesize } else { 1 }
    }

    /// Parse the block start of block `index` out of `starts`, the bytes behind the header.
    pub fn block_start(&self, starts: &[u8], index: usize) -> Outcome<usize> {
        let start = signed(starts, 4 * index);
        if start < self.data_start() as i32 || start as usize >= self.cbytes {
            return corrupt!(
                "Blosc chunk: block {index} starts at {start}, blocks lie from {} to {}",
                self.data_start(),
                self.cbytes
            );
        }
        Ok(start as usize)
    }

    pub fn pack(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        raw[0] = self.version;
        raw[1] = 1;
        raw[2] = self.flags;
        raw[3] = self.typesize as u8;
        raw[4..8].copy_from_slice(&(self.nbytes as u32).to_le_bytes());
        raw[8..12].copy_from_slice(&(self.blocksize.max(1) as u32).to_le_bytes());
        raw[12..16].copy_from_slice(&(self.cbytes as u32).to_le_bytes());
        raw
    }
}

impl Filter {
    fn parse(flags: u8, plain: bool) -> Outcome<Self> {
        if plain {
            return Ok(Self::None);
        }
        if flags & FLAG_DELTA != 0 {
            return unsupported!("Blosc chunk: flags {flags:#04x} ask for delta, Blosc 1 has no such filter");
        }
        Ok(match (flags & FLAG_SHUFFLE != 0, flags & FLAG_BITSHUFFLE != 0) {
            (true, _) => Self::Shuffle,
            (_, true) => Self::Bitshuffle,
            _ => Self::None,
        })
    }
}

fn check_version(version: u8, flags: u8, stored: usize) -> Outcome<()> {
    let extended = flags & (FLAG_SHUFFLE | FLAG_BITSHUFFLE) == FLAG_SHUFFLE | FLAG_BITSHUFFLE;
    match version {
        0 => malformed!("Blosc chunk: format version is 0"),
        1 | 2 if extended && stored < 32 => {
            corrupt!("Blosc chunk: flags {flags:#04x} announce a 32-byte header, {stored} bytes are stored")
        }
        1 | 2 if extended => unsupported!("Blosc chunk: version {version} with an extended header"),
        1 | 2 => Ok(()),
        3..=6 => unsupported!("Blosc chunk: format version {version} is Blosc 2, this kernel reads versions 1 and 2"),
        _ => unsupported!("Blosc chunk: format version {version} is unknown"),
    }
}

fn checked_blocksize(claim: i32, nbytes: usize) -> Outcome<usize> {
    if claim <= 0 || claim as usize > MAX_BLOCK_BYTES {
        return malformed!("Blosc chunk: blocksize is {claim}, it must lie in 1..={MAX_BLOCK_BYTES}");
    }
    Ok(nbytes.min(claim as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(nbytes: i32, blocksize: i32, cbytes: i32, flags: u8) -> Vec<u8> {
        let mut bytes = vec![2, 1, flags, 8];
        for field in [nbytes, blocksize, cbytes] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(cbytes.max(16) as usize, 0);
        bytes
    }

    #[test]
    fn parse_and_pack_agree() {
        let bytes = raw(8000, 4000, 400, 0x21);
        let header = Header::parse(&bytes, 400, usize::MAX).unwrap();
        assert_eq!(header.pack(), bytes[..16]);
        assert_eq!((header.block_count(), header.stream_count(4000)), (2, 8));
    }

    #[test]
    fn lies_are_refused() {
        let kind = |bytes: &[u8]| Header::parse(bytes, bytes.len(), 1 << 20).unwrap_err().kind;
        assert_eq!(kind(&raw(-1, 4000, 400, 0x21)), Kind::Format);
        assert_eq!(kind(&raw(8000, 0, 400, 0x21)), Kind::Format);
        assert_eq!(kind(&raw(8000, 1, 400, 0x21)), Kind::Corruption);
        assert_eq!(kind(&raw(1 << 21, 4000, 400, 0x21)), Kind::Limit);
        assert_eq!(kind(&raw(8000, 4000, 400, 0x02)), Kind::Corruption);
        assert_eq!(kind(&raw(8000, 4000, 400, 0xa1)), Kind::Unsupported);
        assert_eq!(kind(&raw(8000, 4000, 400, 0x21)[..300]), Kind::Corruption);
        assert_eq!(kind(&raw(500_000, 500_000, 400, 0x21)), Kind::Corruption);
    }
}
