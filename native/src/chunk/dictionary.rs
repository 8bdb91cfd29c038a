//! Dictionaries trained from the data of a chunk: which data are worth being in a dictionary.
//!
//! `encode2` and `codecs::streams` store and use them.

use crate::chunk::codecs::streams::{self, Codec};
use crate::chunk::encode::MIN_COMPRESSED;
use crate::chunk::encode2::{Recipe, Settled};
use crate::chunk::header::MAX_DICTIONARY;
use crate::chunk::scratch::Scratch;
use crate::error::Outcome;
use crate::interrupt::Interrupt;

/// A dictionary takes at most this part of the data that it is made for.
const DICTIONARY_SHARE: usize = 20;
/// Streams of this size are long enough to learn Zstandard's codes themselves.
const LONG_STREAM: usize = 2 << 10;
/// The size of the pieces that are taken from the data.
const PIECE_BYTES: usize = 1024;
/// The most pieces of a dictionary that was not trained.
const PIECES: usize = 16;
/// Pieces that shrink to one in so many bytes are left out.
const POOR_RATIO: usize = 4;
/// The most data to train Zstandard with; more takes long and gains little.
const TAUGHT_BYTES: usize = 128 << 10;
/// The first bytes of a trained dictionary.
const TRAINED: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Train a dictionary for chunks like the one that `recipe` makes of `source`, from the filtered data.
/// Empty when there is too little data.
pub fn train(source: &[u8], recipe: Recipe<'_>, scratch: &mut Scratch, interrupt: &Interrupt) -> Outcome<Vec<u8>> {
    let settled = Recipe { dictionary: None, ..recipe }.settled(source.len())?;
    let room = MAX_DICTIONARY.min(source.len() / DICTIONARY_SHARE);
    if settled.recipe.codec == Codec::Zstd && settled.recipe.blocksize / settled.streams < LONG_STREAM {
        train_zstd(&settled, source, room, scratch, interrupt)
    } else {
        choose_pieces(&settled, source, room, scratch, interrupt)
    }
}

/// Choose pieces from all over the data. Streams that are long for their codec gain no more from
/// training, and the pieces occur again where they came from, so that they cost almost nothing.
fn choose_pieces(
    settled: &Settled<'_>,
    source: &[u8],
    room: usize,
    scratch: &mut Scratch,
    interrupt: &Interrupt,
) -> Outcome<Vec<u8>> {
    let blocks: Vec<&[u8]> = source.chunks_exact(settled.recipe.blocksize).collect();
    let size = PIECE_BYTES.min(settled.recipe.blocksize);
    let (mut pieces, mut packed) = (Vec::new(), vec![0; size / POOR_RATIO]);
    if blocks.len() < 2 || size < MIN_COMPRESSED {
        return Ok(pieces);
    }
    let first = settled.first_block(source, scratch)?;
    let block_of = |number: usize| number * blocks.len() / PIECES;
    let mut number = 0;
    while number < PIECES {
        interrupt.check()?;
        let index = block_of(number);
        let (filtered, codecs) = settled.filter(blocks[index], first.as_deref().filter(|_| index > 0), scratch)?;
        while number < PIECES && block_of(number) == index {
            // Each from another place: filters that sort bytes put one kind of them together.
            let at = number * (filtered.len() / size) / PIECES * size;
            let piece = &filtered[at..at + size];
            // Repetitive data need no dictionary.
            if pieces.len() + size <= room && codecs.encode(Codec::Lz4, 9, piece, &mut packed).is_none() {
                pieces.extend_from_slice(piece);
            }
            number += 1;
        }
    }
    if pieces.starts_with(&TRAINED) {
        pieces.clear();
    }
    Ok(pieces)
}

/// Train with Zstandard, which learns codes as well as phrases.
fn train_zstd(
    settled: &Settled<'_>,
    source: &[u8],
    room: usize,
    scratch: &mut Scratch,
    interrupt: &Interrupt,
) -> Outcome<Vec<u8>> {
    // Samples are spread evenly over the data, so that every kind of data is among them.
    let every = source.len().div_ceil(TAUGHT_BYTES).max(1);
    let (mut samples, mut sizes, mut skipped) = (Vec::new(), Vec::new(), 0);
    let first = settled.first_block(source, scratch)?;
    for (index, plain) in source.chunks(settled.recipe.blocksize).enumerate() {
        interrupt.check()?;
        let count = plain.len().div_ceil(PIECE_BYTES);
        if skipped >= count {
            skipped -= count;
            continue;
        }
        let (filtered, _) = settled.filter(plain, first.as_deref().filter(|_| index > 0), scratch)?;
        for sample in filtered.chunks(PIECE_BYTES).skip(skipped).step_by(every) {
            samples.extend_from_slice(sample);
            sizes.push(sample.len());
        }
        skipped = (every - (count - skipped) % every) % every;
    }
    Ok(streams::train(&samples, &sizes, room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::encode::Packer;
    use crate::chunk::encode2::{Split, encode};

    const PLAIN: Recipe<'_> = Recipe {
        codec: Codec::Lz4,
        level: 5,
        filters: &[],
        typesize: 1,
        blocksize: 500,
        split: Split::Auto,
        dictionary: None,
    };

    fn trained(source: &[u8], recipe: Recipe<'_>) -> Vec<u8> {
        train(source, recipe, &mut Scratch::default(), &Interrupt::never()).unwrap()
    }

    fn packed_bytes(source: &[u8], recipe: Recipe<'_>) -> usize {
        let mut out = Packer::default();
        encode(source, recipe, &mut out, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
        out.bytes().len()
    }

    /// Letters that never repeat for long.
    fn letters() -> impl FnMut() -> u8 {
        let mut state = 1u32;
        move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (state >> 24) as u8 % 26
        }
    }

    #[test]
    fn dictionaries_help() {
        // Phrases that are long, and too many for one block to show twice.
        let mut letter = letters();
        let phrases: Vec<[u8; 64]> = (0..40).map(|_| std::array::from_fn(|_| letter())).collect();
        let text: Vec<u8> = (0..5000).flat_map(|n| phrases[n * n / 7 % 40]).collect();
        for codec in [Codec::Zstd, Codec::Lz4, Codec::Lz4Hc] {
            for blocksize in [500, 2048] {
                let recipe = Recipe { codec, blocksize, ..PLAIN };
                let dictionary = trained(&text, recipe);
                let with = packed_bytes(&text, Recipe { dictionary: Some(&dictionary), ..recipe });
                assert!(with < packed_bytes(&text, recipe) * 3 / 4, "{codec:?} {blocksize}");
            }
        }
    }

    #[test]
    fn without_common_data_there_is_no_dictionary() {
        let mut letter = letters();
        let noise: Vec<u8> = (0..60_000).map(|_| letter()).collect();
        assert!(trained(&[1; 10], PLAIN).is_empty());
        assert!(trained(&noise, Recipe { blocksize: 60_000, ..PLAIN }).is_empty(), "one block");
        assert!(trained(&[7; 60_000], PLAIN).is_empty(), "repetitive data");
        assert!(!trained(&noise, Recipe { blocksize: 10_000, ..PLAIN }).is_empty());
    }

    #[test]
    fn pieces_are_not_taken_for_a_trained_dictionary() {
        let mut letter = letters();
        let mut data: Vec<u8> = (0..100_000).map(|_| letter()).collect();
        let recipe = Recipe { codec: Codec::Zstd, blocksize: 10_000, ..PLAIN };
        assert!(trained(&data, recipe).len() >= PIECE_BYTES);
        data[..4].copy_from_slice(&TRAINED);
        assert!(trained(&data, recipe).is_empty());
    }
}
