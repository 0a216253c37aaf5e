//! Requests to create a pool.

use crate::control::{AskedPools, ControlDirectory};
use crate::error::ServeError;
use rzfs::{NewPool, PlannedPool, Secret, Tunables};
use rzfs_format::property::DatasetProperty;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A pool to be created, and imported until it is exported.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CreateRequest {
    /// Its name.
    pub pool: String,
    /// Words that describe its vdevs.
    pub vdevs: Vec<String>,
    /// Whether to use devices that seem to be in use.
    pub force: bool,
    /// Whether to enable only features named by properties.
    pub without_features: bool,
    /// Properties of the pool.
    pub properties: Vec<(String, String)>,
    /// Properties of its root file system.
    pub root_properties: Vec<(String, String)>,
    /// Size of missing files, which are created.
    pub size: Option<u64>,
    /// Its tunables.
    pub tunables: Tunables,
    /// The key of the root file system.
    pub key: Option<Secret>,
    /// The line for the pool's history.
    pub command: String,
}

impl CreateRequest {
    /// Checks everything and opens the devices.
    ///
    /// # Errors
    /// [`ServeError::Create`], or other pools of this user cannot be asked for their devices.
    pub fn plan(&self) -> Result<PlannedPool, ServeError> {
        // The devices of unresponsive pools are claimed.
        let AskedPools { local, silent } = ControlDirectory::of_user().local_pools()?;
        silent.iter().for_each(|error| tracing::debug!("{error}: it is left out"));
        let mut new = NewPool::new(&self.pool)
            .vdevs(&self.vdevs)
            .local_pools(local)
            .tunables(self.tunables)
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
        Ok(new.plan()?)
    }

    /// Refuses a new pool whose root file system would hide something.
    ///
    /// # Errors
    /// [`ServeError::MountPointInUse`], [`ServeError::MountPoint`].
    pub fn check_mount_point(&self, plan: &PlannedPool) -> Result<(), ServeError> {
        let is_mount_point =
            |(name, _): &&(String, String)| name == DatasetProperty::MountPoint.name();
        let chosen = self.root_properties.iter().rev().find(is_mount_point);
        let default = format!("/{}", self.pool);
        let path = chosen.map_or(default.as_str(), |(_, path)| path);
        if matches!(path, "none" | "legacy") {
            return Ok(());
        }
        let root = plan.properties().alternate_root.as_deref();
        let path = match root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Path::new(path).to_owned(),
        };
        match std::fs::read_dir(&path).map(|mut entries| entries.next()) {
            Ok(None) => Ok(()),
            // A missing directory is created.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(Some(_)) => Err(ServeError::MountPointInUse(path)),
            Err(source) => Err(ServeError::MountPoint { path, source }),
        }
    }
}
