//! The gate that all requests pass.
//!
//! ```text
//! request ── enters ── is answered ── leaves
//! exchange ── closes: no request enters, waits until all have left ── exchanges contents ── opens
//! ```
//! Requests that wait for a suspended pool, or for many transaction groups, are outside meanwhile:
//! exchanges do not wait for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The bit of a closed gate; the other bits count the requests inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// How often a waiting thread checks again without a notification.
const ROUND: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: AtomicUsize,
    turn: Mutex<()>,
    changed: Condvar,
}

/// A request is inside until this is dropped.
#[derive(Debug)]
pub(super) struct Pass<'a>(&'a Gate);

/// No request is inside until this is dropped.
#[derive(Debug)]
pub(super) struct Closed<'a>(&'a Gate);

impl Gate {
    /// Enters as soon as it is open. Must not be called inside.
    pub(super) fn enter(&self) -> Pass<'_> {
        loop {
            if self.inside.fetch_add(1, Ordering::AcqRel) & CLOSED == 0 {
                return Pass(self);
            }
            self.leave();
            self.wait_while(Duration::MAX, || self.inside.load(Ordering::Acquire) & CLOSED != 0);
        }
    }

    /// Closes it and waits until all have left; `None`, with the gate open again, if that takes too
    /// long, or it is already closed.
    pub(super) fn close(&self, patience: Duration) -> Option<Closed<'_>> {
        if self.inside.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return None;
        }
        let closed = Closed(self);
        // Newcomers are counted briefly, but do not stay.
        let have_left = self.wait_while(patience, || self.inside.load(Ordering::Acquire) != CLOSED);
        have_left.then_some(closed)
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1 {
            self.tell();
        }
    }

    fn tell(&self) {
        // A thread between check and sleep does not miss it.
        drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits while a condition holds; returns whether it no longer does.
    fn wait_while(&self, patience: Duration, is_so: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while is_so() {
            if start.elapsed() >= patience {
                return false;
            }
            let waited = self.changed.wait_timeout(turn, ROUND);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_and(!CLOSED, Ordering::AcqRel);
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let gate = Gate::default();
        let (is_closed, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Acquire) {
                        let _pass = gate.enter();
                        assert!(!is_closed.load(Ordering::Acquire));
                    }
                });
            }
            let mut closed = 0;
            while let Some(nobody) = gate.close(Duration::from_secs(60))
                && closed < 1000
            {
                is_closed.store(true, Ordering::Release);
                thread::yield_now();
                is_closed.store(false, Ordering::Release);
                drop(nobody);
                closed += 1;
            }
            is_over.store(true, Ordering::Release);
            assert_eq!(closed, 1000);
        });
    }

    #[test]
    fn who_stays_inside_keeps_it_open() {
        let gate = Gate::default();
        let pass = gate.enter();
        assert!(gate.close(Duration::from_millis(1)).is_none());
        let _second = gate.enter();
        drop(pass);
        assert!(gate.close(Duration::from_millis(1)).is_none());
    }

    #[test]
    fn it_is_closed_once() {
        let gate = Gate::default();
        let closed = gate.close(Duration::ZERO).unwrap();
        assert!(gate.close(Duration::ZERO).is_none());
        thread::scope(|scope| {
            scope.spawn(|| drop(gate.enter()));
            thread::yield_now();
            drop(closed);
        });
        assert!(gate.close(Duration::from_secs(60)).is_some());
    }
}
