//! The memory that one thread uses again from block to block and from call to call.

use crate::chunk::codecs::streams::Codecs;

#[derive(Default)]
pub struct Scratch {
    pub codecs: Codecs,
    /// A block as its streams hold it, filters still applied.
    pub filtered: Vec<u8>,
    /// Memory for the second step of bitshuffle.
    pub planes: Vec<u8>,
    /// A block, or a part of it, with filters undone.
    pub plain: Vec<u8>,
    /// A block between two filters.
    pub between: Vec<u8>,
}

impl Scratch {
    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        let buffers = [&self.filtered, &self.planes, &self.plain, &self.between];
        buffers.iter().map(|buffer| buffer.capacity()).sum::<usize>() + self.codecs.kept_bytes()
    }
}
