//! Initialization and TRIM of leaves, as the pool remembers them (spec 07, section 17).
//!
//! ```text
//! ZAP of a leaf:  com.delphix:vdev_initialize_state, ..._action_time, next_offset_to_initialize
//!                 org.zfsonlinux:vdev_trim_state, ..._action_time, ..._rate, ..._partial,
//!                 ..._secure, next_offset_to_trim
//! ```
//! Both sweep the free space of a leaf from its begin to its end. What is remembered is how far
//! that went, so it goes on after an import.

use super::attributes::Attributes;
use super::error::PoolError;
use super::{Pool, ReadOnly};
use rzfs_dmu::Objset;
use rzfs_format::{Guid, ObjectId, label};
use rzfs_metaslab::metaslab::{Metaslab, VdevMetaslabs};
use rzfs_vdev::{Vdev, VdevKind};
use serde::{Deserialize, Serialize};

/// What is done with free space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepKind {
    /// It is overwritten.
    Initialize,
    /// The device is told that it is free.
    Trim,
}

/// The names under which a leaf's ZAP has a sweep.
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

/// Bytes per second that a TRIM may take, 0 for any number.
pub(crate) const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
/// Whether a TRIM leaves metaslabs out that were never used.
pub(crate) const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
/// Whether a TRIM is to be a secure one.
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

/// How a sweep stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepState {
    /// There never was one.
    #[default]
    Never,
    /// It goes on, or will when the pool is open for writing.
    Active,
    /// It was given up.
    Cancelled,
    /// It was stopped and can go on.
    Suspended,
    /// It has come to its end.
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

    /// The state of a number; unknown ones are taken for none.
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

/// What is remembered of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweepRecord {
    /// How it stands.
    pub state: SweepState,
    /// Up to where it is done, as a byte position on the device; 0 before it has done anything.
    pub offset: u64,
    /// When the state changed last, in seconds since 1970.
    pub action_time: u64,
    /// Bytes per second of a TRIM; 0 for any number.
    pub rate: u64,
    /// A TRIM that is to erase what it discards: that is left to who can.
    pub is_secure: bool,
}

impl SweepRecord {
    /// What the ZAP of a leaf has.
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

/// A sweep and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSweep {
    /// The leaf.
    pub leaf: Guid,
    /// What is done.
    pub kind: SweepKind,
    /// What is remembered.
    pub record: SweepRecord,
    /// Bytes of free space that are done.
    pub done: u64,
    /// Bytes of free space.
    pub total: u64,
}

/// The ZAP of a leaf.
pub(crate) fn leaf_zap(leaf: Vdev<'_>) -> Option<ObjectId> {
    leaf.own_config().leaf.zap.and_then(ObjectId::non_zero)
}

impl Pool<ReadOnly> {
    /// All sweeps that there are or were.
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

/// Among how many children the space of a top-level vdev is spread.
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

/// How much of a leaf's free space lies before an offset, and how much there is.
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
