//! Chunks that get rows at their end. Blocks that were full before keep their bytes; only the
//! last one is decoded, and encoded again with what follows.

use crate::array::chunk_file::{self, Found};
use crate::array::coding::Coding;
use crate::array::layout::{Layout, Workspace};
use crate::chunk::decode::Window;
use crate::chunk::encode;
use crate::chunk::header::HEADER_BYTES;
use crate::chunk::scratch::grow;
use crate::error::Outcome;
use crate::files::Extent;

impl Layout {
    /// Put into `workspace.framed` the file of a chunk of `rows` rows: what `extent` holds, and
    /// `added` behind it. False where it has to be made from scratch.
    pub fn grow_rows(
        &self,
        extent: &Extent<'_>,
        number: usize,
        rows: usize,
        added: &[u8],
        workspace: &mut Workspace,
    ) -> Outcome<bool> {
        let due = self.due(number, true);
        let size = rows * due.row_bytes;
        let (Coding::Blosc(recipe), Some(framing)) = (self.chain.coding, &self.framing) else {
            return Ok(false);
        };
        let recipe = recipe.settled(size, HEADER_BYTES)?;
        let Workspace { scratch, buffers, chunk, packer, framed, .. } = workspace;
        chunk_file::open(extent, &due, size, buffers, |mut found: Found<'_>| {
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
            let tail = grow(chunk, size - begin)?;
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
            chunk_file::pack(packer.bytes(), &zone, number, rows, framed)?;
            Ok(true)
        })
    }
}
