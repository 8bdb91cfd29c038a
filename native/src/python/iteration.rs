//! Iterators that make Python's numbers, or tuples of them, of the memory of arrays.
//!
//! A program that loops over items spends its time in making objects; what is between two of them counts.
//! So the type is one of CPython's own kind, and not a class of PyO3, whose calls take as long as an item does.
//!
//! `unsafe`: the functions are called by the interpreter, with an object that it holds, and with the GIL.
//! `Iteration` is reached through a pointer that the object owns from its creation to its end. What may
//! run other Python code, and so come back to the same iterator, is done while nothing of it is borrowed: blocks are
//! fetched under a mark, and items are made before the tuple that takes them, since making a tuple may
//! collect garbage.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// Rows of up to so many columns are gathered without new memory.
const USUAL_WIDTH: usize = 16;
/// The items of a mask that are looked at together.
const LANES: usize = 64;

/// The type of numbers, as the letter of a buffer's format says it.
#[derive(Clone, Copy)]
enum Number {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Number {
    fn of(letter: u8, size: usize) -> Option<Self> {
        Some(match (letter, size) {
            (b'?', 1) => Self::Bool,
            (b'b', 1) => Self::I8,
            (b'B', 1) => Self::U8,
            (b'h', 2) => Self::I16,
            (b'H', 2) => Self::U16,
            (b'i' | b'l', 4) => Self::I32,
            (b'I' | b'L', 4) => Self::U32,
            (b'l' | b'q', 8) => Self::I64,
            (b'L' | b'Q', 8) => Self::U64,
            (b'f', 4) => Self::F32,
            (b'd', 8) => Self::F64,
            _ => return None,
        })
    }

    const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// A new object of the number at an address.
    ///
    /// # Safety
    /// The address has an item of this type, and the GIL is held.
    #[inline]
    unsafe fn object(self, at: *const u8) -> *mut PyObject {
        // SAFETY: what the caller promises.
        unsafe {
            match self {
                Self::Bool => ffi::PyBool_FromLong((*at != 0).into()),
                Self::I8 => ffi::PyLong_FromLong((*at.cast::<i8>()).into()),
                Self::U8 => ffi::PyLong_FromLong((*at).into()),
                Self::I16 => ffi::PyLong_FromLong(at.cast::<i16>().read_unaligned().into()),
                Self::U16 => ffi::PyLong_FromLong(at.cast::<u16>().read_unaligned().into()),
                Self::I32 => ffi::PyLong_FromLong(at.cast::<i32>().read_unaligned().into()),
                Self::U32 => integer(at.cast::<u32>().read_unaligned().into()),
                Self::I64 => integer(at.cast::<i64>().read_unaligned()),
                Self::U64 => ffi::PyLong_FromUnsignedLongLong(at.cast::<u64>().read_unaligned()),
                Self::F32 => ffi::PyFloat_FromDouble(at.cast::<f32>().read_unaligned().into()),
                Self::F64 => ffi::PyFloat_FromDouble(at.cast::<f64>().read_unaligned()),
            }
        }
    }
}

/// A new object of an integer. CPython makes one of a C `long` faster than of any other type.
///
/// # Safety
/// The GIL is held.
#[inline]
#[allow(clippy::useless_conversion, reason = "a C long has 32 bits on some systems")]
unsafe fn integer(value: i64) -> *mut PyObject {
    // SAFETY: what the caller promises.
    unsafe {
        match value.try_into() {
            Ok(value) => ffi::PyLong_FromLong(value),
            Err(_) => ffi::PyLong_FromLongLong(value),
        }
    }
}

/// A column of a block: numbers in memory, or objects in a list.
enum Column {
    Numbers { number: Number, start: *const u8, count: usize, _held: PyUntypedBuffer },
    Listed(Py<PyList>),
}

impl Column {
    fn of(block: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = block.cast::<PyList>() {
            return Ok(Self::Listed(list.clone().unbind()));
        }
        let held = PyUntypedBuffer::get(block)?;
        let number = match held.format().to_bytes() {
            [letter] => Number::of(*letter, held.item_size()),
            _ => None,
        };
        let Some(number) = number else {
            return Err(PyTypeError::new_err("a block is neither an array of numbers nor a list"));
        };
        if held.dimensions() != 1 || !held.is_c_contiguous() {
            return Err(PyTypeError::new_err("a block is not contiguous along one axis"));
        }
        let (start, count) = (held.buf_ptr().cast_const().cast(), held.item_count());
        Ok(Self::Numbers { number, start, count, _held: held })
    }

    fn len(&self, py: Python<'_>) -> usize {
        match self {
            Self::Numbers { count, .. } => *count,
            Self::Listed(list) => list.bind(py).len(),
        }
    }

    /// A new reference to an item; null with an error set where there is none.
    ///
    /// # Safety
    /// The number is less than the length that the block had, and the GIL is held.
    #[inline]
    unsafe fn item(&self, at: usize) -> *mut PyObject {
        match self {
            // SAFETY: the buffer is held, and has that many items; its length cannot change meanwhile.
            Self::Numbers { number, start, .. } => unsafe { number.object(start.add(at * number.size())) },
            // SAFETY: the list is held. It may have become shorter; the function compares the number.
            Self::Listed(list) => unsafe {
                let item = ffi::PyList_GetItem(list.as_ptr(), at.cast_signed());
                ffi::Py_XINCREF(item);
                item
            },
        }
    }
}

/// What is made of a block.
enum Product {
    /// Its items; a block is one column.
    Items,
    /// The numbers of its items that are true; `found` has those of the 64 in front of `at`.
    True { found: u64 },
    /// A tuple for each row, of a type that has room for more than a tuple; a block is a list of columns.
    Rows { kind: Option<(Py<PyType>, ffi::allocfunc)> },
}

/// Numbers in memory, one behind the other.
#[derive(Clone, Copy)]
struct Items {
    number: Number,
    start: *const u8,
}

struct Iteration {
    blocks: Option<Py<PyAny>>,
    source: Option<Py<PyAny>>,
    product: Product,
    columns: Vec<Column>,
    /// The numbers of the only column, where its items are what is made.
    items: Option<Items>,
    at: usize,
    count: usize,
    /// The rows of the blocks before this one.
    before: usize,
    fetching: bool,
}

/// The object of Python.
#[repr(C)]
struct Object {
    head: PyObject,
    state: *mut Iteration,
}

/// Iterate over the items of blocks: arrays of numbers along one axis, or lists.
///
/// What the iterator does not have is looked up in `source`.
#[pyfunction]
#[pyo3(signature = (blocks, source=None))]
pub fn iterate_items(blocks: &Bound<'_, PyAny>, source: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    made(blocks, source, Product::Items)
}

/// Iterate over the numbers of the items that are true; blocks are arrays of booleans.
#[pyfunction]
pub fn iterate_true(blocks: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    made(blocks, None, Product::True { found: 0 })
}

/// Iterate over the rows of blocks, each a list of columns of one length, as tuples or as objects of a subclass.
#[pyfunction]
#[pyo3(signature = (blocks, row=None))]
pub fn iterate_rows(blocks: &Bound<'_, PyAny>, row: Option<&Bound<'_, PyType>>) -> PyResult<Py<PyAny>> {
    let kind = row.map(allocator).transpose()?;
    made(blocks, None, Product::Rows { kind })
}

/// The function that makes objects of a subclass of `tuple`, as `tuple.__new__` finds it.
fn allocator(row: &Bound<'_, PyType>) -> PyResult<(Py<PyType>, ffi::allocfunc)> {
    if !row.is_subclass_of::<PyTuple>()? {
        return Err(PyTypeError::new_err("rows are tuples, or of a subclass"));
    }
    // SAFETY: the object is a type; a type of Python 3.10 or later may be asked for any slot.
    let slot = unsafe { ffi::PyType_GetSlot(row.as_ptr().cast(), ffi::Py_tp_alloc) };
    if slot.is_null() {
        return Err(PyTypeError::new_err("rows of this type cannot be made"));
    }
    // SAFETY: this slot has a function of this type.
    let allocate = unsafe { std::mem::transmute::<*mut c_void, ffi::allocfunc>(slot) };
    Ok((row.clone().unbind(), allocate))
}

fn made(blocks: &Bound<'_, PyAny>, source: Option<Py<PyAny>>, product: Product) -> PyResult<Py<PyAny>> {
    let py = blocks.py();
    let kind = iterator_type(py)?;
    let state = Iteration {
        blocks: Some(blocks.try_iter()?.into_any().unbind()),
        source,
        product,
        columns: Vec::new(),
        items: None,
        at: 0,
        count: 0,
        before: 0,
        fetching: false,
    };
    // SAFETY: the type is the one below. The new object has room for a pointer behind its head, which is null
    // until it is set; all functions of the type know that.
    unsafe {
        let object = ffi::PyType_GenericAlloc(kind.as_ptr().cast(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        (*object.as_ptr().cast::<Object>()).state = Box::into_raw(Box::new(state));
        Ok(object.unbind())
    }
}

fn iterator_type(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static TYPE: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
    let kind = TYPE.get_or_try_init(py, || {
        let slots = [
            slot(ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut c_void),
            slot(ffi::Py_tp_iternext, next as *mut c_void),
            slot(ffi::Py_tp_getattro, attribute as *mut c_void),
            slot(ffi::Py_tp_traverse, traverse as *mut c_void),
            slot(ffi::Py_tp_clear, clear as *mut c_void),
            slot(ffi::Py_tp_dealloc, deallocate as *mut c_void),
            slot(0, ptr::null_mut()),
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"ingot._native.Iterator".as_ptr(),
            basicsize: size_of::<Object>() as c_int,
            itemsize: 0,
            flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION)
                as c_uint,
            slots: slots.as_ptr().cast_mut(),
        };
        // SAFETY: the specification and its slots live until the type is made; the functions stay.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)).map(Bound::unbind) }
    })?;
    Ok(kind.bind(py))
}

const fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// The state of an object; `None` before it has one, and after its end.
///
/// # Safety
/// The object is of our type, the GIL is held, and no other borrow of the state is used while this one is.
unsafe fn state<'a>(object: *mut PyObject) -> Option<&'a mut Iteration> {
    // SAFETY: what the caller promises; the pointer is null or that of a box.
    unsafe { (*object.cast::<Object>()).state.as_mut() }
}

unsafe extern "C" fn next(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter passes an object of our type, and holds the GIL. The borrow ends before Python code
    // may run: making a number runs none.
    if let Some(iteration) = unsafe { state(object) }
        && iteration.at < iteration.count
        && let Some(Items { number, start }) = iteration.items
    {
        let at = iteration.at;
        iteration.at += 1;
        // SAFETY: the number is less than the length, and the buffer is held.
        return unsafe {
            match number {
                Number::F64 => ffi::PyFloat_FromDouble(start.cast::<f64>().add(at).read_unaligned()),
                Number::I64 => integer(start.cast::<i64>().add(at).read_unaligned()),
                _ => number.object(start.add(at * number.size())),
            }
        };
    }
    // SAFETY: the same.
    unsafe { next_of_any(object) }
}

/// What `next` does, for everything but numbers of a block that is there.
///
/// # Safety
/// The object is of our type, and the GIL is held.
#[inline(never)]
unsafe fn next_of_any(object: *mut PyObject) -> *mut PyObject {
    loop {
        // SAFETY: what the caller promises. The borrow ends before Python code may run.
        let Some(iteration) = (unsafe { state(object) }) else { return ptr::null_mut() };
        let left = iteration.at < iteration.count;
        match &mut iteration.product {
            Product::Items if left => {
                iteration.at += 1;
                // SAFETY: the number is less than the length.
                return unsafe { iteration.columns[0].item(iteration.at - 1) };
            }
            Product::True { found, .. } if *found != 0 => {
                let at = iteration.before + iteration.at - LANES + found.trailing_zeros() as usize;
                *found &= *found - 1;
                // SAFETY: the GIL is held.
                return unsafe { integer(at as i64) };
            }
            Product::True { found } if left => {
                let Column::Numbers { start, .. } = &iteration.columns[0] else { return ptr::null_mut() };
                let lanes = LANES.min(iteration.count - iteration.at);
                // SAFETY: the buffer has so many items of one byte each, and is held.
                *found = marks(unsafe { std::slice::from_raw_parts(start.add(iteration.at), lanes) });
                iteration.at += LANES;
                continue;
            }
            // SAFETY: as above; the function ends its borrow before it makes a tuple.
            Product::Rows { .. } if left => return unsafe { next_row(object) },
            _ => {}
        }
        match Python::attach(|py| fetch(py, object)) {
            Ok(true) => {}
            Ok(false) => return ptr::null_mut(),
            Err(error) => {
                Python::attach(|py| error.restore(py));
                return ptr::null_mut();
            }
        }
    }
}

/// A bit for each byte that is not zero.
fn marks(bytes: &[u8]) -> u64 {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut lanes = [0; LANES];
    lanes[..bytes.len()].copy_from_slice(bytes);
    let mut found = 0;
    for (number, eight) in lanes.as_chunks().0.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        let set = ((((word & !HIGH) + !HIGH) | word) & HIGH) >> 7;
        found |= (set.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * number);
    }
    found
}

/// # Safety
/// The object is of our type, has a row left, and the GIL is held.
unsafe fn next_row(object: *mut PyObject) -> *mut PyObject {
    let mut usual = [ptr::null_mut(); USUAL_WIDTH];
    let mut wide;
    // SAFETY: the object has a state; the borrow ends with this block.
    let (items, kind) = unsafe {
        let Some(iteration) = state(object) else { return ptr::null_mut() };
        let (at, width) = (iteration.at, iteration.columns.len());
        iteration.at += 1;
        let items: &mut [*mut PyObject] = if width <= USUAL_WIDTH {
            &mut usual[..width]
        } else {
            wide = vec![ptr::null_mut(); width];
            &mut wide
        };
        for (item, column) in items.iter_mut().zip(&iteration.columns) {
            *item = column.item(at);
        }
        let kind = match &iteration.product {
            Product::Rows { kind: Some((kind, allocate)) } => Some((kind.as_ptr(), *allocate)),
            _ => None,
        };
        (items, kind)
    };
    // SAFETY: the type is held by the iterator, which the caller holds; it makes tuples of that many places, which
    // are empty. A place takes over the reference, and gives it back where it fails.
    unsafe {
        let width = items.len().cast_signed();
        let missing = items.iter().any(|item| item.is_null());
        let row = match kind {
            _ if missing => ptr::null_mut(),
            Some((kind, allocate)) => allocate(kind.cast(), width),
            None => ffi::PyTuple_New(width),
        };
        if row.is_null() {
            items.iter().for_each(|item| ffi::Py_XDECREF(*item));
            return row;
        }
        for (place, item) in items.iter().enumerate() {
            ffi::PyTuple_SetItem(row, place.cast_signed(), *item);
        }
        row
    }
}

/// Fetch the next block that has rows; `false` at the end.
fn fetch(py: Python<'_>, object: *mut PyObject) -> PyResult<bool> {
    loop {
        // SAFETY: `py` says that the GIL is held; the borrow ends before the next block is asked for.
        let blocks = unsafe {
            let Some(iteration) = state(object) else { return Ok(false) };
            if iteration.fetching {
                return Err(PyValueError::new_err("the iterator is being advanced already"));
            }
            let Some(blocks) = &iteration.blocks else { return Ok(false) };
            iteration.fetching = true;
            blocks.clone_ref(py)
        };
        let fetched = columns_of(blocks.bind(py), object);
        // SAFETY: as above. What is replaced is dropped after the borrow, since that may run Python code.
        let before = unsafe {
            let Some(iteration) = state(object) else { return Ok(false) };
            iteration.fetching = false;
            match fetched {
                Ok(Some((columns, count))) => {
                    iteration.before += iteration.count;
                    (iteration.at, iteration.count) = (0, count);
                    iteration.items = match (&iteration.product, &columns[..]) {
                        (Product::Items, [Column::Numbers { number, start, .. }]) => {
                            Some(Items { number: *number, start: *start })
                        }
                        _ => None,
                    };
                    (std::mem::replace(&mut iteration.columns, columns), None)
                }
                Ok(None) => {
                    (iteration.at, iteration.count, iteration.items) = (0, 0, None);
                    (std::mem::take(&mut iteration.columns), iteration.blocks.take())
                }
                Err(error) => {
                    iteration.blocks = None;
                    return Err(error);
                }
            }
        };
        let ended = before.1.is_some();
        drop(before);
        // SAFETY: as above.
        if ended || unsafe { state(object) }.is_some_and(|iteration| iteration.count > 0) {
            return Ok(!ended);
        }
    }
}

/// The columns of the next block and their length.
fn columns_of(blocks: &Bound<'_, PyAny>, object: *mut PyObject) -> PyResult<Option<(Vec<Column>, usize)>> {
    let py = blocks.py();
    let Some(block) = blocks.try_iter()?.next().transpose()? else { return Ok(None) };
    // SAFETY: the GIL is held, and the borrow ends with the expression.
    let rows = unsafe { state(object) }.is_some_and(|each| matches!(each.product, Product::Rows { .. }));
    let columns = if rows {
        block.cast::<PyList>()?.iter().map(|each| Column::of(&each)).collect::<PyResult<Vec<_>>>()?
    } else {
        vec![Column::of(&block)?]
    };
    // SAFETY: the same.
    let mask = unsafe { state(object) }.is_some_and(|each| matches!(each.product, Product::True { .. }));
    if mask && !matches!(columns[0], Column::Numbers { number: Number::Bool, .. }) {
        return Err(PyTypeError::new_err("a block is not an array of booleans"));
    }
    let count = columns.first().map_or(0, |column| column.len(py));
    if columns.iter().any(|column| column.len(py) != count) {
        return Err(PyValueError::new_err("the columns of a block have different lengths"));
    }
    Ok(Some((columns, count)))
}

unsafe extern "C" fn attribute(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter passes an object of our type and a name, and holds the GIL. The source is held
    // while it is asked.
    unsafe {
        let found = ffi::PyObject_GenericGetAttr(object, name);
        let source = state(object).and_then(|iteration| iteration.source.as_ref().map(Py::as_ptr));
        let Some(source) = source.filter(|_| found.is_null()) else { return found };
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) == 0 {
            return found;
        }
        ffi::PyErr_Clear();
        ffi::Py_INCREF(source);
        let found = ffi::PyObject_GetAttr(source, name);
        ffi::Py_DECREF(source);
        found
    }
}

unsafe extern "C" fn traverse(object: *mut PyObject, visit: ffi::visitproc, data: *mut c_void) -> c_int {
    // SAFETY: the collector passes an object of our type. References are only visited, and none is counted.
    unsafe {
        let mut held = vec![ffi::Py_TYPE(object).cast::<PyObject>()];
        if let Some(iteration) = state(object) {
            held.extend(iteration.blocks.as_ref().map(Py::as_ptr));
            held.extend(iteration.source.as_ref().map(Py::as_ptr));
            if let Product::Rows { kind: Some((kind, _)) } = &iteration.product {
                held.push(kind.as_ptr());
            }
            held.extend(iteration.columns.iter().filter_map(|column| match column {
                Column::Listed(list) => Some(list.as_ptr()),
                Column::Numbers { .. } => None,
            }));
        }
        for each in held {
            let stopped = visit(each, data);
            if stopped != 0 {
                return stopped;
            }
        }
        0
    }
}

unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: the interpreter passes an object of our type, and holds the GIL. The state is out of reach before
    // what it holds is dropped, which may run Python code.
    unsafe {
        let iteration = std::mem::replace(&mut (*object.cast::<Object>()).state, ptr::null_mut());
        if !iteration.is_null() {
            Python::attach(|_| drop(Box::from_raw(iteration)));
        }
    }
    0
}

unsafe extern "C" fn deallocate(object: *mut PyObject) {
    // SAFETY: the interpreter passes an object of our type that nothing refers to any more. Its memory is freed
    // as it was made, by the functions of its type, which it holds a reference to.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        let kind = ffi::Py_TYPE(object);
        clear(object);
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::marks;

    #[test]
    fn a_mark_stands_for_a_byte_that_is_not_zero() {
        let bytes: Vec<u8> = (0..64).map(|at| if at % 3 == 0 { 1 + at * 3 } else { 0 }).collect();
        for length in 0..=64 {
            let right = (0..length).filter(|at| bytes[*at] != 0).fold(0, |found, at| found | 1 << at);
            assert_eq!(marks(&bytes[..length]), right, "{length} bytes");
        }
    }
}
