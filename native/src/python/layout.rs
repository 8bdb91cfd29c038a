//! The layout of an array for Python: one call per selection.

use super::call::detached;
use super::chunk::parse_filter;
use crate::array::chunk_file::Framing;
use crate::array::coding::{Chain, Coding};
use crate::array::comparison::{Comparison, Test};
use crate::array::layout::{Failure, Layout, Report};
use crate::array::search::{self, Condition};
use crate::array::shards::Sharding;
use crate::array::staging::Staged;
use crate::array::zones::Items;
use crate::chunk::codecs::streams::{self, Whole};
use crate::chunk::encode::Recipe;
use crate::files::verified::{Seals, Verify};
use crate::python::buffers;
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use std::path::PathBuf;

/// Coordinates and key of each chunk; the key of its staged image, or `None` for nothing but
/// fill; the image's size and CRC-32.
type StagedChunks = Vec<(Py<PyTuple>, String, Option<String>, usize, u32)>;
/// Coordinates, key and error of each chunk that failed.
type Failures = Vec<(Py<PyTuple>, String, Py<PyAny>)>;

/// The kind of items, whether their highest byte comes first, and the chunk that is still as
/// short as it was, with its rows.
type PyFraming = (char, bool, Option<(usize, usize)>);

/// Operators, each with an item to compare with.
type Comparisons = Vec<(String, Vec<u8>)>;
/// How many rows were found, their numbers, and what was wrong with which array.
type PyMatches = (usize, Option<Py<PyByteArray>>, Vec<(usize, Failures)>);

/// Where the chunks of an array lie below a folder, and how they are coded.
#[pyclass(frozen, name = "Layout")]
pub struct PyLayout(Layout);

#[pymethods]
impl PyLayout {
    #[new]
    #[pyo3(signature = (*, root, names, shape, chunk, axes, itemsize, fill, kind, codec="", level=0, filter="none",
                        typesize=1, blocksize=0, checksum=false, sealed=false, verify="first", sharding=None,
                        leading=None, framing=None))]
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
        sealed: bool,
        verify: &str,
        sharding: Option<(Vec<usize>, bool, bool, bool)>,
        leading: Option<usize>,
        framing: Option<PyFraming>,
    ) -> PyResult<Self> {
        let coding = match kind {
            "raw" => Coding::Raw,
            "blosc" => {
                let codec = streams::Codec::parse(codec)?;
                let level = u8::try_from(level).unwrap_or(u8::MAX);
                let recipe = Recipe { codec, level, filter: parse_filter(filter)?, typesize, blocksize, gain: 0 };
                Coding::Blosc(if framing.is_some() { recipe.swift() } else { recipe })
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
        let framing =
            framing.map(|(kind, big_endian, short)| Framing { items: Items::parse(kind, itemsize, big_endian), short });
        if framing.is_some() && (sorted != axes || axes.is_empty() || !matches!(coding, Coding::Blosc(_))) {
            return Err(PyValueError::new_err("rows are stored one after the other, in Blosc chunks"));
        }
        let leading = leading.unwrap_or(shape.len());
        let (prefix, separator, suffix, scalar) = names;
        let chain = Chain { coding, sealed };
        let sharding = sharding.map(parse_sharding).transpose()?;
        if sharding.as_ref().is_some_and(|sharding| sharding.axes() != shape.len()) {
            return Err(PyValueError::new_err("shape and sharding do not fit together"));
        }
        let layout = Layout {
            root,
            prefix,
            separator,
            suffix,
            scalar,
            leading,
            shape,
            chunk,
            axes,
            itemsize,
            chain,
            framing,
            seals: Seals::new(Verify::parse(verify)?),
            fill,
            chunk_bytes,
            sharding,
        };
        Ok(Self(layout))
    }

    /// The same array in another shape, and with another chunk that is still as short as it
    /// was; nothing is known of its files.
    fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> PyResult<Self> {
        match self.0.resized(shape, short) {
            Some(layout) => Ok(Self(layout)),
            None => Err(PyValueError::new_err("an array in shards, or of another number of axes")),
        }
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
    ) -> PyResult<Option<(usize, Failures)>> {
        let buffer = PyUntypedBuffer::get(out)?;
        let (memory, origin) = buffers::strided(&buffer)?;
        self.check_itemsize(&buffer)?;
        let report = detached(py, |kept, interrupt| {
            let job = self.0.job(&starts, buffer.shape(), &steps, buffer.strides(), origin, memory)?;
            job.read(threads, &mut kept.workspace, interrupt)
        })?;
        told(py, report)
    }

    /// The same with index arrays along some axes: `indices` has one, or `None` where start and
    /// step count.
    fn read_outer(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        indices: Vec<Option<PyBuffer<i64>>>,
        threads: usize,
    ) -> PyResult<Option<(usize, Failures)>> {
        let buffer = PyUntypedBuffer::get(out)?;
        let (memory, origin) = buffers::strided(&buffer)?;
        self.check_itemsize(&buffer)?;
        let indices = indices.iter().map(|axis| axis.as_ref().map(|axis| axis.to_vec(py)).transpose());
        let indices = indices.collect::<PyResult<Vec<_>>>()?;
        let report = detached(py, |kept, interrupt| {
            let (shape, strides) = (buffer.shape(), buffer.strides());
            let job = self.0.outer_job(&starts, shape, &steps, &indices, strides, origin, memory)?;
            job.read(threads, &mut kept.workspace, interrupt)
        })?;
        told(py, report)
    }

    /// The zone maps of the chunks of these numbers, empty for those without one.
    fn zones(&self, py: Python<'_>, numbers: Vec<usize>) -> PyResult<Vec<Py<PyBytes>>> {
        let zones = detached(py, |kept, interrupt| self.0.zones(&numbers, &mut kept.workspace, interrupt))?;
        Ok(zones.iter().map(|zone| PyBytes::new(py, zone).unbind()).collect())
    }

    /// Copy the rows of these numbers, which ascend, to `out`; what was wrong is returned.
    fn gather(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        rows: &Bound<'_, PyAny>,
        threads: usize,
    ) -> PyResult<Option<Failures>> {
        let (buffer, numbers) = (PyUntypedBuffer::get(out)?, PyUntypedBuffer::get(rows)?);
        let memory = buffers::writable(&buffer)?;
        // Copied: another thread may change them after they were checked.
        let numbers: Vec<i64> = buffers::contiguous(&numbers)?
            .chunks_exact(8)
            .map(|raw| i64::from_ne_bytes(raw.try_into().expect("eight bytes")))
            .collect();
        let found = detached(py, |kept, interrupt| {
            // SAFETY: the buffer is held, and nobody reads it before the call returns.
            let out = unsafe { memory.whole() };
            self.0.gather(&numbers, out, threads, &mut kept.workspace, interrupt)
        })?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// Say in `out`, a byte for each, of which rows from `start` on all comparisons, each with a
    /// value, are true; what was wrong is returned.
    fn compare(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        start: usize,
        comparisons: Comparisons,
        threads: usize,
    ) -> PyResult<Option<Failures>> {
        let tests = parse_tests(comparisons)?;
        let buffer = PyUntypedBuffer::get(out)?;
        let memory = buffers::writable(&buffer)?;
        let found = detached(py, |kept, interrupt| {
            // SAFETY: as in `gather`.
            let out = unsafe { memory.whole() };
            self.0.compare(start, &tests, out, threads, &mut kept.workspace, interrupt)
        })?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// How many rows of `spans` there are of which all comparisons are true, those with this
    /// array and with `others` of the same length; their numbers, if these are wanted; and what
    /// was wrong with which array, this one being the first.
    fn search(
        &self,
        py: Python<'_>,
        comparisons: Comparisons,
        others: Vec<(Py<Self>, Comparisons)>,
        spans: Vec<(usize, usize)>,
        numbers: bool,
        threads: usize,
    ) -> PyResult<PyMatches> {
        let mut conditions = vec![Condition { layout: &self.0, tests: parse_tests(comparisons)? }];
        for (other, comparisons) in &others {
            conditions.push(Condition { layout: &other.get().0, tests: parse_tests(comparisons.clone())? });
        }
        let spans: Vec<_> = spans.into_iter().map(|(start, stop)| start..stop).collect();
        let found = detached(py, |kept, interrupt| {
            search::find(&conditions, &spans, numbers, threads, &mut kept.workspace, interrupt)
        })?;
        let rows = if numbers { Some(joined(py, found.count, &found.numbers)?) } else { None };
        let wrong = found.failures.into_iter().map(|(number, failure)| Ok((number, failures(py, vec![failure])?)));
        Ok((found.count, rows, wrong.collect::<PyResult<_>>()?))
    }

    /// Encode the chunks of rows `first..last` of the box, from `values`, each into a new
    /// file beside its place, under the name that staged images of `transaction` have; names,
    /// sizes and checksums are returned, and nothing is published.
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
    ) -> PyResult<(StagedChunks, Failures)> {
        let buffer = PyUntypedBuffer::get(values)?;
        let (memory, origin) = buffers::readable(&buffer)?;
        self.check_itemsize(&buffer)?;
        let (staged, found) = detached(py, |kept, interrupt| {
            let job = self.0.job(&starts, buffer.shape(), &steps, buffer.strides(), origin, memory)?;
            job.stage(first..last.min(job.files()), threads, transaction, &mut kept.workspace, interrupt)
        })?;
        let mut chunks = Vec::with_capacity(staged.len());
        for Staged { coords, image } in staged {
            let key = self.0.key(&coords);
            let (source, size, checksum) = match image {
                Some(image) => (Some(image.key), image.size, image.checksum),
                None => (None, 0, 0),
            };
            chunks.push((PyTuple::new(py, coords)?.unbind(), key, source, size, checksum));
        }
        Ok((chunks, failures(py, found)?))
    }
}

impl PyLayout {
    fn check_itemsize(&self, buffer: &PyUntypedBuffer) -> PyResult<()> {
        if buffer.item_size() != self.0.itemsize {
            let text = format!("items have {} bytes, the array's have {}", buffer.item_size(), self.0.itemsize);
            return Err(PyValueError::new_err(text));
        }
        Ok(())
    }
}

/// Chunks along each axis of a shard; whether its index is at the start, is big-endian, has a
/// checksum.
fn parse_sharding((counts, at_start, big, sealed): (Vec<usize>, bool, bool, bool)) -> PyResult<Sharding> {
    Sharding::new(counts, at_start, big, sealed)
        .ok_or_else(|| PyValueError::new_err("a shard of that shape cannot be had"))
}

fn parse_tests(comparisons: Comparisons) -> PyResult<Vec<Test>> {
    let mut tests = Vec::with_capacity(comparisons.len());
    for (comparison, value) in comparisons {
        let Some(parsed) = Comparison::parse(&comparison) else {
            return Err(PyValueError::new_err(format!("{comparison:?} is no comparison")));
        };
        tests.push((parsed, value));
    }
    Ok(tests)
}

/// The numbers of all parts, one behind the other.
fn joined(py: Python<'_>, count: usize, parts: &[Vec<i64>]) -> PyResult<Py<PyByteArray>> {
    let made = PyByteArray::new_with(py, 8 * count, |mut out| {
        for number in parts.iter().flatten() {
            let (place, rest) = out.split_at_mut(8);
            place.copy_from_slice(&number.to_ne_bytes());
            out = rest;
        }
        Ok(())
    })?;
    Ok(made.unbind())
}

fn told(py: Python<'_>, report: Report) -> PyResult<Option<(usize, Failures)>> {
    if report.absent == 0 && report.failures.is_empty() {
        return Ok(None);
    }
    Ok(Some((report.absent, failures(py, report.failures)?)))
}

fn failures(py: Python<'_>, found: Vec<Failure>) -> PyResult<Failures> {
    let mut failures = Vec::with_capacity(found.len());
    for Failure { coords, key, error } in found {
        let error = PyErr::from(error).into_value(py).into_any();
        failures.push((PyTuple::new(py, coords)?.unbind(), key, error));
    }
    Ok(failures)
}
