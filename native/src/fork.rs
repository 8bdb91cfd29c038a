//! Locks that a fork may copy while another thread holds them.
//!
//! In the child that thread does not exist, and nothing ever releases the lock. What such locks
//! guard are caches, so a caller that does not get one does without.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// How often a lock is tried; each is held for less than a microsecond.
const ATTEMPTS: usize = 10_000;

/// Take a lock; `None` when it stays taken, or a thread panicked while it held it.
pub fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..ATTEMPTS {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(_)) => return None,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_stays_taken_is_given_up() {
        let mutex = Mutex::new(1);
        assert_eq!(lock(&mutex).map(|guard| *guard), Some(1));
        let _held = mutex.lock().unwrap();
        assert!(lock(&mutex).is_none());
    }
}
