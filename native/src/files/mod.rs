//! Files below a folder: positioned reads, new files, and what is known of files that were read.

pub mod root;
pub mod small_files;
pub mod verified;
pub mod version_probe;

pub use root::*;
