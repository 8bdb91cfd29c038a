//! Which sealed chunks have been verified, so that parts of them can be read without reading
//! all of them again.
//!
//! A seal covers a whole chunk. With `First` it is held against the bytes when a file is met
//! for the first time; as long as that file stays what it was, its chunks are then read like
//! those without a seal.

use crate::array::coding::Chain;
use crate::array::scatter::Region;
use crate::chunk::scratch::Scratch;
use crate::error::{Error, Kind, Outcome};
use crate::files::{Buffers, Extent};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// The size of a seal.
pub const SEAL: usize = 4;

/// The most chunks that are remembered; beyond that everything is forgotten.
const MOST: usize = 1 << 16;

/// A file that was changed just now may be changed again without its time telling.
const SETTLED_AFTER: i128 = 100_000_000;

/// When seals are held against the bytes.
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

/// Where a chunk lies: device, file, its time of change and size, and the place inside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity([u64; 3], i128, u64);

impl Identity {
    /// `None` when nothing would tell if the file were changed again.
    fn of(extent: &Extent<'_>) -> Option<Self> {
        let facts = extent.file.metadata().ok()?;
        let changed = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let settled = i128::try_from(now).ok()? - changed >= SETTLED_AFTER;
        settled.then_some(Self([facts.dev(), facts.ino(), facts.size()], changed, extent.offset))
    }
}

pub struct Seals {
    verify: Verify,
    known: Mutex<HashSet<Identity>>,
}

/// What is to be done about the seal of one chunk.
pub enum Trust {
    /// Nothing: it was found to be right, or nobody cares.
    Given,
    /// It is to be verified, and may be remembered then.
    Needed(Option<Remembered>),
}

/// The right to remember a chunk: its identity was taken before its bytes were read.
pub struct Remembered(Identity);

impl Seals {
    /// For other files: nothing is known of any.
    pub fn renewed(&self) -> Self {
        Self::new(self.verify)
    }

    pub fn new(verify: Verify) -> Self {
        Self { verify, known: Mutex::new(HashSet::new()) }
    }

    /// Whether nobody wants to know if seals are right.
    pub fn are_ignored(&self) -> bool {
        self.verify == Verify::Never
    }

    /// What to do with a sealed chunk that is about to be read.
    pub fn trust(&self, extent: &Extent<'_>) -> Trust {
        match self.verify {
            Verify::Never if extent.length >= SEAL => Trust::Given,
            Verify::Always | Verify::Never => Trust::Needed(None),
            Verify::First => match Identity::of(extent) {
                Some(identity) if self.known.lock().expect("no thread panics").contains(&identity) => Trust::Given,
                identity => Trust::Needed(identity.map(Remembered)),
            },
        }
    }

    /// Decode what `region` wants of a sealed chunk that lies in a file: by parts, once it was
    /// found to agree with its seal.
    #[allow(clippy::too_many_arguments, reason = "as of `Chain::read`")]
    pub fn read(
        &self,
        chain: &Chain,
        extent: &Extent<'_>,
        expected: usize,
        region: &Region,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
        chunk: &mut Vec<u8>,
    ) -> Outcome<()> {
        match self.trust(extent) {
            Trust::Needed(right) => {
                chain.read(extent, expected, region, scratch, buffers, chunk)?;
                self.remember(right);
                Ok(())
            }
            Trust::Given => {
                let length = extent.length.saturating_sub(SEAL);
                let inside = Extent { key: extent.key, file: Arc::clone(&extent.file), length, ..*extent };
                chain.unsealed().read(&inside, expected, region, scratch, buffers, chunk)
            }
        }
    }

    /// Note that a chunk agreed with its seal.
    pub fn remember(&self, right: Option<Remembered>) {
        if let Some(Remembered(identity)) = right {
            let mut known = self.known.lock().expect("no thread panics");
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};
    use std::time::Duration;

    fn extent(file: &Arc<File>, offset: u64) -> Extent<'static> {
        Extent { key: "chunk", file: Arc::clone(file), offset, length: 10 }
    }

    fn aged(file: &File, seconds: u64) {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    fn sample(name: &str) -> Arc<File> {
        let path = std::env::temp_dir().join(format!("ingot-seals-{}-{name}", std::process::id()));
        std::fs::write(&path, [7; 20]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Arc::new(file)
    }

    fn needed(seals: &Seals, extent: &Extent<'_>) -> Option<Remembered> {
        match seals.trust(extent) {
            Trust::Given => panic!("trusted without a look"),
            Trust::Needed(right) => right,
        }
    }

    #[test]
    fn a_chunk_is_verified_until_it_was() {
        let (file, seals) = (sample("first"), Seals::new(Verify::First));
        aged(&file, 10);
        let right = needed(&seals, &extent(&file, 0));
        assert!(right.is_some());
        seals.remember(right);
        assert!(matches!(seals.trust(&extent(&file, 0)), Trust::Given));
        assert!(needed(&seals, &extent(&file, 4)).is_some());
        aged(&file, 5);
        assert!(needed(&seals, &extent(&file, 0)).is_some());
    }

    #[test]
    fn what_changed_just_now_is_not_remembered() {
        let (file, seals) = (sample("fresh"), Seals::new(Verify::First));
        aged(&file, 0);
        let right = needed(&seals, &extent(&file, 0));
        assert!(right.is_none());
        seals.remember(right);
        assert!(needed(&seals, &extent(&file, 0)).is_none());
    }

    #[test]
    fn always_and_never_mean_what_they_say() {
        let file = sample("modes");
        aged(&file, 10);
        assert!(needed(&Seals::new(Verify::Always), &extent(&file, 0)).is_none());
        assert!(matches!(Seals::new(Verify::Never).trust(&extent(&file, 0)), Trust::Given));
        let short = Extent { length: 3, ..extent(&file, 0) };
        assert!(needed(&Seals::new(Verify::Never), &short).is_none());
        assert_eq!(Verify::parse("sometimes").unwrap_err().kind, Kind::Argument);
    }
}
