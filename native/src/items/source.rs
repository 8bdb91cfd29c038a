//! Where packs lie: in memory, or in files, which the thread that needs a pack reads.

use super::{Guard, Pack, UNSTATED, Workspace};
use crate::array::trailer::Stated;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::Root;
use crate::files::small_files::Piece;
use crate::interrupt::Interrupt;
use crate::memory::{grow, reserved};
use std::sync::Mutex;

/// One pack.
pub enum Source<'a> {
    Held(&'a [u8]),
    /// A part of a file, or all of it.
    File(Piece),
}

/// Packs that are read one by one, and how many items each of them has.
pub struct Sources<'a> {
    /// The folder of the files.
    pub root: Option<Root>,
    pub packs: Vec<Source<'a>>,
    pub counts: Vec<usize>,
    pub guard: Guard<'a>,
    /// What the trailers of each pack state, where there are trailers.
    pub stated: Vec<Stated>,
    /// The most bytes of a pack, as it is stored and as its chunks are decoded.
    pub most: usize,
}

impl Sources<'_> {
    /// Call `work` for every pack, on several threads, with its part of `parts`.
    pub(super) fn each<P: Send>(
        &self,
        parts: impl IntoIterator<Item = P>,
        threads: usize,
        interrupt: &Interrupt,
        work: impl Fn(&Pack<'_>, Stated, P, &mut Workspace) -> Outcome<()> + Sync,
    ) -> Outcome<()> {
        let mut queue = reserved(self.packs.len())?;
        queue.extend(parts.into_iter().enumerate());
        let queue = Mutex::new(queue.into_iter());
        interrupt.share(threads.min(self.packs.len()), &mut Workspace::default(), |own| {
            let next = queue.lock().expect("no thread panics").next();
            let Some((number, part)) = next else { return Ok(false) };
            // Taken out of the workspace for as long as the pack is in use.
            let mut image = std::mem::take(&mut own.image);
            let bytes = self.read(number, &mut image)?;
            let pack = Pack::find(bytes, self.counts[number], self.guard, self.most)?;
            work(&pack, self.stated.get(number).copied().unwrap_or(UNSTATED), part, own)?;
            own.image = image;
            Ok(true)
        })
    }

    fn read<'b>(&'b self, number: usize, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]> {
        let (key, start, length) = match &self.packs[number] {
            Source::Held(bytes) => return Ok(bytes),
            Source::File((key, start, length)) => (key, *start, *length),
        };
        let Some(file) = self.root.as_ref().map_or(Ok(None), |root| root.extent(key))? else {
            return corrupt!("pack: {key} is not stored");
        };
        let extent = file.narrowed(start, length)?;
        if extent.length > self.most {
            return Err(Error::new(Kind::Limit, format!("{key}: a pack of {} bytes", extent.length)));
        }
        let bytes = grow(buffer, extent.length)?;
        extent.read(0, bytes)?;
        Ok(bytes)
    }
}
