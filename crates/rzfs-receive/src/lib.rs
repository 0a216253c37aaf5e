//! Receiving send streams into a pool (spec 08, section 9).
//!
//! ```text
//! bytes ─> StreamReader ─> Record, confirmed payload ─> Applier ─> LiveObjset of a hidden head
//!                                                                    │ the stream's end
//!                          LivePool::begin_receive ─> Receiving      ▼
//!                                        the target has it ─ LivePool::end_receive
//! ```
#![forbid(unsafe_code)]

mod applier;
mod error;
mod incoming;
mod package;
mod version;

pub use error::{ReceiveError, RecordProblem, Unsupported};
pub use incoming::{Arrived, Incoming, ReceiveOrder, Received, Remains, Streams};
pub use package::PackageProblem;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
