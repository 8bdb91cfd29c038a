//! Bytes of an open file, read by position and never mapped: a writer that truncates a mapped file
//! would kill the process. Bytes that the caller holds in memory are an extent as well.

use super::identity::Identity;
use super::{failed, refuse};
use crate::error::{Outcome, corrupt};
use crate::memory::grow;
use rustix::fs::{FileType, fstat};
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

#[derive(Clone)]
pub struct Extent<'a> {
    pub key: &'a str,
    pub bytes: Bytes<'a>,
    pub offset: u64,
    pub length: usize,
    /// The identity that the file had when it was opened; `None` when a further change could go
    /// unnoticed, and for bytes in memory that have no number.
    pub identity: Option<Identity>,
}

/// What an extent is a part of.
#[derive(Clone)]
pub enum Bytes<'a> {
    File(Arc<File>),
    Held(&'a [u8]),
    /// Some of the bytes, each with the place where it starts.
    Pieces(&'a [(usize, &'a [u8])]),
}

impl<'a> Extent<'a> {
    /// The whole of an open file, which must be a regular one.
    pub fn of(key: &'a str, file: OwnedFd) -> Outcome<Self> {
        // Found before anything is read: a file that changes after that has another identity.
        let facts = fstat(&file).map_err(|error| failed(&error.into(), "reading the metadata of", key))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return refuse(key, "is not a regular file");
        }
        let length = usize::try_from(facts.st_size).unwrap_or(usize::MAX);
        let identity = Identity::of(&facts);
        Ok(Self { key, bytes: Bytes::File(Arc::new(File::from(file))), offset: 0, length, identity })
    }

    /// All of some bytes in memory.
    pub fn held(key: &'a str, bytes: &'a [u8]) -> Self {
        Self { key, bytes: Bytes::Held(bytes), offset: 0, length: bytes.len(), identity: None }
    }

    /// `length` bytes, of which only some pieces are in memory.
    pub fn pieces(key: &'a str, length: usize, pieces: &'a [(usize, &'a [u8])]) -> Self {
        Self { key, bytes: Bytes::Pieces(pieces), offset: 0, length, identity: None }
    }

    /// Whether only some of the bytes are in memory, and no others can be had.
    pub fn is_in_pieces(&self) -> bool {
        matches!(self.bytes, Bytes::Pieces(_))
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

    /// All bytes: in memory, or read into `buffer`.
    pub fn read_all<'b>(&'b self, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]> {
        self.view(0..self.length, buffer)
    }

    /// Some bytes of the extent: in memory, or read into `buffer`.
    pub fn view<'b>(&'b self, range: Range<usize>, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]> {
        match &self.bytes {
            Bytes::Held(bytes) => return self.held_bytes(bytes, range.start, range.len()),
            Bytes::Pieces(pieces) => return self.piece(pieces, range.start, range.len()),
            Bytes::File(_) => {}
        }
        let bytes = grow(buffer, range.len())?;
        self.read(range.start, bytes)?;
        Ok(bytes)
    }

    fn held_bytes<'b>(&self, bytes: &'b [u8], at: usize, length: usize) -> Outcome<&'b [u8]> {
        let start = usize::try_from(self.offset).ok().and_then(|offset| offset.checked_add(at));
        match start.and_then(|start| bytes.get(start..start.checked_add(length)?)) {
            Some(found) => Ok(found),
            None => corrupt!("{}: {length} bytes at {at} are wanted, {} are stored", self.key, self.length),
        }
    }

    fn piece<'b>(&self, pieces: &'b [(usize, &'b [u8])], at: usize, length: usize) -> Outcome<&'b [u8]> {
        let found = usize::try_from(self.offset).ok().and_then(|offset| offset.checked_add(at)).and_then(|start| {
            let inside = |(first, bytes): &(usize, &'b [u8])| {
                let from = start.checked_sub(*first)?;
                bytes.get(from..from.checked_add(length)?)
            };
            pieces.iter().find_map(inside)
        });
        match found {
            Some(bytes) => Ok(bytes),
            None => corrupt!("{}: {length} bytes at {at} are wanted, they were not handed over", self.key),
        }
    }

    /// Fill `out` from byte `at` of the extent on.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Outcome<()> {
        let file = match &self.bytes {
            Bytes::File(file) => file,
            Bytes::Held(bytes) => {
                out.copy_from_slice(self.held_bytes(bytes, at, out.len())?);
                return Ok(());
            }
            Bytes::Pieces(pieces) => {
                out.copy_from_slice(self.piece(pieces, at, out.len())?);
                return Ok(());
            }
        };
        let mut done = 0;
        while done < out.len() {
            match file.read_at(&mut out[done..], self.offset + (at + done) as u64) {
                Ok(0) => return corrupt!("{}: ends at byte {}, it was longer when it was opened", self.key, at + done),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error, "reading", self.key)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_are_read_like_those_of_a_file() {
        let bytes = [1, 2, 3, 4, 5, 6];
        let extent = Extent::held("chunk", &bytes).narrowed(1, Some(4)).unwrap();
        let (mut out, mut buffer) = ([0; 2], Vec::new());
        extent.read(2, &mut out).unwrap();
        assert_eq!(out, [4, 5]);
        assert_eq!(extent.view(0..3, &mut buffer).unwrap(), [2, 3, 4]);
        assert!(buffer.is_empty(), "nothing is copied");
        assert!(extent.read(5, &mut out).is_err() && extent.identity.is_none());
        assert!(Extent::held("chunk", &bytes).narrowed(4, Some(3)).is_err());
    }

    #[test]
    fn only_bytes_of_one_piece_are_read() {
        let pieces: [(usize, &[u8]); 3] = [(0, &[1, 2, 3]), (3, &[4]), (10, &[5, 6, 7])];
        let extent = Extent::pieces("chunk", 20, &pieces);
        let (mut out, mut buffer) = ([0; 2], Vec::new());
        assert_eq!(extent.view(11..13, &mut buffer).unwrap(), [6, 7]);
        extent.read(1, &mut out).unwrap();
        assert_eq!(out, [2, 3]);
        for range in [2..4, 5..6, 12..14, 19..20, 9..11] {
            assert!(extent.view(range, &mut buffer).is_err());
        }
        assert!(extent.is_in_pieces() && !Extent::held("chunk", &[]).is_in_pieces());
    }
}
