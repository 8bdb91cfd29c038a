//! LZ4 blocks, encoded in one pass: each place is compared with the latest one that has the same hash.
//!
//! So does the C library, and most of its time it waits: where the next copy may begin is not known before
//! the length of this one is. Here lengths up to `WIDE` are found without a branch. Where all copies
//! are short, as in the low bytes of rounded numbers, they are cut to one length, so that the processor
//! looks up the next ones before this one is compared.
//!
//! Hashes are of five bytes, as those of the library are in long blocks: a copy of four bytes takes three to
//! store, and as long to decode as any other.

use super::{SHORTEST, TAIL};
use std::array::from_fn;
use std::ops::Range;

/// The shortest block that is encoded here. In shorter ones the C library finds more, with hashes of four bytes.
pub const LEAST: usize = 12 << 10;
/// The bytes of a block that are compared without a branch.
const WIDE: usize = 32;
/// No copy begins so near to the end of a block: words are read without a look at the end.
const MARGIN: usize = WIDE + 8;
const FARTHEST: usize = 0xffff;
/// The bytes of which a hash is made, and of which a copy consists where all are short.
const HASHED: usize = 5;
const SLOTS_LOG: u32 = 13;
/// Copies shorter than a word are short. After so many in a row all are expected to be.
const STREAK: usize = 16;
/// After 2 to the power of so many places without a copy, the steps grow.
const PATIENCE: u32 = 6;
/// A nibble of a token that says that more bytes follow.
const MORE: usize = 15;

/// The latest place of each hash.
pub struct Places(Box<[u32; 1 << SLOTS_LOG]>);

impl Default for Places {
    fn default() -> Self {
        Self(Box::new([0; 1 << SLOTS_LOG]))
    }
}

impl Places {
    fn slot(word: u64) -> usize {
        const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        ((word << (64 - 8 * HASHED)).wrapping_mul(GOLDEN_RATIO) >> (64 - SLOTS_LOG)) as usize
    }

    fn find(&self, word: u64) -> usize {
        self.0[Self::slot(word)] as usize
    }

    fn note(&mut self, word: u64, at: usize) {
        self.0[Self::slot(word)] = at as u32;
    }
}

/// Encode `source`, of at least `LEAST` bytes, into `out`; return the length, or `None` when it does not fit.
/// The higher the acceleration, the more places are left out where no copy is found.
pub fn encode(source: &[u8], out: &mut [u8], acceleration: usize, places: &mut Places) -> Option<usize> {
    places.0.fill(0);
    let last = source.len() - MARGIN;
    let mut block = Block { out, used: 0 };
    let (mut at, mut literals, mut streak) = (0, 0, 0);
    while let Some((mut start, mut from, length)) = find(source, at + 1..last, acceleration, places) {
        at = start + length;
        while start > literals && from > 0 && source[start - 1] == source[from - 1] {
            (start, from) = (start - 1, from - 1);
        }
        block.push(source, literals..start, start - from, at - start)?;
        while at < last {
            if streak >= STREAK {
                at = block.push_short_copies(source, at..last, places);
                streak = STREAK - 1;
                if at >= last {
                    break;
                }
            }
            let here = word(source, at);
            let noted = places.find(here);
            places.note(here, at);
            // Only now: copies from two bytes back would take long to decode.
            places.note(word(source, at - 2), at - 2);
            // Where one byte is repeated, it goes on for longer than elsewhere.
            let from = if word(source, at - 1) == here { at - 1 } else { noted };
            if !is_near(from, at) {
                break;
            }
            let length = alike(source, from, at);
            if length < SHORTEST {
                break;
            }
            block.push_copy(at - from, length)?;
            at += length;
            streak = match length {
                ..8 => streak + 1,
                8..16 => streak,
                _ => 0,
            };
        }
        literals = at;
        if at >= last {
            break;
        }
    }
    block.push_literals(source, literals..source.len(), 0)?;
    Some(block.used)
}

fn word(source: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*source[at..].first_chunk().expect("a margin follows"))
}

/// Find the next place in `range` that can be copied, from where, and how many bytes.
#[inline(always)]
fn find(source: &[u8], range: Range<usize>, acceleration: usize, places: &mut Places) -> Option<(usize, usize, usize)> {
    let mut at = range.start;
    let (mut step, mut tries) = (1, acceleration << PATIENCE);
    while at < range.end {
        let here = word(source, at);
        let from = places.find(here);
        places.note(here, at);
        if is_near(from, at) && word(source, from) as u32 == here as u32 {
            let length = alike(source, from, at);
            // Another thread may write to the caller's memory meanwhile.
            if length >= SHORTEST {
                return Some((at, from, length));
            }
        }
        at += step;
        step = tries >> PATIENCE;
        tries += 1;
    }
    None
}

/// Whether `HASHED` bytes can be copied.
enum Short {
    Copy {
        distance: usize,
    },
    /// So can more than a word.
    Longer,
    Missing,
}

#[inline(always)]
fn find_short(source: &[u8], at: usize, places: &mut Places) -> Short {
    let here = word(source, at);
    let from = places.find(here);
    if is_near(from, at) {
        let difference = here ^ word(source, from);
        if difference == 0 {
            return Short::Longer;
        }
        if difference << (64 - 8 * HASHED) == 0 {
            places.note(here, at);
            places.note(here >> 16, at + 2);
            return Short::Copy { distance: at - from };
        }
    }
    places.note(here, at);
    Short::Missing
}

/// Whether `from` lies before `at`, and in reach.
#[inline(always)]
fn is_near(from: usize, at: usize) -> bool {
    at.wrapping_sub(from).wrapping_sub(1) < FARTHEST
}

/// How many bytes from `from` and from `at` on are the same.
#[inline(always)]
fn alike(source: &[u8], from: usize, at: usize) -> usize {
    let step = |start: usize| source[start..].first_chunk().expect("a margin follows");
    let length = alike_in_step(step(from), step(at));
    if length < WIDE { length } else { alike_far(source, from, at) }
}

/// How many bytes at the start of two steps are the same.
#[inline(always)]
fn alike_in_step(step: &[u8; WIDE], other: &[u8; WIDE]) -> usize {
    let [a, b, c, d] = from_fn(|number| word(step, 8 * number) ^ word(other, 8 * number));
    let bytes = |difference: u64| difference.trailing_zeros() as usize / 8;
    let first = bytes(a) + if a == 0 { bytes(b) } else { 0 };
    let second = bytes(c) + if c == 0 { bytes(d) } else { 0 };
    first + if a | b == 0 { second } else { 0 }
}

/// The same as `alike`, where the first step is the same.
#[inline(never)]
fn alike_far(source: &[u8], from: usize, at: usize) -> usize {
    let there = &source[at..source.len() - TAIL];
    let (steps, rest) = source[from..from + there.len()].as_chunks::<WIDE>();
    let (others, other_rest) = there.as_chunks::<WIDE>();
    for (number, (step, other)) in steps.iter().zip(others).enumerate() {
        if step != other {
            return WIDE * number + alike_in_step(step, other);
        }
    }
    let same = rest.iter().zip(other_rest).take_while(|(byte, other)| byte == other).count();
    WIDE * steps.len() + same
}

/// The block that is written. Its methods return `None` when it is full.
struct Block<'o> {
    out: &'o mut [u8],
    used: usize,
}

impl Block<'_> {
    /// Write literals and a copy.
    #[inline(always)]
    fn push(&mut self, source: &[u8], literals: Range<usize>, distance: usize, length: usize) -> Option<()> {
        let copied = length - SHORTEST;
        self.push_literals(source, literals, copied)?;
        *self.out.get_mut(self.used..)?.first_chunk_mut()? = (distance as u16).to_le_bytes();
        self.used += 2;
        if copied >= MORE {
            self.push_length(copied - MORE)?;
        }
        Some(())
    }

    /// Write a token, and the literals that it announces.
    #[inline(always)]
    fn push_literals(&mut self, source: &[u8], literals: Range<usize>, copied: usize) -> Option<()> {
        const STEP: usize = 16;
        let count = literals.len();
        *self.out.get_mut(self.used)? = (count.min(MORE) << 4 | copied.min(MORE)) as u8;
        self.used += 1;
        if count >= MORE {
            self.push_length(count - MORE)?;
        } else if let Some(from) = source[literals.start..].first_chunk::<STEP>()
            && let Some(to) = self.out[self.used..].first_chunk_mut::<STEP>()
        {
            // Always a whole step: one load and one store instead of a loop.
            *to = *from;
            self.used += count;
            return Some(());
        }
        self.out.get_mut(self.used..self.used + count)?.copy_from_slice(&source[literals]);
        self.used += count;
        Some(())
    }

    /// Write a copy without literals.
    #[inline(always)]
    fn push_copy(&mut self, distance: usize, length: usize) -> Option<()> {
        let copied = length - SHORTEST;
        // Seldom, and so apart: the rest has no branch.
        if copied >= MORE + 255 {
            return self.push(&[], 0..0, distance, length);
        }
        // The token, the distance, and the byte that counts for long copies only.
        let bytes = copied.min(MORE) | distance << 8 | (copied.wrapping_sub(MORE) & 255) << 24;
        *self.out.get_mut(self.used..)?.first_chunk_mut()? = (bytes as u32).to_le_bytes();
        self.used += 3 + usize::from(copied >= MORE);
        Some(())
    }

    /// Write copies of `HASHED` bytes, with at most one literal each, as long as there are such and no longer
    /// ones; return where they end.
    #[inline(always)]
    fn push_short_copies(&mut self, source: &[u8], range: Range<usize>, places: &mut Places) -> usize {
        const BARE: usize = HASHED - SHORTEST;
        const WITH_LITERAL: usize = 1 << 4 | BARE;
        let mut at = range.start;
        while at + 1 < range.end
            && let Some(to) = self.out[self.used..].first_chunk_mut()
        {
            let (bytes, literals) = match find_short(source, at, places) {
                Short::Copy { distance } => (BARE | distance << 8, 0),
                Short::Longer => break,
                Short::Missing => match find_short(source, at + 1, places) {
                    Short::Copy { distance } => (WITH_LITERAL | usize::from(source[at]) << 8 | distance << 16, 1),
                    _ => break,
                },
            };
            *to = (bytes as u32).to_le_bytes();
            self.used += 3 + literals;
            at += HASHED + literals;
        }
        at
    }

    /// Write what is left of a length, in bytes that add up.
    #[inline(never)]
    fn push_length(&mut self, more: usize) -> Option<()> {
        let bytes = self.out.get_mut(self.used..self.used + more / 255 + 1)?;
        let (last, full) = bytes.split_last_mut()?;
        full.fill(255);
        *last = (more % 255) as u8;
        self.used += more / 255 + 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noise(u64);

    impl Noise {
        fn next(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }

        fn bytes(&mut self, count: usize, values: usize) -> Vec<u8> {
            (0..count).map(|_| self.next(values) as u8).collect()
        }
    }

    fn encoded(source: &[u8], acceleration: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; source.len()];
        let used = encode(source, &mut out, acceleration, &mut Places::default())?;
        out.truncate(used);
        Some(out)
    }

    /// Bytes of many kinds: few values, long and short copies from near and far, runs.
    fn samples() -> Vec<Vec<u8>> {
        let mut noise = Noise(1);
        let mut all: Vec<Vec<u8>> = [2, 4, 5, 16, 200].iter().map(|values| noise.bytes(40_000, *values)).collect();
        for longest in [3, 10, 100, 3000] {
            let mut bytes = noise.bytes(10, 256);
            while bytes.len() < 200_000 {
                let from = bytes.len() - 1 - noise.next(bytes.len().min(90_000));
                let length = (1 + noise.next(longest)).min(bytes.len() - from);
                bytes.extend_from_within(from..from + length);
                match noise.next(4) {
                    0 => bytes.extend(noise.bytes(longest, 256)),
                    1 => bytes.extend(vec![7; noise.next(longest)]),
                    _ => {}
                }
            }
            all.push(bytes);
        }
        all
    }

    #[test]
    fn blocks_decode_to_their_source() {
        for source in samples() {
            for length in (LEAST..LEAST + 40).chain([source.len()]) {
                for acceleration in [1, 5, 9] {
                    let source = &source[..length];
                    let Some(block) = encoded(source, acceleration) else { continue };
                    let mut back = vec![0; length];
                    assert_eq!(lzzzz::lz4::decompress(&block, &mut back).ok(), Some(length));
                    assert!(back == source);
                }
            }
        }
    }

    #[test]
    fn blocks_are_no_longer_than_those_of_the_library() {
        for (number, source) in samples().iter().enumerate() {
            let mut out = vec![0; 2 * source.len()];
            let library = lzzzz::lz4::compress(source, &mut out, 5).unwrap();
            let own = encoded(source, 5).map_or(source.len(), |block| block.len());
            assert!(own <= library + library / 50, "sample {number}: {own} and {library} bytes");
        }
    }

    #[test]
    fn a_block_that_does_not_fit_is_refused() {
        for source in samples() {
            let Some(block) = encoded(&source, 5) else { continue };
            for room in [0, 1, 2, 3, 4, 20, block.len() / 2, block.len() - 1] {
                let mut out = vec![0xee; room + 1];
                assert_eq!(encode(&source, &mut out[..room], 5, &mut Places::default()), None);
                assert_eq!(out[room], 0xee);
            }
        }
    }

    #[test]
    fn a_block_does_not_depend_on_the_one_before() {
        let mut places = Places::default();
        for source in samples() {
            let mut out = vec![0; source.len()];
            let used = encode(&source, &mut out, 5, &mut places);
            assert!(used.map(|used| out[..used].to_vec()) == encoded(&source, 5));
        }
    }
}
