//! Digests of two buffers at once, by the SHA instructions of the processor.
//!
//! Each of these instructions waits for the one before it longer than it takes to start another, so that
//! one buffer alone leaves half of their time unused. The steps of two buffers alternate.
//!
//! `unsafe`: a processor with these instructions is made sure of once, in `digests`; blocks are loaded
//! from arrays of their size.

use super::lanes::Lane;
use super::sha512::ROOTS;
use super::{Checksum, Digest};
use std::arch::x86_64::*;
use std::array;

/// Whether digests of a kind are computed for two buffers at once.
pub fn serves(kind: Checksum) -> bool {
    matches!(kind, Checksum::Sha1 | Checksum::Sha224 | Checksum::Sha256)
        && is_x86_feature_detected!("sha")
        && is_x86_feature_detected!("sse4.1")
}

/// The digests of buffers, two by two; `None` where other ways are as good.
pub fn digests(kind: Checksum, buffers: &[&[u8]]) -> Option<Vec<Digest>> {
    if buffers.len() < 2 || !serves(kind) {
        return None;
    }
    // SAFETY: `serves` has found the instructions.
    let found = buffers.chunks(2).map(|some| match *some {
        [one, other] => unsafe { digests_of(kind, [one, other]) }.to_vec(),
        _ => some.iter().map(|buffer| kind.digest(buffer)).collect(),
    });
    Some(found.flatten().collect())
}

#[target_feature(enable = "sha,sse4.1,ssse3,sse2")]
fn digests_of(kind: Checksum, buffers: [&[u8]; 2]) -> [Digest; 2] {
    match kind {
        Checksum::Sha1 => run(buffers, sha1_start(), mix_sha1).map(|state| sha1_digest(&state)),
        Checksum::Sha224 => run(buffers, sha256_start(&START_224), mix_sha256).map(|state| sha256_digest(&state, 28)),
        _ => run(buffers, sha256_start(&START_256), mix_sha256).map(|state| sha256_digest(&state, 32)),
    }
}

/// The state of a digest: two vectors.
type State = [__m128i; 2];

#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,sse2")]
fn run(buffers: [&[u8]; 2], start: State, mix: unsafe fn(&mut [State; 2], [&[u8; 64]; 2])) -> [State; 2] {
    let lanes = buffers.map(|buffer| Lane::<64>::new(buffer, false));
    let mut states = [start; 2];
    let both = lanes[0].blocks.min(lanes[1].blocks);
    for number in 0..both {
        // SAFETY: this processor has the instructions.
        unsafe { mix(&mut states, array::from_fn(|place| lanes[place].block(number))) };
    }
    // The rest of the longer buffer, twice: buffers are about as long as each other.
    let place = usize::from(lanes[1].blocks > both);
    let mut alone = [states[place]; 2];
    for number in both..lanes[place].blocks {
        // SAFETY: as above.
        unsafe { mix(&mut alone, [lanes[place].block(number); 2]) };
    }
    states[place] = alone[0];
    states
}

#[inline]
#[target_feature(enable = "sse2,ssse3")]
fn load(block: &[u8; 64], word: usize, order: __m128i) -> __m128i {
    let part: &[u8; 16] = block[16 * word..].first_chunk().expect("a block has four of them");
    // SAFETY: there are 16 bytes.
    _mm_shuffle_epi8(unsafe { _mm_loadu_si128(part.as_ptr().cast()) }, order)
}

#[inline]
#[target_feature(enable = "sse2")]
fn sha1_start() -> State {
    [
        _mm_set_epi32(0x67452301, 0xefcdab89_u32 as i32, 0x98badcfe_u32 as i32, 0x10325476),
        _mm_set_epi32(0xc3d2e1f0_u32 as i32, 0, 0, 0),
    ]
}

#[inline]
#[target_feature(enable = "sse2,sse4.1")]
fn sha1_digest(state: &State) -> Digest {
    let words = [
        _mm_extract_epi32::<3>(state[0]),
        _mm_extract_epi32::<2>(state[0]),
        _mm_extract_epi32::<1>(state[0]),
        _mm_extract_epi32::<0>(state[0]),
        _mm_extract_epi32::<3>(state[1]),
    ];
    Digest::of(words.map(i32::to_be_bytes).as_flattened())
}

#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,sse2")]
fn mix_sha1(states: &mut [State; 2], blocks: [&[u8; 64]; 2]) {
    let order = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    let mut words: [[__m128i; 4]; 2] = blocks.map(|block| [0, 1, 2, 3].map(|word| load(block, word, order)));
    // The first four words of the state after the last step, and before it.
    let mut now = states.map(|state| state[0]);
    let mut before = now;
    macro_rules! four {
        ($number:literal, $function:literal) => {
            for lane in 0..2 {
                let words = &mut words[lane];
                if $number >= 4 {
                    let mixed = _mm_sha1msg1_epu32(words[$number % 4], words[($number + 1) % 4]);
                    let mixed = _mm_xor_si128(mixed, words[($number + 2) % 4]);
                    words[$number % 4] = _mm_sha1msg2_epu32(mixed, words[($number + 3) % 4]);
                }
                let word = words[$number % 4];
                let last = if $number == 0 {
                    _mm_add_epi32(states[lane][1], word)
                } else {
                    _mm_sha1nexte_epu32(before[lane], word)
                };
                before[lane] = now[lane];
                now[lane] = _mm_sha1rnds4_epu32::<$function>(now[lane], last);
            }
        };
    }
    four!(0, 0);
    four!(1, 0);
    four!(2, 0);
    four!(3, 0);
    four!(4, 0);
    four!(5, 1);
    four!(6, 1);
    four!(7, 1);
    four!(8, 1);
    four!(9, 1);
    four!(10, 2);
    four!(11, 2);
    four!(12, 2);
    four!(13, 2);
    four!(14, 2);
    four!(15, 3);
    four!(16, 3);
    four!(17, 3);
    four!(18, 3);
    four!(19, 3);
    for lane in 0..2 {
        states[lane][1] = _mm_sha1nexte_epu32(before[lane], states[lane][1]);
        states[lane][0] = _mm_add_epi32(states[lane][0], now[lane]);
    }
}

const START_224: [u32; 8] =
    [0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939, 0xffc00b31, 0x68581511, 0x64f98fa7, 0xbefa4fa4];
const START_256: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// The words A, B, E, F of a state, and C, D, G, H.
#[inline]
#[target_feature(enable = "sse2")]
fn sha256_start(words: &[u32; 8]) -> State {
    let [a, b, c, d, e, f, g, h] = words.map(|word| word as i32);
    [_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h)]
}

#[inline]
#[target_feature(enable = "sse2,sse4.1")]
fn sha256_digest(state: &State, size: usize) -> Digest {
    let [one, other] = *state;
    let words = [
        _mm_extract_epi32::<3>(one),
        _mm_extract_epi32::<2>(one),
        _mm_extract_epi32::<3>(other),
        _mm_extract_epi32::<2>(other),
        _mm_extract_epi32::<1>(one),
        _mm_extract_epi32::<0>(one),
        _mm_extract_epi32::<1>(other),
        _mm_extract_epi32::<0>(other),
    ];
    Digest::of(&words.map(i32::to_be_bytes).as_flattened()[..size])
}

#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3,sse2")]
fn mix_sha256(states: &mut [State; 2], blocks: [&[u8; 64]; 2]) {
    let order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    let mut words: [[__m128i; 4]; 2] = blocks.map(|block| [0, 1, 2, 3].map(|word| load(block, word, order)));
    let mut now = *states;
    macro_rules! four {
        ($number:literal) => {
            for lane in 0..2 {
                let words = &mut words[lane];
                if $number >= 4 {
                    let mixed = _mm_sha256msg1_epu32(words[$number % 4], words[($number + 1) % 4]);
                    let between = _mm_alignr_epi8::<4>(words[($number + 3) % 4], words[($number + 2) % 4]);
                    words[$number % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(mixed, between), words[($number + 3) % 4]);
                }
                let [one, other] = &mut now[lane];
                let known = _mm_add_epi32(words[$number % 4], constants($number));
                *other = _mm_sha256rnds2_epu32(*other, *one, known);
                *one = _mm_sha256rnds2_epu32(*one, *other, _mm_shuffle_epi32::<0x0e>(known));
            }
        };
    }
    four!(0);
    four!(1);
    four!(2);
    four!(3);
    four!(4);
    four!(5);
    four!(6);
    four!(7);
    four!(8);
    four!(9);
    four!(10);
    four!(11);
    four!(12);
    four!(13);
    four!(14);
    four!(15);
    for (state, now) in states.iter_mut().zip(now) {
        for (words, more) in state.iter_mut().zip(now) {
            *words = _mm_add_epi32(*words, more);
        }
    }
}

/// Four constants: the upper halves of those of SHA-512.
#[inline(always)]
fn constants(number: usize) -> __m128i {
    const ALL: [[u32; 4]; 16] = {
        let mut all = [[0; 4]; 16];
        let mut at = 0;
        while at < 64 {
            all[at / 4][at % 4] = (ROOTS[at] >> 32) as u32;
            at += 1;
        }
        all
    };
    // SAFETY: both have 16 bytes, and any bits are integers.
    unsafe { std::mem::transmute::<[u32; 4], __m128i>(ALL[number]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_gives_what_one_buffer_alone_gives() {
        let bytes: Vec<u8> = (0..5000_u32).map(|at| (at * at / 7) as u8).collect();
        for kind in [Checksum::Sha1, Checksum::Sha224, Checksum::Sha256] {
            if !serves(kind) {
                return; // Not on this processor.
            }
            for first in (0..300).chain([4000]) {
                let buffers = [&bytes[..first], &bytes[7..7 + first * 5 % 331], &bytes[1..first / 2 + 1]];
                let found = digests(kind, &buffers).unwrap();
                assert_eq!(found.len(), buffers.len());
                for (buffer, digest) in buffers.iter().zip(&found) {
                    assert_eq!(digest.bytes(), kind.digest(buffer).bytes(), "{} of {}", kind.name(), buffer.len());
                }
            }
            assert!(digests(kind, &[&bytes]).is_none());
        }
    }
}
