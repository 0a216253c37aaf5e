//! What is told of sweeps.

use crate::pool::SweepKind;
use rzfs_format::Guid;
use rzfs_vdev::Vdev;

/// What a sweep is of.
pub(super) type SweepId = (Guid, SweepKind);

/// Something that happened to a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SweepNews {
    /// It has begun.
    Started,
    /// It goes on after it was suspended, or after an import.
    Resumed,
    /// It was stopped and can go on.
    Suspended,
    /// It was given up.
    Cancelled,
    /// It has come to its end.
    Finished,
}

/// Told about sweeps when what happened is on disk, or about to be.
pub type SweepObserver = Box<dyn Fn(SweepKind, SweepNews, Vdev<'_>) + Send + Sync>;
