//! Where the chunks of an array lie.

use crate::array::shards::ShardFormat;
use crate::array::super_chunks::SuperChunks;
use crate::error::{Error, Kind, Outcome};
use crate::files::{Extent, Renamed, Root};
use crate::memory::reserved;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the chunks of an array lie: in files below a folder, whose keys follow from coordinates, or
/// where only the caller can read.
pub enum Addresses {
    /// Each chunk is a file.
    Keyed(Keys),
    /// Each file is a shard, which holds many chunks and an index of them.
    Indexed(Keys, ShardFormat),
    /// Each chunk is some bytes of a file.
    Table(Table),
    /// Each file holds many chunks behind an index, which is read when a chunk of it is wanted.
    SuperChunks(SuperChunks),
    /// Every call is handed the bytes of the chunks that it reads.
    Handed,
}

/// What a table says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Stored,
    /// Every item is the fill value.
    Absent,
    /// Every item is the one that the table has for the chunk.
    Constant,
    /// The bytes do not exist, although they should.
    Lost,
}

/// Files below a folder, and for each chunk, by its number in C order over the grid, its bytes in one
/// of them. The columns have one length.
pub struct Table {
    pub root: PathBuf,
    pub files: Vec<String>,
    pub file: Vec<u32>,
    pub start: Vec<u64>,
    /// The bytes of each chunk; with `END` all that follow in the file.
    pub length: Vec<u64>,
    pub state: Vec<State>,
    /// The items of constant chunks.
    pub constants: HashMap<usize, Vec<u8>>,
}

impl Table {
    pub const END: u64 = u64::MAX;

    pub fn new(
        root: PathBuf,
        files: Vec<String>,
        columns: (Vec<u32>, Vec<u64>, Vec<u64>, Vec<u8>),
        constants: HashMap<usize, Vec<u8>>,
    ) -> Outcome<Self> {
        let wrong = |text: String| Err(Error::new(Kind::Argument, text));
        let (file, start, length, states) = columns;
        if [start.len(), length.len(), states.len()] != [file.len(); 3] {
            return wrong("the columns of a table of chunks differ in length".into());
        }
        let mut state = reserved(states.len())?;
        for (number, code) in states.iter().enumerate() {
            state.push(match code {
                0 if file[number] as usize >= files.len() => {
                    return wrong(format!("chunk {number} lies in file {} of {}", file[number], files.len()));
                }
                0 => State::Stored,
                1 => State::Absent,
                2 if constants.contains_key(&number) => State::Constant,
                3 => State::Lost,
                _ => return wrong(format!("chunk {number} has the state {code}")),
            });
        }
        Ok(Self { root, files, file, start, length, state, constants })
    }

    /// The file of a chunk that is stored.
    pub fn key(&self, number: usize) -> Option<&str> {
        match self.state.get(number)? {
            State::Stored => self.files.get(self.file[number] as usize).map(String::as_str),
            _ => None,
        }
    }
}

/// The keys of files below a folder: coordinates between a prefix and a suffix.
pub struct Keys {
    pub root: PathBuf,
    pub prefix: String,
    pub separator: String,
    pub suffix: String,
    /// The name of the only chunk of an array without axes.
    pub scalar: String,
    /// How many of the first axes are in a key; along the others the array is not cut.
    pub leading: usize,
    /// Keys that a journal changes.
    pub renamed: Option<Arc<Renamed>>,
    /// Where chunks along the first axis lie in parts that count them from 0: the number of the first
    /// chunk of each part, and the prefix of its keys.
    pub parts: Vec<(usize, String)>,
}

impl Addresses {
    /// The key of a chunk, or of a shard where the files are shards; empty where only the caller
    /// knows it.
    pub fn key(&self, coords: &[usize]) -> String {
        match self {
            Self::Keyed(keys) | Self::Indexed(keys, _) => keys.key(coords),
            Self::Table(_) | Self::SuperChunks(_) | Self::Handed => String::new(),
        }
    }
}

impl Keys {
    pub fn key(&self, coords: &[usize]) -> String {
        let (skipped, prefix) = self.part(coords);
        let mut key = prefix.to_owned();
        for (axis, coord) in coords.iter().take(self.leading).enumerate() {
            if axis > 0 {
                key.push_str(&self.separator);
            }
            let number = if axis > 0 { *coord } else { coord - skipped };
            key.push_str(itoa(number, &mut [0; 20]));
        }
        if coords.is_empty() {
            key.push_str(&self.scalar);
        }
        key + &self.suffix
    }

    /// The first chunk along the first axis of the part that has a chunk, and the prefix of its keys.
    fn part(&self, coords: &[usize]) -> (usize, &str) {
        let Some(number) = coords.first().filter(|_| !self.parts.is_empty()) else { return (0, &self.prefix) };
        // Of parts with one first chunk all but the last are empty.
        let behind = self.parts.partition_point(|(first, _)| first <= number);
        behind.checked_sub(1).map_or((0, &self.prefix), |part| (self.parts[part].0, &self.parts[part].1))
    }

    /// The key of the staged image of a chunk: in the folder of the chunk, under a name that no
    /// chunk has.
    pub fn staged_key(&self, coords: &[usize], transaction: &str) -> String {
        let key = self.key(coords);
        let (folder, name) = key.rsplit_once('/').map_or(("", &*key), |(folder, name)| (folder, name));
        let slash = if folder.is_empty() { "" } else { "/" };
        format!("{folder}{slash}.g-{transaction}-{name}")
    }

    /// Open the folder; `None` when it is absent.
    pub fn find(&self) -> Outcome<Option<Root>> {
        Ok(Root::open(&self.root)?.map(|root| root.renaming(self.renamed.as_ref())))
    }

    /// The file of a key that is read alone.
    pub fn extent<'a>(&self, key: &'a str) -> Outcome<Option<Extent<'a>>> {
        match self.renamed {
            None => Root::extent_in(&self.root, key),
            Some(_) => self.find()?.map_or(Ok(None), |root| root.extent(key)),
        }
    }

    /// Open the folder, after creating it where it is absent: a new array has no folder before its
    /// first chunk.
    pub fn create(&self) -> Outcome<Root> {
        if let Some(root) = Root::open(&self.root)? {
            return Ok(root);
        }
        Root::create_folder(&self.root)?;
        match Root::open(&self.root)? {
            Some(root) => Ok(root),
            None => Err(Error::new(Kind::Argument, format!("{} is no folder", self.root.display()))),
        }
    }
}

/// Decimal digits without going through the formatting machinery: keys are hot.
pub fn itoa(mut number: usize, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return std::str::from_utf8(&digits[at..]).expect("digits are ASCII");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_from_coordinates() {
        let text = String::from;
        let keys = Keys {
            root: PathBuf::new(),
            prefix: text("c/"),
            separator: text("/"),
            suffix: text(""),
            scalar: text("0"),
            leading: 2,
            renamed: None,
            parts: Vec::new(),
        };
        assert_eq!(keys.key(&[0, 1234567890, 5]), "c/0/1234567890");
        assert_eq!(keys.key(&[]), "c/0");
        assert_eq!(keys.staged_key(&[3, 4], "ab"), "c/3/.g-ab-4");
        let flat = Keys { prefix: text("__"), separator: text("."), suffix: text(".blp"), leading: 1, ..keys };
        assert_eq!(flat.staged_key(&[12], "ab"), ".g-ab-__12.blp");
        let parts = vec![(0, text("a/__")), (3, text("b/__")), (3, text("c/__")), (7, text("d/__"))];
        let parts = Keys { parts, ..flat };
        let found = [[0], [2], [3], [6], [7], [19]].map(|coords| parts.key(&coords));
        assert_eq!(found, ["a/__0.blp", "a/__2.blp", "c/__0.blp", "c/__3.blp", "d/__0.blp", "d/__12.blp"]);
    }

    #[test]
    fn a_table_has_columns_of_one_length_and_files_for_what_is_stored() {
        let table = |file: Vec<u32>, state: Vec<u8>| {
            let length = vec![4; 2];
            let constants = HashMap::from([(1, vec![7])]);
            Table::new(PathBuf::new(), vec!["a".into()], (file, vec![0, 4], length, state), constants)
        };
        let made = table(vec![0, 9], vec![0, 2]).unwrap();
        assert_eq!((made.key(0), made.key(1), made.key(2)), (Some("a"), None, None));
        assert!(table(vec![0], vec![0, 2]).is_err());
        assert!(table(vec![1, 0], vec![0, 1]).is_err(), "there is one file only");
        assert!(table(vec![0, 0], vec![2, 0]).is_err(), "chunk 0 has no item");
        assert!(table(vec![0, 0], vec![0, 4]).is_err());
    }
}
