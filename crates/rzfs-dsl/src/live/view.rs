//! Reading a pool that changes: its state as of the last durable uberblock.

use crate::live::pool::{Committed, LivePool, usable_space};
use crate::live::space::SpaceTier;
use crate::pool::OBJECT_DIRECTORY as DIRECTORY;
use crate::pool::{Attributes, FeatureStates, Parts, Pool, PoolError, read_packed_list};
use rzfs_format::config::PoolConfig;
use std::sync::Arc;

impl LivePool {
    /// The pool as it is on disk at this moment.
    ///
    /// Blocks that are freed afterwards keep their contents while the view, or anything opened
    /// through it, exists, unless the pool gets short of space. So views are for looking, not for
    /// keeping.
    ///
    /// # Errors
    /// [`PoolError`]: the object directory, the configuration or the features cannot be read.
    pub fn view(&self) -> Result<Pool, PoolError> {
        let inner = self.inner();
        let (Committed { uberblock, mos }, hold) = inner.hold_committed();
        let directory = Attributes::open(&mos, DIRECTORY)?;
        let entry = |name| directory.object(name)?.ok_or(PoolError::NoEntry { name });
        let config_object = entry("config")?;
        let config_list = read_packed_list(&mos, config_object)?;
        let corrupt = PoolError::corrupt(config_object);
        let parts = Parts {
            name: inner.name.clone(),
            config: PoolConfig::from_list(&config_list).map_err(corrupt)?,
            config_list,
            vdevs: inner.vdevs(),
            pipeline: Arc::clone(self.pipeline()),
            root_dataset: entry("root_dataset")?,
            features: FeatureStates::read(&mos, &directory, uberblock.version)?,
            salt: Some(self.pipeline().salt().clone()),
            checkpoint: inner.found.checkpoint.clone(),
            auxiliary: inner.auxiliary.read().clone(),
            removal: inner.found.removal,
            rewound: None,
            keyring: Arc::clone(&inner.keyring),
            uberblock,
            mos,
            directory,
        };
        let (allocator, sharing) = (Arc::clone(&inner.allocator), Arc::clone(&inner.sharing));
        Ok(Pool::with_space(parts, move || {
            let _held = &hold;
            usable_space(&allocator, &sharing, SpaceTier::Normal)
        }))
    }
}
