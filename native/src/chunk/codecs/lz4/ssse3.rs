//! LZ4 in steps of 16 bytes: all but the end of a block.
//!
//! It is fast because it has few branches. A copy from any distance is one load, one shuffle and one
//! store (the shuffle repeats bytes that lie less than 16 bytes back), so there is no branch on the
//! distance; and behind a token without literals the next one lies three bytes further, so that the
//! processor need not wait for it.
//!
//! `unsafe`: bytes are read and written in steps of 16 without a check each time. As long as `at` and
//! `made` are below their limits, `ROOM` bytes follow both; every step says why that is enough. Steps
//! write more bytes than the copy has, never beyond that room: these bytes of `out` are written again
//! by later steps, or by `decode_rest`.

use super::{SHORTEST, extended};
use std::arch::x86_64::*;

/// Bytes per step.
const STEP: usize = 16;
/// No token without extended lengths takes more: 15 + 2 bytes of the block, 14 + 18 bytes of output,
/// and a further step.
const ROOM: usize = 64;
/// After so many tokens without literals, more of them are expected.
const STREAK: usize = 4;
/// After so many tokens of other kinds it is decided whether to continue. (Every block starts with
/// literals.)
const TRIAL: usize = 1024;
/// The longest copy that one step makes, as a token has it.
const SHORT: usize = STEP - SHORTEST;

pub fn available() -> bool {
    std::arch::is_x86_feature_detected!("ssse3")
}

/// Decode until the block or the output come near their end, or, if `doubtful`, until there is little
/// to gain; return how far both got, at the start of a token. `None` for an impossible block.
pub fn decode_most(source: &[u8], out: &mut [u8], doubtful: bool) -> Option<(usize, usize)> {
    if source.len() <= ROOM || out.len() <= ROOM {
        return Some((0, 0));
    }
    // SAFETY: SSSE3 is available (the caller asked).
    unsafe { decode_steps(source, out, doubtful) }
}

/// For each distance below 16, the shuffle that repeats the bytes so far back; from 16 on a step does
/// not overlap its own output. A distance of zero gives zeros.
static REPEATED: Masks = {
    let mut masks = [[0x80; STEP]; STEP + 1];
    let mut distance = 1;
    while distance <= STEP {
        let mut byte = 0;
        while byte < STEP {
            masks[distance][byte] = (byte % distance) as u8;
            byte += 1;
        }
        distance += 1;
    }
    Masks(masks)
};

#[repr(align(16))]
struct Masks([[u8; STEP]; STEP + 1]);

/// Where a block is decoded from and to.
struct Cursor<'a> {
    source: &'a [u8],
    out: &'a mut [u8],
    at: usize,
    made: usize,
}

#[target_feature(enable = "ssse3")]
fn decode_steps(source: &[u8], out: &mut [u8], doubtful: bool) -> Option<(usize, usize)> {
    let (last_at, last_made) = (source.len() - ROOM, out.len() - ROOM);
    let mut cursor = Cursor { source, out, at: 0, made: 0 };
    let (mut streak, mut usual, mut bare) = (0, 0, 0);
    while cursor.at < last_at && cursor.made < last_made {
        if streak >= STREAK {
            // SAFETY: `ROOM` bytes follow `at` and `made`.
            let (short, long) = unsafe { cursor.copy_bare(last_at, last_made)? };
            bare += short;
            usual += 2 * long;
            // Tokens that came often are expected again behind a token of another kind.
            streak = if short >= STREAK { STREAK - 1 } else { 0 };
            if cursor.at >= last_at || cursor.made >= last_made {
                break;
            }
        }
        // SAFETY: `ROOM` bytes follow `at` and `made`.
        let Some(token) = (unsafe { cursor.step()? }) else { break };
        streak = if token < 16 || streak == STREAK - 1 { streak + 1 } else { 0 };
        // The C library is best at long copies, so these count twice everywhere.
        usual += if token < 16 && token > SHORT { 2 } else { 1 };
        if usual >= TRIAL {
            if doubtful && bare < usual {
                break;
            }
            (usual, bare) = (0, 0);
        }
    }
    Some((cursor.at, cursor.made))
}

impl Cursor<'_> {
    /// Decode tokens that have no literals; return how many had a short copy, and how many a long one.
    /// A token too near to an end is left.
    ///
    /// # Safety
    /// `ROOM` bytes of the block must follow `last_at`, and as much output `last_made`.
    #[inline]
    #[target_feature(enable = "ssse3")]
    unsafe fn copy_bare(&mut self, last_at: usize, last_made: usize) -> Option<(usize, usize)> {
        let (mut short, mut long) = (0, 0);
        while self.at < last_at && self.made < last_made {
            // A short one takes three bytes and writes no more than a step.
            let steps = ((last_at - self.at) / 3).min((last_made - self.made) / STEP) + 1;
            // SAFETY: `at` and `made` stay below `last_at + 3` and `last_made + STEP`.
            let done = unsafe { self.copy_short(steps)? };
            short += done;
            if done == steps {
                continue;
            }
            // SAFETY: `ROOM` bytes follow; this one was not short.
            let word = unsafe { self.source.as_ptr().add(self.at).cast::<u32>().read_unaligned() };
            let (token, more) = ((word & 0xff) as usize, (word >> 24) as usize);
            let distance = (word >> 8 & 0xffff) as usize;
            if distance > self.made && token <= 15 {
                return None;
            }
            let extended = usize::from(token == 15);
            let length = token + SHORTEST + extended * more;
            if token > 15 || extended * more == 255 || length > last_made.saturating_sub(self.made) {
                break;
            }
            // SAFETY: the distance does not exceed `made`; `length` and `ROOM` bytes follow.
            unsafe { self.repeat(self.made, distance, length) };
            self.made += length;
            self.at += 3 + extended;
            long += 1;
        }
        Some((short, long))
    }

    /// Decode up to `steps` tokens that have no literals and a short copy; return how many.
    ///
    /// # Safety
    /// 3 * `steps` + 1 bytes of the block and `steps` steps of output must follow.
    #[inline]
    #[target_feature(enable = "ssse3")]
    unsafe fn copy_short(&mut self, steps: usize) -> Option<usize> {
        let (mut at, mut made) = (self.at, self.made);
        let mut done = 0;
        while done < steps {
            // SAFETY: four bytes follow, by the caller's promise.
            let word = unsafe { self.source.as_ptr().add(at).cast::<u32>().read_unaligned() };
            let token = (word & 0xff) as usize;
            if token > SHORT {
                break;
            }
            let distance = (word >> 8 & 0xffff) as usize;
            if distance > made {
                return None;
            }
            // SAFETY: the distance does not exceed `made`, and a step of output follows.
            unsafe { self.repeat_step(made, distance) };
            made += token + SHORTEST;
            at += 3;
            done += 1;
        }
        (self.at, self.made) = (at, made);
        Some(done)
    }

    /// Decode one token of any kind, and return it; a token too near to an end is left.
    ///
    /// # Safety
    /// `ROOM` bytes of the block and of output must follow.
    #[inline]
    #[target_feature(enable = "ssse3")]
    unsafe fn step(&mut self) -> Option<Option<usize>> {
        let (mut at, mut made) = (self.at + 1, self.made);
        // SAFETY: at least `ROOM` bytes follow.
        let token = unsafe { *self.source.get_unchecked(self.at) } as usize;
        let mut literals = token >> 4;
        if literals == 15 {
            literals += extended(self.source, &mut at)?;
            if literals + ROOM > self.out.len() - made || literals + ROOM > self.source.len().saturating_sub(at) {
                return Some(None);
            }
        }
        // SAFETY: `literals` and at least a step more lie in both, by the line above, or
        // because there are no more than 14 of them.
        unsafe { copy_steps(self.source.as_ptr().add(at), self.out.as_mut_ptr().add(made), literals) };
        at += literals;
        made += literals;
        // SAFETY: of the block's room, 15 bytes are used at the most.
        let distance = usize::from(unsafe { self.source.as_ptr().add(at).cast::<u16>().read_unaligned() });
        at += 2;
        if distance > made {
            return None;
        }
        let mut length = (token & 15) + SHORTEST;
        if length == 15 + SHORTEST {
            length += extended(self.source, &mut at)?;
            if length + ROOM > self.out.len() - made {
                return Some(None);
            }
        }
        // SAFETY: the distance does not exceed `made`; `length` and a step more follow, by
        // the line above, or because of the room 14 + 18 bytes are used at the most.
        unsafe { self.repeat(made, distance, length) };
        (self.at, self.made) = (at, made + length);
        Some(Some(token))
    }

    /// Repeat `length` bytes, and up to a step more, from `distance` bytes back.
    ///
    /// # Safety
    /// As for `repeat_step`, with `length` and a step more of output behind `made`.
    #[inline]
    #[target_feature(enable = "ssse3")]
    unsafe fn repeat(&mut self, made: usize, distance: usize, length: usize) {
        // SAFETY: by the caller's promise, in all of them.
        unsafe {
            let first = self.repeat_step(made, distance);
            if length <= STEP {
                return;
            }
            let to = self.out.as_mut_ptr().add(made);
            if distance >= STEP {
                copy_steps(to.sub(distance).add(STEP), to.add(STEP), length - STEP);
                return;
            }
            // Whole repetitions are stored again, without further loads.
            let step = STEP - STEP % distance.max(1);
            let mut done = step;
            while done < length {
                _mm_storeu_si128(to.add(done).cast(), first);
                done += step;
            }
        }
    }

    /// Repeat one step from `distance` bytes back.
    ///
    /// # Safety
    /// `distance` may not exceed `made`, and a step of output must follow `made`.
    #[inline]
    #[target_feature(enable = "ssse3")]
    unsafe fn repeat_step(&mut self, made: usize, distance: usize) -> __m128i {
        // SAFETY: the step that is read ends before the one that is written does; masks are
        // aligned and there is one for every distance up to 16.
        unsafe {
            let to = self.out.as_mut_ptr().add(made);
            let mask = _mm_load_si128(REPEATED.0.as_ptr().add(distance.min(STEP)).cast());
            let bytes = _mm_shuffle_epi8(_mm_loadu_si128(to.sub(distance).cast()), mask);
            _mm_storeu_si128(to.cast(), bytes);
            bytes
        }
    }
}

/// Copy `length` bytes, and up to a step more, step by step from the front.
///
/// # Safety
/// `length` and a step more must follow both; `to` may lie a step or more behind `from`.
#[inline]
#[target_feature(enable = "ssse3")]
unsafe fn copy_steps(from: *const u8, to: *mut u8, length: usize) {
    let mut done = 0;
    loop {
        // SAFETY: `done` does not exceed `length`.
        unsafe { _mm_storeu_si128(to.add(done).cast(), _mm_loadu_si128(from.add(done).cast())) };
        done += STEP;
        if done >= length {
            return;
        }
    }
}

/// How many tokens are examined together, and how many bytes of the block that takes.
pub const TOGETHER: usize = 16;
pub const TOGETHER_BYTES: usize = 3 * TOGETHER;

/// Tokens without literals and with a short copy of earlier output: how many follow each other, and how
/// many bytes the first eight of them and all of them give.
pub struct Bare {
    pub tokens: usize,
    pub first_made: usize,
    pub all_made: usize,
}

/// Examine the next tokens of a block, before which there are `made` bytes of output.
#[inline]
#[target_feature(enable = "ssse3")]
pub fn count_bare(next: &[u8; TOGETHER_BYTES], made: usize) -> Bare {
    let zero = _mm_setzero_si128();
    let tokens = every_third(next, 0);
    let fifteen = _mm_set1_epi8(15);
    let mut others = _mm_cmpeq_epi8(_mm_max_epu8(tokens, fifteen), tokens);
    if made < 0xffff {
        let (low, high) = (every_third(next, 1), every_third(next, 2));
        let (made_low, made_high) = (_mm_set1_epi8(made as i8), _mm_set1_epi8((made >> 8) as i8));
        // The saturating difference is zero where the first does not exceed the second.
        let low_fits = _mm_cmpeq_epi8(_mm_subs_epu8(low, made_low), zero);
        let high_fits = _mm_cmpeq_epi8(_mm_subs_epu8(high, made_high), zero);
        let low_counts = _mm_cmpeq_epi8(high, made_high);
        let fits = _mm_andnot_si128(_mm_andnot_si128(low_fits, low_counts), high_fits);
        others = _mm_or_si128(others, _mm_cmpeq_epi8(fits, zero));
    }
    let count = (_mm_movemask_epi8(others) as u32 | 1 << TOGETHER).trailing_zeros() as usize;
    // SAFETY: `count` is 16 at the most, so 16 bytes follow.
    let kept = unsafe { _mm_loadu_si128(KEPT.as_ptr().add(TOGETHER - count).cast()) };
    let sums = _mm_sad_epu8(_mm_and_si128(tokens, kept), zero);
    let first = _mm_cvtsi128_si32(sums) as usize;
    let rest = _mm_cvtsi128_si32(_mm_unpackhi_epi64(sums, sums)) as usize;
    Bare {
        tokens: count,
        first_made: first + SHORTEST * count.min(TOGETHER / 2),
        all_made: first + rest + SHORTEST * count,
    }
}

/// Bytes `which`, `which` + 3, and so on.
#[inline]
#[target_feature(enable = "ssse3")]
fn every_third(bytes: &[u8; TOGETHER_BYTES], which: usize) -> __m128i {
    let mut found = _mm_setzero_si128();
    for (part, mask) in bytes.as_chunks::<STEP>().0.iter().zip(&THIRDS[which]) {
        // SAFETY: both are 16 bytes.
        let (part, mask) = unsafe { (_mm_loadu_si128(part.as_ptr().cast()), _mm_loadu_si128(mask.as_ptr().cast())) };
        found = _mm_or_si128(found, _mm_shuffle_epi8(part, mask));
    }
    found
}

/// For each of the three bytes of a token: where those of 16 tokens lie, in three steps.
static THIRDS: [[[u8; STEP]; 3]; 3] = {
    let mut thirds = [[[0x80; STEP]; 3]; 3];
    let mut byte = 0;
    while byte < TOGETHER_BYTES {
        thirds[byte % 3][byte / STEP][byte / 3] = (byte % STEP) as u8;
        byte += 1;
    }
    thirds
};

/// From byte 16 - n on, the mask that keeps n bytes.
static KEPT: [u8; 2 * TOGETHER] = {
    let mut kept = [0; 2 * TOGETHER];
    let mut byte = 0;
    while byte < TOGETHER {
        kept[byte] = 0xff;
        byte += 1;
    }
    kept
};
