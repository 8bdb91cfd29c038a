//! The lock file of a dataset, as readers look at it.

use crate::lookout::Lookout;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A look at the lock file at `path`: magic (8 bytes), sequence number (8), system (8), state (1).
///
/// The number counts only behind the right magic. What the state says is certain only when it is
/// among `settled` and was left by the running `system`.
#[pyclass(frozen, name = "Lookout")]
pub struct PyLookout {
    lookout: Lookout,
    magic: [u8; 8],
    system: [u8; 8],
    settled: Vec<u8>,
}

#[pymethods]
impl PyLookout {
    #[new]
    fn new(path: PathBuf, magic: [u8; 8], system: [u8; 8], settled: Vec<u8>) -> Self {
        Self { lookout: Lookout::new(path), magic, system, settled }
    }

    /// Return the sequence number, and whether the state is certain; `None` without a lock file.
    fn look(&self) -> Option<(u64, bool)> {
        let bytes = self.lookout.look()?;
        let part = |start: usize| <[u8; 8]>::try_from(&bytes[start..start + 8]).ok();
        if part(0)? != self.magic {
            return None;
        }
        let certain = part(16)? == self.system && self.settled.contains(&bytes[24]);
        Some((u64::from_le_bytes(part(8)?), certain))
    }
}
