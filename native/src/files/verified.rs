//! Which chunks were found to agree with their checksum, so that parts of them can be read later
//! without reading all of them again.
//!
//! A checksum covers a whole chunk. With `Verify::First` it is compared when a file is read for the
//! first time. As long as the identity of the file stays the same, its chunks are then read like
//! chunks without a checksum.

use super::Extent;
use super::identity::Identity;
use crate::error::{Error, Kind, Outcome};
use crate::fork;
use std::collections::HashSet;
use std::sync::Mutex;

/// The most chunks that are remembered; when there are more, all are forgotten.
const MOST: usize = 1 << 16;

/// When checksums are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    First,
    Always,
    Never,
}

impl Verify {
    pub fn parse(name: &str) -> Outcome<Self> {
        match name {
            "first" => Ok(Self::First),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(Error::new(Kind::Argument, format!("verify is {name:?}, not first, always or never"))),
        }
    }
}

/// A file, and the offset of a chunk in it.
type Place = (Identity, u64);

/// The chunks that agreed with their checksum.
#[derive(Default)]
pub struct Verified {
    places: Mutex<HashSet<Place>>,
}

/// What has to be done before a chunk is used.
pub enum Check {
    /// Nothing: its checksum was compared before, or is never compared.
    Skip,
    /// Compare the checksum, then remember the chunk if that is possible.
    Compare(Option<Unverified>),
}

/// A chunk to be remembered; its identity was taken before its bytes were read.
pub struct Unverified(Place);

impl Verified {
    /// `size` is that of the checksum, which lies in the extent.
    pub fn check(&self, verify: Verify, extent: &Extent<'_>, size: usize) -> Check {
        match verify {
            Verify::Never if extent.length >= size => Check::Skip,
            Verify::Always | Verify::Never => Check::Compare(None),
            Verify::First => match extent.identity.map(|identity| (identity, extent.offset)) {
                Some(place) if fork::lock(&self.places).is_some_and(|places| places.contains(&place)) => Check::Skip,
                place => Check::Compare(place.map(Unverified)),
            },
        }
    }

    /// Remember that a chunk agreed with its checksum.
    pub fn remember(&self, chunk: Option<Unverified>) {
        if let Some(Unverified(place)) = chunk
            && let Some(mut places) = fork::lock(&self.places)
        {
            if places.len() >= MOST {
                places.clear();
            }
            places.insert(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Bytes;
    use std::fs::{File, FileTimes};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    fn extent(file: &Arc<File>, offset: u64) -> Extent<'static> {
        let identity = Identity::of(&rustix::fs::fstat(file).unwrap());
        Extent { key: "chunk", bytes: Bytes::File(Arc::clone(file)), offset, length: 10, identity }
    }

    fn aged(file: &File, seconds: u64) {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    fn sample(name: &str) -> Arc<File> {
        let path = std::env::temp_dir().join(format!("ingot-verified-{}-{name}", std::process::id()));
        std::fs::write(&path, [7; 20]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Arc::new(file)
    }

    fn compared(verified: &Verified, verify: Verify, extent: &Extent<'_>) -> Option<Unverified> {
        match verified.check(verify, extent, 4) {
            Check::Skip => panic!("used without comparing its checksum"),
            Check::Compare(chunk) => chunk,
        }
    }

    #[test]
    fn a_chunk_is_verified_until_it_was() {
        let (file, verified) = (sample("first"), Verified::default());
        aged(&file, 10);
        let chunk = compared(&verified, Verify::First, &extent(&file, 0));
        assert!(chunk.is_some());
        verified.remember(chunk);
        assert!(matches!(verified.check(Verify::First, &extent(&file, 0), 4), Check::Skip));
        assert!(compared(&verified, Verify::First, &extent(&file, 4)).is_some());
        aged(&file, 5);
        assert!(compared(&verified, Verify::First, &extent(&file, 0)).is_some());
    }

    #[test]
    fn a_file_of_another_size_is_verified_though_its_time_is_the_same() {
        let (file, verified) = (sample("size"), Verified::default());
        let time = SystemTime::now() - Duration::from_secs(10);
        let age = || file.set_times(FileTimes::new().set_modified(time)).unwrap();
        age();
        verified.remember(compared(&verified, Verify::First, &extent(&file, 0)));
        assert!(matches!(verified.check(Verify::First, &extent(&file, 0), 4), Check::Skip));
        for size in [19, 21] {
            file.set_len(size).unwrap();
            age();
            assert!(compared(&verified, Verify::First, &extent(&file, 0)).is_some(), "{size} bytes");
        }
        file.set_len(20).unwrap();
        age();
        assert!(matches!(verified.check(Verify::First, &extent(&file, 0), 4), Check::Skip));
    }

    #[test]
    fn a_file_that_just_changed_is_not_remembered() {
        let (file, verified) = (sample("fresh"), Verified::default());
        aged(&file, 0);
        let chunk = compared(&verified, Verify::First, &extent(&file, 0));
        assert!(chunk.is_none());
        verified.remember(chunk);
        assert!(compared(&verified, Verify::First, &extent(&file, 0)).is_none());
    }

    #[test]
    fn every_choice_has_a_name() {
        for (name, choice) in [("first", Verify::First), ("always", Verify::Always), ("never", Verify::Never)] {
            assert_eq!(Verify::parse(name).unwrap(), choice);
        }
        let error = Verify::parse("sometimes").unwrap_err();
        assert!(error.kind == Kind::Argument && error.text.contains("\"sometimes\""), "{error}");
    }

    #[test]
    fn many_chunks_are_remembered_and_too_many_are_forgotten() {
        let (file, verified) = (sample("many"), Verified::default());
        aged(&file, 10);
        let chunk = extent(&file, 0);
        let at = |offset: u64| Extent { key: chunk.key, bytes: chunk.bytes.clone(), offset, ..chunk };
        let known = |offset| matches!(verified.check(Verify::First, &at(offset), 4), Check::Skip);
        for offset in 0..1 << 16 {
            verified.remember(compared(&verified, Verify::First, &at(offset)));
        }
        assert!(known(0) && known(1) && known((1 << 16) - 1));
        verified.remember(compared(&verified, Verify::First, &at(1 << 16)));
        assert!(!known(0) && !known((1 << 16) - 1) && known(1 << 16));
    }

    #[test]
    fn always_and_never_mean_what_they_say() {
        let (file, verified) = (sample("modes"), Verified::default());
        aged(&file, 10);
        assert!(compared(&verified, Verify::Always, &extent(&file, 0)).is_none());
        assert!(matches!(verified.check(Verify::Never, &extent(&file, 0), 4), Check::Skip));
        let short = Extent { length: 3, ..extent(&file, 0) };
        assert!(compared(&verified, Verify::Never, &short).is_none());
        assert_eq!(Verify::parse("sometimes").unwrap_err().kind, Kind::Argument);
    }
}
