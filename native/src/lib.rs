//! The native kernel of Ingot: Blosc chunks decoded and encoded, safely and fast.
//!
//! This file is the boundary to Python and nothing else: it takes buffers, gives up the
//! GIL once, calls the modules below, and turns their faults into `ingot.errors`.

mod blosclz;
mod buffers;
mod copies;
mod decode;
mod encode;
mod extended;
mod extension;
mod fault;
mod files;
mod filters;
mod header;
mod layout;
mod lz4;
mod partial;
mod pieces;
mod pipeline;
mod scatter;
mod special;
mod streams;
mod varied;
mod watch;

use buffers::Input;
use decode::{Decoder, Window};
use encode::Recipe;
use fault::{Fault, Kind, Outcome};
use files::Root;
use header::{Filter, HEADER_BYTES, Header};
use layout::{Coding, Encoded, Layout, Tools, Trouble};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use scatter::{Axis, Destination, Region};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use streams::Whole;
use watch::Watch;

mod errors {
    pyo3::import_exception!(ingot.errors, CorruptionError);
    pyo3::import_exception!(ingot.errors, FormatError);
    pyo3::import_exception!(ingot.errors, LimitError);
    pyo3::import_exception!(ingot.errors, SelectionError);
    pyo3::import_exception!(ingot.errors, UnsafeError);
    pyo3::import_exception!(ingot.errors, UnsupportedError);
}

impl From<Fault> for PyErr {
    fn from(Fault { kind, text }: Fault) -> Self {
        match kind {
            Kind::Format => errors::FormatError::new_err(text),
            Kind::Corruption => errors::CorruptionError::new_err(text),
            Kind::Unsupported => errors::UnsupportedError::new_err(text),
            Kind::Limit => errors::LimitError::new_err(text),
            Kind::Selection => errors::SelectionError::new_err(text),
            Kind::Unsafe => errors::UnsafeError::new_err(text),
            Kind::Argument => PyValueError::new_err(text),
            Kind::System(code) => PyOSError::new_err((code, text)),
            Kind::Interrupted => PyKeyboardInterrupt::new_err(()),
        }
    }
}

/// What a thread keeps between calls, at the most.
const KEPT_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Kept {
    tools: Tools,
    chunk: encode::Packer,
}

thread_local! {
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
}

/// Run `work` without the GIL, with this thread's scratch. A signal handler that raises
/// meanwhile (Ctrl-C) ends the call with what it raised.
fn detached<T: Send>(py: Python<'_>, work: impl FnOnce(&mut Kept, &Watch) -> Outcome<T> + Send) -> PyResult<T> {
    let raised = Mutex::new(None);
    let outcome = py.detach(|| {
        let interrupted = || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(error) => {
                *raised.lock().expect("no thread panics") = Some(error);
                true
            }
        };
        // Taken, not borrowed: a signal handler may itself call into this module.
        let mut kept = KEPT.take().unwrap_or_default();
        let outcome = work(&mut kept, &Watch::new(&interrupted));
        if kept.tools.kept_bytes() <= KEPT_BYTES {
            KEPT.set(Some(kept));
        }
        outcome
    });
    match raised.into_inner().expect("no thread panics") {
        Some(error) => Err(error),
        None => Ok(outcome?),
    }
}

/// Fill `out`, or a new `bytes` object of `size` bytes, by `work`.
fn deliver<'py>(
    py: Python<'py>,
    out: Option<&Bound<'py, PyAny>>,
    size: usize,
    work: impl FnOnce(&mut [u8], &mut Kept, &Watch) -> Outcome<()> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let fill = |destination: Destination| {
        detached(py, |kept, watch| {
            // SAFETY: `new_bytes` gives memory nobody else has seen; memory that the caller
            // passed as `out` is the caller's promise.
            let out = unsafe { destination.whole() };
            work(&mut out[..size], kept, watch)
        })
    };
    let Some(out) = out else {
        return match buffers::new_bytes(py, size, fill) {
            Err(error) if error.is_instance_of::<PyMemoryError>(py) => Err(decode::out_of_memory(size).into()),
            other => Ok(other?.into_any()),
        };
    };
    let buffer = PyUntypedBuffer::get(out)?;
    let destination = buffers::writable(&buffer)?;
    if destination.len() < size {
        let text = format!("out has {} bytes, {size} are needed", destination.len());
        return Err(PyValueError::new_err(text));
    }
    fill(destination)?;
    Ok(size.into_pyobject(py)?.into_any())
}

/// Decode a whole chunk: into `out` (the number of bytes is returned), or as new `bytes`.
#[pyfunction]
#[pyo3(signature = (chunk, out=None, threads=1, limit=i32::MAX as usize))]
fn decompress<'py>(
    py: Python<'py>,
    chunk: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    threads: usize,
    limit: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let input = Input::of(chunk)?;
    let chunk = input.bytes();
    let header = Header::parse(chunk, chunk.len(), limit)?;
    deliver(py, out, header.nbytes, |out, kept, watch| {
        let decoder = Decoder::new(&header, &chunk[HEADER_BYTES..header.data_start()]);
        decoder.decode_whole(chunk, out, &mut kept.tools.scratch, threads, watch)
    })
}

/// Decode items `start..stop` (of the header's typesize) of a chunk.
#[pyfunction]
#[pyo3(signature = (chunk, start, stop, out=None, limit=i32::MAX as usize))]
fn decompress_slice<'py>(
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
        return Err(Fault::new(Kind::Selection, text).into());
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
    decoder.decode_region(window, decoder.blocks_of(region), region, &mut kept.tools.scratch)
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
fn decompress_box(
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
fn read_box(
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
            return Err(Fault::new(Kind::Argument, format!("{} names no file", path.display())));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Some(root) = files::Root::open(folder)? else {
            return Ok(false);
        };
        let Some(extent) = root.extent(name)? else {
            return Ok(false);
        };
        let extent = extent.narrowed(offset, length)?;
        let Tools { scratch, buffers, .. } = &mut kept.tools;
        files::decode_extent(&extent, wanted.expected, &region, scratch, buffers)?;
        Ok(true)
    })
}

/// Encode `data` as a Blosc-1 chunk.
#[pyfunction]
#[pyo3(signature = (data, typesize, codec, level, filter, blocksize=0, threads=1))]
#[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
fn compress<'py>(
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
    let recipe = Recipe { codec: streams::Codec::parse(codec)?, level, filter, typesize, blocksize };
    let buffer = PyUntypedBuffer::get(data)?;
    let source = buffers::contiguous(&buffer)?;
    pack(py, |chunk, kept, watch| encode::encode(source, recipe, chunk, &mut kept.tools.scratch, threads, watch))
}

/// What `encode` makes, as `bytes`.
fn pack<'py>(
    py: Python<'py>,
    encode: impl FnOnce(&mut encode::Packer, &mut Kept, &Watch) -> Outcome<()> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    let chunk = detached(py, |kept, watch| {
        let mut chunk = std::mem::take(&mut kept.chunk);
        encode(&mut chunk, kept, watch)?;
        Ok(chunk)
    })?;
    let bytes = PyBytes::new(py, chunk.bytes());
    // Back to the thread's scratch, so that the next call need not ask for memory.
    if chunk.capacity() <= KEPT_BYTES
        && let Some(mut kept) = KEPT.take()
    {
        kept.chunk = chunk;
        KEPT.set(Some(kept));
    }
    Ok(bytes)
}

/// Encode `data` as a Blosc-2 chunk, whose filters are given by number and metadata, in the
/// order in which they are applied.
#[pyfunction]
#[pyo3(signature = (data, typesize, codec, level, filters, blocksize=0, split="auto", dictionary=None, threads=1))]
#[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
fn compress2<'py>(
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
    let (codec, split) = (streams::Codec::parse(codec)?, extended::Split::parse(split)?);
    let recipe = extended::Recipe { codec, level, filters: &filters, typesize, blocksize, split, dictionary };
    let buffer = PyUntypedBuffer::get(data)?;
    let source = buffers::contiguous(&buffer)?;
    pack(py, |chunk, kept, watch| extended::encode(source, recipe, chunk, &mut kept.tools.scratch, threads, watch))
}

/// Learn a dictionary for chunks like the one that `compress2` would make of `data`; empty
/// when there is too little to learn from.
#[pyfunction]
#[pyo3(signature = (data, typesize, codec, level, filters, blocksize=0, split="auto"))]
#[allow(clippy::too_many_arguments, reason = "the same call as `compress2`")]
fn train_dictionary<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    typesize: usize,
    codec: &str,
    level: u8,
    filters: Vec<(u8, u8)>,
    blocksize: usize,
    split: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let (codec, split) = (streams::Codec::parse(codec)?, extended::Split::parse(split)?);
    let recipe = extended::Recipe { codec, level, filters: &filters, typesize, blocksize, split, dictionary: None };
    let buffer = PyUntypedBuffer::get(data)?;
    let source = buffers::contiguous(&buffer)?;
    let dictionary = detached(py, |kept, watch| extended::train(source, recipe, &mut kept.tools.scratch, watch))?;
    Ok(PyBytes::new(py, &dictionary))
}

fn parse_filter(name: &str) -> PyResult<Filter> {
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

/// Coordinates, key and the key of the staged image of each chunk, or `None` for nothing but fill.
type StagedChunks = Vec<(Py<PyTuple>, String, Option<String>)>;
/// Coordinates, key and error of each chunk that failed.
type Troubles = Vec<(Py<PyTuple>, String, Py<PyAny>)>;

/// Where the chunks of an array lie below a folder, and how they are coded.
#[pyclass(frozen, name = "Layout")]
struct PyLayout(Layout);

#[pymethods]
impl PyLayout {
    #[new]
    #[pyo3(signature = (*, root, names, shape, chunk, axes, itemsize, fill, kind, codec="", level=0, filter="none",
                        typesize=1, blocksize=0, checksum=false))]
    #[allow(clippy::too_many_arguments, reason = "all keywords; made once per array")]
    fn new(
        root: PathBuf,
        names: (String, String, String, String),
        shape: Vec<usize>,
        chunk: Vec<usize>,
        axes: Vec<usize>,
        itemsize: usize,
        fill: Vec<u8>,
        kind: &str,
        codec: &str,
        level: i32,
        filter: &str,
        typesize: usize,
        blocksize: usize,
        checksum: bool,
    ) -> PyResult<Self> {
        let coding = match kind {
            "raw" => Coding::Raw,
            "blosc" => {
                let codec = streams::Codec::parse(codec)?;
                let level = u8::try_from(level).unwrap_or(u8::MAX);
                Coding::Blosc(Recipe { codec, level, filter: parse_filter(filter)?, typesize, blocksize })
            }
            "lz4" => Coding::Stream(Whole::Lz4 { acceleration: level }),
            "zlib" => Coding::Stream(Whole::Zlib { level }),
            "zstd" => Coding::Stream(Whole::Zstd { level, checksum }),
            other => return Err(PyValueError::new_err(format!("kind {other:?} is not native"))),
        };
        let sorted = {
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            sorted
        };
        if chunk.len() != shape.len() || sorted != (0..shape.len()).collect::<Vec<_>>() || chunk.contains(&0) {
            return Err(PyValueError::new_err("shape, chunk and axes do not fit together"));
        }
        let chunk_bytes = chunk.iter().try_fold(itemsize, |size, axis| size.checked_mul(*axis));
        let chunk_bytes = chunk_bytes.filter(|size| *size <= isize::MAX as usize);
        let Some(chunk_bytes) = chunk_bytes.filter(|_| itemsize > 0 && fill.len() == itemsize) else {
            return Err(PyValueError::new_err("a chunk of that shape cannot be had"));
        };
        let (prefix, separator, suffix, scalar) = names;
        let layout =
            Layout { root, prefix, separator, suffix, scalar, shape, chunk, axes, itemsize, coding, fill, chunk_bytes };
        Ok(Self(layout))
    }

    /// Read the box that begins at `starts` and goes on by `steps` into `out`, whose shape it
    /// has. `None` when every chunk was there and sound; else how many chunks were absent
    /// (their part holds the fill value) and what was wrong with which.
    fn read(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        threads: usize,
    ) -> PyResult<Option<(usize, Troubles)>> {
        let buffer = PyUntypedBuffer::get(out)?;
        let (memory, origin) = buffers::strided(&buffer)?;
        self.check_itemsize(&buffer)?;
        let report = detached(py, |kept, watch| {
            let job = self.0.job(&starts, buffer.shape(), &steps, buffer.strides(), origin, memory)?;
            job.read(threads, &mut kept.tools, watch)
        })?;
        if report.absent == 0 && report.troubles.is_empty() {
            return Ok(None);
        }
        Ok(Some((report.absent, troubles(py, report.troubles)?)))
    }

    /// Encode the chunks of rows `first..last` of the box, from `values`, each into a new
    /// file beside its place, under the name that staged images of `transaction` have; the
    /// names are returned, and nothing is published.
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn stage(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        first: usize,
        last: usize,
        threads: usize,
        transaction: &str,
    ) -> PyResult<(StagedChunks, Troubles)> {
        // A new array has no folder before its first chunk.
        std::fs::create_dir_all(&self.0.root)?;
        let keep = |root: Option<&Root>, coords: &[usize], bytes: &[u8]| {
            let key = self.0.staged_key(coords, transaction);
            match root {
                Some(root) => root.write_new(&key, bytes).map(|()| key),
                None => Err(Fault::new(Kind::Argument, format!("{} is no folder", self.0.root.display()))),
            }
        };
        let (staged, found) = self.encode_with(py, values, &starts, &steps, first..last, threads, keep)?;
        let mut chunks = Vec::with_capacity(staged.len());
        for Encoded { coords, kept } in staged {
            let key = self.0.key(&coords);
            chunks.push((PyTuple::new(py, coords)?.unbind(), key, kept));
        }
        Ok((chunks, troubles(py, found)?))
    }
}

impl PyLayout {
    #[allow(clippy::too_many_arguments, reason = "as of its callers")]
    fn encode_with<T: Send>(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        starts: &[usize],
        steps: &[isize],
        rows: std::ops::Range<usize>,
        threads: usize,
        keep: impl Fn(Option<&Root>, &[usize], &[u8]) -> Outcome<T> + Sync,
    ) -> PyResult<(Vec<Encoded<T>>, Vec<Trouble>)> {
        let buffer = PyUntypedBuffer::get(values)?;
        let (memory, origin) = buffers::readable(&buffer)?;
        self.check_itemsize(&buffer)?;
        detached(py, |kept, watch| {
            let job = self.0.job(starts, buffer.shape(), steps, buffer.strides(), origin, memory)?;
            job.encode(rows.start..rows.end.min(job.rows), threads, &mut kept.tools, watch, &keep)
        })
    }

    fn check_itemsize(&self, buffer: &PyUntypedBuffer) -> PyResult<()> {
        if buffer.item_size() != self.0.itemsize {
            let text = format!("items have {} bytes, the array's have {}", buffer.item_size(), self.0.itemsize);
            return Err(PyValueError::new_err(text));
        }
        Ok(())
    }
}

fn troubles(py: Python<'_>, found: Vec<Trouble>) -> PyResult<Troubles> {
    let mut troubles = Vec::with_capacity(found.len());
    for Trouble { coords, key, fault } in found {
        let error = PyErr::from(fault).into_value(py).into_any();
        troubles.push((PyTuple::new(py, coords)?.unbind(), key, error));
    }
    Ok(troubles)
}

/// What this kernel is and can do.
#[pyfunction]
fn describe(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("kernel", "native")?;
    facts.set_item("simd", filters::simd())?;
    facts.set_item("codecs", streams::Codec::NAMES.map(|(name, _)| name))?;
    Ok(facts)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ABI", 2)?;
    module.add_class::<PyLayout>()?;
    module.add_function(wrap_pyfunction!(decompress, module)?)?;
    module.add_function(wrap_pyfunction!(decompress_slice, module)?)?;
    module.add_function(wrap_pyfunction!(decompress_box, module)?)?;
    module.add_function(wrap_pyfunction!(read_box, module)?)?;
    module.add_function(wrap_pyfunction!(compress, module)?)?;
    module.add_function(wrap_pyfunction!(compress2, module)?)?;
    module.add_function(wrap_pyfunction!(train_dictionary, module)?)?;
    module.add_function(wrap_pyfunction!(describe, module)?)
}
