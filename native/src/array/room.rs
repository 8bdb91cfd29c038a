//! The bytes of a file that nothing refers to, given out to new images.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The gaps of a file, and where the file ends.
pub struct Room {
    /// Each gap as its size and its first byte.
    sizes: BTreeSet<(u64, u64)>,
    /// The byte behind each gap, by its first byte.
    ends: BTreeMap<u64, u64>,
    /// The bytes of all gaps.
    pub free: u64,
    pub end: u64,
}

impl Room {
    /// The gaps touch neither each other nor what is in use.
    pub fn new(gaps: impl IntoIterator<Item = Range<u64>>, end: u64) -> Self {
        let mut room = Self { sizes: BTreeSet::new(), ends: BTreeMap::new(), free: 0, end };
        gaps.into_iter().for_each(|gap| room.insert(gap));
        room
    }

    pub fn has_gaps(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Give out the smallest gap in which so many bytes fit, or what lies behind the end, and then `spare`
    /// bytes more, which are no gap. Return where they start.
    pub fn take(&mut self, size: u64, spare: u64) -> u64 {
        let Some((length, start)) = self.sizes.range((size, 0)..).next().copied() else {
            let start = self.end;
            self.end += size + spare;
            return start;
        };
        self.remove(start..start + length);
        self.insert(start + size..start + length);
        start
    }

    /// Take bytes back that are not in use any more, and join them with the gaps beside them.
    pub fn give(&mut self, mut bytes: Range<u64>) {
        if let Some((start, end)) = self.ends.range(..bytes.start).next_back().map(|(start, end)| (*start, *end))
            && end == bytes.start
        {
            self.remove(start..end);
            bytes.start = start;
        }
        if let Some(end) = self.ends.get(&bytes.end).copied() {
            self.remove(bytes.end..end);
            bytes.end = end;
        }
        self.insert(bytes);
    }

    fn insert(&mut self, gap: Range<u64>) {
        if gap.start < gap.end {
            self.sizes.insert((gap.end - gap.start, gap.start));
            self.ends.insert(gap.start, gap.end);
            self.free += gap.end - gap.start;
        }
    }

    fn remove(&mut self, gap: Range<u64>) {
        self.sizes.remove(&(gap.end - gap.start, gap.start));
        self.ends.remove(&gap.start);
        self.free -= gap.end - gap.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(room: &Room) -> Vec<(u64, u64)> {
        assert_eq!(room.free, room.ends.iter().map(|(start, end)| end - start).sum::<u64>());
        assert_eq!(room.sizes.len(), room.ends.len());
        room.ends.iter().map(|(start, end)| (*start, *end)).collect()
    }

    #[test]
    fn bytes_come_from_the_smallest_gap_that_fits_and_else_from_behind_the_end() {
        let mut room = Room::new([150..200, 210..220, 80..100, 90..90], 300);
        assert_eq!([room.take(15, 1), room.take(5, 1), room.take(5, 1), room.take(50, 1)], [80, 95, 210, 150]);
        assert_eq!([room.take(60, 6), room.take(7, 1)], [300, 366]);
        assert_eq!((gaps(&room), room.end), (vec![(215, 220)], 374));
    }

    #[test]
    fn bytes_that_come_back_join_the_gaps_beside_them() {
        let mut room = Room::new([10..20, 30..40], 100);
        room.give(50..60);
        assert_eq!(gaps(&room), [(10, 20), (30, 40), (50, 60)]);
        room.give(40..50);
        assert_eq!(gaps(&room), [(10, 20), (30, 60)]);
        room.give(20..30);
        assert_eq!(gaps(&room), [(10, 60)]);
        room.give(5..10);
        room.give(60..61);
        assert_eq!(gaps(&room), [(5, 61)]);
    }
}
