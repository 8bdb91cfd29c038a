//! The lock file of a dataset, as readers look at it.

use crate::files::Root;
use crate::files::small_files::{self, Piece};
use crate::files::version_probe::{Lookout, SEEN};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// What several files hold, `None` for those that are absent.
type Found<'py> = Vec<Option<Bound<'py, PyBytes>>>;

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
    fn new(path: PathBuf, magic: &[u8], system: &[u8], settled: &[u8]) -> PyResult<Self> {
        let settled = settled.to_vec();
        Ok(Self { lookout: Lookout::new(path), magic: magic.try_into()?, system: system.try_into()?, settled })
    }

    /// Return the sequence number, and whether the state is certain; `None` without a lock file.
    fn look(&self) -> Option<(u64, bool)> {
        self.parse(&self.lookout.look()?)
    }

    /// Tell whether a look now would give `number`, for certain.
    fn confirms(&self, number: Option<u64>) -> bool {
        match self.look() {
            Some((found, certain)) => certain && number == Some(found),
            None => number.is_none(),
        }
    }

    /// Tell whether a look would no longer give `number`; what takes longer to find out is not.
    fn moved(&self, number: Option<u64>) -> bool {
        let seen = self.lookout.last_seen().and_then(|bytes| self.parse(&bytes));
        seen.is_some_and(|(found, _)| number != Some(found))
    }

    /// Read small files below the folder `root` while nobody writes: the sequence number, and what
    /// they hold. `None` where that cannot be had at a glance: a commit is not settled (or, without
    /// a lock file, something has the name of the `journal`), a file is large or no plain file, or
    /// one of the names `above` is there in the folder above, to which this one may belong.
    fn glance<'py>(
        &self,
        py: Python<'py>,
        root: PathBuf,
        journal: &str,
        above: Vec<String>,
        pieces: Vec<Piece>,
    ) -> Option<(Option<u64>, Found<'py>)> {
        let (number, found) = py.detach(|| {
            let root = Root::open(&root).ok()??;
            let look = || self.lookout.look_inside(root.folder()).and_then(|bytes| self.parse(&bytes));
            let before = look();
            if before.is_some_and(|(_, certain)| !certain) {
                return None;
            }
            if before.is_none() && root.may_have(journal) {
                return None;
            }
            if above.iter().any(|name| root.may_have(&format!("../{name}"))) {
                return None;
            }
            let found = small_files::read(&root, &pieces).ok()?;
            (look() == before).then(|| (before.map(|(number, _)| number), found))
        })?;
        Some((number, bytes_of(py, found)))
    }
}

impl PyLookout {
    fn parse(&self, bytes: &[u8; SEEN]) -> Option<(u64, bool)> {
        let part = |start: usize| <[u8; 8]>::try_from(&bytes[start..start + 8]).ok();
        if part(0)? != self.magic {
            return None;
        }
        let certain = part(16)? == self.system && self.settled.contains(&bytes[24]);
        Some((u64::from_le_bytes(part(8)?), certain))
    }
}

/// Read short pieces of files below the folder `root`; `None` for absent ones. `None` altogether
/// when a piece is large, or anything is not as it should be: the longer way says what.
#[pyfunction]
pub fn read_pieces<'py>(py: Python<'py>, root: PathBuf, pieces: Vec<Piece>) -> Option<Found<'py>> {
    let found = py.detach(|| small_files::read(&Root::open(&root).ok()??, &pieces).ok())?;
    Some(bytes_of(py, found))
}

fn bytes_of(py: Python<'_>, found: Vec<Option<Vec<u8>>>) -> Found<'_> {
    found.into_iter().map(|bytes| bytes.map(|bytes| PyBytes::new(py, &bytes))).collect()
}
