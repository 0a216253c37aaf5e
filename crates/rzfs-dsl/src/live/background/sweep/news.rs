//! Events of sweeps.

use crate::pool::SweepKind;
use rzfs_format::Guid;
use rzfs_vdev::Vdev;

/// Identifies a sweep.
pub(super) type SweepId = (Guid, SweepKind);

/// An event of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SweepEvent {
    /// It started.
    Started,
    /// It continues after it was suspended, or after an import.
    Resumed,
    /// It was suspended and can continue.
    Suspended,
    /// It was cancelled.
    Cancelled,
    /// It finished.
    Finished,
}

/// Notified of sweep events when they are on disk, or about to be.
pub type SweepObserver = Box<dyn Fn(SweepKind, SweepEvent, Vdev<'_>) + Send + Sync>;
