//! Chunks that get rows at their end. Blocks that were full before keep their bytes; only the
//! last one is decoded, and encoded again with what follows.

use crate::chain::Coding;
use crate::decode::Window;
use crate::encode;
use crate::fault::Outcome;
use crate::files::Extent;
use crate::header::HEADER_BYTES;
use crate::layout::{Layout, Tools};
use crate::scratch::room;
use crate::superchunk::{self, Found};

impl Layout {
    /// Put into `tools.framed` the file of a chunk of `rows` rows: what `extent` holds, and
    /// `added` behind it. False where it has to be made from scratch.
    pub fn grow_rows(
        &self,
        extent: &Extent<'_>,
        number: usize,
        rows: usize,
        added: &[u8],
        tools: &mut Tools,
    ) -> Outcome<bool> {
        let due = self.due(number, true);
        let size = rows * due.row_bytes;
        let (Coding::Blosc(recipe), Some(framing)) = (self.chain.coding, &self.framing) else {
            return Ok(false);
        };
        let recipe = recipe.settled(size, HEADER_BYTES)?;
        let Tools { scratch, buffers, chunk, packer, framed, .. } = tools;
        superchunk::open(extent, &due, size, buffers, |mut found: Found<'_>| {
            let (decoder, held) = (found.decoder, size - added.len());
            let Some((trailer, spans)) = found.seal() else { return Ok(false) };
            let kept = held.saturating_sub(1) / recipe.blocksize;
            if kept == 0 || decoder.header.nbytes != held {
                return Ok(false);
            }
            let bytes = found.all()?;
            if !recipe.wrote(bytes) {
                return Ok(false);
            }
            let begin = kept * recipe.blocksize;
            let tail = room(chunk, size - begin)?;
            let (before, behind) = tail.split_at_mut(held - begin);
            decoder.decode_block(Window { bytes, offset: 0 }, kept, before, None, scratch)?;
            behind.copy_from_slice(added);
            let zone = match framing.items {
                None => Vec::new(),
                Some(items) => {
                    // An item may have begun in the block before.
                    let last = before.len().checked_sub(items.size).map(|start| &before[start..]);
                    let zone = last.and_then(|last| items.zone_behind(trailer.zone(), held / items.size, last, added));
                    let Some(zone) = zone else { return Ok(false) };
                    zone
                }
            };
            let blocks = (0..kept).map(|index| &bytes[spans.span(index)]);
            if !encode::encode_behind(blocks, tail, &recipe, packer, scratch)? {
                return Ok(false);
            }
            superchunk::pack(packer.bytes(), &zone, number, rows, framed)?;
            Ok(true)
        })
    }
}
