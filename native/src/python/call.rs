//! One call from Python: the memory that its thread keeps for the next one, the GIL released, Ctrl-C
//! handled, and the result handed over.

use crate::array::scatter::Destination;
use crate::array::workspace::Workspace;
use crate::chunk::encode;
use crate::error::{Error, Kind, Outcome};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::python::buffers;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// The most memory that a thread keeps between calls.
pub const KEPT_BYTES: usize = 16 << 20;

#[derive(Default)]
pub struct Kept {
    pub workspace: Workspace,
    chunk: encode::Packer,
}

thread_local! {
    static CHECKING: Cell<bool> = const { Cell::new(false) };
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
}

/// What is called now and then while a call runs; what it raises ends the call.
pub type Report<'a> = dyn Fn(Python<'_>) -> PyResult<()> + Sync + 'a;

/// Run `work` without the GIL, with this thread's scratch. A signal handler that raises
/// meanwhile (Ctrl-C) ends the call with what it raised.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce(&mut Kept, &Interrupt) -> Outcome<T> + Send) -> PyResult<T> {
    detached_reporting(py, None, work)
}

/// The same, with `report` called after each check for signals.
pub fn detached_reporting<T: Send>(
    py: Python<'_>,
    report: Option<&Report<'_>>,
    work: impl FnOnce(&mut Kept, &Interrupt) -> Outcome<T> + Send,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let outcome = py.detach(|| {
        let check = |py: Python<'_>| {
            CHECKING.set(true);
            let result = py.check_signals();
            CHECKING.set(false);
            result.and_then(|()| report.map_or(Ok(()), |report| report(py)))
        };
        let interrupted = || match Python::attach(check) {
            Ok(()) => false,
            Err(error) => {
                *raised.lock().expect("no thread panics") = Some(error);
                true
            }
        };
        // Taken, not borrowed: a signal handler may itself call into this module.
        let mut kept = KEPT.take().unwrap_or_default();
        // A panic, also one of a thread of the call, is a fault of the kernel; it must not end the
        // program. The memory of the call is dropped, since it may be half changed.
        let interrupt = Interrupt::new(&interrupted);
        let outcome = match catch_unwind(AssertUnwindSafe(|| work(&mut kept, &interrupt))) {
            Ok(outcome) => outcome,
            Err(panic) => return Err(Error::new(Kind::Kernel, message(&*panic))),
        };
        if kept.workspace.kept_bytes() <= KEPT_BYTES {
            KEPT.set(Some(kept));
        }
        outcome
    });
    match raised.into_inner().expect("no thread panics") {
        Some(error) => Err(error),
        None => Ok(outcome?),
    }
}

/// Return whether a call of this thread checks for signals now: what a signal handler raises then
/// ends the call, and nothing else.
#[pyfunction]
pub fn is_checking_signals() -> bool {
    CHECKING.get()
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the native kernel failed: {}", text.unwrap_or("for an unknown reason"))
}

/// Fill `out`, or a new `bytes` object of `size` bytes, by `work`.
pub fn deliver<'py>(
    py: Python<'py>,
    out: Option<&Bound<'py, PyAny>>,
    size: usize,
    work: impl FnOnce(&mut [u8], &mut Kept, &Interrupt) -> Outcome<()> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let fill = |destination: Destination<'_>| {
        detached(py, |kept, interrupt| work(&mut destination.into_slice()[..size], kept, interrupt))
    };
    let Some(out) = out else {
        return match buffers::new_bytes(py, size, fill) {
            Err(error) if error.is_instance_of::<PyMemoryError>(py) => Err(memory::out_of_memory(size).into()),
            other => Ok(other?.into_any()),
        };
    };
    let buffer = PyUntypedBuffer::get(out)?;
    let destination = buffers::writable(&buffer)?;
    if destination.len() < size {
        let text = format!("out has {} bytes, {size} are needed", destination.len());
        return Err(PyValueError::new_err(text));
    }
    fill(destination)?;
    Ok(size.into_pyobject(py)?.into_any())
}

/// The output of `encode`, as `bytes`.
pub fn pack<'py>(
    py: Python<'py>,
    encode: impl FnOnce(&mut encode::Packer, &mut Kept, &Interrupt) -> Outcome<()> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    let chunk = detached(py, |kept, interrupt| {
        let mut chunk = std::mem::take(&mut kept.chunk);
        encode(&mut chunk, kept, interrupt)?;
        Ok(chunk)
    })?;
    let bytes = PyBytes::new(py, chunk.bytes());
    // Kept for the next call of the thread, which then need not allocate.
    if chunk.capacity() <= KEPT_BYTES
        && let Some(mut kept) = KEPT.take()
    {
        kept.chunk = chunk;
        KEPT.set(Some(kept));
    }
    Ok(bytes)
}
