//! Data and chunks for the tests of several modules.

use crate::chunk::codecs::streams::Codec;
use crate::chunk::encode::{Packer, Recipe, encode};
use crate::chunk::header::Filter;
use crate::chunk::scratch::Scratch;
use crate::interrupt::Interrupt;

pub fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|index| (((index / 11) * (index % 7)) >> 3) as u8).collect()
}

pub fn packed(source: &[u8], recipe: Recipe) -> Vec<u8> {
    let mut packer = Packer::default();
    encode(source, recipe, &mut packer, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
    packer.bytes().to_vec()
}

pub fn recipes(typesize: usize) -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for codec in [Codec::BloscLz, Codec::Lz4, Codec::Zstd, Codec::Zlib, Codec::Snappy] {
        for filter in [Filter::None, Filter::Shuffle, Filter::Bitshuffle] {
            for blocksize in [0, 700, 4096] {
                recipes.push(Recipe { codec, level: 5, filter, typesize, blocksize, gain: 0 });
            }
        }
    }
    recipes
}
