//! Shuffle and bitshuffle: the same bytes in another order.
//!
//! *Planes* are what a shuffled block holds: plane `j` has byte `j` of every item.
//! *Rows* are what a bitshuffled block holds: row `8 * j + b` has bit `b` of byte `j`.
//! Every function can take a part of the items (planes and rows have a stride of
//! their own), which is how partial reads undo only what they need.
//!
//! The instruction set is chosen at run time, once. This file is plain safe Rust; the
//! `unsafe` of this module is in the SIMD files, behind functions that check lengths.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod pipeline;

/// The instruction set in use: "avx2", "neon" or "none".
pub fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        return "avx2";
    }
    #[cfg(target_arch = "aarch64")]
    if neon::available() {
        return "neon";
    }
    "none"
}

/// Shuffle with vector instructions; return how many items are done. Plain code does the rest.
#[allow(unused_variables)]
fn shuffle_fast(items: &[u8], typesize: usize, planes: &mut [u8], stride: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        return avx2::shuffle(items, typesize, planes, stride);
    }
    #[cfg(target_arch = "aarch64")]
    if neon::available() {
        return neon::shuffle(items, typesize, planes, stride);
    }
    0
}

#[allow(unused_variables)]
fn unshuffle_fast(planes: &[u8], stride: usize, typesize: usize, items: &mut [u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        return avx2::unshuffle(planes, stride, typesize, items);
    }
    #[cfg(target_arch = "aarch64")]
    if neon::available() {
        return neon::unshuffle(planes, stride, typesize, items);
    }
    0
}

/// Distribute `items` (whole items) over planes that lie `stride` bytes apart.
pub fn shuffle(items: &[u8], typesize: usize, planes: &mut [u8], stride: usize) {
    let count = items.len() / typesize;
    if count == 0 {
        return;
    }
    assert!(planes.len() >= (typesize - 1) * stride + count);
    if typesize == 1 {
        planes[..count].copy_from_slice(&items[..count]);
        return;
    }
    let done = shuffle_fast(items, typesize, planes, stride);
    for byte in 0..typesize {
        let plane = &mut planes[byte * stride + done..byte * stride + count];
        let column = items[done * typesize..].iter().skip(byte).step_by(typesize);
        for (place, value) in plane.iter_mut().zip(column) {
            *place = *value;
        }
    }
}

/// Undo `shuffle`: fill `items` (whole items) from planes that lie `stride` bytes apart.
pub fn unshuffle(planes: &[u8], stride: usize, typesize: usize, items: &mut [u8]) {
    let count = items.len() / typesize;
    if count == 0 {
        return;
    }
    assert!(planes.len() >= (typesize - 1) * stride + count);
    if typesize == 1 {
        items[..count].copy_from_slice(&planes[..count]);
        return;
    }
    let done = unshuffle_fast(planes, stride, typesize, items);
    for (offset, item) in items[done * typesize..].chunks_exact_mut(typesize).enumerate() {
        for (byte, place) in item.iter_mut().enumerate() {
            *place = planes[byte * stride + done + offset];
        }
    }
}

/// One plane of a shuffled block.
#[derive(Clone, Copy)]
pub enum Plane<'a> {
    Bytes(&'a [u8]),
    /// Every byte is this one.
    Constant(u8),
}

impl Plane<'_> {
    fn at(&self, item: usize) -> u8 {
        match self {
            Self::Bytes(bytes) => bytes[item],
            Self::Constant(byte) => *byte,
        }
    }
}

/// Undo `shuffle` for planes that lie apart: fill `items` from item `first` of each on.
pub fn unshuffle_planes(planes: &[Plane<'_>], first: usize, items: &mut [u8]) {
    let typesize = planes.len();
    let count = items.len() / typesize;
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        done = avx2::unshuffle_planes(planes, first, items);
    }
    if done == count {
        return;
    }
    // Byte by byte of the item: each plane is read once.
    for (byte, plane) in planes.iter().enumerate() {
        let column = items[done * typesize..count * typesize].iter_mut().skip(byte).step_by(typesize);
        for (offset, place) in column.enumerate() {
            *place = plane.at(first + done + offset);
        }
    }
}

/// How many items of a block of `size` bytes are bitshuffled. Blosc 2 does not shuffle those beyond a
/// multiple of eight (`partly`); Blosc 1 then shuffles none of the block.
pub fn bitshuffled_items(size: usize, typesize: usize, partly: bool) -> usize {
    let count = size / typesize;
    let whole = count - count % 8;
    if partly || whole == count { whole } else { 0 }
}

/// Distribute the bits of `items` (a multiple of eight items) over rows; `rows` has exactly as many
/// bytes. `planes` is scratch of the same size.
pub fn bitshuffle(items: &[u8], typesize: usize, planes: &mut [u8], rows: &mut [u8]) {
    let count = items.len() / typesize;
    assert!(count.is_multiple_of(8) && planes.len() >= items.len() && rows.len() >= items.len());
    if count == 0 {
        return;
    }
    shuffle(items, typesize, planes, count);
    let row = count / 8;
    for (plane, bits) in planes.chunks_exact_mut(count).zip(rows.chunks_exact_mut(count)) {
        transpose_bits(plane);
        shuffle(plane, 8, bits, row);
    }
}

/// Undo `bitshuffle` for the items of `groups` (eight items each): rows lie `stride`
/// bytes apart and start at the first wanted group. `planes` is scratch.
pub fn unbitshuffle(rows: &[u8], stride: usize, typesize: usize, planes: &mut [u8], items: &mut [u8]) {
    let count = items.len() / typesize;
    assert!(count.is_multiple_of(8) && planes.len() >= items.len());
    if count == 0 {
        return;
    }
    for (byte, plane) in planes.chunks_exact_mut(count).take(typesize).enumerate() {
        unshuffle(&rows[8 * byte * stride..], stride, 8, plane);
        transpose_bits(plane);
    }
    unshuffle(planes, count, typesize, items);
}

/// Transpose every group of eight bytes as an 8 x 8 matrix of bits.
fn transpose_bits(bytes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        return avx2::transpose_bits(bytes);
    }
    transpose_groups(bytes);
}

#[inline(always)]
fn transpose_groups(bytes: &mut [u8]) {
    // Simple enough that the compiler vectorises it; eight matrices per step let it.
    let mut wide = bytes.chunks_exact_mut(64);
    for chunk in &mut wide {
        for group in chunk.chunks_exact_mut(8) {
            transpose_group(group);
        }
    }
    for group in wide.into_remainder().chunks_exact_mut(8) {
        transpose_group(group);
    }
}

/// Replace each byte by the sum of all bytes up to it.
pub fn running_sum(bytes: &mut [u8]) {
    let (mut done, mut last) = (0, 0u8);
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        done = avx2::running_sum(bytes);
        last = if done > 0 { bytes[done - 1] } else { 0 };
    }
    for byte in &mut bytes[done..] {
        last = last.wrapping_add(*byte);
        *byte = last;
    }
}

#[inline(always)]
fn transpose_group(group: &mut [u8]) {
    let bytes: [u8; 8] = group.try_into().expect("groups have eight bytes");
    let mut x = u64::from_le_bytes(bytes);
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swap = (x ^ (x >> shift)) & mask;
        x ^= swap ^ (swap << shift);
    }
    group.copy_from_slice(&x.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(length: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        (0..length)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn shuffle_follows_its_definition_for_every_typesize() {
        for typesize in (1..=40).chain([64, 100, 255]) {
            for count in [0, 1, 7, 15, 16, 31, 32, 33, 64, 95, 130] {
                let items = sample(typesize * count);
                let mut planes = vec![0; items.len()];
                shuffle(&items, typesize, &mut planes, count);
                for item in 0..count {
                    for byte in 0..typesize {
                        assert_eq!(planes[byte * count + item], items[item * typesize + byte]);
                    }
                }
                let mut back = vec![0; items.len()];
                unshuffle(&planes, count, typesize, &mut back);
                assert_eq!(back, items, "typesize {typesize}, {count} items");
            }
        }
    }

    #[test]
    fn part_of_the_items_can_be_unshuffled() {
        for typesize in [2, 3, 4, 7, 8, 12, 16, 24] {
            let items = sample(typesize * 200);
            let mut planes = vec![0; items.len()];
            shuffle(&items, typesize, &mut planes, 200);
            for (first, last) in [(0, 200), (1, 2), (5, 45), (100, 199), (199, 200)] {
                let mut part = vec![0; (last - first) * typesize];
                unshuffle(&planes[first..], 200, typesize, &mut part);
                assert_eq!(part, items[first * typesize..last * typesize]);
            }
        }
    }

    #[test]
    fn planes_may_lie_apart_and_be_constant() {
        for typesize in [2, 3, 4, 8, 12, 16] {
            let columns: Vec<Vec<u8>> = (0..typesize).map(|byte| sample(300 + byte)).collect();
            let planes: Vec<Plane<'_>> = columns
                .iter()
                .enumerate()
                .map(|(byte, column)| if byte % 3 == 1 { Plane::Constant(byte as u8) } else { Plane::Bytes(column) })
                .collect();
            for (first, count) in [(0, 300), (7, 0), (7, 5), (11, 32), (3, 100), (299, 1)] {
                let mut items = vec![0; typesize * count];
                unshuffle_planes(&planes, first, &mut items);
                for (place, found) in items.iter().enumerate() {
                    assert_eq!(*found, planes[place % typesize].at(first + place / typesize));
                }
            }
        }
    }

    #[test]
    fn sums_run_over_all_bytes() {
        for length in [0, 1, 15, 16, 17, 100, 1000] {
            let bytes = sample(length);
            let mut sums = bytes.clone();
            running_sum(&mut sums);
            let mut sum = 0u8;
            for (byte, found) in bytes.iter().zip(&sums) {
                sum = sum.wrapping_add(*byte);
                assert_eq!(*found, sum);
            }
        }
    }

    #[test]
    fn bitshuffle_follows_its_definition() {
        for typesize in [1, 2, 3, 4, 8, 16, 17] {
            for count in [8, 16, 64, 264] {
                let items = sample(typesize * count);
                let (mut planes, mut rows) = (vec![0; items.len()], vec![0; items.len()]);
                bitshuffle(&items, typesize, &mut planes, &mut rows);
                for item in 0..count {
                    for bit in 0..8 * typesize {
                        let expected = items[item * typesize + bit / 8] >> (bit % 8) & 1;
                        let found = rows[bit * (count / 8) + item / 8] >> (item % 8) & 1;
                        assert_eq!(found, expected);
                    }
                }
                let mut back = vec![0; items.len()];
                unbitshuffle(&rows, count / 8, typesize, &mut planes, &mut back);
                assert_eq!(back, items);
            }
        }
    }
}
