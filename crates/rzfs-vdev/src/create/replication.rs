//! Whether vdevs match: the same redundancy everywhere, unless overridden.

use super::device::NewDevice;
use super::spec::{TopLayout, TopSpec};
use crate::config::{AllocationBias, VdevConfig, VdevKind};
use crate::tree::VdevTree;

/// Maximum difference of device sizes that count as equal.
const SIZE_TOLERANCE: u64 = 16 << 20;

/// The redundancy of a top-level vdev.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redundancy {
    /// `disk`, `file`, `mirror`, `raidz` or `draid`.
    pub kind: &'static str,
    /// Columns of parity.
    pub parity: u64,
    /// Devices.
    pub children: u64,
}

impl Redundancy {
    /// The redundancy of a new vdev.
    pub(super) fn of_spec(top: &TopSpec<NewDevice>) -> Self {
        let children = top.devices.len() as u64;
        let (kind, parity) = match top.layout {
            TopLayout::Single => {
                let kind = top.devices.first().map_or(VdevKind::Disk, |device| device.kind);
                (kind.name(), 0)
            }
            TopLayout::Mirror => ("mirror", 0),
            TopLayout::Raidz { parity } => ("raidz", u64::from(parity)),
            TopLayout::Draid { parity, .. } => ("draid", u64::from(parity)),
        };
        Self { kind, parity, children }
    }

    /// The redundancy of an existing vdev; `None` for those that do not count.
    fn of_config(top: &VdevConfig) -> Option<Self> {
        let is_log = top.top.is_log.is_some_and(|is_log| is_log != 0);
        if is_log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing) {
            return None;
        }
        let mut top = top;
        // A vdev being replaced or spared counts as its original.
        while let (VdevKind::Replacing | VdevKind::Spare, Some(first)) =
            (top.kind, top.children.first())
        {
            top = first;
        }
        let children = if top.kind.is_leaf() { 1 } else { top.children.len() as u64 };
        Some(Self { kind: top.kind.name(), parity: top.nparity.unwrap_or(0), children })
    }

    /// Number of devices that vdevs with parity or copies can lose.
    fn tolerated(&self) -> Option<u64> {
        match self.kind {
            "mirror" => Some(self.children.saturating_sub(1)),
            "raidz" | "draid" => Some(self.parity),
            _ => None,
        }
    }
}

/// How vdevs do not match. The messages are OpenZFS's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    /// A vdev of files and disks.
    #[error("mismatched replication level: {0} contains both files and devices")]
    FilesAndDevices(&'static str),
    /// A vdev of devices of different sizes.
    #[error("mismatched replication level: {0} contains devices of different sizes")]
    Sizes(&'static str),
    /// Parity and copies that tolerate different numbers of losses.
    #[error(
        "mismatched replication level: {parity} and {copies} vdevs with different redundancy, {parity_lost} vs. {copies_lost} ({ways}-way) are present"
    )]
    ParityAndCopies {
        /// The kind with parity.
        parity: &'static str,
        /// The kind with copies.
        copies: &'static str,
        /// Devices that the first can lose.
        parity_lost: u64,
        /// Devices that the second can lose.
        copies_lost: u64,
        /// Copies.
        ways: u64,
    },
    /// RAID-Z and dRAID of different parity.
    #[error(
        "mismatched replication level: {first} and {second} vdevs with different redundancy, {first_parity} vs. {second_parity} are present"
    )]
    ParityKinds {
        /// One kind.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Parity of the first.
        first_parity: u64,
        /// Parity of the second.
        second_parity: u64,
    },
    /// Different kinds.
    #[error("mismatched replication level: both {first} and {second} vdevs are present")]
    Kinds {
        /// One kind.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Different parity.
    #[error(
        "mismatched replication level: both {first} and {second} device parity {kind} vdevs are present"
    )]
    Parity {
        /// The kind.
        kind: &'static str,
        /// One parity.
        first: u64,
        /// The other.
        second: u64,
    },
    /// Different numbers of devices.
    #[error(
        "mismatched replication level: both {first}-way and {second}-way {kind} vdevs are present"
    )]
    Ways {
        /// The kind.
        kind: &'static str,
        /// One number.
        first: u64,
        /// The other.
        second: u64,
    },
    /// Parity in the pool and copies in the new vdev, or the other way round.
    #[error(
        "mismatched replication level: pool and new vdev with different redundancy, {parity} and {copies} vdevs, {parity_lost} vs. {copies_lost} ({ways}-way)"
    )]
    PoolRedundancy {
        /// The kind with parity.
        parity: &'static str,
        /// The kind with copies.
        copies: &'static str,
        /// Devices that the first can lose.
        parity_lost: u64,
        /// Devices that the second can lose.
        copies_lost: u64,
        /// Copies.
        ways: u64,
    },
    /// A kind that differs from the pool's.
    #[error("mismatched replication level: pool uses {pool} and new vdev is {new}")]
    PoolKind {
        /// The pool's.
        pool: &'static str,
        /// The new one.
        new: &'static str,
    },
    /// A parity that differs from the pool's.
    #[error("mismatched replication level: pool uses {pool} device parity and new vdev uses {new}")]
    PoolParity {
        /// The pool's.
        pool: u64,
        /// The new one.
        new: u64,
    },
    /// A number of devices that differs from the pool's.
    #[error(
        "mismatched replication level: pool uses {pool}-way {kind} and new vdev uses {new}-way {kind}"
    )]
    PoolWays {
        /// The kind.
        kind: &'static str,
        /// The pool's.
        pool: u64,
        /// The new one.
        new: u64,
    },
}

/// How two vdevs differ.
enum Difference<'r> {
    /// The first has parity, the second copies.
    ParityAndCopies(&'r Redundancy, &'r Redundancy),
    ParityKinds,
    Kinds,
    Parity,
    Ways,
}

fn difference<'r>(a: &'r Redundancy, b: &'r Redundancy) -> Option<Difference<'r>> {
    if a.kind != b.kind {
        return match (a.tolerated(), b.tolerated()) {
            (Some(lost), Some(other)) if lost == other => None,
            (Some(_), Some(_)) if b.kind == "mirror" => Some(Difference::ParityAndCopies(a, b)),
            (Some(_), Some(_)) if a.kind == "mirror" => Some(Difference::ParityAndCopies(b, a)),
            (Some(_), Some(_)) => Some(Difference::ParityKinds),
            _ => Some(Difference::Kinds),
        };
    }
    if a.parity != b.parity {
        Some(Difference::Parity)
    } else if a.children != b.children {
        Some(Difference::Ways)
    } else {
        None
    }
}

/// The first mismatch among these new vdevs. Logs have their own redundancy.
pub(super) fn among(tops: &[TopSpec<NewDevice>]) -> Option<Mismatch> {
    let mut last: Option<Redundancy> = None;
    for top in tops.iter().filter(|top| top.bias != Some(AllocationBias::Log)) {
        let redundancy = Redundancy::of_spec(top);
        if let Some(mismatch) = within(top, redundancy.kind) {
            return Some(mismatch);
        }
        if let Some(last) = &last
            && let Some(difference) = difference(last, &redundancy)
        {
            return Some(between(last, &redundancy, &difference));
        }
        last = Some(redundancy);
    }
    None
}

/// The mismatch among the devices of one vdev.
fn within(top: &TopSpec<NewDevice>, kind: &'static str) -> Option<Mismatch> {
    let first = top.devices.first()?;
    if top.devices.iter().any(|device| device.kind != first.kind) {
        return Some(Mismatch::FilesAndDevices(kind));
    }
    let size = first.device.geometry().size;
    let differs =
        |device: &NewDevice| device.device.geometry().size.abs_diff(size) > SIZE_TOLERANCE;
    top.devices.iter().any(differs).then_some(Mismatch::Sizes(kind))
}

fn between(a: &Redundancy, b: &Redundancy, difference: &Difference<'_>) -> Mismatch {
    match difference {
        Difference::ParityAndCopies(parity, copies) => Mismatch::ParityAndCopies {
            parity: parity.kind,
            copies: copies.kind,
            parity_lost: parity.parity,
            copies_lost: copies.children.saturating_sub(1),
            ways: copies.children,
        },
        Difference::ParityKinds => Mismatch::ParityKinds {
            first: a.kind,
            second: b.kind,
            first_parity: a.parity,
            second_parity: b.parity,
        },
        Difference::Kinds => Mismatch::Kinds { first: a.kind, second: b.kind },
        Difference::Parity => Mismatch::Parity { kind: b.kind, first: a.parity, second: b.parity },
        Difference::Ways => Mismatch::Ways { kind: b.kind, first: a.children, second: b.children },
    }
}

/// The mismatch between the new vdevs and a pool's. A pool that is already mixed accepts anything.
pub(super) fn against(pool: &VdevTree, tops: &[TopSpec<NewDevice>]) -> Option<Mismatch> {
    let present: Vec<Redundancy> =
        pool.config().children.iter().filter_map(Redundancy::of_config).collect();
    let is_mixed = present.windows(2).any(|pair| match pair {
        [a, b] => difference(a, b).is_some(),
        _ => false,
    });
    let old = present.last().filter(|_| !is_mixed)?;
    let is_log = |top: &&TopSpec<NewDevice>| top.bias == Some(AllocationBias::Log);
    let new = Redundancy::of_spec(tops.iter().rev().find(|top| !is_log(top))?);
    Some(match difference(old, &new)? {
        Difference::ParityAndCopies(parity, copies) => Mismatch::PoolRedundancy {
            parity: parity.kind,
            copies: copies.kind,
            parity_lost: parity.parity,
            copies_lost: copies.children.saturating_sub(1),
            ways: copies.children,
        },
        Difference::ParityKinds | Difference::Kinds => {
            Mismatch::PoolKind { pool: old.kind, new: new.kind }
        }
        Difference::Parity => Mismatch::PoolParity { pool: old.parity, new: new.parity },
        Difference::Ways => {
            Mismatch::PoolWays { kind: new.kind, pool: old.children, new: new.children }
        }
    })
}
