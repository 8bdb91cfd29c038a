//! MD5 (RFC 1321). Written here because the speed of the common crates is 0.8 of OpenSSL's; see `early`.

use super::early::early;
use std::array;

/// The integer parts of 2^32 · |sin(1)|, |sin(2)| and so on, in radians.
pub(super) const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501, 0x698098d8,
    0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340,
    0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87,
    0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039,
    0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
    0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
    0xeb86d391,
];

const BLOCK: usize = 64;
/// The bytes at the end of the last block that hold the number of bits.
const LENGTH: usize = 8;

pub fn md5(data: &[u8]) -> [u8; 16] {
    let mut state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    for block in blocks {
        state = mixed(state, block);
    }
    let mut last = [0; 2 * BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK - LENGTH { BLOCK } else { 2 * BLOCK };
    let bits = (data.len() as u64).wrapping_mul(8);
    last[end - LENGTH..end].copy_from_slice(&bits.to_le_bytes());
    for block in last[..end].as_chunks::<BLOCK>().0 {
        state = mixed(state, block);
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_le_bytes();
    }
    digest
}

/// One step: `b` comes from the step before, everything else is known earlier.
macro_rules! step {
    ($mix:ident $a:ident $b:ident $c:ident $d:ident, $word:expr, $number:expr, $bits:expr) => {
        let known = $a.wrapping_add(SINES[$number]).wrapping_add($word);
        $a = $mix(known, $b, $c, $d).rotate_left($bits).wrapping_add($b);
    };
}

/// Sixteen steps; step n takes the word `first + n * stride` of the block.
macro_rules! round {
    ($mix:ident $a:ident $b:ident $c:ident $d:ident, $words:ident, $round:expr, $first:expr, $stride:expr, $bits:expr) => {
        round!(@four $mix $a $b $c $d, $words, $round, $first, $stride, $bits, 0);
        round!(@four $mix $a $b $c $d, $words, $round, $first, $stride, $bits, 4);
        round!(@four $mix $a $b $c $d, $words, $round, $first, $stride, $bits, 8);
        round!(@four $mix $a $b $c $d, $words, $round, $first, $stride, $bits, 12);
    };
    (@four $mix:ident $a:ident $b:ident $c:ident $d:ident, $words:ident, $round:expr, $first:expr, $stride:expr,
     $bits:expr, $n:expr) => {
        step!($mix $a $b $c $d, $words[($first + $n * $stride) % 16], 16 * $round + $n, $bits[0]);
        step!($mix $d $a $b $c, $words[($first + ($n + 1) * $stride) % 16], 16 * $round + $n + 1, $bits[1]);
        step!($mix $c $d $a $b, $words[($first + ($n + 2) * $stride) % 16], 16 * $round + $n + 2, $bits[2]);
        step!($mix $b $c $d $a, $words[($first + ($n + 3) * $stride) % 16], 16 * $round + $n + 3, $bits[3]);
    };
}

#[inline(always)]
fn choose(known: u32, b: u32, c: u32, d: u32) -> u32 {
    early(known).wrapping_add(((c ^ d) & b) ^ d)
}

/// The two sides have no bit in common, so that their sum is their union.
#[inline(always)]
fn choose_by_last(known: u32, b: u32, c: u32, d: u32) -> u32 {
    early(known.wrapping_add(early(c & !d))).wrapping_add(b & d)
}

#[inline(always)]
fn parity(known: u32, b: u32, c: u32, d: u32) -> u32 {
    early(known).wrapping_add(early(c ^ d) ^ b)
}

#[inline(always)]
fn last(known: u32, b: u32, c: u32, d: u32) -> u32 {
    early(known).wrapping_add(c ^ (b | early(!d)))
}

#[inline(always)]
fn mixed(state: [u32; 4], block: &[u8; BLOCK]) -> [u32; 4] {
    let words: [u32; 16] = array::from_fn(|n| u32::from_le_bytes(block.as_chunks::<4>().0[n]));
    let [mut a, mut b, mut c, mut d] = state;
    round!(choose a b c d, words, 0, 0, 1, [7, 12, 17, 22]);
    round!(choose_by_last a b c d, words, 1, 1, 5, [5, 9, 14, 20]);
    round!(parity a b c d, words, 2, 5, 3, [4, 11, 16, 23]);
    round!(last a b c d, words, 3, 0, 7, [6, 10, 15, 21]);
    let [first, second, third, fourth] = state;
    [first.wrapping_add(a), second.wrapping_add(b), third.wrapping_add(c), fourth.wrapping_add(d)]
}

#[cfg(test)]
mod tests {
    use super::md5;

    /// The test suite of RFC 1321.
    #[test]
    fn values_of_the_document() {
        for (text, value) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
            (&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            let found: String = md5(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, value, "{text:?}");
        }
    }
}
