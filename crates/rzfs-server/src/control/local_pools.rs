//! What is known about the pools that a user has imported.

use super::ControlDirectory;
use super::error::ControlError;
use crate::protocol::{Answer, Request};
use rzfs_format::Guid;
use rzfs_vdev::create::LocalPools;

impl ControlDirectory {
    /// What pools of this user say that they have, for whoever chooses devices of another one.
    ///
    /// # Errors
    /// [`ControlError`]: one of them does not answer as it should.
    pub fn local_pools(&self) -> Result<LocalPools, ControlError> {
        let mut local = LocalPools::default();
        for mut client in self.mounted()? {
            let report = match client.ask(&Request::Pool) {
                Ok(Answer::Pool(report)) => report,
                Ok(_) => return Err(ControlError::Mismatch(client.identity().pool.clone())),
                // Who is gone has let go of its devices.
                Err(ControlError::Wire { source, .. }) if source.is_hang_up() => continue,
                Err(error) => return Err(error),
            };
            local.imported.insert(Guid(report.guid));
            let auxiliary = report.spares.iter().chain(&report.caches);
            let named = auxiliary.map(|vdev| (Guid(vdev.guid), report.name.clone()));
            local.auxiliary.extend(named);
        }
        Ok(local)
    }
}
