//! Special chunks: one repeated value, which the header alone describes.

use crate::array::scatter::Region;
use crate::chunk::decode::Window;
use crate::chunk::header::{EXTENDED_BYTES, Header};
use crate::chunk::header2::Special;

/// Quiet, positive, without a payload: the NaN of NumPy.
pub const NAN_32: [u8; 4] = [0, 0, 0xc0, 0x7f];
pub const NAN_64: [u8; 8] = [0, 0, 0, 0, 0, 0, 0xf8, 0x7f];

/// The value that repeats, from the bytes of the chunk.
fn value<'a>(special: Special, header: &Header, chunk: &'a [u8]) -> &'a [u8] {
    match special {
        Special::Zeros | Special::Uninitialised => &[0],
        Special::Nan if header.typesize == NAN_32.len() => &NAN_32,
        Special::Nan => &NAN_64,
        Special::Repeated => &chunk[EXTENDED_BYTES..header.cbytes],
    }
}

/// Fill `out`, which has the size of the decoded chunk.
pub fn fill(special: Special, header: &Header, chunk: &[u8], out: &mut [u8]) {
    repeat(value(special, header, chunk), 0, out);
}

/// Fill the places of `region`; `window` holds the whole chunk.
pub fn fill_region(special: Special, header: &Header, window: Window<'_>, region: &mut Region<'_>) {
    let value = value(special, header, window.bytes);
    let size = region.itemsize();
    if size.is_multiple_of(value.len()) {
        let mut item = vec![0; size];
        repeat(value, 0, &mut item);
        return region.fill(&item);
    }
    region.for_each_piece(0..region.count(), |start, out| repeat(value, start % value.len(), out));
}

/// Fill `out` with the repeated value, from byte `phase` of the value on.
fn repeat(value: &[u8], phase: usize, out: &mut [u8]) {
    if let [byte] = value {
        return out.fill(*byte);
    }
    // One repetition, then copies of all that is written, twice as much each time.
    let mut done = out.len().min(value.len());
    for (offset, place) in out[..done].iter_mut().enumerate() {
        *place = value[(phase + offset) % value.len()];
    }
    while done < out.len() {
        let step = done.min(out.len() - done);
        out.copy_within(..step, done);
        done += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_repeat_from_any_of_their_bytes_on() {
        for width in [1, 2, 3, 7, 16, 300] {
            let value: Vec<u8> = (0..width).map(|byte| (byte * 3 + 1) as u8).collect();
            for length in [0, 1, width, width + 1, 5 * width + 2, 1000] {
                for phase in [0, width / 2, width - 1] {
                    let mut out = vec![0xee; length];
                    repeat(&value, phase, &mut out);
                    for (place, byte) in out.iter().enumerate() {
                        assert_eq!(*byte, value[(phase + place) % width]);
                    }
                }
            }
        }
    }
}
