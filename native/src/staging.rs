//! New images of an array's chunks, made from a box of memory: what a partly covered chunk
//! held before is read, the rest gathered, all encoded, and written where nobody looks yet.

use crate::decode::Decoder;
use crate::encode::{self, Packer};
use crate::fault::{Kind, Outcome};
use crate::files::{self, Buffers, Extent, Root};
use crate::header::HEADER_BYTES;
use crate::layout::{Coding, Job, Layout, Part, Tools, Trouble, check_raw, read_stream};
use crate::scratch::{Scratch, room};
use crate::watch::Watch;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chunk on its way into the store: what was done with its bytes, `None` when it holds
/// nothing but fill.
pub struct Encoded<T> {
    pub coords: Vec<usize>,
    pub kept: Option<T>,
}

impl Job<'_> {
    /// Encode rows `rows` from the memory, reading what partly covered chunks held before,
    /// and hand each chunk's coordinates and bytes to `keep`.
    pub fn encode<T: Send>(
        &self,
        rows: std::ops::Range<usize>,
        threads: usize,
        tools: &mut Tools,
        watch: &Watch,
        keep: impl Fn(Option<&Root>, &[usize], &[u8]) -> Outcome<T> + Sync,
    ) -> Outcome<(Vec<Encoded<T>>, Vec<Trouble>)> {
        let root = Root::open(&self.layout.root)?;
        let encoded = Mutex::new(Vec::new());
        let troubles = Mutex::new(Vec::new());
        let next = AtomicUsize::new(rows.start);
        let work = |tools: &mut Tools| {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= rows.end {
                return Ok(false);
            }
            let parts = self.row(row);
            let coords: Vec<usize> = parts.iter().map(|part| part.chunk).collect();
            let kept =
                self.encode_row(root.as_ref(), &coords, &parts, tools, |bytes| keep(root.as_ref(), &coords, bytes));
            match kept {
                Ok(kept) => encoded.lock().expect("no thread panics").push((row, Encoded { coords, kept })),
                Err(fault) if fault.kind == Kind::Argument => return Err(fault),
                Err(fault) => {
                    let key = self.layout.key(&coords);
                    troubles.lock().expect("no thread panics").push(Trouble { coords, key, fault });
                }
            }
            Ok(true)
        };
        let bytes = rows.len().saturating_mul(self.layout.chunk_bytes);
        watch.share(self.threads(threads, bytes).min(rows.len()), tools, work)?;
        let mut encoded = encoded.into_inner().expect("no thread panics");
        encoded.sort_unstable_by_key(|(row, _)| *row);
        let encoded = encoded.into_iter().map(|(_, encoded)| encoded).collect();
        Ok((encoded, troubles.into_inner().expect("no thread panics")))
    }

    fn encode_row<T>(
        &self,
        root: Option<&Root>,
        coords: &[usize],
        parts: &[Part],
        tools: &mut Tools,
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
        let Tools { scratch, buffers, chunk, packer } = tools;
        let chunk = room(chunk, *chunk_bytes)?;
        if !whole {
            let key = self.layout.key(coords);
            let extent = match root {
                Some(root) => root.extent(&key)?,
                None => None,
            };
            match extent {
                Some(extent) => self.layout.decode_whole(&extent, chunk, scratch, buffers)?,
                None => spread(chunk, fill),
            }
        } else if padded {
            spread(chunk, fill);
        }
        region.gather(chunk);
        if is_all(chunk, fill) {
            return Ok(None);
        }
        self.layout.encode_chunk(chunk, scratch, packer, keep).map(Some)
    }
}

impl Layout {
    fn decode_whole(
        &self,
        extent: &Extent<'_>,
        out: &mut [u8],
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Outcome<()> {
        match self.coding {
            Coding::Blosc(_) => {
                let bytes = extent.all(buffers)?;
                let header = files::due(bytes, bytes.len(), out.len())?;
                let decoder = Decoder::new(&header, &bytes[HEADER_BYTES..header.data_start()]);
                decoder.decode_whole(bytes, out, scratch, 1, &Watch::unasked())
            }
            Coding::Raw => {
                check_raw(extent, out.len())?;
                extent.read(0, out)
            }
            Coding::Stream(whole) => read_stream(extent, whole, out, &mut scratch.codecs, buffers),
        }
    }

    fn encode_chunk<T>(
        &self,
        chunk: &[u8],
        scratch: &mut Scratch,
        packer: &mut Packer,
        keep: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<T> {
        match self.coding {
            Coding::Raw => keep(chunk),
            Coding::Blosc(recipe) => {
                encode::encode(chunk, recipe, packer, scratch, 1, &Watch::unasked())?;
                keep(packer.bytes())
            }
            Coding::Stream(whole) => keep(&scratch.codecs.encode_whole(whole, chunk)?),
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

/// Fill `chunk` with copies of `item`.
fn spread(chunk: &mut [u8], item: &[u8]) {
    if item.iter().all(|byte| *byte == item[0]) {
        chunk.fill(item[0]);
        return;
    }
    for place in chunk.chunks_exact_mut(item.len()) {
        place.copy_from_slice(item);
    }
}

/// Whether `chunk` is nothing but copies of `item`, byte for byte.
fn is_all(chunk: &[u8], item: &[u8]) -> bool {
    chunk.starts_with(item) && chunk[item.len()..] == chunk[..chunk.len() - item.len()]
}
