//! The filter pipeline of a chunk: what each filter does to a block, and how it is undone.
//!
//! Works on one block at a time and knows nothing of streams and chunks. Bytes that are no whole item
//! stay unchanged in every filter.

use crate::chunk::filters;
use crate::error::{Error, Kind, Outcome, unsupported};

/// How many filters an extended header holds.
pub const SLOTS: usize = 6;

pub const SHUFFLE: u8 = 1;
pub const BITSHUFFLE: u8 = 2;
pub const DELTA: u8 = 3;
pub const TRUNCATE: u8 = 4;
pub const BYTEDELTA: u8 = 35;
pub const TRUNCATE_INTEGERS: u8 = 36;

/// One filter, with the size of the items that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Shuffle(u8),
    /// The flag: only items beyond a multiple of eight stay unchanged (else the whole block does).
    Bitshuffle(u8, bool),
    Delta(u8),
    Bytedelta(u8),
    /// Items lose this many of their lowest bits, which cannot be undone.
    Truncate(u8, u8),
}

impl Step {
    /// Parse filter `id`, to be undone; `None` when nothing has to be done.
    fn parse(id: u8, meta: u8, typesize: usize, version: u8) -> Outcome<Option<Self>> {
        // It was stored in one byte, or was made to fit one.
        let typesize = typesize as u8;
        let size = if meta == 0 { typesize } else { meta };
        Ok(match id {
            0 | TRUNCATE | TRUNCATE_INTEGERS => None,
            SHUFFLE => (size > 1).then_some(Self::Shuffle(size)),
            BITSHUFFLE => Some(Self::Bitshuffle(typesize, version > 2)),
            DELTA => Some(Self::Delta(delta_word(typesize))),
            BYTEDELTA => Some(Self::Bytedelta(size)),
            other => return unsupported!("Blosc chunk: filter {other} is not one that Ingot undoes"),
        })
    }

    /// Check filter `id`, to be applied; `None` when nothing has to be done.
    fn build(id: u8, meta: u8, typesize: usize) -> Outcome<Option<Self>> {
        let wrong = |text: String| Err(Error::new(Kind::Argument, text));
        match id {
            TRUNCATE => {
                let mantissa = match typesize {
                    4 => 23,
                    8 => 52,
                    _ => return wrong(format!("truncate needs items of 4 or 8 bytes, they have {typesize}")),
                };
                if meta > mantissa {
                    return wrong(format!("truncate keeps {meta} bits, items of {typesize} bytes have 0..={mantissa}"));
                }
                Ok(Some(Self::Truncate(typesize as u8, mantissa - meta)))
            }
            SHUFFLE | BITSHUFFLE | DELTA | BYTEDELTA => Self::parse(id, meta, typesize, u8::MAX),
            other => wrong(format!("filter {other} cannot be applied")),
        }
    }

    /// Apply the filter to `from`, into `to`. `reference` as for `Pipeline::undo`.
    fn apply(self, from: &[u8], to: &mut [u8], planes: &mut [u8], reference: Option<&[u8]>) {
        let done = match self {
            Self::Shuffle(size) => {
                let size = usize::from(size);
                let whole = from.len() / size * size;
                filters::shuffle(&from[..whole], size, to, whole / size);
                whole
            }
            Self::Bitshuffle(size, partly) => {
                let size = usize::from(size);
                let whole = filters::bitshuffled_items(from.len(), size, partly) * size;
                filters::bitshuffle(&from[..whole], size, planes, &mut to[..whole]);
                whole
            }
            Self::Delta(word) => delta(from, to, word.into(), reference),
            Self::Bytedelta(size) => bytedelta(from, to, size.into()),
            Self::Truncate(4, lost) => {
                truncate(from, to, |item| (u32::from_le_bytes(item) & (u32::MAX << lost)).to_le_bytes())
            }
            Self::Truncate(_, lost) => {
                truncate(from, to, |item| (u64::from_le_bytes(item) & (u64::MAX << lost)).to_le_bytes())
            }
        };
        to[done..].copy_from_slice(&from[done..]);
    }

    /// Whether the result has to go to other memory.
    fn moves(self) -> bool {
        matches!(self, Self::Shuffle(_) | Self::Bitshuffle(..))
    }
}

/// The width that delta works in.
fn delta_word(typesize: u8) -> u8 {
    match typesize {
        1 | 2 | 4 | 8 => typesize,
        other if other.is_multiple_of(8) => 8,
        _ => 1,
    }
}

/// Filters in the order in which they are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    steps: [Step; SLOTS],
    count: u8,
}

impl Pipeline {
    pub const EMPTY: Self = Self { steps: [Step::Delta(1); SLOTS], count: 0 };

    /// Parse filters in the order in which they were applied.
    pub fn parse(filters: &[(u8, u8)], typesize: usize, version: u8) -> Outcome<Self> {
        let mut pipeline = Self::EMPTY;
        for (id, meta) in filters.iter().rev() {
            if let Some(step) = Step::parse(*id, *meta, typesize, version)? {
                pipeline.push(step);
            }
        }
        Ok(pipeline)
    }

    /// The same for a writer: filters that cannot be applied are refused, and those that truncate are kept.
    pub fn build(filters: &[(u8, u8)], typesize: usize) -> Outcome<Self> {
        if filters.len() > SLOTS {
            return Err(Error::new(Kind::Argument, format!("{} filters are given, {SLOTS} fit", filters.len())));
        }
        let mut pipeline = Self::EMPTY;
        for (id, meta) in filters.iter().rev() {
            if let Some(step) = Step::build(*id, *meta, typesize)? {
                pipeline.push(step);
            }
        }
        Ok(pipeline)
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps[..usize::from(self.count)]
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn has_delta(&self) -> bool {
        self.steps().iter().any(|step| matches!(step, Step::Delta(_)))
    }

    /// Whether decoded items differ from the encoded ones.
    pub fn truncates(&self) -> bool {
        self.steps().iter().any(|step| matches!(step, Step::Truncate(..)))
    }

    fn push(&mut self, step: Step) {
        self.steps[usize::from(self.count)] = step;
        self.count += 1;
    }

    /// Remove the first step.
    pub fn pop(&mut self) {
        self.steps.copy_within(1.., 0);
        self.count -= 1;
    }

    /// Whether `undo` starts in its second buffer, so that it ends in the first.
    pub fn starts_in_second(&self) -> bool {
        self.steps().iter().filter(|step| step.moves()).count() % 2 == 1
    }

    /// Apply all steps to `plain`; the result is in `one`, `two` or, without steps, `plain`.
    /// `reference` and `planes` as for `undo`, all of one size.
    pub fn apply<'a>(
        &self,
        plain: &'a [u8],
        one: &'a mut [u8],
        two: &'a mut [u8],
        planes: &mut [u8],
        reference: Option<&[u8]>,
    ) -> &'a [u8] {
        let mut steps = self.steps().iter().rev();
        let Some(first) = steps.next() else {
            return plain;
        };
        first.apply(plain, one, planes, reference);
        let (mut here, mut there) = (one, two);
        for step in steps {
            step.apply(here, there, planes, reference);
            std::mem::swap(&mut here, &mut there);
        }
        here
    }

    /// Undo all steps on the block in `block` (or in `second`, see `starts_in_second`); the result
    /// is in `block`. `reference` is the first block with everything undone, `None` for the
    /// first block itself. `planes` is scratch, and all have the same size.
    pub fn undo(&self, block: &mut [u8], second: &mut [u8], planes: &mut [u8], reference: Option<&[u8]>) {
        let (mut here, mut there) = if self.starts_in_second() { (second, block) } else { (block, second) };
        for step in self.steps() {
            match *step {
                Step::Delta(word) => undelta(here, word.into(), reference),
                Step::Bytedelta(size) => unbytedelta(here, size.into()),
                Step::Truncate(..) => {}
                Step::Shuffle(size) => {
                    let size = usize::from(size);
                    let count = here.len() / size;
                    let (items, tail) = there.split_at_mut(count * size);
                    filters::unshuffle(here, count, size, items);
                    tail.copy_from_slice(&here[count * size..]);
                }
                Step::Bitshuffle(size, partly) => {
                    let size = usize::from(size);
                    let count = filters::bitshuffled_items(here.len(), size, partly);
                    let (items, tail) = there.split_at_mut(count * size);
                    filters::unbitshuffle(here, count / 8, size, planes, items);
                    tail.copy_from_slice(&here[count * size..]);
                }
            }
            if step.moves() {
                std::mem::swap(&mut here, &mut there);
            }
        }
    }
}

/// Undo delta: each word of the first block was combined with the one before it, those of
/// other blocks with the first block's, by exclusive or. Bytes that make no word are
/// unchanged.
fn undelta(block: &mut [u8], word: usize, reference: Option<&[u8]>) {
    let whole = block.len() / word * word;
    match (reference, word) {
        (Some(reference), _) => combine(&mut block[..whole], reference),
        (None, 1) => accumulate(block, |bytes: [u8; 1]| bytes[0], |word| [word]),
        (None, 2) => accumulate(block, u16::from_le_bytes, u16::to_le_bytes),
        (None, 4) => accumulate(block, u32::from_le_bytes, u32::to_le_bytes),
        (None, _) => accumulate(block, u64::from_le_bytes, u64::to_le_bytes),
    }
}

/// Exclusive or of `bytes` with the beginning of `other`.
fn combine(bytes: &mut [u8], other: &[u8]) {
    for (byte, other) in bytes.iter_mut().zip(other) {
        *byte ^= other;
    }
}

fn accumulate<W, const N: usize>(block: &mut [u8], read: fn([u8; N]) -> W, write: fn(W) -> [u8; N])
where
    W: Copy + Default + std::ops::BitXor<Output = W>,
{
    let mut last = W::default();
    for place in block.as_chunks_mut::<N>().0 {
        last = last ^ read(*place);
        *place = write(last);
    }
}

/// Undo bytedelta: each plane holds differences of neighbouring bytes.
fn unbytedelta(block: &mut [u8], size: usize) {
    let each = block.len() / size;
    if each == 0 {
        return;
    }
    block.chunks_exact_mut(each).take(size).for_each(filters::running_sum);
}

/// Apply delta to the whole words of `from`; return how many bytes that are.
fn delta(from: &[u8], to: &mut [u8], word: usize, reference: Option<&[u8]>) -> usize {
    let whole = from.len() / word * word;
    let head = whole.min(word);
    let (skipped, before) = match reference {
        Some(reference) => (0, reference),
        None => (head, from),
    };
    to[..skipped].copy_from_slice(&from[..skipped]);
    for ((place, byte), before) in to[skipped..whole].iter_mut().zip(&from[skipped..whole]).zip(before) {
        *place = byte ^ before;
    }
    whole
}

fn bytedelta(from: &[u8], to: &mut [u8], size: usize) -> usize {
    let each = from.len() / size;
    if each == 0 {
        return 0;
    }
    for (from, to) in from.chunks_exact(each).zip(to.chunks_exact_mut(each)).take(size) {
        to[0] = from[0];
        for ((place, byte), before) in to[1..].iter_mut().zip(&from[1..]).zip(from) {
            *place = byte.wrapping_sub(*before);
        }
    }
    each * size
}

fn truncate<const N: usize>(from: &[u8], to: &mut [u8], cut: impl Fn([u8; N]) -> [u8; N]) -> usize {
    for (place, item) in to.as_chunks_mut::<N>().0.iter_mut().zip(from.as_chunks::<N>().0) {
        *place = cut(*item);
    }
    from.len() / N * N
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * index / 7 + index) as u8).collect()
    }

    fn applied(filters: &[(u8, u8)], typesize: usize, plain: &[u8], reference: Option<&[u8]>) -> Vec<u8> {
        let pipeline = Pipeline::build(filters, typesize).unwrap();
        let (mut one, mut two, mut planes) = (plain.to_vec(), plain.to_vec(), plain.to_vec());
        pipeline.apply(plain, &mut one, &mut two, &mut planes, reference).to_vec()
    }

    #[test]
    fn every_pipeline_is_undone() {
        let pipelines: [&[(u8, u8)]; 8] = [
            &[],
            &[(DELTA, 0)],
            &[(SHUFFLE, 0), (BYTEDELTA, 0)],
            &[(DELTA, 0), (SHUFFLE, 0)],
            &[(SHUFFLE, 4), (DELTA, 0), (BITSHUFFLE, 0)],
            &[(SHUFFLE, 0), (SHUFFLE, 3), (BYTEDELTA, 5)],
            &[(DELTA, 0), (SHUFFLE, 0), (BITSHUFFLE, 0), (DELTA, 0), (BYTEDELTA, 2), (SHUFFLE, 0)],
            &[(BITSHUFFLE, 0), (BITSHUFFLE, 0)],
        ];
        let reference: Vec<u8> = sample(1000).into_iter().rev().collect();
        for filters in pipelines {
            for typesize in [1, 2, 3, 4, 7, 8, 16, 24, 255] {
                for length in [0, 1, 5, 16, 63, 64, 255, 1000] {
                    for reference in [None, Some(&reference[..])] {
                        let plain = sample(length);
                        let mut block = applied(filters, typesize, &plain, reference);
                        let mut second = block.clone();
                        let pipeline = Pipeline::parse(filters, typesize, 5).unwrap();
                        pipeline.undo(&mut block, &mut second, &mut vec![0; length], reference);
                        assert_eq!(block, plain, "{filters:?}, typesize {typesize}, {length} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn filters_follow_their_definitions() {
        let plain = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(applied(&[(DELTA, 0)], 2, &plain, None), [1, 2, 1 ^ 3, 2 ^ 4, 3 ^ 5, 4 ^ 6, 7]);
        assert_eq!(applied(&[(DELTA, 0)], 3, &plain, Some(&[9; 7])), plain.map(|byte| byte ^ 9));
        assert_eq!(applied(&[(BYTEDELTA, 0)], 2, &plain, None), [1, 1, 1, 4, 1, 1, 7]);
        assert_eq!(applied(&[(SHUFFLE, 3)], 1, &plain, None), [1, 4, 2, 5, 3, 6, 7]);
        let numbers: Vec<u8> = [1.999_f32, -3.25].iter().flat_map(|number| number.to_le_bytes()).collect();
        let kept: Vec<u8> = [1.5_f32, -3.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(applied(&[(TRUNCATE, 1)], 4, &numbers, None), kept);
    }

    #[test]
    fn impossible_filters_are_refused() {
        for (filters, typesize) in
            [(&[(TRUNCATE, 24)][..], 4), (&[(TRUNCATE, 1)], 2), (&[(36, 1)], 4), (&[(0, 0); 7], 1)]
        {
            assert_eq!(Pipeline::build(filters, typesize).unwrap_err().kind, Kind::Argument);
        }
        for id in [5, 32, 33, 34, 37, 160, 255] {
            assert_eq!(Pipeline::parse(&[(id, 0)], 4, 5).unwrap_err().kind, Kind::Unsupported);
        }
    }
}
