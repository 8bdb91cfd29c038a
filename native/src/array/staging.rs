//! New images of an array's chunks, staged from memory: the rest of a partly covered chunk is read, the
//! new items are gathered, all is encoded and written under staged names.

use crate::array::addresses::{Addresses, Keys};
use crate::array::coding::Compression;
use crate::array::images::SPARE;
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::overwrite::NewItems;
use crate::array::scatter::{Geometry, Source, SourceMemory};
use crate::array::selection::{ChunkPart, Files, Selection, worth};
use crate::array::stored::{Chunk, Held, Stored};
use crate::array::workspace::Workspace;
use crate::array::{rows, shards, slots};
use crate::chunk::encode;
use crate::chunk::filters;
use crate::chunk::header::Filter;
use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::interrupt::Interrupt;
use crate::memory::{grow, out_of_memory, push, repeat};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Runs of at least so many items are worth a vector step each.
const LONG_RUN: usize = 32;

/// A staged chunk or shard; no image when it holds nothing but the fill value.
pub struct Staged {
    pub coords: Vec<usize>,
    pub image: Option<Image>,
}

/// A staged file, with its size and checksum.
pub struct Image {
    pub key: String,
    pub size: usize,
    /// The CRC-32 of zlib, which journals use.
    pub checksum: u32,
}

/// What a call has staged of one array, and the failures of its chunks.
pub type Outcomes = (Vec<Staged>, Vec<Failure>);

/// Encode the files number `range` that the selection touches, each into a new file of
/// `transaction`; a file is a chunk or a shard.
pub fn stage(
    selection: &Selection<'_, SourceMemory<'_>>,
    range: Range<usize>,
    threads: usize,
    transaction: &str,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Outcomes> {
    if let Addresses::Indexed(keys, format) = &*selection.layout.addresses {
        return shards::stage(selection, keys, format, range, threads, transaction, workspace, interrupt);
    }
    let files = Files::new(None, selection.count(), range)?;
    let bytes = files.len().saturating_mul(selection.layout.grid.chunk_bytes);
    let threads = selection.threads(threads, bytes).min(files.len());
    let mut staged = stage_chunks(&[(selection, files)], threads, transaction, workspace, interrupt)?;
    staged.pop().ok_or_else(|| Error::new(Kind::Argument, "there is no array to stage"))
}

/// Encode all chunks that the selections of several arrays touch, each into a new file of
/// `transaction`. What each array has is returned in the order of the selections.
pub fn stage_all(
    selections: &[Selection<'_, SourceMemory<'_>>],
    threads: usize,
    transaction: &str,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Outcomes>> {
    let (mut arrays, mut count, mut bytes) = (Vec::with_capacity(selections.len()), 0_usize, 0_usize);
    for selection in selections {
        let touched = selection.count();
        arrays.push((selection, Files::new(None, touched, 0..touched)?));
        count = count.saturating_add(touched);
        // Of a chunk that changes in part, mostly the blocks with new items are encoded.
        bytes = bytes.saturating_add(selection.nbytes());
    }
    stage_chunks(&arrays, worth(threads, count, bytes), transaction, workspace, interrupt)
}

/// An array of which chunks are staged: its keys, its folder, the chunks, and what became of them.
struct Staging<'a> {
    selection: &'a Selection<'a, SourceMemory<'a>>,
    keys: &'a Keys,
    root: Arc<Root>,
    files: &'a Files<'a>,
    staged: Mutex<Vec<(usize, Staged)>>,
    failures: Failures,
}

impl Staging<'_> {
    /// Encode and write a chunk; return whether the call goes on.
    fn stage(&self, number: usize, transaction: &str, workspace: &mut Workspace) -> Outcome<bool> {
        let part = self.selection.chunk(number);
        let coords = part.coords();
        let write = |bytes: &[u8]| {
            let key = self.keys.staged_key(&coords, transaction);
            self.root.write_new(&key, bytes)?;
            Ok(Image { key, size: bytes.len(), checksum: libdeflater::crc32(bytes) })
        };
        let key = self.keys.key(&coords);
        let old = || Ok(self.root.extent(&key)?.map_or(Chunk::Absent, Chunk::Stored));
        match encode_chunk(self.selection, &part, old, workspace, write) {
            Ok(image) => self.staged.lock().expect("no thread panics").push((number, Staged { coords, image })),
            Err(error) if error.kind == Kind::Argument => return Err(error),
            Err(error) => return Ok(self.failures.note(Failure { coords, key, error })),
        }
        Ok(true)
    }
}

fn stage_chunks(
    arrays: &[(&Selection<'_, SourceMemory<'_>>, Files<'_>)],
    threads: usize,
    transaction: &str,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Vec<Outcomes>> {
    let mut all: Vec<Staging<'_>> = Vec::with_capacity(arrays.len());
    for (selection, files) in arrays {
        let Addresses::Keyed(keys) = &*selection.layout.addresses else {
            return Err(Error::new(Kind::Argument, "these chunks have no files of their own"));
        };
        // The columns of a table lie in one folder, which is opened once.
        let root = match all.iter().find(|other| other.keys.root == keys.root) {
            Some(other) => Arc::clone(&other.root),
            None => Arc::new(keys.create()?),
        };
        all.push(Staging { selection, keys, root, files, staged: Mutex::default(), failures: Failures::default() });
    }
    let next = AtomicUsize::new(0);
    let work = |workspace: &mut Workspace| {
        let mut index = next.fetch_add(1, Ordering::Relaxed);
        for array in &all {
            if let Some(number) = array.files.number(index) {
                return array.stage(number, transaction, workspace);
            }
            index -= array.files.len();
        }
        Ok(false)
    };
    let outcome = interrupt.share(threads, workspace, work);
    let mut found = Vec::with_capacity(all.len());
    let mut failed = None;
    for Staging { root, staged, failures, .. } in all {
        match in_order(&root, staged.into_inner().expect("no thread panics"), outcome.clone()) {
            Ok(staged) => found.push((staged, failures.into_inner())),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(found), Err)
}

/// What `encode` has kept of a chunk; `None` when it holds nothing but the fill value.
pub struct Encoded<T> {
    pub coords: Vec<usize>,
    pub kept: Option<T>,
}

/// Encode the chunks that the selection touches, those of `files`, and hand their bytes to `keep`. `held` has
/// what is stored now of those that change in part, where the caller hands that over.
pub fn encode<T: Send>(
    selection: &Selection<'_, SourceMemory<'_>>,
    files: &Files<'_>,
    held: Option<&Held<'_>>,
    keep: impl Fn(&[u8]) -> Outcome<T> + Sync,
    threads: usize,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<(Vec<Encoded<T>>, Vec<Failure>)> {
    let stored = Stored::open(selection.layout, held, false)?;
    let made = Mutex::new(Vec::new());
    let failures = Failures::default();
    let next = AtomicUsize::new(0);
    let grid = &selection.layout.grid;
    let work = |workspace: &mut Workspace| {
        let Some(number) = files.number(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(false);
        };
        let part = selection.chunk(number);
        let coords = part.coords();
        let key = stored.key(grid, &coords);
        let old = || stored.chunk(grid, &coords, &key);
        match encode_chunk(selection, &part, old, workspace, &keep) {
            Ok(kept) => push(&mut made.lock().expect("no thread panics"), (number, Encoded { coords, kept }))?,
            Err(error) if error.kind == Kind::Argument => return Err(error),
            Err(error) => return Ok(failures.note(Failure { coords, key, error })),
        }
        Ok(true)
    };
    let bytes = files.len().saturating_mul(grid.chunk_bytes);
    interrupt.share(selection.threads(threads, bytes).min(files.len()), workspace, work)?;
    let mut made = made.into_inner().expect("no thread panics");
    made.sort_unstable_by_key(|(number, _)| *number);
    Ok((made.into_iter().map(|(_, encoded)| encoded).collect(), failures.into_inner()))
}

/// A copy of bytes that the next chunk overwrites, in memory that is used again.
pub fn copied(bytes: &[u8]) -> Outcome<Vec<u8>> {
    let mut copy = SPARE.take();
    copy.clear();
    copy.try_reserve_exact(bytes.len()).map_err(|_| out_of_memory(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Encode one chunk and hand its bytes to `keep`; `None` when it holds nothing but the fill value.
/// `old` finds what is stored of it now, if that is needed.
pub fn encode_chunk<'f, T>(
    selection: &Selection<'_, SourceMemory<'_>>,
    part: &ChunkPart<'_, SourceMemory<'_>>,
    old: impl FnOnce() -> Outcome<Chunk<'f>>,
    workspace: &mut Workspace,
    keep: impl FnOnce(&[u8]) -> Outcome<T>,
) -> Outcome<Option<T>> {
    let source = part.source()?;
    let Layout { coding, grid, .. } = selection.layout;
    let mut whole = true;
    let mut padded = false;
    for (axis, part) in part.parts().iter().enumerate() {
        let chunks = grid.cut(axis);
        let length = chunks.length(part.chunk);
        let valid = length.min(grid.shape[axis] - chunks.start(part.chunk));
        whole &= selection.steps()[axis] == 1 && part.count == valid;
        padded |= valid < length;
    }
    if coding.framed {
        let number = part.parts()[0].chunk;
        return rows::encode(coding, grid, old, number, &source, whole, workspace, keep).map(Some);
    }
    if coding.slotted {
        let number = grid.number(&part.coords());
        if whole
            && !padded
            && let Some(recipe) = shuffled_in_place(coding.compression, grid.itemsize, &source)
            && !source.is_all(&grid.fill)
        {
            let Workspace { scratch, packer, framed: slot, .. } = &mut *workspace;
            let shuffle = |start: usize, planes: &mut [u8]| shuffle_runs(&source, start, planes);
            if encode::encode_shuffled(part.bytes(), recipe, packer, scratch, shuffle)?
                && slots::finish(grid, packer.bytes(), NewItems::as_slice(&source), number, slot)?
            {
                return keep(slot).map(Some);
            }
        }
        return slots::encode(coding, grid, old, number, &source, (whole, padded), workspace, keep);
    }
    let Workspace { scratch, chunk, packer, .. } = workspace;
    if whole
        && !padded
        && let Some(recipe) = shuffled_in_place(coding.compression, grid.itemsize, &source)
    {
        if source.is_all(&grid.fill) {
            return Ok(None);
        }
        let shuffle = |start: usize, planes: &mut [u8]| shuffle_runs(&source, start, planes);
        if encode::encode_shuffled(part.bytes(), recipe, packer, scratch, shuffle)? {
            return coding.finish(packer, keep).map(Some);
        }
    }
    if !whole || padded {
        return encode_over(
            selection.layout,
            part.bytes(),
            &source,
            || if whole { Ok(Chunk::Absent) } else { old() },
            workspace,
            keep,
        );
    }
    let chunk = grow(chunk, part.bytes())?;
    source.gather(chunk);
    if is_all(chunk, &grid.fill) {
        return Ok(None);
    }
    coding.encode(chunk, scratch, packer, keep).map(Some)
}

/// Encode a chunk of `bytes` bytes with new items over what is stored of it, which `old` finds.
pub fn encode_over<'f, T>(
    layout: &Layout,
    bytes: usize,
    source: &dyn NewItems,
    old: impl FnOnce() -> Outcome<Chunk<'f>>,
    workspace: &mut Workspace,
    keep: impl FnOnce(&[u8]) -> Outcome<T>,
) -> Outcome<Option<T>> {
    let Layout { coding, grid, .. } = layout;
    let Workspace { scratch, buffers, chunk, packer, .. } = workspace;
    let chunk = grow(chunk, bytes)?;
    match old()? {
        Chunk::Stored(extent) => {
            if coding.overwrite(&extent, source, &grid.fill, chunk, (scratch, buffers, packer))? {
                return coding.finish(packer, keep).map(Some);
            }
        }
        Chunk::Absent => {
            repeat(&grid.fill, 0, chunk);
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
    coding.encode(chunk, scratch, packer, keep).map(Some)
}

/// The recipe of chunks whose items can be shuffled in place, without gathering them first.
fn shuffled_in_place(compression: Compression, itemsize: usize, wanted: &Geometry) -> Option<encode::Recipe> {
    let (items, dense) = wanted.run_shape();
    match compression {
        Compression::Blosc(recipe)
            if recipe.filter == Filter::Shuffle
                && recipe.typesize == itemsize
                && (2..=255).contains(&recipe.typesize)
                && dense
                && items >= LONG_RUN =>
        {
            Some(recipe)
        }
        _ => None,
    }
}

/// The staged files in order. All are removed when the call failed: no caller knows their names.
pub fn in_order(root: &Root, mut staged: Vec<(usize, Staged)>, outcome: Outcome<()>) -> Outcome<Vec<Staged>> {
    if let Err(error) = outcome {
        for (_, Staged { image, .. }) in staged {
            image.inspect(|image| root.remove(&image.key));
        }
        return Err(error);
    }
    staged.sort_unstable_by_key(|(number, _)| *number);
    Ok(staged.into_iter().map(|(_, staged)| staged).collect())
}

/// Shuffle the items of a whole chunk, from byte `start` of the chunk on, as many as fill `planes`.
fn shuffle_runs(source: &Source<'_>, start: usize, planes: &mut [u8]) {
    let size = source.itemsize();
    let (first, count) = (start / size, planes.len() / size);
    source.for_each_dense_run(first..first + count, |start, items| {
        filters::shuffle(items, size, &mut planes[start - first..], count);
    });
}

/// The CRC-32 of some pieces, one behind the other.
pub fn checksum<P: AsRef<[u8]>>(pieces: &[P]) -> u32 {
    let mut sum = libdeflater::Crc::new();
    for piece in pieces {
        sum.update(piece.as_ref());
    }
    sum.sum()
}

/// Whether `chunk` holds only copies of `item`, byte for byte.
pub fn is_all(chunk: &[u8], item: &[u8]) -> bool {
    chunk.starts_with(item) && chunk[item.len()..] == chunk[..chunk.len() - item.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::scatter::Axis;
    use crate::chunk::codecs::streams::Codec;

    #[test]
    fn long_runs_of_items_that_the_recipe_shuffles_are_shuffled_in_place() {
        let filter = Filter::Shuffle;
        let recipe = encode::Recipe { codec: Codec::Lz4, level: 5, filter, typesize: 8, blocksize: 0, gain: 0 };
        let wanted = |count: usize, itemsize: usize| {
            let axis = Axis { size: count, start: 0, count, step: 1, stride: itemsize as isize };
            Geometry::new(&[axis], itemsize, 0, count * itemsize).unwrap()
        };
        let finds = |recipe: encode::Recipe, count: usize, itemsize: usize| {
            shuffled_in_place(Compression::Blosc(recipe), itemsize, &wanted(count, itemsize)).is_some()
        };
        assert!(finds(recipe, LONG_RUN, 8) && !finds(recipe, LONG_RUN - 1, 8));
        assert!(!finds(recipe, LONG_RUN, 4) && !finds(encode::Recipe { typesize: 4, ..recipe }, LONG_RUN, 8));
        assert!(!finds(encode::Recipe { typesize: 1, ..recipe }, LONG_RUN, 1));
        assert!(!finds(encode::Recipe { filter: Filter::Bitshuffle, ..recipe }, LONG_RUN, 8));
        assert!(shuffled_in_place(Compression::Raw, 8, &wanted(LONG_RUN, 8)).is_none());
    }
}
