//! Live object sets, which can be changed.
//!
//! ```text
//! LiveObjset ── objects in memory ── LiveObject
//!     │                                 ├ what is on disk: its dnode
//!     └ what is on disk: its root       └ versions: what each txg that is not synced changes
//! ```
//! A change goes into the object's version of the transaction's txg: data blocks, freed ranges,
//! bonus, spill block. Reads look at the versions, newest first, then at the disk. A version is
//! frozen when its txg quiesces: a block that changes in a later txg is copied first, so syncing
//! and writers never wait for each other.
//!
//! Transactions on one object are ordered by txg: [`crate::txg::TxgEngine::begin`] waits for those
//! of an older group. Beyond that, callers serialise changes of one object among themselves, and
//! with readers of the same bytes as far as they need atomicity.

mod begin;
mod buffer;
mod checked;
mod checking;
mod cloning;
mod freeing;
mod log_header;
mod numbers;
mod object;
mod objects;
mod objset;
mod on_disk;
mod orphans;
mod placements;
mod placing;
mod ranges;
mod reading;
mod seeking;
mod state;
mod succession;
mod sync;
mod transaction;
mod version;
mod zap;

pub use checked::CheckedBlocks;
pub use cloning::CloneSource;
pub use freeing::Piece;
pub use object::{Extent, LiveObject};
pub use objects::NewObject;
pub use objset::LiveObjset;
pub use placing::{DirtyBlock, place_blocks};
pub use reading::LiveRead;
pub use sync::{SpaceOwner, SyncedObjset};
pub use transaction::{Context, SyncTx, Transaction};
pub use zap::ZapTx;
