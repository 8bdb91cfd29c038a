//! Checksums of bytes in memory, for Python.

use super::buffers;
use super::call::detached;
use crate::checksum::{Checksum, Digest, joined_crc32};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this size, releasing the GIL costs more than it brings.
const WORTH_DETACHING: usize = 64 << 10;

/// The CRC-32C of some bytes.
#[pyfunction]
pub fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u32> {
    compute(py, data, ::crc32c::crc32c)
}

/// The CRC-32 of some bytes, as in zip and gzip, continued from that of the bytes before them.
#[pyfunction]
#[pyo3(signature = (data, before=0))]
pub fn crc32(py: Python<'_>, data: &Bound<'_, PyAny>, before: u32) -> PyResult<u32> {
    let buffer = PyUntypedBuffer::get(data)?;
    let behind = compute(py, data, libdeflater::crc32)?;
    Ok(if before == 0 { behind } else { joined_crc32(before, behind, buffer.len_bytes()) })
}

/// The CRC-32 of bytes in two parts, given that of each and the length of the second.
#[pyfunction]
pub fn join_crc32(before: u32, behind: u32, length: usize) -> u32 {
    joined_crc32(before, behind, length)
}

/// The checksums of several buffers, as they are stored; the buffers are shared out over threads.
#[pyfunction]
pub fn digests(
    py: Python<'_>,
    kind: &str,
    buffers: Vec<Bound<'_, PyAny>>,
    threads: usize,
) -> PyResult<Vec<Py<PyBytes>>> {
    let Some(kind) = Checksum::parse(kind)? else {
        return Err(PyValueError::new_err("no checksum is to be computed"));
    };
    let held = buffers.iter().map(PyUntypedBuffer::get).collect::<PyResult<Vec<_>>>()?;
    let inputs = held.iter().map(buffers::contiguous).collect::<PyResult<Vec<_>>>()?;
    let bytes: usize = inputs.iter().map(|input| input.len()).sum();
    let found: Vec<Option<Digest>> = if bytes < WORTH_DETACHING {
        inputs.iter().map(|input| Some(kind.digest(input))).collect()
    } else {
        detached(py, |_, interrupt| {
            let found = Mutex::new(vec![None; inputs.len()]);
            let next = AtomicUsize::new(0);
            // As many at once as take less time together, but some for each thread.
            let run = kind.together().min(inputs.len().div_ceil(threads.max(1))).max(1);
            interrupt.share(threads.min(inputs.len()), &mut (), |()| {
                let first = next.fetch_add(run, Ordering::Relaxed);
                let Some(some) = inputs.get(first..inputs.len().min(first + run)) else {
                    return Ok(false);
                };
                let digests = kind.digests(some);
                for (place, digest) in found.lock().expect("no thread panics")[first..].iter_mut().zip(digests) {
                    *place = Some(digest);
                }
                Ok(!some.is_empty())
            })?;
            Ok(found.into_inner().expect("no thread panics"))
        })?
    };
    Ok(found.iter().flatten().map(|digest| PyBytes::new(py, digest.bytes()).unbind()).collect())
}

fn compute(py: Python<'_>, data: &Bound<'_, PyAny>, sum: fn(&[u8]) -> u32) -> PyResult<u32> {
    let buffer = PyUntypedBuffer::get(data)?;
    let bytes = buffers::contiguous(&buffer)?;
    if bytes.len() < WORTH_DETACHING {
        return Ok(sum(bytes));
    }
    Ok(py.detach(|| sum(bytes)))
}
