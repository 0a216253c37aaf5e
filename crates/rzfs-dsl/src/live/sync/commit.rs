//! Committing a txg, so that an import finds it (spec 06, section 20).

use crate::live::LiveError;
use crate::live::devices::heartbeat::HeartbeatControl;
use crate::live::durable::{Committed, Durable};
use crate::live::environment::Environment;
use crate::live::suspension::Suspension;
use crate::mos::live::LiveMos;
use rzfs_format::Txg;
use rzfs_format::config::PoolConfig;
use rzfs_format::uberblock::{FEATURES_VERSION, Uberblock};
use rzfs_vdev::{Commit, ConfigSync};
use std::sync::Arc;

/// Commits txgs.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) mos: Arc<LiveMos>,
    pub(crate) durable: Arc<Durable>,
    pub(crate) heart: Arc<HeartbeatControl>,
    pub(crate) suspension: Arc<Suspension>,
    pub(crate) environment: Arc<dyn Environment>,
}

impl Committer {
    /// Whether txgs without changes are written, too: hosts watching the pool see every txg.
    pub(crate) fn wants_every_txg(&self) -> bool {
        self.heart.is_on()
    }

    /// Flushes the devices and writes labels and uberblock. The txg is then committed.
    pub(crate) fn commit(
        &self,
        config: &PoolConfig,
        txg: Txg,
        labels: &mut ConfigSync<'_>,
    ) -> Result<(), LiveError> {
        self.heart.check()?;
        let mos = self.mos.objset().synced().kept();
        let before = self.durable.uberblock();
        let uberblock = Uberblock {
            version: config.version,
            txg,
            guid_sum: labels.tree().guid_sum(),
            timestamp: self.environment.now(),
            mos: *mos.root(),
            software_version: FEATURES_VERSION,
            multihost: Some(self.heart.of_txg()),
            checkpoint_txg: Txg(0),
            raidz_reflow: before.raidz_reflow,
        };
        let commit = Commit {
            pool: config,
            uberblock: &uberblock,
            multihost: self.heart.slots(),
            first_choice: self.environment.random(),
            auxiliary: &[],
        };
        let report = loop {
            match labels.commit(&commit) {
                Ok(report) => break report,
                Err(error) => self.suspension.suspend(error.into())?,
            }
        };
        for failure in &report.failures {
            tracing::warn!(leaf = %failure.leaf, error = %failure.error, "a leaf missed a label");
        }
        let vdevs = mos.pipeline().vdevs();
        self.durable.replace(Committed { uberblock, mos, vdevs });
        Ok(())
    }
}
