//! Reading a live pool: its state as of the last durable uberblock.

use super::devices::current::PoolDevices;
use super::durable::{Committed, Durable, Held};
use super::log::claim::DroppedLog;
use crate::import::MissingLogs;
use crate::mos::packed_list;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use crate::pool::{Attributes, FeatureStates, Parts, Pool, PoolError};
use parking_lot::Mutex;
use rzfs_format::config::PoolConfig;
use rzfs_format::indirect::RemovalState;
use rzfs_format::uberblock::Uberblock;
use std::sync::Arc;

/// State of a pool from before it was opened for writing, which does not change.
#[derive(Clone, Default, Debug)]
pub(crate) struct PriorState {
    pub(crate) removal: Option<RemovalState>,
    pub(crate) checkpoint: Option<Uberblock>,
    /// What happens to intent logs that cannot be read.
    pub(crate) missing_logs: MissingLogs,
    /// Those of which not everything is done, until somebody is told.
    pub(crate) dropped_logs: Arc<Mutex<Vec<DroppedLog>>>,
}

impl Durable {
    /// The pool as it is on disk at this moment.
    pub(crate) fn view(
        &self,
        devices: &PoolDevices,
        prior: &PriorState,
    ) -> Result<Pool, PoolError> {
        let Held { committed, usable_space, surroundings } = self.hold();
        let Committed { uberblock, mos, vdevs } = committed;
        let directory = Attributes::open(&mos, DIRECTORY)?;
        let config_object = mos.required_object("config")?;
        let config_list = packed_list::read(&mos, config_object)?;
        let corrupt = PoolError::corrupt(config_object);
        let pipeline = mos.pipeline();
        let parts = Parts {
            name: self.pool.clone(),
            config: PoolConfig::from_list(&config_list).map_err(corrupt)?,
            config_list,
            vdevs,
            pipeline: Arc::clone(pipeline),
            root_dataset: mos.required_object("root_dataset")?,
            features: FeatureStates::read(&mos, uberblock.version)?,
            salt: Some(pipeline.salt().clone()),
            checkpoint: prior.checkpoint.clone(),
            auxiliary: devices.auxiliary(),
            removal: prior.removal,
            rewound: None,
            uberblock,
            mos,
            directory,
        };
        Ok(Pool::within(parts, usable_space, surroundings))
    }
}
