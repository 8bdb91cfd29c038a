//! Checksums of every kind that may follow a chunk: sums of 32 bits, which are stored in little-endian
//! order, and digests.

mod early;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod md5;
#[cfg(target_arch = "x86_64")]
mod pairs;
#[cfg(target_arch = "x86_64")]
mod sha512;

use crate::error::{Error, Kind, Outcome, corrupt};
use sha2::Digest as _;
use std::fmt::{self, Display, Formatter};

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Adler32,
    Crc32,
    Crc32c,
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The bytes of a checksum as they are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    bytes: [u8; 64],
    length: usize,
}

impl Digest {
    pub fn of(stored: &[u8]) -> Self {
        let mut bytes = [0; 64];
        bytes[..stored.len()].copy_from_slice(stored);
        Self { bytes, length: stored.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Display for Digest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if let Ok(word) = <[u8; 4]>::try_from(self.bytes()) {
            return write!(formatter, "{:#010x}", u32::from_le_bytes(word));
        }
        self.bytes().iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Checksum {
    const ALL: [(&str, Self); 9] = [
        ("adler32", Self::Adler32),
        ("crc32", Self::Crc32),
        ("crc32c", Self::Crc32c),
        ("md5", Self::Md5),
        ("sha1", Self::Sha1),
        ("sha224", Self::Sha224),
        ("sha256", Self::Sha256),
        ("sha384", Self::Sha384),
        ("sha512", Self::Sha512),
    ];

    /// The kind of a name; `None` for "none".
    pub fn parse(name: &str) -> Outcome<Option<Self>> {
        if name == "none" {
            return Ok(None);
        }
        match Self::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, kind)) => Ok(Some(*kind)),
            None => Err(Error::new(Kind::Argument, format!("{name:?} is no kind of checksum"))),
        }
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// How many bytes are stored.
    pub fn size(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32 | Self::Crc32c => 4,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub fn digest(self, data: &[u8]) -> Digest {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Sha384 => {
                if let Some(digest) = sha512::sha384(data) {
                    return Digest::of(&digest);
                }
            }
            Self::Sha512 => {
                if let Some(digest) = sha512::sha512(data) {
                    return Digest::of(&digest);
                }
            }
            _ => {}
        }
        match self {
            Self::Adler32 => Digest::of(&libdeflater::adler32(data).to_le_bytes()),
            Self::Crc32 => Digest::of(&libdeflater::crc32(data).to_le_bytes()),
            Self::Crc32c => Digest::of(&crc32c::crc32c(data).to_le_bytes()),
            Self::Md5 => Digest::of(&md5::md5(data)),
            Self::Sha1 => Digest::of(&sha1::Sha1::digest(data)),
            Self::Sha224 => Digest::of(&sha2::Sha224::digest(data)),
            Self::Sha256 => Digest::of(&sha2::Sha256::digest(data)),
            Self::Sha384 => Digest::of(&sha2::Sha384::digest(data)),
            Self::Sha512 => Digest::of(&sha2::Sha512::digest(data)),
        }
    }

    /// The checksums of several buffers, which takes less time than one after the other for some kinds.
    pub fn digests(self, buffers: &[&[u8]]) -> Vec<Digest> {
        let together = |some: &[&[u8]]| {
            #[cfg(target_arch = "x86_64")]
            if let Some(found) = pairs::digests(self, some).or_else(|| lanes::digests(self, some)) {
                return found;
            }
            some.iter().map(|buffer| self.digest(buffer)).collect()
        };
        buffers.chunks(Self::TOGETHER).flat_map(together).collect()
    }

    /// The most buffers that `digests` works on together.
    const TOGETHER: usize = 16;

    /// How many buffers are worth being handed to `digests` together; 1 where that gains nothing.
    pub fn together(self) -> usize {
        #[cfg(target_arch = "x86_64")]
        if pairs::serves(self) {
            return 2;
        }
        #[cfg(target_arch = "x86_64")]
        if lanes::fewest(self).is_some() {
            return if self.size() > 32 { Self::TOGETHER / 2 } else { Self::TOGETHER };
        }
        1
    }

    /// The most bytes that a checksum takes.
    pub const MOST_BYTES: usize = 64;

    /// The bytes in front of the checksum at the end of `stored`, which they agree with.
    pub fn checked(self, stored: &[u8]) -> Outcome<&[u8]> {
        let Some((inside, claim)) = self.split(stored) else {
            return corrupt!("{}: {} bytes hold no checksum", self.name(), stored.len());
        };
        let (claim, fact) = (Digest::of(claim), self.digest(inside));
        if claim != fact {
            return corrupt!("{}: the checksum is {fact}, {claim} is stored", self.name());
        }
        Ok(inside)
    }

    /// The bytes in front of the checksum, and the checksum; `None` when there are too few.
    pub fn split(self, stored: &[u8]) -> Option<(&[u8], &[u8])> {
        stored.split_at_checked(stored.len().checked_sub(self.size())?)
    }
}

/// The CRC-32 of two parts one behind the other, given that of each and the length of the second.
///
/// A CRC is a polynomial over two elements, modulo another one: bytes behind it multiply it by a power
/// of x, and add their own. The lowest power is the highest bit.
pub fn joined_crc32(first: u32, second: u32, length: usize) -> u32 {
    const ONE: u32 = 1 << 31;
    let (mut power, mut product) = (ONE >> 1, first);
    let mut exponent = 8 * length as u64;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product = multiply_crc32(product, power);
        }
        power = multiply_crc32(power, power);
        exponent >>= 1;
    }
    product ^ second
}

fn multiply_crc32(one: u32, mut other: u32) -> u32 {
    const MODULUS: u32 = 0xedb8_8320;
    let mut product = 0;
    for bit in (0..32).rev() {
        if one >> bit & 1 == 1 {
            product ^= other;
        }
        other = other >> 1 ^ if other & 1 == 1 { MODULUS } else { 0 };
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_of_two_parts_is_that_of_the_whole() {
        let data: Vec<u8> = (0..100_000u32).map(|at| (at.wrapping_mul(at) / 7) as u8).collect();
        for cut in [0, 1, 2, 7, 255, 4096, 65_537, data.len() - 1, data.len()] {
            let (first, second) = data.split_at(cut);
            let joined = joined_crc32(libdeflater::crc32(first), libdeflater::crc32(second), second.len());
            assert_eq!(joined, libdeflater::crc32(&data), "cut at {cut}");
        }
    }

    /// Values of RFC 1950, the catalogue of CRC algorithms, RFC 1321, FIPS 180-4.
    const OF_ABC: [(&str, &str); 9] = [
        ("adler32", "0x024d0127"),
        ("crc32", "0x352441c2"),
        ("crc32c", "0x364b3fb7"),
        ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("sha224", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
        ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "sha384",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed\
             8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            "sha512",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
    ];

    #[test]
    fn known_values() {
        for (name, value) in OF_ABC {
            let kind = Checksum::parse(name).unwrap().unwrap();
            assert_eq!((kind.name(), kind.digest(b"abc").to_string().as_str()), (name, value));
            assert_eq!(kind.digest(b"abc").bytes().len(), kind.size());
        }
        assert_eq!(Checksum::parse("none").unwrap(), None);
        assert_eq!(Checksum::parse("sha3").unwrap_err().kind, Kind::Argument);
    }

    #[test]
    fn every_flipped_bit_is_found_and_too_few_bytes_hold_no_checksum() {
        for (name, _) in OF_ABC {
            let kind = Checksum::parse(name).unwrap().unwrap();
            let mut stored = [b"abc", kind.digest(b"abc").bytes()].concat();
            assert_eq!(kind.checked(&stored).unwrap(), b"abc");
            for bit in 0..8 * stored.len() {
                stored[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(kind.checked(&stored).unwrap_err().kind, Kind::Corruption);
                stored[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(kind.checked(&stored[..kind.size() - 1]).is_err());
            assert!(kind.checked(kind.digest(b"").bytes()).unwrap().is_empty());
        }
    }
}
