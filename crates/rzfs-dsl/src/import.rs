//! Finding pools and opening them (spec 01, section 9).
//!
//! ```text
//! sources ── Discovery ──> labels of all devices, grouped by pool
//!                            │ untrusted configuration: which devices belong together
//!                            ▼
//!                          rings of all leaves ──> best uberblock ──> MOS
//!                                                                      │ `config` object
//!                                                                      ▼
//!                                                  trusted configuration, checked against
//!                                                  labels, guid sum and features ──> Pool
//! ```
//! Nothing is written. Each device is read as found; checksummed data is trusted only when it
//! verifies.

mod activity;
mod attempt;
mod device_reads;
mod device_source;
mod discovery;
mod error;
mod guid_change;
mod host;
mod indirect;
mod label_scan;
mod listing;
mod options;
mod rewind;
mod uberblock_scan;
mod validation;
mod verification;

pub use crate::pool::RewindInfo;
pub use activity::{Clock, SystemClock, Wait};
pub use device_source::{DEFAULT_DIRECTORIES, DeviceSource};
pub use discovery::{DiscoveredPool, Discovery};
pub use error::{ImportError, ImportFailure, SelectError, UnsupportedFeature};
pub use host::HostIdentity;
pub use label_scan::{LabelError, LabelTrust, RawLabel, read_boot_environment, read_labels};
pub use listing::{Destroyed, ImportablePool};
pub use options::{
    ActivityCheck, HostCheck, ImportOptions, ImportTarget, LoadVerification, MissingLogs,
    RewindPolicy,
};
pub use rzfs_vdev::label::RingSlot;
pub use uberblock_scan::read_rings;
