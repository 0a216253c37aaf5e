//! The vdevs of a pool: from block addresses to devices, and from damaged devices to data.
//!
//! [`VdevTree`] is built from a configuration ([`VdevConfig`]) and the devices of its leaves
//! ([`LeafDevices`]). It reads batches of blocks ([`VdevTree::read`]), finds a good copy or
//! reconstructs one, and counts errors. It knows the allocated size of a block on every kind of
//! vdev, and the state of each vdev.
//!
//! ```
//! use rzfs_format::{Dva, Guid, Txg, VdevId};
//! use rzfs_vdev::{AuxReason, BlockRead, TreeOptions, VdevConfig, VdevKind, VdevTree};
//! use std::collections::HashMap;
//!
//! let mut disk = VdevConfig::new(VdevKind::Disk, Guid(2));
//! disk.top.ashift = Some(12);
//! disk.top.asize = Some(1 << 30);
//! let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([disk]);
//!
//! // A pool whose only disk is not there: everything is known about it but its contents.
//! let tree = VdevTree::open(root, &HashMap::new(), TreeOptions::default())?;
//! assert_eq!(tree.health().to_string(), "UNAVAIL");
//! assert_eq!(tree.allocated_size(VdevId(0), 0x200, Txg(4)), Some(0x1000));
//! let read = BlockRead {
//!     dva: Dva::new(VdevId(0), 0x4000, 0x1000, false),
//!     size: 0x200,
//!     birth: Txg(4),
//!     verify: &|_: &[u8]| true,
//! };
//! let error = tree.read(vec![read]).remove(0).unwrap_err();
//! assert_eq!(error.errno(), 6);
//! # Ok::<(), rzfs_vdev::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

pub mod config;
pub mod create;
pub mod draid;
mod dtl;
mod error;
mod health;
mod indirect;
mod initialize;
pub mod label;
mod leaf;
mod plan;
pub mod raidz;
mod read;
mod statistics;
pub mod stripe;
mod tree;
mod trim;
mod unconfirmed;
mod write;

pub use config::{VdevConfig, VdevKind};
pub use dtl::{DirtyTimes, DtlReader, DtlStore, Resilvered, TxgSet};
pub use error::{AddressProblem, ConfigError, ConfigProblem, LeafFailure, VdevError};
pub use health::{AuxReason, Health, LeafEvent, Redundancy, VdevState, aggregate};
pub use indirect::{IndirectMapping, MappingError};
pub use initialize::{InitialPattern, InitializeReport};
pub use label::{Commit, CommitError, CommitReport, ConfigSync};
pub use leaf::LeafDevices;
pub use read::{BlockRead, CopyRead, Finding, FindingKind, Scrubbed, Verify};
pub use statistics::{ErrorCounts, IoCounts};
pub use tree::{CurrentTree, IoTunables, Persistence, TreeOptions, Vdev, VdevTree};
pub use trim::{FreeRange, LeafRange, TrimLimits, TrimReport};
pub use write::{BlockWrite, Coverage, Durability, LogTrust, NotDurable, WriteClass};
