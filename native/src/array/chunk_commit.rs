//! The change of a chunk that is a file, as a commit of one call: the lock is taken, the chunk read, merged,
//! encoded and staged, and gets its name. An append makes one chunk or two, and publishes them by the document
//! that has the length. Whatever is unusual is left to Python; then nothing has changed.

use crate::array::addresses::{Addresses, Keys};
use crate::array::scatter::SourceMemory;
use crate::array::selection::Selection;
use crate::array::staging::encode_chunk;
use crate::array::stored::Chunk;
use crate::array::workspace::Workspace;
use crate::error::{Error, Kind, Outcome};
use crate::files::kernel_commit::{Changed, Dataset, Expected, Failed, KernelTurn};
use crate::files::new_value::{self, NewValue};
use rustix::io::Errno;

/// The spare files of chunks and of documents, in the folder of the dataset.
const SPARE_CHUNK: &str = ".g-spare-chunk";
const SPARE_DOCUMENT: &str = ".g-spare-document";

/// An append touches at most so many chunks: one that it fills up, and one that it makes.
const MOST_CHUNKS: usize = 2;

/// What changes.
pub struct Change<'a> {
    /// What the chunk gets.
    pub selection: &'a Selection<'a, SourceMemory<'a>>,
    /// The key and the new value of the document that makes readers see the chunks; without it there is one
    /// chunk, which readers see as soon as it has its name.
    pub document: Option<(&'a str, &'a [u8])>,
    /// What new files have in their staged names.
    pub transaction: &'a str,
}

/// Change a chunk, or add chunks, and return the new version of the dataset. `None` where that is left to
/// Python.
pub fn change(
    dataset: &Dataset<'_>,
    expected: &Expected<'_>,
    change: &Change<'_>,
    workspace: &mut Workspace,
) -> Changed {
    let Addresses::Keyed(keys) = &*change.selection.layout.addresses else { return None };
    let count = change.selection.count();
    let most = if change.document.is_some() { MOST_CHUNKS } else { 1 };
    if keys.root != dataset.path || keys.renamed.is_some() || !keys.parts.is_empty() || !(1..=most).contains(&count) {
        return None;
    }
    let names = chunk_keys(change.selection, keys);
    dataset.commit(expected, |turn| {
        let mut values = Vec::with_capacity(count + 1);
        let changed =
            stage(turn, change, &names, workspace, &mut values).and_then(|()| publish(turn, dataset, &mut values));
        if !matches!(changed, Some(Ok(_))) {
            values.iter_mut().for_each(|value| value.discard(&turn.root));
        }
        changed
    })
}

fn chunk_keys(selection: &Selection<'_, SourceMemory<'_>>, keys: &Keys) -> Vec<String> {
    (0..selection.count()).map(|number| keys.key(&selection.chunk(number).coords())).collect()
}

/// Encode the chunks and write them under staged names, the document last. `None` where a chunk cannot be read
/// or written, and where it holds nothing but the fill value.
fn stage<'a>(
    turn: &KernelTurn<'_>,
    change: &Change<'a>,
    keys: &'a [String],
    workspace: &mut Workspace,
    values: &mut Vec<NewValue<'a>>,
) -> Option<()> {
    let root = &turn.root;
    let spare = |name, first: bool| (first && !turn.sync).then_some(name);
    for (number, key) in keys.iter().enumerate() {
        let part = change.selection.chunk(number);
        let old = || Ok(root.extent(key)?.map_or(Chunk::Absent, Chunk::Stored));
        let keep = |bytes: &[u8]| -> Outcome<NewValue<'a>> {
            let staged = new_value::stage(root, key, change.transaction, spare(SPARE_CHUNK, number == 0), bytes);
            staged.ok_or_else(|| Error::new(Kind::System(0), "writing a chunk"))
        };
        values.push(encode_chunk(change.selection, &part, old, workspace, keep).ok()??);
    }
    if let Some((key, bytes)) = change.document {
        values.push(new_value::stage(root, key, change.transaction, spare(SPARE_DOCUMENT, true), bytes)?);
    }
    Some(())
}

/// Sync what is staged, give all values but the last their names, and let the last one switch the state.
/// `None` while a reader pins the state.
fn publish(turn: &KernelTurn<'_>, dataset: &Dataset<'_>, values: &mut [NewValue<'_>]) -> Changed {
    if turn.sync {
        if values.len() > 1 {
            // Once all are being written back, waiting for the first mostly covers the others.
            values.iter().for_each(NewValue::start_writing);
        }
        if let Err(error) = values.iter().try_for_each(NewValue::sync) {
            return Some(Err(Failed::early(error).syncing()));
        }
    }
    if let Err(error) = values.iter_mut().try_for_each(NewValue::close) {
        return Some(Err(Failed::early(error)));
    }
    if !turn.begin_apply() {
        return None; // Python waits for the reader.
    }
    Some(switch(turn, dataset, values))
}

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
