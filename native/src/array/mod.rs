//! The chunks of one array: where they lie, how they are coded, and which items they hold.

pub mod addresses;
mod chunk_file;
pub mod chunks;
pub mod coding;
pub mod comparison;
pub mod copies;
pub mod gather;
pub mod grid;
pub mod images;
mod index_arrays;
pub mod layout;
mod overwrite;
pub mod partial_read;
pub mod read;
mod rows;
pub mod runs;
pub mod scatter;
pub mod search;
pub mod selection;
pub mod shards;
mod slots;
pub mod staging;
pub mod stored;
pub mod top_up;
mod trailer;
pub mod workspace;
pub mod zones;
