//! One Blosc chunk in memory: its header, its blocks, and the codecs and filters that they use.

pub mod codecs;
pub mod decode;
pub mod dictionary;
pub mod encode;
pub mod encode2;
pub mod filters;
#[cfg(test)]
mod fuzz;
pub mod header;
pub mod header2;
mod partial;
#[cfg(test)]
pub mod samples;
pub mod scratch;
pub mod special;
mod vlblocks;
