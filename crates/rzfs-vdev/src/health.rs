//! States of vdevs: how a leaf's state changes and how parents derive theirs (spec 07, section 4).
//!
//! Only leaves have a stored state, which changes in one place, [`Health::after`]. The state of
//! every other vdev is derived from its children on demand, by [`aggregate`], so the two can never
//! disagree.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};

/// The state of a vdev, with the numbers of `vdev_stats`; a greater one is a healthier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum VdevState {
    /// Not opened yet.
    Unknown = 0,
    /// Closed.
    Closed = 1,
    /// Closed by the administrator.
    Offline = 2,
    /// The device vanished.
    Removed = 3,
    /// Opening or validating failed; shown as UNAVAIL.
    CantOpen = 4,
    /// Closed because of faults.
    Faulted = 5,
    /// Works, but not as it should.
    Degraded = 6,
    /// Works.
    Healthy = 7,
}

impl VdevState {
    /// All states by number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Closed,
        Self::Offline,
        Self::Removed,
        Self::CantOpen,
        Self::Faulted,
        Self::Degraded,
        Self::Healthy,
    ];
}

/// Why a vdev is in its state, with the numbers of `vdev_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum AuxReason {
    /// No reason.
    None = 0,
    /// The device could not be opened.
    OpenFailed = 1,
    /// The label belongs to another vdev, or the data is corrupted.
    CorruptData = 2,
    /// Too few children are left.
    NoReplicas = 3,
    /// The guid sum shows that a device is missing.
    BadGuidSum = 4,
    /// The device is too small.
    TooSmall = 5,
    /// The label is missing or invalid.
    BadLabel = 6,
    /// The pool has a newer version.
    VersionNewer = 7,
    /// The pool has an older version.
    VersionOlder = 8,
    /// The pool has unsupported features.
    UnsupportedFeature = 9,
    /// A spare that is in use.
    Spared = 10,
    /// Too many errors.
    ErrorsExceeded = 11,
    /// I/O failed.
    IoFailure = 12,
    /// The intent log cannot be read.
    BadLog = 13,
    /// Faulted by the administrator or a fault daemon.
    External = 14,
    /// Split off into another pool.
    SplitPool = 15,
    /// The sector size does not match.
    BadAshift = 16,
    /// Faulted until cleared; only in requests.
    ExternalPersist = 17,
    /// In use by another pool or host.
    Active = 18,
    /// All children are offline.
    ChildrenOffline = 19,
    /// The device's sectors are larger than any pool's.
    AshiftTooBig = 20,
}

impl AuxReason {
    /// All reasons by number.
    pub const ALL: [Self; 21] = [
        Self::None,
        Self::OpenFailed,
        Self::CorruptData,
        Self::NoReplicas,
        Self::BadGuidSum,
        Self::TooSmall,
        Self::BadLabel,
        Self::VersionNewer,
        Self::VersionOlder,
        Self::UnsupportedFeature,
        Self::Spared,
        Self::ErrorsExceeded,
        Self::IoFailure,
        Self::BadLog,
        Self::External,
        Self::SplitPool,
        Self::BadAshift,
        Self::ExternalPersist,
        Self::Active,
        Self::ChildrenOffline,
        Self::AshiftTooBig,
    ];

    /// The text of `zpool status` for a leaf; may be empty.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::OpenFailed => "cannot open",
            Self::CorruptData => "corrupted data",
            Self::NoReplicas => "insufficient replicas",
            Self::BadGuidSum => "missing device",
            Self::TooSmall => "one or more devices is too small",
            Self::BadLabel => "invalid label",
            Self::VersionNewer => "newer version",
            Self::UnsupportedFeature => "unsupported feature(s)",
            Self::Spared | Self::Active => "currently in use",
            Self::ErrorsExceeded => "too many errors",
            Self::BadLog => "bad intent log",
            Self::External => "external device fault",
            Self::SplitPool => "split into new pool",
            Self::ChildrenOffline => "all children offline",
            _ => "",
        }
    }
}

/// A state and its reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Health {
    /// The state.
    pub state: VdevState,
    /// Why.
    pub aux: AuxReason,
}

impl Default for Health {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl fmt::Display for Health {
    /// The word of `zpool status`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.state, self.aux) {
            (VdevState::CantOpen, AuxReason::CorruptData | AuxReason::BadLog)
            | (VdevState::Faulted, _) => "FAULTED",
            (VdevState::CantOpen, AuxReason::SplitPool) => "SPLIT",
            (VdevState::CantOpen, _) => "UNAVAIL",
            (VdevState::Unknown, _) => "UNKNOWN",
            (VdevState::Closed, _) => "CLOSED",
            (VdevState::Offline, _) => "OFFLINE",
            (VdevState::Removed, _) => "REMOVED",
            (VdevState::Degraded, _) => "DEGRADED",
            (VdevState::Healthy, _) => "ONLINE",
        })
    }
}

/// What can happen to a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafEvent {
    /// The device was opened and its label matches. `degraded` is recorded in the configuration.
    Opened {
        /// The persistent `degraded` flag.
        degraded: bool,
    },
    /// The device cannot be opened, or its label does not match.
    OpenFailed(AuxReason),
    /// The device is gone.
    Vanished,
    /// The administrator took it offline.
    TakenOffline,
    /// The administrator or a fault daemon declared it faulty.
    FaultedExternally,
    /// It has errors and a probe of its labels fails.
    ProbeFailed,
    /// It has errors, but is required.
    ErrorsTolerated,
}

impl Health {
    /// Everything works.
    pub const HEALTHY: Self = Self { state: VdevState::Healthy, aux: AuxReason::None };
    /// Everything required works, but not everything.
    pub(crate) const IMPAIRED: Self = Self { state: VdevState::Degraded, aux: AuxReason::None };
    /// Not opened yet.
    pub const UNKNOWN: Self = Self { state: VdevState::Unknown, aux: AuxReason::None };

    const fn new(state: VdevState, aux: AuxReason) -> Self {
        Self { state, aux }
    }

    /// Whether I/O can be sent to a vdev in this state.
    #[must_use]
    pub fn is_usable(self) -> bool {
        self.state >= VdevState::Degraded
    }

    /// This state, or degraded if it is worse: the effect of a lost log device on its pool.
    #[must_use]
    pub fn at_most_degraded(self) -> Self {
        if self.is_usable() { self } else { Self::IMPAIRED }
    }

    /// The state of a leaf after an event: the only transition function.
    ///
    /// A device closed by the administrator stays closed whatever else happens; only reopening it
    /// changes that.
    #[must_use]
    pub fn after(self, event: LeafEvent) -> Self {
        use VdevState as S;
        match (self.state, event) {
            (_, LeafEvent::Opened { degraded: true }) => Self::IMPAIRED,
            (_, LeafEvent::Opened { degraded: false }) => Self::HEALTHY,
            (_, LeafEvent::TakenOffline) => Self::new(S::Offline, AuxReason::None),
            (_, LeafEvent::FaultedExternally) => Self::new(S::Faulted, AuxReason::External),
            (S::Offline | S::Faulted, _) => self,
            (_, LeafEvent::OpenFailed(aux)) => Self::new(S::CantOpen, aux),
            (_, LeafEvent::Vanished) => Self::new(S::Removed, AuxReason::None),
            (S::Degraded | S::Healthy, LeafEvent::ProbeFailed) => {
                Self::new(S::Faulted, AuxReason::ErrorsExceeded)
            }
            (S::Degraded | S::Healthy, LeafEvent::ErrorsTolerated) => {
                Self::new(S::Degraded, AuxReason::ErrorsExceeded)
            }
            (_, LeafEvent::ProbeFailed | LeafEvent::ErrorsTolerated) => self,
        }
    }
}

/// How many children an interior vdev can lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redundancy {
    /// All but one.
    Copies,
    /// Up to this many.
    Parity(usize),
    /// Up to this many top-level vdevs, by explicit permission only.
    Root {
        /// Top-level vdevs that may be missing.
        tolerated: usize,
    },
}

/// The state of an interior vdev from its children's (spec 07, section 4.2).
///
/// Holes and removed vdevs are not among the children.
#[must_use]
pub fn aggregate(redundancy: Redundancy, children: &[Health]) -> Health {
    let failed = children.iter().filter(|child| !child.is_usable()).count();
    let impaired = children.iter().any(|child| child.state <= VdevState::Degraded);
    let tolerated = match redundancy {
        Redundancy::Copies => children.len().saturating_sub(1),
        Redundancy::Parity(parity) => parity,
        Redundancy::Root { tolerated } => tolerated,
    };
    if failed > tolerated {
        let offline = |child: &Health| child.state == VdevState::Offline;
        let corrupt = |child: &Health| !child.is_usable() && child.aux == AuxReason::CorruptData;
        return match redundancy {
            Redundancy::Copies if children.iter().all(offline) => {
                Health::new(VdevState::Offline, AuxReason::ChildrenOffline)
            }
            Redundancy::Root { .. } if children.iter().any(corrupt) => {
                Health::new(VdevState::CantOpen, AuxReason::CorruptData)
            }
            _ => Health::new(VdevState::CantOpen, AuxReason::NoReplicas),
        };
    }
    if impaired { Health::IMPAIRED } else { Health::HEALTHY }
}

/// A leaf's health, readable without a lock.
#[derive(Debug)]
pub(crate) struct HealthCell(AtomicU16);

impl HealthCell {
    pub(crate) fn new(health: Health) -> Self {
        Self(AtomicU16::new(pack(health)))
    }

    pub(crate) fn get(&self) -> Health {
        unpack(self.0.load(Ordering::Acquire))
    }

    /// Applies an event and returns the state before and after it.
    pub(crate) fn apply(&self, event: LeafEvent) -> (Health, Health) {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            let before = unpack(current);
            let after = before.after(event);
            match self.0.compare_exchange_weak(
                current,
                pack(after),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return (before, after),
                Err(seen) => current = seen,
            }
        }
    }
}

fn pack(health: Health) -> u16 {
    u16::from_le_bytes([health.state as u8, health.aux as u8])
}

fn unpack(packed: u16) -> Health {
    let [state, aux] = packed.to_le_bytes();
    Health {
        state: VdevState::ALL.get(usize::from(state)).copied().unwrap_or(VdevState::Unknown),
        aux: AuxReason::ALL.get(usize::from(aux)).copied().unwrap_or(AuxReason::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFLINE: Health = Health::new(VdevState::Offline, AuxReason::None);
    const UNAVAILABLE: Health = Health::new(VdevState::CantOpen, AuxReason::OpenFailed);
    const DEGRADED: Health = Health::new(VdevState::Degraded, AuxReason::None);

    #[test]
    fn numbers_are_positions() {
        for (number, state) in VdevState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, number);
        }
        for (number, aux) in AuxReason::ALL.into_iter().enumerate() {
            assert_eq!(aux as usize, number);
            let health = Health::new(VdevState::Faulted, aux);
            assert_eq!(unpack(pack(health)), health);
        }
    }

    #[test]
    fn parents_follow_their_children() {
        let healthy = Health::HEALTHY;
        let no_replicas = Health::new(VdevState::CantOpen, AuxReason::NoReplicas);
        let parity = Redundancy::Parity;
        let table: [(Redundancy, &[Health], Health); 11] = [
            (Redundancy::Copies, &[healthy, healthy], healthy),
            (Redundancy::Copies, &[healthy, UNAVAILABLE], DEGRADED),
            (Redundancy::Copies, &[UNAVAILABLE, OFFLINE], no_replicas),
            (
                Redundancy::Copies,
                &[OFFLINE, OFFLINE],
                Health::new(VdevState::Offline, AuxReason::ChildrenOffline),
            ),
            (parity(1), &[healthy, DEGRADED, healthy], DEGRADED),
            (parity(1), &[healthy, UNAVAILABLE, OFFLINE], no_replicas),
            (parity(2), &[healthy, UNAVAILABLE, OFFLINE], DEGRADED),
            (Redundancy::Root { tolerated: 0 }, &[healthy, no_replicas], no_replicas),
            (Redundancy::Root { tolerated: 1 }, &[healthy, no_replicas], DEGRADED),
            (Redundancy::Root { tolerated: 0 }, &[healthy, DEGRADED], DEGRADED),
            (
                Redundancy::Root { tolerated: 0 },
                &[healthy, Health::new(VdevState::CantOpen, AuxReason::CorruptData)],
                Health::new(VdevState::CantOpen, AuxReason::CorruptData),
            ),
        ];
        for (redundancy, children, expected) in table {
            assert_eq!(aggregate(redundancy, children), expected, "{redundancy:?} {children:?}");
        }
    }

    #[test]
    fn what_the_administrator_closed_stays_closed() {
        let cell = HealthCell::new(Health::UNKNOWN);
        assert_eq!(cell.apply(LeafEvent::Opened { degraded: false }).1, Health::HEALTHY);
        cell.apply(LeafEvent::TakenOffline);
        for event in [
            LeafEvent::Vanished,
            LeafEvent::ProbeFailed,
            LeafEvent::ErrorsTolerated,
            LeafEvent::OpenFailed(AuxReason::OpenFailed),
        ] {
            assert_eq!(cell.apply(event).1, OFFLINE);
        }
        assert_eq!(cell.apply(LeafEvent::Opened { degraded: true }).1, DEGRADED);
        let faulted = cell.apply(LeafEvent::ProbeFailed).1;
        assert_eq!((faulted.state, faulted.aux), (VdevState::Faulted, AuxReason::ErrorsExceeded));
        assert_eq!(faulted.to_string(), "FAULTED");
    }

    #[test]
    fn words_are_those_of_zpool_status() {
        let shown = |state, aux| Health::new(state, aux).to_string();
        assert_eq!(shown(VdevState::CantOpen, AuxReason::OpenFailed), "UNAVAIL");
        assert_eq!(shown(VdevState::CantOpen, AuxReason::CorruptData), "FAULTED");
        assert_eq!(shown(VdevState::CantOpen, AuxReason::SplitPool), "SPLIT");
        assert_eq!(shown(VdevState::Healthy, AuxReason::None), "ONLINE");
    }
}
