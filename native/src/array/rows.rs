//! Chunks of rows: arrays that are cut along their first axis only, into chunk files. The last chunk
//! is stored as short as it is, and all chunks are stored.

use crate::array::chunk_file::{self, Expected, OpenChunk};
use crate::array::coding::{Coding, Compression};
use crate::array::fronts::Fronts;
use crate::array::grid::Grid;
use crate::array::layout::{Failure, Layout};
use crate::array::overwrite::{NewItems, Overwrite};
use crate::array::scatter::{Axis, Region};
use crate::array::slots;
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::workspace::{Buffers, Workspace};
use crate::array::zones::ZoneChange;
use crate::chunk::decode::Window;
use crate::chunk::encode::{self, BlockBytes, Packer};
use crate::chunk::header::HEADER_BYTES;
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::Extent;
use crate::interrupt::Interrupt;
use crate::memory::{grow, repeat, reserved};

/// What the file of chunk `number` must hold.
pub fn expected(grid: &Grid, number: usize) -> Expected {
    let (stated, row_bytes) = (grid.stated(number), grid.row_bytes());
    Expected { stated, row_bytes, least: grid.rows(number), most: grid.chunk[0], slotted: false }
}

/// What it must hold before it is written: of an array that grows, the last chunk has fewer rows.
fn expected_before(grid: &Grid, number: usize) -> Expected {
    let rows = grid.rows(number);
    let short = grid.short.filter(|short| short.0 == number);
    Expected { least: short.map_or(rows, |short| short.1.min(rows)), ..expected(grid, number) }
}

/// The chunk files of an array that is read.
pub struct RowChunks<'a> {
    pub layout: &'a Layout,
    stored: Stored<'a>,
}

impl<'a> RowChunks<'a> {
    pub fn open(layout: &'a Layout, held: Option<&'a Held<'a>>) -> Outcome<Self> {
        let stored = Stored::open(layout, held, false)?;
        if layout.coding.slotted && layout.grid.shape.len() != 1 {
            return Err(Error::new(Kind::Argument, "the chunks of this array are no rows"));
        }
        if let Stored::Folder(keys, None) = stored {
            return corrupt!("{} is missing", keys.root.display());
        }
        Ok(Self { layout, stored })
    }

    /// Let `work` use chunk `number`, of which it wants about `wanted` bytes.
    pub fn visit(
        &self,
        number: usize,
        wanted: usize,
        buffers: &mut Buffers,
        work: impl FnOnce(OpenChunk<'_>) -> Outcome<()>,
    ) -> Result<(), Failure> {
        let (grid, coords) = (&self.layout.grid, [number]);
        let key = self.stored.key(grid, &coords);
        let slotted = self.layout.coding.slotted;
        let due = if slotted { slots::expected(grid, number) } else { expected(grid, number) };
        let done = match self.stored.chunk(grid, &coords, &key) {
            Ok(Chunk::Stored(extent)) => chunk_file::open(&extent, &due, (wanted, self.layout.fronts()), buffers, work),
            Ok(Chunk::Absent) if slotted => slots::repeated(grid, &grid.fill)
                .and_then(|slot| chunk_file::open(&Extent::held(&key, &slot), &due, (wanted, None), buffers, work)),
            Ok(Chunk::Constant(item)) if slotted => slots::repeated(grid, item)
                .and_then(|slot| chunk_file::open(&Extent::held(&key, &slot), &due, (wanted, None), buffers, work)),
            Ok(_) => corrupt!("the chunk is missing"),
            Err(error) => Err(error),
        };
        done.map_err(|error| Failure { coords: vec![number], key, error })
    }
}

/// Read what `region` wants of a chunk; `known` is what was read of chunks before.
pub fn read(
    grid: &Grid,
    extent: &Extent<'_>,
    number: usize,
    known: Option<&Fronts>,
    region: &mut Region<'_>,
    scratch: &mut Scratch,
    buffers: &mut Buffers,
) -> Outcome<()> {
    let wanted = region.count() * grid.itemsize;
    chunk_file::decode(extent, &expected(grid, number), (wanted, known), |_| Ok(region), scratch, buffers)?;
    Ok(())
}

/// Encode the file of a chunk: `source` is what it gets, all of it when it is `whole`; `old` finds
/// what is stored of it now.
#[allow(clippy::too_many_arguments, reason = "as of its caller")]
pub fn encode<'f, T>(
    coding: &Coding,
    grid: &Grid,
    old: impl FnOnce() -> Outcome<Chunk<'f>>,
    number: usize,
    source: &dyn NewItems,
    whole: bool,
    workspace: &mut Workspace,
    keep: impl FnOnce(&[u8]) -> Outcome<T>,
) -> Outcome<T> {
    let Compression::Blosc(recipe) = coding.compression else {
        return Err(Error::new(Kind::Argument, "only Blosc chunks have a head and a trailer"));
    };
    let rows = grid.rows(number);
    let size = rows * grid.row_bytes();
    let old = if whole { Chunk::Absent } else { old()? };
    if let Chunk::Stored(extent) = &old
        && let Some(added) = source.as_slice()
        && source.span().1 * source.itemsize() == size
        && append(recipe, grid, extent, number, added, workspace)?
    {
        return keep(&workspace.framed);
    }
    if let Chunk::Stored(extent) = &old
        && overwrite(recipe, grid, extent, number, source, workspace)?
    {
        return keep(&workspace.framed);
    }
    let Workspace { scratch, buffers, chunk, packer, framed, enclosing } = workspace;
    // Rows that lie together are encoded in place, but not those with a zone map: another thread may write
    // to the caller's memory before it is made, and it must fit what is encoded.
    if whole
        && grid.items.is_none()
        && let Some(plain) = source.as_slice().filter(|plain| plain.len() == size)
    {
        pack(recipe, grid, plain, number, scratch, packer, framed)?;
        return keep(framed);
    }
    let chunk = grow(chunk, size)?;
    if !whole {
        match old {
            Chunk::Stored(extent) => {
                let zone = replace(grid, &extent, number, source, chunk, (scratch, buffers, enclosing))?;
                encode::encode(chunk, recipe, packer, scratch, 1, &Interrupt::never())?;
                chunk_file::pack(packer.bytes(), &zone, grid.stated(number), rows, framed)?;
                return keep(framed);
            }
            _ => return corrupt!("the chunk is missing"),
        }
    }
    source.gather(chunk);
    pack(recipe, grid, chunk, number, scratch, packer, framed)?;
    keep(framed)
}

/// Decode the rows of a chunk as it is stored into `chunk`, and put the items of `source` over them. Return
/// the zone map: where few items change, it follows from these.
fn replace(
    grid: &Grid,
    extent: &Extent<'_>,
    number: usize,
    source: &dyn NewItems,
    chunk: &mut [u8],
    workspace: (&mut Scratch, &mut Buffers, &mut Vec<u8>),
) -> Outcome<Vec<u8>> {
    let (scratch, buffers, picked) = workspace;
    let stored = decode(grid, extent, number, chunk, scratch, buffers)?;
    let Some(items) = grid.items else {
        source.gather(chunk);
        return Ok(Vec::new());
    };
    // The zone map is that of all stored rows.
    let few = stored == grid.rows(number) && source.pick(chunk, picked);
    let zone =
        if few { chunk_file::zone(extent, &expected_before(grid, number), stored, buffers)? } else { Vec::new() };
    let mut change = ZoneChange::new(items, &zone, chunk.len() / items.size).filter(|_| few);
    if let Some(change) = &mut change {
        change.remove(picked);
    }
    source.gather(chunk);
    let found = change.and_then(|mut change| {
        source.pick(chunk, picked);
        change.add(0, picked);
        change.zone_of(items.all_ascend(chunk))
    });
    Ok(found.unwrap_or_else(|| items.zone(chunk)))
}

/// Write the file of a chunk that holds `plain` to `framed`.
pub fn pack(
    recipe: encode::Recipe,
    grid: &Grid,
    plain: &[u8],
    number: usize,
    scratch: &mut Scratch,
    packer: &mut Packer,
    framed: &mut Vec<u8>,
) -> Outcome<()> {
    encode::encode(plain, recipe, packer, scratch, 1, &Interrupt::never())?;
    let zone = grid.items.map_or_else(Vec::new, |items| items.zone(plain));
    let rows = plain.len() / grid.row_bytes();
    chunk_file::pack(packer.bytes(), &zone, grid.stated(number), rows, framed)
}

/// Decode the rows of a chunk as it is stored into `out`; the fill value follows where there are
/// fewer. Return how many are stored.
fn decode(
    grid: &Grid,
    extent: &Extent<'_>,
    number: usize,
    out: &mut [u8],
    scratch: &mut Scratch,
    buffers: &mut Buffers,
) -> Outcome<usize> {
    let (expected, size) = (expected_before(grid, number), grid.itemsize);
    let (row, bytes) = (expected.row_bytes / size, out.len());
    let wanted = bytes / expected.row_bytes;
    let memory = &mut *out;
    let region = |rows: usize, memory| {
        let count = rows.min(wanted) * row;
        let axis = Axis { size: rows * row, start: 0, count, step: 1, stride: size as isize };
        Region::new(&[axis], size, 0, memory)
    };
    let rows = chunk_file::decode(extent, &expected, (bytes, None), |rows| region(rows, memory), scratch, buffers)?;
    if rows < wanted {
        repeat(&grid.fill, 0, &mut out[rows * expected.row_bytes..]);
    }
    Ok(rows)
}

/// Write to `workspace.framed` the file of a chunk that holds what `extent` holds, and `added`
/// behind it. Blocks that were full keep their bytes; only the last one is decoded, and encoded again
/// with what follows. Return false where the whole chunk has to be encoded.
fn append(
    recipe: encode::Recipe,
    grid: &Grid,
    extent: &Extent<'_>,
    number: usize,
    added: &[u8],
    workspace: &mut Workspace,
) -> Outcome<bool> {
    let expected = expected_before(grid, number);
    let rows = grid.rows(number);
    let size = rows * expected.row_bytes;
    let recipe = recipe.settled(size, HEADER_BYTES)?;
    let Workspace { scratch, buffers, chunk, packer, framed, .. } = workspace;
    chunk_file::open(extent, &expected, (size, None), buffers, |mut open: OpenChunk<'_>| {
        let (decoder, held) = (open.decoder, size - added.len());
        let Some((trailer, spans)) = open.trailer() else { return Ok(false) };
        let kept = held.saturating_sub(1) / recipe.blocksize;
        if kept == 0 || decoder.header.nbytes != held {
            return Ok(false);
        }
        if !recipe.encoded(decoder.header) {
            return Ok(false);
        }
        let bytes = open.all()?;
        let start = kept * recipe.blocksize;
        let tail = grow(chunk, size - start)?;
        let (before, behind) = tail.split_at_mut(held - start);
        decoder.decode_block(Window { bytes, offset: 0 }, kept, before, None, scratch)?;
        behind.copy_from_slice(added);
        let zone = match grid.items {
            None => Vec::new(),
            Some(items) => {
                // An item may have started in the block before.
                let last = before.len().checked_sub(items.size).map(|start| &before[start..]);
                let zone = last.and_then(|last| items.zone_behind(trailer.zone(), held / items.size, last, behind));
                let Some(zone) = zone else { return Ok(false) };
                zone
            }
        };
        let mut blocks = reserved(size.div_ceil(recipe.blocksize))?;
        blocks.extend((0..kept).map(|index| BlockBytes::Encoded(&bytes[spans.span(index)])));
        blocks.extend(tail.chunks(recipe.blocksize).map(BlockBytes::Plain));
        if !encode::encode_mixed(size, &blocks, &recipe, packer, scratch)? {
            return Ok(false);
        }
        chunk_file::pack(packer.bytes(), &zone, grid.stated(number), rows, framed)?;
        Ok(true)
    })
}

/// Write to `workspace.framed` the file of a chunk that holds what `extent` holds, with the items of
/// `source` over it; see `overwrite`. Return false where the whole chunk has to be encoded.
fn overwrite(
    recipe: encode::Recipe,
    grid: &Grid,
    extent: &Extent<'_>,
    number: usize,
    source: &dyn NewItems,
    workspace: &mut Workspace,
) -> Outcome<bool> {
    let expected = expected_before(grid, number);
    let rows = grid.rows(number);
    let size = rows * expected.row_bytes;
    let Some(plan) = Overwrite::plan(recipe, size, source)? else { return Ok(false) };
    let Workspace { scratch, buffers, chunk, packer, framed, .. } = workspace;
    chunk_file::open(extent, &expected, (size, None), buffers, |mut open: OpenChunk<'_>| {
        let decoder = open.decoder;
        let Some((trailer, _)) = open.trailer() else { return Ok(false) };
        if !plan.fits(decoder.header) {
            return Ok(false);
        }
        let bytes = open.all()?;
        let zoned = grid.items.map(|items| (items, trailer.zone()));
        let chunk = grow(chunk, size)?;
        let Some(zone) = plan.apply(decoder, bytes, source, zoned, None, chunk, packer, scratch)? else {
            return Ok(false);
        };
        chunk_file::pack(packer.bytes(), &zone, grid.stated(number), rows, framed)?;
        Ok(true)
    })
}
