//! Initialization and TRIM of leaves, as recorded in the pool (spec 07, section 17).
//!
//! ```text
//! ZAP of a leaf:  com.delphix:vdev_initialize_state, ..._action_time, next_offset_to_initialize
//!                 org.zfsonlinux:vdev_trim_state, ..._action_time, ..._rate, ..._partial,
//!                 ..._secure, next_offset_to_trim
//! ```
//! Both sweep the free space of a leaf from start to end. The progress is recorded, so they
//! continue after an import.

use super::attributes::Attributes;
use super::error::PoolError;
use super::{Pool, ReadOnly};
use rzfs_dmu::Objset;
use rzfs_format::{Guid, ObjectId, label};
use rzfs_metaslab::metaslab::{Metaslab, VdevMetaslabs};
use rzfs_vdev::{Vdev, VdevKind};
use serde::{Deserialize, Serialize};

/// What a sweep does with free space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepKind {
    /// Overwrites it.
    Initialize,
    /// Discards it.
    Trim,
}

/// The names of a sweep's fields in a leaf's ZAP.
#[derive(Debug)]
pub(crate) struct SweepKeys {
    pub(crate) state: &'static str,
    pub(crate) action_time: &'static str,
    pub(crate) offset: &'static str,
}

const INITIALIZE: SweepKeys = SweepKeys {
    state: "com.delphix:vdev_initialize_state",
    action_time: "com.delphix:vdev_initialize_action_time",
    offset: "com.delphix:next_offset_to_initialize",
};

const TRIM: SweepKeys = SweepKeys {
    state: "org.zfsonlinux:vdev_trim_state",
    action_time: "org.zfsonlinux:vdev_trim_action_time",
    offset: "org.zfsonlinux:next_offset_to_trim",
};

/// Rate limit of a TRIM in bytes per second, 0 for none.
pub(crate) const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
/// Whether a TRIM skips metaslabs that were never used.
pub(crate) const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
/// Whether a TRIM is a secure one.
pub(crate) const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";

impl SweepKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Initialize, Self::Trim];

    pub(crate) const fn keys(self) -> &'static SweepKeys {
        match self {
            Self::Initialize => &INITIALIZE,
            Self::Trim => &TRIM,
        }
    }
}

/// The state of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepState {
    /// There never was one.
    #[default]
    Never,
    /// It is running, or will be when the pool is open for writing.
    Active,
    /// It was cancelled.
    Cancelled,
    /// It was suspended and can continue.
    Suspended,
    /// It is complete.
    Complete,
}

impl SweepState {
    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Never => 0,
            Self::Active => 1,
            Self::Cancelled => 2,
            Self::Suspended => 3,
            Self::Complete => 4,
        }
    }

    /// The state of a number; unknown ones count as never.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Active,
            2 => Self::Cancelled,
            3 => Self::Suspended,
            4 => Self::Complete,
            _ => Self::Never,
        }
    }
}

/// The record of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweepRecord {
    /// Its state.
    pub state: SweepState,
    /// Its progress, as a byte position on the device; 0 before it has done anything.
    pub offset: u64,
    /// When the state last changed, in seconds since 1970.
    pub action_time: u64,
    /// Rate limit of a TRIM in bytes per second; 0 for none.
    pub rate: u64,
    /// A secure TRIM, which this implementation leaves to others.
    pub is_secure: bool,
}

impl SweepRecord {
    /// Reads the record in a leaf's ZAP.
    pub(crate) fn read(mos: &Objset, zap: ObjectId, kind: SweepKind) -> Result<Self, PoolError> {
        let zap = Attributes::open(mos, zap)?;
        let number = |name: &str| Ok::<_, PoolError>(zap.number(name)?.unwrap_or(0));
        let keys = kind.keys();
        Ok(Self {
            state: SweepState::from_number(number(keys.state)?),
            offset: number(keys.offset)?,
            action_time: number(keys.action_time)?,
            rate: if kind == SweepKind::Trim { number(TRIM_RATE)? } else { 0 },
            is_secure: kind == SweepKind::Trim && number(TRIM_SECURE)? != 0,
        })
    }
}

/// A sweep of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSweep {
    /// The leaf.
    pub leaf: Guid,
    /// Its kind.
    pub kind: SweepKind,
    /// Its record.
    pub record: SweepRecord,
    /// Bytes of free space processed.
    pub done: u64,
    /// Bytes of free space.
    pub total: u64,
}

/// The ZAP of a leaf.
pub(crate) fn leaf_zap(leaf: Vdev<'_>) -> Option<ObjectId> {
    leaf.own_config().leaf.zap.and_then(ObjectId::non_zero)
}

impl Pool<ReadOnly> {
    /// All current and past sweeps.
    ///
    /// # Errors
    /// [`PoolError`]: the ZAP of a leaf or a space map's header cannot be read.
    pub fn sweeps(&self) -> Result<Vec<LeafSweep>, PoolError> {
        let mut found = Vec::new();
        for leaf in self.vdevs().leaves() {
            let Some(zap) = leaf_zap(leaf) else { continue };
            for kind in SweepKind::ALL {
                let record = SweepRecord::read(self.mos(), zap, kind)?;
                if record.state != SweepState::Never {
                    let leaf = leaf.guid();
                    found.push(LeafSweep { leaf, kind, record, done: 0, total: 0 });
                }
            }
        }
        if found.is_empty() {
            return Ok(found);
        }
        let metaslabs = self.inner.metaslabs()?;
        for sweep in &mut found {
            let top = self.vdevs().by_guid(sweep.leaf).and_then(Vdev::top_level);
            let of_top =
                |vdev: &&VdevMetaslabs| top.and_then(Vdev::vdev_id) == Some(vdev.geometry().vdev);
            if let (Some(top), Some(vdev)) = (top, metaslabs.vdevs().find(of_top)) {
                (sweep.done, sweep.total) =
                    progress(vdev.metaslabs(), columns(top), sweep.record.offset);
            }
        }
        Ok(found)
    }
}

/// The number of children that a top-level vdev's space is spread over.
pub(crate) fn columns(top: Vdev<'_>) -> u64 {
    let children = top.children().len() as u64;
    let columns = match top.kind() {
        VdevKind::Raidz => children,
        VdevKind::Draid => {
            children.saturating_sub(top.own_config().draid.map_or(0, |draid| draid.spares))
        }
        _ => 1,
    };
    columns.max(1)
}

/// The part of a leaf's free space before an offset, and the total.
fn progress(metaslabs: &[Metaslab], columns: u64, offset: u64) -> (u64, u64) {
    let (mut done, mut total) = (0u64, 0u64);
    let offset = offset.saturating_sub(label::START_SIZE);
    for metaslab in metaslabs {
        let (start, size) = (metaslab.range().start / columns, metaslab.size() / columns);
        let allocated = metaslab.allocated().max(0).cast_unsigned();
        let free = metaslab.size().saturating_sub(allocated) / columns;
        let passed = offset.saturating_sub(start).min(size);
        let part = u128::from(free) * u128::from(passed) / u128::from(size.max(1));
        done = done.saturating_add(u64::try_from(part).unwrap_or(free));
        total = total.saturating_add(free);
    }
    (done, total)
}
