//! Items in a row, each behind its length: the `vlen` layouts of Zarr, behind a count of the items.
//!
//! What is wrong in any way gives `None`: the caller looks at the items one by one, and says what is wrong.

use super::{LENGTH_BYTES, OFFSET_BYTES};

/// The offsets (i64) and the bytes of items, without what lies between them.
pub type Split = (Vec<u8>, Vec<u8>);

/// Take `count` items apart. Every byte belongs to one of them.
#[must_use]
pub fn split(framed: &[u8], count: usize) -> Option<Split> {
    let (stated, mut rest) = length(framed)?;
    // The least that so many items take is compared before memory is taken for them.
    let frames = count.checked_mul(LENGTH_BYTES)?;
    let total = rest.len().checked_sub(frames)?;
    if stated != count {
        return None;
    }
    let (mut offsets, mut items) = (Vec::new(), Vec::new());
    offsets.try_reserve_exact(count.checked_add(1)?.checked_mul(OFFSET_BYTES)?).ok()?;
    items.try_reserve_exact(total).ok()?;
    offsets.extend_from_slice(&[0; OFFSET_BYTES]);
    for _ in 0..count {
        let (size, behind) = length(rest)?;
        let (item, behind) = behind.split_at_checked(size)?;
        items.extend_from_slice(item);
        offsets.extend_from_slice(&(items.len() as u64).to_le_bytes());
        rest = behind;
    }
    rest.is_empty().then_some((offsets, items))
}

/// Put items together: item i is the bytes `offsets[i]` to `offsets[i + 1]`.
#[must_use]
pub fn join(offsets: &[[u8; OFFSET_BYTES]], items: &[u8]) -> Option<Vec<u8>> {
    let mut framed = Vec::new();
    framed.try_reserve_exact(offsets.len().checked_mul(LENGTH_BYTES)?.checked_add(items.len())?).ok()?;
    framed.extend_from_slice(&u32::try_from(offsets.len().checked_sub(1)?).ok()?.to_le_bytes());
    for ends in offsets.windows(2) {
        let start = usize::try_from(i64::from_le_bytes(ends[0])).ok()?;
        let end = usize::try_from(i64::from_le_bytes(ends[1])).ok()?;
        let item = items.get(start..end)?;
        framed.extend_from_slice(&u32::try_from(item.len()).ok()?.to_le_bytes());
        framed.extend_from_slice(item);
    }
    Some(framed)
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (stated, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    Some((usize::try_from(u32::from_le_bytes(*stated)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items "ape", "" and "x".
    const FRAMED: [u8; 20] = *b"\x03\0\0\0\x03\0\0\0ape\0\0\0\0\x01\0\0\0x";

    fn offsets(ends: &[i64]) -> Vec<[u8; OFFSET_BYTES]> {
        ends.iter().map(|end| end.to_le_bytes()).collect()
    }

    #[test]
    fn items_are_taken_apart_and_put_together() {
        let (ends, items) = split(&FRAMED, 3).expect("sound");
        assert_eq!(items, b"apex");
        assert_eq!(ends, offsets(&[0, 3, 3, 4]).concat());
        assert_eq!(join(&offsets(&[0, 3, 3, 4]), &items).expect("sound"), FRAMED);
        assert_eq!(split(&[0; 4], 0), Some((vec![0; 8], Vec::new())));
        assert_eq!(join(&offsets(&[0]), b""), Some(vec![0; 4]));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for end in 0..FRAMED.len() {
            assert_eq!(split(&FRAMED[..end], 3), None);
        }
        assert_eq!(split(&[&FRAMED[..], b"x"].concat(), 3), None);
        assert_eq!(split(&FRAMED, 2), None);
        assert_eq!(split(b"\xff\xff\xff\xff", u32::MAX as usize), None);
        assert_eq!(split(b"\x01\0\0\0\xff\xff\xff\xff", 1), None);
        assert_eq!(join(&offsets(&[0, 5]), b"abc"), None);
        assert_eq!(join(&offsets(&[2, 1]), b"abc"), None);
        assert_eq!(join(&offsets(&[-1, 1]), b"abc"), None);
        assert_eq!(join(&[], b""), None);
    }
}
