//! Knowledge about the pools that a user has imported.

use super::error::ControlError;
use super::{ControlClient, ControlDirectory, ask_all};
use crate::protocol::{Answer, PoolReport, Request};
use rzfs_format::Guid;
use rzfs_vdev::create::LocalPools;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long all pools together may take to identify themselves and their devices. An import checks
/// once more.
const TIMEOUT: Duration = Duration::from_millis(2500);

/// The devices that pools report, and the errors of others.
#[derive(Debug, Default)]
pub struct AskedPools {
    /// The reported devices.
    pub local: LocalPools,
    /// The omitted pools: their devices are detected as in use by claims on them.
    pub silent: Vec<ControlError>,
}

impl ControlDirectory {
    /// The devices that pools of this user report, for the choice of devices of another pool. All
    /// are asked at once.
    ///
    /// # Errors
    /// [`ControlError`]: the directory cannot be used.
    pub fn local_pools(&self) -> Result<AskedPools, ControlError> {
        let until = Instant::now() + TIMEOUT;
        let mut asked = AskedPools::default();
        for answer in ask_all(&self.all_sockets()?, |path| report(path, until)) {
            match answer {
                Ok(Some(report)) => add(&mut asked.local, &report),
                // A process that is gone has released its devices.
                Ok(None) => {}
                Err(ControlError::Wire { source, .. }) if source.is_hang_up() => {}
                Err(error) => asked.silent.push(error),
            }
        }
        Ok(asked)
    }
}

/// The report of the pool whose process listens on a socket, if there is one.
fn report(socket: &Path, until: Instant) -> Result<Option<PoolReport>, ControlError> {
    let left = until.saturating_duration_since(Instant::now());
    let Some(mut client) = ControlClient::connect_within(socket, left)? else { return Ok(None) };
    match client.ask_until(&Request::Pool, until)? {
        Answer::Pool(report) => Ok(Some(*report)),
        _ => Err(ControlError::Mismatch(client.identity().pool.clone())),
    }
}

fn add(local: &mut LocalPools, report: &PoolReport) {
    local.imported.insert(Guid(report.guid));
    let auxiliary = report.spares.iter().chain(&report.caches);
    let named = auxiliary.map(|vdev| (Guid(vdev.guid), report.name.clone()));
    local.auxiliary.extend(named);
}
