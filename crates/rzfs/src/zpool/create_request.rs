//! What `zpool create` is asked for, and doing it.

use crate::console::{Console, Failure, Outcome};
use crate::source::local_pools;
use rzfs::protocol::Secret;
use rzfs::{CreateError, NewPool, PlannedPool, WritablePool};
use rzfs_blockdev::without_number;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

/// What the command line asks for, in a form that can be handed to another process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CreateRequest {
    pub(crate) pool: String,
    pub(super) vdevs: Vec<String>,
    pub(super) force: bool,
    pub(super) without_features: bool,
    pub(super) properties: Vec<(String, String)>,
    pub(super) root_properties: Vec<(String, String)>,
    pub(super) size: Option<u64>,
    /// The key of the root file system.
    pub(super) key: Option<Secret>,
    /// The line for the pool's history.
    pub(super) command: String,
}

impl CreateRequest {
    /// Checks everything and opens the devices.
    pub(crate) fn plan(&self, console: &mut Console<'_>) -> Result<PlannedPool, Failure> {
        let mut new = NewPool::new(&self.pool)
            .vdevs(&self.vdevs)
            .local_pools(local_pools()?)
            .command(&self.command);
        if self.force {
            new = new.force();
        }
        if self.without_features {
            new = new.without_features();
        }
        if let Some(size) = self.size {
            new = new.missing_file_size(size);
        }
        if let Some(key) = &self.key {
            new = new.root_key(key.clone());
        }
        for (name, value) in &self.properties {
            new = new.property(name, value);
        }
        for (name, value) in &self.root_properties {
            new = new.root_property(name, value);
        }
        let plan = new.plan().map_err(failure)?;
        for feature in &plan.properties().incompatible {
            console.complain(format_args!(
                "Warning: feature \"{feature}\" enabled but is not in specified 'compatibility' \
                 feature set."
            ));
        }
        Ok(plan)
    }

    /// Makes the pool.
    pub(crate) fn create(&self, console: &mut Console<'_>) -> Result<WritablePool, Failure> {
        self.plan(console)?.create().map_err(failure)
    }

    /// Refuses a place to mount at that has something in it.
    pub(crate) fn check_mount_point(&self, plan: &PlannedPool) -> Outcome {
        let chosen = self.root_properties.iter().rev().find(|(name, _)| name == "mountpoint");
        let default = format!("/{}", self.pool);
        let path = chosen.map_or(default.as_str(), |(_, path)| path);
        if matches!(path, "none" | "legacy") {
            return Ok(());
        }
        let root = plan.properties().alternate_root.as_deref();
        let place = match root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Path::new(path).to_owned(),
        };
        let problem = match std::fs::read_dir(&place).map(|mut entries| entries.next()) {
            Ok(None) => return Ok(()),
            // What is missing is made.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Ok(Some(_)) => "exists and is not empty".to_owned(),
            Err(error) => format!(": {}", without_number(&error)),
        };
        let (place, advice) = (place.display(), "use '-m' option to provide a different default");
        Err(Failure::Failed(format!("mountpoint '{place}' {problem}\n{advice}")))
    }
}

fn failure(error: CreateError) -> Failure {
    Failure::Failed(error.to_string())
}
