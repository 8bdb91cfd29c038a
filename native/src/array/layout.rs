//! An array as the kernel sees it: where its chunks lie, how they are coded, and which items they
//! hold. Three values that are independent of each other.
//!
//! A `Layout` is made once per opened array. Beside the three values it has what was learnt of the
//! array's files: which chunks agreed with their checksum, what lies around their blocks, and the indexes of
//! shards. Operations are
//! in the modules of their subjects: `read`, `gather`, `staging`, `zones`, `search`.

use crate::array::addresses::Addresses;
use crate::array::coding::{Coding, Compression};
use crate::array::fronts::Fronts;
use crate::array::grid::Grid;
use crate::array::shards::IndexCache;
use crate::error::{Error, Kind, Outcome};
use crate::files::verified::{Verified, Verify};
use std::sync::{Arc, Mutex};

pub struct Layout {
    /// Where.
    pub addresses: Arc<Addresses>,
    /// How coded.
    pub coding: Coding,
    /// Which items.
    pub grid: Grid,
    pub verified: Verified,
    pub indexes: IndexCache,
    pub fronts: Fronts,
}

/// Why a chunk could not be used.
pub struct Failure {
    pub coords: Vec<usize>,
    pub key: String,
    pub error: Error,
}

/// The failures of a call. A call ends when there are very many: chunks are visited in order, so that
/// the first one that fails is among them, and an array may claim more chunks than memory holds.
#[derive(Default)]
pub struct Failures(Mutex<Vec<Failure>>);

impl Failures {
    pub const MOST: usize = 1000;

    /// Note a failure and return whether the call goes on.
    pub fn note(&self, failure: Failure) -> bool {
        let mut failures = self.0.lock().expect("no thread panics");
        failures.push(failure);
        failures.len() < Self::MOST
    }

    /// Whether the call goes on.
    pub fn are_few(&self) -> bool {
        self.0.lock().expect("no thread panics").len() < Self::MOST
    }

    pub fn into_inner(self) -> Vec<Failure> {
        self.0.into_inner().expect("no thread panics")
    }
}

impl Layout {
    pub fn new(addresses: Arc<Addresses>, coding: Coding, grid: Grid) -> Outcome<Self> {
        let wrong = |text: &str| Err(Error::new(Kind::Argument, text));
        let blosc = matches!(coding.compression, Compression::Blosc(_));
        if coding.framed && (!grid.is_c_order() || grid.shape.is_empty() || !blosc) {
            return wrong("rows are stored one after the other, in Blosc chunks");
        }
        if coding.framed && grid.is_rectilinear() {
            return wrong("chunks of rows have one length");
        }
        let chunks = blosc || matches!(coding.compression, Compression::Blosc2(_));
        if coding.slotted && (coding.framed || coding.checksum.is_some() || grid.shape.is_empty() || !chunks) {
            return wrong("slots hold Blosc chunks, with trailers and no other checksums");
        }
        if let Addresses::Indexed(_, format) = &*addresses
            && (format.axes() != grid.shape.len() || grid.is_rectilinear())
        {
            return wrong("shape and sharding do not fit together");
        }
        Ok(Self {
            addresses,
            coding,
            grid,
            verified: Verified::default(),
            indexes: IndexCache::default(),
            fronts: Fronts::default(),
        })
    }

    /// What is known of chunks that were read before; nothing where all has to be verified each time.
    pub fn fronts(&self) -> Option<&Fronts> {
        (self.coding.verify != Verify::Always).then_some(&self.fronts)
    }

    /// The same array in another shape, nothing being known of its files; `None` for an array in
    /// shards, in super-chunk files or with a table of chunks, or for another number of axes.
    pub fn resized(&self, shape: Vec<usize>, short: Option<(usize, usize)>) -> Option<Self> {
        if matches!(*self.addresses, Addresses::Indexed(..) | Addresses::Table(_) | Addresses::SuperChunks(_)) {
            return None;
        }
        Some(Self {
            addresses: Arc::clone(&self.addresses),
            coding: self.coding,
            grid: self.grid.resized(shape, short)?,
            verified: Verified::default(),
            indexes: IndexCache::default(),
            fronts: Fronts::default(),
        })
    }
}
