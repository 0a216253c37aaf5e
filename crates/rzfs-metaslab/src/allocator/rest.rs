//! Disabled metaslabs: while devices process their free space, nothing is allocated from them.
//!
//! ```text
//! begin ──> the metaslab is passed by ──> end         as often as somebody sweeps free space
//! allocation finds nothing while one rests ──> waits until none does, and looks again
//! ```
//! So an allocation fails only if it fails with every metaslab enabled. A thread that disables a
//! metaslab waits for its devices and for nothing else; in particular not for a txg, which may be
//! waiting for space itself.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts disabled metaslabs and waiting allocations.
#[derive(Debug, Default)]
pub(crate) struct DisableGate {
    counts: Mutex<Counts>,
    changed: Condvar,
    begun: AtomicU64,
    ended: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    resting: u32,
    waiting: u32,
}

/// The number of rests begun before an allocation, if none was in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quiet(Option<u64>);

impl DisableGate {
    /// Begins a rest once no allocation waits.
    pub(crate) fn begin(&self) {
        let mut counts = self.counts.lock();
        while counts.waiting > 0 {
            self.changed.wait(&mut counts);
        }
        self.count_begin(&mut counts);
    }

    /// Begins a rest unless an allocation waits; returns whether it has begun.
    pub(crate) fn try_begin(&self) -> bool {
        let mut counts = self.counts.lock();
        let may_begin = counts.waiting == 0;
        if may_begin {
            self.count_begin(&mut counts);
        }
        may_begin
    }

    fn count_begin(&self, counts: &mut Counts) {
        counts.resting += 1;
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until no allocation waits.
    pub(crate) fn wait(&self) {
        let mut counts = self.counts.lock();
        while counts.waiting > 0 {
            self.changed.wait(&mut counts);
        }
    }

    /// Ends a rest.
    pub(crate) fn end(&self) {
        let mut counts = self.counts.lock();
        counts.resting = counts.resting.saturating_sub(1);
        self.ended.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
    }

    /// The current state, for [`DisableGate::was_quiet`].
    pub(crate) fn now(&self) -> Quiet {
        // The number of begun rests is read last: if both are equal, none was in progress then.
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        Quiet((begun == ended).then_some(begun))
    }

    /// Whether no metaslab has rested since.
    pub(crate) fn was_quiet(&self, since: Quiet) -> bool {
        since == Quiet(Some(self.begun.load(Ordering::Acquire)))
    }

    /// Calls `work` while no metaslab is disabled.
    pub(crate) fn without<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut counts = self.counts.lock();
        counts.waiting += 1;
        while counts.resting > 0 {
            self.changed.wait(&mut counts);
        }
        drop(counts);
        let done = work();
        self.counts.lock().waiting -= 1;
        self.changed.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    #[test]
    fn what_cannot_be_done_during_a_rest_is_done_after_it() {
        let rests = DisableGate::default();
        let before = rests.now();
        assert!(rests.was_quiet(before));
        rests.begin();
        assert!(!rests.was_quiet(before) && !rests.was_quiet(rests.now()));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| rests.without(|| ended.load(Ordering::Acquire)));
            while rests.try_begin() {
                rests.end();
                std::thread::sleep(Duration::from_millis(1));
            }
            ended.store(true, Ordering::Release);
            rests.end();
            assert!(waits.join().unwrap());
        });
        assert!(rests.try_begin());
        rests.end();
        assert!(!rests.was_quiet(before));
        assert!(rests.was_quiet(rests.now()));
    }
}
