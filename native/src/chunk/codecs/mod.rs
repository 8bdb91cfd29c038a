//! The compressors of streams: `streams` chooses one by name; BloscLZ and LZ4 are decoded here.

mod blosclz;
mod lz4;
mod lz77;
pub mod streams;
