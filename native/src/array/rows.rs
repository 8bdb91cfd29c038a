//! Arrays that are cut along their first axis only, into files with a head and a trailer:
//! what of the layout is different there. The last chunk is as short as it is, and all
//! chunks are there.

use crate::array::chunk_file::{self, Due};
use crate::array::coding::Coding;
use crate::array::layout::{Layout, Workspace};
use crate::array::scatter::{Axis, Destination, Region};
use crate::array::staging::spread;
use crate::chunk::encode::{self, Packer};
use crate::chunk::scratch::{Scratch, grow};
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::{Buffers, Extent, Root};
use crate::interrupt::Interrupt;

impl Layout {
    /// How many rows of a chunk count.
    pub fn valid(&self, number: usize) -> usize {
        self.chunk[0].min(self.shape[0] - number * self.chunk[0])
    }

    /// What the file of a chunk must hold, now or `before` the array grew.
    pub fn due(&self, number: usize, before: bool) -> Due {
        let (full, valid) = (self.chunk[0], self.valid(number));
        let short = self.framing.and_then(|framing| framing.short).filter(|short| before && short.0 == number);
        let least = short.map_or(valid, |short| short.1.min(valid));
        Due { number, row_bytes: self.chunk_bytes / full, least, most: full }
    }

    /// Read what `region` wants of a chunk.
    pub fn read_rows(
        &self,
        extent: Option<&Extent<'_>>,
        number: usize,
        region: &Region,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Outcome<()> {
        let Some(extent) = extent else {
            return corrupt!("the chunk is missing");
        };
        let wanted = region.count() * self.itemsize;
        chunk_file::decode(extent, &self.due(number, false), wanted, |_| Ok(region), scratch, buffers)?;
        Ok(())
    }

    /// Make the file of a chunk: `region` is what it gets, all of it when it is `whole`; `old`
    /// finds what is stored of it now.
    pub fn encode_rows<'f, T>(
        &self,
        old: impl FnOnce() -> Outcome<Option<Extent<'f>>>,
        number: usize,
        region: &Region,
        whole: bool,
        workspace: &mut Workspace,
        keep: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<T> {
        let due = self.due(number, true);
        let rows = self.valid(number);
        let size = rows * due.row_bytes;
        let old = if whole { None } else { old()? };
        if let Some(extent) = &old
            && let Some(added) = region.as_one_piece()
            && region.span().1 * self.itemsize == size
            && self.grow_rows(extent, number, rows, added, workspace)?
        {
            return keep(&workspace.framed);
        }
        let Workspace { scratch, buffers, chunk, packer, framed, .. } = workspace;
        // Rows that lie together are encoded where they lie.
        if whole && let Some(plain) = region.as_one_piece().filter(|plain| plain.len() == size) {
            return self.pack_rows(plain, number, rows, scratch, packer, framed).and_then(|()| keep(framed));
        }
        let chunk = grow(chunk, size)?;
        if !whole {
            match old {
                Some(extent) => self.decode_rows(&extent, &due, chunk, scratch, buffers)?,
                None => return corrupt!("the chunk is missing"),
            }
        }
        region.gather(chunk);
        self.pack_rows(chunk, number, rows, scratch, packer, framed)?;
        keep(framed)
    }

    /// Put the file of a chunk that holds `plain` into `framed`.
    fn pack_rows(
        &self,
        plain: &[u8],
        number: usize,
        rows: usize,
        scratch: &mut Scratch,
        packer: &mut Packer,
        framed: &mut Vec<u8>,
    ) -> Outcome<()> {
        let (Coding::Blosc(recipe), Some(framing)) = (self.chain.coding, &self.framing) else {
            return Err(Error::new(Kind::Argument, "only Blosc chunks have a head and a trailer"));
        };
        encode::encode(plain, recipe, packer, scratch, 1, &Interrupt::never())?;
        let zone = framing.items.map_or_else(Vec::new, |items| items.zone(plain));
        chunk_file::pack(packer.bytes(), &zone, number, rows, framed)
    }

    /// The zone maps of chunks, empty for those that have none.
    pub fn zones(&self, numbers: &[usize], workspace: &mut Workspace, interrupt: &Interrupt) -> Outcome<Vec<Vec<u8>>> {
        let root = Root::open(&self.root)?;
        let mut zones = Vec::with_capacity(numbers.len());
        for number in numbers {
            interrupt.look()?;
            if self.framing.is_none() || number.saturating_mul(self.chunk[0]) >= self.shape[0] {
                return Err(Error::new(Kind::Argument, format!("chunk {number} has no zone map")));
            }
            let key = self.key(&[*number]);
            match root.as_ref().map_or(Ok(None), |root| root.extent(&key))? {
                Some(extent) => {
                    let zone = chunk_file::zone(&extent, &self.due(*number, false), &mut workspace.buffers);
                    zones.push(zone.map_err(|error| Error::new(error.kind, format!("{key}: {}", error.text)))?);
                }
                None => return corrupt!("{key} is missing"),
            }
        }
        Ok(zones)
    }

    /// Decode the rows of a chunk into `out`; where there are fewer, fill follows.
    fn decode_rows(
        &self,
        extent: &Extent<'_>,
        due: &Due,
        out: &mut [u8],
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Outcome<()> {
        let (size, row) = (self.itemsize, due.row_bytes / self.itemsize);
        let wanted = out.len() / due.row_bytes;
        // SAFETY: `out` outlives the call, and is not used by anybody else while it lasts.
        let memory = unsafe { Destination::new(out.as_mut_ptr(), out.len()) };
        let region = |rows: usize| {
            let count = rows.min(wanted) * row;
            let axis = Axis { size: rows * row, start: 0, count, step: 1, stride: size as isize };
            Region::new(&[axis], size, 0, memory)
        };
        let rows = chunk_file::decode(extent, due, out.len(), region, scratch, buffers)?;
        if rows < wanted {
            spread(&mut out[rows * due.row_bytes..], &self.fill);
        }
        Ok(())
    }
}
