//! Checksums of bytes in memory, for Python.

use super::buffers;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

/// Below this size, releasing the GIL costs more than it brings.
const WORTH_DETACHING: usize = 64 << 10;

/// The CRC-32C of some bytes.
#[pyfunction]
pub fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u32> {
    compute(py, data, ::crc32c::crc32c)
}

/// The CRC-32 of some bytes, as in zip and gzip.
#[pyfunction]
pub fn crc32(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u32> {
    compute(py, data, libdeflater::crc32)
}

fn compute(py: Python<'_>, data: &Bound<'_, PyAny>, sum: fn(&[u8]) -> u32) -> PyResult<u32> {
    let buffer = PyUntypedBuffer::get(data)?;
    let bytes = buffers::contiguous(&buffer)?;
    if bytes.len() < WORTH_DETACHING {
        return Ok(sum(bytes));
    }
    Ok(py.detach(|| sum(bytes)))
}
