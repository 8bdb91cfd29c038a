//! Packs of variable-length items, for Python.

use super::call::{deliver, detached};
use super::chunk::parse_filter;
use crate::checksum::Checksum;
use crate::chunk::codecs::streams;
use crate::chunk::encode::Recipe;
use crate::chunk::header::Filter;
use crate::items::{LENGTH_BYTES, PackRecipe, Packs, encode_packs as encode};
use crate::python::buffers::{self, Input};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Decode packs of so many items: the lengths into `lengths`, the bytes of all items as new `bytes`.
#[pyfunction]
pub fn decode_packs<'py>(
    py: Python<'py>,
    packs: Vec<Bound<'py, PyAny>>,
    counts: Vec<usize>,
    checksum: &str,
    lengths: &Bound<'py, PyAny>,
    most: usize,
    threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let inputs = packs.iter().map(Input::of).collect::<PyResult<Vec<_>>>()?;
    let stored: Vec<&[u8]> = inputs.iter().map(Input::bytes).collect();
    let found = Packs::find(&stored, &counts, Checksum::parse(checksum)?, most)?;
    let buffer = PyUntypedBuffer::get(lengths)?;
    let lengths = buffers::writable(&buffer)?;
    let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    if packs.len() != counts.len() || total.and_then(|total| total.checked_mul(LENGTH_BYTES)) != Some(lengths.len()) {
        return Err(PyValueError::new_err("as many counts as packs, and room for all lengths are needed"));
    }
    let lengths = lengths.into_slice();
    deliver(py, None, found.data_bytes, |data, _, interrupt| found.decode(lengths, data, threads, interrupt))
}

/// Encode packs of items, given the lengths (u32) and the bytes of all of them. Packs end at the items
/// `cuts`, and at the bytes `ends`.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn encode_packs<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    data: &Bound<'py, PyAny>,
    cuts: Vec<usize>,
    ends: Vec<usize>,
    coding: (&str, u8, &str, usize, usize),
    checksum: &str,
    threads: usize,
) -> PyResult<Vec<Py<PyBytes>>> {
    let (codec, level, filter, typesize, blocksize) = coding;
    let codec = streams::Codec::parse(codec)?;
    let data_recipe = Recipe { codec, level, filter: parse_filter(filter)?, typesize, blocksize, gain: 0 };
    let lengths_recipe = Recipe { filter: Filter::Shuffle, typesize: LENGTH_BYTES, blocksize: 0, ..data_recipe };
    let recipe = PackRecipe { lengths: lengths_recipe, data: data_recipe, checksum: Checksum::parse(checksum)? };
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
