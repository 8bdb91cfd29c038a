//! Shuffle with NEON: 16 items at a time, through the structure loads and stores that
//! the instruction set has for 2, 3 and 4 interleaved planes; 8 and 16 by zips.
//!
//! `unsafe` because intrinsics read and write through pointers. Each public function
//! computes, from slices, how many whole steps of 16 items fit, and the loops below stay
//! inside what it checked; it returns how many items are done.

use std::arch::aarch64::{
    uint8x16_t, uint8x16x2_t, uint8x16x3_t, uint8x16x4_t, vdupq_n_u8, vld1q_u8, vld2q_u8, vld3q_u8, vld4q_u8, vst1q_u8,
    vst2q_u8, vst3q_u8, vst4q_u8, vzip1q_u8, vzip2q_u8,
};

const STEP: usize = 16;

pub fn available() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

/// Items to planes. Returns the number of items done, a multiple of 16.
pub fn shuffle(items: &[u8], typesize: usize, planes: &mut [u8], stride: usize) -> usize {
    let steps = items.len() / typesize / STEP;
    let done = steps * STEP;
    if done == 0 {
        return 0;
    }
    assert!(planes.len() >= (typesize - 1) * stride + done);
    let (from, to) = (items.as_ptr(), planes.as_mut_ptr());
    // SAFETY: NEON is available (the caller asked), `items` holds `steps` times 16 items,
    // and each plane has `done` bytes, the last one by the assertion above.
    unsafe {
        for step in 0..steps {
            let (from, to) = (from.add(step * STEP * typesize), to.add(step * STEP));
            match typesize {
                2 => {
                    let v = vld2q_u8(from);
                    store_planes([v.0, v.1], to, stride);
                }
                3 => {
                    let v = vld3q_u8(from);
                    store_planes([v.0, v.1, v.2], to, stride);
                }
                4 => {
                    let v = vld4q_u8(from);
                    store_planes([v.0, v.1, v.2, v.3], to, stride);
                }
                8 => store_planes(rotate::<8>(load::<8>(from, 16), 4), to, stride),
                16 => store_planes(rotate::<16>(load::<16>(from, 16), 4), to, stride),
                _ => return 0,
            }
        }
    }
    done
}

/// Planes to items. Returns the number of items done, a multiple of 16.
pub fn unshuffle(planes: &[u8], stride: usize, typesize: usize, items: &mut [u8]) -> usize {
    let steps = items.len() / typesize / STEP;
    let done = steps * STEP;
    if done == 0 {
        return 0;
    }
    assert!(planes.len() >= (typesize - 1) * stride + done);
    let (from, to) = (planes.as_ptr(), items.as_mut_ptr());
    // SAFETY: as in `shuffle`, with the two sides exchanged.
    unsafe {
        for step in 0..steps {
            let (from, to) = (from.add(step * STEP), to.add(step * STEP * typesize));
            match typesize {
                2 => {
                    let v = load::<2>(from, stride);
                    vst2q_u8(to, uint8x16x2_t(v[0], v[1]));
                }
                3 => {
                    let v = load::<3>(from, stride);
                    vst3q_u8(to, uint8x16x3_t(v[0], v[1], v[2]));
                }
                4 => {
                    let v = load::<4>(from, stride);
                    vst4q_u8(to, uint8x16x4_t(v[0], v[1], v[2], v[3]));
                }
                8 => store_planes(rotate::<8>(load::<8>(from, stride), 3), to, 16),
                16 => store_planes(rotate::<16>(load::<16>(from, stride), 4), to, 16),
                _ => return 0,
            }
        }
    }
    done
}

#[inline(always)]
unsafe fn load<const N: usize>(from: *const u8, stride: usize) -> [uint8x16_t; N] {
    unsafe {
        let mut v = [vdupq_n_u8(0); N];
        for (part, vector) in v.iter_mut().enumerate() {
            *vector = vld1q_u8(from.add(part * stride));
        }
        v
    }
}

#[inline(always)]
unsafe fn store_planes<const N: usize>(v: [uint8x16_t; N], to: *mut u8, stride: usize) {
    unsafe {
        for (part, vector) in v.iter().enumerate() {
            vst1q_u8(to.add(part * stride), *vector);
        }
    }
}

/// Rounds of a perfect shuffle over all bytes: each rotates the bits of a byte's index by
/// one, so four rounds lead from items to planes and log2(N) from planes to items.
#[inline(always)]
unsafe fn rotate<const N: usize>(mut v: [uint8x16_t; N], rounds: usize) -> [uint8x16_t; N] {
    unsafe {
        for _ in 0..rounds {
            let old = v;
            for pair in 0..N / 2 {
                v[2 * pair] = vzip1q_u8(old[pair], old[pair + N / 2]);
                v[2 * pair + 1] = vzip2q_u8(old[pair], old[pair + N / 2]);
            }
        }
        v
    }
}
