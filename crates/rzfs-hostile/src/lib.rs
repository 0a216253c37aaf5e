//! Hostile pools: seeded corruptions of pools that OpenZFS made, and a reader of everything.
//!
//! ```text
//! Subject (images, shared, never written)
//!    │ seed
//!    ▼
//! damage    devices: flipped bits, torn, swapped, unreadable sectors; missing, short members
//!           labels: lists and uberblocks that lie, their checksums computed anew
//!           blocks: changed behind their checksums by a HostileInjector, blindly or with
//!           regard to what they are, decoded or as they are stored
//!    ▼
//! exercise  discovery, import, properties, space, history, ZAPs, datasets, files, logs
//!    ▼
//! Outcome   Finding: panic, hang, too much memory, wrong data, an error without words
//! ```
//! A pool and a seed determine a case, so all findings can be reproduced.

#![deny(unsafe_code)]

mod blocks;
mod case;
mod devices;
mod exercise;
mod forger;
mod images;
mod labels;
mod lists;
#[allow(unsafe_code)]
mod memory;
mod patches;
mod random;
mod runner;
mod seeds;
mod structures;
mod tally;
mod victim;
mod witness;

pub use blocks::{Aim, HostileInjector};
pub use case::{ARC_MAX, DamageKind, Subject};
pub use forger::{StructureForger, WordForger};
pub use memory::{CountingAllocator, MemoryUse, MemoryWatch};
pub use patches::Patch;
pub use random::Random;
pub use runner::{Finding, Limits, Outcome, run_case, run_watched};
pub use seeds::Seeds;
pub use tally::Tally;
