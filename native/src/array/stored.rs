//! What is stored of the chunks of an array: found in the files of its addresses, or in bytes that the
//! caller hands over for one call.

use crate::array::addresses::{Addresses, Keys, State, Table};
use crate::array::grid::Grid;
use crate::array::layout::Layout;
use crate::array::super_chunks::OpenFiles;
use crate::error::{Error, Kind, Outcome, corrupt};
use crate::files::identity::Identity;
use crate::files::{Extent, Root};
use std::collections::HashMap;

/// A chunk that the caller hands over.
#[derive(Clone)]
pub enum HeldChunk<'a> {
    Stored(&'a [u8]),
    /// The same bytes as ever under this number, or others under another one.
    Numbered(&'a [u8], u64),
    Absent,
    /// No bytes at all: every item is this one.
    Constant(&'a [u8]),
    /// Some bytes of so many in front of the checksum, which the caller knows to be right or does not want
    /// to be compared; each with the place where it starts.
    Pieces(usize, Vec<(usize, &'a [u8])>),
    /// Bytes of an open file.
    File(Extent<'a>),
}

/// Chunks that the caller hands over, by their numbers in C order over the grid.
pub type Held<'a> = HashMap<usize, HeldChunk<'a>>;

/// A chunk as it is stored.
pub enum Chunk<'a> {
    Stored(Extent<'a>),
    Absent,
    /// No bytes at all: every item is this one.
    Constant(&'a [u8]),
}

/// Where a call finds chunks.
pub enum Stored<'a> {
    /// In files below a folder; without one, all chunks are absent.
    Folder(&'a Keys, Option<Root>),
    /// In one file below a folder: a call for a single chunk opens no folder.
    Single(&'a Keys),
    /// At places of files below a folder, which a table has.
    Table(&'a Table, Root),
    /// In the slots of super-chunk files below a folder.
    SuperChunks(OpenFiles<'a>),
    Held(&'a Held<'a>),
}

impl<'a> Stored<'a> {
    /// `single` says that the call visits one chunk only.
    pub fn open(layout: &'a Layout, held: Option<&'a Held<'a>>, single: bool) -> Outcome<Self> {
        match (&*layout.addresses, held) {
            (Addresses::Handed, Some(held)) => Ok(Self::Held(held)),
            (Addresses::Keyed(keys), None) if single => Ok(Self::Single(keys)),
            (Addresses::Keyed(keys), None) => Ok(Self::Folder(keys, keys.find()?)),
            (Addresses::Table(table), None) => match Root::open(&table.root)? {
                Some(root) => Ok(Self::Table(table, root)),
                None => corrupt!("{} is missing", table.root.display()),
            },
            (Addresses::SuperChunks(files), None) => files.open(&layout.fronts).map(Self::SuperChunks),
            (Addresses::Handed, None) => Err(Error::new(Kind::Argument, "the chunks are not handed over")),
            _ => Err(Error::new(Kind::Argument, "chunks of these addresses are not found one by one")),
        }
    }

    /// The key of a chunk; empty where chunks are handed over, since only the caller knows it.
    pub fn key(&self, grid: &Grid, coords: &[usize]) -> String {
        match self {
            Self::Table(table, _) => table.key(grid.number(coords)).unwrap_or_default().to_owned(),
            Self::SuperChunks(files) => files.key(grid.number(coords)),
            Self::Folder(keys, _) | Self::Single(keys) => keys.key(coords),
            Self::Held(_) => String::new(),
        }
    }

    /// Find the chunk at `coords`, whose key is `key`.
    pub fn chunk<'k>(&'k self, grid: &Grid, coords: &[usize], key: &'k str) -> Outcome<Chunk<'k>> {
        let found = match self {
            Self::Folder(_, root) => root.as_ref().map_or(Ok(None), |root| root.extent(key))?,
            Self::Single(keys) => keys.extent(key)?,
            Self::Table(table, root) => return find(table, root, grid, grid.number(coords), key),
            Self::SuperChunks(files) => return files.chunk(grid, grid.number(coords), key),
            Self::Held(held) => {
                let number = grid.number(coords);
                return match held.get(&number) {
                    Some(HeldChunk::Stored(bytes)) => Ok(Chunk::Stored(Extent::held(key, bytes))),
                    Some(HeldChunk::Numbered(bytes, state)) => {
                        let identity = Some(Identity::of_memory(*state, number, bytes.len()));
                        Ok(Chunk::Stored(Extent { identity, ..Extent::held(key, bytes) }))
                    }
                    Some(HeldChunk::Pieces(length, pieces)) => Ok(Chunk::Stored(Extent::pieces(key, *length, pieces))),
                    Some(HeldChunk::File(extent)) => Ok(Chunk::Stored(Extent { key, ..extent.clone() })),
                    Some(HeldChunk::Absent) => Ok(Chunk::Absent),
                    Some(HeldChunk::Constant(item)) if item.len() == grid.itemsize => Ok(Chunk::Constant(item)),
                    _ => Err(Error::new(Kind::Argument, format!("chunk {coords:?} is not handed over"))),
                };
            }
        };
        Ok(found.map_or(Chunk::Absent, Chunk::Stored))
    }
}

/// Find chunk `number` in the file `key`, as a table says.
fn find<'k>(table: &'k Table, root: &Root, grid: &Grid, number: usize, key: &'k str) -> Outcome<Chunk<'k>> {
    let Some(state) = table.state.get(number) else {
        return Err(Error::new(Kind::Argument, format!("chunk {number} is not in the table")));
    };
    match state {
        State::Absent => Ok(Chunk::Absent),
        State::Lost => corrupt!("the chunk is lost"),
        State::Constant => match table.constants.get(&number) {
            Some(item) if item.len() == grid.itemsize => Ok(Chunk::Constant(item)),
            _ => Err(Error::new(Kind::Argument, format!("chunk {number} has no constant item"))),
        },
        State::Stored => {
            let Some(extent) = root.extent(key)? else {
                return corrupt!("the chunk is missing");
            };
            let (start, length) = (table.start[number], table.length[number]);
            if start > extent.length as u64 {
                return corrupt!("{key}: the chunk starts at byte {start}, {} are stored", extent.length);
            }
            let length = (length != Table::END).then(|| usize::try_from(length).unwrap_or(usize::MAX));
            extent.narrowed(start, length).map(Chunk::Stored)
        }
    }
}
