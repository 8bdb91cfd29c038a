//! Single chunks in memory, for Python.

use super::call::{deliver, detached, pack};
use crate::array::scatter::{Axis, Region};
use crate::chunk::codecs::streams;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::dictionary;
use crate::chunk::encode::{self, Recipe};
use crate::chunk::encode2;
use crate::chunk::header::{Filter, HEADER_BYTES, Header};
use crate::error::{Error, Kind};
use crate::python::buffers::{self, Input};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Decode a whole chunk: into `out` (the number of bytes is returned), or as new `bytes`.
#[pyfunction]
#[pyo3(signature = (chunk, out=None, threads=1, limit=i32::MAX as usize))]
pub fn decompress<'py>(
    py: Python<'py>,
    chunk: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    threads: usize,
    limit: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let input = Input::of(chunk)?;
    let chunk = input.bytes();
    let header = Header::parse(chunk, chunk.len(), limit)?;
    deliver(py, out, header.nbytes, |out, kept, interrupt| {
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        decoder.decode_whole(chunk, out, &mut kept.workspace.scratch, threads, interrupt)
    })
}

/// Decode items `start..stop` (of the header's typesize) of a chunk.
#[pyfunction]
#[pyo3(signature = (chunk, start, stop, out=None, limit=i32::MAX as usize))]
pub fn decompress_slice<'py>(
    py: Python<'py>,
    chunk: &Bound<'py, PyAny>,
    start: isize,
    stop: isize,
    out: Option<&Bound<'py, PyAny>>,
    limit: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let input = Input::of(chunk)?;
    let chunk = input.bytes();
    let header = Header::parse(chunk, chunk.len(), limit)?;
    let items = header.nbytes / header.typesize;
    if start < 0 || stop < start || stop as usize > items {
        let text = format!("items {start}..{stop} are wanted, the chunk holds items 0..{items}");
        return Err(Error::new(Kind::Selection, text).into());
    }
    let (start, count) = (start as usize, (stop - start) as usize);
    let typesize = header.typesize;
    deliver(py, out, count * typesize, |out, kept, _| {
        if count == 0 {
            return Ok(());
        }
        let axis = Axis { size: items, start, count, step: 1, stride: typesize as isize };
        let mut region = Region::new(&[axis], typesize, 0, out)?;
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        let window = Window { bytes: chunk, offset: 0 };
        decoder.decode_region(window, decoder.blocks_of(&region), &mut region, &mut kept.workspace.scratch)
    })
}

/// Encode `data` as a Blosc-1 chunk.
#[pyfunction]
#[pyo3(signature = (data, typesize, codec, level, filter, blocksize=0, threads=1))]
#[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn compress<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    typesize: usize,
    codec: &str,
    level: u8,
    filter: &str,
    blocksize: usize,
    threads: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let filter = parse_filter(filter)?;
    let recipe = Recipe { codec: streams::Codec::parse(codec)?, level, filter, typesize, blocksize, gain: 0 };
    let buffer = PyUntypedBuffer::get(data)?;
    let source = buffers::contiguous(&buffer)?;
    pack(py, |chunk, kept, interrupt| {
        encode::encode(source, recipe, chunk, &mut kept.workspace.scratch, threads, interrupt)
    })
}

/// Encode `data` as a Blosc-2 chunk, whose filters are given by number and metadata, in the
/// order in which they are applied.
#[pyfunction]
#[pyo3(signature = (data, typesize, codec, level, filters, blocksize=0, split="auto", dictionary=None, threads=1))]
#[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn compress2<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    typesize: usize,
    codec: &str,
    level: u8,
    filters: Vec<(u8, u8)>,
    blocksize: usize,
    split: &str,
    dictionary: Option<&Bound<'py, PyAny>>,
    threads: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let dictionary = dictionary.map(Input::of).transpose()?;
    let dictionary = dictionary.as_ref().map(Input::bytes);
    let (codec, split) = (streams::Codec::parse(codec)?, encode2::Split::parse(split)?);
    let recipe = encode2::Recipe { codec, level, filters: &filters, typesize, blocksize, split, dictionary };
    let buffer = PyUntypedBuffer::get(data)?;
    let source = buffers::contiguous(&buffer)?;
    pack(py, |chunk, kept, interrupt| {
        encode2::encode(source, recipe, chunk, &mut kept.workspace.scratch, threads, interrupt)
    })
}

/// Train a dictionary for chunks like the one that `compress2` would make of `data`; empty
/// when there is too little data.
#[pyfunction]
#[pyo3(signature = (data, typesize, codec, level, filters, blocksize=0, split="auto"))]
#[allow(clippy::too_many_arguments, reason = "the same call as `compress2`")]
pub fn train_dictionary<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    typesize: usize,
    codec: &str,
    level: u8,
    filters: Vec<(u8, u8)>,
    blocksize: usize,
    split: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let (codec, split) = (streams::Codec::parse(codec)?, encode2::Split::parse(split)?);
    let recipe = encode2::Recipe { codec, level, filters: &filters, typesize, blocksize, split, dictionary: None };
    let buffer = PyUntypedBuffer::get(data)?;
    let source = buffers::contiguous(&buffer)?;
    let dictionary =
        detached(py, |kept, interrupt| dictionary::train(source, recipe, &mut kept.workspace.scratch, interrupt))?;
    Ok(PyBytes::new(py, &dictionary))
}

pub fn parse_filter(name: &str) -> PyResult<Filter> {
    match name {
        "none" => Ok(Filter::None),
        "shuffle" => Ok(Filter::Shuffle),
        "bitshuffle" => Ok(Filter::Bitshuffle),
        other => {
            let text = format!("filter {other:?} is unknown; known: none, shuffle, bitshuffle");
            Err(PyValueError::new_err(text))
        }
    }
}
