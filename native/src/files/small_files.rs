//! Small files of a folder, read together in one call.
//!
//! Reads the beginnings, or other short pieces, of several files at once. A large piece, and
//! anything that is no regular file below the folder, is an error: the caller then reads the files
//! one by one and reports what is wrong.

use crate::error::{Error, Kind, Outcome};
use crate::files::Root;
use crate::memory::reserved;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The most bytes of one piece.
const MOST: usize = 64 << 10;
/// The most first files of groups whose further files are known.
const MOST_NAMED: usize = 64;

/// The key of a file, where the piece begins, and how long it is at most; `None` for all to the end.
pub type Piece = (String, u64, Option<usize>);

/// Small files below a folder that are read together, prepared once for many calls. They come in
/// groups; `above` are names that may not be taken in the folder above, `resolved` the numbers of
/// groups whose reader needs the path of the folder without symbolic links.
pub struct SmallFiles {
    groups: Vec<Vec<Piece>>,
    above: Vec<String>,
    resolved: Vec<usize>,
    /// The further files that the first file of a group names, by the group and what it holds.
    named: Mutex<Named>,
}

type Named = HashMap<(usize, Vec<u8>), Arc<[Piece]>>;

impl SmallFiles {
    pub fn new(groups: Vec<Vec<Piece>>, above: &[String], resolved: Vec<usize>) -> Self {
        let above = above.iter().map(|name| format!("../{name}")).collect();
        Self { groups, above, resolved, named: Mutex::default() }
    }

    /// From now on, where the first file of a group holds `marker`, read these files as well. When
    /// many are known, all are forgotten.
    pub fn name_further(&self, group: usize, marker: Vec<u8>, pieces: Vec<Piece>) {
        let Ok(mut named) = self.named.try_lock() else { return };
        if named.len() >= MOST_NAMED {
            named.clear();
        }
        named.insert((group, marker), pieces.into());
    }

    /// Read the first group whose first file is present, and the further files that it is known to
    /// name, behind those of the group; `None` when there is no such group.
    pub fn read_first(&self, root: &Root) -> Outcome<Option<Group>> {
        let Some((number, mut found)) = read_first(root, &self.groups)? else { return Ok(None) };
        if let Some(pieces) = self.further(number, &mut found) {
            // The caller reads a file again that is not an ordinary small one.
            found.extend(read(root, &pieces).unwrap_or_default());
        }
        Ok(Some((number, found)))
    }

    fn further(&self, group: usize, found: &mut [Option<Vec<u8>>]) -> Option<Arc<[Piece]>> {
        // Never waited for: after a fork, the thread that held the lock may not exist.
        let named = self.named.try_lock().ok()?;
        if named.is_empty() {
            return None;
        }
        let key = (group, found.first_mut()?.take()?);
        let pieces = named.get(&key).map(Arc::clone);
        found[0] = Some(key.1);
        pieces
    }

    /// Return the path of `root` without symbolic links, if the reader of a group needs it and the
    /// system can name an open folder.
    pub fn real_path(&self, root: &Root, group: usize) -> Option<String> {
        self.resolved.contains(&group).then(|| root.real_path())?
    }

    /// Return whether one of the names may be taken in the folder above `root`.
    pub fn may_be_part(&self, root: &Root) -> bool {
        self.above.iter().any(|name| root.may_have(name))
    }

    /// Read the files of all groups.
    pub fn read(&self, root: &Root) -> Outcome<Vec<Option<Vec<u8>>>> {
        let groups: Outcome<Vec<_>> = self.groups.iter().map(|group| read(root, group)).collect();
        Ok(groups?.concat())
    }
}

/// Read pieces, each of a file of its own; `None` for a file that is absent.
pub fn read(root: &Root, pieces: &[Piece]) -> Outcome<Vec<Option<Vec<u8>>>> {
    pieces.iter().map(|piece| read_one(root, piece)).collect()
}

/// The number of a group of pieces, and what its files hold.
pub type Group = (usize, Vec<Option<Vec<u8>>>);

/// Read the first group of pieces whose first file is present; `None` when there is no such group.
fn read_first(root: &Root, groups: &[Vec<Piece>]) -> Outcome<Option<Group>> {
    for (number, group) in groups.iter().enumerate() {
        let Some((marker, others)) = group.split_first() else { continue };
        // An absent file is cheaper to rule out than to open. Most folders have the first marker.
        if number > 0 && !root.may_have(&marker.0) {
            continue;
        }
        let Some(bytes) = read_one(root, marker)? else { continue };
        let mut found = vec![Some(bytes)];
        found.append(&mut read(root, others)?);
        return Ok(Some((number, found)));
    }
    Ok(None)
}

fn read_one(root: &Root, (key, start, length): &Piece) -> Outcome<Option<Vec<u8>>> {
    let Some(extent) = root.extent(key)? else { return Ok(None) };
    let left = (extent.length as u64).saturating_sub(*start) as usize;
    let length = length.map_or(left, |length| length.min(left));
    if length > MOST {
        return Err(Error::new(Kind::Limit, format!("{key}: {length} bytes are more than a small piece")));
    }
    let mut bytes = reserved(length)?;
    bytes.resize(length, 0);
    extent.narrowed(*start, Some(length))?.read(0, &mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn piece(key: &str, start: u64, length: Option<usize>) -> Piece {
        (key.to_string(), start, length)
    }

    #[test]
    fn pieces_end_where_their_files_do() {
        let folder = std::env::temp_dir().join(format!("small-files-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(folder.join("a"), b"alpha").unwrap();
        fs::write(folder.join("inner/b"), vec![7; MOST + 1]).unwrap();
        let root = Root::open(&folder).unwrap().unwrap();
        let wanted = [piece("a", 0, None), piece("a", 3, Some(9)), piece("a", 9, Some(1)), piece("inner/c", 0, None)];
        let found = read(&root, &wanted).unwrap();
        assert_eq!(found, [Some(b"alpha".to_vec()), Some(b"ha".to_vec()), Some(vec![]), None]);
        let groups = [
            vec![piece("c", 0, None), piece("a", 0, None)],
            vec![piece("a", 0, None), piece("d", 0, None)],
            vec![piece("inner", 0, None)],
        ];
        assert_eq!(read_first(&root, &groups).unwrap(), Some((1, vec![Some(b"alpha".to_vec()), None])));
        assert_eq!(read_first(&root, &groups[..1]).unwrap(), None);
        assert_eq!(read_first(&root, &groups[2..]).unwrap_err().kind, Kind::Unsafe);
        assert_eq!(read(&root, &[piece("inner/b", 1, None)]).unwrap()[0].as_ref().unwrap().len(), MOST);
        assert_eq!(read(&root, &[piece("inner/b", 0, None)]).unwrap_err().kind, Kind::Limit);
        assert_eq!(read(&root, &[piece("inner", 0, None)]).unwrap_err().kind, Kind::Unsafe);
        assert_eq!(read(&root, &[piece("../a", 0, None)]).unwrap_err().kind, Kind::Unsafe);
        fs::remove_dir_all(&folder).unwrap();
    }
}
