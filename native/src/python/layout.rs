//! The layout of an array for Python: one call per selection.

use super::buffers;
use super::call::detached;
use super::chunk::parse_filter;
use crate::array::addresses::{Addresses, Keys};
use crate::array::coding::{Coding, Compression};
use crate::array::comparison::{Comparison, Test};
use crate::array::gather;
use crate::array::grid::Grid;
use crate::array::layout::{Failure, Layout};
use crate::array::read::{self, Report};
use crate::array::search::{self, Condition};
use crate::array::selection::Selection;
use crate::array::shards::ShardFormat;
use crate::array::staging::{self, Staged};
use crate::array::zones::{self, Items};
use crate::chunk::codecs::streams::{self, Whole};
use crate::chunk::encode::Recipe;
use crate::files::Renamed;
use crate::files::verified::Verify;
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;

/// Coordinates and key of each chunk; the key of its staged image, or `None` when it holds nothing
/// but the fill value; the image's size and CRC-32.
type StagedChunks = Vec<(Py<PyTuple>, String, Option<String>, usize, u32)>;
/// Coordinates, key and error of each chunk that failed.
type Failures = Vec<(Py<PyTuple>, String, Py<PyAny>)>;

/// Operators, each with an item to compare with.
type Comparisons = Vec<(String, Vec<u8>)>;
/// How many rows were found, their numbers, and the failures of each array.
type PyMatches = (usize, Option<Py<PyByteArray>>, Vec<(usize, Failures)>);

/// Where the chunks of an array lie: below the folder `root`, under keys that are made of
/// coordinates. `names` are the prefix, the separator, the suffix and the key of a scalar; `leading`
/// is how many of the first axes are in a key, all by default.
///
/// `renamed` has keys that are read under another name, while that exists, or are absent.
///
/// `shards`, for files that hold many chunks: chunks along each axis; whether the index is at the
/// start, is big-endian, has a checksum.
#[pyclass(frozen, name = "Addresses")]
pub struct PyAddresses(Arc<Addresses>);

#[pymethods]
impl PyAddresses {
    #[new]
    #[pyo3(signature = (*, root, names, leading=None, shards=None, renamed=None))]
    fn new(
        root: PathBuf,
        names: (String, String, String, String),
        leading: Option<usize>,
        shards: Option<(Vec<usize>, bool, bool, bool)>,
        renamed: Option<Renamed>,
    ) -> PyResult<Self> {
        let (prefix, separator, suffix, scalar) = names;
        let leading = leading.unwrap_or(usize::MAX);
        let keys = Keys { root, prefix, separator, suffix, scalar, leading, renamed: renamed.map(Arc::new) };
        let addresses = match shards {
            None => Addresses::Keyed(keys),
            Some((counts, at_start, big_endian, checksum)) => {
                match ShardFormat::new(counts, at_start, big_endian, checksum) {
                    Some(format) => Addresses::Indexed(keys, format),
                    None => return Err(PyValueError::new_err("a shard of this shape has no chunks, or too many")),
                }
            }
        };
        Ok(Self(Arc::new(addresses)))
    }
}

/// How chunks are coded: the codec, whether a CRC-32C lies behind each chunk (`checksum`), when it is
/// compared (`verify`), and whether chunks lie in files with a head and a trailer (`framed`).
#[pyclass(frozen, name = "Coding")]
pub struct PyCoding(Coding);

#[pymethods]
impl PyCoding {
    #[new]
    #[pyo3(signature = (*, kind, codec="", level=0, filter="none", typesize=1, blocksize=0, frame_checksum=false,
                        checksum=false, verify="first", framed=false))]
    #[allow(clippy::too_many_arguments, reason = "all keywords; made once per array")]
    fn new(
        kind: &str,
        codec: &str,
        level: i32,
        filter: &str,
        typesize: usize,
        blocksize: usize,
        frame_checksum: bool,
        checksum: bool,
        verify: &str,
        framed: bool,
    ) -> PyResult<Self> {
        let compression = match kind {
            "raw" => Compression::Raw,
            "blosc" => {
                let codec = streams::Codec::parse(codec)?;
                let level = u8::try_from(level).unwrap_or(u8::MAX);
                let recipe = Recipe { codec, level, filter: parse_filter(filter)?, typesize, blocksize, gain: 0 };
                Compression::Blosc(if framed { recipe.fast_to_read() } else { recipe })
            }
            "lz4" => Compression::Stream(Whole::Lz4 { acceleration: level }),
            "zlib" => Compression::Stream(Whole::Zlib { level }),
            "zstd" => Compression::Stream(Whole::Zstd { level, checksum: frame_checksum }),
            other => return Err(PyValueError::new_err(format!("kind {other:?} is not native"))),
        };
        Ok(Self(Coding { compression, checksum, verify: Verify::parse(verify)?, framed }))
    }
}

/// Which items an array has: shape, chunks, the order in which a chunk's axes are stored, and the fill
/// value, which is one item. `kind` is NumPy's letter for the type of the items, of which zone maps
/// and comparisons are made. `short` is the chunk, with its rows, that is still as short as it was
/// before the array grew.
#[pyclass(frozen, name = "Grid")]
pub struct PyGrid(Grid);

#[pymethods]
impl PyGrid {
    #[new]
    #[pyo3(signature = (*, shape, chunk, order, fill, kind=None, big_endian=false, short=None))]
    fn new(
        shape: Vec<usize>,
        chunk: Vec<usize>,
        order: Vec<usize>,
        fill: Vec<u8>,
        kind: Option<char>,
        big_endian: bool,
        short: Option<(usize, usize)>,
    ) -> PyResult<Self> {
        let items = kind.and_then(|kind| Items::parse(kind, fill.len(), big_endian));
        Ok(Self(Grid::new(shape, chunk, order, fill, items, short)?))
    }
}

/// An array: where its chunks lie, how they are coded, and which items they hold.
#[pyclass(frozen, name = "Layout")]
pub struct PyLayout(Layout);

#[pymethods]
impl PyLayout {
    #[new]
    fn new(addresses: &PyAddresses, coding: &PyCoding, grid: &PyGrid) -> PyResult<Self> {
        Ok(Self(Layout::new(Arc::clone(&addresses.0), coding.0, grid.0.clone())?))
    }

    /// The same array in another shape, and with another short chunk; nothing is known of its files.
    fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> PyResult<Self> {
        match self.0.resized(shape, short) {
            Some(layout) => Ok(Self(layout)),
            None => Err(PyValueError::new_err("an array in shards, or of another number of axes")),
        }
    }

    /// Read the box that starts at `starts` and goes on by `steps` into `out`, whose shape it has.
    /// Return `None` when every chunk was stored and sound; else how many chunks were absent
    /// (their part holds the fill value), and the chunks that failed. `only` has the numbers, in C
    /// order, of those files that are read; what lies in others is left as it is in `out`.
    #[pyo3(signature = (out, starts, steps, threads, only=None))]
    fn read(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        threads: usize,
        only: Option<Vec<usize>>,
    ) -> PyResult<Option<(usize, Failures)>> {
        self.read_selection(py, out, &starts, &steps, &[], threads, only.as_deref())
    }

    /// The same with index arrays along some axes: `indices` has one, or `None` for an axis that is
    /// a range.
    #[pyo3(signature = (out, starts, steps, indices, threads, only=None))]
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn read_outer(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        indices: Vec<Option<PyBuffer<i64>>>,
        threads: usize,
        only: Option<Vec<usize>>,
    ) -> PyResult<Option<(usize, Failures)>> {
        let indices = indices.iter().map(|axis| axis.as_ref().map(|axis| axis.to_vec(py)).transpose());
        let indices = indices.collect::<PyResult<Vec<_>>>()?;
        self.read_selection(py, out, &starts, &steps, &indices, threads, only.as_deref())
    }

    /// The zone maps of the chunks of these numbers, empty for those without one.
    fn zones(&self, py: Python<'_>, numbers: Vec<usize>) -> PyResult<Vec<Py<PyBytes>>> {
        let zones = detached(py, |kept, interrupt| zones::read(&self.0, &numbers, &mut kept.workspace, interrupt))?;
        Ok(zones.iter().map(|zone| PyBytes::new(py, zone).unbind()).collect())
    }

    /// Copy the rows of these numbers, which ascend, to `out`; return the chunks that failed.
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
            gather::gather(&self.0, &numbers, memory.into_slice(), threads, &mut kept.workspace, interrupt)
        })?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// Say in `out`, a byte for each, of which rows from `start` on all comparisons, each with a
    /// value, are true; return the chunks that failed.
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
            search::compare(&self.0, start, &tests, memory.into_slice(), threads, &mut kept.workspace, interrupt)
        })?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// Count the rows of `spans` of which all comparisons are true, those with this array and with
    /// `others` of the same length; return the count, the numbers of the rows if these are wanted,
    /// and the failures of each array, this one being the first.
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

    /// Encode the files number `first..last` that the box touches, from `values`, each into a new
    /// file in the same folder, under the staged name of `transaction`; return names, sizes and
    /// checksums. Nothing is published.
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
        let memory = buffers::readable(&buffer)?;
        self.check_itemsize(&buffer)?;
        let (staged, found) = detached(py, |kept, interrupt| {
            let selection = Selection::new(&self.0, &starts, &steps, &[], memory)?;
            staging::stage(&selection, first..last, threads, transaction, &mut kept.workspace, interrupt)
        })?;
        let mut chunks = Vec::with_capacity(staged.len());
        for Staged { coords, image } in staged {
            let key = self.0.addresses.key(&coords);
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
    #[allow(clippy::too_many_arguments, reason = "as of its callers")]
    fn read_selection(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: &[usize],
        steps: &[isize],
        indices: &[Option<Vec<i64>>],
        threads: usize,
        only: Option<&[usize]>,
    ) -> PyResult<Option<(usize, Failures)>> {
        let buffer = PyUntypedBuffer::get(out)?;
        let memory = buffers::strided(&buffer)?;
        self.check_itemsize(&buffer)?;
        let Report { absent, failures: found } = detached(py, |kept, interrupt| {
            let selection = Selection::new(&self.0, starts, steps, indices, memory)?;
            read::read(&selection, only, threads, &mut kept.workspace, interrupt)
        })?;
        if absent == 0 && found.is_empty() {
            return Ok(None);
        }
        Ok(Some((absent, failures(py, found)?)))
    }

    fn check_itemsize(&self, buffer: &PyUntypedBuffer) -> PyResult<()> {
        let itemsize = self.0.grid.itemsize;
        if buffer.item_size() != itemsize {
            let text = format!("items have {} bytes, the array's have {itemsize}", buffer.item_size());
            return Err(PyValueError::new_err(text));
        }
        Ok(())
    }
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

fn failures(py: Python<'_>, found: Vec<Failure>) -> PyResult<Failures> {
    let mut failures = Vec::with_capacity(found.len());
    for Failure { coords, key, error } in found {
        let error = PyErr::from(error).into_value(py).into_any();
        failures.push((PyTuple::new(py, coords)?.unbind(), key, error));
    }
    Ok(failures)
}
