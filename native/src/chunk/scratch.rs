//! Memory that is used again from block to block and call to call.

use crate::chunk::codecs::streams::Codecs;
use crate::error::{Error, Kind, Outcome};

/// What one thread reuses from block to block and call to call.
#[derive(Default)]
pub struct Scratch {
    pub codecs: Codecs,
    /// A block as its streams hold it, filters still applied.
    pub filtered: Vec<u8>,
    /// Room for the second step of bitshuffle.
    pub planes: Vec<u8>,
    /// A block, or a part of it, with filters undone.
    pub plain: Vec<u8>,
    /// A block between two filters.
    pub aside: Vec<u8>,
}

impl Scratch {
    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        let buffers = [&self.filtered, &self.planes, &self.plain, &self.aside];
        buffers.iter().map(|buffer| buffer.capacity()).sum::<usize>() + self.codecs.kept_bytes()
    }
}

/// Grow `buffer` to `size` bytes; contents are unspecified. Never shrinks, so that
/// calls in a row do not clear the same memory again and again.
pub fn grow(buffer: &mut Vec<u8>, size: usize) -> Outcome<&mut [u8]> {
    if buffer.len() < size {
        buffer.clear();
        buffer.try_reserve_exact(size).map_err(|_| out_of_memory(size))?;
        buffer.resize(size, 0);
    }
    Ok(&mut buffer[..size])
}

/// The same, beginning at a multiple of 64: vector loads then never straddle a cache line.
pub fn grow_aligned(buffer: &mut Vec<u8>, size: usize) -> Outcome<&mut [u8]> {
    const LINE: usize = 64;
    let memory = grow(buffer, size + LINE)?;
    let skip = memory.as_ptr().align_offset(LINE).min(LINE);
    Ok(&mut memory[skip..skip + size])
}

pub fn out_of_memory(size: usize) -> Error {
    Error::new(Kind::Limit, format!("{size} bytes of memory are not to be had"))
}
