//! A chunk that gets longer: blocks that were full keep their bytes, and only the last one is decoded, and
//! encoded again with what follows.

use crate::array::coding::{Coding, Compression};
use crate::array::staging::copied;
use crate::array::workspace::Workspace;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::encode::{BlockBytes, encode_mixed};
use crate::chunk::header::{HEADER_BYTES, Header};
use crate::error::Outcome;
use crate::memory::{grow, reserved};

/// The bytes to store for a chunk that holds what `stored` holds, and `added` behind it.
///
/// `None` where the whole chunk has to be encoded: it was encoded in another way, or has no full block.
/// A chunk that does not agree with its checksum is an error.
pub fn top_up(coding: &Coding, stored: &[u8], added: &[u8], workspace: &mut Workspace) -> Outcome<Option<Vec<u8>>> {
    let Compression::Blosc(recipe) = coding.compression else {
        return Ok(None);
    };
    let bytes = coding.checksum.map_or(Ok(stored), |checksum| checksum.checked(stored))?;
    let header = Header::parse(bytes, bytes.len(), i32::MAX as usize)?;
    let (held, size) = (header.nbytes, header.nbytes.saturating_add(added.len()));
    let recipe = recipe.settled(size, HEADER_BYTES)?;
    let kept = held.saturating_sub(1) / recipe.blocksize;
    if coding.framed || kept == 0 || !recipe.encoded(&header) {
        return Ok(None);
    }
    let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
    let mut blocks = reserved(size.div_ceil(recipe.blocksize))?;
    for index in 0..kept {
        let Some(block) = decoder.stored_block(bytes, index)? else {
            return Ok(None);
        };
        blocks.push(BlockBytes::Encoded(block));
    }
    let Workspace { scratch, chunk, packer, .. } = workspace;
    let start = kept * recipe.blocksize;
    let tail = grow(chunk, size - start)?;
    let (before, behind) = tail.split_at_mut(held - start);
    decoder.decode_block(Window { bytes, offset: 0 }, kept, before, None, scratch)?;
    behind.copy_from_slice(added);
    blocks.extend(tail.chunks(recipe.blocksize).map(BlockBytes::Plain));
    if !encode_mixed(size, &blocks, &recipe, packer, scratch)? {
        return Ok(None);
    }
    coding.finish(packer, copied).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Checksum;
    use crate::chunk::codecs::streams::Codec;
    use crate::chunk::encode::{Packer, Recipe, encode};
    use crate::chunk::header::Filter;
    use crate::chunk::scratch::Scratch;
    use crate::files::verified::Verify;
    use crate::interrupt::Interrupt;

    const BLOCK: usize = 1024;

    fn coding(filter: Filter, typesize: usize) -> Coding {
        let recipe = Recipe { codec: Codec::BloscLz, level: 5, filter, typesize, blocksize: BLOCK, gain: 0 };
        let checksum = Some(Checksum::Crc32);
        Coding { compression: Compression::Blosc(recipe), checksum, verify: Verify::Always, framed: false }
    }

    fn items(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at / 64) as u8).collect()
    }

    fn encoded(coding: &Coding, plain: &[u8]) -> Vec<u8> {
        coding.encode(plain, &mut Scratch::default(), &mut Packer::default(), copied).unwrap()
    }

    #[test]
    fn a_longer_chunk_is_that_of_all_items() {
        for (filter, typesize) in [(Filter::Shuffle, 8), (Filter::Bitshuffle, 4), (Filter::None, 1)] {
            let coding = coding(filter, typesize);
            let plain = items(5 * BLOCK + 300);
            for held in [1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 40, plain.len() - 1] {
                let before = encoded(&coding, &plain[..held]);
                let found = top_up(&coding, &before, &plain[held..], &mut Workspace::default()).unwrap();
                // Without a full block before the last one there is nothing to keep.
                let whole = (held > BLOCK).then(|| encoded(&coding, &plain));
                assert!(found == whole, "{filter:?} {held}");
            }
        }
    }

    #[test]
    fn other_chunks_are_left_to_the_caller_and_damage_is_an_error() {
        let coding = coding(Filter::Shuffle, 8);
        let plain = items(4 * BLOCK);
        let (before, added) = (encoded(&coding, &plain), [7; 100]);
        let workspace = &mut Workspace::default();
        for at in 0..before.len() {
            let mut damaged = before.clone();
            damaged[at] ^= 4;
            assert!(top_up(&coding, &damaged, &added, workspace).is_err(), "{at}");
            // Without a checksum damage may stay unseen, but nothing is read beyond the chunk.
            let bare = coding.without_checksum();
            let _ = top_up(&bare, &damaged[..damaged.len() - 4], &added, workspace);
        }
        let mut packer = Packer::default();
        let Compression::Blosc(recipe) = coding.compression else { unreachable!() };
        let stored = Recipe { level: 0, ..recipe };
        encode(&plain, stored, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
        let bare = coding.without_checksum();
        assert_eq!(top_up(&bare, packer.bytes(), &added, workspace).unwrap(), None, "uncompressed");
        let other = Recipe { typesize: 4, ..recipe };
        encode(&plain, other, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
        assert_eq!(top_up(&bare, packer.bytes(), &added, workspace).unwrap(), None, "another typesize");
    }
}
