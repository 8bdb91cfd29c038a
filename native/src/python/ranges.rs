//! Files opened below a folder, and ranges of them read into memory of the caller.

use crate::files::ranges::{self, Failure, Range};
use crate::python::buffers;
use crate::python::call::detached;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};

/// Open regular files below the open folder `directory`; the caller closes them. `None` for whatever else a key
/// names: only opening it alone says what it is.
#[pyfunction]
pub fn open_files(py: Python<'_>, directory: RawFd, keys: Vec<String>) -> PyResult<Vec<Option<(RawFd, u64)>>> {
    let folder = borrowed(directory)?;
    let files = py.detach(|| ranges::open(folder, &keys));
    Ok(files.into_iter().map(|file| file.map(|(file, size)| (file.into_raw_fd(), size))).collect())
}

/// Read ranges of open files, each a descriptor, a start and a size, into memory, one behind the other, by several
/// threads. Return the first that cannot be read: its number, how many bytes could be, and `errno`, or `None` where
/// the file has ended.
#[pyfunction]
pub fn read_ranges(
    py: Python<'_>,
    wanted: Vec<(RawFd, u64, usize)>,
    memory: &Bound<'_, PyAny>,
    threads: usize,
) -> PyResult<Option<Failure>> {
    let ranges = wanted
        .into_iter()
        .map(|(file, start, size)| Ok(Range { file: borrowed(file)?, start, size }))
        .collect::<PyResult<Vec<_>>>()?;
    let buffer = PyUntypedBuffer::get(memory)?;
    let destination = buffers::writable(&buffer)?;
    let total = ranges.iter().try_fold(0usize, |sum, range| sum.checked_add(range.size));
    if total.is_none_or(|total| total > destination.len()) {
        return Err(PyValueError::new_err(format!("the memory has {} bytes, the ranges have more", destination.len())));
    }
    detached(py, |_, interrupt| ranges::read(&ranges, destination.into_slice(), threads, interrupt))
}

fn borrowed<'a>(descriptor: RawFd) -> PyResult<BorrowedFd<'a>> {
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!("{descriptor} is no descriptor")));
    }
    // SAFETY: the caller keeps the file open during the call. A descriptor that is not open is an error of the
    // system, and no memory depends on it.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}
