//! Objections to using devices: they are in use elsewhere, or do not match each other.

use super::device::{DeviceOpener, NewDevice, OpenFailure};
use super::replication::{self, Mismatch};
use super::spec::{TopSpec, VdevSpec};
use crate::config::VdevKind;
use crate::label::{DeviceUse, PoolUse};
use crate::tree::VdevTree;
use rzfs_blockdev::Access;
use rzfs_format::Guid;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// The pools imported here.
#[derive(Clone, Default, Debug)]
pub struct LocalPools {
    /// Their guids.
    pub imported: HashSet<Guid>,
    /// The names of the pools with these spares and cache devices.
    pub auxiliary: HashMap<Guid, String>,
}

/// A reason not to use a device. The messages are OpenZFS's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Objection {
    /// It belongs to a pool that is imported here.
    #[error("{path} is part of active pool '{pool}'")]
    ActivePool {
        /// The device.
        path: String,
        /// The pool.
        pool: String,
    },
    /// It belongs to a pool that was not exported.
    #[error("{path} is part of potentially active pool '{pool}'")]
    PotentiallyActivePool {
        /// The device.
        path: String,
        /// The pool.
        pool: String,
    },
    /// It belongs to an exported pool.
    #[error("{path} is part of exported pool '{pool}'")]
    ExportedPool {
        /// The device.
        path: String,
        /// The pool.
        pool: String,
    },
    /// It is a hot spare or cache device of an unknown pool.
    #[error("{path} is part of an active pool")]
    UnknownPool {
        /// The device.
        path: String,
    },
    /// It is a spare of a pool that is imported here.
    #[error("{path} is reserved as a hot spare for pool {pool}")]
    HotSpare {
        /// The device.
        path: String,
        /// The pool.
        pool: String,
    },
    /// It has other contents.
    #[error("{path} contains a filesystem of type '{signature}'")]
    FileSystem {
        /// The device.
        path: String,
        /// The contents, as named by `blkid`.
        signature: &'static str,
    },
    /// It is named twice.
    #[error(
        "one or more vdevs refer to the same device, or one of\nthe devices is part of an active md or lvm device"
    )]
    SameDevice {
        /// The device.
        path: String,
    },
    /// The vdevs do not match.
    #[error(transparent)]
    Replication(Mismatch),
}

impl Objection {
    /// Whether the device may be used anyway with `-f`.
    #[must_use]
    pub const fn is_overridable(&self) -> bool {
        !matches!(
            self,
            Self::ActivePool { .. }
                | Self::UnknownPool { .. }
                | Self::HotSpare { .. }
                | Self::SameDevice { .. }
        )
    }
}

/// All objections to a specification.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Objections(pub Vec<Objection>);

impl Objections {
    /// The objections that remain with `-f`.
    #[must_use]
    pub fn overridden(self) -> Self {
        Self(self.0.into_iter().filter(|objection| !objection.is_overridable()).collect())
    }

    /// `Err(self)` if there are any.
    ///
    /// # Errors
    /// The objections.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Objections {
    /// OpenZFS's message; if some cannot be overridden, only those are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let firm = self.0.iter().any(|objection| !objection.is_overridable());
        f.write_str("invalid vdev specification\n")?;
        f.write_str(if firm {
            "the following errors must be manually repaired:"
        } else {
            "use '-f' to override the following errors:"
        })?;
        for objection in self.0.iter().filter(|objection| objection.is_overridable() != firm) {
            write!(f, "\n{objection}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Objections {}

impl VdevSpec {
    /// Opens all devices.
    ///
    /// # Errors
    /// The first device that cannot be opened.
    pub fn open(self, opener: &mut DeviceOpener) -> Result<VdevSpec<NewDevice>, OpenFailure> {
        let mut open = |names: Vec<String>| -> Result<Vec<NewDevice>, OpenFailure> {
            names.iter().map(|name| opener.open(name)).collect()
        };
        let mut tops = Vec::with_capacity(self.tops.len());
        for TopSpec { layout, bias, devices } in self.tops {
            tops.push(TopSpec { layout, bias, devices: open(devices)? });
        }
        Ok(VdevSpec { tops, spares: open(self.spares)?, caches: open(self.caches)? })
    }
}

impl VdevSpec<NewDevice> {
    /// Objections to it, for a new pool or for one with the tree `pool`.
    #[must_use]
    pub fn objections(&self, pool: Option<&VdevTree>, local: &LocalPools) -> Objections {
        let mut objections = Vec::new();
        let mut seen = HashSet::new();
        for device in self.devices() {
            if !seen.insert(device.identity) {
                objections.push(Objection::SameDevice { path: device.path.clone() });
            }
        }
        let members = self.tops.iter().flat_map(|top| &top.devices).chain(&self.caches);
        objections.extend(members.filter_map(|device| claim(device, local, Role::Member)));
        let spares = self.spares.iter();
        objections.extend(spares.filter_map(|device| claim(device, local, Role::Spare)));
        let mismatch =
            replication::among(&self.tops).or_else(|| replication::against(pool?, &self.tops));
        objections.extend(mismatch.map(Objection::Replication));
        Objections(objections)
    }
}

/// The intended role of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Member,
    /// Several pools can share a spare, and one at a time can write it.
    Spare,
}

/// The current user of a device.
fn claim(device: &NewDevice, local: &LocalPools, role: Role) -> Option<Objection> {
    // A device in use by another writer could only be opened for reading, and takes no label.
    let is_taken = device.access == Access::ReadOnly;
    let unknown = || is_taken.then(|| Objection::UnknownPool { path: device.path.clone() });
    labelled(device, local, role, is_taken).or_else(unknown)
}

/// The user of a device according to its labels.
fn labelled(
    device: &NewDevice,
    local: &LocalPools,
    role: Role,
    is_taken: bool,
) -> Option<Objection> {
    let path = device.path.clone();
    match DeviceUse::of(device.device.as_ref()) {
        DeviceUse::Member { pool, state, .. } => {
            let name = pool.name;
            match state {
                _ if local.imported.contains(&pool.guid) || is_taken => {
                    Some(Objection::ActivePool { path, pool: name })
                }
                PoolUse::Destroyed => None,
                PoolUse::Active => Some(Objection::PotentiallyActivePool { path, pool: name }),
                PoolUse::Exported => Some(Objection::ExportedPool { path, pool: name }),
            }
        }
        DeviceUse::Spare(guid) => {
            let is_free = role == Role::Spare && !is_taken;
            let pool = local.auxiliary.get(&guid).filter(|_| !is_free)?.clone();
            Some(Objection::HotSpare { path, pool })
        }
        DeviceUse::Cache(guid) => {
            let pool = local.auxiliary.get(&guid)?.clone();
            Some(Objection::ActivePool { path, pool })
        }
        DeviceUse::Unlabelled if device.kind == VdevKind::Disk => {
            let signature = super::signature(device.device.as_ref())?;
            Some(Objection::FileSystem { path, signature })
        }
        DeviceUse::Unlabelled => None,
    }
}
