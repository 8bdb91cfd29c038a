//! How a long call is interrupted, and how its work is shared out over threads that end with it.

use crate::error::{Error, Kind, Outcome};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time between two checks.
const INTERVAL: Duration = Duration::from_millis(50);

/// Asks `interrupted` at most every 50 ms, on the thread that made the call.
pub struct Interrupt<'a> {
    interrupted: &'a dyn Fn() -> bool,
    checked: Cell<Option<Instant>>,
}

impl<'a> Interrupt<'a> {
    pub fn new(interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { interrupted, checked: Cell::new(None) }
    }

    /// For work that is never interrupted.
    pub fn never() -> Interrupt<'static> {
        Interrupt::new(&|| false)
    }

    /// Return an error when the call is to end; called between pieces of work.
    pub fn check(&self) -> Outcome<()> {
        let now = Instant::now();
        match self.checked.get() {
            Some(checked) if now - checked >= INTERVAL => {
                self.checked.set(Some(now));
                if (self.interrupted)() {
                    return Err(Error::new(Kind::Interrupted, "interrupted"));
                }
            }
            Some(_) => {}
            None => self.checked.set(Some(now)),
        }
        Ok(())
    }

    /// Run `work` on this thread (with its own `workspace`) and on `threads - 1` others until it
    /// returns `false` or fails anywhere. The threads live no longer than this call, so that a
    /// fork cannot lose any of them.
    pub fn share<T: Default>(
        &self,
        threads: usize,
        workspace: &mut T,
        work: impl Fn(&mut T) -> Outcome<bool> + Sync,
    ) -> Outcome<()> {
        let stop = AtomicBool::new(false);
        let first_error = Mutex::new(None);
        let run = |workspace: &mut T, check: &dyn Fn() -> Outcome<()>| {
            while !stop.load(Ordering::Relaxed) {
                match check().and_then(|()| work(workspace)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        first_error.lock().expect("no thread panics").get_or_insert(error);
                    }
                }
            }
        };
        if threads <= 1 {
            run(workspace, &|| self.check());
        } else {
            std::thread::scope(|scope| {
                for _ in 1..threads {
                    // Where no further thread can be started, those that run do all of the work.
                    let thread = std::thread::Builder::new();
                    if thread.spawn_scoped(scope, || run(&mut T::default(), &|| Ok(()))).is_err() {
                        break;
                    }
                }
                run(workspace, &|| self.check());
            });
        }
        match first_error.into_inner().expect("no thread panics") {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Share out work whose pieces take long: each of them gets an interrupt to check, on every thread.
    /// Whatever ends one piece ends the others at their next check, and so does a panic.
    pub fn share_long<T: Default>(
        &self,
        threads: usize,
        work: impl Fn(&mut T, &Interrupt) -> Outcome<bool> + Sync,
    ) -> Outcome<()> {
        let stop = AtomicBool::new(false);
        let first_error = Mutex::new(None);
        let run = |interrupt: &Interrupt| {
            let _panic = StopOnPanic(&stop);
            let mut workspace = T::default();
            while !stop.load(Ordering::Relaxed) {
                match interrupt.check().and_then(|()| work(&mut workspace, interrupt)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        // Kept before the others are stopped: what ends them is not the reason.
                        first_error.lock().expect("no thread panics").get_or_insert(error);
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let thread = std::thread::Builder::new();
                let stopped = || stop.load(Ordering::Relaxed);
                if thread.spawn_scoped(scope, move || run(&Interrupt::new(&stopped))).is_err() {
                    break;
                }
            }
            // This thread may wait for another one that has failed.
            let ended = || stop.load(Ordering::Relaxed) || (self.interrupted)();
            run(&Interrupt::new(&ended));
        });
        match first_error.into_inner().expect("no thread panics") {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Stops the other threads of a call when this one panics.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
