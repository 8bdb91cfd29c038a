//! NumPy's strings of variable length (`StringDType`), packed and loaded through NumPy's C API.
//!
//! `unsafe`: the functions are found in the table that NumPy publishes for C programs, whose places
//! and arguments do not change (API version 18, which NumPy 2.0 has, added these). They take the memory of
//! an array, which the array itself names; its type, size, layout and owner are checked before.
//! An allocator is locked from `acquire` to `release`. Nothing in between needs the GIL, so that a
//! thread that waits for the lock with the GIL in its hands cannot stop this one.

use super::buffers;
use super::call::detached;
use super::items::{PackSet, parse_sources, sum};
use crate::items::OFFSET_BYTES;
use crate::memory::out_of_memory;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::Mutex;

/// The version of the C API that has strings.
const LEAST_API: c_uint = 18;
/// The bytes of a string in an array: its length and its place, or all of a short string.
const STRING_BYTES: usize = 16;

/// A string of an array: where its bytes lie.
#[repr(C)]
struct Unpacked {
    size: usize,
    bytes: *const c_char,
}

type Version = unsafe extern "C" fn() -> c_uint;
type Load = unsafe extern "C" fn(*mut c_void, *const c_void, *mut Unpacked) -> c_int;
type Pack = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_char, usize) -> c_int;
type PackNull = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Acquire = unsafe extern "C" fn(*const c_void) -> *mut c_void;
type Release = unsafe extern "C" fn(*mut c_void);

/// The functions of NumPy.
struct Functions {
    load: Load,
    pack: Pack,
    pack_null: PackNull,
    acquire: Acquire,
    release: Release,
}

impl Functions {
    fn find(py: Python<'_>) -> PyResult<Self> {
        let capsule = py.import("numpy._core._multiarray_umath")?.getattr("_ARRAY_API")?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let table = capsule.pointer_checked(None)?.cast::<*const c_void>().as_ptr();
        // SAFETY: NumPy's table has more than 211 places since long before 1.20, and this function at 211.
        let version = unsafe { transmute::<*const c_void, Version>(*table.add(211)) };
        // SAFETY: the function takes nothing and returns a number.
        if unsafe { version() } < LEAST_API {
            return Err(PyTypeError::new_err("this NumPy has no strings of variable length"));
        }
        // SAFETY: in this version, the places have these functions.
        Ok(unsafe {
            Self {
                load: transmute::<*const c_void, Load>(*table.add(313)),
                pack: transmute::<*const c_void, Pack>(*table.add(314)),
                pack_null: transmute::<*const c_void, PackNull>(*table.add(315)),
                acquire: transmute::<*const c_void, Acquire>(*table.add(316)),
                release: transmute::<*const c_void, Release>(*table.add(318)),
            }
        })
    }
}

/// An array of strings whose allocator is locked.
struct Strings {
    functions: Functions,
    allocator: *mut c_void,
    start: *mut u8,
    count: usize,
}

/// The type and the memory of an array of strings.
struct Described {
    functions: Functions,
    dtype: *const c_void,
    start: *mut u8,
    count: usize,
}

// SAFETY: the array is held by the caller for as long as the call runs.
unsafe impl Send for Described {}
// SAFETY: the same; threads take turns, and the one that made the call releases the allocator.
unsafe impl Send for Strings {}

impl Described {
    fn of(array: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let py = array.py();
        let kind = py.import("numpy")?.getattr("dtypes")?.getattr("StringDType")?;
        let (dtype, flags) = (array.getattr("dtype")?, array.getattr("flags")?);
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        let plain = dtype.is_instance(&kind)?
            && dtype.getattr("itemsize")?.extract::<usize>()? == STRING_BYTES
            && flags.getattr("c_contiguous")?.extract()?
            && (!writable || flags.getattr("writeable")?.extract()?);
        let [count] = shape[..] else {
            return Err(PyTypeError::new_err("strings of one axis are needed"));
        };
        if !plain {
            return Err(PyTypeError::new_err("a contiguous array of NumPy's strings is needed"));
        }
        let (address, _): (usize, bool) = array.getattr("__array_interface__")?.get_item("data")?.extract()?;
        let functions = Functions::find(py)?;
        Ok(Self { functions, dtype: dtype.as_ptr().cast_const().cast(), start: address as *mut u8, count })
    }

    fn lock(self) -> Strings {
        // SAFETY: the descriptor is one of strings, and alive.
        let allocator = unsafe { (self.functions.acquire)(self.dtype) };
        Strings { functions: self.functions, allocator, start: self.start, count: self.count }
    }
}

impl Strings {
    fn place(&self, number: usize) -> *mut c_void {
        assert!(number < self.count, "a string outside of the array");
        // SAFETY: the array has `count` strings, one behind the other.
        unsafe { self.start.add(number * STRING_BYTES).cast() }
    }

    /// Store a string; `None` is a null. Whether there was memory for it.
    fn pack(&mut self, number: usize, item: Option<&[u8]>) -> bool {
        let place = self.place(number);
        // SAFETY: the allocator is that of the array, and locked; `place` is one of its strings.
        let outcome = unsafe {
            match item {
                Some(item) => (self.functions.pack)(self.allocator, place, item.as_ptr().cast(), item.len()),
                None => (self.functions.pack_null)(self.allocator, place),
            }
        };
        outcome == 0
    }

    /// A string; the inner `None` is a null, the outer one an array that is damaged.
    fn load(&self, number: usize) -> Option<Option<&[u8]>> {
        let mut found = Unpacked { size: 0, bytes: std::ptr::null() };
        // SAFETY: as in `pack`; the function only reads the string.
        match unsafe { (self.functions.load)(self.allocator, self.place(number), &raw mut found) } {
            0 if found.size == 0 => Some(Some(&[])),
            // SAFETY: NumPy says so, and nothing changes the string while the allocator is locked.
            0 => Some(Some(unsafe { std::slice::from_raw_parts(found.bytes.cast(), found.size) })),
            1 => Some(None),
            _ => None,
        }
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        // SAFETY: it was acquired by `lock`.
        unsafe { (self.functions.release)(self.allocator) };
    }
}

/// Store items in an array of NumPy's strings: item i is the bytes `offsets[i]` to `offsets[i + 1]` (i64) of
/// `data`, in UTF-8, and null where `validity` says so.
#[pyfunction]
#[pyo3(signature = (array, offsets, data, validity=None))]
pub fn pack_strings(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    validity: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let strings = Described::of(array, true)?;
    let (offsets, data) = (PyUntypedBuffer::get(offsets)?, PyUntypedBuffer::get(data)?);
    let (offsets, data) = (buffers::contiguous(&offsets)?, buffers::contiguous(&data)?);
    let validity = validity.map(PyUntypedBuffer::get).transpose()?;
    let validity = validity.as_ref().map(buffers::contiguous).transpose()?;
    let (offsets, _) = offsets.as_chunks::<OFFSET_BYTES>();
    if offsets.len() != strings.count + 1 || validity.is_some_and(|marks| marks.len() != strings.count) {
        return Err(PyValueError::new_err("offsets and marks for each string are needed"));
    }
    let outcome = py.detach(move || {
        let mut strings = strings.lock();
        for (number, ends) in offsets.windows(2).enumerate() {
            let [start, end] = [ends[0], ends[1]].map(|raw| usize::try_from(i64::from_le_bytes(raw)).ok());
            let exists = validity.is_none_or(|marks| marks[number] != 0);
            let Some(item) = start.zip(end).and_then(|(start, end)| data.get(start..end)) else {
                return Err(Wrong::Offsets);
            };
            if !strings.pack(number, exists.then_some(item)) {
                return Err(Wrong::Memory(item.len()));
            }
        }
        Ok(())
    });
    outcome.map_err(Wrong::raised)
}

/// Store all items of packs in an array of NumPy's strings, while they are decoded. The array must be new:
/// where another thread used it, it could wait for this one with the GIL in its hands.
#[pyfunction]
pub fn pack_strings_of<'py>(
    py: Python<'py>,
    array: &Bound<'py, PyAny>,
    packs: PackSet<'py, '_>,
    threads: usize,
) -> PyResult<()> {
    let strings = Described::of(array, true)?;
    let sources = parse_sources(&packs)?;
    if sum(&sources.counts) != Some(strings.count) {
        return Err(PyValueError::new_err("a string for each item is needed"));
    }
    detached(py, move |_, interrupt| {
        let strings = Mutex::new(strings.lock());
        sources.visit(true, threads, interrupt, |pack| {
            let mut strings = strings.lock().expect("no thread panics");
            for (number, item) in pack.items().enumerate() {
                if !strings.pack(pack.first + number, item) {
                    return Err(out_of_memory(item.map_or(0, <[u8]>::len)));
                }
            }
            Ok(())
        })
    })
}

/// Return the strings of an array: the ends of items (i64), the bytes of all of them, and which exist, or
/// `None` where all do.
#[pyfunction]
pub fn load_strings<'py>(py: Python<'py>, array: &Bound<'py, PyAny>) -> PyResult<Loaded<'py>> {
    let strings = Described::of(array, false)?;
    let loaded = py.detach(move || {
        let strings = strings.lock();
        let (mut ends, mut exist) = (Vec::new(), Vec::new());
        let room = ends.try_reserve_exact(strings.count * OFFSET_BYTES).is_ok()
            && exist.try_reserve_exact(strings.count).is_ok();
        let mut total = 0usize;
        for number in 0..if room { strings.count } else { 0 } {
            let item = strings.load(number).ok_or(Wrong::Array)?;
            total += item.map_or(0, <[u8]>::len);
            ends.extend_from_slice(&(total as i64).to_le_bytes());
            exist.push(u8::from(item.is_some()));
        }
        let mut data = Vec::new();
        if !room || data.try_reserve_exact(total).is_err() {
            return Err(Wrong::Memory(total));
        }
        for number in 0..strings.count {
            data.extend_from_slice(strings.load(number).flatten().unwrap_or_default());
        }
        Ok((ends, data, exist))
    });
    let (ends, data, exist) = loaded.map_err(Wrong::raised)?;
    let some_null = exist.contains(&0);
    let exist = some_null.then(|| PyBytes::new(py, &exist));
    Ok((PyBytes::new(py, &ends), PyBytes::new(py, &data), exist))
}

type Loaded<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// Why strings could not be packed or loaded.
enum Wrong {
    Offsets,
    Array,
    Memory(usize),
}

impl Wrong {
    fn raised(self) -> PyErr {
        match self {
            Self::Offsets => PyValueError::new_err("offsets must ascend, and lie inside of the data"),
            Self::Array => PyValueError::new_err("the strings of the array cannot be read"),
            Self::Memory(size) => out_of_memory(size).into(),
        }
    }
}
