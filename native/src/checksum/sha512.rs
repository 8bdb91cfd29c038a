//! SHA-512 and SHA-384 (FIPS 180-4) for processors with AVX2 and BMI2. Written here because the speed of the
//! common crates is 0.7 of OpenSSL's there: they rotate by two instructions instead of one, and make the
//! schedule of one block at a time. Here that of two blocks is made while the first is mixed in.
//!
//! `unsafe`: vectors are loaded and stored at addresses inside of arrays of known size, and a function is
//! called that needs instructions which were found to be there.

use super::early::early;
use std::arch::x86_64::*;

type State = [u64; 8];
type Block = [u8; BLOCK];

const BLOCK: usize = 128;
/// The bytes at the end of the last block that hold the number of bits.
const LENGTH: usize = 16;

/// The first 64 bits of the fractions of the cube roots of the first 80 primes.
#[rustfmt::skip]
pub(super) const ROOTS: [u64; 80] = [
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc, 0x3956c25bf348b538,
    0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118, 0xd807aa98a3030242, 0x12835b0145706fbe,
    0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2, 0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235,
    0xc19bf174cf692694, 0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5, 0x983e5152ee66dfab,
    0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4, 0xc6e00bf33da88fc2, 0xd5a79147930aa725,
    0x06ca6351e003826f, 0x142929670a0e6e70, 0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed,
    0x53380d139d95b3df, 0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30, 0xd192e819d6ef5218,
    0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8, 0x19a4c116b8d2d0c8, 0x1e376c085141ab53,
    0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8, 0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373,
    0x682e6ff3d6b2b8a3, 0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b, 0xca273eceea26619c,
    0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178, 0x06f067aa72176fba, 0x0a637dc5a2c898a6,
    0x113f9804bef90dae, 0x1b710b35131c471b, 0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc,
    0x431d67c49c100d4c, 0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
];

pub(super) const START_384: State = [
    0xcbbb9d5dc1059ed8,
    0x629a292a367cd507,
    0x9159015a3070dd17,
    0x152fecd8f70e5939,
    0x67332667ffc00b31,
    0x8eb44a8768581511,
    0xdb0c2e0d64f98fa7,
    0x47b5481dbefa4fa4,
];

pub(super) const START_512: State = [
    0x6a09e667f3bcc908,
    0xbb67ae8584caa73b,
    0x3c6ef372fe94f82b,
    0xa54ff53a5f1d36f1,
    0x510e527fade682d1,
    0x9b05688c2b3e6c1f,
    0x1f83d9abfb41bd6b,
    0x5be0cd19137e2179,
];

/// The SHA-384 of some bytes; `None` on other processors.
pub fn sha384(data: &[u8]) -> Option<[u8; 48]> {
    digest(START_384, data)?.first_chunk().copied()
}

/// The SHA-512 of some bytes; `None` on other processors.
pub fn sha512(data: &[u8]) -> Option<[u8; 64]> {
    digest(START_512, data)
}

fn digest(mut state: State, data: &[u8]) -> Option<[u8; 64]> {
    let (vectors, bits) = (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("bmi2"));
    if !vectors || !bits || !is_x86_feature_detected!("bmi1") {
        return None;
    }
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    let mut last = [0; 2 * BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK - LENGTH { BLOCK } else { 2 * BLOCK };
    last[end - LENGTH..end].copy_from_slice(&(data.len() as u128 * 8).to_be_bytes());
    for blocks in [blocks, last[..end].as_chunks().0] {
        let (pairs, single) = blocks.as_chunks::<2>();
        for [one, next] in pairs {
            // SAFETY: the processor has the instructions.
            unsafe { mix(&mut state, one, Some(next)) };
        }
        for block in single {
            // SAFETY: as above.
            unsafe { mix(&mut state, block, None) };
        }
    }
    let mut digest = [0; 64];
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    Some(digest)
}

/// The schedule of two blocks, with the roots added: two words of the one, two of the other, and so on.
#[repr(align(32))]
struct Schedule([u64; 160]);

/// One round; `$both` holds `b ^ c`, and `a ^ b` for the next one.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident $both:ident, $word:expr) => {
        let sum = early($h.wrapping_add($word)).wrapping_add($e & $f).wrapping_add(!$e & $g);
        let sum = sum.wrapping_add($e.rotate_right(14) ^ $e.rotate_right(18) ^ $e.rotate_right(41));
        let next = $a ^ $b;
        $d = $d.wrapping_add(sum);
        let majority = ($both & next) ^ $b;
        $h = sum.wrapping_add(majority).wrapping_add($a.rotate_right(28) ^ $a.rotate_right(34) ^ $a.rotate_right(39));
        $both = next;
    };
}

/// Sixteen rounds with words `$first` and on of the schedule; before every second one `$before` is done.
macro_rules! rounds {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident $both:ident, $words:expr, $first:expr,
     $before:ident) => {
        $before!(0);
        round!($a $b $c $d $e $f $g $h $both, $words[$first]);
        round!($h $a $b $c $d $e $f $g $both, $words[$first + 1]);
        $before!(1);
        round!($g $h $a $b $c $d $e $f $both, $words[$first + 4]);
        round!($f $g $h $a $b $c $d $e $both, $words[$first + 5]);
        $before!(2);
        round!($e $f $g $h $a $b $c $d $both, $words[$first + 8]);
        round!($d $e $f $g $h $a $b $c $both, $words[$first + 9]);
        $before!(3);
        round!($c $d $e $f $g $h $a $b $both, $words[$first + 12]);
        round!($b $c $d $e $f $g $h $a $both, $words[$first + 13]);
        $before!(4);
        round!($a $b $c $d $e $f $g $h $both, $words[$first + 16]);
        round!($h $a $b $c $d $e $f $g $both, $words[$first + 17]);
        $before!(5);
        round!($g $h $a $b $c $d $e $f $both, $words[$first + 20]);
        round!($f $g $h $a $b $c $d $e $both, $words[$first + 21]);
        $before!(6);
        round!($e $f $g $h $a $b $c $d $both, $words[$first + 24]);
        round!($d $e $f $g $h $a $b $c $both, $words[$first + 25]);
        $before!(7);
        round!($c $d $e $f $g $h $a $b $both, $words[$first + 28]);
        round!($b $c $d $e $f $g $h $a $both, $words[$first + 29]);
    };
}

macro_rules! nothing {
    ($number:literal) => {};
}

macro_rules! rotated {
    ($words:expr, $bits:literal) => {
        _mm256_or_si256(_mm256_srli_epi64($words, $bits), _mm256_slli_epi64($words, { 64 - $bits }))
    };
}

/// Mix one block into the state, and the next one, if there is one.
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[allow(unused_assignments, reason = "the last round prepares one more")]
fn mix(state: &mut State, one: &Block, next: Option<&Block>) {
    let mut schedule = Schedule([0; 160]);
    let reversed = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x08090a0b0c0d0e0f, 0x0001020304050607));
    let rotated_8 = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x080f0e0d0c0b0a09, 0x0007060504030201));
    // SAFETY: two words are 16 bytes.
    let pair = |roots: &[u64; 2]| unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(roots.as_ptr().cast())) };
    let mut words = [_mm256_setzero_si256(); 8];
    for (number, words) in words.iter_mut().enumerate() {
        let part = 16 * number..16 * number + 16;
        let (low, high) = (&one[part.clone()], &next.unwrap_or(one)[part]);
        // SAFETY: both have 16 bytes, and four words of the schedule have 32, which are aligned.
        unsafe {
            let (low, high) = (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast()));
            *words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), reversed);
            let place = schedule.0[4 * number..4 * number + 4].as_mut_ptr();
            _mm256_store_si256(place.cast(), _mm256_add_epi64(*words, pair(&ROOTS.as_chunks().0[number])));
        }
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let mut both = b ^ c;
    for (round, roots) in ROOTS.as_chunks::<16>().0.iter().enumerate().skip(1) {
        // Arrays of a known size, so that no index has to be checked.
        let (done, rest) = schedule.0.split_at_mut(32 * round);
        let (Some(done), Some(rest)) = (done.last_chunk::<32>(), rest.first_chunk_mut::<32>()) else {
            continue;
        };
        macro_rules! advance {
            ($n:literal) => {
                let old = _mm256_alignr_epi8(words[($n + 1) % 8], words[$n], 8);
                let late = words[($n + 7) % 8];
                let first = _mm256_xor_si256(rotated!(old, 1), _mm256_shuffle_epi8(old, rotated_8));
                let second = _mm256_xor_si256(rotated!(late, 19), rotated!(late, 61));
                let first = _mm256_xor_si256(first, _mm256_srli_epi64(old, 7));
                let second = _mm256_xor_si256(second, _mm256_srli_epi64(late, 6));
                let middle = _mm256_alignr_epi8(words[($n + 5) % 8], words[($n + 4) % 8], 8);
                words[$n] = _mm256_add_epi64(_mm256_add_epi64(words[$n], middle), _mm256_add_epi64(first, second));
                let place = rest[4 * $n..4 * $n + 4].as_mut_ptr();
                let roots = pair(&roots.as_chunks().0[$n]);
                // SAFETY: these are four words, which are aligned.
                unsafe { _mm256_store_si256(place.cast(), _mm256_add_epi64(words[$n], roots)) };
            };
        }
        rounds!(a b c d e f g h both, done, 0, advance);
    }
    rounds!(a b c d e f g h both, schedule.0, 128, nothing);
    add(state, [a, b, c, d, e, f, g, h]);
    if next.is_none() {
        return;
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let mut both = b ^ c;
    for words in schedule.0.as_chunks::<32>().0 {
        rounds!(a b c d e f g h both, words, 2, nothing);
    }
    add(state, [a, b, c, d, e, f, g, h]);
}

fn add(state: &mut State, words: State) {
    for (sum, word) in state.iter_mut().zip(words) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest as _;

    #[test]
    fn digests_are_those_of_another_library() {
        for length in (0..400).chain([1000, 4096, 10_001]) {
            let data: Vec<u8> = (0..length).map(|index| (index * index % 251) as u8).collect();
            if let (Some(short), Some(long)) = (sha384(&data), sha512(&data)) {
                assert_eq!(&short[..], &sha2::Sha384::digest(&data)[..], "{length} bytes");
                assert_eq!(&long[..], &sha2::Sha512::digest(&data)[..], "{length} bytes");
            }
        }
    }
}
