//! Where Python's memory becomes Rust's: the only place that does.
//!
//! `unsafe`: Python hands out raw pointers. Input that Python cannot change (`bytes`) is
//! borrowed; other compressed input is copied, because another thread may write to it
//! while the decoder, which must see each byte once, runs without the GIL. Data to be
//! compressed is borrowed too, and may change meanwhile: what has to see the same bytes twice copies
//! them. New `bytes` are filled before Python gets them. Other output is the memory of an object that the caller passed to be written: no other thread may
//! use it during the call, which is the caller's promise.

use crate::array::scatter::{Destination, SourceMemory};
use crate::array::selection::Strided;
use crate::interrupt::Interrupt;
use crate::memory::reserved;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyErr, PyTypeInfo, ffi};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bytes that do not change while a call runs.
pub enum Input<'py> {
    Borrowed(Bound<'py, PyBytes>),
    Copied(Vec<u8>),
}

impl<'py> Input<'py> {
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Borrowed(bytes.clone()));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        let data = contiguous(&buffer)?;
        let mut copied = reserved(data.len())?;
        copied.extend_from_slice(data);
        Ok(Self::Copied(copied))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes.as_bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// Below this size, one thread copies faster than several.
const WORTH_SHARING: usize = 4 << 20;

/// The same bytes for Python. Several threads copy them: the system clears new memory page by page when it is
/// written for the first time, which takes longer than the copy.
pub fn copies(py: Python<'_>, parts: &[Option<Vec<u8>>], threads: usize) -> PyResult<Vec<Option<Py<PyBytes>>>> {
    let bytes: usize = parts.iter().flatten().map(Vec::len).sum();
    if bytes < WORTH_SHARING {
        return Ok(parts.iter().map(|part| part.as_ref().map(|part| PyBytes::new(py, part).unbind())).collect());
    }
    let (mut made, mut places) = (reserved(parts.len())?, reserved(parts.len())?);
    for part in parts {
        let Some(part) = part else {
            made.push(None);
            continue;
        };
        // SAFETY: without bytes, the call makes an object of that size, or returns null with an error set.
        let object = unsafe {
            let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), part.len().cast_signed());
            Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
        };
        // SAFETY: the object is one of `bytes`.
        let start = unsafe { ffi::PyBytes_AsString(object.as_ptr()) };
        places.push((AtomicPtr::new(start.cast::<u8>()), part));
        made.push(Some(object.unbind()));
    }
    let next = AtomicUsize::new(0);
    py.detach(|| {
        Interrupt::never().share(threads, &mut (), |()| {
            let Some((start, part)) = places.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(false) };
            // SAFETY: the object has room for the part. Python has not got it yet, and no other thread
            // takes this place.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start.load(Ordering::Relaxed), part.len()) };
            Ok(true)
        })
    })?;
    Ok(made)
}

/// Refuse arrays of objects: their bytes are addresses, and bytes written to them would be taken
/// for addresses.
fn check_plain(buffer: &PyUntypedBuffer) -> PyResult<()> {
    if buffer.format().to_bytes().contains(&b'O') {
        return Err(PyValueError::new_err("the buffer holds Python objects, not plain bytes"));
    }
    Ok(())
}

/// The bytes of a C-contiguous buffer, for as long as it is held.
pub fn contiguous(buffer: &PyUntypedBuffer) -> PyResult<&[u8]> {
    check_plain(buffer)?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer is not C-contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the exporter keeps the memory in place while the buffer is held.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}

/// The memory of a writable C-contiguous buffer.
pub fn writable(buffer: &PyUntypedBuffer) -> PyResult<Destination<'_>> {
    check_plain(buffer)?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("out must be a writable, C-contiguous buffer"));
    }
    let bytes = buffer.len_bytes();
    // An empty buffer may have no address.
    let start = if bytes == 0 { std::ptr::dangling_mut() } else { buffer.buf_ptr().cast() };
    // SAFETY: the exporter keeps the memory in place while the buffer is held, and says that it may
    // be written; that nothing else uses it is the caller's promise.
    Ok(unsafe { Destination::new(start, bytes) })
}

/// The memory of a writable buffer of any strides.
pub fn strided(buffer: &PyUntypedBuffer) -> PyResult<Strided<'_, Destination<'_>>> {
    if buffer.readonly() {
        return Err(PyValueError::new_err("out must be writable"));
    }
    let (start, bytes, origin) = span(buffer)?;
    // SAFETY: as in `writable`.
    let memory = unsafe { Destination::new(start, bytes) };
    Ok(Strided { memory, origin, shape: buffer.shape(), strides: buffer.strides() })
}

/// The memory of a buffer of any strides that is only read.
pub fn readable(buffer: &PyUntypedBuffer) -> PyResult<Strided<'_, SourceMemory<'_>>> {
    let (start, bytes, origin) = span(buffer)?;
    // SAFETY: the exporter keeps the memory in place while the buffer is held.
    let memory = unsafe { SourceMemory::new(start, bytes) };
    Ok(Strided { memory, origin, shape: buffer.shape(), strides: buffer.strides() })
}

/// Where the memory that a buffer spans starts, how many bytes it has, and the offset of the first
/// item in it.
fn span(buffer: &PyUntypedBuffer) -> PyResult<(*mut u8, usize, isize)> {
    check_plain(buffer)?;
    if buffer.suboffsets().is_some() {
        return Err(PyValueError::new_err("buffers with suboffsets are not supported"));
    }
    if buffer.item_count() == 0 {
        return Ok((std::ptr::dangling_mut(), 0, 0));
    }
    let (mut low, mut high) = (0isize, buffer.item_size() as isize);
    for (size, stride) in buffer.shape().iter().zip(buffer.strides()) {
        let reach = (*size as isize - 1).max(0) * stride;
        low += reach.min(0);
        high += reach.max(0);
    }
    // SAFETY: shape and strides are the exporter's own description of its memory.
    let start = unsafe { buffer.buf_ptr().cast::<u8>().offset(low) };
    Ok((start, (high - low) as usize, -low))
}

/// A new `bytes` object of `size` bytes, which `fill` writes before any other code sees it.
pub fn new_bytes<'py>(
    py: Python<'py>,
    size: usize,
    fill: impl FnOnce(Destination<'_>) -> PyResult<()>,
) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: a size without data gives an object whose memory belongs to this call alone
    // until it is returned. `bytes` of size 0 or 1 may be shared, so those are not written.
    let bytes = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size as isize);
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr(py, object).cast_into_unchecked::<PyBytes>()
    };
    debug_assert!(PyBytes::is_exact_type_of(&bytes));
    // SAFETY: the object is `size` bytes long and alive.
    let start = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) }.cast();
    ask_for_large_pages(start, size);
    // SAFETY: the same.
    let destination = unsafe { Destination::new(start, size) };
    fill(destination)?;
    Ok(bytes)
}

/// Ask the system for large pages where much memory is new: a hundredth of the page faults. NumPy does the
/// same for its arrays.
#[cfg(target_os = "linux")]
fn ask_for_large_pages(start: *mut u8, size: usize) {
    const LEAST: usize = 4 << 20;
    const PAGE: usize = 4096;
    if size < LEAST {
        return;
    }
    let skipped = start.align_offset(PAGE);
    // SAFETY: the range lies inside of the memory, and advice changes no contents. A system that
    // does not take it says so, and nothing is lost.
    unsafe { libc::madvise(start.wrapping_add(skipped).cast(), size - skipped, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_: *mut u8, _: usize) {}
