//! Buffers that are used again from block to block and from call to call.

use crate::error::{Error, Kind, Outcome};
use std::sync::Mutex;

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

/// Memory for later calls: the system clears new memory page by page, which may take longer than to fill it.
pub struct Spare {
    /// The most bytes that are kept.
    most: usize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Spare {
    pub const fn new(most: usize) -> Self {
        Self { most, buffers: Mutex::new(Vec::new()) }
    }

    /// A buffer with any contents.
    pub fn take(&self) -> Vec<u8> {
        // Never waited for: after a fork, the thread that held the lock may not exist.
        self.buffers.try_lock().ok().and_then(|mut buffers| buffers.pop()).unwrap_or_default()
    }

    /// Keep a buffer, unless there are enough.
    pub fn keep(&self, buffer: Vec<u8>) {
        let Ok(mut buffers) = self.buffers.try_lock() else { return };
        let kept: usize = buffers.iter().map(Vec::capacity).sum();
        if buffer.capacity() > 0 && kept + buffer.capacity() <= self.most {
            buffers.push(buffer);
        }
    }
}

/// An empty vector with room for `length` items.
pub fn reserved<T>(length: usize) -> Outcome<Vec<T>> {
    let mut items = Vec::new();
    items.try_reserve_exact(length).map_err(|_| out_of_memory(length.saturating_mul(size_of::<T>())))?;
    Ok(items)
}

/// Append an item to a vector whose length a file decides.
pub fn push<T>(items: &mut Vec<T>, item: T) -> Outcome<()> {
    if items.len() == items.capacity() {
        items.try_reserve(1).map_err(|_| out_of_memory(2 * items.len() * size_of::<T>()))?;
    }
    items.push(item);
    Ok(())
}

pub fn out_of_memory(size: usize) -> Error {
    Error::new(Kind::Limit, format!("{size} bytes of memory cannot be allocated"))
}

/// Fill `out` with a repeated value, from byte `phase` of the value on.
pub fn repeat(value: &[u8], phase: usize, out: &mut [u8]) {
    /// What is copied stays in the cache.
    const MOST_COPIED: usize = 16 << 10;
    if value.iter().all(|byte| *byte == value[0]) {
        return out.fill(value[0]);
    }
    // One repetition, then copies of all that is written, twice as much each time.
    let mut done = out.len().min(value.len());
    for (offset, place) in out[..done].iter_mut().enumerate() {
        *place = value[(phase + offset) % value.len()];
    }
    let most = (MOST_COPIED / value.len()).max(1) * value.len();
    while done < out.len() {
        let step = done.min(most).min(out.len() - done);
        out.copy_within(..step, done);
        done += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_memory_is_bounded_and_used_again() {
        let spare = Spare::new(100);
        assert_eq!(spare.take().capacity(), 0);
        spare.keep(vec![1; 60]);
        spare.keep(vec![2; 60]);
        assert_eq!(spare.take(), [1; 60]);
        assert_eq!(spare.take().capacity(), 0);
    }

    #[test]
    fn more_than_there_is_gives_an_error() {
        assert_eq!(reserved::<u64>(usize::MAX).err().map(|error| error.kind), Some(Kind::Limit));
        assert_eq!(grow(&mut Vec::new(), isize::MAX as usize).err().map(|error| error.kind), Some(Kind::Limit));
    }

    #[test]
    fn values_repeat_from_any_of_their_bytes_on() {
        for width in [1, 2, 3, 7, 16, 300] {
            let value: Vec<u8> = (0..width).map(|byte| (byte * 3 + 1) as u8).collect();
            for length in [0, 1, width, width + 1, 5 * width + 2, 1000, 70_001] {
                for phase in [0, width / 2, width - 1] {
                    let mut out = vec![0xee; length];
                    repeat(&value, phase, &mut out);
                    for (place, byte) in out.iter().enumerate() {
                        assert_eq!(*byte, value[(phase + place) % width]);
                    }
                }
            }
        }
    }
}
