//! Files below a folder: opened beneath it, read by position, written as new files; and what is
//! known of files that were read before.
//!
//! Knows nothing of chunks and arrays.

pub mod commit;
pub mod documents;
pub mod extent;
pub mod identity;
pub mod journal;
pub mod kernel_commit;
pub mod new_value;
pub mod ranges;
pub mod root;
pub mod small_files;
pub mod verified;
pub mod version_probe;
pub mod writer_lock;

pub use extent::{Bytes, Extent};
pub use root::{Renamed, Root, gains_by_reserving, reserve};

use crate::error::{Error, Kind, Outcome};
use std::io;

/// The error of a system call: what was done, and to which file.
fn failed(error: &io::Error, doing: &str, name: &str) -> Error {
    Error::new(Kind::System(error.raw_os_error().unwrap_or(0)), format!("{doing} {name}: {error}"))
}

fn refuse<T>(key: &str, why: &str) -> Outcome<T> {
    Err(Error::new(Kind::Unsafe, format!("{key} {why}")))
}
