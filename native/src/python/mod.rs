//! The boundary to Python and nothing else: buffers are taken, the GIL is released once, the
//! modules of the kernel are called, and their errors become `ingot.errors`.

mod buffers;
mod call;
mod checksums;
mod chunk;
mod commit;
mod dataset;
mod device;
mod encoded;
mod items;
mod iteration;
mod layout;
mod numpy_strings;
mod open_file;
mod pack;
mod ranges;
mod slot_file;
mod version_probe;

use crate::chunk::codecs::streams;
use crate::chunk::filters;
use crate::error::{Error, Kind};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

mod errors {
    pyo3::import_exception!(ingot.errors, ArgumentError);
    pyo3::import_exception!(ingot.errors, CorruptionError);
    pyo3::import_exception!(ingot.errors, FormatError);
    pyo3::import_exception!(ingot.errors, IngotError);
    pyo3::import_exception!(ingot.errors, LimitError);
    pyo3::import_exception!(ingot.errors, SelectionError);
    pyo3::import_exception!(ingot.errors, UnsafeError);
    pyo3::import_exception!(ingot.errors, UnsupportedError);
}

impl From<Error> for PyErr {
    fn from(Error { kind, text }: Error) -> Self {
        match kind {
            Kind::Format => errors::FormatError::new_err(text),
            Kind::Corruption => errors::CorruptionError::new_err(text),
            Kind::Unsupported => errors::UnsupportedError::new_err(text),
            Kind::Limit => errors::LimitError::new_err(text),
            Kind::Selection => errors::SelectionError::new_err(text),
            Kind::Unsafe => errors::UnsafeError::new_err(text),
            Kind::Argument => errors::ArgumentError::new_err(text),
            Kind::System(code) => PyOSError::new_err((code, text)),
            Kind::Kernel => errors::IngotError::new_err(text),
            Kind::Interrupted => PyKeyboardInterrupt::new_err(()),
        }
    }
}

/// Name the kernel, its vector instructions and its codecs.
#[pyfunction]
fn describe(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("kernel", "native")?;
    facts.set_item("simd", filters::simd())?;
    facts.set_item("codecs", streams::Codec::NAMES.map(|(name, _)| name))?;
    Ok(facts)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ABI", 46)?;
    module.add_class::<layout::PyAddresses>()?;
    module.add_class::<layout::PyCoding>()?;
    module.add_class::<layout::PyGrid>()?;
    module.add_class::<layout::PyLayout>()?;
    module.add_class::<encoded::PyEncodedBytes>()?;
    module.add_class::<open_file::PyOpenFile>()?;
    module.add_class::<dataset::PyDataset>()?;
    module.add_class::<device::PyWindowPlan>()?;
    module.add_class::<slot_file::PySlotFile>()?;
    module.add_class::<version_probe::PyVersionProbe>()?;
    module.add_class::<version_probe::PySmallFiles>()?;
    module.add_class::<version_probe::PyDocuments>()?;
    module.add_function(wrap_pyfunction!(call::is_checking_signals, module)?)?;
    module.add_function(wrap_pyfunction!(chunk::decompress, module)?)?;
    module.add_function(wrap_pyfunction!(chunk::decompress_slice, module)?)?;
    module.add_function(wrap_pyfunction!(chunk::compress, module)?)?;
    module.add_function(wrap_pyfunction!(chunk::compress2, module)?)?;
    module.add_function(wrap_pyfunction!(chunk::train_dictionary, module)?)?;
    module.add_function(wrap_pyfunction!(commit::begin_turn, module)?)?;
    module.add_function(wrap_pyfunction!(commit::run_steps, module)?)?;
    module.add_function(wrap_pyfunction!(items::decode_packs, module)?)?;
    module.add_function(wrap_pyfunction!(items::encode_packs, module)?)?;
    module.add_function(wrap_pyfunction!(items::join_items, module)?)?;
    module.add_function(wrap_pyfunction!(items::mark_packs, module)?)?;
    module.add_function(wrap_pyfunction!(items::split_items, module)?)?;
    module.add_function(wrap_pyfunction!(items::take_packs, module)?)?;
    module.add_function(wrap_pyfunction!(iteration::iterate_items, module)?)?;
    module.add_function(wrap_pyfunction!(iteration::iterate_rows, module)?)?;
    module.add_function(wrap_pyfunction!(iteration::iterate_true, module)?)?;
    module.add_function(wrap_pyfunction!(layout::stage_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(open_file::reserve, module)?)?;
    module.add_function(wrap_pyfunction!(ranges::open_files, module)?)?;
    module.add_function(wrap_pyfunction!(ranges::read_ranges, module)?)?;
    module.add_function(wrap_pyfunction!(numpy_strings::pack_strings, module)?)?;
    module.add_function(wrap_pyfunction!(numpy_strings::pack_strings_of, module)?)?;
    module.add_function(wrap_pyfunction!(numpy_strings::load_strings, module)?)?;
    module.add_function(wrap_pyfunction!(pack::pack_file, module)?)?;
    module.add_function(wrap_pyfunction!(pack::unpack_file, module)?)?;
    module.add_function(wrap_pyfunction!(pack::walk_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(version_probe::read_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(checksums::crc32, module)?)?;
    module.add_function(wrap_pyfunction!(checksums::crc32c, module)?)?;
    module.add_function(wrap_pyfunction!(checksums::join_crc32, module)?)?;
    module.add_function(wrap_pyfunction!(checksums::digests, module)?)?;
    module.add_function(wrap_pyfunction!(describe, module)?)
}
