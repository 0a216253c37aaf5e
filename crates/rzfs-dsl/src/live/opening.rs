//! Opening an existing pool for writing (spec 01, section 9.9).

use super::background::sweep::SweepRecords;
use super::building::{Building, Parts, PoolCore};
use super::datasets::free_lists::FreeLists;
use super::durable::Committed;
use super::environment::Environment;
use super::log::claim::LogClaims;
use super::not_writable::NotWritable;
use super::pool::LivePool;
use super::space::allocation;
use super::space::clone_table::CloneTables;
use super::sync_state::{PoolObjects, SyncState};
use super::view::PriorState;
use super::vital;
use super::{Attendance, LiveOptions};
use crate::import::HostIdentity;
use crate::mos::MosSource;
use crate::mos::features::Features;
use crate::mos::history::Event;
use crate::pool::{FeatureNeed, Pool};
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::features::Feature;
use rzfs_format::pool_state::PoolState;
use rzfs_format::{ByteOrder, Txg};
use rzfs_metaslab::allocator::Autotrim;
use std::sync::Arc;

/// Features whose structures are not maintained: a pool that uses one is read-only.
const NOT_WRITTEN: [Feature; 1] = [Feature::RedactedDatasets];

impl LivePool {
    /// Takes over a pool opened for reading, on writable devices, and writes a first txg: from then
    /// on the pool is this host's.
    ///
    /// # Errors
    /// [`NotWritable`]; nothing has been written, unless writing itself failed.
    pub fn open(
        pool: &Pool,
        environment: Arc<dyn Environment>,
        options: &LiveOptions,
    ) -> Result<Self, NotWritable> {
        let _span = tracing::debug_span!("open_for_writing", pool = pool.name()).entered();
        check(pool)?;
        let claims = LogClaims::plan(pool, options.missing_logs)?;
        let building = build(pool, environment, options, claims.last_birth())?;
        building.pool.found.dropped_logs.lock().extend_from_slice(claims.given_up());
        let LivePool { engine, accounts, heads, .. } = &building.pool;
        let claiming = tracing::debug_span!("claim_logs").entered();
        claims.claim(engine, accounts.allocator(), heads)?;
        drop(claiming);
        let live = building.start(None)?;
        live.heart.follow(pool.properties()?.multihost.value);
        live.sweeps.resume();
        let operation = "open";
        let text = format!("pool version {}; software rzfs", pool.version());
        let event = Event::Internal { operation, text, dataset: None };
        live.log(event).map_err(|_| live.why_stopped())?;
        live.clear_interrupted_receives();
        if options.attendance == Attendance::WhenOpen {
            live.attend();
        }
        Ok(live)
    }
}

/// Refuses pools whose structures would not be maintained, or are incomplete.
fn check(pool: &Pool) -> Result<(), NotWritable> {
    if pool.mos().block().order != ByteOrder::NATIVE {
        return Err(NotWritable::ByteOrder);
    }
    let features = pool.features();
    let mut names: Vec<String> =
        features.unsupported(FeatureNeed::Writing).map(|feature| feature.guid).collect();
    let active = NOT_WRITTEN.iter().filter(|feature| features.is_active(**feature));
    names.extend(active.map(|feature| feature.name().to_owned()));
    let is_removing = pool.removal().is_some_and(|removal| removal.end_time == 0);
    if is_removing || pool.directory().words("com.delphix:condensing_indirect")?.is_some() {
        names.push(format!("{} (under way)", Feature::DeviceRemoval.name()));
    }
    if features.is_active(Feature::PoolCheckpoint) && pool.checkpoint().is_none() {
        names.push(format!("{} (being discarded)", Feature::PoolCheckpoint.name()));
    }
    if !names.is_empty() {
        return Err(NotWritable::Features { names });
    }
    let missed = pool.vdevs().missed_leaves();
    if !missed.is_empty() {
        let devices = missed.into_iter().map(|leaf| leaf.name().to_owned()).collect();
        return Err(NotWritable::MissingNewer { devices });
    }
    Ok(())
}

fn build(
    pool: &Pool,
    environment: Arc<dyn Environment>,
    options: &LiveOptions,
    last_txg: Txg,
) -> Result<Building, NotWritable> {
    let vdevs = pool.vdevs();
    let directory = pool.directory();
    let properties = pool.properties()?;
    let features = Features::open(pool.mos(), pool.version(), pool.features())?;
    let mos = LiveObjset::open(pool.mos().clone());
    let space_features = allocation::space_features(&features);
    let allocator = allocation::of_pool(pool, &mos, space_features, options.space())?;
    if properties.autotrim.value {
        allocator.set_autotrim(Autotrim::On);
    }
    allocator.set_checkpoint(pool.checkpoint().map(|uberblock| uberblock.txg));
    let config = active_config(pool, environment.host());
    let auxiliary = pool.auxiliary().to_vec();
    let has = |feature| features.is_enabled(feature);
    let has_lz4 = features.is_active(Feature::Lz4Compress);
    let given = (environment, options);
    let core = PoolCore::new(mos, allocator, auxiliary, given, has, has_lz4);
    vital::hold(&core.mos, pool);
    core.dedup.load(pool)?;
    let objects = PoolObjects {
        config: pool.mos().required_object("config")?,
        history: directory.object("history")?,
        mos_dir: pool.special_directory("$MOS")?,
    };
    vdevs.mark_all_configs_dirty();
    let frees = FreeLists::open(pool.mos(), pool.special_directory("$FREE")?)?;
    let state = SyncState {
        clones: CloneTables::open(pool.mos(), directory, vdevs)?,
        is_deflated: directory.number("deflate")?.is_some_and(|deflate| deflate != 0),
        ..SyncState::new(objects, config, features, frees, &core.dedup)
    };
    let parts = Parts {
        name: pool.name().to_owned(),
        found: PriorState {
            removal: pool.removal().cloned(),
            checkpoint: pool.checkpoint().cloned(),
            missing_logs: options.missing_logs,
            dropped_logs: Arc::default(),
        },
        keyring: Arc::clone(pool.datasets().keyring()),
        engine: TxgEngine::new(last_txg, options.txg(), core.environment.clock()),
        committed: Committed {
            uberblock: pool.uberblock().clone(),
            mos: pool.mos().clone(),
            vdevs: Arc::clone(pool.vdevs()),
        },
        sweeps: SweepRecords::read(pool.mos(), vdevs)?,
        fail_mode: properties.failmode.value,
    };
    Ok(core.build(parts, state, options))
}

/// The configuration of a pool opened by this host.
fn active_config(pool: &Pool, host: &HostIdentity) -> PoolConfig {
    PoolConfig {
        name: pool.name().to_owned(),
        state: PoolState::Active,
        host: LastHost { id: host.id.into(), name: host.name.clone() },
        ..pool.pool_config().clone()
    }
}
