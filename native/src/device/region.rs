//! Wanted items of a chunk, and places of a result, as outer products of axes.

/// Items that lie no further apart are in neighbouring blocks, but for very small ones.
const SHORT_STEP: i64 = 4096;

/// Positions along one axis, as offsets in bytes: equal steps from 0, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    pub length: i64,
    pub step: i64,
    pub table: Option<Vec<i64>>,
}

impl Steps {
    pub fn offset(&self, place: i64) -> i64 {
        self.table.as_ref().map_or(place * self.step, |table| table[place as usize])
    }

    /// The smallest and the largest offset.
    fn ends(&self) -> (i64, i64) {
        match &self.table {
            Some(table) => (table.iter().copied().min().unwrap_or(0), table.iter().copied().max().unwrap_or(0)),
            None => {
                let last = (self.length - 1) * self.step;
                (last.min(0), last.max(0))
            }
        }
    }
}

/// Items of a chunk, or places of a result; the slowest axis comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub start: i64,
    pub axes: Vec<Steps>,
}

impl Part {
    /// Add the ranges of bytes that the items lie in, one for each of the longest steps. Steps that are no
    /// longer than most blocks make one range.
    fn add_spans(&self, itemsize: i64, spans: &mut Vec<(i64, i64)>) {
        let ends: Vec<_> = self.axes.iter().map(Steps::ends).collect();
        let low = self.start + ends.iter().map(|end| end.0).sum::<i64>();
        let high = self.start + ends.iter().map(|end| end.1).sum::<i64>();
        // The first of the widest axes.
        let mut slow: Option<usize> = None;
        for (number, (least, most)) in ends.iter().enumerate() {
            if slow.is_none_or(|slow| most - least > ends[slow].1 - ends[slow].0) {
                slow = Some(number);
            }
        }
        match slow.map(|slow| (&self.axes[slow], ends[slow])) {
            Some((axis, (least, most))) if axis.table.is_some() || axis.step.abs() > SHORT_STEP => {
                let (before, behind) = (low - least, high - most + itemsize);
                spans.extend((0..axis.length).map(|place| axis.offset(place)).map(|at| (at + before, at + behind)));
            }
            _ => spans.push((low, high + itemsize)),
        }
    }
}

/// Items of a chunk, and the places that they go to; the axes of both have the same lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    pub source: Part,
    pub target: Part,
}

/// What is wanted of one chunk.
pub struct Wanted {
    /// The decoded size of the chunk; `None` where it is none of Blosc.
    pub nbytes: Option<i64>,
    pub regions: Vec<Region>,
    /// Ranges of its decoded bytes; at least one.
    pub spans: Vec<(i64, i64)>,
}

impl Wanted {
    pub fn new(nbytes: Option<i64>, regions: Vec<Region>, itemsize: i64) -> Self {
        let mut spans = Vec::with_capacity(regions.len());
        for region in &regions {
            region.source.add_spans(itemsize, &mut spans);
        }
        Self { nbytes, regions, spans }
    }

    /// How many bytes the items lie in, at most.
    pub fn bytes(&self) -> i64 {
        let bytes: i64 = self.spans.iter().map(|(begin, end)| end - begin).sum();
        bytes.min(self.nbytes.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(length: i64, step: i64) -> Steps {
        Steps { length, step, table: None }
    }

    fn spans(start: i64, axes: Vec<Steps>) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        Part { start, axes }.add_spans(4, &mut found);
        found
    }

    #[test]
    fn short_steps_make_one_range() {
        assert_eq!(spans(8, vec![]), [(8, 12)]);
        assert_eq!(spans(8, vec![steps(3, 40), steps(5, 4)]), [(8, 108)]);
        assert_eq!(spans(100, vec![steps(3, -40)]), [(20, 104)]);
    }

    #[test]
    fn long_steps_make_a_range_each() {
        assert_eq!(spans(0, vec![steps(2, 5000), steps(3, 4)]), [(0, 12), (5000, 5012)]);
        let table = Steps { length: 2, step: 0, table: Some(vec![80, 0]) };
        assert_eq!(spans(4, vec![table, steps(2, -4)]), [(80, 88), (0, 8)]);
    }
}
