//! New images of chunks, written into one super-chunk file by several threads: into gaps that no image uses,
//! or behind its end. Nothing refers to them before the index does, which is not written here.

use crate::array::room::Room;
use crate::checksum::joined_crc32;
use crate::error::{Error, Kind, Outcome};
use crate::memory::push;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// An open file, and where it has room.
pub struct SlotWriter<'a> {
    file: &'a File,
    /// The room behind an image at the end, as a fraction of its size.
    spare: f64,
    room: Mutex<Room>,
    /// Without gaps, the start, the length and the CRC-32 of each image with its spare bytes.
    sums: Option<Mutex<Vec<(u64, u64, u32)>>>,
}

const ZEROS: [u8; 4096] = [0; 4096];

impl<'a> SlotWriter<'a> {
    pub fn new(file: &'a File, gaps: impl IntoIterator<Item = Range<u64>>, end: u64, spare: f64) -> Self {
        let room = Room::new(gaps, end);
        let sums = (!room.has_gaps()).then(Mutex::default);
        Self { file, spare, room: Mutex::new(room), sums }
    }

    /// Write an image, and return where it lies.
    pub fn write(&self, image: &[u8]) -> Outcome<Range<u64>> {
        let (size, spare) = (image.len() as u64, (image.len() as f64 * self.spare) as u64);
        let start = self.room.lock().expect("no thread panics").take(size, spare);
        self.file.write_all_at(image, start).map_err(|error| failed(&error))?;
        if let Some(sums) = &self.sums {
            push(&mut sums.lock().expect("no thread panics"), (start, size + spare, summed(image, spare)))?;
        }
        Ok(start..start + size)
    }

    /// Let the file reach behind the spare bytes of the last image, and return where that is. Without gaps,
    /// return the CRC-32 of all that was written.
    pub fn finish(self) -> Outcome<(u64, Option<u32>)> {
        let end = self.room.into_inner().expect("no thread panics").end;
        let size = self.file.metadata().map_err(|error| failed(&error))?.len();
        if size < end {
            self.file.set_len(end).map_err(|error| failed(&error))?;
        }
        let sums = self.sums.map(|sums| sums.into_inner().expect("no thread panics"));
        Ok((end, sums.map(joined)))
    }
}

/// The CRC-32 of an image and of so many zeros behind it.
fn summed(image: &[u8], spare: u64) -> u32 {
    let mut sum = libdeflater::Crc::new();
    sum.update(image);
    let mut left = spare as usize;
    while left > 0 {
        let some = left.min(ZEROS.len());
        sum.update(&ZEROS[..some]);
        left -= some;
    }
    sum.sum()
}

/// The CRC-32 of parts that follow each other, given in any order.
fn joined(mut sums: Vec<(u64, u64, u32)>) -> u32 {
    sums.sort_unstable();
    sums.iter().fold(0, |before, (_, length, sum)| joined_crc32(before, *sum, *length as usize))
}

fn failed(error: &io::Error) -> Error {
    Error::new(Kind::System(error.raw_os_error().unwrap_or(0)), format!("writing chunks: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_are_joined_in_the_order_of_the_file() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| ((number * 7) >> 3) as u8).collect();
        let (first, second) = bytes.split_at(9000);
        let whole = [first, &[0; 5000], second, &[0; 1]].concat();
        let sums = vec![(14_000, 11_001, summed(second, 1)), (0, 14_000, summed(first, 5000))];
        assert_eq!(joined(sums), libdeflater::crc32(&whole));
    }
}
