//! Sweeping the free space of leaves: `zpool initialize` and `zpool trim` (spec 06, section 16;
//! spec 07, section 17).
//!
//! ```text
//! LivePool::sweep ── task: state of the leaf ──> a thread for each leaf
//!                                                  part of a metaslab rests, the device works on it
//! every txg ── task: how far the thread is         ... and so on to the end of the leaf
//!                                                task: complete
//! ```
//! A sweep that is active at export continues after the next import, where it was when the last txg
//! was synced.

mod news;
mod order;
mod run;
mod sweeps;
mod walk;

pub use news::{SweepEvent, SweepObserver};
pub use order::SweepOrder;
pub(crate) use sweeps::{SweepRecords, Sweeps};
