//! Items that pass tests, found while packs are decoded: no item is kept, and no object is made.

use super::source::Sources;
use super::{LENGTH_BYTES, check_text, each_length};
use crate::error::{Error, Kind, Outcome};
use crate::interrupt::Interrupt;
use crate::memory::grow;
use std::cmp::Ordering;
use std::collections::HashSet;

/// From so many values on, a table is faster than a comparison with each of them.
const MANY: usize = 8;

/// What is asked of an item. A null passes `IsNull` alone.
pub enum Test {
    IsNull,
    Among(Vec<Vec<u8>>),
    AmongMany(HashSet<Vec<u8>>),
    NotEqual(Vec<u8>),
    Ordered(Vec<u8>, fn(Ordering) -> bool),
    StartsWith(Vec<u8>),
    EndsWith(Vec<u8>),
    Contains(Vec<u8>),
}

impl Test {
    /// The test of this name: an operator, or a function of queries. `==` takes any number of values, of
    /// which one has to be equal, `isnull` none, and all others one.
    pub fn parse(name: &str, mut values: Vec<Vec<u8>>) -> Outcome<Self> {
        if name == "==" {
            let many = values.len() >= MANY;
            return Ok(if many { Self::AmongMany(values.into_iter().collect()) } else { Self::Among(values) });
        }
        let count = values.len();
        match (name, values.pop(), count) {
            ("isnull", None, 0) => Ok(Self::IsNull),
            ("!=", Some(value), 1) => Ok(Self::NotEqual(value)),
            ("<", Some(value), 1) => Ok(Self::Ordered(value, Ordering::is_lt)),
            ("<=", Some(value), 1) => Ok(Self::Ordered(value, Ordering::is_le)),
            (">", Some(value), 1) => Ok(Self::Ordered(value, Ordering::is_gt)),
            (">=", Some(value), 1) => Ok(Self::Ordered(value, Ordering::is_ge)),
            ("startswith", Some(value), 1) => Ok(Self::StartsWith(value)),
            ("endswith", Some(value), 1) => Ok(Self::EndsWith(value)),
            ("contains", Some(value), 1) => Ok(Self::Contains(value)),
            _ => Err(Error::new(Kind::Argument, format!("no test {name:?} of {count} values"))),
        }
    }

    /// Whether the bytes of items are of no concern.
    fn is_of_lengths(&self) -> bool {
        matches!(self, Self::IsNull)
    }

    /// Whether an item of one of these lengths can pass.
    fn is_possible(&self, lengths: &[u8]) -> bool {
        let some = |fits: &dyn Fn(usize) -> bool| each_length(lengths).flatten().any(fits);
        match self {
            Self::Among(values) => some(&|length| values.iter().any(|value| value.len() == length)),
            Self::StartsWith(value) | Self::EndsWith(value) | Self::Contains(value) => {
                some(&|length| length >= value.len())
            }
            _ => true,
        }
    }

    /// Clear the marks of the items that do not pass.
    fn mark(&self, lengths: &[u8], data: &[u8], marks: &mut [u8]) {
        match self {
            Self::IsNull => {
                for (length, mark) in each_length(lengths).zip(marks) {
                    *mark &= u8::from(length.is_none());
                }
            }
            Self::Among(values) => match &values[..] {
                [value] => clear(lengths, data, marks, |item| item == value),
                values => clear(lengths, data, marks, |item| values.iter().any(|value| item == value)),
            },
            Self::AmongMany(values) => clear(lengths, data, marks, |item| values.contains(item)),
            Self::NotEqual(value) => clear(lengths, data, marks, |item| item != value),
            Self::Ordered(value, holds) => clear(lengths, data, marks, |item| holds(item.cmp(value))),
            Self::StartsWith(value) => clear(lengths, data, marks, |item| item.starts_with(value)),
            Self::EndsWith(value) => clear(lengths, data, marks, |item| item.ends_with(value)),
            Self::Contains(value) if value.is_empty() => clear(lengths, data, marks, |_| true),
            Self::Contains(value) => {
                clear(lengths, data, marks, |item| item.windows(value.len()).any(|part| part == value));
            }
        }
    }
}

/// Clear the marks of nulls, and of items for which `holds` is false. The lengths add up to the bytes.
fn clear(lengths: &[u8], data: &[u8], marks: &mut [u8], holds: impl Fn(&[u8]) -> bool) {
    let mut rest = data;
    for (length, mark) in each_length(lengths).zip(marks) {
        let Some(length) = length else {
            *mark = 0;
            continue;
        };
        let (item, behind) = rest.split_at(length);
        rest = behind;
        *mark &= u8::from(holds(item));
    }
}

impl Sources<'_> {
    /// Write to `marks`, a byte for each item, whether it passes all tests. Items that are `text` are
    /// checked, where they are decoded.
    pub fn mark(
        &self,
        tests: &[Test],
        text: bool,
        marks: &mut [u8],
        threads: usize,
        interrupt: &Interrupt,
    ) -> Outcome<()> {
        let mut rest = marks;
        let parts = self.counts.iter().map(|count| rest.split_off_mut(..*count).expect("room for all marks"));
        self.each(parts.collect::<Vec<_>>(), threads, interrupt, |pack, stated, marks, own| {
            let lengths = grow(&mut own.lengths, marks.len() * LENGTH_BYTES)?;
            pack.decode_lengths(self.guard, stated, lengths, &mut own.scratch)?;
            let possible = tests.iter().all(|test| test.is_possible(lengths));
            marks.fill(u8::from(possible));
            if !possible {
                return Ok(());
            }
            let size = if tests.iter().all(Test::is_of_lengths) { 0 } else { pack.data.header.nbytes };
            let data = grow(&mut own.data, size)?;
            if size > 0 {
                pack.data.decode(self.guard, stated, marks.len(), data, &mut own.scratch)?;
                if text {
                    check_text(lengths, data)?;
                }
            }
            for test in tests {
                test.mark(lengths, data, marks);
            }
            Ok(())
        })
    }
}
