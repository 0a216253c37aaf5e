//! Making a txg the one that an import finds (spec 06, section 20).

use crate::live::LiveError;
use crate::live::pool::{Committed, Inner};
use crate::live::sync::state::SyncState;
use rzfs_format::Txg;
use rzfs_format::uberblock::{FEATURES_VERSION, Uberblock};
use rzfs_vdev::{Commit, ConfigSync};

impl Inner {
    /// Flushes the devices and writes labels and uberblock. After this the txg is the pool's.
    pub(crate) fn commit(
        &self,
        state: &mut SyncState,
        txg: Txg,
        labels: &mut ConfigSync<'_>,
    ) -> Result<(), LiveError> {
        self.heart.check()?;
        let mos = self.mos.objset().synced();
        let before = self.committed.read().uberblock.clone();
        let uberblock = Uberblock {
            version: state.config.version,
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
            pool: &state.config,
            uberblock: &uberblock,
            multihost: self.heart.slots(),
            first_choice: self.environment.random(),
            auxiliary: &[],
        };
        let report = loop {
            match labels.commit(&commit) {
                Ok(report) => break report,
                Err(error) => self.suspend(error.into())?,
            }
        };
        for failure in &report.failures {
            tracing::warn!(leaf = %failure.leaf, error = %failure.error, "a leaf missed a label");
        }
        *self.committed.write() = Committed { uberblock, mos };
        Ok(())
    }
}
