//! The memory that a thread needs to read and write chunks.

use crate::chunk::encode::Packer;
use crate::chunk::scratch::Scratch;
use std::sync::Mutex;

/// Threads that end leave their workspace to later ones: the system clears new memory page by page.
pub struct Workspace {
    pub scratch: Scratch,
    pub buffers: Buffers,
    /// A decoded chunk, or one to be encoded.
    pub chunk: Vec<u8>,
    /// The box around items of a chunk that are no box; the marks of a search.
    pub enclosing: Vec<u8>,
    pub packer: Packer,
    /// The bytes of a chunk file.
    pub framed: Vec<u8>,
}

/// What was read from a file.
#[derive(Default)]
pub struct Buffers {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    pub tail: Vec<u8>,
}

/// The most memory that is kept of threads that ended.
const SPARE_BYTES: usize = 32 << 20;
static SPARE: Mutex<Vec<Workspace>> = Mutex::new(Vec::new());

impl Workspace {
    fn empty() -> Self {
        Self {
            scratch: Scratch::default(),
            buffers: Buffers::default(),
            chunk: Vec::new(),
            enclosing: Vec::new(),
            packer: Packer::default(),
            framed: Vec::new(),
        }
    }

    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        let Self { scratch, buffers, chunk, enclosing, packer, framed } = self;
        let Buffers { head, body, tail } = buffers;
        let kept = [head, body, tail, chunk, enclosing, framed].map(|buffer| buffer.capacity());
        scratch.kept_bytes() + packer.capacity() + kept.iter().sum::<usize>()
    }
}

impl Default for Workspace {
    fn default() -> Self {
        // Never waited for: after a fork, the thread that held the lock may not exist.
        SPARE.try_lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_else(Self::empty)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let Ok(mut spare) = SPARE.try_lock() else { return };
        let kept: usize = spare.iter().map(Self::kept_bytes).sum();
        if self.kept_bytes() > 0 && kept + self.kept_bytes() <= SPARE_BYTES {
            spare.push(std::mem::replace(self, Self::empty()));
        }
    }
}
