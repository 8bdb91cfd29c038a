//! Files packed and unpacked, for Python.

use super::buffers::{self, Input};
use super::call::{Report, detached_reporting};
use super::chunk::parse_filter;
use crate::checksum::Checksum;
use crate::chunk::codecs::streams::Codec;
use crate::chunk::encode::Recipe;
use crate::pack::{self, Packing, Places, Plain};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pack the first `size` bytes of the file `source` into chunks of the file `target`, from position
/// `start` on. `recipe` is codec, level, filter, typesize and blocksize. Return where the chunks start
/// and where the last one ends, as 64-bit integers.
#[pyfunction]
#[pyo3(signature = (source, target, size, start, chunk_size, recipe, checksum, threads, report=None))]
#[expect(clippy::too_many_arguments, reason = "what a packed file is, spelled out for Python")]
pub fn pack_file<'py>(
    py: Python<'py>,
    source: RawFd,
    target: RawFd,
    size: u64,
    start: u64,
    chunk_size: usize,
    recipe: (&str, u8, &str, usize, usize),
    checksum: &str,
    threads: usize,
    report: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (codec, level, filter, typesize, blocksize) = recipe;
    let recipe =
        Recipe { codec: Codec::parse(codec)?, level, filter: parse_filter(filter)?, typesize, blocksize, gain: 0 };
    if chunk_size == 0 && size > 0 {
        return Err(PyValueError::new_err("chunk_size is 0, at least 1 is needed"));
    }
    let packing = Packing { chunk_size, recipe, checksum: Checksum::parse(checksum)?, start };
    let (source, target) = (duplicate(source)?, duplicate(target)?);
    let done = AtomicU64::new(0);
    let ends = detached_reporting(py, reporter(report, &done).as_deref(), |_, interrupt| {
        let source = Plain::File { file: &source, size };
        pack::pack(source, &target, &packing, threads, interrupt, &done)
    })?;
    Ok(packed_places(py, &ends))
}

/// Places as 64-bit integers.
pub fn packed_places<'py>(py: Python<'py>, places: &[u64]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    PyBytes::new(py, &bytes)
}

/// Unpack chunks of the file `source` into the file `target`, or only verify them. `stored` says where
/// they start and where the last one ends, `plain` the same of their bytes, as 64-bit integers.
#[pyfunction]
#[pyo3(signature = (source, target, stored, plain, checksum, threads, report=None))]
#[expect(clippy::too_many_arguments, reason = "what a packed file is, spelled out for Python")]
pub fn unpack_file<'py>(
    py: Python<'py>,
    source: RawFd,
    target: Option<RawFd>,
    stored: &Bound<'py, PyAny>,
    plain: &Bound<'py, PyAny>,
    checksum: &str,
    threads: usize,
    report: Option<&Bound<'py, PyAny>>,
) -> PyResult<()> {
    let (stored, plain) = (integers(stored)?, integers(plain)?);
    let places = Places { stored: &stored, plain: &plain };
    let checksum = Checksum::parse(checksum)?;
    let source = duplicate(source)?;
    let target = target.map(duplicate).transpose()?;
    let done = AtomicU64::new(0);
    detached_reporting(py, reporter(report, &done).as_deref(), |_, interrupt| {
        pack::unpack(&source, target.as_ref(), &places, checksum, threads, interrupt, &done)
    })
}

/// Walk over chunks that follow each other in `data`; see `pack::walk`. Return the stored and the
/// decoded bytes of each, as 64-bit integers.
#[pyfunction]
pub fn walk_chunks<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    room: u64,
    gap: u64,
    most: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let input = Input::of(data)?;
    let found = pack::walk(input.bytes(), room, gap, most)?;
    let sizes: Vec<u64> = found.iter().flat_map(|(stored, plain)| [*stored as u64, *plain as u64]).collect();
    Ok(packed_places(py, &sizes))
}

/// What is called now and then: `report` with the number of bytes that are done.
fn reporter<'a>(report: Option<&Bound<'_, PyAny>>, done: &'a AtomicU64) -> Option<Box<Report<'a>>> {
    let report = report?.clone().unbind();
    Some(Box::new(move |py| report.call1(py, (done.load(Ordering::Relaxed),)).map(|_| ())))
}

/// A descriptor of the same open file, which this call closes.
pub fn duplicate(descriptor: RawFd) -> PyResult<File> {
    if descriptor < 0 {
        return Err(PyValueError::new_err("a descriptor is negative"));
    }
    // SAFETY: the caller keeps the descriptor open until the call returns.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

fn integers(object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let buffer = PyUntypedBuffer::get(object)?;
    let (numbers, rest) = buffers::contiguous(&buffer)?.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err("places are 64-bit integers"));
    }
    Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
}
