//! The chunks of one array: where they lie, how they are coded, and which items they hold.

pub mod chunk_file;
pub mod coding;
pub mod comparison;
pub mod gather;
mod growth;
mod index_arrays;
pub mod layout;
pub mod pieces;
mod rows;
pub mod scatter;
pub mod search;
pub mod shards;
pub mod staging;
mod trailer;
pub mod zones;
