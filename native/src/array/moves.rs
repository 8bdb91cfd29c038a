//! Encoded chunks of one array as files of another that is cut and coded alike, but for checksums and
//! trailers. Every checksum is compared, and a chunk that has none is decoded to check it; nothing is
//! encoded.

use crate::array::addresses::{Addresses, Keys};
use crate::array::chunk_file;
use crate::array::grid::Grid;
use crate::array::layout::{Failure, Failures, Layout};
use crate::array::selection::worth;
use crate::array::staging::{Image, Outcomes, Staged, checksum, in_order};
use crate::array::stored::{Chunk, Stored};
use crate::array::workspace::Workspace;
use crate::array::{rows, slots};
use crate::error::{Error, Kind, Outcome};
use crate::files::{Extent, Root};
use crate::interrupt::Interrupt;
use crate::memory::grow;
use std::io::IoSlice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stage the chunks `numbers` of `source` as files of `target`. There is no image of a chunk that is not
/// stored, or that has another size than chunks of `target`.
pub fn stage(
    source: &Layout,
    target: &Layout,
    numbers: &[usize],
    threads: usize,
    transaction: &str,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Outcomes> {
    let counts = counts_of(&target.grid);
    let wrong = |text: &str| Err(Error::new(Kind::Argument, text));
    let Addresses::Keyed(keys) = &*target.addresses else {
        return wrong("these chunks have no files of their own");
    };
    if target.coding.framed || target.coding.slotted || counts != counts_of(&source.grid) {
        return wrong("these arrays do not store chunks alike");
    }
    let total = counts.iter().fold(1_usize, |product, count| product.saturating_mul(*count));
    if numbers.iter().any(|number| *number >= total) {
        return wrong("there are fewer chunks");
    }
    let stored = Stored::open(source, None, false)?;
    let destination = Destination { layout: target, keys, root: keys.create()?, transaction };
    let (staged, failures, next) = (Mutex::new(Vec::new()), Failures::default(), AtomicUsize::new(0));
    let work = |workspace: &mut Workspace| {
        let place = next.fetch_add(1, Ordering::Relaxed);
        let Some(number) = numbers.get(place) else { return Ok(false) };
        let coords = coords_of(&counts, *number);
        let key = stored.key(&source.grid, &coords);
        let image = match stored.chunk(&source.grid, &coords, &key) {
            Ok(Chunk::Stored(extent)) => move_one(source, &extent, *number, &destination, &coords, workspace),
            Ok(Chunk::Absent | Chunk::Constant(_)) => Ok(None),
            Err(error) => Err(error),
        };
        match image {
            Ok(image) => staged.lock().expect("no thread panics").push((place, Staged { coords, image })),
            Err(error) if error.kind == Kind::Argument => return Err(error),
            Err(error) => return Ok(failures.note(Failure { coords, key, error })),
        }
        Ok(true)
    };
    let bytes = numbers.len().saturating_mul(target.grid.chunk_bytes);
    let outcome = interrupt.share(worth(threads, numbers.len(), bytes), workspace, work);
    let staged = in_order(&destination.root, staged.into_inner().expect("no thread panics"), outcome)?;
    Ok((staged, failures.into_inner()))
}

/// The array that gets chunks, and the transaction that stages them.
struct Destination<'a> {
    layout: &'a Layout,
    keys: &'a Keys,
    root: Root,
    transaction: &'a str,
}

impl Destination<'_> {
    /// Write a chunk, without its checksum, as the file of its coordinates.
    fn write(&self, coords: &[usize], chunk: &[u8]) -> Outcome<Image> {
        let key = self.keys.staged_key(coords, self.transaction);
        let digest = self.layout.coding.checksum.map(|checksum| checksum.digest(chunk));
        let pieces = [chunk, digest.as_ref().map_or(&[], |digest| digest.bytes())];
        self.root.write_pieces(&key, &mut pieces.map(IoSlice::new))?;
        Ok(Image { key, size: pieces[0].len() + pieces[1].len(), checksum: checksum(&pieces) })
    }
}

fn move_one(
    source: &Layout,
    extent: &Extent<'_>,
    number: usize,
    target: &Destination<'_>,
    coords: &[usize],
    workspace: &mut Workspace,
) -> Outcome<Option<Image>> {
    let Layout { coding, grid, .. } = source;
    let Workspace { scratch, buffers, chunk: plain, .. } = workspace;
    let expected = target.layout.grid.chunk_bytes;
    if coding.framed || coding.slotted {
        let due = if coding.framed { rows::expected(grid, number) } else { slots::expected(grid, number) };
        return chunk_file::open(extent, &due, (usize::MAX, None), buffers, |mut open| {
            if open.decoder.header.nbytes != expected {
                return Ok(None);
            }
            let checked = open.trailer().is_some();
            let chunk = open.all()?;
            if !checked {
                coding.decode_whole(chunk, grow(plain, expected)?, scratch)?;
            }
            target.write(coords, chunk).map(Some)
        });
    }
    let chunk = coding.read_checked(extent, expected, &mut buffers.body)?;
    if coding.checksum.is_none() && !coding.is_plain() {
        coding.decode_whole(chunk, grow(plain, expected)?, scratch)?;
    } else {
        coding.check_claim(chunk, expected)?;
    }
    target.write(coords, chunk).map(Some)
}

fn counts_of(grid: &Grid) -> Vec<usize> {
    grid.shape.iter().zip(&grid.chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect()
}

/// The coordinates of a chunk, of which numbers count along the last axis first.
fn coords_of(counts: &[usize], mut number: usize) -> Vec<usize> {
    let mut coords = vec![0; counts.len()];
    for (place, count) in coords.iter_mut().zip(counts).rev() {
        *place = number % count;
        number /= count;
    }
    coords
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_along_the_last_axis_first() {
        assert_eq!(coords_of(&[3, 2], 5), [2, 1]);
        assert_eq!(coords_of(&[3, 2], 2), [1, 0]);
        assert!(coords_of(&[], 0).is_empty());
    }
}
