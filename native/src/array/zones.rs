//! The zone map of a chunk: its smallest and largest item, how many items are null, and whether they
//! ascend. The bytes are the same as those of the Python twin.

use crate::array::layout::Layout;
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::workspace::Workspace;
use crate::array::{chunk_file, rows, slots};
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::interrupt::Interrupt;
use crate::memory::reserved;
use std::cmp::Ordering;

/// Read the zone maps of chunks, empty for those that have none.
pub fn read(
    layout: &Layout,
    numbers: &[usize],
    held: Option<&Held<'_>>,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Vec<u8>>> {
    let grid = &layout.grid;
    let stored = Stored::open(layout, held, false)?;
    let mut zones = reserved(numbers.len())?;
    for number in numbers {
        interrupt.check()?;
        if layout.coding.slotted && slots::zoned(grid).is_none() {
            zones.push(Vec::new());
            continue;
        }
        if !(layout.coding.framed || layout.coding.slotted) || number.saturating_mul(grid.chunk[0]) >= grid.shape[0] {
            return Err(Error::new(Kind::Argument, format!("chunk {number} has no zone map")));
        }
        let key = stored.key(grid, &[*number]);
        let shown = if key.is_empty() { format!("chunk {number}") } else { key.clone() };
        match stored.chunk(grid, &[*number], &key)? {
            Chunk::Stored(extent) => {
                let slotted = layout.coding.slotted;
                let due = if slotted { slots::expected(grid, *number) } else { rows::expected(grid, *number) };
                let zone = chunk_file::zone(&extent, &due, grid.rows(*number), &mut workspace.buffers);
                zones.push(zone.map_err(|error| Error::new(error.kind, format!("{shown}: {}", error.text)))?);
            }
            _ if layout.coding.slotted => zones.push(Vec::new()),
            _ => return corrupt!("{shown} is missing"),
        }
    }
    Ok(zones)
}

/// The widest text that has a zone map.
pub const WIDEST: usize = 256;

/// How items are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Signed,
    Unsigned,
    Float,
    /// Dates and durations: the lowest number is NaT.
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
    /// Parse NumPy's letter for the kind of a type; `None` for types without order.
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

    /// The zone map of `bytes`, which hold whole items; empty without items.
    pub fn zone(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.len() < self.size {
            return Vec::new();
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { self.zone_avx2(bytes) };
        }
        self.zone_of_items(bytes)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn zone_avx2(&self, bytes: &[u8]) -> Vec<u8> {
        self.zone_of_items(bytes)
    }

    #[inline(always)]
    fn zone_of_items(&self, bytes: &[u8]) -> Vec<u8> {
        match (self.order, self.size) {
            (Order::Unsigned, 1) => self.numbers(bytes, u8::from_le_bytes, u8::to_le_bytes),
            (Order::Unsigned, 2) => self.numbers(bytes, u16::from_le_bytes, u16::to_le_bytes),
            (Order::Unsigned, 4) => self.numbers(bytes, u32::from_le_bytes, u32::to_le_bytes),
            (Order::Unsigned, _) => self.numbers(bytes, u64::from_le_bytes, u64::to_le_bytes),
            (Order::Signed, 1) => self.numbers(bytes, i8::from_le_bytes, i8::to_le_bytes),
            (Order::Signed, 2) => self.numbers(bytes, i16::from_le_bytes, i16::to_le_bytes),
            (Order::Signed, 4) => self.numbers(bytes, i32::from_le_bytes, i32::to_le_bytes),
            (Order::Signed, _) => self.numbers(bytes, i64::from_le_bytes, i64::to_le_bytes),
            (Order::Time, _) => self.numbers(bytes, |raw| Time(i64::from_le_bytes(raw)), |time| time.0.to_le_bytes()),
            (Order::Float, 2) => self.numbers(bytes, Half::parse, Half::pack),
            (Order::Float, 4) => self.numbers(bytes, f32::from_le_bytes, f32::to_le_bytes),
            (Order::Float, _) => self.numbers(bytes, f64::from_le_bytes, f64::to_le_bytes),
            (Order::Bytes | Order::Text, _) => self.texts(bytes),
        }
    }

    /// The zone map of `held` items, of which `zone` is the zone map and `last` the last one, and of
    /// `added` behind them. `None` where it takes all items to find it.
    pub fn zone_behind(&self, zone: &[u8], held: usize, last: &[u8], added: &[u8]) -> Option<Vec<u8>> {
        let width = self.size.div_ceil(8) * 8;
        if self.big_endian || zone.len() != 2 * width + 16 || added.len() < self.size {
            return None;
        }
        let word = |zone: &[u8], at: usize| zone[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let (nulls, ascending) = (word(zone, 2 * width), word(zone, 2 * width + 8) == 1);
        let mut items = reserved(added.len() + 2 * self.size).ok()?;
        if nulls < held as u64 {
            items.extend_from_slice(&zone[..self.size]);
            items.extend_from_slice(&zone[width..width + self.size]);
        }
        items.extend_from_slice(added);
        let mut joined = self.zone(&items);
        items.clear();
        items.extend_from_slice(last);
        items.extend_from_slice(added);
        let ascending = ascending && word(&self.zone(&items), 2 * width + 8) == 1;
        let nulls = word(&joined, 2 * width).checked_add(nulls)?;
        joined[2 * width..2 * width + 8].copy_from_slice(&nulls.to_le_bytes());
        joined[2 * width + 8..].copy_from_slice(&u64::from(ascending).to_le_bytes());
        Some(joined)
    }

    /// Whether all of some items ascend, as their zone map says; found out by parts.
    pub fn all_ascend(&self, bytes: &[u8]) -> bool {
        const PART: usize = 64;
        let part = PART * self.size;
        let ascends = |start: usize| {
            // With the last item of the part before.
            let part = &bytes[start.saturating_sub(self.size)..bytes.len().min(start + part)];
            Zone::parse(&self.zone(part), self.size).is_none_or(|zone| zone.ascending)
        };
        (0..bytes.len()).step_by(part).all(ascends)
    }

    /// Whether an item, which is not null, is not above another one.
    fn ascend(&self, one: &[u8], other: &[u8]) -> bool {
        let found = self.zone(&[one, other].concat());
        Zone::parse(&found, self.size).is_some_and(|zone| zone.ascending)
    }

    #[inline(always)]
    fn numbers<const N: usize, T: Item>(
        &self,
        bytes: &[u8],
        parse: impl Fn([u8; N]) -> T,
        pack: impl Fn(T) -> [u8; N],
    ) -> Vec<u8> {
        let (items, _) = bytes.as_chunks::<N>();
        let found = if self.big_endian {
            scan(items, |mut raw: [u8; N]| {
                raw.reverse();
                parse(raw)
            })
        } else {
            scan(items, parse)
        };
        let none = found.nulls == items.len();
        let end = |item: T| if none { [0; N] } else { pack(item) };
        packed(&end(found.low), &end(found.high), found.nulls, found.ascending)
    }

    fn texts(&self, bytes: &[u8]) -> Vec<u8> {
        let items = || bytes.chunks_exact(self.size);
        let compare = |one: &[u8], other: &[u8]| match (self.order, self.big_endian) {
            // Characters of four bytes, the highest byte first, compare as their bytes do.
            (Order::Bytes, _) | (Order::Text, true) => one.cmp(other),
            _ => letters(one).cmp(letters(other)),
        };
        let (mut low, mut high, mut before, mut ascending) = (bytes, bytes, bytes, true);
        for item in items() {
            let first = before.len() != self.size;
            ascending = ascending && (first || compare(before, item) != Ordering::Greater);
            before = item;
            // Among ascending items the first is the lowest and the last the highest.
            if first || (!ascending && compare(item, low) == Ordering::Less) {
                low = item;
            }
            if first || ascending || compare(item, high) == Ordering::Greater {
                high = item;
            }
        }
        let (mut low, mut high) = (low.to_vec(), high.to_vec());
        if self.order == Order::Text && self.big_endian {
            for end in [&mut low, &mut high] {
                end.chunks_exact_mut(4).for_each(<[u8]>::reverse);
            }
        }
        packed(&low, &high, 0, ascending)
    }
}

/// How the zone map of a chunk changes when some of its items do: first all blocks that change are
/// removed, as they were, then they are added, as they are, in the same order.
pub struct ZoneChange<'a> {
    items: Items,
    zone: Zone<'a>,
    /// How many items the chunk has.
    count: usize,
    /// The ends and the nulls of what was removed and added.
    removed: Part,
    added: Part,
    /// The first and the last item of each block that was removed.
    edges: Vec<u8>,
    /// Whether each block that was added ascends.
    ascending: bool,
    /// Whether the items at the edges of all blocks moved inwards, if at all.
    inside: bool,
}

/// The parts of a zone map.
#[derive(Clone, Copy)]
struct Zone<'a> {
    low: &'a [u8],
    high: &'a [u8],
    nulls: usize,
    ascending: bool,
}

impl<'a> Zone<'a> {
    /// Parse the zone map of items of `size` bytes; `None` for bytes that are none.
    fn parse(bytes: &'a [u8], size: usize) -> Option<Self> {
        let width = size.div_ceil(8) * 8;
        if bytes.len() != 2 * width + 16 {
            return None;
        }
        let word = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let nulls = usize::try_from(word(2 * width)).ok()?;
        let ascending = word(2 * width + 8) == 1;
        Some(Self { low: &bytes[..size], high: &bytes[width..width + size], nulls, ascending })
    }
}

/// Some items of a chunk: how many, how many of them are null, and the lowest and the highest of each
/// block.
#[derive(Default)]
struct Part {
    count: usize,
    nulls: usize,
    ends: Vec<u8>,
}

impl<'a> ZoneChange<'a> {
    /// `zone` is the zone map of the `count` items of a chunk. `None` where that cannot change by parts.
    pub fn new(items: Items, zone: &'a [u8], count: usize) -> Option<Self> {
        let zone = Zone::parse(zone, items.size).filter(|zone| !items.big_endian && zone.nulls <= count)?;
        let (removed, added, edges) = (Part::default(), Part::default(), Vec::new());
        Some(Self { items, zone, count, removed, added, edges, ascending: true, inside: true })
    }

    /// Remove the items of a block, as they were.
    pub fn remove(&mut self, block: &[u8]) {
        self.remove_some(block);
        self.note_edges(block);
    }

    /// Remove some items of blocks, whose edges are noted apart.
    pub fn remove_some(&mut self, items: &[u8]) {
        self.removed.count(&self.items, items);
    }

    /// Note the first and the last item of a block that changes in part.
    pub fn note_edges(&mut self, block: &[u8]) {
        let size = self.items.size;
        self.edges.extend_from_slice(&block[..size]);
        self.edges.extend_from_slice(&block[block.len() - size..]);
    }

    /// Add the items of a block, as they are; `place` is its place among those that were removed.
    pub fn add(&mut self, place: usize, block: &[u8]) {
        let ascending = self.added.count(&self.items, block);
        self.compare(place, block, ascending);
    }

    /// Add the items that were removed by `remove_some`, as they are.
    pub fn add_some(&mut self, items: &[u8]) {
        self.added.count(&self.items, items);
    }

    /// Compare the order of a block of which some items were added with that before.
    pub fn compare_edges(&mut self, place: usize, block: &[u8]) {
        let ascends = |part: &[u8]| {
            let found = self.items.zone(part);
            Zone::parse(&found, self.items.size).is_none_or(|zone| zone.ascending)
        };
        // Items that are in no order show it soon.
        let first = &block[..block.len().min(64 * self.items.size)];
        let ascending = self.ascending && ascends(first) && ascends(block);
        self.compare(place, block, ascending);
    }

    /// Let the items of a block that did not change say how low and how high the chunk reaches, too.
    pub fn add_others(&mut self, block: &[u8]) {
        self.added.reach(&self.items, block);
    }

    fn compare(&mut self, place: usize, block: &[u8], ascending: bool) {
        let size = self.items.size;
        self.ascending &= ascending;
        if !self.zone.ascending {
            return;
        }
        // Among ascending items, an edge that moves inwards stays in order with its neighbour.
        let (first, last) = self.edges[2 * size * place..][..2 * size].split_at(size);
        self.inside &=
            self.items.ascend(first, &block[..size]) && self.items.ascend(&block[block.len() - size..], last);
    }

    /// The zone map of all items; `None` where it takes all of them to find it.
    pub fn zone(&self) -> Option<Vec<u8>> {
        let nulls = self.zone.nulls.checked_sub(self.removed.nulls)? + self.added.nulls;
        match (nulls == 0 && self.ascending, self.zone.ascending && self.inside) {
            (false, _) => self.zone_of(false),
            (true, true) => self.zone_of(true),
            // The other items may be in order or not.
            (true, false) => None,
        }
    }

    /// The same where it is known whether all items ascend.
    pub fn zone_of(&self, ascending: bool) -> Option<Vec<u8>> {
        let Self { items, zone, count, removed, added, .. } = self;
        let (size, width) = (items.size, items.size.div_ceil(8) * 8);
        let other_nulls = zone.nulls.checked_sub(removed.nulls)?;
        let others = count.checked_sub(removed.count)?.checked_sub(other_nulls)?;
        let nulls = other_nulls + added.nulls;
        let mut ends = reserved(added.ends.len() + 2 * size).ok()?;
        if others > 0 {
            // One of the other items is the lowest of all, unless that was removed. Then the new items
            // must reach as low; and as high in the same way.
            let reaches = |part: &Part| {
                let found = items.zone(&part.ends);
                Zone::parse(&found, size).map_or((false, false), |found| {
                    (items.ascend(found.low, zone.low), items.ascend(zone.high, found.high))
                })
            };
            let (removed, added) = (reaches(removed), reaches(added));
            if (removed.0 && !added.0) || (removed.1 && !added.1) {
                return None;
            }
            ends.extend_from_slice(zone.low);
            ends.extend_from_slice(zone.high);
        }
        ends.extend_from_slice(&added.ends);
        let mut found = items.zone(&ends);
        if found.is_empty() {
            found = packed(&vec![0; size], &vec![0; size], 0, false);
        }
        found[2 * width..2 * width + 8].copy_from_slice(&(nulls as u64).to_le_bytes());
        found[2 * width + 8..].copy_from_slice(&u64::from(ascending).to_le_bytes());
        Some(found)
    }
}

impl Part {
    /// Count the items of a block, and return whether they ascend.
    fn count(&mut self, items: &Items, block: &[u8]) -> bool {
        let Some((nulls, ascending)) = self.reach(items, block) else { return true };
        self.count += block.len() / items.size;
        self.nulls += nulls;
        ascending
    }

    /// Note the ends of a block, and return how many of its items are null, and whether all ascend.
    fn reach(&mut self, items: &Items, block: &[u8]) -> Option<(usize, bool)> {
        let found = items.zone(block);
        let zone = Zone::parse(&found, items.size)?;
        if zone.nulls < block.len() / items.size {
            self.ends.extend_from_slice(zone.low);
            self.ends.extend_from_slice(zone.high);
        }
        Some((zone.nulls, zone.ascending))
    }
}

fn packed(low: &[u8], high: &[u8], nulls: usize, ascending: bool) -> Vec<u8> {
    let width = low.len().div_ceil(8) * 8;
    let mut zone = vec![0; 2 * width];
    zone[..low.len()].copy_from_slice(low);
    zone[width..width + high.len()].copy_from_slice(high);
    zone.extend_from_slice(&(nulls as u64).to_le_bytes());
    zone.extend_from_slice(&u64::from(ascending).to_le_bytes());
    zone
}

fn letters(item: &[u8]) -> impl Iterator<Item = u32> {
    item.as_chunks::<4>().0.iter().map(|letter| u32::from_le_bytes(*letter))
}

/// An item with an order, in which some values may be null.
trait Item: Copy + PartialOrd {
    /// Not below any item, and not above any: the initial values of the search.
    const MOST: Self;
    const LEAST: Self;
    fn is_null(self) -> bool;
    /// Whether other bytes stand for the same number, so that it matters which of them are taken for an end.
    fn has_twin(self) -> bool;
}

macro_rules! items {
    ($($kind:ident: $least:expr, $most:expr, $is_null:expr, $has_twin:expr;)*) => {$(
        impl Item for $kind {
            const MOST: Self = $most;
            const LEAST: Self = $least;
            #[inline(always)]
            fn is_null(self) -> bool {
                $is_null(self)
            }
            #[inline(always)]
            fn has_twin(self) -> bool {
                $has_twin(self)
            }
        }
    )*};
}

items! {
    u8: u8::MIN, u8::MAX, never, never;
    u16: u16::MIN, u16::MAX, never, never;
    u32: u32::MIN, u32::MAX, never, never;
    u64: u64::MIN, u64::MAX, never, never;
    i8: i8::MIN, i8::MAX, never, never;
    i16: i16::MIN, i16::MAX, never, never;
    i32: i32::MIN, i32::MAX, never, never;
    i64: i64::MIN, i64::MAX, never, never;
    f32: f32::NEG_INFINITY, f32::INFINITY, f32::is_nan, |number: f32| number == 0.0;
    f64: f64::NEG_INFINITY, f64::INFINITY, f64::is_nan, |number: f64| number == 0.0;
    Time: Time(i64::MIN), Time(i64::MAX), |time: Time| time.0 == i64::MIN, never;
    Half: Half(-INFINITE), Half(INFINITE), |half: Half| half.0.abs() > INFINITE, never;
}

#[inline(always)]
fn never<T>(_: T) -> bool {
    false
}

/// A date or a duration.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Time(i64);

/// A float of 16 bits, as an integer in the same order: its magnitude, with its sign.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Half(i16);

const INFINITE: i16 = 0x7c00;

impl Half {
    fn parse(raw: [u8; 2]) -> Self {
        let bits = u16::from_le_bytes(raw);
        let magnitude = (bits & 0x7fff) as i16;
        Self(if bits > 0x7fff { -magnitude } else { magnitude })
    }

    fn pack(self) -> [u8; 2] {
        let sign = if self.0 < 0 { 0x8000 } else { 0 };
        (self.0.unsigned_abs() | sign).to_le_bytes()
    }
}

struct Found<T> {
    low: T,
    high: T,
    nulls: usize,
    ascending: bool,
}

/// How many items a vector instruction takes at once.
const LANES: usize = 16;
/// How many items are compared with their neighbours between two checks whether to go on.
const STRETCH: usize = 256;

/// Find the ends of items, of which there is one at least.
#[inline(always)]
fn scan<const N: usize, T: Item>(items: &[[u8; N]], parse: impl Fn([u8; N]) -> T) -> Found<T> {
    let (first, last) = (parse(items[0]), parse(items[items.len() - 1]));
    // Nulls that have a place in the order come first or last; the others are in order with nothing.
    let ascending = !first.is_null() && !last.is_null() && ascend(items, &parse);
    if ascending && !first.has_twin() && !last.has_twin() {
        return Found { low: first, high: last, nulls: 0, ascending };
    }
    let (mut low, mut high, mut nulls) = ([T::MOST; LANES], [T::LEAST; LANES], 0);
    let look = |group: &[[u8; N]], low: &mut [T; LANES], high: &mut [T; LANES]| {
        let mut nulls = 0;
        for ((raw, low), high) in group.iter().zip(low).zip(high) {
            let item = parse(*raw);
            let null = item.is_null();
            nulls += usize::from(null);
            *low = if item < *low && !null { item } else { *low };
            *high = if item > *high && !null { item } else { *high };
        }
        nulls
    };
    let (groups, rest) = items.as_chunks::<LANES>();
    for group in groups {
        nulls += look(group, &mut low, &mut high);
    }
    nulls += look(rest, &mut low, &mut high);
    let least = |ends: [T; LANES]| ends.into_iter().reduce(|one, other| if other < one { other } else { one });
    let most = |ends: [T; LANES]| ends.into_iter().reduce(|one, other| if other > one { other } else { one });
    Found { low: least(low).unwrap_or(T::MOST), high: most(high).unwrap_or(T::LEAST), nulls, ascending }
}

/// Whether no item is above the next one.
#[inline(always)]
fn ascend<const N: usize, T: Item>(items: &[[u8; N]], parse: impl Fn([u8; N]) -> T) -> bool {
    items.chunks(STRETCH).zip(items[1..].chunks(STRETCH)).all(|(items, next)| {
        items.iter().zip(next).fold(true, |fine, (one, other)| fine & (parse(*one) <= parse(*other)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_among_numbers_and_nulls() {
        let items = Items::parse('f', 8, false).unwrap();
        let numbers = [3.0_f64, f64::NAN, -1.5, 7.25, 7.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let zone = items.zone(&bytes);
        assert_eq!(zone[..8], (-1.5_f64).to_le_bytes());
        assert_eq!(zone[8..16], 7.25_f64.to_le_bytes());
        assert_eq!(zone[16..], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// As many nulls as there are, wherever they stand, and ends that do not depend on the way.
    #[test]
    fn ascending_items_with_nulls_and_zeros_are_no_exception() {
        let times = Items::parse('M', 8, false).unwrap();
        let pack = |numbers: &[i64]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_le_bytes()).collect() };
        for (numbers, low, nulls, ascending) in
            [(&[i64::MIN, 3, 4][..], 3, 1, 0), (&[3, 3, 4], 3, 0, 1), (&[i64::MIN, i64::MIN], 0, 2, 0)]
        {
            let zone = times.zone(&pack(numbers));
            assert_eq!(zone[..8], i64::to_le_bytes(low), "{numbers:?}");
            assert_eq!((zone[16], zone[24]), (nulls, ascending), "{numbers:?}");
        }
        let halves = Items::parse('f', 2, false).unwrap();
        let zone = halves.zone(&[0x00, 0x3c, 0x00, 0x7e]); // One, then a NaN above infinity.
        assert_eq!((&zone[..2], zone[16], zone[24]), (&[0x00, 0x3c][..], 1, 0));
        let floats = Items::parse('f', 8, false).unwrap();
        for (numbers, ends) in [([-0.0, 0.0], [-0.0, -0.0]), ([0.0, -0.0], [0.0, 0.0])] {
            let zone = floats.zone(&numbers.map(f64::to_le_bytes).concat());
            assert_eq!(zone[..16], ends.map(f64::to_le_bytes).concat());
            assert_eq!(zone[24], 1);
        }
    }

    #[test]
    fn halves_are_in_order() {
        let mut before = Half::LEAST;
        for bits in (0x8000..=0xfc00_u16).rev().chain(0..=0x7c00) {
            let half = Half::parse(bits.to_le_bytes());
            assert!(half >= before && !half.is_null(), "{bits:#06x}");
            assert!(bits == 0x8000 || half.pack() == bits.to_le_bytes());
            before = half;
        }
        assert!(Half::parse([0, 0x7e]).is_null() && Half::parse([1, 0xfc]).is_null());
    }

    #[test]
    fn ends_are_found_in_every_place() {
        for count in [1, 2, 15, 16, 17, 300, 1000] {
            for place in [0, count / 2, count - 1] {
                let mut numbers: Vec<i32> = (0..count).map(|number| number as i32 % 7).collect();
                numbers[place] = -5;
                numbers[count - 1 - place] = 99;
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let zone = Items::parse('i', 4, false).unwrap().zone(&bytes);
                assert_eq!(zone[..4], numbers.iter().min().unwrap().to_le_bytes());
                assert_eq!(zone[8..12], numbers.iter().max().unwrap().to_le_bytes());
                assert_eq!(zone[24] == 1, numbers.is_sorted());
            }
        }
        let sorted: Vec<u8> = (0..1000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(Items::parse('u', 4, false).unwrap().zone(&sorted)[24], 1);
    }

    #[test]
    fn items_behind_others_ascend_if_all_of_them_and_the_seam_do() {
        let items = Items::parse('i', 4, false).unwrap();
        let bytes = |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_le_bytes()).collect() };
        for (held, added, ascending) in [
            (&[1, 2][..], &[2, 3][..], true),
            (&[2, 1], &[3, 4], false),
            (&[1, 3], &[2, 4], false),
            (&[1, 2], &[4, 3], false),
        ] {
            let zone = items.zone(&bytes(held));
            let last = bytes(&held[1..]);
            let joined = items.zone_behind(&zone, 2, &last, &bytes(added)).unwrap();
            assert_eq!(joined, items.zone(&bytes(&[held, added].concat())));
            assert_eq!(joined[24] == 1, ascending, "{held:?} {added:?}");
        }
    }

    /// Every change of two of six items, in blocks of two: the same zone map as that of all items, or none.
    #[test]
    fn a_zone_map_changes_with_some_items_as_with_all() {
        let items = Items::parse('f', 8, false).unwrap();
        let bytes = |numbers: &[f64]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_le_bytes()).collect() };
        let nan = f64::NAN;
        let (mut found, mut none) = (0, 0);
        for old in
            [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [4.0, 1.0, 1.0, 6.0, 3.0, 6.0], [nan, 2.0, nan, nan, 9.0, 1.0], [nan; 6]]
        {
            for blocks in [&[0][..], &[1], &[2], &[0, 2], &[1, 2], &[0, 1, 2]] {
                for one in [0.0, 1.0, 2.5, 3.0, 6.0, 9.0, nan] {
                    for other in [0.0, 1.0, 3.0, 4.5, 6.0, nan] {
                        let mut new = old;
                        blocks.iter().for_each(|block| new[2 * block..2 * block + 2].copy_from_slice(&[one, other]));
                        let zone = items.zone(&bytes(&old));
                        let mut change = ZoneChange::new(items, &zone, 6).unwrap();
                        blocks.iter().for_each(|block| change.remove(&bytes(&old[2 * block..2 * block + 2])));
                        for (place, block) in blocks.iter().enumerate() {
                            change.add(place, &bytes(&new[2 * block..2 * block + 2]));
                        }
                        match change.zone() {
                            Some(changed) => {
                                assert_eq!(changed, items.zone(&bytes(&new)), "{old:?} {new:?}");
                                found += 1;
                            }
                            None => none += 1,
                        }
                    }
                }
            }
        }
        assert!(found > none && none > 0, "{found} found, {none} not");
        let big = Items::parse('f', 8, true).unwrap();
        assert!(ZoneChange::new(big, &big.zone(&bytes(&[1.0])), 1).is_none());
        assert!(ZoneChange::new(items, b"", 1).is_none());
    }

    #[test]
    fn sorted_text_with_duplicates_ascends() {
        let items = Items::parse('S', 2, false).unwrap();
        for (text, ascending) in [(&b"aaaaabbb"[..], 1), (b"aaabaabb", 0), (b"bbbb", 1), (b"bbba", 0)] {
            assert_eq!(items.zone(text)[24], ascending, "{text:?}");
        }
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
