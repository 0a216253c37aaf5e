//! Raising the version of a file system (spec 05, section 1.2).
//!
//! Its files stay as they are until they [change](super::legacy). Before version 4 owners were not
//! accounted, so such file systems are not raised.

use super::salts::Salts;
use super::tables::Table;
use crate::error::ZplError;
use crate::master::{MASTER_NODE, MasterNode, VERSION};
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::object_type::ObjectType;
use rzfs_format::znode::ZplVersion;
use std::sync::Arc;

/// Why the version of a file system cannot be raised.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// Files of its version cannot be changed.
    #[error("version {0} cannot be raised by this software yet")]
    TooOld(u64),
    /// Its pool is too old for such file systems.
    #[error("its pool has to be upgraded first")]
    OldPool,
    /// It cannot be read or written.
    #[error(transparent)]
    Files(Box<ZplError>),
}

impl From<ZplError> for UpgradeError {
    fn from(error: ZplError) -> Self {
        Self::Files(Box::new(error))
    }
}

/// Raises the version of the file system in a set in one transaction; one of this version or a
/// newer one is left alone. The set must be unused meanwhile. `seed` is a random number.
///
/// # Errors
/// [`UpgradeError`].
pub fn raise_version(
    objset: &LiveObjset,
    engine: &Arc<TxgEngine>,
    (pool_version, wanted): (u64, ZplVersion),
    seed: u64,
) -> Result<(), UpgradeError> {
    let present = MasterNode::read(objset, pool_version)?.version;
    if present >= wanted {
        return Ok(());
    }
    if wanted > ZplVersion::newest_of_pool(pool_version) {
        return Err(UpgradeError::OldPool);
    }
    if present < ZplVersion::USERSPACE {
        return Err(UpgradeError::TooOld(present.number()));
    }
    let mut master = Table::open(objset, MASTER_NODE, ObjectType::MASTER_NODE)?;
    let tx = engine.begin_unthrottled(&[master.object()]).map_err(ZplError::from)?;
    if wanted >= ZplVersion::SA {
        let kind = ObjectType::SA_MASTER_NODE;
        let attributes = Table::create(objset, &tx, kind, None, Salts::new(seed).next())?;
        master.set(&tx, "SA_ATTRS", attributes.object().id().0)?;
    }
    Ok(master.set(&tx, VERSION, wanted.number())?)
}
