//! Keeps an eye on the outside while a long call runs: asks now and then whether it should
//! stop, and shares work out over threads that end with the call.

use crate::error::{Error, Kind, Outcome};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a call may go without asking.
const PATIENCE: Duration = Duration::from_millis(50);

/// Asks `interrupted` at most every 50 ms, on the thread that made the call.
pub struct Interrupt<'a> {
    interrupted: &'a dyn Fn() -> bool,
    asked: Cell<Option<Instant>>,
}

impl<'a> Interrupt<'a> {
    pub fn new(interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { interrupted, asked: Cell::new(None) }
    }

    /// For work on threads that are not asked.
    pub fn never() -> Interrupt<'static> {
        Interrupt::new(&|| false)
    }

    /// To be called between pieces of work.
    pub fn look(&self) -> Outcome<()> {
        let now = Instant::now();
        match self.asked.get() {
            Some(asked) if now - asked >= PATIENCE => {
                self.asked.set(Some(now));
                if (self.interrupted)() {
                    return Err(Error::new(Kind::Interrupted, "interrupted"));
                }
            }
            Some(_) => {}
            None => self.asked.set(Some(now)),
        }
        Ok(())
    }

    /// Run `work` on this thread (with its own `workspace`) and on `threads - 1` others until it
    /// answers `false` or fails anywhere. The threads live no longer than this call, so
    /// nothing of them can be missing after a fork.
    pub fn share<T: Default>(
        &self,
        threads: usize,
        workspace: &mut T,
        work: impl Fn(&mut T) -> Outcome<bool> + Sync,
    ) -> Outcome<()> {
        let stop = AtomicBool::new(false);
        let error = Mutex::new(None);
        let labour = |workspace: &mut T, look: &dyn Fn() -> Outcome<()>| {
            while !stop.load(Ordering::Relaxed) {
                match look().and_then(|()| work(workspace)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(found) => {
                        stop.store(true, Ordering::Relaxed);
                        error.lock().expect("no thread panics").get_or_insert(found);
                    }
                }
            }
        };
        if threads <= 1 {
            labour(workspace, &|| self.look());
        } else {
            std::thread::scope(|scope| {
                for _ in 1..threads {
                    // A machine that has no thread to give gets the work done all the same.
                    let helper = std::thread::Builder::new();
                    if helper.spawn_scoped(scope, || labour(&mut T::default(), &|| Ok(()))).is_err() {
                        break;
                    }
                }
                labour(workspace, &|| self.look());
            });
        }
        match error.into_inner().expect("no thread panics") {
            Some(found) => Err(found),
            None => Ok(()),
        }
    }
}
