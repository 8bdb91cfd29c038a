//! A commit that the kernel makes by itself, from the lock to its end.
//!
//! Where anything is unusual it is left to Python, and then nothing has changed.

use super::Root;
use super::commit::sync_folder;
use super::documents::Documents;
use super::writer_lock::{self, Left, Record, Turn};
use crate::fork;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Mutex;

/// Where the dataset lies, and what its lock file holds.
pub struct Dataset<'a> {
    pub path: &'a Path,
    /// The names of the lock file and of the journal.
    pub names: (&'a str, &'a str),
    pub record: &'a Record<'a>,
    /// The byte that is the lock of a writer that changes the state.
    pub apply: u64,
    /// The states that a writer leaves that has synced everything, and one that has not.
    pub clean: u8,
    pub loose: u8,
    pub durable: &'a Durable,
}

/// What a commit expects, and what it survives.
pub struct Expected<'a> {
    /// What the dataset must still hold.
    pub documents: &'a Documents,
    /// The version that the change is of.
    pub version: u64,
    /// Whether it survives a power cut.
    pub sync: bool,
}

/// The new version of the dataset, or why there is none. `None` where the change is left to Python.
pub type Changed = Option<Result<u64, Failed>>;

/// A change that failed, and what became of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    pub error: Errno,
    /// Whether a sync failed: what is durable is unknown.
    pub syncing: bool,
    /// Whether readers see the change.
    pub decided: bool,
}

impl Failed {
    /// Before readers see the change.
    pub fn early(error: Errno) -> Self {
        Self { error, syncing: false, decided: false }
    }

    /// When readers see the change.
    pub fn late(error: Errno) -> Self {
        Self { error, syncing: false, decided: true }
    }

    pub fn syncing(self) -> Self {
        Self { syncing: true, ..self }
    }
}

/// The folders whose names are durable, as of a version.
#[derive(Default)]
pub struct Durable(Mutex<(u64, Vec<String>)>);

impl Durable {
    fn of(&self, version: u64) -> Vec<String> {
        match fork::lock(&self.0) {
            Some(kept) if kept.0 == version => kept.1.clone(),
            _ => Vec::new(),
        }
    }

    fn keep(&self, version: u64, folders: Vec<String>) {
        if let Some(mut kept) = fork::lock(&self.0) {
            *kept = (version, folders);
        }
    }
}

/// The lock is held, and the dataset is as expected.
pub struct KernelTurn<'a> {
    pub root: Root<BorrowedFd<'a>>,
    pub sync: bool,
    turn: &'a Turn,
    apply: u64,
    mark: u8,
}

impl Dataset<'_> {
    /// Take the lock, have `make` make a commit, and release the lock.
    pub fn commit(&self, expected: &Expected<'_>, make: impl FnOnce(&KernelTurn<'_>) -> Changed) -> Changed {
        let Dataset { path, names, record, clean, loose, .. } = *self;
        let suits = |left: &Left| {
            let settled = left.state == clean || (left.state == loose && !expected.sync);
            settled && !left.journal && left.stager == 0 && left.sequence == expected.version
        };
        let turn = writer_lock::begin(path, names, record, suits)?;
        let made = self.make(&turn, expected, make);
        if made.is_none() {
            // If that fails the state stays busy, so the next writer recovers.
            let _ = turn.mark(turn.left.state);
        }
        turn.release();
        made
    }

    fn make(&self, turn: &Turn, expected: &Expected<'_>, make: impl FnOnce(&KernelTurn<'_>) -> Changed) -> Changed {
        let root = Root::of(turn.folder.as_fd());
        if !expected.documents.check_in(&root, true).ok()? {
            return None;
        }
        let mark = if expected.sync { self.clean } else { self.loose };
        make(&KernelTurn { root, sync: expected.sync, turn, apply: self.apply, mark })
    }
}

impl KernelTurn<'_> {
    /// Take the lock that keeps readers from pinning the state; `false` while one does.
    pub fn begin_apply(&self) -> bool {
        self.turn.begin_apply(self.apply)
    }

    /// Let one step switch the state, and settle it; return what the step does and the new version.
    pub fn switch<T>(&self, publish: impl FnOnce() -> Result<T, Failed>) -> Result<(T, u64), Failed> {
        self.turn.begin_switch().map_err(Failed::early)?;
        let published = publish();
        // The switch has happened or it has not: either way the state is settled now.
        let version = self.turn.end_switch().map_err(Failed::late);
        let (published, version) = (published?, version?);
        self.turn.mark(self.mark).map_err(Failed::late)?;
        Ok((published, version))
    }

    /// Apply the journal that has just got its name by `apply`, and settle the state; return the new version.
    /// Where that fails, the next writer applies the journal.
    pub fn apply_journal(&self, apply: impl FnOnce() -> Result<(), Errno>) -> Result<u64, Failed> {
        let applied = || {
            // Readers of the old state learn of the new one before anything is gone that they need.
            self.turn.advance(1)?;
            apply()?;
            let version = self.turn.advance(2)?;
            self.turn.mark(self.mark)?;
            Ok(version)
        };
        applied().map_err(Failed::late)
    }

    /// The folders that need no sync for their names to last.
    pub fn durable(&self, dataset: &Dataset<'_>) -> Folders {
        Folders { known: dataset.durable.of(self.turn.left.sequence), changed: Vec::new() }
    }
}

/// The folders that a synced commit changes.
pub struct Folders {
    known: Vec<String>,
    changed: Vec<String>,
}

impl Folders {
    /// Note that a name in a folder changes. Any folder above it may have been made by a process whose
    /// commit never came.
    pub fn change(&mut self, folder: &str) {
        if !self.known.iter().any(|known| known == folder) {
            for end in folder.match_indices('/').map(|(end, _)| end).chain([0]) {
                self.note(&folder[..end]);
                self.known.push(folder[..end].to_owned());
            }
            self.known.push(folder.to_owned());
        }
        self.note(folder);
    }

    fn note(&mut self, folder: &str) {
        if !self.changed.iter().any(|changed| changed == folder) {
            self.changed.push(folder.to_owned());
        }
    }

    /// Sync the folders that have changed.
    pub fn sync(&mut self, root: &Root<impl AsFd>) -> Result<(), Errno> {
        for folder in self.changed.drain(..) {
            let path = if folder.is_empty() { "." } else { &folder };
            sync_folder(root.open_with(path, super::commit::LISTING, Mode::empty())?.as_fd())?;
        }
        Ok(())
    }

    /// Remember the folders for the commit that follows `version`.
    pub fn keep(self, dataset: &Dataset<'_>, version: u64) {
        dataset.durable.keep(version, self.known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_above_are_synced_once() {
        let durable = Durable::default();
        assert!(durable.of(7).is_empty());
        let mut folders = Folders { known: durable.of(7), changed: vec![] };
        folders.change("c/3");
        assert_eq!(folders.changed, ["c", "", "c/3"]);
        folders.change("");
        assert_eq!(folders.changed, ["c", "", "c/3"]);
        durable.keep(8, folders.known);
        let mut folders = Folders { known: durable.of(8), changed: vec![] };
        folders.change("c/3");
        folders.change("c");
        assert_eq!(folders.changed, ["c/3", "c"]);
        folders.change("c/4");
        assert_eq!(folders.changed, ["c/3", "c", "", "c/4"]);
        assert!(durable.of(9).is_empty(), "another writer may have removed folders");
    }

    #[test]
    fn folders_that_are_gone_cannot_be_synced() {
        let path = std::env::temp_dir().join(format!("folders-{}", std::process::id()));
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        let root = Root::open(&path).unwrap().unwrap();
        let mut folders = Folders { known: vec![], changed: vec![] };
        folders.change("a/b");
        assert_eq!(folders.sync(&root), Ok(()));
        assert!(folders.changed.is_empty());
        folders.change("a/c");
        assert_eq!(folders.sync(&root), Err(Errno::NOENT));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
