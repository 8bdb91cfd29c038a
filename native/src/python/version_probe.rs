//! The version of a dataset, and small files read or compared together, for Python.

use crate::files::Root;
use crate::files::documents::Documents;
use crate::files::small_files::{self, Piece, SmallFiles};
use crate::files::version_probe::{LockFormat, VersionProbe};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// What several files hold, `None` for absent ones.
type Contents<'py> = Vec<Option<Bound<'py, PyBytes>>>;

/// A sequence number, and the number of a group of files with what they hold and the path of their
/// folder.
type Settled<'py> = (Option<u64>, Option<(usize, Contents<'py>, Option<String>)>);

/// The version in the lock file at `path`.
#[pyclass(frozen, name = "VersionProbe")]
pub struct PyVersionProbe(VersionProbe);

#[pymethods]
impl PyVersionProbe {
    #[new]
    fn new(path: PathBuf, magic: &[u8], system: &[u8], settled: &[u8]) -> PyResult<Self> {
        let format = LockFormat { magic: magic.try_into()?, system: system.try_into()?, settled: settled.to_vec() };
        Ok(Self(VersionProbe::new(path, format)))
    }

    /// Return the sequence number, and whether the state is certain; `None` without a lock file.
    fn read(&self) -> PyResult<Option<(u64, bool)>> {
        Ok(self.0.read()?.map(|version| (version.sequence, version.certain)))
    }

    /// Return whether `read` would give `number`, for certain.
    fn confirms(&self, number: Option<u64>) -> bool {
        self.0.confirms(number)
    }

    /// Return whether the sequence number is `number`, and no commit that a reader must know of was published before this
    /// call; `None` where one of the names of `records` is taken.
    fn stays(&self, number: u64, records: Vec<String>) -> Option<bool> {
        self.0.stays(number, &records)
    }

    /// Return whether `read` would no longer give `number`, as far as the file that is open shows.
    fn moved(&self, number: Option<u64>) -> bool {
        self.0.moved(number)
    }

    /// Read small files below the folder `root` while no commit is under way: the sequence number,
    /// and the first group of `files` whose first file is present, with its number, the further files
    /// that are known to belong to it, and, for some groups, the path of the folder without symbolic links. `None` where that takes more than one
    /// call.
    fn read_settled<'py>(
        &self,
        py: Python<'py>,
        root: PathBuf,
        journal: &str,
        files: &PySmallFiles,
    ) -> Option<Settled<'py>> {
        let (number, found) = py.detach(|| self.0.read_settled(&root, journal, &files.0))?;
        Some((number, found.map(|(group, found, path)| (group, to_python(py, found), path))))
    }
}

/// Small files below a folder that are read together, prepared once for many calls.
#[pyclass(frozen, name = "SmallFiles")]
pub struct PySmallFiles(SmallFiles);

#[pymethods]
impl PySmallFiles {
    #[new]
    fn new(groups: Vec<Vec<Piece>>, above: Vec<String>, resolved: Vec<usize>) -> Self {
        Self(SmallFiles::new(groups, &above, resolved))
    }

    /// From now on, where the first file of a group holds `marker`, `read_settled` reads these files
    /// as well, and returns them behind those of the group.
    fn name_further(&self, group: usize, marker: Vec<u8>, pieces: Vec<Piece>) {
        self.0.name_further(group, marker, pieces);
    }

    /// Read the files of all groups below the folder `root`, as `read_pieces` does.
    fn read<'py>(&self, py: Python<'py>, root: PathBuf) -> Option<Contents<'py>> {
        let found = py.detach(|| self.0.read(&Root::open(&root).ok()??).ok())?;
        Some(to_python(py, found))
    }
}

/// Documents below the folder `root`, by key; `None` for one that must be absent.
#[pyclass(frozen, name = "Documents")]
pub struct PyDocuments(pub(super) Documents);

#[pymethods]
impl PyDocuments {
    #[new]
    fn new(root: PathBuf, contents: Vec<(String, Option<Vec<u8>>)>) -> Self {
        Self(Documents::new(root, contents))
    }

    /// Return whether the folder holds the documents. If `strict`, one that was written since the
    /// last comparison differs, whatever its bytes.
    fn check(&self, py: Python<'_>, strict: bool) -> PyResult<bool> {
        Ok(py.detach(|| self.0.check(strict))?)
    }

    /// Return the sequence number in the lock file of `probe`, in the same folder, if the committed state has these
    /// documents; `None` where one look cannot tell, as when one of the names of `records` is taken.
    fn committed(&self, py: Python<'_>, probe: &PyVersionProbe, records: Vec<String>) -> Option<u64> {
        py.detach(|| self.0.committed(&probe.0, &records))
    }

    /// Expect another content of a document from now on; return whether it is among them.
    #[pyo3(signature = (key, content))]
    fn put(&self, key: &str, content: Option<&[u8]>) -> bool {
        self.0.put(key, content)
    }
}

/// Read short pieces of files below the folder `root`; `None` for absent ones. `None` altogether
/// when a piece is large, or a file is not regular: only reading the files one by one says what is
/// wrong.
#[pyfunction]
pub fn read_pieces<'py>(py: Python<'py>, root: PathBuf, pieces: Vec<Piece>) -> Option<Contents<'py>> {
    let found = py.detach(|| small_files::read(&Root::open(&root).ok()??, &pieces).ok())?;
    Some(to_python(py, found))
}

fn to_python(py: Python<'_>, found: Vec<Option<Vec<u8>>>) -> Contents<'_> {
    found.into_iter().map(|bytes| bytes.map(|bytes| PyBytes::new(py, &bytes))).collect()
}
