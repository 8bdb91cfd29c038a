//! The beginning of a writer's turn, and the steps of a commit, for Python.

use super::buffers::contiguous;
use crate::files::Root;
use crate::files::commit::{self, End, LockPlaces, Op, State, Step};
use crate::files::writer_lock::{self, Left, Record};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::path::PathBuf;

/// The open folder, the open lock file, the version number, the state that was left, the stager, and
/// whether there may be a journal.
type PyTurn = (RawFd, RawFd, u64, u8, u64, bool);

/// Begin a turn in the folder `root`: take the lock and record `holder`. `None` where that is not as
/// usual; then nothing has changed.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what a lock file holds, spelled out for Python")]
pub fn begin_turn(
    py: Python<'_>,
    root: PathBuf,
    names: (&str, &str),
    magic: &[u8],
    system: &[u8],
    busy: u8,
    holder: &[u8],
    byte: u64,
    devices: Vec<u64>,
) -> Option<PyTurn> {
    let record = Record { magic, system, busy, holder, byte, devices: &devices };
    let turn = py.detach(|| writer_lock::begin(&root, names, &record, |_| true))?;
    let (folder, lock) = (turn.folder.into_raw_fd(), turn.lock.into_raw_fd());
    let Left { sequence, state, stager, journal } = turn.left;
    Some((folder, lock, sequence, state, stager, journal))
}

/// An operation, a key, a staged key, a position, and data.
type PyStep<'py> = (u8, Bound<'py, PyAny>, Bound<'py, PyAny>, u64, Bound<'py, PyAny>);

/// How many steps are done, the folders that are not synced, the version number, whether the apply
/// lock is held, the open files with their keys, and the error with the key at which it happened.
type PyState = (usize, Vec<String>, u64, bool, Vec<(RawFd, String)>, Option<(i32, Option<String>)>);

/// Run steps from number `done` on, below the open folder `directory`, with the lock file `lock`.
///
/// All steps are done, or the next one is left to the caller, or it failed. The descriptors are the
/// caller's, and open until the call returns.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the state of a run, spelled out for Python")]
pub fn run_steps(
    py: Python<'_>,
    directory: RawFd,
    lock: RawFd,
    places: (u64, u64, u64),
    steps: Vec<PyStep<'_>>,
    done: usize,
    changed: Vec<String>,
    sequence: u64,
    applying: bool,
) -> PyResult<PyState> {
    if directory < 0 || lock < 0 {
        return Err(PyValueError::new_err("a descriptor is negative"));
    }
    // SAFETY: the caller keeps both descriptors open until the call returns.
    let (directory, lock) = unsafe { (BorrowedFd::borrow_raw(directory), BorrowedFd::borrow_raw(lock)) };
    let mut parsed = Vec::with_capacity(steps.len());
    for (number, key, source, start, data) in &steps {
        let op = Op::of(*number).ok_or_else(|| PyValueError::new_err(format!("{number} is no operation")))?;
        let buffer = if op.has_data() { Some(PyUntypedBuffer::get(data)?) } else { None };
        parsed.push((op, key.extract::<&str>()?, source.extract::<&str>()?, *start, buffer));
    }
    let steps = parsed
        .iter()
        .map(|(op, key, source, start, buffer)| {
            let data = buffer.as_ref().map_or(Ok(&[][..]), contiguous)?;
            Ok(Step { op: *op, key, source, start: *start, data })
        })
        .collect::<PyResult<Vec<_>>>()?;
    let places = LockPlaces { sequence: places.0, state: places.1, apply: places.2 };
    let mut state = State { done, changed, sequence, applying, files: Vec::new() };
    let root = Root::of(directory);
    let end = py.detach(|| commit::run(&root, lock, places, &steps, &mut state));
    let error = match end {
        End::Failed(error, key) => Some((error.raw_os_error(), key)),
        End::Done | End::Left => None,
    };
    let files = state.files.into_iter().map(|(file, key)| (file.into_raw_fd(), key)).collect();
    Ok((state.done, state.changed, state.sequence, state.applying, files, error))
}
