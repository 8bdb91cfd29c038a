//! Special chunks: one repeated value, which the header alone describes.

use crate::array::scatter::Region;
use crate::chunk::decode::Window;
use crate::chunk::header::{EXTENDED_BYTES, Header};
use crate::chunk::header2::Special;
use crate::error::Outcome;
use crate::memory::{grow, repeat};

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
pub fn fill_region(special: Special, header: &Header, window: Window<'_>, region: &mut Region<'_>) -> Outcome<()> {
    let value = value(special, header, window.bytes);
    let size = region.itemsize();
    if size.is_multiple_of(value.len()) {
        let mut item = Vec::new();
        let item = grow(&mut item, size)?;
        repeat(value, 0, item);
        region.fill(item);
        return Ok(());
    }
    region.for_each_piece(0..region.count(), |start, out| repeat(value, start % value.len(), out));
    Ok(())
}
