//! New images of an array's chunks, made from a box of memory: what a partly covered chunk
//! held before is read, the rest gathered, all encoded, and written where nobody looks yet.

use crate::array::coding::Coding;
use crate::array::layout::{Failure, Job, Layout, Part, Workspace};
use crate::array::pieces::Prefetch;
use crate::array::scatter::Region;
use crate::chunk::encode;
use crate::chunk::filters;
use crate::chunk::header::Filter;
use crate::chunk::scratch::grow;
use crate::error::{Error, Kind, Outcome};
use crate::files::{Extent, Root};
use crate::interrupt::Interrupt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs of so many items are worth a vector step each.
const LONG_RUN: usize = 32;

/// A chunk on its way into the store: `None` when it holds nothing but fill.
pub struct Staged {
    pub coords: Vec<usize>,
    pub image: Option<Image>,
}

/// A new file that waits to be published, and what it holds.
pub struct Image {
    pub key: String,
    pub size: usize,
    /// The CRC-32 of zlib, which journals use.
    pub checksum: u32,
}

impl Job<'_> {
    /// Encode rows `rows` from the memory, reading what partly covered chunks held before,
    /// each into a new file of `transaction`.
    pub fn stage(
        &self,
        rows: std::ops::Range<usize>,
        threads: usize,
        transaction: &str,
        workspace: &mut Workspace,
        interrupt: &Interrupt,
    ) -> Outcome<(Vec<Staged>, Vec<Failure>)> {
        let root = self.layout.folder()?;
        if let Some(sharding) = &self.layout.sharding {
            return self.stage_shards(sharding, &root, rows, threads, transaction, workspace, interrupt);
        }
        let staged = Mutex::new(Vec::new());
        let failures = Mutex::new(Vec::new());
        let next = AtomicUsize::new(rows.start);
        let work = |workspace: &mut Workspace| {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= rows.end {
                return Ok(false);
            }
            let parts = self.row(row);
            let coords: Vec<usize> = parts.iter().map(|part| part.chunk).collect();
            let write = |bytes: &[u8]| {
                let key = self.layout.staged_key(&coords, transaction);
                root.write_new(&key, bytes)?;
                Ok(Image { key, size: bytes.len(), checksum: libdeflater::crc32(bytes) })
            };
            let key = self.layout.key(&coords);
            match self.encode_row(|| root.extent(&key), &coords, &parts, workspace, write) {
                Ok(image) => staged.lock().expect("no thread panics").push((row, Staged { coords, image })),
                Err(error) if error.kind == Kind::Argument => return Err(error),
                Err(error) => failures.lock().expect("no thread panics").push(Failure { coords, key, error }),
            }
            Ok(true)
        };
        let bytes = rows.len().saturating_mul(self.layout.chunk_bytes);
        let outcome = interrupt.share(self.threads(threads, bytes).min(rows.len()), workspace, work);
        let staged = in_order(&root, staged.into_inner().expect("no thread panics"), outcome)?;
        Ok((staged, failures.into_inner().expect("no thread panics")))
    }

    /// Where in the memory a whole chunk lies just as it is stored: its offset, and its bytes.
    pub fn find_plain(&self, parts: &[Part]) -> Outcome<Option<(isize, usize)>> {
        let Layout { chain, framing, chunk_bytes, .. } = self.layout;
        if !matches!(chain.coding, Coding::Raw) || chain.sealed || framing.is_some() {
            return Ok(None);
        }
        Ok(self.region(parts)?.one_place().filter(|(_, bytes)| bytes == chunk_bytes))
    }

    /// Encode one chunk; `old` finds what is stored of it now, if that is needed.
    pub fn encode_row<'f, T>(
        &self,
        old: impl FnOnce() -> Outcome<Option<Extent<'f>>>,
        coords: &[usize],
        parts: &[Part],
        workspace: &mut Workspace,
        keep: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<Option<T>> {
        let region = self.region(parts)?;
        let Layout { shape, chunk, fill, chunk_bytes, .. } = self.layout;
        let mut whole = true;
        let mut padded = false;
        for (axis, part) in parts.iter().enumerate() {
            let valid = chunk[axis].min(shape[axis] - coords[axis] * chunk[axis]);
            whole &= self.steps[axis] == 1 && part.count == valid;
            padded |= valid < chunk[axis];
        }
        if self.layout.framing.is_some() {
            return self.layout.encode_rows(old, coords[0], &region, whole, workspace, keep).map(Some);
        }
        let Workspace { scratch, buffers, chunk, packer, .. } = workspace;
        if whole
            && !padded
            && let Some(recipe) = self.layout.shuffling(&region)
        {
            if region.is_all(fill) {
                return Ok(None);
            }
            let shuffle = |start: usize, planes: &mut [u8]| shuffle_runs(&region, start, planes);
            if encode::encode_shuffled(*chunk_bytes, recipe, packer, scratch, shuffle)? {
                return self.layout.chain.seal(packer, keep).map(Some);
            }
        }
        let chunk = grow(chunk, *chunk_bytes)?;
        if !whole {
            match old()? {
                Some(extent) => self.layout.chain.read_whole(&extent, chunk, scratch, buffers)?,
                None => spread(chunk, fill),
            }
        } else if padded {
            spread(chunk, fill);
        }
        region.gather(chunk);
        if is_all(chunk, fill) {
            return Ok(None);
        }
        self.layout.chain.encode(chunk, scratch, packer, keep).map(Some)
    }
}

impl Layout {
    fn folder(&self) -> Outcome<Root> {
        if let Some(root) = Root::open(&self.root)? {
            return Ok(root);
        }
        // A new array has no folder before its first chunk.
        Root::make(&self.root)?;
        match Root::open(&self.root)? {
            Some(root) => Ok(root),
            None => Err(Error::new(Kind::Argument, format!("{} is no folder", self.root.display()))),
        }
    }

    /// The recipe of chunks whose items can be shuffled where they lie, without copying them
    /// together first.
    fn shuffling(&self, region: &Region) -> Option<encode::Recipe> {
        let (items, dense) = region.run_shape();
        match self.chain.coding {
            Coding::Blosc(recipe)
                if recipe.filter == Filter::Shuffle
                    && recipe.typesize == self.itemsize
                    && (2..=255).contains(&recipe.typesize)
                    && dense
                    && items >= LONG_RUN =>
            {
                Some(recipe)
            }
            _ => None,
        }
    }

    /// The key under which the next image of a chunk waits to be published: in the folder of
    /// the chunk, under a name that no chunk has.
    pub fn staged_key(&self, coords: &[usize], transaction: &str) -> String {
        let key = self.key(coords);
        let (folder, name) = key.rsplit_once('/').map_or(("", &*key), |(folder, name)| (folder, name));
        let slash = if folder.is_empty() { "" } else { "/" };
        format!("{folder}{slash}.g-{transaction}-{name}")
    }
}

/// What was staged, by number; nothing of it when the call failed, since nobody else knows the
/// names of the files.
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

/// Shuffle the items of a box that is a whole chunk, from byte `start` of the chunk on, as
/// many as fill `planes`.
fn shuffle_runs(region: &Region, start: usize, planes: &mut [u8]) {
    let size = region.itemsize();
    let (first, count) = (start / size, planes.len() / size);
    let mut prefetch = Prefetch::default();
    region.for_each_run(first..first + count, |run| {
        prefetch.expect(region, &run);
        let items = region.piece(run.offset, run.items * size);
        filters::shuffle(items, size, &mut planes[run.start - first..], count);
    });
}

/// Fill `chunk` with copies of `item`.
pub fn spread(chunk: &mut [u8], item: &[u8]) {
    if item.iter().all(|byte| *byte == item[0]) {
        chunk.fill(item[0]);
        return;
    }
    for place in chunk.chunks_exact_mut(item.len()) {
        place.copy_from_slice(item);
    }
}

/// Whether `chunk` is nothing but copies of `item`, byte for byte.
pub fn is_all(chunk: &[u8], item: &[u8]) -> bool {
    chunk.starts_with(item) && chunk[item.len()..] == chunk[..chunk.len() - item.len()]
}
