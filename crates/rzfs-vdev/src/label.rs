//! Writing labels: the configuration of a leaf's pool, its uberblocks, its boot environment
//! (spec 01, sections 1 and 3.7).
//!
//! ```text
//! a new leaf     all of all four labels, with txg 0: it belongs to nobody yet      NewLabel
//! every txg      uberblock to one slot of the ring in all four labels              ConfigSync
//!                if a configuration changed: L0 and L2 before it, L1 and L3 after it
//! ```
//! At whatever moment the power fails, one pair of labels is intact and matches an existing
//! uberblock.

mod blocks;
mod clear;
mod heartbeat;
mod initial;
mod inspect;
mod io;
mod sync;

pub use clear::{ClearError, ClearMode, clear_labels};
pub use heartbeat::HeartbeatError;
pub use initial::{LabelledDevice, NewLabel};
pub(crate) use inspect::Look;
pub use inspect::{
    DeviceUse, FoundLabel, LabelPool, PoolUse, RingSlot, decode_ring, find_labels, verified_order,
};
pub use sync::{AuxiliaryDevice, Commit, CommitError, CommitReport, ConfigSync};

pub(crate) use io::flush;

use rzfs_blockdev::DeviceError;
use rzfs_format::{FormatError, Guid};
use std::sync::Arc;

/// Why a label cannot be written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LabelError {
    /// The configuration does not fit: a top-level vdev with very many leaves and long paths.
    #[error("the configuration of leaf {leaf} has {size} bytes, a label has room for {room}")]
    TooLarge {
        /// The leaf.
        leaf: Guid,
        /// Bytes of the packed configuration.
        size: usize,
        /// Room for it in a label, in bytes.
        room: usize,
    },
    /// The device is smaller than the smallest leaf.
    #[error("{device}: one or more devices is less than the minimum size (64M)")]
    TooSmall {
        /// The device.
        device: Arc<str>,
    },
    /// The configuration cannot be encoded as a list.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device fails.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl LabelError {
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const EINVAL: i32 = 22;
        const ENAMETOOLONG: i32 = 36;
        const EOVERFLOW: i32 = 75;
        match self {
            Self::TooLarge { .. } => ENAMETOOLONG,
            Self::TooSmall { .. } => EOVERFLOW,
            Self::Format(_) => EINVAL,
            Self::Device(error) => error.errno(),
        }
    }
}
