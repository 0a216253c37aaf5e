//! Adding vdevs to a pool open for writing, like `zpool add`.
//!
//! ```no_run
//! let pool = rzfs::PoolOptions::new().device_paths(["a.img"]).open_writable()?;
//! rzfs::AddedVdevs::new()
//!     .vdevs(["/srv/b.img", "log", "/srv/c.img"])
//!     .missing_file_size(1 << 30)
//!     .plan(&pool)?
//!     .add_to(&pool)?;
//! pool.export()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::WritablePool;
use crate::vdev_request::{VdevRequest, VdevRequestError};
use rzfs_dsl::PoolError;
use rzfs_dsl::live::{self, ChangeError, SectorSizes};
use rzfs_format::Guid;
use rzfs_vdev::create::{
    DeviceOpener, LocalPools, NewDevice, Objection, Objections, PlanError, VdevSpec,
};
use rzfs_vdev::label::DeviceUse;
use std::collections::BTreeSet;

/// Objections to adding vdevs that can be overridden.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Allowance {
    /// Devices that seem to be in use.
    InUse,
    /// Vdevs with another redundancy than the pool's.
    ReplicationMismatch,
    /// Another sector size than the pool's.
    AshiftMismatch,
}

impl Allowance {
    /// All of them, as with `-f`.
    pub const ALL: [Self; 3] = [Self::InUse, Self::ReplicationMismatch, Self::AshiftMismatch];

    /// Whether it overrides this objection.
    fn covers(self, objection: &Objection) -> bool {
        match objection {
            Objection::Replication(_) => self == Self::ReplicationMismatch,
            other => self == Self::InUse && other.is_overridable(),
        }
    }
}

/// Why vdevs are not added; the messages are those of `zpool add`.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The devices cannot form vdevs.
    #[error(transparent)]
    Vdevs(#[from] VdevRequestError),
    /// No vdev can have this sector size.
    #[error(transparent)]
    Ashift(PlanError),
    /// The pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A spare belongs to the pool already.
    #[error("cannot add to '{pool}': one or more vdevs refer to the same device")]
    SpareInUse {
        /// The pool.
        pool: String,
    },
    /// The pool refuses them.
    #[error("cannot add to '{pool}': {source}")]
    Refused {
        /// The pool.
        pool: String,
        /// The reason.
        source: ChangeError,
    },
}

/// Vdevs to be added.
#[derive(Clone, Default, Debug)]
pub struct AddedVdevs {
    request: VdevRequest,
    ashift: Option<u64>,
    allowed: BTreeSet<Allowance>,
}

impl AddedVdevs {
    /// An empty set of vdevs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The vdevs, in the words of `zpool add`: `mirror A B`, `log A`, `spare A`, ...
    #[must_use]
    pub fn vdevs<W: AsRef<str>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.request.extend(words);
        self
    }

    /// Adds vdevs on devices that are open already.
    #[must_use]
    pub fn open_vdevs(mut self, devices: VdevSpec<NewDevice>) -> Self {
        self.request.devices = Some(devices);
        self
    }

    /// Creates missing files with this size in bytes, sparse; they are removed again if they are
    /// not added.
    #[must_use]
    pub const fn missing_file_size(mut self, bytes: u64) -> Self {
        self.request.missing_file_size = Some(bytes);
        self
    }

    /// log2 of their sector size (`-o ashift`); otherwise the pool's property or the devices
    /// decide.
    #[must_use]
    pub const fn ashift(mut self, ashift: u64) -> Self {
        self.ashift = Some(ashift);
        self
    }

    /// Overrides objections.
    #[must_use]
    pub fn allow(mut self, allowances: impl IntoIterator<Item = Allowance>) -> Self {
        self.allowed.extend(allowances);
        self
    }

    /// Pools in use on this host; their devices are refused.
    #[must_use]
    pub fn local_pools(mut self, local: LocalPools) -> Self {
        self.request.local = local;
        self
    }

    /// Opens the devices and checks whether they may be added to a pool; nothing is written yet.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn plan(self, pool: &WritablePool) -> Result<PlannedVdevs, AddError> {
        if let Some(ashift) = self.ashift.filter(|ashift| !matches!(ashift, 0 | 9..=16)) {
            return Err(AddError::Ashift(PlanError::Ashift(ashift)));
        }
        let (opener, devices) = self.request.open(|_| Ok(()))?;
        let tree = pool.live().vdevs();
        let Objections(all) = devices.objections(Some(&tree), &self.request.local);
        let own = pool.view()?;
        let own: BTreeSet<Guid> = own.auxiliary().iter().map(|vdev| vdev.config.guid).collect();
        // Spares of other pools can be shared.
        let is_own = |spare: &NewDevice| {
            let known = DeviceUse::of(spare.device.as_ref());
            matches!(known, DeviceUse::Spare(guid) if own.contains(&guid))
        };
        if devices.spares.iter().any(is_own) {
            return Err(AddError::SpareInUse { pool: pool.name().to_owned() });
        }
        let counts = |objection: &Objection| !self.allowed.iter().any(|one| one.covers(objection));
        let counting = Objections(all.into_iter().filter(counts).collect());
        counting.into_result().map_err(VdevRequestError::from)?;
        let ashift = match self.ashift {
            Some(ashift) => ashift,
            None => pool.view()?.properties()?.ashift.value,
        };
        let sectors = match self.allowed.contains(&Allowance::AshiftMismatch) {
            true => SectorSizes::Any,
            false => SectorSizes::Same,
        };
        Ok(PlannedVdevs { opener, added: live::AddedVdevs { devices, ashift, sectors } })
    }
}

/// Vdevs with open devices.
#[derive(Debug)]
pub struct PlannedVdevs {
    opener: DeviceOpener,
    added: live::AddedVdevs,
}

impl PlannedVdevs {
    /// Their devices.
    #[must_use]
    pub const fn devices(&self) -> &VdevSpec<NewDevice> {
        &self.added.devices
    }

    /// Adds them; they are part of the pool on disk when this returns.
    ///
    /// # Errors
    /// [`AddError::Refused`].
    pub fn add_to(mut self, pool: &WritablePool) -> Result<(), AddError> {
        let refused = |source| AddError::Refused { pool: pool.name().to_owned(), source };
        pool.live().add_vdevs(self.added).map_err(refused)?;
        self.opener.keep_files();
        Ok(())
    }
}
