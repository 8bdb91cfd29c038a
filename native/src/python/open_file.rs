//! An open file, ranges of which are handed to the kernel instead of bytes.

use crate::error::{Outcome, corrupt};
use crate::files::identity::Identity;
use crate::files::{Bytes, Extent};
use crate::interrupt::Interrupt;
use crate::python::call::detached;
use crate::python::pack::duplicate;
use libdeflater::Crc;
use pyo3::prelude::*;
use rustix::fs::fstat;
use std::fs::File;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How much of a range is read at a time.
const PIECE: usize = 256 << 10;

/// A file that stays open as long as this object lives, whatever becomes of the descriptor that it was made
/// from. `(file, start, length)` stands for bytes of it wherever the kernel takes the bytes of a chunk.
#[pyclass(name = "OpenFile", frozen)]
pub struct PyOpenFile {
    file: Arc<File>,
    identity: Option<Identity>,
}

#[pymethods]
impl PyOpenFile {
    #[new]
    fn new(descriptor: RawFd) -> PyResult<Self> {
        let file = duplicate(descriptor)?;
        let identity = Identity::of(&fstat(&file).map_err(std::io::Error::from)?);
        Ok(Self { file: Arc::new(file), identity })
    }

    /// Whether a change of the file from now on would show in its time of change.
    #[getter]
    fn settled(&self) -> bool {
        self.identity.is_some()
    }

    /// The CRC-32 of ranges, each a start and a length; they are shared out over threads.
    fn crc32(&self, py: Python<'_>, ranges: Vec<(u64, usize)>, threads: usize) -> PyResult<Vec<u32>> {
        detached(py, |_, interrupt| self.sums(&ranges, threads, interrupt))
    }
}

/// Reserve room in a file for bytes that will be written there.
#[pyfunction]
pub fn reserve(py: Python<'_>, descriptor: RawFd, start: u64, size: u64) -> PyResult<()> {
    let file = duplicate(descriptor)?;
    py.detach(|| crate::files::reserve(&file, start, size));
    Ok(())
}

impl PyOpenFile {
    pub fn extent<'a>(&self, key: &'a str, offset: u64, length: usize) -> Extent<'a> {
        Extent { key, bytes: Bytes::File(Arc::clone(&self.file)), offset, length, identity: self.identity }
    }

    fn sums(&self, ranges: &[(u64, usize)], threads: usize, interrupt: &Interrupt) -> Outcome<Vec<u32>> {
        let sums = Mutex::new(vec![0; ranges.len()]);
        let next = AtomicUsize::new(0);
        interrupt.share(threads.min(ranges.len()), &mut Vec::new(), |buffer| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(start, length)) = ranges.get(number) else {
                return Ok(false);
            };
            if start.checked_add(length as u64).is_none() {
                return corrupt!("{length} bytes at {start} are wanted");
            }
            let (extent, mut sum) = (self.extent("", start, length), Crc::new());
            for at in (0..length).step_by(PIECE) {
                sum.update(extent.view(at..length.min(at + PIECE), buffer)?);
            }
            sums.lock().expect("no thread panics")[number] = sum.sum();
            Ok(true)
        })?;
        Ok(sums.into_inner().expect("no thread panics"))
    }
}
