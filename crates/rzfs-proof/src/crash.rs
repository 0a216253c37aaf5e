//! Crashes: a pool is changed on devices that record every write, and then examined in the states
//! that a power cut at any moment would have left.
//!
//! ```text
//! Recording   steps of changes, each a transaction group; what users saw after each
//!    │ every write and flush of every device, in order
//!    ▼
//! Point       a moment, and for each device the writes that were not flushed: kept, lost, torn
//!    │ import ─ the files of a group's end ─ no leaks ─ go on, export ─ the same again
//!    ▼
//! Verdict
//! ```
//! A workload, a seed and the number of a point determine a case.

mod devices;
mod environment;
mod fault_round;
mod point;
mod power_cut;
mod recording;
mod synced;
mod transfers;
mod trouble;
mod workload;

pub use environment::ReplayedEnvironment;
pub use fault_round::FaultRound;
pub use point::{CrashCase, CrashImages, Depth};
pub use recording::Recording;
pub use synced::SyncedRecording;
pub use workload::Workload;
