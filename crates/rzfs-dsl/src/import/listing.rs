//! Importable pools: the data of `zpool import` without a pool.

use super::attempt::{Attempt, Purpose};
use super::discovery::DiscoveredPool;
use super::error::{ImportError, SelectError};
use super::options::ImportOptions;
use super::{Discovery, LoadVerification};
use crate::pool::{AuxiliaryVdev, Erratum, PoolStatus, ReadOnly, Symptoms};
use crate::{Pool, pool::UnknownFeature};
use rzfs_format::Guid;
use rzfs_format::config::LastHost;
use rzfs_format::pool_state::PoolState;
use rzfs_vdev::{AuxReason, Health, VdevState, VdevTree};
use std::sync::Arc;

/// A pool that was found, with the outcome of an import.
#[derive(Debug)]
pub struct ImportablePool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// Whether it was exported, destroyed, or left active.
    pub state: PoolState,
    /// Its version.
    pub version: u64,
    /// Its comment.
    pub comment: Option<String>,
    /// The host that last wrote it.
    pub host: LastHost,
    /// When it was last written, in seconds since 1970, if an uberblock was found.
    pub written: Option<u64>,
    /// The state it would have.
    pub health: Health,
    /// The most important condition.
    pub status: PoolStatus,
    /// Its vdevs, as far as known; `None` when the labels do not describe a vdev tree.
    pub vdevs: Option<Arc<VdevTree>>,
    /// Its hot spares, then its cache devices.
    pub auxiliary: Vec<AuxiliaryVdev>,
    /// Active features that make the pool read-only.
    pub unsupported_for_writing: Vec<UnknownFeature>,
    /// Why it cannot be imported; `None` when it can.
    pub error: Option<ImportError>,
}

impl ImportablePool {
    /// Determines the outcome of an import with these options. Recent blocks are not verified.
    #[must_use]
    pub fn examine(discovered: &DiscoveredPool, options: &ImportOptions) -> Self {
        let options = ImportOptions { verification: LoadVerification::None, ..options.clone() };
        let mut attempt = Attempt::new(discovered, &options, Purpose::Examine);
        let result = attempt.newest(None, rzfs_format::Txg(0)).map(Pool::<ReadOnly>::new);
        let seen = attempt.seen().clone();
        let label = discovered.label();
        let config = seen.config.as_ref();
        let host = config.map_or(&label.host, |config| &config.host).clone();
        let pool = result.as_ref().ok();
        let error_health = result.as_ref().err().and_then(ImportError::health);
        let vdevs = seen.vdevs.as_deref();
        let health = error_health.unwrap_or_else(|| health_of(vdevs, pool.is_some()));
        let version = seen.uberblock.as_ref().map_or(label.version, |found| found.version);
        let last_used_elsewhere =
            label.state == PoolState::Active && host.id != 0 && !options.host.wrote(&host);
        let scan = pool.and_then(|pool| pool.scan().ok().flatten());
        let status = match result.as_ref().err() {
            Some(ImportError::ActiveElsewhere { .. }) => PoolStatus::ActiveElsewhere,
            Some(ImportError::HostIdRequired) => PoolStatus::HostIdRequired,
            _ => Symptoms {
                last_used_elsewhere,
                health: Some(health),
                vdevs,
                version,
                features: pool.map(Pool::features),
                compatibility: config.and_then(|config| config.compatibility.as_deref()),
                scan: scan.as_ref(),
                damaged_blocks: 0,
                erratum: pool.and_then(Pool::erratum),
            }
            .status(),
        };
        // It can only be read, and only in part.
        let is_whole = status != PoolStatus::MissingNewer;
        let health = if is_whole { health } else { health_of(vdevs, false) };
        Self {
            name: discovered.name().to_owned(),
            guid: discovered.guid(),
            state: label.state,
            version,
            comment: config.map_or(&label.comment, |config| &config.comment).clone(),
            host,
            written: seen.uberblock.map(|uberblock| uberblock.timestamp),
            health,
            status,
            vdevs: seen.vdevs,
            auxiliary: seen.auxiliary,
            unsupported_for_writing: pool.map(for_writing).unwrap_or_default(),
            error: result.err(),
        }
    }

    /// The erratum that affects the pool.
    #[must_use]
    pub fn erratum(&self) -> Option<Erratum> {
        match self.status {
            PoolStatus::Erratum(erratum) => Some(erratum),
            _ => None,
        }
    }
}

fn for_writing(pool: &Pool) -> Vec<UnknownFeature> {
    pool.features().unsupported(crate::pool::FeatureNeed::Writing).collect()
}

/// The state of a pool as reported by its vdevs, never a good one if it cannot be opened.
fn health_of(vdevs: Option<&VdevTree>, opened: bool) -> Health {
    let unavailable = Health { state: VdevState::CantOpen, aux: AuxReason::NoReplicas };
    let health = vdevs.map_or(unavailable, VdevTree::health);
    if opened || !health.is_usable() { health } else { unavailable }
}

impl Discovery {
    /// Examines everything that was found, destroyed pools included.
    #[must_use]
    pub fn examine(&self, options: &ImportOptions) -> Vec<ImportablePool> {
        self.pools().iter().map(|pool| ImportablePool::examine(pool, options)).collect()
    }

    /// The pool with this name or guid, either among destroyed pools or among the others.
    ///
    /// # Errors
    /// [`SelectError`] when there is none, or several with the name.
    pub fn select(
        &self,
        name_or_guid: &str,
        destroyed: Destroyed,
    ) -> Result<&DiscoveredPool, SelectError> {
        let name = name_or_guid.to_owned();
        let wanted = destroyed == Destroyed::Only;
        let is_wanted = |pool: &&DiscoveredPool| (pool.state() == PoolState::Destroyed) == wanted;
        let mut matching = self.matching(name_or_guid).filter(is_wanted);
        let Some(first) = matching.next() else { return Err(SelectError::NotFound { name }) };
        let others: Vec<Guid> = matching.map(DiscoveredPool::guid).collect();
        if others.is_empty() {
            return Ok(first);
        }
        let guids = std::iter::once(first.guid()).chain(others).collect();
        Err(SelectError::Ambiguous { name, guids })
    }
}

/// Which pools to consider.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Destroyed {
    /// Pools that were not destroyed.
    #[default]
    Exclude,
    /// Only destroyed pools (`-D`).
    Only,
}
