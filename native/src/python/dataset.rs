//! Datasets whose commits the kernel makes by itself, for Python.

use super::buffers;
use super::call::detached;
use super::layout::PyLayout;
use super::version_probe::PyDocuments;
use crate::array::chunk_commit::{self, Change};
use crate::array::selection::Selection;
use crate::error::Outcome;
use crate::files::kernel_commit::{Dataset, Durable, Expected, Failed};
use crate::files::writer_lock::Record;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::path::PathBuf;

/// The new version, or the error, whether a sync failed, and whether readers see the change.
pub type PyChanged = (Option<u64>, Option<(i32, bool, bool)>);

/// A layout, values, where they start, and steps.
type PyBox<'py> = (Bound<'py, PyLayout>, Bound<'py, PyAny>, Vec<usize>, Vec<isize>);

/// A dataset in a folder: its lock file and its journal, and what the lock file holds.
///
/// `locks` are the bytes that are the lock of writers, and of one that changes the state; `states` those of a
/// writer at work, of one that has synced everything, and of one that has not.
#[pyclass(frozen, name = "Dataset")]
pub struct PyDataset {
    path: PathBuf,
    names: (String, String),
    magic: Vec<u8>,
    system: Vec<u8>,
    locks: (u64, u64),
    states: (u8, u8, u8),
    durable: Durable,
}

#[pymethods]
impl PyDataset {
    #[new]
    fn new(
        path: PathBuf,
        names: (String, String),
        magic: Vec<u8>,
        system: Vec<u8>,
        locks: (u64, u64),
        states: (u8, u8, u8),
    ) -> Self {
        Self { path, names, magic, system, locks, states, durable: Durable::default() }
    }

    /// Assign values to boxes of arrays whose chunks are files, as one commit. Each box is that of a layout, with
    /// its values, where it starts, and the steps by which it goes on.
    ///
    /// There is one box in one chunk, or an append: then `published` are the keys and new values of the documents
    /// that make readers see it, and a box touches one chunk or two. `transaction` is a part of staged names.
    /// `None` where anything is unusual: another writer is at work, or has committed since `version`; the
    /// documents are not as they are known; a chunk cannot be read, or holds nothing but the fill value
    /// afterwards; a folder has to be made. Then nothing has changed.
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn change(
        &self,
        py: Python<'_>,
        boxes: Vec<PyBox<'_>>,
        published: Vec<(Bound<'_, PyString>, Bound<'_, PyBytes>)>,
        transaction: &str,
        documents: &PyDocuments,
        version: u64,
        holder: &[u8],
        devices: Vec<u64>,
        sync: bool,
    ) -> PyResult<Option<PyChanged>> {
        let mut held = Vec::with_capacity(boxes.len());
        for (layout, values, starts, steps) in &boxes {
            let buffer = PyUntypedBuffer::get(values)?;
            layout.get().check_itemsize(&buffer)?;
            held.push((&layout.get().0, buffer, starts, steps));
        }
        let mut given = Vec::with_capacity(boxes.len());
        for (layout, buffer, starts, steps) in &held {
            given.push((*layout, buffers::readable(buffer)?, *starts, *steps));
        }
        let documents_after =
            published.iter().map(|(key, value)| Ok((key.to_str()?, value.as_bytes()))).collect::<PyResult<Vec<_>>>()?;
        let expected = Expected { documents: &documents.0, version, sync };
        let record = self.record(holder, &devices);
        let changed = detached(py, |kept, _| {
            let selections = given
                .into_iter()
                .map(|(layout, memory, starts, steps)| Selection::new(layout, starts, steps, &[], memory))
                .collect::<Outcome<Vec<_>>>()?;
            let change = Change { selections: &selections, documents: &documents_after, transaction };
            Ok(chunk_commit::change(&self.of(&record), &expected, &change, &mut kept.workspace))
        })?;
        Ok(changed.map(handed))
    }
}

impl PyDataset {
    pub(super) fn record<'a>(&'a self, holder: &'a [u8], devices: &'a [u64]) -> Record<'a> {
        let Self { magic, system, locks: (byte, _), states: (busy, ..), .. } = self;
        Record { magic, system, busy: *busy, holder, byte: *byte, devices }
    }

    pub(super) fn of<'a>(&'a self, record: &'a Record<'a>) -> Dataset<'a> {
        let Self { path, names, locks: (_, apply), states: (_, clean, loose), durable, .. } = self;
        let names = (&*names.0, &*names.1);
        Dataset { path, names, record, apply: *apply, clean: *clean, loose: *loose, durable }
    }
}

/// What became of a change, for Python.
pub fn handed(changed: Result<u64, Failed>) -> PyChanged {
    match changed {
        Ok(version) => (Some(version), None),
        Err(failed) => (None, Some((failed.error.raw_os_error(), failed.syncing, failed.decided))),
    }
}
