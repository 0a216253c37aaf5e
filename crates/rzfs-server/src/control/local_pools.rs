//! What is known about the pools that a user has imported.

use super::error::ControlError;
use super::{ControlClient, ControlDirectory, ask_all};
use crate::protocol::{Answer, PoolReport, Request};
use rzfs_format::Guid;
use rzfs_vdev::create::LocalPools;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long all pools together may take to say who they are and what they have. Whoever imports one
/// asks once more who is there.
const TIMEOUT: Duration = Duration::from_millis(2500);

/// What pools say that they have, and why others do not answer.
#[derive(Debug, Default)]
pub struct AskedPools {
    /// What is known.
    pub local: LocalPools,
    /// Those that are left out: that their devices are in use has to be found by their claims.
    pub silent: Vec<ControlError>,
}

impl ControlDirectory {
    /// What pools of this user say that they have, for whoever chooses devices of another one. All
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
                // Who is gone has let go of its devices.
                Ok(None) => {}
                Err(ControlError::Wire { source, .. }) if source.is_hang_up() => {}
                Err(error) => asked.silent.push(error),
            }
        }
        Ok(asked)
    }
}

/// How the pool is whose process listens on a socket, if somebody does.
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
