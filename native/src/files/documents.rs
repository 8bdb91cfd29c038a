//! Small files whose contents are known: whether a folder still holds them.
//!
//! As long as a file has the identity it had when it was last compared, it is not read.

use super::Root;
use super::identity::Identity;
use super::version_probe::VersionProbe;
use crate::error::Outcome;
use crate::fork;
use rustix::fs::{AtFlags, CWD, Stat, statat};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, MutexGuard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The file has to be read.
    Unknown,
    Absent,
    File(Identity),
}

struct Document {
    key: String,
    /// `None` for a file that must be absent.
    content: Option<Vec<u8>>,
    known: Known,
}

/// The documents of a dataset below one folder.
pub struct Documents {
    root: PathBuf,
    all: Mutex<Vec<Document>>,
    /// The process that made them; in a fork of it, the lock may be one that nothing releases.
    process: u32,
}

impl Documents {
    pub fn new(root: PathBuf, contents: Vec<(String, Option<Vec<u8>>)>) -> Self {
        let new = |(key, content)| Document { key, content, known: Known::Unknown };
        Self { root, all: Mutex::new(contents.into_iter().map(new).collect()), process: process::id() }
    }

    /// Return whether the folder holds the documents, byte for byte. If `strict`, a file that was
    /// written since the last comparison differs, whatever its bytes. `false` as well in a fork that
    /// cannot tell: the caller reads the documents again.
    pub fn check(&self, strict: bool) -> Outcome<bool> {
        let Some(mut all) = self.lock() else { return Ok(false) };
        if let [document] = &all[..]
            && document.known != Known::Unknown
            && document.is_as_known(statat(CWD, self.root.join(&document.key), AtFlags::empty()))
        {
            return Ok(true); // A single document is found without the folder.
        }
        let root = Root::open(&self.root)?;
        are_held(&mut all, root.as_ref(), strict)
    }

    /// The same with the folder open.
    pub fn check_in(&self, root: &Root<impl AsFd>, strict: bool) -> Outcome<bool> {
        self.lock().map_or(Ok(false), |mut all| are_held(&mut all, Some(root), strict))
    }

    /// Return the sequence number of the committed state, if it has these documents and none of them was written
    /// since the last comparison; `None` as well where that takes more than one look, see
    /// `VersionProbe::committed`.
    pub fn committed(&self, probe: &VersionProbe, records: &[String]) -> Option<u64> {
        let root = Root::open(&self.root).ok()??;
        let number = probe.committed(&root, records)?;
        self.check_in(&root, true).ok()?.then_some(number)
    }

    /// Expect another content of a document from now on; `false` when it is not among them.
    pub fn put(&self, key: &str, content: Option<&[u8]>) -> bool {
        let Some(mut all) = self.lock() else { return false };
        let Some(document) = all.iter_mut().find(|document| document.key == key) else { return false };
        document.content = content.map(<[u8]>::to_vec);
        document.known = Known::Unknown;
        true
    }

    fn lock(&self) -> Option<MutexGuard<'_, Vec<Document>>> {
        if process::id() == self.process {
            return Some(self.all.lock().expect("no thread panics"));
        }
        fork::lock(&self.all)
    }
}

fn are_held(all: &mut [Document], root: Option<&Root<impl AsFd>>, strict: bool) -> Outcome<bool> {
    let mut buffer = Vec::new();
    for document in all {
        if !document.check(root, strict, &mut buffer)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Document {
    fn check(&mut self, root: Option<&Root<impl AsFd>>, strict: bool, buffer: &mut Vec<u8>) -> Outcome<bool> {
        if self.known != Known::Unknown {
            let found = root.map_or(Err(Errno::NOENT), |root| statat(root.folder(), &*self.key, AtFlags::empty()));
            if self.is_as_known(found) {
                return Ok(true);
            }
            if strict {
                return Ok(false);
            }
        }
        let (same, now) = match (root.map_or(Ok(None), |root| root.extent(&self.key))?, &self.content) {
            (None, content) => (content.is_none(), Known::Absent),
            (Some(extent), Some(content)) if extent.length == content.len() => {
                // Its identity was found first: a document that changes after that has another one.
                let now = extent.identity.map_or(Known::Unknown, Known::File);
                (extent.read_all(buffer)? == &content[..], now)
            }
            _ => (false, Known::Unknown),
        };
        self.known = if same { now } else { Known::Unknown };
        Ok(same)
    }

    /// Whether what the system says of the file is what it was when it was last compared.
    fn is_as_known(&self, found: rustix::io::Result<Stat>) -> bool {
        let now = match found {
            Ok(facts) => Identity::of(&facts).map_or(Known::Unknown, Known::File),
            Err(Errno::NOENT | Errno::NOTDIR) => Known::Absent,
            Err(_) => Known::Unknown,
        };
        now != Known::Unknown && now == self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, FileTimes};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    /// Write the document "a", as if that had been some seconds ago.
    fn write(folder: &Path, bytes: &[u8], age: u64) {
        fs::write(folder.join("a"), bytes).unwrap();
        let file = File::options().write(true).open(folder.join("a")).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    #[test]
    fn a_fork_does_not_wait_for_a_thread_that_it_does_not_have() {
        let elsewhere = Documents { process: 0, ..Documents::new(PathBuf::from("/"), vec![("a".into(), None)]) };
        let held = elsewhere.all.lock().unwrap();
        assert!(!elsewhere.check(false).unwrap());
        assert!(!elsewhere.put("a", None));
        drop(held);
        assert!(elsewhere.put("a", None));
    }

    #[test]
    fn documents_are_compared_until_they_are_known() {
        let folder = std::env::temp_dir().join(format!("documents-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |bytes: &[u8], age: u64| write(&folder, bytes, age);
        write(b"one", 9);
        let documents = Documents::new(folder.clone(), vec![("a".into(), Some(b"one".into())), ("b".into(), None)]);
        assert!(documents.check(true).unwrap());
        assert!(documents.check(true).unwrap());
        write(b"one", 5);
        assert!(!documents.check(true).unwrap(), "it was written again");
        assert!(documents.check(false).unwrap(), "with the same bytes");
        write(b"two", 3);
        assert!(!documents.check(false).unwrap());
        assert!(documents.put("a", Some(b"two")) && !documents.put("c", None));
        assert!(documents.check(true).unwrap());
        fs::write(folder.join("b"), b"").unwrap();
        assert!(!documents.check(false).unwrap(), "an empty file is not absent");
        fs::remove_file(folder.join("b")).unwrap();
        assert!(documents.check(false).unwrap());
        write(b"two", 0);
        assert!(documents.check(false).unwrap() && documents.check(true).unwrap(), "a young file is read");
        fs::remove_dir_all(&folder).unwrap();
        assert!(!documents.check(false).unwrap());
    }

    #[test]
    fn a_single_document_is_compared_like_others() {
        let folder = std::env::temp_dir().join(format!("document-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |bytes: &[u8], age: u64| write(&folder, bytes, age);
        write(b"one", 9);
        let documents = Documents::new(folder.clone(), vec![("a".into(), Some(b"one".into()))]);
        assert!(documents.check(true).unwrap() && documents.check(true).unwrap());
        write(b"two", 5);
        assert!(!documents.check(true).unwrap() && !documents.check(false).unwrap());
        assert!(documents.put("a", Some(b"two")));
        assert!(documents.check(true).unwrap() && documents.check(true).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert!(!documents.check(true).unwrap() && !documents.check(false).unwrap());
        let absent = Documents::new(folder, vec![("a".into(), None)]);
        assert!(absent.check(true).unwrap() && absent.check(true).unwrap(), "no folder, no document");
    }
}
