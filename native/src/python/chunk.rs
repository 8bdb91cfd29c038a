//! Single chunks for Python: in memory, or a box of one in a file.

use super::call::{Kept, deliver, detached, pack};
use crate::array::layout::Workspace;
use crate::array::scatter::{Axis, Destination, Region};
use crate::chunk::codecs::streams;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::dictionary;
use crate::chunk::encode::{self, Recipe};
use crate::chunk::encode2;
use crate::chunk::header::{Filter, HEADER_BYTES, Header};
use crate::error::{Error, Kind, Outcome};
use crate::files;
use crate::python::buffers::{self, Input};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::{Path, PathBuf};

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
        // SAFETY: `out` outlives the region, and is not used beside it.
        let destination = unsafe { Destination::new(out.as_mut_ptr(), out.len()) };
        let region = Region::new(&[axis], typesize, 0, destination)?;
        decode_memory(chunk, &header, &region, kept)
    })
}

fn decode_memory(chunk: &[u8], header: &Header, region: &Region, kept: &mut Kept) -> Outcome<()> {
    let decoder = Decoder::new(header, &chunk[HEADER_BYTES..header.data_start()]);
    let window = Window { bytes: chunk, offset: 0 };
    decoder.decode_region(window, decoder.blocks_of(region), region, &mut kept.workspace.scratch)
}

/// A box of a chunk as Python describes it: chunk shape, then start, count and step per axis.
struct PyBox {
    axes: Vec<Axis>,
    itemsize: usize,
    expected: usize,
}

impl PyBox {
    fn of(shape: &[usize], starts: &[usize], steps: &[usize], out: &PyUntypedBuffer) -> PyResult<Self> {
        let dimensions = shape.len();
        if starts.len() != dimensions || steps.len() != dimensions || out.dimensions() != dimensions {
            return Err(PyValueError::new_err("shape, starts, steps and out differ in dimensions"));
        }
        let itemsize = out.item_size();
        let expected = shape.iter().try_fold(itemsize, |size, axis| size.checked_mul(*axis));
        let expected = expected.ok_or_else(|| PyValueError::new_err("the chunk's shape overflows"))?;
        let axes = (0..dimensions)
            .map(|axis| Axis {
                size: shape[axis],
                start: starts[axis],
                count: out.shape()[axis],
                step: steps[axis],
                stride: out.strides()[axis],
            })
            .collect();
        Ok(Self { axes, itemsize, expected })
    }
}

/// Decode a box of a chunk of shape `shape` (C order) into `out`, an array of any strides
/// whose shape is the box's.
#[pyfunction]
pub fn decompress_box(
    py: Python<'_>,
    chunk: &Bound<'_, PyAny>,
    shape: Vec<usize>,
    starts: Vec<usize>,
    steps: Vec<usize>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let input = Input::of(chunk)?;
    let chunk = input.bytes();
    let buffer = PyUntypedBuffer::get(out)?;
    let wanted = PyBox::of(&shape, &starts, &steps, &buffer)?;
    let header = Header::parse(chunk, chunk.len(), wanted.expected)?;
    files::check_size(&header, wanted.expected)?;
    if buffer.item_count() == 0 {
        return Ok(());
    }
    let (destination, origin) = buffers::strided(&buffer)?;
    detached(py, |kept, _| {
        let region = Region::new(&wanted.axes, wanted.itemsize, origin, destination)?;
        decode_memory(chunk, &header, &region, kept)
    })
}

/// The same from a file: the chunk is the `length` bytes at `offset` (to the end without a
/// length), and only the bytes that hold the box are read. `False` when there is no file.
#[pyfunction]
#[pyo3(signature = (path, shape, starts, steps, out, offset=0, length=None))]
#[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
pub fn read_box(
    py: Python<'_>,
    path: PathBuf,
    shape: Vec<usize>,
    starts: Vec<usize>,
    steps: Vec<usize>,
    out: &Bound<'_, PyAny>,
    offset: u64,
    length: Option<usize>,
) -> PyResult<bool> {
    let buffer = PyUntypedBuffer::get(out)?;
    let wanted = PyBox::of(&shape, &starts, &steps, &buffer)?;
    if buffer.item_count() == 0 {
        return Ok(path.exists());
    }
    let (destination, origin) = buffers::strided(&buffer)?;
    detached(py, |kept, _| {
        let region = Region::new(&wanted.axes, wanted.itemsize, origin, destination)?;
        let (folder, name) = (path.parent(), path.file_name().and_then(|name| name.to_str()));
        let (Some(folder), Some(name)) = (folder, name) else {
            return Err(Error::new(Kind::Argument, format!("{} names no file", path.display())));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Some(root) = files::Root::open(folder)? else {
            return Ok(false);
        };
        let Some(extent) = root.extent(name)? else {
            return Ok(false);
        };
        let extent = extent.narrowed(offset, length)?;
        let Workspace { scratch, buffers, .. } = &mut kept.workspace;
        files::decode_extent(&extent, wanted.expected, &region, scratch, buffers)?;
        Ok(true)
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

/// Learn a dictionary for chunks like the one that `compress2` would make of `data`; empty
/// when there is too little to learn from.
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
        detached(py, |kept, interrupt| dictionary::learn(source, recipe, &mut kept.workspace.scratch, interrupt))?;
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
