//! The options of an import.

use super::activity::{Clock, SystemClock};
use super::host::HostIdentity;
use super::label_scan::LabelTrust;
use rzfs_dmu::BlockInjector;
use rzfs_format::Txg;
use rzfs_tunables::Tunables;
use std::fmt;
use std::sync::Arc;

/// Which state of the pool to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ImportTarget {
    /// The newest one.
    #[default]
    Newest,
    /// The newest one that is not younger than this txg (`-T`).
    Txg(Txg),
    /// The checkpoint (`--rewind-to-checkpoint`).
    Checkpoint,
}

/// What to do when the newest state cannot be opened (spec 01, section 9.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RewindPolicy {
    /// Fail.
    Never,
    /// Fail, but find out whether an older state would do.
    #[default]
    Explain,
    /// Open the newest older state of the last two txgs that is intact (`-F`).
    Rewind,
    /// Open the newest older state that is intact, however old (`-F -X`).
    Extreme,
}

/// What to do when another host used the pool last and has not exported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostCheck {
    /// Refuse.
    #[default]
    Enforce,
    /// Import anyway (`-f`).
    Override,
}

/// Whether to watch a multihost pool for activity before it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ActivityCheck {
    /// Watch as long as the pool's settings demand.
    #[default]
    Perform,
    /// Do not watch; the pool may change while it is read.
    Skip,
}

/// What to do without the log devices, and with unreadable intent logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingLogs {
    /// Refuse.
    #[default]
    Refuse,
    /// Import anyway, and drop the unreadable parts of the logs (`-m`).
    Ignore,
}

/// Which blocks of recent txgs have to be readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LoadVerification {
    /// None.
    None,
    /// Metadata; also data in a state reached by a rewind, as in OpenZFS.
    #[default]
    Recent,
}

/// The options of an import.
#[derive(Clone)]
pub struct ImportOptions {
    /// Another name for the pool while it is open (`-t`).
    pub name: Option<String>,
    /// Which state to open.
    pub target: ImportTarget,
    /// What to do when that cannot be opened.
    pub rewind: RewindPolicy,
    /// The importing host.
    pub host: HostIdentity,
    /// What to do when another host used the pool last.
    pub host_check: HostCheck,
    /// Whether to watch for another host's activity.
    pub activity: ActivityCheck,
    /// What to do without the log devices.
    pub missing_logs: MissingLogs,
    /// Which labels count. Unverified labels are for recovery only.
    pub labels: LabelTrust,
    /// Which blocks of recent txgs have to be readable.
    pub verification: LoadVerification,
    /// Limits, and how hard to try.
    pub tunables: Tunables,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Fault injection for tests.
    pub injector: Option<Arc<dyn BlockInjector>>,
}

impl Default for ImportOptions {
    /// Newest state, all checks, as this system.
    fn default() -> Self {
        Self {
            name: None,
            target: ImportTarget::default(),
            rewind: RewindPolicy::default(),
            host: HostIdentity::of_system(),
            host_check: HostCheck::default(),
            activity: ActivityCheck::default(),
            missing_logs: MissingLogs::default(),
            labels: LabelTrust::Verified,
            verification: LoadVerification::default(),
            tunables: Tunables::default(),
            clock: Arc::new(SystemClock::default()),
            injector: None,
        }
    }
}

impl fmt::Debug for ImportOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportOptions")
            .field("target", &self.target)
            .field("rewind", &self.rewind)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}
