//! Comparisons of all items with one value, or with any of several.
//!
//! `unsafe`: the same code is compiled twice, the second time for processors with AVX2, and called
//! where the processor has it.

use crate::array::zones::{Items, Order};
use std::cmp::Ordering;

/// The comparison that is made with every item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }
}

/// A comparison, and the item to compare with; or any number of them, one of which an item shall equal.
/// They ascend, and NaN and NaT are not among them.
pub type Test = (Comparison, Vec<u8>);

/// Up to so many values are compared with every item, one after the other; more are looked up.
const COMPARED: usize = 16;

/// How many results are combined at a time, so that they stay in the cache.
const STRETCH: usize = 1024;

impl Items {
    /// Whether `compare` supports these items; text is compared in Python.
    pub fn comparable(&self) -> bool {
        !self.big_endian
            && match self.order {
                Order::Signed | Order::Unsigned | Order::Time => true,
                Order::Float => self.size > 2,
                Order::Bytes | Order::Text => false,
            }
    }

    /// Whether `mark` knows what a test of these items means.
    pub fn testable(&self, (comparison, value): &Test) -> bool {
        value.len() == self.size || (*comparison == Comparison::Equal && value.len().is_multiple_of(self.size))
    }

    /// Mark the items in `bytes` of which all comparisons are true. With `marked`, items without a
    /// mark stay without one.
    pub fn mark(&self, bytes: &[u8], tests: &[Test], marks: &mut [u8], marked: bool) {
        if tests.is_empty() && !marked {
            marks.fill(1);
        }
        for (number, (comparison, value)) in tests.iter().enumerate() {
            if number == 0 && !marked {
                self.test(bytes, *comparison, value, marks);
                continue;
            }
            let mut also = [0; STRETCH];
            for (marks, bytes) in marks.chunks_mut(STRETCH).zip(bytes.chunks(STRETCH * self.size)) {
                let also = &mut also[..marks.len()];
                self.test(bytes, *comparison, value, also);
                marks.iter_mut().zip(also).for_each(|(mark, also)| *mark &= *also);
            }
        }
    }

    /// Write to `out`, for each item in `bytes`, whether a test is true of it.
    fn test(&self, bytes: &[u8], comparison: Comparison, value: &[u8], out: &mut [u8]) {
        if value.len() == self.size {
            return self.compare(bytes, comparison, value, out);
        }
        if value.len() > COMPARED * self.size {
            return self.look_up(bytes, value, out);
        }
        out.fill(0);
        let mut also = [0; STRETCH];
        for (out, bytes) in out.chunks_mut(STRETCH).zip(bytes.chunks(STRETCH * self.size)) {
            let also = &mut also[..out.len()];
            for value in value.chunks_exact(self.size) {
                self.compare(bytes, Comparison::Equal, value, also);
                out.iter_mut().zip(&*also).for_each(|(out, also)| *out |= *also);
            }
        }
    }

    /// Write to `out`, for each item in `bytes`, whether it equals one of `values`.
    fn look_up(&self, bytes: &[u8], values: &[u8], out: &mut [u8]) {
        match (self.order, self.size) {
            (Order::Unsigned, 1) => looked_up(bytes, values, out, u8::from_le_bytes),
            (Order::Unsigned, 2) => looked_up(bytes, values, out, u16::from_le_bytes),
            (Order::Unsigned, 4) => looked_up(bytes, values, out, u32::from_le_bytes),
            (Order::Unsigned, _) => looked_up(bytes, values, out, u64::from_le_bytes),
            (Order::Signed, 1) => looked_up(bytes, values, out, i8::from_le_bytes),
            (Order::Signed, 2) => looked_up(bytes, values, out, i16::from_le_bytes),
            (Order::Signed, 4) => looked_up(bytes, values, out, i32::from_le_bytes),
            (Order::Signed, _) => looked_up(bytes, values, out, i64::from_le_bytes),
            (Order::Float, 4) => looked_up(bytes, values, out, f32::from_le_bytes),
            (Order::Float, _) => looked_up(bytes, values, out, f64::from_le_bytes),
            (Order::Time, _) => looked_up(bytes, values, out, i64::from_le_bytes),
            (Order::Bytes | Order::Text, _) => unreachable!("not comparable"),
        }
    }

    /// Write to `out`, for each item in `bytes`, whether the comparison with `value` is true.
    fn compare(&self, bytes: &[u8], comparison: Comparison, value: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { self.compare_avx2(bytes, comparison, value, out) };
        }
        self.compare_items(bytes, comparison, value, out);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn compare_avx2(&self, bytes: &[u8], comparison: Comparison, value: &[u8], out: &mut [u8]) {
        self.compare_items(bytes, comparison, value, out);
    }

    #[inline(always)]
    fn compare_items(&self, bytes: &[u8], comparison: Comparison, value: &[u8], out: &mut [u8]) {
        match (self.order, self.size) {
            (Order::Unsigned, 1) => compared(bytes, value, comparison, out, u8::from_le_bytes),
            (Order::Unsigned, 2) => compared(bytes, value, comparison, out, u16::from_le_bytes),
            (Order::Unsigned, 4) => compared(bytes, value, comparison, out, u32::from_le_bytes),
            (Order::Unsigned, _) => compared(bytes, value, comparison, out, u64::from_le_bytes),
            (Order::Signed, 1) => compared(bytes, value, comparison, out, i8::from_le_bytes),
            (Order::Signed, 2) => compared(bytes, value, comparison, out, i16::from_le_bytes),
            (Order::Signed, 4) => compared(bytes, value, comparison, out, i32::from_le_bytes),
            (Order::Signed, _) => compared(bytes, value, comparison, out, i64::from_le_bytes),
            (Order::Float, 4) => compared(bytes, value, comparison, out, f32::from_le_bytes),
            (Order::Float, _) => compared(bytes, value, comparison, out, f64::from_le_bytes),
            (Order::Time, _) => compared_times(bytes, value, comparison, out),
            (Order::Bytes | Order::Text, _) => unreachable!("not comparable"),
        }
    }
}

#[inline(always)]
fn compared<const N: usize, T: PartialOrd + Copy>(
    bytes: &[u8],
    value: &[u8],
    comparison: Comparison,
    out: &mut [u8],
    parse: impl Fn([u8; N]) -> T,
) {
    let value = parse(*value.first_chunk().expect("the value has the size of an item"));
    let (items, _) = bytes.as_chunks::<N>();
    macro_rules! fill {
        ($operator:tt) => {
            for (out, item) in out.iter_mut().zip(items) {
                *out = u8::from(parse(*item) $operator value);
            }
        };
    }
    match comparison {
        Comparison::Equal => fill!(==),
        Comparison::Unequal => fill!(!=),
        Comparison::Less => fill!(<),
        Comparison::LessOrEqual => fill!(<=),
        Comparison::Greater => fill!(>),
        Comparison::GreaterOrEqual => fill!(>=),
    }
}

/// The values ascend.
fn looked_up<const N: usize, T: PartialOrd>(bytes: &[u8], values: &[u8], out: &mut [u8], parse: impl Fn([u8; N]) -> T) {
    let (values, _) = values.as_chunks::<N>();
    for (out, item) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        let item = parse(*item);
        let found = values.binary_search_by(|value| parse(*value).partial_cmp(&item).unwrap_or(Ordering::Less));
        *out = u8::from(found.is_ok());
    }
}

/// The lowest number is NaT: it equals nothing, and is not before anything.
#[inline(always)]
fn compared_times(bytes: &[u8], value: &[u8], comparison: Comparison, out: &mut [u8]) {
    if value == NAT {
        out.fill(u8::from(comparison == Comparison::Unequal));
        return;
    }
    compared(bytes, value, comparison, out, i64::from_le_bytes);
    if matches!(comparison, Comparison::Less | Comparison::LessOrEqual) {
        for (out, item) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *out &= u8::from(*item != NAT);
        }
    }
}

const NAT: [u8; 8] = i64::MIN.to_le_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nat_compares_with_nothing() {
        let items = Items::parse('M', 8, false).unwrap();
        let bytes: Vec<u8> = [i64::MIN, -5, 7].iter().flat_map(|number| number.to_le_bytes()).collect();
        let ask = |comparison, value: i64| {
            let mut out = [9; 3];
            items.compare(&bytes, comparison, &value.to_le_bytes(), &mut out);
            out
        };
        assert_eq!(ask(Comparison::Less, 7), [0, 1, 0]);
        assert_eq!(ask(Comparison::LessOrEqual, 7), [0, 1, 1]);
        assert_eq!(ask(Comparison::Unequal, 7), [1, 1, 0]);
        assert_eq!(ask(Comparison::GreaterOrEqual, i64::MIN), [0, 0, 0]);
        assert_eq!(ask(Comparison::Unequal, i64::MIN), [1, 1, 1]);
    }

    #[test]
    fn an_item_equals_one_of_none_few_or_many() {
        let items = Items::parse('f', 4, false).unwrap();
        let packed = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let bytes = packed(&[1.5, f32::NAN, -0.0, 3.0]);
        let many: Vec<f32> = (0..100).map(|number| number as f32 / 2.0).collect();
        for (values, expected) in [
            (&[] as &[f32], [0, 0, 0, 0]),
            (&[0.0, 3.0], [0, 0, 1, 1]),
            (&many[..COMPARED + 1], [1, 0, 1, 1]),
            (&many[3..3 + COMPARED], [1, 0, 0, 1]),
            (&many[4..], [0, 0, 0, 1]),
        ] {
            let test = (Comparison::Equal, packed(values));
            assert!(items.testable(&test));
            let mut marks = [1; 4];
            items.mark(&bytes, std::slice::from_ref(&test), &mut marks, false);
            assert_eq!(marks, expected, "{values:?}");
            // With marks already, none is added.
            let mut marks = [0, 1, 1, 0];
            items.mark(&bytes, &[test], &mut marks, true);
            assert_eq!(marks, [0, expected[1], expected[2], 0], "{values:?}");
        }
    }

    #[test]
    fn only_equality_takes_several_values() {
        let items = Items::parse('i', 4, false).unwrap();
        for (comparison, length, known) in [
            (Comparison::Less, 4, true),
            (Comparison::Less, 8, false),
            (Comparison::Less, 0, false),
            (Comparison::Equal, 0, true),
            (Comparison::Equal, 12, true),
            (Comparison::Equal, 6, false),
        ] {
            assert_eq!(items.testable(&(comparison, vec![0; length])), known, "{comparison:?} {length}");
        }
    }

    #[test]
    fn nat_is_none_of_many() {
        let items = Items::parse('m', 8, false).unwrap();
        let packed = |numbers: &mut dyn Iterator<Item = i64>| numbers.flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
        let bytes = packed(&mut [i64::MIN, 4, 41].into_iter());
        let mut marks = [9; 3];
        items.mark(&bytes, &[(Comparison::Equal, packed(&mut (0..40)))], &mut marks, false);
        assert_eq!(marks, [0, 1, 0]);
    }

    #[test]
    fn numbers_compare_as_they_are() {
        let items = Items::parse('f', 4, false).unwrap();
        let bytes: Vec<u8> = [1.5_f32, f32::NAN, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut out = [9; 3];
        items.compare(&bytes, Comparison::Unequal, &1.5_f32.to_le_bytes(), &mut out);
        assert_eq!(out, [0, 1, 1]);
        items.compare(&bytes, Comparison::GreaterOrEqual, &(-2.0_f32).to_le_bytes(), &mut out);
        assert_eq!(out, [1, 0, 1]);
    }
}
