//! The change of a chunk that is a file, as a commit of one call: the lock is taken, the chunk read, merged,
//! encoded and staged, and gets its name. An append makes one chunk or two of each array, and publishes them by
//! the document that has the length, or by a journal where several arrays have one. Whatever is unusual is left
//! to Python; then nothing has changed.

use crate::array::addresses::Addresses;
use crate::array::scatter::SourceMemory;
use crate::array::selection::Selection;
use crate::array::staging::encode_chunk;
use crate::array::stored::Chunk;
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome};
use crate::files::journal;
use crate::files::kernel_commit::{Changed, Dataset, Expected, Failed, KernelTurn};
use crate::files::new_value::{self, NewValue};
use rustix::io::Errno;

/// The spare files of chunks and of documents, in the folder of the dataset: one for each value of a commit,
/// as far as there are names.
const SPARE_CHUNKS: [&str; 8] = [
    ".g-spare-chunk",
    ".g-spare-chunk1",
    ".g-spare-chunk2",
    ".g-spare-chunk3",
    ".g-spare-chunk4",
    ".g-spare-chunk5",
    ".g-spare-chunk6",
    ".g-spare-chunk7",
];
const SPARE_DOCUMENTS: [&str; 8] = [
    ".g-spare-document",
    ".g-spare-document1",
    ".g-spare-document2",
    ".g-spare-document3",
    ".g-spare-document4",
    ".g-spare-document5",
    ".g-spare-document6",
    ".g-spare-document7",
];
const SPARE_JOURNAL: &str = ".g-spare-journal";

/// An append touches at most so many chunks of an array: one that it fills up, and one that it makes.
const MOST_CHUNKS: usize = 2;
/// A journal carries documents of so many bytes, all together.
const MOST_CARRIED: usize = 1 << 16;

/// What changes.
pub struct Change<'a> {
    /// What the chunks of each array get.
    pub selections: &'a [Selection<'a, SourceMemory<'a>>],
    /// The keys and the new values of the documents that make readers see the chunks; without them there is one
    /// chunk, which readers see as soon as it has its name.
    pub documents: &'a [(&'a str, &'a [u8])],
    /// What new files have in their staged names.
    pub transaction: &'a str,
}

/// The values that a commit stages.
#[derive(Default)]
struct Staged<'a> {
    /// Chunks, then documents.
    values: Vec<NewValue<'a>>,
    /// Where several documents change together.
    journal: Option<NewValue<'a>>,
}

impl Staged<'_> {
    fn discard(&mut self, turn: &KernelTurn<'_>) {
        self.values.iter_mut().chain(&mut self.journal).for_each(|value| value.discard(&turn.root));
    }
}

/// Change a chunk, or add chunks, and return the new version of the dataset. `None` where that is left to
/// Python.
pub fn change(
    dataset: &Dataset<'_>,
    expected: &Expected<'_>,
    change: &Change<'_>,
    workspace: &mut Workspace,
) -> Changed {
    let keys: Vec<_> = change
        .selections
        .iter()
        .map(|selection| chunk_keys(selection, dataset, !change.documents.is_empty()))
        .collect::<Option<_>>()?;
    let chunks: usize = keys.iter().map(Vec::len).sum();
    if change.documents.is_empty() && chunks != 1 {
        return None;
    }
    let journal = match change.documents {
        [] | [_] => None,
        // Several files are synced at once by Python.
        _ if expected.sync => return None,
        documents if documents.iter().map(|(_, value)| value.len()).sum::<usize>() > MOST_CARRIED => return None,
        documents => Some(journal::pack(change.transaction, documents)?),
    };
    dataset.commit(expected, |turn| {
        let mut staged = Staged::default();
        let changed = stage(turn, change, &keys, workspace, &mut staged)
            .and_then(|()| stage_journal(turn, dataset, change, journal.as_deref(), &mut staged))
            .and_then(|()| publish(turn, dataset, chunks, &mut staged));
        if !matches!(changed, Some(Ok(_))) {
            staged.discard(turn);
        }
        changed
    })
}

/// The keys of the chunks that get items of an array, at most as many as a commit of the kernel changes.
fn chunk_keys(
    selection: &Selection<'_, SourceMemory<'_>>,
    dataset: &Dataset<'_>,
    growing: bool,
) -> Option<Vec<String>> {
    let Addresses::Keyed(keys) = &*selection.layout.addresses else { return None };
    let most = if growing { MOST_CHUNKS } else { 1 };
    let suits = keys.root == dataset.path && keys.renamed.is_none() && keys.parts.is_empty();
    if !suits || !(1..=most).contains(&selection.count()) {
        return None;
    }
    Some((0..selection.count()).map(|number| keys.key(&selection.chunk(number).coords())).collect())
}

/// Encode the chunks and write them under staged names, the documents last. `None` where a chunk cannot be read
/// or written, and where it holds nothing but the fill value.
fn stage<'a>(
    turn: &KernelTurn<'_>,
    change: &Change<'a>,
    keys: &'a [Vec<String>],
    workspace: &mut Workspace,
    staged: &mut Staged<'a>,
) -> Option<()> {
    let root = &turn.root;
    let spare = |names: &[&'static str], number: usize| {
        if turn.sync { None } else { names.get(number).copied() }
    };
    for (selection, keys) in change.selections.iter().zip(keys) {
        for (number, key) in keys.iter().enumerate() {
            let part = selection.chunk(number);
            let old = || Ok(root.extent(key)?.map_or(Chunk::Absent, Chunk::Stored));
            let spare = spare(&SPARE_CHUNKS, staged.values.len());
            let keep = |bytes: &[u8]| -> Outcome<NewValue<'a>> {
                let value = new_value::stage(root, key, change.transaction, spare, bytes);
                value.ok_or_else(|| Error::new(Kind::System(0), "writing a chunk"))
            };
            staged.values.push(encode_chunk(selection, &part, old, workspace, keep).ok()??);
        }
    }
    for (number, (key, bytes)) in change.documents.iter().enumerate() {
        let spare = spare(&SPARE_DOCUMENTS, number);
        staged.values.push(new_value::stage(root, key, change.transaction, spare, bytes)?);
    }
    Some(())
}

/// Write the journal under a staged name, where there is one.
fn stage_journal<'a>(
    turn: &KernelTurn<'_>,
    dataset: &Dataset<'a>,
    change: &Change<'_>,
    journal: Option<&[u8]>,
    staged: &mut Staged<'a>,
) -> Option<()> {
    let Some(bytes) = journal else { return Some(()) };
    let like = staged.values.last()?;
    let spare = Some(SPARE_JOURNAL);
    staged.journal = Some(new_value::stage_new(&turn.root, dataset.names.1, change.transaction, spare, like, bytes)?);
    Some(())
}

/// Sync what is staged, and let readers see it. `None` while a reader pins the state.
fn publish(turn: &KernelTurn<'_>, dataset: &Dataset<'_>, chunks: usize, staged: &mut Staged<'_>) -> Changed {
    let Staged { values, journal } = staged;
    if turn.sync {
        if values.len() > 1 {
            // Once all are being written back, waiting for the first mostly covers the others.
            values.iter().for_each(NewValue::start_writing);
        }
        if let Err(error) = values.iter().try_for_each(NewValue::sync) {
            return Some(Err(Failed::early(error).syncing()));
        }
    }
    if let Err(error) = values.iter_mut().chain(&mut *journal).try_for_each(NewValue::close) {
        return Some(Err(Failed::early(error)));
    }
    if !turn.begin_apply() {
        return None; // Python waits for the reader.
    }
    Some(match journal {
        None => switch(turn, dataset, values),
        Some(journal) => decide(turn, values, chunks, journal),
    })
}

/// Give all values but the last their names, and let the last one switch the state.
fn switch(turn: &KernelTurn<'_>, dataset: &Dataset<'_>, values: &mut [NewValue<'_>]) -> Result<u64, Failed> {
    let (last, early) = values.split_last_mut().ok_or(Failed::early(Errno::INVAL))?;
    let mut folders = turn.durable(dataset);
    for value in early.iter_mut() {
        value.publish(&turn.root).map_err(Failed::early)?;
        folders.change(value.folder());
    }
    if turn.sync && !early.is_empty() {
        folders.sync(&turn.root).map_err(|error| Failed::early(error).syncing())?;
    }
    let publish = || {
        let failed = |error, published| Failed { error, syncing: false, decided: published };
        last.publish(&turn.root).map_err(|error| failed(error, last.is_published()))?;
        if turn.sync {
            folders.change(last.folder());
            folders.sync(&turn.root).map_err(|error| Failed::late(error).syncing())?;
        }
        Ok(folders)
    };
    let (folders, version) = turn.switch(publish)?;
    if turn.sync {
        folders.keep(dataset, version);
    }
    Ok(version)
}

/// Give the chunks their names, let the journal switch the state, and give the documents their names.
fn decide(
    turn: &KernelTurn<'_>,
    values: &mut [NewValue<'_>],
    chunks: usize,
    journal: &mut NewValue<'_>,
) -> Result<u64, Failed> {
    let root = &turn.root;
    let (chunks, documents) = values.split_at_mut_checked(chunks).ok_or(Failed::early(Errno::INVAL))?;
    chunks.iter_mut().try_for_each(|chunk| chunk.publish(root)).map_err(Failed::early)?;
    // An error of a step behind the rename would come with the journal under its name.
    journal.publish(root).map_err(|error| Failed { error, syncing: false, decided: journal.is_published() })?;
    turn.apply_journal(|| {
        documents.iter_mut().try_for_each(|document| document.publish(root))?;
        journal.withdraw(root)
    })
}
