//! Proofs of the write engine: pools that are created, changed, crashed and checked.
//!
//! ```text
//! Shape ── PoolFiles::create ── OpenPool: a LivePool with its file systems
//!                                  │ fill, change          what users do
//!                                  │ record                what they see: a manifest
//!                                  ▼
//!                               images ── OpenZFS's zdb, OpenZFS's kernel, rzfs' own walker
//! ```
//! `cargo xtask reference` makes OpenZFS's kernel and rzfs change the same pools in turns.
#![forbid(unsafe_code)]
#![expect(clippy::result_large_err, reason = "errors of rzfs-zpl are handed on as they are")]

mod accounts;
mod chains;
pub mod crash;
mod durable;
mod encrypted;
mod error;
mod files;
mod fill;
pub mod full;
mod habit;
mod image_pool;
pub mod images;
pub mod killed;
mod lies;
mod opened;
mod rig;
mod shape;
mod tree;
mod view;
mod walk;

pub use accounts::wrong_accounts;
pub use chains::wrong_chains;
pub use durable::change_durably;
pub use error::ProofError;
pub use files::Files;
pub use fill::{Changes, change, fill};
pub use habit::{LIMITS, QUOTAS};
pub use image_pool::{ImagePool, Session};
pub use lies::{Lie, Outside, make_lying_pool};
pub use opened::{
    Bounds, OpenPool, PoolFiles, Settings, open_for_reading, open_pool, read_dataset,
};
pub use rig::Rig;
pub use shape::{Encrypted, FeatureSet, Habit, SHAPES, Shape};
pub use tree::FileSystemTree;
pub use view::{Names, differences, names, record};
pub use walk::{walk, walk_in_full};
