//! Buffers that are used again from block to block and from call to call.

use crate::error::{Error, Kind, Outcome};

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

/// The same, starting at a multiple of 64: vector loads then never straddle a cache line.
pub fn grow_aligned(buffer: &mut Vec<u8>, size: usize) -> Outcome<&mut [u8]> {
    const LINE: usize = 64;
    let memory = grow(buffer, size + LINE)?;
    let skip = memory.as_ptr().align_offset(LINE).min(LINE);
    Ok(&mut memory[skip..skip + size])
}

pub fn out_of_memory(size: usize) -> Error {
    Error::new(Kind::Limit, format!("{size} bytes of memory cannot be allocated"))
}
