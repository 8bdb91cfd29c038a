//! Chunks in the slots of super-chunk files: boxes of full size, each with a trailer and perhaps spare
//! bytes behind it. A chunk that is not stored holds the fill value.

use crate::array::chunk_file::{self, Expected};
use crate::array::coding::{Coding, Compression};
use crate::array::fronts::Fronts;
use crate::array::grid::Grid;
use crate::array::overwrite::{NewItems, Overwrite};
use crate::array::scatter::Region;
use crate::array::staging::{copied, is_all};
use crate::array::stored::Chunk;
use crate::array::workspace::{Buffers, Workspace};
use crate::array::zones::Items;
use crate::chunk::codecs::streams::Codec;
use crate::chunk::decode::Decoder;
use crate::chunk::encode::{self, Packer, Recipe};
use crate::chunk::header::{Filter, HEADER_BYTES};
use crate::chunk::scratch::Scratch;
use crate::error::Outcome;
use crate::files::Extent;
use crate::interrupt::Interrupt;
use crate::memory::{grow, repeat};

/// What the slot of chunk `number` must hold.
pub fn expected(grid: &Grid, number: usize) -> Expected {
    let rows = grid.chunk[0];
    Expected { stated: grid.stated(number), row_bytes: grid.row_bytes(), least: rows, most: rows, slotted: true }
}

/// How many rows of chunk `number` lie inside the array.
pub fn counted_rows(grid: &Grid, number: usize) -> usize {
    let axes = grid.shape.iter().zip(&grid.chunk).skip(1);
    let across: usize = axes.map(|(length, chunk)| length.div_ceil(*chunk)).product();
    let first = (number / across.max(1)).saturating_mul(grid.chunk[0]);
    grid.shape[0].saturating_sub(first).min(grid.chunk[0])
}

/// The items of which a chunk has a zone map: those of arrays with one axis.
pub fn zoned(grid: &Grid) -> Option<Items> {
    grid.items.filter(|_| grid.shape.len() == 1)
}

/// The slot of a chunk in which every item is `item`, without a trailer.
pub fn repeated(grid: &Grid, item: &[u8]) -> Outcome<Vec<u8>> {
    let mut plain = Vec::new();
    let plain = grow(&mut plain, grid.chunk_bytes)?;
    repeat(item, 0, plain);
    let (codec, typesize) = (Codec::Lz4, grid.itemsize.min(255));
    let recipe = Recipe { codec, level: 1, filter: Filter::None, typesize, blocksize: 0, gain: 0 };
    let mut packer = Packer::default();
    encode::encode(plain, recipe, &mut packer, &mut Scratch::default(), 1, &Interrupt::never())?;
    copied(packer.bytes())
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

/// Write chunk `number`, which holds `plain`, and its trailer to `slot`; `rows` of it count.
#[allow(clippy::too_many_arguments, reason = "memory of the thread is handed on in parts")]
pub fn pack(
    coding: &Coding,
    grid: &Grid,
    plain: &[u8],
    number: usize,
    rows: usize,
    scratch: &mut Scratch,
    packer: &mut Packer,
    slot: &mut Vec<u8>,
) -> Outcome<()> {
    let zone = zoned(grid).map_or_else(Vec::new, |items| items.zone(&plain[..rows * items.size]));
    coding.encode(plain, scratch, packer, |chunk| chunk_file::pack_slot(chunk, &zone, grid.stated(number), rows, slot))
}

/// Write chunk `number`, which is encoded and whole, and its trailer to `slot`. `plain` are its items, where they lie
/// side by side in memory; return whether that suffices for its zone map.
pub fn finish(grid: &Grid, chunk: &[u8], plain: Option<&[u8]>, number: usize, slot: &mut Vec<u8>) -> Outcome<bool> {
    let zone = match (zoned(grid), plain) {
        (None, _) => Vec::new(),
        (Some(items), Some(plain)) => items.zone(plain),
        (Some(_), None) => return Ok(false),
    };
    chunk_file::pack_slot(chunk, &zone, grid.stated(number), grid.chunk[0], slot)?;
    Ok(true)
}

/// Encode chunk `number` and hand its slot to `keep`; `None` when it holds nothing but the fill value.
/// `source` is what the chunk gets: `whole` says that this is all that lies inside the array, `padded` that
/// the array ends inside the chunk. `old` finds what is stored of it now.
#[allow(clippy::too_many_arguments, reason = "as of its caller")]
pub fn encode<'f, T>(
    coding: &Coding,
    grid: &Grid,
    old: impl FnOnce() -> Outcome<Chunk<'f>>,
    number: usize,
    source: &dyn NewItems,
    (whole, padded): (bool, bool),
    workspace: &mut Workspace,
    keep: impl FnOnce(&[u8]) -> Outcome<T>,
) -> Outcome<Option<T>> {
    let rows = counted_rows(grid, number);
    let Workspace { scratch, buffers, chunk, packer, framed: slot, .. } = workspace;
    let chunk = grow(chunk, grid.chunk_bytes)?;
    match if whole { Chunk::Absent } else { old()? } {
        Chunk::Stored(extent) => {
            let expected = expected(grid, number);
            let in_part = chunk_file::open(&extent, &expected, (grid.chunk_bytes, None), buffers, |mut open| {
                let decoder = open.decoder;
                let trailer = open.trailer().map(|(trailer, _)| trailer);
                let bytes = open.all()?;
                let plan = match coding.compression {
                    Compression::Blosc(recipe) => Overwrite::plan(recipe, chunk.len(), source)?,
                    // Blocks of Blosc 2 may depend on each other.
                    _ => None,
                };
                let plan = plan.filter(|plan| plan.fits(decoder.header));
                let fill = Some(grid.fill.as_slice());
                let zone = match (plan, zoned(grid), trailer) {
                    (Some(plan), None, _) => plan.apply(decoder, bytes, source, None, fill, chunk, packer, scratch)?,
                    // A zone map is about the rows that count. Where all rows do, it changes by blocks.
                    (Some(plan), Some(items), Some(trailer)) if trailer.rows() == rows && rows == grid.chunk[0] => {
                        let zoned = Some((items, trailer.zone()));
                        plan.apply(decoder, bytes, source, zoned, fill, chunk, packer, scratch)?
                    }
                    // Rows behind those that counted add to it; the last of these tells whether they ascend.
                    (Some(plan), Some(items), Some(trailer)) if source.span() == (trailer.rows(), rows) => {
                        let (held, size) = (trailer.rows() * items.size, items.size);
                        let last = held.saturating_sub(size);
                        if plan.ranges().any(|range| held >= size && range.start <= last && held <= range.end)
                            && source.rank(rows) == rows - trailer.rows()
                            && plan.apply(decoder, bytes, source, None, fill, chunk, packer, scratch)?.is_some()
                        {
                            let (before, added) = (&chunk[last..held], &chunk[held..rows * size]);
                            items.zone_behind(trailer.zone(), trailer.rows(), before, added)
                        } else {
                            None
                        }
                    }
                    _ => None,
                };
                if zone.is_some() {
                    return Ok(zone);
                }
                // Another one: a decoder takes a block that it decodes twice for an overlap.
                let decoder = Decoder::new(decoder.header, &bytes[HEADER_BYTES..decoder.header.data_start()]);
                decoder.decode_whole(bytes, chunk, scratch, 1, &Interrupt::never())?;
                source.gather(chunk);
                Ok(None)
            })?;
            if let Some(zone) = in_part {
                chunk_file::pack_slot(packer.bytes(), &zone, grid.stated(number), rows, slot)?;
                return keep(slot).map(Some);
            }
        }
        Chunk::Absent => {
            if !whole || padded {
                repeat(&grid.fill, 0, chunk);
            }
            source.gather(chunk);
        }
        Chunk::Constant(item) => {
            repeat(item, 0, chunk);
            source.gather(chunk);
        }
    }
    if is_all(chunk, &grid.fill) {
        return Ok(None);
    }
    pack(coding, grid, chunk, number, rows, scratch, packer, slot)?;
    keep(slot).map(Some)
}
