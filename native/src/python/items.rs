//! Packs of variable-length items, for Python.

use super::call::{deliver, detached};
use super::chunk::parse_filter;
use crate::array::trailer::Stated;
use crate::checksum::Checksum;
use crate::chunk::codecs::streams;
use crate::chunk::encode::Recipe;
use crate::chunk::header::Filter;
use crate::items::{Closing, Guard, LENGTH_BYTES, PackRecipe, Packs, encode_packs as encode};
use crate::python::buffers::{self, Input};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What the trailers of a pack state.
type NumberAndIdentity = (u64, Option<u64>);

/// Decode packs of so many items: the lengths into `lengths`, the bytes of all items as new `bytes`.
/// `trailers` are what stands in front of each pack, whether nothing may stand behind it, and what the
/// trailers of each pack state, where its chunks have trailers and no digests.
#[pyfunction]
#[pyo3(signature = (packs, counts, checksum, lengths, most, threads, trailers=None))]
#[expect(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn decode_packs<'py>(
    py: Python<'py>,
    packs: Vec<Bound<'py, PyAny>>,
    counts: Vec<usize>,
    checksum: &str,
    lengths: &Bound<'py, PyAny>,
    most: usize,
    threads: usize,
    trailers: Option<(&[u8], bool, Vec<NumberAndIdentity>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let inputs = packs.iter().map(Input::of).collect::<PyResult<Vec<_>>>()?;
    let stored: Vec<&[u8]> = inputs.iter().map(Input::bytes).collect();
    let (guard, stated) = match trailers {
        None => (Guard::Digest(Checksum::parse(checksum)?), Vec::new()),
        Some((head, exact, stated)) => {
            if stated.len() != packs.len() {
                return Err(PyValueError::new_err("what trailers state is needed for each pack"));
            }
            (Guard::Trailer { head, exact }, stated)
        }
    };
    let stated: Vec<Stated> = stated.into_iter().map(|(number, identity)| Stated { number, identity }).collect();
    let found = Packs::find(&stored, &counts, guard, most)?;
    let buffer = PyUntypedBuffer::get(lengths)?;
    let lengths = buffers::writable(&buffer)?;
    let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    if packs.len() != counts.len() || total.and_then(|total| total.checked_mul(LENGTH_BYTES)) != Some(lengths.len()) {
        return Err(PyValueError::new_err("as many counts as packs, and room for all lengths are needed"));
    }
    let lengths = lengths.into_slice();
    deliver(py, None, found.data_bytes, |data, _, interrupt| found.decode(&stated, lengths, data, threads, interrupt))
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
