//! The second half of a Blosc 2 header: filters, codec, and the special values of chunks without
//! blocks. Checked as far as these bytes alone allow.

use crate::chunk::filters::pipeline::{self, SLOTS};
use crate::chunk::header::{FLAG_BITSHUFFLE, FLAG_DELTA, FLAG_SHUFFLE, HEADER_BYTES};
use crate::error::{Outcome, malformed, unsupported};

/// Flags in the last byte.
pub const FLAG2_DICTIONARY: u8 = 0x01;
const FLAG2_BIG_ENDIAN: u8 = 0x02;
const FLAG2_LAZY: u8 = 0x08;
const FLAG2_SPECIAL: u8 = 0x70;
/// Flag in the byte before: blocks have variable length.
pub const FLAG3_VARIABLE: u8 = 0x01;

/// The second half of an extended header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header2 {
    pub filters: [(u8, u8); SLOTS],
    pub codec: u8,
    pub flags3: u8,
    pub flags2: u8,
}

/// The repeated value of a chunk without blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Zeros,
    Nan,
    /// The value lies behind the header, up to the end.
    Repeated,
    /// Never written; decoded as zeros.
    Uninitialised,
}

impl Special {
    pub fn parse(flags2: u8) -> Outcome<Option<Self>> {
        Ok(match (flags2 & FLAG2_SPECIAL) >> 4 {
            0 => None,
            1 => Some(Self::Zeros),
            2 => Some(Self::Nan),
            3 => Some(Self::Repeated),
            4 => Some(Self::Uninitialised),
            other => return unsupported!("Blosc chunk: special value {other} is not defined"),
        })
    }

    pub fn number(self) -> u8 {
        match self {
            Self::Zeros => 1,
            Self::Nan => 2,
            Self::Repeated => 3,
            Self::Uninitialised => 4,
        }
    }
}

impl Header2 {
    /// Parse the bytes behind the first half.
    pub fn parse(raw: &[u8; HEADER_BYTES], version: u8) -> Outcome<Self> {
        let (flags3, flags2) = (raw[14], raw[15]);
        if flags2 & FLAG2_LAZY != 0 {
            return malformed!("Blosc chunk: marked as lazy, which no stored chunk can be");
        }
        if flags2 & !(FLAG2_DICTIONARY | FLAG2_BIG_ENDIAN | FLAG2_SPECIAL) != 0 {
            return unsupported!("Blosc chunk: blosc2_flags {flags2:#04x} ask for what Ingot does not decode");
        }
        if flags3 & !FLAG3_VARIABLE != 0 {
            return unsupported!("Blosc chunk: blosc2_flags2 {flags3:#04x} ask for what Ingot does not decode");
        }
        let mut filters = [(0, 0); SLOTS];
        // The alpha of Blosc 2 had five slots.
        let slots = if version == 3 { SLOTS - 1 } else { SLOTS };
        for (slot, filter) in filters.iter_mut().enumerate().take(slots) {
            *filter = (raw[slot], raw[8 + slot]);
        }
        Ok(Self { filters, codec: raw[6], flags3, flags2 })
    }

    pub fn pack(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        for (slot, (id, meta)) in self.filters.into_iter().enumerate() {
            raw[slot] = id;
            raw[8 + slot] = meta;
        }
        raw[6] = self.codec;
        raw[14] = self.flags3;
        raw[15] = self.flags2;
        raw
    }
}

/// The filters that the flags of a header of 16 bytes stand for.
pub fn implied(flags: u8) -> [(u8, u8); SLOTS] {
    let mut filters = [(0, 0); SLOTS];
    filters[4].0 = if flags & FLAG_DELTA != 0 { pipeline::DELTA } else { 0 };
    filters[5].0 = match (flags & FLAG_SHUFFLE != 0, flags & FLAG_BITSHUFFLE != 0) {
        (true, _) => pipeline::SHUFFLE,
        (_, true) => pipeline::BITSHUFFLE,
        _ => 0,
    };
    filters
}

/// Whether the chunk is a special one, before the rest is parsed.
pub fn is_special(second: &[u8; HEADER_BYTES]) -> bool {
    second[15] & FLAG2_SPECIAL != 0
}
