//! New vdevs: from the arguments of `zpool create` and `zpool add` to configurations and labels
//! (spec 01, section 11.1; spec 07, sections 2, 3, 11 and 12.1; spec 09).
//!
//! ```text
//! words  --VdevSpec::parse-->  VdevSpec<String>   groups of names: what was asked for
//!        --resolve---------->  VdevSpec<NewDevice> open devices
//!        --objections------->  who uses them, do they fit together      `-f` overrides most
//!        --plan------------->  NewVdevs           configurations with guids, ashift, sizes
//! ```
//! Nothing is written before [`NewVdevs`] exists: by then all devices are open for writing and not
//! in use elsewhere. Then come the labels ([`NewVdevs::label`]), of all devices together.

mod device;
mod draid_request;
mod objection;
mod plan;
mod replication;
mod signature;
mod spec;

pub use device::{DeviceOpener, NewDevice, OpenFailure};
pub use draid_request::DraidError;
pub use objection::{LocalPools, Objection, Objections};
pub use plan::{NewVdevs, PlanError, PlanOptions};
pub use replication::{Mismatch, Redundancy};
pub use signature::signature;
pub use spec::{SpecError, TopLayout, TopSpec, VdevSpec};
