//! Super-chunk files that a writer knows, for Python.

use super::buffers;
use super::call::detached;
use super::dataset::{PyChanged, PyDataset, handed};
use super::layout::PyLayout;
use super::version_probe::PyDocuments;
use crate::array::selection::Selection;
use crate::array::slot_file::{Change, SlotFile};
use crate::files::kernel_commit::Expected;
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The head and the index, the lengths of all images as 64-bit integers, and the size of the file.
type PyKnown<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64);

/// The file `key`, whose first chunk has the number `first`, as of one version of its dataset: its head and
/// index, how many bytes the image of each entry has, and its size.
#[pyclass(frozen, name = "SlotFile")]
pub struct PySlotFile(SlotFile);

#[pymethods]
impl PySlotFile {
    #[new]
    fn new(
        py: Python<'_>,
        key: String,
        first: usize,
        index: Vec<u8>,
        lengths: PyBuffer<i64>,
        size: u64,
    ) -> PyResult<Self> {
        let lengths = lengths.to_vec(py)?.into_iter().map(|length| u64::try_from(length).unwrap_or(u64::MAX));
        Ok(Self(SlotFile::new(key, first, index, lengths.collect(), size)?))
    }

    /// Return what is known of the file now; `None` where another program has changed it, and in a fork that
    /// cannot tell.
    fn known<'py>(&self, py: Python<'py>) -> Option<PyKnown<'py>> {
        let (index, lengths, size) = self.0.known()?;
        let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_ne_bytes()).collect();
        Some((PyBytes::new(py, &index), PyBytes::new(py, &lengths), size))
    }

    /// Return how many bytes of the slots no image uses, and how many there are; `None` as `known` does.
    fn free(&self) -> Option<(u64, u64)> {
        self.0.free()
    }

    /// Change the chunk in which the box lies that starts at `starts` and goes on by `steps`, as one commit.
    ///
    /// `None` where anything is unusual: another writer is at work, or has committed since `version`; the
    /// documents or the file are not as they are known; the chunk is not stored, or is not stored any more. Then
    /// nothing has changed.
    #[allow(clippy::too_many_arguments, reason = "a flat call is what keeps it in microseconds")]
    fn change(
        &self,
        py: Python<'_>,
        layout: &PyLayout,
        values: &Bound<'_, PyAny>,
        starts: Vec<usize>,
        steps: Vec<isize>,
        spare: f64,
        dataset: &PyDataset,
        documents: &PyDocuments,
        version: u64,
        holder: &[u8],
        devices: Vec<u64>,
        sync: bool,
    ) -> PyResult<Option<PyChanged>> {
        let buffer = PyUntypedBuffer::get(values)?;
        let memory = buffers::readable(&buffer)?;
        layout.check_itemsize(&buffer)?;
        let expected = Expected { documents: &documents.0, version, sync };
        let record = dataset.record(holder, &devices);
        let changed = detached(py, |kept, _| {
            let selection = Selection::new(&layout.0, &starts, &steps, &[], memory)?;
            if selection.count() != 1 {
                return Ok(None);
            }
            let change = Change { selection: &selection, spare };
            Ok(self.0.change(&dataset.of(&record), &expected, &change, &mut kept.workspace))
        })?;
        Ok(changed.map(handed))
    }
}
