//! The zone map of a chunk: its smallest and largest item, how many are no number, and
//! whether they ascend. The bytes are those of `ingot.formats.trailer.Zone`.

use std::cmp::Ordering;

/// The widest text that has a zone map.
pub const WIDEST: usize = 256;

/// How items are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Signed,
    Unsigned,
    Float,
    /// Dates and durations: the lowest number is none.
    Time,
    Bytes,
    Text,
}

/// Items of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items {
    pub order: Order,
    pub size: usize,
    pub big_endian: bool,
}

impl Items {
    /// From NumPy's letter for the kind of a type; `None` for types without order.
    pub fn parse(kind: char, size: usize, big_endian: bool) -> Option<Self> {
        let order = match (kind, size) {
            ('i', 1 | 2 | 4 | 8) => Order::Signed,
            ('u', 1 | 2 | 4 | 8) | ('b', 1) => Order::Unsigned,
            ('f', 2 | 4 | 8) => Order::Float,
            ('m' | 'M', 8) => Order::Time,
            ('S', 1..=WIDEST) => Order::Bytes,
            ('U', 4..=WIDEST) => Order::Text,
            _ => return None,
        };
        Some(Self { order, size, big_endian })
    }

    /// The zone map of `bytes`, which hold whole items; empty when there are none.
    pub fn zone(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.len() < self.size {
            return Vec::new();
        }
        let found = match (self.order, self.size) {
            (Order::Unsigned, 1) => self.numbers(bytes, |raw: [u8; 1]| raw[0], never),
            (Order::Unsigned, 2) => self.numbers(bytes, u16::from_le_bytes, never),
            (Order::Unsigned, 4) => self.numbers(bytes, u32::from_le_bytes, never),
            (Order::Unsigned, _) => self.numbers(bytes, u64::from_le_bytes, never),
            (Order::Signed, 1) => self.numbers(bytes, i8::from_le_bytes, never),
            (Order::Signed, 2) => self.numbers(bytes, i16::from_le_bytes, never),
            (Order::Signed, 4) => self.numbers(bytes, i32::from_le_bytes, never),
            (Order::Signed, _) => self.numbers(bytes, i64::from_le_bytes, never),
            (Order::Time, _) => self.numbers(bytes, i64::from_le_bytes, |number| *number == i64::MIN),
            (Order::Float, 2) => self.numbers(bytes, |raw: [u8; 2]| half(u16::from_le_bytes(raw)), |x| x.is_nan()),
            (Order::Float, 4) => self.numbers(bytes, f32::from_le_bytes, |number| number.is_nan()),
            (Order::Float, _) => self.numbers(bytes, f64::from_le_bytes, |number| number.is_nan()),
            (Order::Bytes | Order::Text, _) => self.texts(bytes),
        };
        self.pack(bytes, found)
    }

    fn pack(&self, bytes: &[u8], found: Found) -> Vec<u8> {
        let width = self.size.div_ceil(8) * 8;
        let mut zone = vec![0; 2 * width];
        if let Some((low, high)) = found.ends {
            for (at, index) in [(0, low), (width, high)] {
                let item = &bytes[index * self.size..(index + 1) * self.size];
                let out = &mut zone[at..at + self.size];
                out.copy_from_slice(item);
                if self.big_endian {
                    let part = if self.order == Order::Text { 4 } else { self.size };
                    out.chunks_exact_mut(part).for_each(<[u8]>::reverse);
                }
            }
        }
        zone.extend_from_slice(&(found.nulls as u64).to_le_bytes());
        zone.extend_from_slice(&u64::from(found.ascending).to_le_bytes());
        zone
    }

    fn numbers<const N: usize, T: Copy + PartialOrd>(
        &self,
        bytes: &[u8],
        parse: impl Fn([u8; N]) -> T,
        is_null: impl Fn(&T) -> bool,
    ) -> Found {
        let big_endian = self.big_endian;
        let (items, _) = bytes.as_chunks::<N>();
        let at = |index: usize| {
            let mut raw = items[index];
            if big_endian {
                raw.reverse();
            }
            parse(raw)
        };
        find(items.len(), at, is_null)
    }

    fn texts(&self, bytes: &[u8]) -> Found {
        let count = bytes.len() / self.size;
        let item = |index: usize| &bytes[index * self.size..(index + 1) * self.size];
        let compare = |one: usize, other: usize| match (self.order, self.big_endian) {
            // Text of four bytes each with the highest first compares as its bytes do.
            (Order::Bytes, _) | (Order::Text, true) => item(one).cmp(item(other)),
            _ => letters(item(one)).cmp(letters(item(other))),
        };
        let (mut low, mut high, mut ascending) = (0, 0, true);
        for index in 1..count {
            ascending = ascending && compare(index - 1, index) != Ordering::Greater;
            if compare(index, low) == Ordering::Less {
                low = index;
            }
            if compare(index, high) == Ordering::Greater {
                high = index;
            }
        }
        Found { ends: Some((low, high)), nulls: 0, ascending }
    }
}

/// Which items are the ends, by their places.
struct Found {
    ends: Option<(usize, usize)>,
    nulls: usize,
    ascending: bool,
}

fn never<T>(_: &T) -> bool {
    false
}

fn letters(item: &[u8]) -> impl Iterator<Item = u32> {
    item.as_chunks::<4>().0.iter().map(|letter| u32::from_le_bytes(*letter))
}

/// A number of 16 bits, in one of 32.
fn half(raw: u16) -> f32 {
    let (sign, exponent, fraction) = (raw >> 15, raw >> 10 & 31, raw & 1023);
    let magnitude = match exponent {
        31 if fraction != 0 => return f32::NAN,
        31 => f32::INFINITY,
        0 => f32::from(fraction) * 2f32.powi(-24),
        _ => (1.0 + f32::from(fraction) / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// How many items are looked at together.
const LANES: usize = 512;

fn find<T: Copy + PartialOrd>(count: usize, at: impl Fn(usize) -> T, is_null: impl Fn(&T) -> bool) -> Found {
    let mut nulls = 0;
    let mut ends: Option<((usize, T), (usize, T))> = None;
    let mut start = 0;
    while start < count {
        let end = count.min(start + LANES);
        // Plain loops over values alone are what compilers turn into vector code; the places
        // are looked for only where a run of items has a new end.
        let (mut low, mut high, mut some) = (at(start), at(start), false);
        for index in start..end {
            let item = at(index);
            if is_null(&item) {
                nulls += 1;
                continue;
            }
            if !some {
                (low, high, some) = (item, item, true);
            }
            low = if item < low { item } else { low };
            high = if item > high { item } else { high };
        }
        if some {
            let place = |wanted: T| (start..end).find(|index| at(*index) == wanted).unwrap_or(start);
            ends = Some(match ends {
                None => ((place(low), low), (place(high), high)),
                Some((least, most)) => (
                    if low < least.1 { (place(low), low) } else { least },
                    if high > most.1 { (place(high), high) } else { most },
                ),
            });
        }
        start = end;
    }
    let ascending = nulls == 0 && (1..count).all(|index| at(index - 1) <= at(index));
    Found { ends: ends.map(|(low, high)| (low.0, high.0)), nulls, ascending }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_among_numbers_and_what_is_none() {
        let items = Items::parse('f', 8, false).unwrap();
        let numbers = [3.0_f64, f64::NAN, -1.5, 7.25, 7.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let zone = items.zone(&bytes);
        assert_eq!(zone[..8], (-1.5_f64).to_le_bytes());
        assert_eq!(zone[8..16], 7.25_f64.to_le_bytes());
        assert_eq!(zone[16..], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn halves_are_in_order() {
        let mut before = f32::NEG_INFINITY;
        for raw in (0x8000..=0xfbff_u16).rev().chain(0..=0x7c00) {
            assert!(half(raw) >= before, "{raw:#06x}");
            before = half(raw);
        }
        assert!(half(0x7e00).is_nan() && half(0x3c00) == 1.0);
    }

    #[test]
    fn text_is_compared_by_letters() {
        let big = Items::parse('U', 8, true).unwrap();
        let bytes: Vec<u8> = ['b', 'a', 'a', 'z'].iter().flat_map(|letter| (*letter as u32).to_be_bytes()).collect();
        let zone = big.zone(&bytes);
        assert_eq!(zone[..8], [b'a', 0, 0, 0, b'z', 0, 0, 0]);
        assert_eq!(zone[8..16], [b'b', 0, 0, 0, b'a', 0, 0, 0]);
        assert!(Items::parse('V', 8, false).is_none() && Items::parse('S', 257, false).is_none());
    }
}
