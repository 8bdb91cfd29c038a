//! Shuffle with AVX2: 32 items at a time.
//!
//! `unsafe` because intrinsics read and write through pointers. Each public function
//! computes, from slices, how many whole steps of 32 items fit, and the loops below
//! stay inside what it checked; it returns how many items are done.

use super::Plane;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi8, _mm_bslli_si128, _mm_bsrli_si128, _mm_loadu_si128, _mm_set1_epi8,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_storel_epi64, _mm_storeu_si128, _mm256_castsi128_si256,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_loadu_si256,
    _mm256_permute2x128_si256, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
};

const STEP: usize = 32;

pub fn available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Items to planes. Returns the number of items done: all, or none where there are too few
/// or no vector code fits the typesize.
pub fn shuffle(items: &[u8], typesize: usize, planes: &mut [u8], stride: usize) -> usize {
    let count = items.len() / typesize;
    if count < STEP {
        return 0;
    }
    assert!(planes.len() >= (typesize - 1) * stride + count);
    let (from, to) = (items.as_ptr(), planes.as_mut_ptr());
    // SAFETY: AVX2 is available (the caller asked), `items` holds `count` items, at least 32,
    // and each plane has `count` bytes, the last one by the assertion above.
    unsafe {
        match typesize {
            2 => shuffle_steps::<2>(from, to, stride, count),
            4 => shuffle_steps::<4>(from, to, stride, count),
            8 => shuffle_steps::<8>(from, to, stride, count),
            16 => shuffle_steps::<16>(from, to, stride, count),
            _ => return 0,
        }
    }
    count
}

/// Planes to items. Returns the number of items done.
pub fn unshuffle(planes: &[u8], stride: usize, typesize: usize, items: &mut [u8]) -> usize {
    let count = items.len() / typesize;
    let done = count / STEP * STEP;
    if done == 0 {
        return 0;
    }
    assert!(planes.len() >= (typesize - 1) * stride + count);
    let (from, to) = (planes.as_ptr(), items.as_mut_ptr());
    // SAFETY: AVX2 is available (the caller asked), `items` holds `count` items, and each
    // plane has `count` bytes, the last one by the assertion above. Group widths below
    // never reach past `typesize`.
    unsafe {
        match typesize {
            // The last step is repeated so that it ends with the last item: it rewrites a
            // few items with the values they have, and no tail is left.
            2 => return unshuffle_steps::<2>(from, stride, to, count),
            4 => return unshuffle_steps::<4>(from, stride, to, count),
            8 => return unshuffle_steps::<8>(from, stride, to, count),
            16 => return unshuffle_steps::<16>(from, stride, to, count),
            0..=2 => return 0,
            3 => unshuffle_groups::<2>(from, stride, to, typesize, done),
            5..=7 => unshuffle_groups::<4>(from, stride, to, typesize, done),
            9..=15 => unshuffle_groups::<8>(from, stride, to, typesize, done),
            _ => unshuffle_groups::<16>(from, stride, to, typesize, done),
        }
    }
    done
}

/// Planes that lie apart to items. Returns the number of items done: all or none.
pub fn unshuffle_planes(planes: &[Plane<'_>], first: usize, items: &mut [u8]) -> usize {
    let count = items.len() / planes.len();
    if count < STEP {
        return 0;
    }
    match planes.len() {
        2 => unshuffle_planes_of::<2>(planes, first, items, count),
        4 => unshuffle_planes_of::<4>(planes, first, items, count),
        8 => unshuffle_planes_of::<8>(planes, first, items, count),
        16 => unshuffle_planes_of::<16>(planes, first, items, count),
        _ => return 0,
    }
    count
}

fn unshuffle_planes_of<const N: usize>(planes: &[Plane<'_>], first: usize, items: &mut [u8], count: usize) {
    assert!(planes.len() == N && items.len() >= N * count && count >= STEP);
    let mut sources = [Source { start: std::ptr::null(), mask: 0 }; N];
    for (source, plane) in sources.iter_mut().zip(planes) {
        *source = match plane {
            Plane::Bytes(bytes) => Source { start: bytes[first..first + count].as_ptr(), mask: usize::MAX },
            Plane::Constant(byte) => Source { start: CONSTANTS[*byte as usize].as_ptr(), mask: 0 },
        };
    }
    // SAFETY: AVX2 is available (the caller asked), `items` holds `count` items, and each
    // source has `count` bytes, or 32 and a mask that never leaves them.
    unsafe { unshuffle_sources::<N>(&sources, items.as_mut_ptr(), count) }
}

/// 32 times each byte.
static CONSTANTS: [[u8; STEP]; 256] = {
    let mut constants = [[0; STEP]; 256];
    let mut byte = 0;
    while byte < 256 {
        constants[byte] = [byte as u8; STEP];
        byte += 1;
    }
    constants
};

/// The same code as without AVX2, which the compiler makes wider vectors of.
pub fn transpose_bits(bytes: &mut [u8]) {
    // SAFETY: AVX2 is available (the caller asked); the code itself is safe.
    unsafe { transpose_wide(bytes) }
}

#[target_feature(enable = "avx2")]
fn transpose_wide(bytes: &mut [u8]) {
    super::transpose_groups(bytes);
}

/// Sums of all bytes up to each, in place. Returns how many bytes are done.
pub fn running_sum(bytes: &mut [u8]) -> usize {
    let (wide, _) = bytes.as_chunks_mut::<16>();
    // SAFETY: AVX2 is available (the caller asked).
    unsafe { sum_steps(wide) };
    16 * wide.len()
}

#[target_feature(enable = "avx2")]
fn sum_steps(steps: &mut [[u8; 16]]) {
    let last = _mm_set1_epi8(15);
    let mut carried = _mm_setzero_si128();
    for step in steps {
        // SAFETY: a step has the 16 bytes that are read and written.
        let mut sums = unsafe { _mm_loadu_si128(step.as_ptr().cast()) };
        sums = _mm_add_epi8(sums, _mm_bslli_si128::<1>(sums));
        sums = _mm_add_epi8(sums, _mm_bslli_si128::<2>(sums));
        sums = _mm_add_epi8(sums, _mm_bslli_si128::<4>(sums));
        sums = _mm_add_epi8(sums, _mm_bslli_si128::<8>(sums));
        sums = _mm_add_epi8(sums, carried);
        carried = _mm_shuffle_epi8(sums, last);
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(step.as_mut_ptr().cast(), sums) };
    }
}

/// Where a plane's bytes are: at `start`, advancing with the item unless `mask` is 0.
#[derive(Clone, Copy)]
struct Source {
    start: *const u8,
    mask: usize,
}

#[target_feature(enable = "avx2")]
unsafe fn unshuffle_sources<const N: usize>(sources: &[Source; N], items: *mut u8, count: usize) {
    unsafe {
        let mut item = 0;
        loop {
            let mut v = [_mm256_setzero_si256(); N];
            for (vector, source) in v.iter_mut().zip(sources) {
                *vector = _mm256_loadu_si256(source.start.add(item & source.mask).cast());
            }
            store_merged::<N>(interleave(v, N.trailing_zeros()), items.add(item * N));
            item += STEP;
            if item == count {
                return;
            }
            if item + STEP > count {
                item = count - STEP;
            }
        }
    }
}

/// Store 32 merged items in order.
#[inline(always)]
unsafe fn store_merged<const N: usize>(v: [__m256i; N], to: *mut u8) {
    unsafe {
        for pair in 0..N / 2 {
            let (a, b) = (v[2 * pair], v[2 * pair + 1]);
            let low = _mm256_permute2x128_si256::<0x20>(a, b);
            let high = _mm256_permute2x128_si256::<0x31>(a, b);
            _mm256_storeu_si256(to.add(32 * pair).cast(), low);
            _mm256_storeu_si256(to.add(16 * N + 32 * pair).cast(), high);
        }
    }
}

/// `rounds` rounds of a perfect shuffle over all bytes of the vectors' lanes. Each rotates
/// the bits of a byte's index by one to the left. In item order the index is (item, byte
/// of the item), in plane order (byte, item), with 16 items to a lane: four rounds lead
/// from items to planes, log2(N) rounds from planes to items.
#[inline(always)]
unsafe fn interleave<const N: usize>(mut v: [__m256i; N], rounds: u32) -> [__m256i; N] {
    unsafe {
        for _ in 0..rounds {
            let old = v;
            for pair in 0..N / 2 {
                v[2 * pair] = _mm256_unpacklo_epi8(old[pair], old[pair + N / 2]);
                v[2 * pair + 1] = _mm256_unpackhi_epi8(old[pair], old[pair + N / 2]);
            }
        }
        v
    }
}

/// All `count` items (at least 32). The last step is repeated so that it ends with the last
/// item.
#[target_feature(enable = "avx2")]
unsafe fn shuffle_steps<const N: usize>(items: *const u8, planes: *mut u8, stride: usize, count: usize) {
    unsafe {
        let mut item = 0;
        loop {
            let from = items.add(item * N);
            let mut v = [_mm256_setzero_si256(); N];
            // Items 0..16 in the low lanes, items 16..32 in the high ones: lanes never mix.
            for (part, vector) in v.iter_mut().enumerate() {
                let low = _mm_loadu_si128(from.add(16 * part).cast());
                let high = _mm_loadu_si128(from.add(16 * (N + part)).cast());
                *vector = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
            }
            for (byte, vector) in interleave(v, 4).iter().enumerate() {
                _mm256_storeu_si256(planes.add(byte * stride + item).cast(), *vector);
            }
            item += STEP;
            if item == count {
                return;
            }
            if item + STEP > count {
                item = count - STEP;
            }
        }
    }
}

/// Load 32 items of N planes and merge them, per lane: N vectors, each with 16 / N whole
/// items of the low 16 and as many of the high 16, in item order.
#[inline(always)]
unsafe fn merged_planes<const N: usize>(planes: *const u8, stride: usize) -> [__m256i; N] {
    unsafe {
        let mut v = [_mm256_setzero_si256(); N];
        for (byte, vector) in v.iter_mut().enumerate() {
            *vector = _mm256_loadu_si256(planes.add(byte * stride).cast());
        }
        interleave(v, N.trailing_zeros())
    }
}

/// All `count` items (at least 32) of a typesize that is a power of two.
#[target_feature(enable = "avx2")]
unsafe fn unshuffle_steps<const N: usize>(planes: *const u8, stride: usize, items: *mut u8, count: usize) -> usize {
    unsafe {
        let mut item = 0;
        loop {
            let v = merged_planes::<N>(planes.add(item), stride);
            store_merged::<N>(v, items.add(item * N));
            item += STEP;
            if item == count {
                return count;
            }
            if item + STEP > count {
                item = count - STEP;
            }
        }
    }
}

/// Any typesize above N: groups of N planes, the last one overlapping its neighbour, are
/// merged and stored N bytes per item.
#[target_feature(enable = "avx2")]
unsafe fn unshuffle_groups<const N: usize>(
    planes: *const u8,
    stride: usize,
    items: *mut u8,
    typesize: usize,
    done: usize,
) {
    unsafe {
        for item in (0..done).step_by(STEP) {
            let mut byte = 0;
            loop {
                let v = merged_planes::<N>(planes.add(byte * stride + item), stride);
                for (part, vector) in v.iter().enumerate() {
                    let first = item + part * (16 / N);
                    let to = items.add(first * typesize + byte);
                    store_items::<N>(_mm256_castsi256_si128(*vector), to, typesize);
                    let to = items.add((first + 16) * typesize + byte);
                    store_items::<N>(_mm256_extracti128_si256::<1>(*vector), to, typesize);
                }
                if byte + N == typesize {
                    break;
                }
                byte = (byte + N).min(typesize - N);
            }
        }
    }
}

/// Store the 16 / N items of `vector`, N bytes each, `typesize` bytes apart.
#[inline(always)]
unsafe fn store_items<const N: usize>(vector: __m128i, to: *mut u8, typesize: usize) {
    unsafe {
        if N == 16 {
            _mm_storeu_si128(to.cast(), vector);
            return;
        }
        if N == 8 {
            _mm_storel_epi64(to.cast(), vector);
            _mm_storel_epi64(to.add(typesize).cast(), _mm_bsrli_si128::<8>(vector));
            return;
        }
        let bytes: [u8; 16] = std::mem::transmute(vector);
        for item in 0..16 / N {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(item * N), to.add(item * typesize), N);
        }
    }
}
