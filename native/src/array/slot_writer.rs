//! New images of chunks, written into one super-chunk file by several threads: into gaps that no image uses,
//! or behind its end. Nothing refers to them before the index does, which is not written here.

use crate::error::{Error, Kind, Outcome};
use std::collections::BTreeSet;
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
}

/// The gaps of a file, each as its size and its first byte, and where the file ends.
struct Room {
    gaps: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Room {
    /// Where an image of so many bytes fits best. One behind the end gets `spare` bytes behind it.
    fn take(&mut self, size: u64, spare: u64) -> u64 {
        let Some(gap) = self.gaps.range((size, 0)..).next().copied() else {
            let start = self.end;
            self.end += size + spare;
            return start;
        };
        self.gaps.remove(&gap);
        let (room, start) = gap;
        if room > size {
            self.gaps.insert((room - size, start + size));
        }
        start
    }
}

impl<'a> SlotWriter<'a> {
    pub fn new(file: &'a File, gaps: impl IntoIterator<Item = Range<u64>>, end: u64, spare: f64) -> Self {
        let gaps = gaps.into_iter().filter(|gap| gap.start < gap.end).map(|gap| (gap.end - gap.start, gap.start));
        Self { file, spare, room: Mutex::new(Room { gaps: gaps.collect(), end }) }
    }

    /// Write an image, and return where it lies.
    pub fn write(&self, image: &[u8]) -> Outcome<Range<u64>> {
        let (size, spare) = (image.len() as u64, (image.len() as f64 * self.spare) as u64);
        let start = self.room.lock().expect("no thread panics").take(size, spare);
        self.file.write_all_at(image, start).map_err(|error| failed(&error))?;
        Ok(start..start + size)
    }

    /// Let the file reach behind the spare bytes of the last image, and return where that is.
    pub fn finish(self) -> Outcome<u64> {
        let end = self.room.into_inner().expect("no thread panics").end;
        let size = self.file.metadata().map_err(|error| failed(&error))?.len();
        if size < end {
            self.file.set_len(end).map_err(|error| failed(&error))?;
        }
        Ok(end)
    }
}

fn failed(error: &io::Error) -> Error {
    Error::new(Kind::System(error.raw_os_error().unwrap_or(0)), format!("writing chunks: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_go_into_the_smallest_gap_that_fits_and_else_behind_the_end() {
        let gaps = [(50, 150), (10, 210), (20, 80)].into_iter().collect();
        let mut room = Room { gaps, end: 300 };
        assert_eq!([room.take(15, 1), room.take(5, 1), room.take(5, 1), room.take(50, 1)], [80, 95, 210, 150]);
        assert_eq!([room.take(60, 6), room.take(7, 1)], [300, 366]);
        assert_eq!(room.gaps.into_iter().collect::<Vec<_>>(), [(5, 215)]);
        assert_eq!(room.end, 374);
    }
}
