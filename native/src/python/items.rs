//! Packs of variable-length items, for Python.

use super::call::{deliver, detached};
use super::chunk::parse_filter;
use crate::array::trailer::Stated;
use crate::checksum::Checksum;
use crate::chunk::codecs::streams;
use crate::chunk::encode::Recipe;
use crate::chunk::header::Filter;
use crate::files::Root;
use crate::files::small_files::Piece;
use crate::items::framed;
use crate::items::search::Test;
use crate::items::source::{Source, Sources};
use crate::items::{Closing, Guard, Items, LENGTH_BYTES, OFFSET_BYTES, PackRecipe, Packs, encode_packs as encode};
use crate::python::buffers::{self, Input};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// What the trailers of a pack state.
pub type NumberAndIdentity = (u64, Option<u64>);

/// What stands in front of each pack, whether nothing may stand behind it, and what the trailers of each
/// pack state, where chunks have trailers and no digests.
pub type Trailers<'a> = (&'a [u8], bool, Vec<NumberAndIdentity>);

fn parse_guard<'a>(checksum: &str, trailers: Option<Trailers<'a>>, packs: usize) -> PyResult<(Guard<'a>, Vec<Stated>)> {
    let Some((head, exact, stated)) = trailers else {
        return Ok((Guard::Digest(Checksum::parse(checksum)?), Vec::new()));
    };
    if stated.len() != packs {
        return Err(PyValueError::new_err("what trailers state is needed for each pack"));
    }
    let stated = stated.into_iter().map(|(number, identity)| Stated { number, identity }).collect();
    Ok((Guard::Trailer { head, exact }, stated))
}

/// Decode packs of so many items: where each item begins, and the end, into `offsets` (i64), whether it
/// exists into `validity`. Return the bytes of all items as new `bytes`, and the number of nulls. Items
/// that are `text` are checked.
#[pyfunction]
#[pyo3(signature = (packs, counts, checksum, trailers, text, offsets, validity, most, threads))]
#[expect(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn decode_packs<'py>(
    py: Python<'py>,
    packs: Vec<Bound<'py, PyAny>>,
    counts: Vec<usize>,
    checksum: &str,
    trailers: Option<Trailers<'_>>,
    text: bool,
    offsets: &Bound<'py, PyAny>,
    validity: &Bound<'py, PyAny>,
    most: usize,
    threads: usize,
) -> PyResult<(Bound<'py, PyAny>, usize)> {
    let inputs = packs.iter().map(Input::of).collect::<PyResult<Vec<_>>>()?;
    let stored: Vec<&[u8]> = inputs.iter().map(Input::bytes).collect();
    let (guard, stated) = parse_guard(checksum, trailers, packs.len())?;
    let (offsets, validity) = (PyUntypedBuffer::get(offsets)?, PyUntypedBuffer::get(validity)?);
    let (offsets, validity) = (buffers::writable(&offsets)?, buffers::writable(&validity)?);
    let total = sum(&counts);
    let due = total.and_then(|total| total.checked_add(1)).and_then(|ends| ends.checked_mul(OFFSET_BYTES));
    if packs.len() != counts.len() || due != Some(offsets.len()) || total != Some(validity.len()) {
        return Err(PyValueError::new_err("as many counts as packs, and room for all items are needed"));
    }
    let found = Packs::find(&stored, &counts, guard, most)?;
    let (offsets, validity) = (offsets.into_slice(), validity.into_slice());
    let mut nulls = 0;
    let data = deliver(py, None, found.data_bytes, |data, _, interrupt| {
        nulls = found.decode(&stated, text, Items { offsets, validity, data }, threads, interrupt)?;
        Ok(())
    })?;
    Ok((data, nulls))
}

pub fn sum(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))
}

/// Packs in memory, as `bytes`, or in files: a key, a start, and a length.
#[derive(FromPyObject)]
pub enum PackSource<'py> {
    Held(Bound<'py, PyBytes>),
    File(Piece),
}

impl PackSource<'_> {
    fn source(&self) -> Source<'_> {
        match self {
            Self::Held(bytes) => Source::Held(bytes.as_bytes()),
            Self::File(piece) => Source::File(piece.clone()),
        }
    }
}

/// Packs, the folder of those that are files, the number of items of each pack, the kind of checksum, the
/// trailers, and the most bytes of a pack.
pub type PackSet<'py, 'a> = (Vec<PackSource<'py>>, Option<PathBuf>, Vec<usize>, String, Option<Trailers<'a>>, usize);

pub fn parse_sources<'a>(set: &'a PackSet<'_, 'a>) -> PyResult<Sources<'a>> {
    let (packs, root, counts, checksum, trailers, most) = set;
    if packs.len() != counts.len() {
        return Err(PyValueError::new_err("as many counts as packs are needed"));
    }
    let (guard, stated) = parse_guard(checksum, trailers.clone(), packs.len())?;
    let root = root.as_ref().map_or(Ok(None), |root| Root::open(root))?;
    let packs = packs.iter().map(PackSource::source).collect();
    Ok(Sources { root, packs, counts: counts.clone(), guard, stated, most: *most })
}

/// Write to `marks`, a byte for each item of packs, whether it passes all tests. A test is its name and
/// the values that it compares with. Items that are `text` are checked.
#[pyfunction]
pub fn mark_packs<'py>(
    py: Python<'py>,
    packs: PackSet<'py, '_>,
    tests: Vec<(String, Vec<Vec<u8>>)>,
    text: bool,
    marks: &Bound<'py, PyAny>,
    threads: usize,
) -> PyResult<()> {
    let sources = parse_sources(&packs)?;
    let tests = tests.into_iter().map(|(name, values)| Test::parse(&name, values)).collect::<Result<Vec<_>, _>>()?;
    let marks = PyUntypedBuffer::get(marks)?;
    let marks = buffers::writable(&marks)?;
    if sum(&sources.counts) != Some(marks.len()) {
        return Err(PyValueError::new_err("a mark for each item is needed"));
    }
    let marks = marks.into_slice();
    detached(py, |_, interrupt| sources.mark(&tests, text, marks, threads, interrupt))
}

/// Return the lengths (u32) and the bytes of items, which `rows` (u64) names by ascending numbers within
/// their pack; `ends` says where the rows of each pack end. Items that are `text` are checked.
#[pyfunction]
pub fn take_packs<'py>(
    py: Python<'py>,
    packs: PackSet<'py, '_>,
    rows: PyBuffer<u64>,
    ends: Vec<usize>,
    text: bool,
    threads: usize,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let sources = parse_sources(&packs)?;
    let rows = rows.to_vec(py)?;
    let mut start = 0;
    let mut parts = Vec::with_capacity(ends.len());
    for end in ends {
        let Some(part) = rows.get(start..end) else {
            return Err(PyValueError::new_err("ends must ascend, and lie inside"));
        };
        parts.push(part);
        start = end;
    }
    if parts.len() != sources.packs.len() {
        return Err(PyValueError::new_err("rows of each pack are needed"));
    }
    let taken = detached(py, |_, interrupt| sources.take(&parts, text, threads, interrupt))?;
    let lengths: Vec<u8> =
        taken.iter().flat_map(|each| &each.lengths).flat_map(|length| length.to_le_bytes()).collect();
    let total = taken.iter().map(|each| each.data.len()).sum();
    let data = buffers::new_bytes(py, total, |out| {
        let mut out = out.into_slice();
        for each in &taken {
            out.split_off_mut(..each.data.len()).expect("room for all bytes").copy_from_slice(&each.data);
        }
        Ok(())
    })?;
    Ok((PyBytes::new(py, &lengths), data))
}

/// Encode packs of items, given the lengths (u32) and the bytes of all of them. Packs end at the items
/// `cuts`, and at the bytes `ends`. `trailers` are what stands in front of each pack, the number of the
/// first one, the identity of the column, and whether there are zone maps, where chunks have trailers.
#[pyfunction]
#[pyo3(signature = (lengths, data, cuts, ends, coding, checksum, threads, trailers=None))]
#[expect(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn encode_packs<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    data: &Bound<'py, PyAny>,
    cuts: Vec<usize>,
    ends: Vec<usize>,
    coding: (&str, u8, &str, usize, usize),
    checksum: &str,
    threads: usize,
    trailers: Option<(&[u8], u64, Option<u64>, bool)>,
) -> PyResult<Vec<Py<PyBytes>>> {
    let (codec, level, filter, typesize, blocksize) = coding;
    let codec = streams::Codec::parse(codec)?;
    let data_recipe = Recipe { codec, level, filter: parse_filter(filter)?, typesize, blocksize, gain: 0 };
    let lengths_recipe = Recipe { filter: Filter::Shuffle, typesize: LENGTH_BYTES, blocksize: 0, ..data_recipe };
    let closing = match trailers {
        None => Closing::Digest(Checksum::parse(checksum)?),
        Some((head, number, identity, zones)) => Closing::Trailer { head, first: Stated { number, identity }, zones },
    };
    let recipe = PackRecipe { lengths: lengths_recipe, data: data_recipe, closing };
    let (lengths, data) = (PyUntypedBuffer::get(lengths)?, PyUntypedBuffer::get(data)?);
    let (lengths, data) = (buffers::contiguous(&lengths)?, buffers::contiguous(&data)?);
    let (mut item, mut byte) = (0, 0);
    let mut parts = Vec::with_capacity(cuts.len());
    for (cut, end) in cuts.iter().zip(&ends) {
        let stop = cut.checked_mul(LENGTH_BYTES).unwrap_or(usize::MAX);
        let (Some(own), Some(bytes)) = (lengths.get(item..stop), data.get(byte..*end)) else {
            return Err(PyValueError::new_err("cuts and ends must ascend, and lie inside"));
        };
        parts.push((own, bytes));
        (item, byte) = (stop, *end);
    }
    let images = detached(py, |_, interrupt| encode(&parts, &recipe, threads, interrupt))?;
    Ok(images.iter().map(|image| PyBytes::new(py, image).unbind()).collect())
}

/// Return the offsets (i64) and the bytes of items that lie in a row, each behind its length, behind their
/// count; `None` where anything is wrong.
#[pyfunction]
pub fn split_items<'py>(
    py: Python<'py>,
    framed: &Bound<'py, PyAny>,
    count: usize,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
    let framed = Input::of(framed)?;
    let bytes = framed.bytes();
    let found = py.detach(|| framed::split(bytes, count));
    Ok(found.map(|(offsets, items)| (PyBytes::new(py, &offsets), PyBytes::new(py, &items))))
}

/// Return items, which lie between offsets (i64), in a row and behind their lengths; `None` where an offset
/// is wrong.
#[pyfunction]
pub fn join_items<'py>(
    py: Python<'py>,
    offsets: &Bound<'py, PyAny>,
    items: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (offsets, items) = (Input::of(offsets)?, Input::of(items)?);
    let (ends, _) = offsets.bytes().as_chunks::<OFFSET_BYTES>();
    let bytes = items.bytes();
    Ok(py.detach(|| framed::join(ends, bytes)).map(|made| PyBytes::new(py, &made)))
}
