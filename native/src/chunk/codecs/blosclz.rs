//! BloscLZ, encoded and decoded without `unsafe`.
//!
//! The stream is a sequence of operations. The top three bits of the first byte say which:
//!
//! ```text
//! 000nnnnn                     n + 1 literals follow (the first operation is always this one)
//! lllddddd [more] dddddddd     copy l + 2 bytes (l = 7: plus `more`, bytes added up to and
//!                              including the first that is not 255) from d + 1 bytes back
//! lll11111 [more] 11111111 hh ll   the same, from 256 h + l + 8192 bytes back
//! ```
//!
//! C readers refuse a stream whose last operation is a copy, so encoders end with literals.

use crate::chunk::codecs::lz77::repeat;

const MAX_LITERALS: usize = 32;
/// Distances from this one on take the long form.
const NEAR: usize = 8192;
const FARTHEST: usize = NEAR + 0xffff;
/// No match is searched for in the last bytes of the input, where there is little to gain.
const TAIL: usize = 12;
/// A source of this many times the probed size is not given up after the probe.
const SEVERAL: usize = 8;
/// How far apart a source is searched whose start did not shrink.
const LONG_STEP: usize = 128;

/// Decode `source` into `out`. With `whole`, the stream must fill `out` exactly and be
/// used up; without, decoding stops when `out` is full. `None` for anything impossible.
pub fn decode(source: &[u8], out: &mut [u8], whole: bool) -> Option<()> {
    let mut control = (*source.first()? & 31) as usize;
    let (mut at, mut made) = (1, 0);
    loop {
        let room = out.len() - made;
        if control < 32 {
            let run = control + 1;
            if let (Some(from), Some(to)) = (source.get(at..at + MAX_LITERALS), out.get_mut(made..made + MAX_LITERALS))
            {
                // Always a whole step: one load and one store instead of a loop.
                if run <= 8 {
                    to[..8].copy_from_slice(&from[..8]);
                } else {
                    to.copy_from_slice(from);
                }
            } else {
                let fits = run.min(room);
                if whole && fits < run {
                    return None;
                }
                out[made..made + fits].copy_from_slice(source.get(at..at + fits)?);
                if fits < run {
                    return Some(());
                }
            }
            at += run;
            made += run;
        } else {
            let mut length = (control >> 5) + 2;
            if length == 9 {
                loop {
                    let more = *source.get(at)?;
                    at += 1;
                    length += more as usize;
                    if more != 255 {
                        break;
                    }
                }
            }
            let mut distance = ((control & 31) << 8) + *source.get(at)? as usize + 1;
            at += 1;
            if distance == NEAR {
                let far = source.get(at..at + 2)?;
                distance += (far[0] as usize) << 8 | far[1] as usize;
                at += 2;
            }
            if distance > made || (whole && length > room) {
                return None;
            }
            let length = length.min(room);
            repeat(out, made, distance, length);
            made += length;
        }
        if made == out.len() && !whole {
            return Some(());
        }
        match source.get(at) {
            Some(next) => control = *next as usize,
            None => break,
        }
        at += 1;
    }
    (made == out.len()).then_some(())
}

/// The byte that `source` repeats `size` times, if it is a few literals, one copy of them
/// and literals to the end, all alike.
pub fn run(source: &[u8], size: usize) -> Option<u8> {
    let (&count, rest) = source.split_first()?;
    let (first, rest) = rest.split_at_checked((count & 31) as usize + 1)?;
    let byte = first[0];
    let (&control, rest) = rest.split_first()?;
    // Only the long form is worth recognising; its distance must stay within the literals.
    let more = rest.iter().take_while(|more| **more == 255).count();
    let (&last, rest) = rest.get(more..)?.split_first()?;
    let (&distance, rest) = rest.split_first()?;
    let (&count, tail) = rest.split_first()?;
    let length = first.len() + 9 + 255 * more + last as usize + tail.len();
    let alike = control == 7 << 5
        && (distance as usize) < first.len()
        && count as usize + 1 == tail.len()
        && tail.len() <= MAX_LITERALS
        && first.iter().chain(tail).all(|other| *other == byte);
    (alike && length == size).then_some(byte)
}

/// How much to search, by compression level.
struct Effort {
    hash_bits: u32,
    /// Steps grow by one after 2 to the power of this many misses in a row.
    skip_shift: u32,
    shortest: usize,
    /// Give up when the first part has not shrunk to this many percent.
    worth: usize,
}

impl Effort {
    fn of(level: u8) -> Self {
        let (hash_bits, skip_shift, shortest, worth) = match level {
            0..=2 => (12, 4, 6, 66),
            3..=4 => (12, 5, 5, 83),
            5..=6 => (13, 5, 4, 83),
            7..=8 => (14, 6, 4, 90),
            _ => (14, 8, 4, 100),
        };
        Self { hash_bits, skip_shift, shortest, worth }
    }
}

/// Where each hash of four bytes was last seen. Positions count on from call to call, so
/// that entries of earlier calls are recognised as too old and need not be cleared.
#[derive(Default)]
pub struct Table {
    slots: Vec<u32>,
    base: u32,
}

impl Table {
    /// The slots for a source of `length` bytes, and the position its first byte has.
    fn prepare(&mut self, hash_bits: u32, length: usize) -> (&mut [u32], usize) {
        let slots = 1 << hash_bits;
        let next = u32::try_from(length).ok().and_then(|length| self.base.checked_add(length));
        let fits = self.slots.len() == slots && next.is_some_and(|next| next < u32::MAX / 2);
        if !fits {
            self.slots.clear();
            self.slots.resize(slots, 0);
            self.base = 0;
        }
        // Position 0 is never used: a slot that holds it is empty.
        let base = self.base + 1;
        self.base = base + length as u32;
        (&mut self.slots, base as usize)
    }
}

#[inline(always)]
fn four(source: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*source[at..].first_chunk().expect("the tail leaves room"))
}

/// Encode `source` into `out`; return the length, or `None` when it does not fit or gains too little.
pub fn encode(source: &[u8], out: &mut [u8], level: u8, table: &mut Table) -> Option<usize> {
    let mut sink = Sink { out, used: 0 };
    let anchor = match source {
        [first, rest @ ..] if source.len() > 2 * TAIL && source[..rest.len()] == *rest => {
            // All bytes are equal, as the upper bytes of numbers often are.
            sink.literals(&[*first])?;
            sink.copy(source.len() - 2, 1)?;
            source.len() - 1
        }
        _ if source.len() > 2 * TAIL => encode_matches(source, &Effort::of(level), table, &mut sink)?,
        _ => 0,
    };
    let rest = &source[anchor..];
    if rest.len() + rest.len().div_ceil(MAX_LITERALS) > sink.out.len() - sink.used {
        return None;
    }
    sink.literals(rest)?;
    Some(sink.used)
}

/// Find and emit matches; return where the final literals start.
fn encode_matches(source: &[u8], effort: &Effort, table: &mut Table, sink: &mut Sink<'_>) -> Option<usize> {
    let shift = 32 - effort.hash_bits;
    let (slots, base) = table.prepare(effort.hash_bits, source.len());
    let mask = slots.len() - 1;
    let hash = |sequence: u32| (sequence.wrapping_mul(2_654_435_761) >> shift) as usize & mask;
    let limit = source.len() - TAIL;
    let probe = (source.len() / 4).clamp(384, 8192);
    let mut probed = effort.worth >= 100;
    let (mut anchor, mut at) = (0, 1);
    let mut misses = 1usize << effort.skip_shift;
    slots[hash(four(source, 0))] = base as u32;
    while at < limit {
        if at >= probe && !probed {
            probed = true;
            if (sink.used + at - anchor) * 100 > at * effort.worth {
                if source.len() < SEVERAL * probe {
                    return None;
                }
                // Another plane, of another kind, may follow: continue in long steps.
                misses = LONG_STEP << effort.skip_shift;
            }
        }
        let sequence = four(source, at);
        let slot = &mut slots[hash(sequence)];
        let distance = base + at - *slot as usize;
        *slot = (base + at) as u32;
        // Older than this source, or too far: `distance` reaches before its first byte.
        if distance > at.min(FARTHEST) || four(source, at - distance) != sequence {
            at += misses >> effort.skip_shift;
            misses += 1;
            continue;
        }
        // The last byte is left to the literals that every stream ends with.
        let length = 4 + common(source, at - distance + 4, at + 4, source.len() - 1);
        let back = common_back(source, at - distance, at, anchor);
        let shortest = effort.shortest + if distance >= NEAR { 2 } else { 0 };
        if length + back < shortest {
            at += 1;
            continue;
        }
        misses = 1 << effort.skip_shift;
        sink.literals_of(source, anchor, at - back)?;
        sink.copy(length + back, distance)?;
        at += length;
        anchor = at;
        if at < limit {
            slots[hash(four(source, at - 2))] = (base + at - 2) as u32;
        }
    }
    Some(anchor)
}

#[inline(always)]
fn eight(source: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*source[at..].first_chunk().expect("the caller leaves room"))
}

/// How many bytes from `a` and `b` on are equal, `b` staying below `limit`.
#[inline(always)]
fn common(source: &[u8], a: usize, b: usize, limit: usize) -> usize {
    const STEP: usize = 16;
    if b + STEP > limit {
        return common_behind(source, a, b, limit, 0);
    }
    // Most matches end here, at a place that no branch predicts.
    let first = |at: usize| u128::from_le_bytes(*source[at..].first_chunk().expect("`limit` leaves room"));
    let differing = first(a) ^ first(b);
    if differing != 0 {
        return (differing.trailing_zeros() / 8) as usize;
    }
    common_behind(source, a, b, limit, STEP)
}

/// The same, where the first bytes are known to be equal.
#[inline(always)]
fn common_behind(source: &[u8], a: usize, b: usize, limit: usize, known: usize) -> usize {
    let (tail, head) = (&source[a..], &source[b..limit.max(b)]);
    let mut length = known;
    for (x, y) in head[known..].chunks_exact(8).zip(tail[known..].chunks_exact(8)) {
        let differing = eight(x, 0) ^ eight(y, 0);
        if differing != 0 {
            return length + (differing.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    length + head[length..].iter().zip(&tail[length..]).take_while(|(x, y)| x == y).count()
}

/// How many bytes before `a` and `b` are equal, `b` not going below `anchor`.
#[inline(always)]
fn common_back(source: &[u8], a: usize, b: usize, anchor: usize) -> usize {
    let most = a.min(b - anchor);
    if a >= 8 {
        // Mostly few bytes are equal, or few are left: one comparison instead of a loop.
        let equal = ((eight(source, a - 8) ^ eight(source, b - 8)).leading_zeros() / 8) as usize;
        if equal < 8 || most <= 8 {
            return equal.min(most);
        }
    }
    let earlier = source[anchor..b].iter().rev();
    earlier.zip(source[..a].iter().rev()).take_while(|(x, y)| x == y).count()
}

/// The output, with room checked before every write.
struct Sink<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl Sink<'_> {
    /// Emit the literals of `source` from one place to another.
    #[inline(always)]
    fn literals_of(&mut self, source: &[u8], from: usize, to: usize) -> Option<()> {
        const STEP: usize = 16;
        let run = to - from;
        if run <= STEP
            && let Some(bytes) = source.get(from..from + STEP)
            && let Some(out) = self.out.get_mut(self.used..self.used + STEP + 1)
        {
            // Always a whole step; what is too much of it is overwritten.
            out[0] = run.wrapping_sub(1) as u8;
            out[1..].copy_from_slice(bytes);
            self.used += run + usize::from(run > 0);
            return Some(());
        }
        self.literals(&source[from..to])
    }

    #[inline(never)]
    fn literals(&mut self, mut run: &[u8]) -> Option<()> {
        while run.len() >= MAX_LITERALS {
            let to = self.out.get_mut(self.used..self.used + MAX_LITERALS + 1)?;
            to[0] = (MAX_LITERALS - 1) as u8;
            to[1..].copy_from_slice(&run[..MAX_LITERALS]);
            self.used += MAX_LITERALS + 1;
            run = &run[MAX_LITERALS..];
        }
        if !run.is_empty() {
            let to = self.out.get_mut(self.used..self.used + run.len() + 1)?;
            to[0] = (run.len() - 1) as u8;
            to[1..].copy_from_slice(run);
            self.used += run.len() + 1;
        }
        Some(())
    }

    #[inline(always)]
    fn byte(&mut self, value: u8) -> Option<()> {
        *self.out.get_mut(self.used)? = value;
        self.used += 1;
        Some(())
    }

    #[inline(always)]
    fn copy(&mut self, length: usize, distance: usize) -> Option<()> {
        let far = distance >= NEAR;
        let back = distance.min(NEAR) - 1;
        let (high, low) = ((back >> 8) as u8, back as u8);
        if length < 9 + 255
            && let Some(out) = self.out.get_mut(self.used..self.used + 5)
        {
            // Which form it is, no branch predicts: all bytes are written, and some of them count.
            let is_short = length < 9;
            let rest = distance.wrapping_sub(NEAR) as u16;
            out[0] = ((length - 2).min(7) << 5) as u8 | high;
            out[1] = (length.wrapping_sub(9)) as u8;
            let used = 2 - usize::from(is_short);
            out[used] = low;
            out[used + 1..used + 3].copy_from_slice(&rest.to_be_bytes());
            self.used += used + 1 + 2 * usize::from(far);
            return Some(());
        }
        self.long_copy(length, distance)
    }

    /// The same for any length, and where room is short.
    #[inline(never)]
    fn long_copy(&mut self, length: usize, distance: usize) -> Option<()> {
        let far = distance >= NEAR;
        let back = distance.min(NEAR) - 1;
        let (high, low) = ((back >> 8) as u8, back as u8);
        if length < 9 {
            self.byte(((length - 2) << 5) as u8 | high)?;
        } else {
            self.byte(7 << 5 | high)?;
            let mut rest = length - 9;
            while rest >= 255 {
                self.byte(255)?;
                rest -= 255;
            }
            self.byte(rest as u8)?;
        }
        self.byte(low)?;
        if far {
            let rest = distance - NEAR;
            self.byte((rest >> 8) as u8)?;
            self.byte(rest as u8)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(source: &[u8], level: u8) -> usize {
        let mut packed = vec![0; source.len() + source.len() / 16 + 64];
        let mut table = Table::default();
        let Some(used) = encode(source, &mut packed, level, &mut table) else {
            return source.len();
        };
        let mut again = vec![0; packed.len()];
        assert_eq!(encode(source, &mut again, level, &mut table), Some(used), "old entries change nothing");
        let mut back = vec![0; source.len()];
        if !source.is_empty() {
            decode(&packed[..used], &mut back, true).unwrap();
            assert_eq!(back, source);
            if let Some(byte) = run(&packed[..used], source.len()) {
                assert!(source.iter().all(|other| *other == byte));
            }
            assert_eq!(run(&packed[..used], source.len() + 1), None);
            for part in [1, source.len() / 3, source.len() / 2, source.len()] {
                let mut prefix = vec![0; part];
                decode(&packed[..used], &mut prefix, false).unwrap();
                assert_eq!(prefix, source[..part]);
            }
        }
        used
    }

    fn noise(length: usize, mask: u8) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..length)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as u8 & mask
            })
            .collect()
    }

    #[test]
    fn encoded_data_decode_again() {
        for level in [1, 3, 5, 7, 9] {
            for length in [0, 1, 2, 3, 25, 31, 32, 33, 100, 1000, 40_000, 200_000] {
                round_trip(&vec![7; length], level);
                round_trip(&noise(length, 255), level);
                round_trip(&noise(length, 3), level);
                round_trip(&(0..length).map(|i| (i / 5) as u8).collect::<Vec<_>>(), level);
                let far: Vec<u8> = noise(length / 2, 255).repeat(2);
                round_trip(&far, level);
                round_trip(&noise(7, 255).repeat(length / 7), level);
            }
        }
    }

    #[test]
    fn repetition_is_found() {
        assert!(round_trip(&[9; 100_000], 5) < 600);
        assert!(round_trip(&noise(20_000, 255).repeat(2), 9) < 21_500);
    }

    #[test]
    fn runs_are_recognised() {
        let mut packed = vec![0; 2000];
        for length in [100, 270, 271, 5000, 100_000] {
            let used = encode(&vec![5; length], &mut packed, 5, &mut Table::default()).unwrap();
            assert_eq!(run(&packed[..used], length), Some(5));
            packed[1] = 6;
            assert_eq!(run(&packed[..used], length), None);
        }
        assert_eq!(run(&[0, 5, 0xe0, 255], 300), None);
    }

    #[test]
    fn impossible_streams_are_refused() {
        let mut out = [0; 64];
        for stream in [
            &[][..],
            &[0][..],                    // a literal that is not there
            &[0, 1, 0x20, 5][..],        // six bytes back after one
            &[0, 1, 0xe0, 255, 255][..], // a length without an end
            &[0, 1, 0x3f, 255, 0][..],   // half a far distance
            &[0, 1, 0xe0, 200, 0][..],   // longer than the room
        ] {
            assert_eq!(decode(stream, &mut out, true), None, "{stream:?}");
        }
        assert_eq!(decode(&[0, 1, 0xe0, 54, 0], &mut out, true), Some(()));
        assert_eq!(out, [1; 64]);
    }
}
