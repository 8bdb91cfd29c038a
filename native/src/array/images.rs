//! New images of chunks of an array that is cut along its first axis only, made one by one on several
//! threads: staged as files of a transaction, or kept in memory.

use crate::array::addresses::{Addresses, Keys};
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::selection::worth;
use crate::array::slot_writer::SlotWriter;
use crate::array::staging::{Image, checksum};
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::interrupt::Interrupt;
use crate::memory::{Spare, out_of_memory};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of images that were handed on.
pub static SPARE: Spare = Spare::new(32 << 20);

/// A new image of a chunk.
pub enum Made {
    Staged(Image),
    Held(Vec<u8>),
    /// Written into these bytes of a super-chunk file.
    Slotted(Range<u64>),
}

/// Where new images go.
#[derive(Clone, Copy)]
pub enum Destination<'a> {
    Memory,
    /// Files of a transaction, in the folder of the array.
    Staged(&'a str),
    Slots(&'a SlotWriter<'a>),
}

impl<'a> From<Option<&'a str>> for Destination<'a> {
    /// With a transaction, images become its files.
    fn from(transaction: Option<&'a str>) -> Self {
        transaction.map_or(Self::Memory, Self::Staged)
    }
}

/// An array that gets new images, and the numbers of the chunks that do.
pub struct Target<'a> {
    pub layout: &'a Layout,
    images: Images<'a>,
    numbers: Vec<usize>,
}

/// A destination that is ready.
enum Images<'a> {
    Memory,
    Staged(&'a Keys, Root, &'a str),
    Slots(&'a SlotWriter<'a>),
}

/// What became of the chunks, in the order of their numbers: no image for one that holds
/// nothing but the fill value.
pub type Outcomes = (Vec<(usize, Option<Made>)>, Vec<Failure>);

impl<'a> Target<'a> {
    pub fn new(layout: &'a Layout, numbers: Vec<usize>, destination: Destination<'a>) -> Outcome<Self> {
        let images = match (destination, &*layout.addresses) {
            (Destination::Memory, _) => Images::Memory,
            (Destination::Slots(writer), _) => Images::Slots(writer),
            (Destination::Staged(transaction), Addresses::Keyed(keys)) => {
                Images::Staged(keys, keys.create()?, transaction)
            }
            _ => return Err(Error::new(Kind::Argument, "these chunks have no files of their own")),
        };
        Ok(Self { layout, images, numbers })
    }

    /// The size of the decoded chunks.
    fn bytes(&self) -> usize {
        self.numbers.len().saturating_mul(self.layout.grid.chunk_bytes)
    }

    /// Keep the image of a chunk, which consists of some pieces.
    pub fn keep(&self, number: usize, pieces: &[&[u8]]) -> Outcome<Made> {
        let size = pieces.iter().map(|piece| piece.len()).sum();
        let (keys, root, transaction) = match &self.images {
            Images::Staged(keys, root, transaction) => (keys, root, transaction),
            Images::Slots(writer) if pieces.len() == 1 => return writer.write(pieces[0]).map(Made::Slotted),
            Images::Memory | Images::Slots(_) => {
                let mut bytes = SPARE.take();
                bytes.clear();
                bytes.try_reserve_exact(size).map_err(|_| out_of_memory(size))?;
                pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
                let Images::Slots(writer) = self.images else { return Ok(Made::Held(bytes)) };
                let written = writer.write(&bytes).map(Made::Slotted);
                SPARE.keep(bytes);
                return written;
            }
        };
        let key = keys.staged_key(&[number], transaction);
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        root.write_pieces(&key, &mut slices)?;
        Ok(Made::Staged(Image { key, size, checksum: checksum(pieces) }))
    }

    /// Remove images of a call that failed: no caller knows their names.
    fn remove(&self, made: &[(usize, Option<Made>)]) {
        if let Images::Staged(_, root, _) = &self.images {
            for (_, image) in made {
                if let Some(Made::Staged(image)) = image {
                    root.remove(&image.key);
                }
            }
        }
    }
}

/// Make the images of all chunks of a target. `make` is given the place of a chunk among its numbers.
pub fn make_all(
    target: &Target<'_>,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
    make: impl Fn(usize, &mut Workspace) -> Result<Option<Made>, Failure> + Sync,
) -> Outcome<Outcomes> {
    let (made, failures, next) = (Mutex::new(Vec::new()), Failures::default(), AtomicUsize::new(0));
    let work = |workspace: &mut Workspace| {
        let place = next.fetch_add(1, Ordering::Relaxed);
        let Some(number) = target.numbers.get(place) else { return Ok(false) };
        match make(place, workspace) {
            Ok(image) => made.lock().expect("no thread panics").push((*number, image)),
            Err(failure) if failure.error.kind == Kind::Argument => return Err(failure.error),
            Err(failure) => return Ok(failures.note(failure)),
        }
        Ok(true)
    };
    let outcome = interrupt.share(worth(threads, target.numbers.len(), target.bytes()), workspace, work);
    let mut made = made.into_inner().expect("no thread panics");
    if let Err(error) = outcome {
        target.remove(&made);
        return Err(error);
    }
    made.sort_unstable_by_key(|(number, _)| *number);
    Ok((made, failures.into_inner()))
}
