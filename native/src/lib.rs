//! The native kernel of Ingot: chunked, compressed arrays read and written, safely and fast.
//!
//! - `chunk`: one Blosc chunk in memory, encoded and decoded, whole or in part.
//! - `files`: files below a folder, read by position and written as new files.
//! - `array`: the chunks of one array, found by their addresses, read into and staged from the
//!   caller's memory.
//! - `checksum`: checksums of every kind that may follow a chunk.
//! - `device`: the plan of what a GPU decodes.
//! - `items`: packs of variable-length items.
//! - `pack`: files packed into runs of chunks, and unpacked again.
//! - `python`: the boundary to Python. Every other module is plain Rust.
//! - `error` and `interrupt`: why a call failed, and how a long call is interrupted and shared out
//!   over threads. `fork`: locks that a fork may copy.

mod array;
mod checksum;
mod chunk;
mod device;
mod error;
mod files;
mod fork;
mod interrupt;
mod items;
mod memory;
mod pack;
mod python;
