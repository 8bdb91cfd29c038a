//! The plan of a window for a device.

use crate::device::blocks::{Block, Source, Stored, needed};
use crate::device::region::{Part, Region, Steps, Wanted};
use crate::device::window::{Axis, Window, WindowBox, plan};
use crate::python::buffers;
use crate::python::call::detached;
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};

type Ranges = (i64, Vec<(i64, i64)>);
type Indices<'py> = (Bound<'py, PyTuple>, Vec<i64>, Bound<'py, PyTuple>, Vec<i64>, Vec<i64>);
/// Blocks, the block of each stream, the chunk of each block, boxes, the box of each unit, axes, offsets; the sizes
/// of the input and of the room; pieces of chunks: the number of the chunk, below zero for a value of so many bytes,
/// the number of the piece, and where in it they begin and end; chunks that are not taken.
type Tables = (Vec<Py<PyBytes>>, i64, i64, Vec<(i64, usize, usize, usize)>, Vec<usize>);

/// What is wanted of the chunks of a window.
#[pyclass(frozen, name = "WindowPlan")]
pub struct PyWindowPlan {
    itemsize: i64,
    wanted: Vec<Wanted>,
}

#[pymethods]
impl PyWindowPlan {
    /// `sizes` are the decoded bytes of chunks, `None` for chunks that are none of Blosc. `regions` are what is
    /// wanted of each: source indices and strides, target indices and strides, and the lengths of the axes.
    #[new]
    fn new(py: Python<'_>, itemsize: i64, sizes: Vec<Option<i64>>, regions: Vec<Vec<Indices<'_>>>) -> PyResult<Self> {
        if itemsize < 1 || sizes.len() != regions.len() {
            return Err(PyValueError::new_err("each chunk has a size and regions"));
        }
        let wanted = sizes.into_iter().zip(regions).map(|(size, regions)| {
            let regions = regions.iter().map(|indices| region(py, indices)).collect::<PyResult<Vec<_>>>()?;
            Ok(Wanted::new(size, regions, itemsize))
        });
        Ok(Self { itemsize, wanted: wanted.collect::<PyResult<_>>()? })
    }

    /// In how many bytes the items lie, at most, and how many the chunks have.
    fn sizes(&self) -> (i64, i64) {
        let all = self.wanted.iter().filter_map(|wanted| wanted.nbytes).sum();
        (self.wanted.iter().map(Wanted::bytes).sum(), all)
    }

    /// The size of some chunks, and the ranges of their bytes that are needed, by their first bytes.
    fn needed(&self, numbers: Vec<usize>, heads: Vec<Bound<'_, PyBytes>>) -> PyResult<Vec<Option<Ranges>>> {
        let of = |(number, head): (usize, &Bound<'_, PyBytes>)| {
            let Some(wanted) = self.wanted.get(number) else {
                return Err(PyValueError::new_err(format!("there is no chunk {number}")));
            };
            Ok(wanted.nbytes.and_then(|nbytes| needed(head.as_bytes(), nbytes, &wanted.spans)))
        };
        numbers.into_iter().zip(&heads).map(of).collect()
    }

    /// Return the tables of the window. `stored` are the chunks: bytes, or a size with pieces and their places;
    /// `None` for a chunk that the caller decodes. Nothing else may write to `memory` meanwhile.
    fn build(
        &self,
        py: Python<'_>,
        memory: Option<Bound<'_, PyAny>>,
        stored: Vec<Option<Bound<'_, PyAny>>>,
        threads: usize,
    ) -> PyResult<Tables> {
        if stored.len() != self.wanted.len() {
            return Err(PyValueError::new_err("each chunk has stored bytes, or none"));
        }
        let memory = memory.map(|memory| PyUntypedBuffer::get(&memory)).transpose()?;
        let bytes = memory.as_ref().map_or(Ok(&[][..]), buffers::contiguous)?;
        let held = stored.iter().map(|chunk| chunk.as_ref().map(held).transpose()).collect::<PyResult<Vec<_>>>()?;
        let chunks = held.iter().map(|held| held.as_ref().map(viewed).transpose()).collect::<PyResult<Vec<_>>>()?;
        let window = detached(py, |_, interrupt| {
            let window = plan(&self.wanted, self.itemsize, &chunks, bytes, threads, interrupt)?;
            Ok((tables(&window), window))
        });
        let (tables, window) = window?;
        let tables = tables.iter().map(|table| PyBytes::new(py, table).unbind()).collect();
        let pieces = window.pieces.iter().map(|(owner, source)| piece(*owner, *source)).collect();
        Ok((tables, window.input_size, window.room, pieces, window.refused))
    }
}

type Held = (usize, Vec<(i64, PyUntypedBuffer)>);

fn held(chunk: &Bound<'_, PyAny>) -> PyResult<Held> {
    if chunk.is_instance_of::<PyTuple>() {
        let (size, pieces): (usize, Vec<(i64, Bound<'_, PyAny>)>) = chunk.extract()?;
        let pieces = pieces.iter().map(|(start, piece)| Ok((*start, PyUntypedBuffer::get(piece)?)));
        return Ok((size, pieces.collect::<PyResult<_>>()?));
    }
    let buffer = PyUntypedBuffer::get(chunk)?;
    Ok((buffer.len_bytes(), vec![(0, buffer)]))
}

fn viewed((size, pieces): &Held) -> PyResult<Stored<'_>> {
    let pieces = pieces.iter().map(|(start, piece)| Ok((*start, buffers::contiguous(piece)?)));
    Ok(Stored { size: *size, pieces: pieces.collect::<PyResult<_>>()? })
}

fn region(py: Python<'_>, (source, source_strides, target, target_strides, lengths): &Indices<'_>) -> PyResult<Region> {
    let (source, target) = (part(py, source, source_strides, lengths)?, part(py, target, target_strides, lengths)?);
    Ok(Region { source, target })
}

/// The part that indices along each axis select: slices, or positions.
fn part(py: Python<'_>, indices: &Bound<'_, PyTuple>, strides: &[i64], lengths: &[i64]) -> PyResult<Part> {
    if indices.len() != strides.len() || indices.len() != lengths.len() || lengths.iter().any(|length| *length < 1) {
        return Err(PyValueError::new_err("each axis has an index, a stride and a length"));
    }
    let mut found = Part { start: 0, axes: Vec::with_capacity(lengths.len()) };
    for ((index, stride), length) in indices.iter().zip(strides).zip(lengths) {
        let (length, step, table) = if index.is_instance_of::<PySlice>() {
            let of = |name| index.getattr(name).and_then(|value| value.extract::<Option<i64>>());
            let start = of(intern!(py, "start"))?.unwrap_or(0);
            found.start += start * stride;
            (*length, of(intern!(py, "step"))?.unwrap_or(1) * stride, None)
        } else {
            let mut table = PyBuffer::<i64>::get(&index)?.to_vec(py)?;
            if table.len() as i64 != *length {
                return Err(PyValueError::new_err(format!("{} positions along an axis of {length}", table.len())));
            }
            table.iter_mut().for_each(|position| *position *= stride);
            (*length, 0, Some(table))
        };
        found.axes.push(Steps { length, step, table });
    }
    Ok(found)
}

fn piece(owner: usize, source: Source) -> (i64, usize, usize, usize) {
    match source {
        Source::Piece { number, start, end } => (owner as i64, number, start, end),
        Source::Zero => (-1, 0, 0, 1),
        Source::Nan(width) => (-(width as i64), 0, 0, width),
    }
}

/// The tables as bytes, in the order of `Tables`.
fn tables(window: &Window) -> Vec<Vec<u8>> {
    let streams = window.blocks.iter().zip(0u32..).flat_map(|(block, number)| repeated(number, block.streams as usize));
    let units = window.boxes.iter().zip(0u32..).flat_map(|(each, number)| repeated(number, each.units() as usize));
    vec![
        window.blocks.iter().flat_map(of_block).collect(),
        streams.collect(),
        window.chunk_owners.iter().flat_map(|owner| owner.to_le_bytes()).collect(),
        window.boxes.iter().flat_map(of_box).collect(),
        units.collect(),
        window.axes.iter().flat_map(of_axis).collect(),
        window.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect(),
    ]
}

fn repeated(number: u32, count: usize) -> impl Iterator<Item = u8> {
    std::iter::repeat_n(number.to_le_bytes(), count).flatten()
}

fn of_block(block: &Block) -> [u8; 72] {
    let mut raw = [0; 72];
    let words = [block.source, block.source_end, block.target, block.reference, block.direct];
    for (place, word) in raw.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let halves = [block.nbytes, block.typesize, block.streams, block.first_stream];
    for (place, half) in raw[40..56].chunks_exact_mut(4).zip(halves) {
        place.copy_from_slice(&half.to_le_bytes());
    }
    raw[56..60].copy_from_slice(&[block.kind, block.runs, block.partial, block.referring]);
    raw[60..66].copy_from_slice(&block.filters);
    raw[66..].copy_from_slice(&block.metas);
    raw
}

fn of_box(each: &WindowBox) -> [u8; 48] {
    let mut raw = [0; 48];
    for (place, word) in raw.chunks_exact_mut(8).zip([each.source, each.target, each.items]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let halves = [each.first_axis, each.axes, each.itemsize, each.side];
    for (place, half) in raw[24..40].chunks_exact_mut(4).zip(halves) {
        place.copy_from_slice(&half.to_le_bytes());
    }
    raw[40..].copy_from_slice(&each.first_unit.to_le_bytes());
    raw
}

fn of_axis(axis: &Axis) -> [u8; 40] {
    let mut raw = [0; 40];
    let words = [axis.count, axis.source_step, axis.target_step, axis.source_table, axis.target_table];
    for (place, word) in raw.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    raw
}
