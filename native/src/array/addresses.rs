//! Where the chunks of an array lie.

use crate::array::shards::ShardFormat;
use crate::error::{Error, Kind, Outcome};
use crate::files::{Extent, Renamed, Root};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the chunks of an array lie: in files below a folder, whose keys follow from coordinates, or
/// where only the caller can read.
pub enum Addresses {
    /// Each chunk is a file.
    Keyed(Keys),
    /// Each file is a shard, which holds many chunks and an index of them.
    Indexed(Keys, ShardFormat),
    /// Every call is handed the bytes of the chunks that it reads.
    Handed,
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
}

impl Addresses {
    /// The key of a chunk, or of a shard where the files are shards; empty where only the caller
    /// knows it.
    pub fn key(&self, coords: &[usize]) -> String {
        match self {
            Self::Keyed(keys) | Self::Indexed(keys, _) => keys.key(coords),
            Self::Handed => String::new(),
        }
    }
}

impl Keys {
    pub fn key(&self, coords: &[usize]) -> String {
        let mut key = self.prefix.clone();
        for (axis, coord) in coords.iter().take(self.leading).enumerate() {
            if axis > 0 {
                key.push_str(&self.separator);
            }
            key.push_str(itoa(*coord, &mut [0; 20]));
        }
        if coords.is_empty() {
            key.push_str(&self.scalar);
        }
        key + &self.suffix
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
fn itoa(mut number: usize, digits: &mut [u8; 20]) -> &str {
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
        };
        assert_eq!(keys.key(&[0, 1234567890, 5]), "c/0/1234567890");
        assert_eq!(keys.key(&[]), "c/0");
        assert_eq!(keys.staged_key(&[3, 4], "ab"), "c/3/.g-ab-4");
        let flat = Keys { prefix: text("__"), separator: text("."), suffix: text(".blp"), leading: 1, ..keys };
        assert_eq!(flat.staged_key(&[12], "ab"), ".g-ab-__12.blp");
    }
}
