//! Encoded bytes for Python, in memory that is used again: the system clears new memory page by page,
//! which takes longer than to encode what is stored there.
//!
//! `unsafe`: Python gets a view of an object's memory, and a view keeps its object alive.

use crate::error::Outcome;
use crate::memory::{Spare, grow};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

static SPARE: Spare = Spare::new(16 << 20);

/// Bytes that never change; `memoryview` shows them.
#[pyclass(frozen, name = "EncodedBytes", module = "ingot._native")]
pub struct PyEncodedBytes {
    memory: Vec<u8>,
    size: usize,
}

impl PyEncodedBytes {
    /// `size` bytes, which `fill` writes.
    pub fn new(size: usize, fill: impl FnOnce(&mut [u8]) -> Outcome<()>) -> Outcome<Self> {
        let mut made = Self { memory: SPARE.take(), size };
        fill(grow(&mut made.memory, size)?)?;
        Ok(made)
    }
}

#[pymethods]
impl PyEncodedBytes {
    fn __len__(&self) -> usize {
        self.size
    }

    /// # Safety
    ///
    /// Python calls this with a view that is its own to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let own = slf.get();
        // SAFETY: the view keeps the object alive, whose memory is neither changed nor moved. It is
        // read-only, so that nothing is written through the pointer.
        let filled = unsafe {
            let start = own.memory.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, own.size as isize, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

impl Drop for PyEncodedBytes {
    fn drop(&mut self) {
        SPARE.keep(std::mem::take(&mut self.memory));
    }
}
