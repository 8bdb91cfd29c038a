//! The copy of LZ77 decoders: earlier bytes of the output again, from a distance that may be shorter
//! than the copy. Fast without `unsafe`: steps of constant size compile to one load and one store.

/// Bytes per step.
pub const WIDE: usize = 16;

/// Copy `length` bytes to `at` from `distance` bytes before it; the two may overlap.
#[inline(always)]
pub fn repeat(out: &mut [u8], at: usize, distance: usize, length: usize) {
    if at + length + 2 * WIDE > out.len() {
        return repeat_tail(out, at, distance, length);
    }
    // Whole steps from here on: bytes behind the copy are overwritten later.
    if distance >= 2 * WIDE && length > WIDE {
        if length > LONG_RUN && distance >= length {
            return out.copy_within(at - distance..at - distance + length, at);
        }
        return copy_steps::<{ 2 * WIDE }>(out, at, distance, length);
    }
    if distance >= WIDE {
        return copy_steps::<WIDE>(out, at, distance, length);
    }
    if distance >= 8 {
        return copy_steps::<8>(out, at, distance, length);
    }
    if distance == 1 && length > LONG_RUN {
        let byte = out[at - 1];
        return out[at..at + length].fill(byte);
    }
    let (pattern, step) = cycle(out, at, distance);
    let mut done = 0;
    while done < length {
        *out[at + done..].first_chunk_mut::<8>().expect("room was checked") = pattern;
        done += step;
    }
}

/// Eight bytes that continue a repetition with a `distance` below eight, and how many of them are
/// whole repetitions.
#[inline(always)]
fn cycle(out: &[u8], at: usize, distance: usize) -> ([u8; 8], usize) {
    const STEPS: [usize; 8] = [8, 8, 8, 6, 8, 5, 6, 7];
    let bits = 8 * distance as u32;
    let seed = u64::from_le_bytes(*out[at - distance..].first_chunk().expect("room was checked"));
    // The bytes behind `at` are not written yet: only `distance` of the eight count.
    let mut word = seed & ((1 << bits) - 1);
    for doubled in [bits, 2 * bits, 4 * bits] {
        word |= word.checked_shl(doubled).unwrap_or(0);
    }
    (word.to_le_bytes(), STEPS[distance & 7])
}

/// Copy in steps of N bytes, which may be no longer than the distance.
#[inline(always)]
fn copy_steps<const N: usize>(out: &mut [u8], at: usize, distance: usize, length: usize) {
    let mut done = 0;
    while done < length {
        let from = *out[at + done - distance..].first_chunk::<N>().expect("it lies before `at`");
        *out[at + done..].first_chunk_mut::<N>().expect("room was checked") = from;
        done += N;
    }
}

/// The same near the end of the output, where whole steps do not fit.
#[cold]
fn repeat_tail(out: &mut [u8], at: usize, distance: usize, length: usize) {
    // The output repeats with the distance, so that the source can be twice as long each time.
    let (mut done, mut source) = (0, distance);
    while done < length {
        let step = source.min(length - done);
        out.copy_within(at - distance..at - distance + step, at + done);
        done += step;
        source += step;
    }
}

/// From this length on, filling memory beats storing step by step.
const LONG_RUN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_and_length_repeats_the_output() {
        for distance in 1..80 {
            for length in [1, 2, 7, 15, 16, 17, 31, 33, 64, 127, 129, 300] {
                for room in [0, 1, 15, 16, 31, 32, 100] {
                    let mut out: Vec<u8> = (0..distance as u8).collect();
                    out.resize(distance + length + room, 0xee);
                    repeat(&mut out, distance, distance, length);
                    for index in 0..length {
                        assert_eq!(out[distance + index], (index % distance) as u8);
                    }
                }
            }
        }
    }
}
