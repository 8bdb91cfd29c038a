//! Bytes of an open file, read by position and never mapped: a writer that truncates a mapped file
//! would kill the process.

use super::identity::Identity;
use super::{failed, refuse};
use crate::error::{Outcome, corrupt};
use crate::memory::grow;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub struct Extent<'a> {
    pub key: &'a str,
    pub file: Arc<File>,
    pub offset: u64,
    pub length: usize,
}

impl<'a> Extent<'a> {
    /// The whole of an open file, which must be a regular one.
    pub fn of(key: &'a str, file: OwnedFd) -> Outcome<Self> {
        let file = File::from(file);
        let metadata = file.metadata().map_err(|error| failed(&error, "reading the metadata of", key))?;
        if !metadata.is_file() {
            return refuse(key, "is not a regular file");
        }
        let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        Ok(Self { key, file: Arc::new(file), offset: 0, length })
    }

    /// Only the `length` bytes from `offset` on, or all to the end.
    pub fn narrowed(self, offset: u64, length: Option<usize>) -> Outcome<Self> {
        let left = (self.length as u64).saturating_sub(offset) as usize;
        match length {
            Some(length) if length > left => {
                corrupt!("{}: {length} bytes at {offset} are wanted, {left} are stored", self.key)
            }
            _ => Ok(Self { offset, length: length.unwrap_or(left), ..self }),
        }
    }

    /// The identity of the file; `None` when a further change could go unnoticed.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(&self.file.metadata().ok()?)
    }

    /// All bytes, read into `buffer`.
    pub fn read_all<'b>(&self, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]> {
        let bytes = grow(buffer, self.length)?;
        self.read(0, bytes)?;
        Ok(bytes)
    }

    /// Fill `out` from byte `at` of the extent on.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Outcome<()> {
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], self.offset + (at + done) as u64) {
                Ok(0) => return corrupt!("{}: ends at byte {}, it was longer when it was opened", self.key, at + done),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error, "reading", self.key)),
            }
        }
        Ok(())
    }
}
