//! The native kernel of Ingot: Blosc chunks decoded and encoded, safely and fast.
//!
//! `python` is the boundary to Python; every other module is plain Rust.

mod blosclz;
mod buffers;
mod chain;
mod comparison;
mod copies;
mod decode;
mod documents;
mod encode;
mod extended;
mod extension;
mod fault;
mod files;
mod filters;
#[cfg(test)]
mod fuzz;
mod growth;
mod header;
mod layout;
mod learning;
mod lookout;
mod lz4;
mod partial;
mod picks;
mod pieces;
mod pipeline;
mod python;
mod rows;
#[cfg(test)]
mod samples;
mod scatter;
mod scattered;
mod scratch;
mod seals;
mod search;
mod shard_reading;
mod shard_staging;
mod shards;
mod special;
mod staging;
mod streams;
mod superchunk;
mod trailer;
mod varied;
mod watch;
mod zone;
