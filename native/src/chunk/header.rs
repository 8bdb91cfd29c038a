//! The header of a Blosc chunk, 16 or 32 bytes, the block starts behind it, and the geometry that they
//! imply. Checks every claim against the bytes that exist; decodes nothing.

use crate::chunk::filters;
use crate::chunk::filters::pipeline::{Pipeline, SLOTS, Step};
use crate::chunk::header2::{FLAG2_DICTIONARY, FLAG3_VARIABLE, Header2, Special, implied, is_special};
use crate::error::{Error, Kind, Outcome, corrupt, malformed, unsupported};
use std::ops::Range;

pub const HEADER_BYTES: usize = 16;
/// The size of a Blosc 2 header.
pub const EXTENDED_BYTES: usize = 32;
/// The most bytes of a dictionary, which has its size in front.
pub const MAX_DICTIONARY: usize = 32 << 10;
/// The limit of C-Blosc2; blocks of C-Blosc 1 are much smaller.
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
/// Both kinds of shuffle at once: the header is one of Blosc 2.
pub const FLAG_EXTENDED: u8 = FLAG_SHUFFLE | FLAG_BITSHUFFLE;

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
            other => unsupported!("Blosc chunk: codec {other} in flags {flags:#04x} is not one that Ingot decodes"),
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

    /// The most bytes that a stream of `size` decoded bytes can take. Writers store streams that do not
    /// shrink uncompressed, but C-Blosc 1 keeps Snappy streams that grew.
    pub fn longest(self, size: usize) -> usize {
        if self == Self::Snappy { 32 + size + size / 6 } else { size }
    }

    /// The most bytes that `stored` compressed bytes can possibly decode to.
    pub fn most_from(self, stored: usize) -> usize {
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

impl Filter {
    /// The filter that a header of 16 bytes names.
    fn of(flags: u8, typesize: usize) -> Self {
        match (flags & FLAG_SHUFFLE != 0, flags & FLAG_BITSHUFFLE != 0) {
            (true, _) if typesize > 1 => Self::Shuffle,
            (false, true) => Self::Bitshuffle,
            _ => Self::None,
        }
    }
}

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u8,
    pub flags: u8,
    pub typesize: usize,
    pub nbytes: usize,
    /// Never larger than `nbytes`; 0 only in an empty chunk. The number of blocks where they have
    /// variable length.
    pub blocksize: usize,
    pub cbytes: usize,
    pub format: StreamFormat,
    /// The filter that is undone first, if it is shuffle or bitshuffle of whole items.
    pub filter: Filter,
    /// The filters that are undone after it.
    pub rest: Pipeline,
    pub special: Option<Special>,
    pub dictionary: bool,
    /// Blocks have variable length.
    pub variable: bool,
}

fn signed(raw: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}

impl Header {
    /// Parse the header in `raw`, the start of a chunk of which `stored` bytes exist.
    /// `nbytes` above `limit` is refused.
    pub fn parse(raw: &[u8], stored: usize, limit: usize) -> Outcome<Self> {
        let Some(first) = raw.first_chunk::<HEADER_BYTES>().filter(|_| stored >= HEADER_BYTES) else {
            return corrupt!("Blosc chunk: a header needs {HEADER_BYTES} bytes, {} are stored", stored.min(raw.len()));
        };
        let (version, flags, typesize) = (first[0], first[2], first[3] as usize);
        let second = second_half(raw, stored, flags)?;
        match version {
            0 => return malformed!("Blosc chunk: format version is 0"),
            1..=6 => {}
            _ => return unsupported!("Blosc chunk: format version {version} is unknown"),
        }
        if typesize == 0 {
            return malformed!("Blosc chunk: typesize is 0, at least 1 is needed");
        }
        let (nbytes, blocksize, cbytes) = checked_sizes(first, second, stored)?;
        let header2 = second.map(|raw| Header2::parse(raw, version)).transpose()?;
        let (flags3, flags2) = header2.as_ref().map_or((0, 0), |header2| (header2.flags3, header2.flags2));
        let special = Special::parse(flags2)?;
        let variable = flags3 & FLAG3_VARIABLE != 0;
        if variable && (flags & FLAG_MEMCPYED != 0 || special.is_some()) {
            return malformed!("Blosc chunk: blocks that differ in size in a chunk that has no blocks");
        }
        let plain = flags & FLAG_MEMCPYED != 0 || nbytes == 0 || special.is_some();
        let mut header = Self {
            version,
            flags,
            typesize,
            nbytes,
            blocksize: if variable { blocksize } else { blocksize.min(nbytes) },
            cbytes,
            // The codec bits and filters of a chunk without blocks may hold anything.
            format: if plain { StreamFormat::BloscLz } else { StreamFormat::parse(flags)? },
            filter: Filter::None,
            rest: Pipeline::EMPTY,
            special,
            dictionary: !plain && flags2 & FLAG2_DICTIONARY != 0,
            variable,
        };
        match header2 {
            _ if plain => {}
            None if flags & FLAG_DELTA == 0 => header.filter = Filter::of(flags, typesize),
            None => header.set_filters(&implied(flags))?,
            Some(header2) => header.set_filters(&header2.filters)?,
        }
        if nbytes > limit {
            let text = format!("Blosc chunk: nbytes claims {nbytes} bytes, the limit is {limit}");
            return Err(Error::new(Kind::Limit, text));
        }
        header.check_room()?;
        Ok(header)
    }

    /// Set the filter that is undone first, and the pipeline of the others.
    fn set_filters(&mut self, filters: &[(u8, u8); SLOTS]) -> Outcome<()> {
        if self.version < 3 && !self.extended() && self.flags & FLAG_DELTA != 0 {
            return unsupported!("Blosc chunk: flags {:#04x} ask for delta, Blosc 1 has no such filter", self.flags);
        }
        self.rest = Pipeline::parse(filters, self.typesize, self.version)?;
        if self.variable && self.rest.has_delta() {
            return unsupported!("Blosc chunk: delta over blocks that differ in size has no settled meaning");
        }
        self.filter = match self.rest.steps().first() {
            Some(Step::Shuffle(size)) if usize::from(*size) == self.typesize => Filter::Shuffle,
            Some(Step::Bitshuffle(..)) => Filter::Bitshuffle,
            _ => return Ok(()),
        };
        self.rest.pop();
        Ok(())
    }

    fn check_room(&self) -> Outcome<()> {
        if let Some(special) = self.special {
            return self.check_special(special);
        }
        if self.memcpyed() || self.nbytes == 0 {
            return Ok(());
        }
        if self.blocks_start() > self.cbytes {
            return corrupt!(
                "Blosc chunk: {} block starts need {} bytes, cbytes is {}",
                self.block_count(),
                self.blocks_start(),
                self.cbytes
            );
        }
        let streams = self.stream_count(self.blocksize);
        if !self.blocksize.is_multiple_of(streams) {
            return corrupt!("Blosc chunk: blocks of {} bytes cannot be split into {streams} streams", self.blocksize);
        }
        let payload = self.cbytes - self.blocks_start();
        // With an extended header, four bytes can stand for any run.
        if !self.extended() && self.nbytes > self.format.most_from(payload) {
            return corrupt!(
                "Blosc chunk: nbytes claims {} bytes, {payload} bytes of {:?} cannot hold that many",
                self.nbytes,
                self.format
            );
        }
        Ok(())
    }

    fn check_special(&self, special: Special) -> Outcome<()> {
        if special != Special::Repeated && self.cbytes != EXTENDED_BYTES {
            return malformed!("Blosc chunk: {special:?} all over take {EXTENDED_BYTES} bytes, not {}", self.cbytes);
        }
        let width = match special {
            Special::Zeros => return Ok(()),
            Special::Nan if !matches!(self.typesize, 4 | 8) => {
                return malformed!("Blosc chunk: NaN for items of {} bytes, 4 or 8 are possible", self.typesize);
            }
            Special::Nan | Special::Uninitialised => self.typesize,
            Special::Repeated => self.cbytes - EXTENDED_BYTES,
        };
        if width == 0 || !self.nbytes.is_multiple_of(width) {
            return malformed!("Blosc chunk: nbytes {} is no multiple of a value of {width} bytes", self.nbytes);
        }
        Ok(())
    }

    pub fn extended(&self) -> bool {
        self.flags & FLAG_EXTENDED == FLAG_EXTENDED
    }

    pub fn header_bytes(&self) -> usize {
        if self.extended() { EXTENDED_BYTES } else { HEADER_BYTES }
    }

    pub fn memcpyed(&self) -> bool {
        self.flags & FLAG_MEMCPYED != 0 && self.special.is_none()
    }

    pub fn block_count(&self) -> usize {
        if self.memcpyed() || self.nbytes == 0 || self.special.is_some() {
            0
        } else if self.variable {
            self.blocksize
        } else {
            self.nbytes.div_ceil(self.blocksize)
        }
    }

    /// Where the block starts end. A dictionary may follow, then the blocks' own bytes.
    pub fn blocks_start(&self) -> usize {
        self.header_bytes() + 4 * self.block_count()
    }

    /// How many bytes from the front are needed before anything can be decoded: all up to the bytes of
    /// the blocks, and the whole chunk where the block starts are not enough.
    pub fn data_start(&self) -> usize {
        if self.special.is_some() || self.variable {
            self.cbytes
        } else if self.dictionary {
            self.cbytes.min(self.blocks_start() + 4 + MAX_DICTIONARY)
        } else {
            self.blocks_start()
        }
    }

    /// The decoded bytes that block `index` holds, where all blocks have one size.
    pub fn block_range(&self, index: usize) -> Range<usize> {
        let start = index * self.blocksize;
        start..self.nbytes.min(start + self.blocksize)
    }

    /// How many streams a block of `size` bytes is stored in. Chunks older than the
    /// split flag rely on readers inferring the rule, so all of it applies to them.
    #[inline]
    pub fn stream_count(&self, size: usize) -> usize {
        let split = self.flags & FLAG_UNSPLIT == 0
            && !self.variable
            && size == self.blocksize
            && (self.version > 2
                || (self.typesize <= MAX_SPLIT_TYPESIZE && self.blocksize / self.typesize >= MIN_SPLIT_ITEMS));
        if split { self.typesize } else { 1 }
    }

    /// How many items of a block of `size` bytes the first filter put into another order.
    #[inline]
    pub fn filtered_items(&self, size: usize) -> usize {
        match self.filter {
            Filter::None => 0,
            Filter::Shuffle => size / self.typesize,
            Filter::Bitshuffle => filters::bitshuffled_items(size, self.typesize, self.version > 2),
        }
    }

    /// Parse the block start of block `index` out of `starts`, the bytes behind the header.
    #[inline]
    pub fn block_start(&self, starts: &[u8], index: usize) -> Outcome<usize> {
        let start = signed(starts, 4 * index);
        if start < self.blocks_start() as i32 || start as usize >= self.cbytes {
            return corrupt!(
                "Blosc chunk: block {index} starts at {start}, blocks lie from {} to {}",
                self.blocks_start(),
                self.cbytes
            );
        }
        Ok(start as usize)
    }

    /// The first half, with checked fields; `Header2` packs the second.
    pub fn pack_first(
        version: u8,
        flags: u8,
        typesize: usize,
        nbytes: usize,
        blocksize: usize,
        cbytes: usize,
    ) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        raw[..4].copy_from_slice(&[version, 1, flags, typesize as u8]);
        for (place, size) in raw[4..].chunks_exact_mut(4).zip([nbytes, blocksize.max(1), cbytes]) {
            place.copy_from_slice(&(size as u32).to_le_bytes());
        }
        raw
    }
}

/// The bytes of the second half, if the flags announce one.
fn second_half(raw: &[u8], stored: usize, flags: u8) -> Outcome<Option<&[u8; HEADER_BYTES]>> {
    if flags & FLAG_EXTENDED != FLAG_EXTENDED {
        return Ok(None);
    }
    match raw.get(HEADER_BYTES..).and_then(|rest| rest.first_chunk()) {
        Some(second) if stored >= EXTENDED_BYTES => Ok(Some(second)),
        _ => corrupt!(
            "Blosc chunk: flags {flags:#04x} announce a header of {EXTENDED_BYTES} bytes, {} are stored",
            stored.min(raw.len())
        ),
    }
}

/// The sizes of the decoded chunk, of a block and of the stored chunk, compared with each other and
/// with the stored bytes.
fn checked_sizes(
    first: &[u8; HEADER_BYTES],
    second: Option<&[u8; HEADER_BYTES]>,
    stored: usize,
) -> Outcome<(usize, usize, usize)> {
    let (nbytes, blocksize, cbytes) = (signed(first, 4), signed(first, 8), signed(first, 12));
    if nbytes < 0 {
        return malformed!("Blosc chunk: nbytes is {nbytes}, it cannot be negative");
    }
    if nbytes > 0 && (blocksize <= 0 || blocksize as usize > MAX_BLOCK_BYTES) {
        return malformed!("Blosc chunk: blocksize is {blocksize}, it must lie in 1..={MAX_BLOCK_BYTES}");
    }
    let head = if second.is_some() { EXTENDED_BYTES } else { HEADER_BYTES };
    if cbytes < head as i32 {
        return malformed!("Blosc chunk: cbytes is {cbytes}, the header alone has {head}");
    }
    let (nbytes, cbytes) = (nbytes as usize, cbytes as usize);
    let special = second.is_some_and(is_special);
    if first[2] & FLAG_MEMCPYED != 0 && !special && cbytes != nbytes + head {
        return corrupt!(
            "Blosc chunk: stored uncompressed, cbytes is {cbytes} but nbytes {nbytes} + {head} = {}",
            nbytes + head
        );
    }
    match stored {
        _ if stored < cbytes => corrupt!("Blosc chunk: cbytes claims {cbytes} bytes, {stored} are stored"),
        _ if stored > cbytes => malformed!("Blosc chunk: cbytes claims {cbytes} bytes, {stored} are stored"),
        _ => Ok((nbytes, blocksize.max(0) as usize, cbytes)),
    }
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
        assert_eq!(Header::pack_first(2, 0x21, 8, 8000, 4000, 400), bytes[..16]);
        assert_eq!((header.block_count(), header.stream_count(4000)), (2, 8));
    }

    fn extended(change: impl FnOnce(&mut Vec<u8>)) -> Outcome<Header> {
        let mut bytes = raw(8000, 4000, 400, 0x35);
        bytes[0] = 5;
        bytes[16..].fill(0);
        change(&mut bytes);
        Header::parse(&bytes, bytes.len(), 1 << 20)
    }

    #[test]
    fn the_first_filter_is_undone_where_the_streams_are() {
        let filters = |ids: [u8; 6], metas: [u8; 6]| {
            let header = extended(|bytes| {
                bytes[16..22].copy_from_slice(&ids);
                bytes[24..30].copy_from_slice(&metas);
            });
            header.map(|header| (header.filter, header.rest.steps().len()))
        };
        assert_eq!(filters([0, 0, 0, 0, 0, 1], [0; 6]), Ok((Filter::Shuffle, 0)));
        assert_eq!(filters([0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 8]), Ok((Filter::Shuffle, 0)));
        assert_eq!(filters([0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 4]), Ok((Filter::None, 1)));
        assert_eq!(filters([4, 3, 0, 2, 0, 36], [5; 6]), Ok((Filter::Bitshuffle, 1)));
        assert_eq!(filters([1, 35, 0, 0, 0, 0], [0; 6]), Ok((Filter::None, 2)));
        assert_eq!(filters([0, 0, 34, 0, 0, 0], [0; 6]).unwrap_err().kind, Kind::Unsupported);
    }

    #[test]
    fn wrong_claims_in_the_second_half_are_refused() {
        let kind = |at: usize, value: u8| extended(|bytes| bytes[at] = value).unwrap_err().kind;
        assert_eq!(kind(31, 0x08), Kind::Format);
        assert_eq!(kind(31, 0x04), Kind::Unsupported);
        assert_eq!(kind(31, 0x80), Kind::Unsupported);
        assert_eq!(kind(31, 0x50), Kind::Unsupported);
        assert_eq!(kind(31, 0x10), Kind::Format);
        assert_eq!(kind(30, 0x02), Kind::Unsupported);
        assert_eq!(kind(2, 0xd5), Kind::Unsupported);
        assert!(extended(|bytes| bytes[31] = 0x02).is_ok(), "the byte order of the writer means nothing");
        let value = |width: i32| {
            extended(|bytes| {
                bytes.resize(32 + width as usize, 0);
                bytes[12..16].copy_from_slice(&(32 + width).to_le_bytes());
                bytes[31] = 0x30;
            })
        };
        assert_eq!(value(8).unwrap().special, Some(Special::Repeated));
        assert_eq!(value(0).unwrap_err().kind, Kind::Format);
        assert_eq!(value(7).unwrap_err().kind, Kind::Format);
        let short = raw(8000, 4000, 31, 0x35);
        assert_eq!(Header::parse(&short, 31, 1 << 20).unwrap_err().kind, Kind::Corruption);
    }

    #[test]
    fn wrong_claims_are_refused() {
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
