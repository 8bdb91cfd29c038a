//! The layout of an array for Python: one call per selection.

use super::buffers::{self, Input};
use super::call::detached;
use super::chunk::parse_filter;
use super::encoded::PyEncodedBytes;
use super::open_file::PyOpenFile;
use super::pack::{duplicate, packed_places};
use crate::array::addresses::{Addresses, Keys, Table};
use crate::array::chunks::{self, ToDecode, ToEncode};
use crate::array::coding::{Coding, Compression};
use crate::array::compaction;
use crate::array::comparison::{Comparison, Test};
use crate::array::copies;
use crate::array::gather;
use crate::array::grid::Grid;
use crate::array::images::{Destination, Made, Outcomes, SPARE};
use crate::array::layout::{Failure, Layout};
use crate::array::moves;
use crate::array::read::{self, Report};
use crate::array::row_values::{self, Assignment};
use crate::array::runs::{self, Offsets, RunAxis, Runs};
use crate::array::search::{self, Condition};
use crate::array::selection::{Files, Selection};
use crate::array::shards::{LevelForm, ShardFormat};
use crate::array::slot_writer::SlotWriter;
use crate::array::staging::{self, Staged};
use crate::array::stored::{Held, HeldChunk};
use crate::array::super_chunks::{self, Patches, SuperChunks};
use crate::array::top_up::{self, Growth};
use crate::array::zones::{self, Items};
use crate::checksum::Checksum;
use crate::chunk::codecs::streams::{self, Whole};
use crate::chunk::encode::Recipe;
use crate::chunk::encode2::{self, Split};
use crate::chunk::filters::pipeline::{BITSHUFFLE, BYTEDELTA, DELTA, SHUFFLE};
use crate::error::Outcome;
use crate::files::verified::{Check, Verify};
use crate::files::{Extent, Renamed, Root};
use crate::pack::{self, Packing, Plain};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyTuple};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Coordinates and key of each chunk; the key of its staged image, or `None` when it holds nothing
/// but the fill value; the image's size and CRC-32.
type StagedChunks = Vec<(Py<PyTuple>, String, Option<String>, usize, u32)>;
/// Coordinates, key and error of each chunk that failed.
type Failures = Vec<(Py<PyTuple>, String, Py<PyAny>)>;

/// The number and the key of a chunk; its image, or `None` when it holds nothing but the fill value; size and
/// CRC-32 of an image that is staged.
type PyImages = Vec<(usize, String, Option<PyImage>, usize, u32)>;

/// A new image of a chunk: the key of a staged file, or the bytes.
#[derive(IntoPyObject)]
pub enum PyImage {
    Staged(String),
    Held(Py<PyBytes>),
}

/// Number, start and size of chunks in a super-chunk file, its end, the CRC-32 of what was written, failures.
type Slotted = (Py<PyBytes>, u64, Option<u32>, Failures);

/// Coordinates and bytes of each encoded chunk; no bytes when it holds nothing but the fill value.
type EncodedChunks = Vec<(Py<PyTuple>, Option<Py<PyBytes>>)>;
/// An array of a search, its comparisons, the alternative that they belong to, and its chunks where the caller
/// hands them over.
type OtherCondition<'py> = (Py<PyLayout>, Comparisons, usize, Option<Bound<'py, PyDict>>);

/// Files; file, start, length and state of each chunk; the items of constant chunks.
type TableColumns = (Vec<String>, PyBuffer<u32>, PyBuffer<u64>, PyBuffer<u64>, PyBuffer<u8>, HashMap<usize, Vec<u8>>);

/// The first chunk of a part, how many it has, prefix and suffix of its keys, and the capacity of a file.
type SuperChunkPart = (usize, usize, String, String, usize);

/// The size of a chunk in front of its checksum, and ranges of it: first byte, and behind the last.
type PyNeeded = Option<(usize, Vec<(usize, usize)>)>;

/// Operators, each with an item to compare with; "==" with any number of them, of which one shall be equal.
type Comparisons = Vec<(String, Vec<u8>)>;
/// How many rows were found, their numbers, and the failures of each array.
type PyMatches = (usize, Option<Py<PyByteArray>>, Vec<(usize, Failures)>);

/// Where the chunks of an array lie: below the folder `root`, under keys that are made of
/// coordinates. `names` are the prefix, the separator, the suffix and the key of a scalar; `leading`
/// is how many of the first axes are in a key, all by default.
///
/// `renamed` has keys that are read under another name, while that exists, or are absent. `parts`, where
/// chunks along the first axis lie in parts that count them from 0: the number of the first chunk of each
/// part, and the prefix of its keys.
///
/// `shards`, for files that hold many chunks: chunks along each axis; whether the index is at the
/// start, is big-endian, has a checksum; then the same of shards that lie in shards.
///
/// `table`, for chunks at any place of files: the files, for each chunk its file, start, length (all
/// ones for all that follows) and state (0 stored, 1 absent, 2 constant, 3 lost), and the items of
/// constant chunks.
///
/// `super_chunks`, for chunks in super-chunk files, in parts: the number of the first chunk of each part and
/// how many it has, what is in front of and behind the number of a file in its key, and how many entries the
/// index of a file has. `patches` are bytes in front of the slots of these files that a journal has: by their
/// keys, each with the place where they start.
///
/// Without a `root`, every call is handed the chunks that it reads (`held`): a dictionary of bytes by
/// the numbers of chunks, in C order; None stands for an absent chunk, a tuple of an item for a chunk
/// of nothing but that item.
#[pyclass(frozen, name = "Addresses")]
pub struct PyAddresses(Arc<Addresses>);

#[pymethods]
impl PyAddresses {
    #[new]
    #[pyo3(signature = (*, root=None, names=None, leading=None, shards=None, renamed=None, table=None,
                        parts=Vec::new(), super_chunks=None, patches=HashMap::new()))]
    #[allow(clippy::too_many_arguments, reason = "all keywords; made once per array")]
    fn new(
        py: Python<'_>,
        root: Option<PathBuf>,
        names: Option<(String, String, String, String)>,
        leading: Option<usize>,
        shards: Option<Vec<LevelForm>>,
        renamed: Option<Renamed>,
        table: Option<TableColumns>,
        parts: Vec<(usize, String)>,
        super_chunks: Option<Vec<SuperChunkPart>>,
        patches: HashMap<String, Patches>,
    ) -> PyResult<Self> {
        if let (Some(root), Some(parts)) = (&root, super_chunks) {
            let part = |(first, count, prefix, suffix, capacity)| super_chunks::Part {
                first,
                count,
                prefix,
                suffix,
                capacity,
            };
            let files = SuperChunks::new(root.clone(), parts.into_iter().map(part).collect(), patches);
            return match files {
                Some(files) => Ok(Self(Arc::new(Addresses::SuperChunks(files)))),
                None => Err(PyValueError::new_err("files without chunks, or parts that do not ascend")),
            };
        }
        if !parts.is_sorted_by_key(|part| part.0) {
            return Err(PyValueError::new_err("the first chunks of the parts do not ascend"));
        }
        if let (Some(root), Some((files, file, start, length, state, constants))) = (&root, table) {
            // Copied once, as they are: no number becomes an object.
            let columns = (file.to_vec(py)?, start.to_vec(py)?, length.to_vec(py)?, state.to_vec(py)?);
            return Ok(Self(Arc::new(Addresses::Table(Table::new(root.clone(), files, columns, constants)?))));
        }
        let (Some(root), Some((prefix, separator, suffix, scalar))) = (root, names) else {
            return Ok(Self(Arc::new(Addresses::Handed)));
        };
        let leading = leading.unwrap_or(usize::MAX);
        let keys = Keys { root, prefix, separator, suffix, scalar, leading, renamed: renamed.map(Arc::new), parts };
        let addresses = match shards {
            None => Addresses::Keyed(keys),
            Some(levels) => match ShardFormat::new(levels) {
                Some(format) => Addresses::Indexed(keys, format),
                None => return Err(PyValueError::new_err("a shard of this shape has no chunks, or too many")),
            },
        };
        Ok(Self(Arc::new(addresses)))
    }
}

/// How chunks are coded: the codec, the kind of checksum that lies behind each chunk, when it is
/// compared (`verify`), whether chunks lie in files with a head and a trailer (`framed`), and whether they
/// lie in slots, with a trailer and spare bytes behind them (`slotted`).
#[pyclass(frozen, name = "Coding")]
pub struct PyCoding(Coding);

#[pymethods]
impl PyCoding {
    #[new]
    #[pyo3(signature = (*, kind, codec="", level=0, filter="none", typesize=1, blocksize=0, frame_checksum=false,
                        checksum="none", verify="first", framed=false, slotted=false))]
    #[allow(clippy::too_many_arguments, reason = "all keywords; made once per array")]
    fn new(
        kind: &str,
        codec: &str,
        level: i32,
        filter: &str,
        typesize: usize,
        blocksize: usize,
        frame_checksum: bool,
        checksum: &str,
        verify: &str,
        framed: bool,
        slotted: bool,
    ) -> PyResult<Self> {
        let compression = match kind {
            "raw" => Compression::Raw,
            "blosc" => {
                let codec = streams::Codec::parse(codec)?;
                let level = u8::try_from(level).unwrap_or(u8::MAX);
                let recipe = Recipe { codec, level, filter: parse_filter(filter)?, typesize, blocksize, gain: 0 };
                Compression::Blosc(if framed || slotted { recipe.fast_to_read() } else { recipe })
            }
            "blosc2" => {
                let codec = streams::Codec::parse(codec)?;
                let (level, filters) = (u8::try_from(level).unwrap_or(u8::MAX), parse_filters(filter)?);
                let (split, dictionary) = (Split::Auto, None);
                Compression::Blosc2(encode2::Recipe { codec, level, filters, typesize, blocksize, split, dictionary })
            }
            "lz4" => Compression::Stream(Whole::Lz4 { acceleration: level }),
            "zlib" => Compression::Stream(Whole::Zlib { level }),
            "zstd" => Compression::Stream(Whole::Zstd { level, checksum: frame_checksum }),
            other => return Err(PyValueError::new_err(format!("kind {other:?} is not native"))),
        };
        let checksum = Checksum::parse(checksum)?;
        Ok(Self(Coding { compression, checksum, verify: Verify::parse(verify)?, framed, slotted }))
    }
}

/// The filters of chunks of Blosc 2 in arrays, in the order in which they are applied.
fn parse_filters(names: &str) -> PyResult<&'static [(u8, u8)]> {
    Ok(match names {
        "delta" => &[(DELTA, 0)],
        "delta+shuffle" => &[(DELTA, 0), (SHUFFLE, 0)],
        "delta+bitshuffle" => &[(DELTA, 0), (BITSHUFFLE, 0)],
        "shuffle+bytedelta" => &[(SHUFFLE, 0), (BYTEDELTA, 0)],
        other => return Err(PyValueError::new_err(format!("filters {other:?} are not native"))),
    })
}

/// Which items an array has: shape, chunks, the order in which a chunk's axes are stored, and the fill
/// value, which is one item. `kind` is NumPy's letter for the type of the items, of which zone maps
/// and comparisons are made. `short` is the chunk, with its rows, that is still as short as it was
/// before the array grew. `parts`, for rows in chunk files: the number of the first chunk and the
/// identity of each array that they are in, which the trailers state. `bounds`, for axes with chunks of
/// several lengths: where these start, and where the last one ends.
#[pyclass(frozen, name = "Grid")]
pub struct PyGrid(Grid);

#[pymethods]
impl PyGrid {
    #[new]
    #[pyo3(signature = (*, shape, chunk, order, fill, kind=None, big_endian=false, short=None, parts=Vec::new(),
                        bounds=Vec::new()))]
    #[allow(clippy::too_many_arguments, reason = "all keywords; made once per array")]
    fn new(
        py: Python<'_>,
        shape: Vec<usize>,
        chunk: Vec<usize>,
        order: Vec<usize>,
        fill: Vec<u8>,
        kind: Option<char>,
        big_endian: bool,
        short: Option<(usize, usize)>,
        parts: Vec<(usize, Option<u64>)>,
        bounds: Vec<Option<PyBuffer<i64>>>,
    ) -> PyResult<Self> {
        let items = kind.and_then(|kind| Items::parse(kind, fill.len(), big_endian));
        let grid = Grid::new(shape, chunk, order, fill, items, short, parts)?;
        if bounds.is_empty() {
            return Ok(Self(grid));
        }
        let bounds = bounds.iter().map(|axis| axis.as_ref().map(|axis| parse_bounds(py, axis)).transpose());
        Ok(Self(grid.cut_at(bounds.collect::<PyResult<_>>()?)?))
    }
}

/// An array: where its chunks lie, how they are coded, and which items they hold.
#[pyclass(frozen, name = "Layout")]
pub struct PyLayout(pub(super) Layout);

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
    #[pyo3(signature = (out, starts, steps, threads, only=None, held=None))]
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn read(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        threads: usize,
        only: Option<Vec<usize>>,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<(usize, Failures)>> {
        self.read_selection(py, out, &starts, &steps, &[], threads, only.as_deref(), held)
    }

    /// The same with index arrays along some axes: `indices` has one, or `None` for an axis that is
    /// a range.
    #[pyo3(signature = (out, starts, steps, indices, threads, only=None, held=None))]
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
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<(usize, Failures)>> {
        let indices = indices.iter().map(|axis| axis.as_ref().map(|axis| axis.to_vec(py)).transpose());
        let indices = indices.collect::<PyResult<Vec<_>>>()?;
        self.read_selection(py, out, &starts, &steps, &indices, threads, only.as_deref(), held)
    }

    /// Find out which bytes `read_outer` needs of chunks beside their first ones: for each of the files of
    /// the numbers `only`, whose first bytes are in `heads`, how many bytes the chunk has in front of its
    /// checksum, and ranges of them; `None` where all are needed. Nothing is written to `out`.
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn needed(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        indices: Vec<Option<PyBuffer<i64>>>,
        only: Vec<usize>,
        heads: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<PyNeeded>> {
        let indices = indices.iter().map(|axis| axis.as_ref().map(|axis| axis.to_vec(py)).transpose());
        let indices = indices.collect::<PyResult<Vec<_>>>()?;
        let buffer = PyUntypedBuffer::get(out)?;
        let memory = buffers::strided(&buffer)?;
        self.check_itemsize(&buffer)?;
        let inputs = heads.iter().map(Input::of).collect::<PyResult<Vec<_>>>()?;
        let heads: Vec<&[u8]> = inputs.iter().map(Input::bytes).collect();
        let found = detached(py, |_, interrupt| {
            let selection = Selection::new(&self.0, &starts, &steps, &indices, memory)?;
            read::needed(&selection, &only, &heads, interrupt)
        })?;
        let ranges = |spans: Vec<Range<usize>>| spans.into_iter().map(|span| (span.start, span.end)).collect();
        Ok(found.into_iter().map(|needed| needed.map(|(length, spans)| (length, ranges(spans)))).collect())
    }

    /// Whether a chunk that starts at byte `start` of the file `key` agreed with its checksum before, so that
    /// parts of it are read without comparing it again.
    fn is_verified(&self, key: &str, start: u64) -> PyResult<bool> {
        let Layout { coding, verified, .. } = &self.0;
        let Some(checksum) = coding.checksum else { return Ok(true) };
        let Some(extent) = self.file(key)?.filter(|extent| extent.length as u64 >= start) else { return Ok(false) };
        let check = verified.check(coding.verify, &extent.narrowed(start, None)?, checksum.size());
        Ok(matches!(check, Check::Skip))
    }

    /// Whether what lies around the blocks of a chunk was read before, so that parts of it are read without
    /// reading that again. The chunk starts at byte `start` of the file `key`.
    fn is_known(&self, key: &str, start: u64) -> PyResult<bool> {
        let (Some(fronts), Some(extent)) = (self.0.fronts(), self.file(key)?) else { return Ok(false) };
        Ok(extent.identity.is_some_and(|identity| fronts.has(identity, start)))
    }

    /// Read runs of a flat array into `out`, all of `length` units; where they begin is an outer product
    /// of `axes`, each with offsets in the payload and in `out`, behind `start`. Offsets are a buffer, or
    /// first, step and count. Return what `read` does; `only` has the numbers of the chunks that are read.
    #[pyo3(signature = (out, axes, start, length, threads, only=None, held=None))]
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn read_runs(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        axes: Vec<(PyOffsets, PyOffsets)>,
        start: usize,
        length: usize,
        threads: usize,
        only: Option<Vec<usize>>,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<(usize, Failures)>> {
        let buffer = PyUntypedBuffer::get(out)?;
        let memory = buffers::writable(&buffer)?;
        self.check_itemsize(&buffer)?;
        let grid = &self.0.grid;
        let axes = axes.into_iter().map(|(sources, targets)| {
            Ok(RunAxis { sources: sources.into_offsets(py)?, targets: targets.into_offsets(py)? })
        });
        let axes = axes.collect::<PyResult<Vec<_>>>()?;
        let held = held.map(HeldInputs::of).transpose()?;
        let held = held.as_ref().map(HeldInputs::chunks);
        let Report { absent, failures: found } = detached(py, |kept, interrupt| {
            let units = grid.shape.iter().product();
            let runs = Runs::new(axes, start, length, units, memory.len() / grid.itemsize)?;
            let workspace = &mut kept.workspace;
            runs::read(&self.0, &runs, &memory, only.as_deref(), held.as_ref(), threads, workspace, interrupt)
        })?;
        if absent == 0 && found.is_empty() {
            return Ok(None);
        }
        Ok(Some((absent, failures(py, found)?)))
    }

    /// The zone maps of the chunks of these numbers, empty for those without one.
    #[pyo3(signature = (numbers, held=None))]
    fn zones(
        &self,
        py: Python<'_>,
        numbers: Vec<usize>,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Py<PyBytes>>> {
        let held = held.map(HeldInputs::of).transpose()?;
        let held = held.as_ref().map(HeldInputs::chunks);
        let zones = detached(py, |kept, interrupt| {
            zones::read(&self.0, &numbers, held.as_ref(), &mut kept.workspace, interrupt)
        })?;
        Ok(zones.iter().map(|zone| PyBytes::new(py, zone).unbind()).collect())
    }

    /// Copy the rows of these numbers, which ascend, to `out`; return the chunks that failed.
    #[pyo3(signature = (out, rows, threads, held=None))]
    fn gather(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        rows: &Bound<'_, PyAny>,
        threads: usize,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Failures>> {
        let held = held.map(HeldInputs::of).transpose()?;
        let held = held.as_ref().map(HeldInputs::chunks);
        let (buffer, numbers) = (PyUntypedBuffer::get(out)?, PyUntypedBuffer::get(rows)?);
        let memory = buffers::writable(&buffer)?;
        // Copied: another thread may change them after they were checked.
        let numbers: Vec<i64> = buffers::contiguous(&numbers)?
            .chunks_exact(8)
            .map(|raw| i64::from_ne_bytes(raw.try_into().expect("eight bytes")))
            .collect();
        let found = detached(py, |kept, interrupt| {
            let (out, workspace) = (memory.into_slice(), &mut kept.workspace);
            gather::gather(&self.0, &numbers, out, held.as_ref(), threads, workspace, interrupt)
        })?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// Say in `out`, a byte for each, of which rows from `start` on all comparisons, each with a
    /// value, are true; return the chunks that failed.
    #[pyo3(signature = (out, start, comparisons, threads, held=None))]
    fn compare(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        start: usize,
        comparisons: Comparisons,
        threads: usize,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Failures>> {
        let held = held.map(HeldInputs::of).transpose()?;
        let held = held.as_ref().map(HeldInputs::chunks);
        let tests = parse_tests(comparisons)?;
        let condition = Condition { layout: &self.0, tests, alternative: 0, held: held.as_ref() };
        let buffer = PyUntypedBuffer::get(out)?;
        let memory = buffers::writable(&buffer)?;
        let found = detached(py, |kept, interrupt| {
            search::compare(&condition, start, memory.into_slice(), threads, &mut kept.workspace, interrupt)
        })?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// Count the rows of `spans` of which all comparisons of an alternative are true, those with this array,
    /// of alternative 0, and with `others` of the same length, whose alternatives ascend; return the count, the numbers of the rows if these are wanted,
    /// and the failures of each array, this one being the first.
    #[pyo3(signature = (comparisons, others, spans, numbers, threads, held=None))]
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn search(
        &self,
        py: Python<'_>,
        comparisons: Comparisons,
        others: Vec<OtherCondition<'_>>,
        spans: Vec<(usize, usize)>,
        numbers: bool,
        threads: usize,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyMatches> {
        let inputs = std::iter::once(held).chain(others.iter().map(|(.., held)| held.as_ref()));
        let inputs = inputs.map(|held| held.map(HeldInputs::of).transpose()).collect::<PyResult<Vec<_>>>()?;
        let held: Vec<_> = inputs.iter().map(|held| held.as_ref().map(HeldInputs::chunks)).collect();
        let tests = parse_tests(comparisons)?;
        let mut conditions = vec![Condition { layout: &self.0, tests, alternative: 0, held: held[0].as_ref() }];
        for ((other, comparisons, alternative, _), held) in others.iter().zip(&held[1..]) {
            let (tests, alternative) = (parse_tests(comparisons.clone())?, *alternative);
            conditions.push(Condition { layout: &other.get().0, tests, alternative, held: held.as_ref() });
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
        self.staged(py, staged, found)
    }

    /// Encode the chunks number `first..last` that the box touches, from `values`; `held` has what is
    /// stored now of those that change in part. Return the coordinates and bytes of each.
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn encode(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        first: usize,
        last: usize,
        threads: usize,
        held: &Bound<'_, PyDict>,
    ) -> PyResult<(EncodedChunks, Failures)> {
        let buffer = PyUntypedBuffer::get(values)?;
        let memory = buffers::readable(&buffer)?;
        self.check_itemsize(&buffer)?;
        let held = HeldInputs::of(held)?;
        let held = held.chunks();
        let (encoded, found) = detached(py, |kept, interrupt| {
            let selection = Selection::new(&self.0, &starts, &steps, &[], memory)?;
            let files = Files::new(None, selection.count(), first..last)?;
            let (workspace, copied) = (&mut kept.workspace, staging::copied);
            staging::encode(&selection, &files, Some(&held), copied, threads, workspace, interrupt)
        })?;
        let (coords, parts): (Vec<_>, Vec<_>) = encoded.into_iter().map(|chunk| (chunk.coords, chunk.kept)).unzip();
        let bytes = buffers::copies(py, &parts, threads)?;
        parts.into_iter().flatten().for_each(|part| SPARE.keep(part));
        let chunks =
            coords.into_iter().zip(bytes).map(|(coords, bytes)| Ok((PyTuple::new(py, coords)?.unbind(), bytes)));
        Ok((chunks.collect::<PyResult<_>>()?, failures(py, found)?))
    }

    /// Copy chunk files, chunk `number + offset` as chunk `number` of the array `target`, for the numbers
    /// `first..last`. With a transaction they are staged in the folder of `target`. Nothing is published.
    #[pyo3(signature = (target, first, last, offset, threads, transaction=None, held=None))]
    #[allow(clippy::too_many_arguments, reason = "both arrays have chunks and places")]
    fn copy_chunks(
        &self,
        py: Python<'_>,
        target: &Bound<'_, Self>,
        first: usize,
        last: usize,
        offset: usize,
        threads: usize,
        transaction: Option<&str>,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(PyImages, Failures)> {
        let held = held.map(HeldInputs::of).transpose()?;
        let (held, target) = (held.as_ref().map(HeldInputs::chunks), &target.get().0);
        let made = detached(py, |kept, interrupt| {
            let (held, workspace) = (held.as_ref(), &mut kept.workspace);
            copies::copy(&self.0, held, target, first..last, offset, transaction, threads, workspace, interrupt)
        })?;
        images(py, target, made, threads)
    }

    /// Stage the encoded chunks `numbers` as files of the array `target`, as they are but for checksums and
    /// trailers; return names, sizes and checksums. Nothing is published.
    fn move_chunks(
        &self,
        py: Python<'_>,
        target: &Bound<'_, Self>,
        numbers: Vec<usize>,
        threads: usize,
        transaction: &str,
    ) -> PyResult<(StagedChunks, Failures)> {
        let target = target.get();
        let (staged, found) = detached(py, |kept, interrupt| {
            moves::stage(&self.0, &target.0, &numbers, threads, transaction, &mut kept.workspace, interrupt)
        })?;
        target.staged(py, staged, found)
    }

    /// Encode the chunks of the rows number `rows` with new values, one for each or one for all; the array is
    /// cut along its first axis only. With a transaction they are staged. Nothing is published.
    #[pyo3(signature = (rows, values, threads, transaction=None, held=None))]
    fn assign_rows(
        &self,
        py: Python<'_>,
        rows: PyBuffer<i64>,
        values: &Bound<'_, PyAny>,
        threads: usize,
        transaction: Option<&str>,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(PyImages, Failures)> {
        // Copied: another thread may change them after they were checked.
        let rows = rows.to_vec(py)?;
        let buffer = PyUntypedBuffer::get(values)?;
        let bytes = buffers::contiguous(&buffer)?;
        self.check_itemsize(&buffer)?;
        let held = held.map(HeldInputs::of).transpose()?;
        let held = held.as_ref().map(HeldInputs::chunks);
        let (layout, values, bytes) = (&self.0, bytes.into(), bytes.len());
        let assignment = Assignment { layout, held: held.as_ref(), rows: &rows, values, bytes };
        let made = detached(py, |kept, interrupt| {
            row_values::assign(&assignment, transaction.into(), threads, &mut kept.workspace, interrupt)
        })?;
        images(py, &self.0, made, threads)
    }

    /// Encode the chunks of a box that lie in one super-chunk file, those of the numbers `only` among the
    /// chunks that it touches, and write them into the open file `target`: into `gaps`, or from `end` on, with
    /// a fraction `spare` of its size behind each. Return the number, the start and the size of each, as 64-bit
    /// integers, with a start of -1 for one that holds nothing but the fill value; the new end; without gaps the
    /// CRC-32 of all bytes from `end` on; and the chunks that failed.
    #[allow(clippy::too_many_arguments, reason = "a box, and the room of a file")]
    fn write_box(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        only: Vec<usize>,
        target: RawFd,
        gaps: Vec<(u64, u64)>,
        end: u64,
        spare: f64,
        threads: usize,
    ) -> PyResult<Slotted> {
        let buffer = PyUntypedBuffer::get(values)?;
        let memory = buffers::readable(&buffer)?;
        self.check_itemsize(&buffer)?;
        let file = duplicate(target)?;
        let writer = SlotWriter::new(&file, gaps.into_iter().map(|(low, high)| low..high), end, spare);
        let (made, found) = detached(py, |kept, interrupt| {
            let selection = Selection::new(&self.0, &starts, &steps, &[], memory)?;
            let files = Files::new(Some(&only), selection.count(), 0..usize::MAX)?;
            let (workspace, write) = (&mut kept.workspace, |image: &[u8]| writer.write(image));
            staging::encode(&selection, &files, None, write, threads, workspace, interrupt)
        })?;
        let places = made.into_iter().map(|each| (self.0.grid.number(&each.coords), each.kept));
        let (end, checksum) = writer.finish()?;
        Ok((pack_places(py, places), end, checksum, failures(py, found)?))
    }

    /// The same for rows that get new values, as of `assign_rows`; their chunks lie in one file.
    #[allow(clippy::too_many_arguments, reason = "rows, and the room of a file")]
    fn write_rows(
        &self,
        py: Python<'_>,
        rows: PyBuffer<i64>,
        values: &Bound<'_, PyAny>,
        target: RawFd,
        gaps: Vec<(u64, u64)>,
        end: u64,
        spare: f64,
        threads: usize,
    ) -> PyResult<Slotted> {
        // Copied: another thread may change them after they were checked.
        let rows = rows.to_vec(py)?;
        let buffer = PyUntypedBuffer::get(values)?;
        let bytes = buffers::contiguous(&buffer)?;
        self.check_itemsize(&buffer)?;
        let file = duplicate(target)?;
        let writer = SlotWriter::new(&file, gaps.into_iter().map(|(low, high)| low..high), end, spare);
        let (layout, values, bytes) = (&self.0, bytes.into(), bytes.len());
        let assignment = Assignment { layout, held: None, rows: &rows, values, bytes };
        let (made, found) = detached(py, |kept, interrupt| {
            row_values::assign(&assignment, Destination::Slots(&writer), threads, &mut kept.workspace, interrupt)
        })?;
        let places = made.into_iter().map(|(number, made)| match made {
            Some(Made::Slotted(place)) => (number, Some(place)),
            _ => (number, None),
        });
        let (end, checksum) = writer.finish()?;
        Ok((pack_places(py, places), end, checksum, failures(py, found)?))
    }

    /// Encode the chunks `first..last` of the array `target`: this one without the rows `removed`, whose
    /// numbers ascend. With a transaction they are staged. Nothing is published.
    #[pyo3(signature = (target, removed, first, last, threads, transaction=None, held=None))]
    #[allow(clippy::too_many_arguments, reason = "both arrays have chunks and places")]
    fn remove_rows(
        &self,
        py: Python<'_>,
        target: &Bound<'_, Self>,
        removed: PyBuffer<i64>,
        first: usize,
        last: usize,
        threads: usize,
        transaction: Option<&str>,
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(PyImages, Failures)> {
        let removed = removed.to_vec(py)?.into_iter().map(|row| usize::try_from(row).unwrap_or(usize::MAX));
        let removed: Vec<usize> = removed.collect();
        let held = held.map(HeldInputs::of).transpose()?;
        let (held, target) = (held.as_ref().map(HeldInputs::chunks), &target.get().0);
        let made = detached(py, |kept, interrupt| {
            let (held, workspace) = (held.as_ref(), &mut kept.workspace);
            let (before, numbers, removed) = (&self.0, first..last, &removed[..]);
            compaction::remove_rows(before, held, target, numbers, removed, transaction, threads, workspace, interrupt)
        })?;
        images(py, target, made, threads)
    }

    /// Decode whole chunks, each into an array of its own shape: `outs` has an array, a number and what
    /// is stored for each. Return the chunks that failed, with their numbers as coordinates.
    fn decode_chunks(
        &self,
        py: Python<'_>,
        outs: Vec<(Bound<'_, PyAny>, usize, Option<Bound<'_, PyAny>>)>,
        threads: usize,
    ) -> PyResult<Option<Failures>> {
        let mut inputs = Vec::with_capacity(outs.len());
        for (out, number, stored) in &outs {
            inputs.push((PyUntypedBuffer::get(out)?, *number, HeldInput::of(stored.as_ref())?));
        }
        let mut chunks = Vec::with_capacity(inputs.len());
        for (buffer, number, stored) in &inputs {
            let out = buffers::writable(buffer)?;
            chunks.push(ToDecode { number: *number, shape: buffer.shape(), stored: stored.chunk(), out });
        }
        let found =
            detached(py, |kept, interrupt| chunks::decode(&self.0, chunks, threads, &mut kept.workspace, interrupt))?;
        if found.is_empty() { Ok(None) } else { failures(py, found).map(Some) }
    }

    /// Encode whole chunks, each an array of its own shape with its number. With `sparse`, a chunk
    /// that holds nothing but the fill value has no bytes.
    fn encode_chunks(
        &self,
        py: Python<'_>,
        arrays: Vec<(Bound<'_, PyAny>, usize)>,
        sparse: bool,
        threads: usize,
    ) -> PyResult<Vec<Option<Py<PyBytes>>>> {
        let mut inputs = Vec::with_capacity(arrays.len());
        for (array, number) in &arrays {
            inputs.push((PyUntypedBuffer::get(array)?, *number));
        }
        let mut chunks = Vec::with_capacity(inputs.len());
        for (buffer, number) in &inputs {
            let items = buffers::contiguous(buffer)?;
            let (shape, bytes) = (buffer.shape(), items.len());
            chunks.push(ToEncode { number: *number, shape, items: items.into(), bytes });
        }
        let made = detached(py, |kept, interrupt| {
            chunks::encode(&self.0, &chunks, sparse, threads, &mut kept.workspace, interrupt)
        })?;
        buffers::copies(py, &made, threads)
    }

    /// The bytes to store for the last chunk of a flat array, which holds `held` items and is stored as
    /// `stored`, and for those behind it, when `added` is appended, and how many bytes each chunk has.
    /// Without `stored` the last chunk is read from its file. `None` where chunks are not Blosc's.
    fn top_up(
        &self,
        py: Python<'_>,
        stored: Option<&Bound<'_, PyAny>>,
        held: usize,
        added: &Bound<'_, PyAny>,
        threads: usize,
    ) -> PyResult<Option<(PyEncodedBytes, Vec<usize>)>> {
        let Layout { coding, grid, .. } = &self.0;
        if grid.chunk.len() != 1 {
            return Err(PyValueError::new_err("only flat arrays are topped up"));
        }
        let (input, buffer) = (stored.map(Input::of).transpose()?, PyUntypedBuffer::get(added)?);
        let (stored, added) = (input.as_ref().map(Input::bytes), buffers::contiguous(&buffer)?);
        let (held, chunk) = (held.saturating_mul(grid.itemsize), grid.chunk[0].saturating_mul(grid.itemsize));
        detached(py, |kept, interrupt| {
            let workspace = &mut kept.workspace;
            let (mut body, memory) =
                (std::mem::take(&mut workspace.buffers.body), std::mem::take(&mut workspace.framed));
            let stored = match stored {
                Some(stored) => stored,
                None => top_up::read_last(&self.0, held, &mut body)?,
            };
            let growth = Growth { stored, held, added, chunk };
            let Some(topped) = top_up::top_up(coding, &growth, memory, threads, workspace, interrupt)? else {
                return Ok(None);
            };
            let sizes = topped.sizes(coding);
            let made = PyEncodedBytes::new(sizes.iter().sum(), |mut out| {
                for (number, size) in sizes.iter().enumerate() {
                    let (chunk, rest) = out.split_at_mut(*size);
                    topped.write(coding, number, chunk, &mut workspace.scratch)?;
                    out = rest;
                }
                Ok(())
            })?;
            workspace.framed = topped.into_memory();
            workspace.buffers.body = body;
            Ok(Some((made, sizes)))
        })
    }

    /// Encode the chunks of a flat array from its items, `items`, and write them one behind the other
    /// into the file `target`, from position `start` on. Return where they start and where the last one
    /// ends, as 64-bit integers.
    fn write_chunks<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        target: RawFd,
        start: u64,
        threads: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Layout { coding, grid, .. } = &self.0;
        let Compression::Blosc(recipe) = coding.compression else {
            return Err(PyValueError::new_err("only Blosc chunks are written from memory"));
        };
        if grid.chunk.len() != 1 || coding.framed {
            return Err(PyValueError::new_err("only the chunks of flat arrays are written from memory"));
        }
        let buffer = PyUntypedBuffer::get(items)?;
        let source = Plain::Memory(buffers::contiguous(&buffer)?);
        let chunk_size = grid.chunk[0].saturating_mul(grid.itemsize);
        let packing = Packing { chunk_size, recipe, checksum: coding.checksum, start };
        let target = duplicate(target)?;
        let ends =
            detached(py, |_, interrupt| pack::pack(source, &target, &packing, threads, interrupt, &AtomicU64::new(0)))?;
        Ok(packed_places(py, &ends))
    }
}

/// Encode all chunks that boxes of several arrays touch, each into a new file in the same folder, under
/// the staged name of `transaction`. Each box is a layout, the values, and where they begin; its step is
/// one. Return names, sizes and checksums for each array. Nothing is published.
#[pyfunction]
pub fn stage_arrays(
    py: Python<'_>,
    boxes: Vec<(Py<PyLayout>, Bound<'_, PyAny>, Vec<usize>)>,
    threads: usize,
    transaction: &str,
) -> PyResult<Vec<(StagedChunks, Failures)>> {
    let mut buffers = Vec::with_capacity(boxes.len());
    for (layout, values, _) in &boxes {
        let buffer = PyUntypedBuffer::get(values)?;
        layout.get().check_itemsize(&buffer)?;
        buffers.push(buffer);
    }
    let mut inputs = Vec::with_capacity(boxes.len());
    for ((layout, _, starts), buffer) in boxes.iter().zip(&buffers) {
        inputs.push((&layout.get().0, starts, buffers::readable(buffer)?));
    }
    let found = detached(py, |kept, interrupt| {
        let cut = |(layout, starts, memory): (_, &Vec<usize>, _)| {
            Selection::new(layout, starts, &vec![1; starts.len()], &[], memory)
        };
        let selections = inputs.into_iter().map(cut).collect::<Outcome<Vec<_>>>()?;
        staging::stage_all(&selections, threads, transaction, &mut kept.workspace, interrupt)
    })?;
    let each = boxes.iter().zip(found);
    each.map(|((layout, ..), (staged, found))| layout.get().staged(py, staged, found)).collect()
}

/// The number, start and size of new images; the start of a chunk without one is -1.
fn pack_places(py: Python<'_>, places: impl Iterator<Item = (usize, Option<Range<u64>>)>) -> Py<PyBytes> {
    let mut bytes = Vec::new();
    for (number, place) in places {
        let (start, size) = place.map_or((-1, 0), |place| (place.start as i64, (place.end - place.start) as i64));
        [number as i64, start, size].iter().for_each(|each| bytes.extend(each.to_le_bytes()));
    }
    PyBytes::new(py, &bytes).unbind()
}

/// What a call is handed of one chunk.
enum HeldInput<'py> {
    Stored(Input<'py>),
    Numbered(Input<'py>, u64),
    Absent,
    Constant(Vec<u8>),
    Pieces(usize, Vec<(usize, Input<'py>)>),
    File(Bound<'py, PyOpenFile>, u64, usize),
}

impl<'py> HeldInput<'py> {
    fn of(object: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        match object {
            None => Ok(Self::Absent),
            Some(object) if object.is_none() => Ok(Self::Absent),
            Some(object) => match object.cast::<PyTuple>() {
                Ok(item) if item.len() == 1 => Ok(Self::Constant(item.extract::<(Vec<u8>,)>()?.0)),
                Ok(range) if range.len() == 3 => {
                    let (file, start, length) = range.extract()?;
                    Ok(Self::File(file, start, length))
                }
                Ok(numbered) if numbered.len() == 2 && numbered.get_item(0)?.is_instance_of::<PyBytes>() => {
                    Ok(Self::Numbered(Input::of(&numbered.get_item(0)?)?, numbered.get_item(1)?.extract()?))
                }
                Ok(parts) => {
                    let (length, pieces) = parts.extract::<(usize, Vec<(usize, Bound<'py, PyAny>)>)>()?;
                    let inputs = pieces.iter().map(|(start, bytes)| Ok((*start, Input::of(bytes)?)));
                    Ok(Self::Pieces(length, inputs.collect::<PyResult<_>>()?))
                }
                Err(_) => Ok(Self::Stored(Input::of(object)?)),
            },
        }
    }

    fn chunk(&self) -> HeldChunk<'_> {
        match self {
            Self::Stored(input) => HeldChunk::Stored(input.bytes()),
            Self::Numbered(input, state) => HeldChunk::Numbered(input.bytes(), *state),
            Self::Absent => HeldChunk::Absent,
            Self::Constant(item) => HeldChunk::Constant(item),
            Self::Pieces(length, pieces) => {
                HeldChunk::Pieces(*length, pieces.iter().map(|(start, input)| (*start, input.bytes())).collect())
            }
            Self::File(file, start, length) => HeldChunk::File(file.get().extent("", *start, *length)),
        }
    }
}

/// What a call is handed of many chunks, by their numbers.
struct HeldInputs<'py>(Vec<(usize, HeldInput<'py>)>);

impl<'py> HeldInputs<'py> {
    fn of(chunks: &Bound<'py, PyDict>) -> PyResult<Self> {
        let mut inputs = Vec::with_capacity(chunks.len());
        for (number, chunk) in chunks {
            inputs.push((number.extract()?, HeldInput::of(Some(&chunk))?));
        }
        Ok(Self(inputs))
    }

    fn chunks(&self) -> Held<'_> {
        self.0.iter().map(|(number, input)| (*number, input.chunk())).collect::<HashMap<_, _>>()
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
        held: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<(usize, Failures)>> {
        let buffer = PyUntypedBuffer::get(out)?;
        let memory = buffers::strided(&buffer)?;
        self.check_itemsize(&buffer)?;
        let held = held.map(HeldInputs::of).transpose()?;
        let held = held.as_ref().map(HeldInputs::chunks);
        let Report { absent, failures: found } = detached(py, |kept, interrupt| {
            let selection = Selection::new(&self.0, starts, steps, indices, memory)?;
            read::read(&selection, only, held.as_ref(), threads, &mut kept.workspace, interrupt)
        })?;
        if absent == 0 && found.is_empty() {
            return Ok(None);
        }
        Ok(Some((absent, failures(py, found)?)))
    }

    /// What was staged of the array, and the failures of its chunks.
    fn staged(&self, py: Python<'_>, staged: Vec<Staged>, found: Vec<Failure>) -> PyResult<(StagedChunks, Failures)> {
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

    /// The file of a key; `None` where it does not exist, or the caller hands over the chunks.
    fn file<'k>(&self, key: &'k str) -> PyResult<Option<Extent<'k>>> {
        Ok(match &*self.0.addresses {
            Addresses::Keyed(keys) | Addresses::Indexed(keys, _) => keys.extent(key)?,
            Addresses::Table(table) => Root::extent_in(&table.root, key)?,
            Addresses::SuperChunks(files) => Root::extent_in(&files.root, key)?,
            Addresses::Handed => None,
        })
    }

    pub(super) fn check_itemsize(&self, buffer: &PyUntypedBuffer) -> PyResult<()> {
        let itemsize = self.0.grid.itemsize;
        if buffer.item_size() != itemsize {
            let text = format!("items have {} bytes, the array's have {itemsize}", buffer.item_size());
            return Err(PyValueError::new_err(text));
        }
        Ok(())
    }
}

/// Offsets of runs along an axis.
#[derive(FromPyObject)]
enum PyOffsets {
    Range((i64, i64, usize)),
    List(PyBuffer<i64>),
}

impl PyOffsets {
    fn into_offsets(self, py: Python<'_>) -> PyResult<Offsets> {
        Ok(match self {
            Self::Range((first, step, count)) => Offsets::Range { first, step, count },
            // Copied: another thread may change them after they were checked.
            Self::List(offsets) => Offsets::List(offsets.to_vec(py)?),
        })
    }
}

/// The bounds of chunks; a negative one becomes so large that they do not ascend to it.
fn parse_bounds(py: Python<'_>, axis: &PyBuffer<i64>) -> PyResult<Arc<[usize]>> {
    Ok(axis.to_vec(py)?.into_iter().map(|bound| usize::try_from(bound).unwrap_or(usize::MAX)).collect())
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

fn images(py: Python<'_>, target: &Layout, (made, found): Outcomes, threads: usize) -> PyResult<(PyImages, Failures)> {
    let (mut images, mut held) = (Vec::with_capacity(made.len()), Vec::new());
    for (number, image) in made {
        let key = target.addresses.key(&[number]);
        let (staged, bytes) = match image {
            None => (None, None),
            Some(Made::Staged(image)) => (Some(image), None),
            Some(Made::Held(bytes)) => (None, Some(bytes)),
            Some(Made::Slotted(_)) => return Err(PyValueError::new_err("this image lies in a file of many")),
        };
        images.push((number, key, staged));
        held.push(bytes);
    }
    let copies = buffers::copies(py, &held, threads)?;
    held.into_iter().flatten().for_each(|bytes| SPARE.keep(bytes));
    let images = images.into_iter().zip(copies).map(|((number, key, staged), bytes)| match staged {
        Some(image) => (number, key, Some(PyImage::Staged(image.key)), image.size, image.checksum),
        None => (number, key, bytes.map(PyImage::Held), 0, 0),
    });
    Ok((images.collect(), failures(py, found)?))
}

fn failures(py: Python<'_>, found: Vec<Failure>) -> PyResult<Failures> {
    let mut failures = Vec::with_capacity(found.len());
    for Failure { coords, key, error } in found {
        let error = PyErr::from(error).into_value(py).into_any();
        failures.push((PyTuple::new(py, coords)?.unbind(), key, error));
    }
    Ok(failures)
}
