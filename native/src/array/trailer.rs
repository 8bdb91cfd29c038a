//! The trailer behind a Blosc chunk in a chunk file: a checksum of the chunk's front, one of each block,
//! and the chunk's zone map. The bytes are the same as those of the Python twin.

use crate::chunk::header::Header;
use crate::error::{Outcome, corrupt, unsupported};
use crate::memory::reserved;
use std::ops::Range;

const MAGIC: &[u8; 4] = b"igt1";
/// Up to the identity, which version 1 does not have.
const HEAD: usize = 24;
const IDENTITY: usize = 8;
const FOOT: usize = 8;
const LEAST: usize = HEAD + 4 + FOOT;

/// Which chunk of which array this is. An array of another program has no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    pub number: u64,
    pub identity: Option<u64>,
}

/// A trailer that agrees with its own checksum.
pub struct Trailer<'a> {
    bytes: &'a [u8],
    /// Up to the checksum of the front.
    head: usize,
    blocks: usize,
}

/// Where the blocks of a chunk start and end; they may lie in any order.
#[derive(Clone)]
pub struct Spans {
    starts: Vec<usize>,
    sorted: Vec<usize>,
    /// The size of blocks that are stored uncompressed, in order, and where the first one starts.
    plain: usize,
    begin: usize,
    count: usize,
    cbytes: usize,
}

impl Spans {
    /// `starts` are the bytes of the block starts.
    pub fn of(header: &Header, starts: &[u8]) -> Outcome<Self> {
        if header.variable || header.dictionary {
            return corrupt!("chunk trailer: it stands behind a chunk with a dictionary or blocks of several sizes");
        }
        let (cbytes, begin) = (header.cbytes, header.header_bytes());
        if header.memcpyed() || header.nbytes == 0 {
            let count = if header.nbytes == 0 { 0 } else { header.nbytes.div_ceil(header.blocksize) };
            return Ok(Self { starts: Vec::new(), sorted: Vec::new(), plain: header.blocksize, begin, count, cbytes });
        }
        let count = header.block_count();
        let starts = (0..count).map(|index| header.block_start(starts, index)).collect::<Outcome<Vec<_>>>()?;
        let mut sorted = starts.clone();
        sorted.sort_unstable();
        Ok(Self { starts, sorted, plain: 0, begin, count, cbytes })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// How many bytes it has beside itself.
    pub fn memory(&self) -> usize {
        (self.starts.len() + self.sorted.len()) * size_of::<usize>()
    }

    pub fn span(&self, index: usize) -> Range<usize> {
        if self.plain > 0 {
            let start = self.begin + index * self.plain;
            return start..self.cbytes.min(start + self.plain);
        }
        let start = self.starts[index];
        let next = self.sorted.partition_point(|other| *other <= start);
        start..self.sorted.get(next).copied().unwrap_or(self.cbytes)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn double_word(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

fn compare(what: &str, fact: u32, claim: u32) -> Outcome<()> {
    if fact != claim {
        return corrupt!("chunk trailer: the CRC-32C of the {what} is {fact:#010x}, {claim:#010x} is stored");
    }
    Ok(())
}

impl<'a> Trailer<'a> {
    /// Parse all bytes behind a chunk.
    pub fn parse(bytes: &'a [u8]) -> Outcome<Self> {
        if bytes.len() < LEAST || &bytes[..4] != MAGIC {
            return corrupt!("chunk trailer: {} bytes behind the chunk are no trailer", bytes.len());
        }
        let foot = bytes.len() - FOOT;
        if word(bytes, foot) as usize != bytes.len() {
            let claim = word(bytes, foot);
            return corrupt!("chunk trailer: its length claims {claim} bytes, {} are stored", bytes.len());
        }
        compare("trailer", crc32c::crc32c(&bytes[..foot + 4]), word(bytes, foot + 4))?;
        let (version, flags) = (bytes[4], bytes[5]);
        if !matches!(version, 1 | 2) || flags != 0 {
            return unsupported!("chunk trailer: version {version} with flags {flags} is unknown");
        }
        let head = if version == 1 { HEAD } else { HEAD + IDENTITY };
        let (zone, blocks) = (usize::from(bytes[6]) | usize::from(bytes[7]) << 8, word(bytes, 8) as usize);
        if blocks.checked_mul(4).and_then(|size| size.checked_add(LEAST - HEAD + head + zone)) != Some(bytes.len()) {
            return corrupt!(
                "chunk trailer: {blocks} blocks and a zone map of {zone} bytes do not fill {} bytes",
                bytes.len()
            );
        }
        Ok(Self { bytes, head, blocks })
    }

    /// The trailer in bytes that were parsed before.
    pub fn known(bytes: &'a [u8]) -> Self {
        let head = if bytes[4] == 1 { HEAD } else { HEAD + IDENTITY };
        Self { bytes, head, blocks: word(bytes, 8) as usize }
    }

    pub fn number(&self) -> u64 {
        double_word(self.bytes, 12)
    }

    /// The array that the chunk belongs to; `None` in version 1.
    pub fn identity(&self) -> Option<u64> {
        (self.head > HEAD).then(|| double_word(self.bytes, HEAD))
    }

    pub fn rows(&self) -> usize {
        word(self.bytes, 20) as usize
    }

    pub fn zone(&self) -> &'a [u8] {
        let start = self.head + 4 + 4 * self.blocks;
        &self.bytes[start..self.bytes.len() - FOOT]
    }

    /// Compare everything but the blocks; `front` is the header and the block starts. A trailer of
    /// version 1 belongs to any array.
    pub fn check(&self, front: &[u8], blocks: usize, due: Stated, rows: usize) -> Outcome<()> {
        if let Some(found) = self.identity().filter(|found| due.identity != Some(*found)) {
            return match due.identity {
                None => corrupt!("chunk trailer: its identity is {found:016x}, the array has no x_id"),
                Some(due) => {
                    corrupt!("chunk trailer: its identity is {found:016x}, the x_id of the array is {due:016x}")
                }
            };
        }
        if self.number() != due.number {
            return corrupt!("chunk trailer: this is chunk {}, not {}", self.number(), due.number);
        }
        if self.blocks != blocks {
            return corrupt!("chunk trailer: checksums of {} blocks, the chunk has {blocks}", self.blocks);
        }
        if self.rows() != rows {
            return corrupt!("chunk trailer: {} rows are claimed, the chunk holds {rows}", self.rows());
        }
        let fact = crc32c::crc32c_append(crc32c::crc32c(front), &self.bytes[..self.head]);
        compare("header", fact, word(self.bytes, self.head))
    }

    /// Append to `out` the trailer of the same chunk under another number, or in another array; `front` is
    /// its header and block starts. The checksums of the blocks stay, so that damage since they were made
    /// stays visible.
    pub fn moved(&self, front: &[u8], stated: Stated, out: &mut Vec<u8>) {
        let sums = self.head + 4;
        write(front, stated, self.rows(), &self.bytes[sums..sums + 4 * self.blocks], self.zone(), out);
    }

    /// Compare block `index`, whose bytes are `block`.
    pub fn check_block(&self, index: usize, block: &[u8]) -> Outcome<()> {
        let claim = word(self.bytes, self.head + 4 + 4 * index);
        let fact = crc32c::crc32c(block);
        if fact != claim { compare(&format!("block {index}"), fact, claim) } else { Ok(()) }
    }
}

/// The trailer at the start of `bytes`, which others may follow; without bytes there is none.
pub fn first(bytes: &[u8]) -> Outcome<&[u8]> {
    if bytes.is_empty() {
        return Ok(bytes);
    }
    if bytes.len() < LEAST || &bytes[..4] != MAGIC {
        return corrupt!("chunk trailer: {} bytes behind the chunk are no trailer", bytes.len());
    }
    // Version 2 has 8 bytes more.
    let (zone, blocks) = (usize::from(bytes[6]) | usize::from(bytes[7]) << 8, word(bytes, 8) as usize);
    let size = LEAST.saturating_add(if bytes[4] == 2 { 8 } else { 0 }).saturating_add(zone);
    let size = blocks.saturating_mul(4).saturating_add(size);
    match bytes.get(..size) {
        Some(trailer) => Ok(trailer),
        None => corrupt!("chunk trailer: it claims {size} bytes, {} are stored", bytes.len()),
    }
}

/// Where the front of a chunk ends: header and block starts, or all of a chunk without blocks.
pub fn front(header: &Header) -> usize {
    if header.special.is_some() { header.cbytes } else { header.blocks_start() }
}

/// Append the trailer of `chunk` to `out`: of version 2, or of version 1 without an identity.
pub fn pack(chunk: &[u8], stated: Stated, rows: usize, zone: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
    let header = Header::parse(chunk, chunk.len(), usize::MAX)?;
    let front = front(&header);
    let spans = Spans::of(&header, &chunk[header.header_bytes()..front])?;
    let mut sums = reserved(4 * spans.count())?;
    for index in 0..spans.count() {
        sums.extend_from_slice(&crc32c::crc32c(&chunk[spans.span(index)]).to_le_bytes());
    }
    write(&chunk[..front], stated, rows, &sums, zone, out);
    Ok(())
}

/// Append a trailer to `out`, given the front of the chunk and the checksums of its blocks.
fn write(front: &[u8], stated: Stated, rows: usize, sums: &[u8], zone: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[if stated.identity.is_some() { 2 } else { 1 }, 0]);
    out.extend_from_slice(&(zone.len() as u16).to_le_bytes());
    out.extend_from_slice(&(sums.len() as u32 / 4).to_le_bytes());
    out.extend_from_slice(&stated.number.to_le_bytes());
    out.extend_from_slice(&(rows as u32).to_le_bytes());
    if let Some(identity) = stated.identity {
        out.extend_from_slice(&identity.to_le_bytes());
    }
    let checksum = crc32c::crc32c_append(crc32c::crc32c(front), &out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(sums);
    out.extend_from_slice(zone);
    let length = out.len() - start + FOOT;
    out.extend_from_slice(&(length as u32).to_le_bytes());
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::encode::{Packer, Recipe, encode};
    use crate::chunk::encode2::{self, Split};
    use crate::chunk::filters::pipeline::{BYTEDELTA, DELTA, SHUFFLE};
    use crate::chunk::header::{Filter, HEADER_BYTES};
    use crate::chunk::scratch::Scratch;
    use crate::interrupt::Interrupt;

    fn packed(level: u8) -> Vec<u8> {
        let source: Vec<u8> = (0..10_000_usize).map(|index| (index / 7) as u8).collect();
        let recipe = Recipe { codec: Codec::Lz4, level, filter: Filter::None, typesize: 1, blocksize: 3000, gain: 0 };
        let mut packer = Packer::default();
        encode(&source, recipe, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
        packer.bytes().to_vec()
    }

    const SEVENTH: Stated = Stated { number: 7, identity: None };

    #[test]
    fn a_trailer_agrees_with_its_chunk_and_with_no_other() {
        for (level, identity) in [(0, None), (5, None), (0, Some(u64::MAX)), (5, Some(0))] {
            let mut chunk = packed(level);
            let mut bytes = Vec::new();
            let stated = Stated { identity, ..SEVENTH };
            pack(&chunk, stated, 10_000, b"zonezone", &mut bytes).unwrap();
            let trailer = Trailer::parse(&bytes).unwrap();
            assert_eq!((trailer.number(), trailer.rows(), trailer.zone()), (7, 10_000, &b"zonezone"[..]));
            assert_eq!(trailer.identity(), identity);
            let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
            let end = front(&header);
            let spans = Spans::of(&header, &chunk[HEADER_BYTES..end]).unwrap();
            trailer.check(&chunk[..end], spans.count(), stated, 10_000).unwrap();
            let eighth = Stated { number: 8, ..stated };
            assert!(trailer.check(&chunk[..end], spans.count(), eighth, 10_000).is_err());
            assert!(trailer.check(&chunk[..end], spans.count(), stated, 9_999).is_err());
            // A trailer without an identity belongs to any array.
            for other in [None, Some(1), Some(1 << 63)] {
                let outcome = trailer.check(&chunk[..end], spans.count(), Stated { identity: other, ..stated }, 10_000);
                assert_eq!(outcome.is_ok(), identity.is_none(), "{identity:?} in an array of {other:?}");
            }
            for index in 0..spans.count() {
                trailer.check_block(index, &chunk[spans.span(index)]).unwrap();
            }
            let span = spans.span(1);
            chunk[span.start] ^= 1;
            assert!(trailer.check_block(1, &chunk[span]).is_err());
        }
    }

    fn packed2(source: &[u8], level: u8, filters: &[(u8, u8)], dictionary: Option<&[u8]>) -> Vec<u8> {
        let (codec, split) = (Codec::Lz4, Split::Never);
        let recipe = encode2::Recipe { codec, level, filters, typesize: 4, blocksize: 1000, split, dictionary };
        let mut packer = Packer::default();
        encode2::encode(source, recipe, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
        packer.bytes().to_vec()
    }

    #[test]
    fn chunks_of_blosc_2_have_trailers() {
        let source: Vec<u8> = (0..10_000_u32).map(|index| (index / 7) as u8).collect();
        for (level, filters, blocks) in
            [(5, &[(DELTA, 0), (SHUFFLE, 0)][..], 10), (5, &[(SHUFFLE, 0), (BYTEDELTA, 0)], 10), (0, &[], 10)]
        {
            let mut chunk = packed2(&source, level, filters, None);
            let mut bytes = Vec::new();
            pack(&chunk, SEVENTH, 2500, b"", &mut bytes).unwrap();
            let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
            let (end, trailer) = (front(&header), Trailer::parse(&bytes).unwrap());
            let spans = Spans::of(&header, &chunk[header.header_bytes()..end]).unwrap();
            trailer.check(&chunk[..end], blocks, SEVENTH, 2500).unwrap();
            // The blocks begin where the front ends, and reach to the end of the chunk.
            assert_eq!((spans.span(0).start, spans.span(blocks - 1).end), (end, chunk.len()));
            for index in 0..blocks {
                trailer.check_block(index, &chunk[spans.span(index)]).unwrap();
            }
            for at in 0..chunk.len() {
                chunk[at] ^= 1;
                let block = (0..blocks).find(|index| spans.span(*index).contains(&at));
                let found = block.map(|index| trailer.check_block(index, &chunk[spans.span(index)]));
                assert!(found.unwrap_or_else(|| trailer.check(&chunk[..end], blocks, SEVENTH, 2500)).is_err(), "{at}");
                chunk[at] ^= 1;
            }
        }
        let repeated = packed2(&[1, 2, 3, 4].repeat(100), 5, &[], None);
        let mut bytes = Vec::new();
        pack(&repeated, SEVENTH, 100, b"", &mut bytes).unwrap();
        assert_eq!(repeated.len(), 36);
        Trailer::parse(&bytes).unwrap().check(&repeated, 0, SEVENTH, 100).unwrap();
        // Nothing covers a dictionary.
        let primed = packed2(&source, 5, &[], Some(&source[..500]));
        assert!(pack(&primed, SEVENTH, 2500, b"", &mut bytes).is_err());
    }

    /// A trailer of `blocks` blocks for a chunk that may have another number, with checksums that fit.
    fn sealed(chunk: &[u8], blocks: usize) -> Vec<u8> {
        let front = front(&Header::parse(chunk, chunk.len(), usize::MAX).unwrap());
        let mut bytes = [&MAGIC[..], &[1, 0, 0, 0], &(blocks as u32).to_le_bytes()].concat();
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(10_000_u32.to_le_bytes());
        bytes.extend(crc32c::crc32c_append(crc32c::crc32c(&chunk[..front]), &bytes).to_le_bytes());
        bytes.resize(bytes.len() + 4 * blocks, 0);
        bytes.extend(((bytes.len() + FOOT) as u32).to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn a_sealed_trailer_of_another_number_of_blocks_is_refused() {
        for level in [0, 5] {
            let chunk = packed(level);
            let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
            let front = &chunk[..front(&header)];
            for blocks in [0, 3, 4, 5, 100] {
                let bytes = sealed(&chunk, blocks);
                let outcome = Trailer::parse(&bytes).unwrap().check(front, 4, SEVENTH, 10_000);
                assert_eq!(outcome.is_ok(), blocks == 4, "{blocks} blocks");
            }
        }
    }

    #[test]
    fn a_trailer_moves_with_its_chunk() {
        for (level, identity) in [(0, None), (5, Some(9))] {
            let chunk = packed(level);
            let (mut old, mut moved, mut expected) = (Vec::new(), Vec::new(), Vec::new());
            pack(&chunk, SEVENTH, 10_000, b"zonezone", &mut old).unwrap();
            let stated = Stated { number: 3, identity };
            pack(&chunk, stated, 10_000, b"zonezone", &mut expected).unwrap();
            let header = Header::parse(&chunk, chunk.len(), usize::MAX).unwrap();
            Trailer::parse(&old).unwrap().moved(&chunk[..front(&header)], stated, &mut moved);
            assert_eq!(moved, expected);
        }
    }

    #[test]
    fn a_trailer_is_found_before_other_bytes() {
        let mut bytes = Vec::new();
        pack(&packed(5), SEVENTH, 10_000, b"zonezone", &mut bytes).unwrap();
        let size = bytes.len();
        for spare in [0, 1, 100] {
            bytes.resize(size + spare, 0xff);
            assert_eq!(first(&bytes).unwrap().len(), size);
        }
        assert!(first(&bytes[..size - 1]).is_err());
        assert!(first(&[0; 100]).is_err() && first(&[]).unwrap().is_empty());
    }

    #[test]
    fn no_flipped_bit_of_a_trailer_passes() {
        for identity in [None, Some(5)] {
            let mut bytes = Vec::new();
            pack(&packed(5), Stated { identity, ..SEVENTH }, 10_000, b"", &mut bytes).unwrap();
            for bit in 0..8 * bytes.len() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Trailer::parse(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// The length of a trailer follows from its version.
    #[test]
    fn a_sealed_trailer_of_another_version_is_refused() {
        for identity in [None, Some(5)] {
            let mut bytes = Vec::new();
            pack(&packed(5), Stated { identity, ..SEVENTH }, 10_000, b"zone", &mut bytes).unwrap();
            for version in 0..=u8::MAX {
                bytes[4] = version;
                let end = bytes.len() - 4;
                let checksum = crc32c::crc32c(&bytes[..end]);
                bytes[end..].copy_from_slice(&checksum.to_le_bytes());
                let known = version == if identity.is_none() { 1 } else { 2 };
                assert_eq!(Trailer::parse(&bytes).is_ok(), known, "version {version}");
            }
        }
    }
}
