//! The journal of a commit that gives keys new values and carries these values.
//!
//! The layout is in `docs/formats/journal.md`. `ingot.stores.local.journal` writes all other journals and reads
//! every one.

const MAGIC: &[u8; 8] = b"\x89IngotJ\n";
/// The version of journals that carry values.
const VERSION: u16 = 3;
const HEAD: usize = 40;
const CARRIED: u8 = 5;
/// How long a name may be that is a part of a staged name as it is.
const LONGEST_NAME: usize = 255 - 64 - ".g--".len();

/// Return the journal of a transaction, whose name has 16 digits, that gives keys their values.
///
/// `None` for a key whose staged name has another form, and for what has no place in a journal.
pub fn pack(transaction: &str, values: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    for (key, value) in values {
        let (folder, name) = key.rsplit_once('/').map_or(("", *key), |(folder, name)| (&key[..=folder.len()], name));
        if name.len() > LONGEST_NAME {
            return None;
        }
        let staged = format!("{folder}.g-{transaction}-{name}");
        bytes.extend([CARRIED, 0]);
        bytes.extend(u16::try_from(key.len()).ok()?.to_le_bytes());
        bytes.extend(u16::try_from(staged.len()).ok()?.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(libdeflater::crc32(value).to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend((value.len() as u64).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(key.as_bytes());
        bytes.extend(staged.as_bytes());
        bytes.extend(*value);
    }
    let mut head = Vec::with_capacity(HEAD);
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend([0; 2]);
    head.extend(u32::try_from(values.len()).ok()?.to_le_bytes());
    head.extend(<[u8; 16]>::try_from(transaction.as_bytes()).ok()?);
    head.extend((bytes.len() as u64 + 4).to_le_bytes());
    bytes.get_mut(..HEAD)?.copy_from_slice(&head);
    let sum = libdeflater::crc32(&bytes);
    bytes.extend(sum.to_le_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_has_the_documented_bytes() {
        let packed = pack("00112233aabbccdd", &[("a/b", b"xyz"), ("c", b"")]).unwrap();
        let mut expected = b"\x89IngotJ\n\x03\0\0\0\x02\0\0\0".to_vec();
        expected.extend(b"00112233aabbccdd");
        expected.extend((packed.len() as u64).to_le_bytes());
        expected.extend(b"\x05\0\x03\0\x17\0\0\0");
        expected.extend(0xeb8e_ba67_u32.to_le_bytes());
        expected.extend([0; 12]);
        expected.extend(3u64.to_le_bytes());
        expected.extend([0; 8]);
        expected.extend(b"a/ba/.g-00112233aabbccdd-bxyz");
        expected.extend(b"\x05\0\x01\0\x15\0\0\0\0\0\0\0");
        expected.extend([0; 28]);
        expected.extend(b"c.g-00112233aabbccdd-c");
        assert_eq!(packed[..packed.len() - 4], expected);
        assert_eq!(packed[packed.len() - 4..], libdeflater::crc32(&expected).to_le_bytes());
    }

    #[test]
    fn what_has_no_place_in_a_journal_is_refused() {
        let name = "n".repeat(LONGEST_NAME);
        assert!(pack("00112233aabbccdd", &[(&format!("a/{name}"), b"")]).is_some());
        assert!(pack("00112233aabbccdd", &[(&format!("a/{name}n"), b"")]).is_none());
        assert!(pack("0", &[("a", b"")]).is_none(), "the name of a transaction has 16 digits");
        assert!(pack("00112233aabbccdd", &[(&"a/".repeat(40_000), b"")]).is_none());
    }
}
