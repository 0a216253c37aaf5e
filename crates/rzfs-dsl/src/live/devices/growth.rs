//! Adding vdevs to a running pool (spec 07, section 12.1; spec 01, section 11.1).
//!
//! ```text
//! LivePool::add_vdevs    open devices, checked        any thread: asks, then waits for the txg
//!  ──┼── before the first pass of the txg ──────────
//!    plan                guids, sizes, positions      refused: nothing has changed
//!    labels              all four of each leaf, txg 0: not taken for part of the pool
//!    tree, allocator     the vdevs are there, their space is not
//!  ──┼── passes ──────────────────────────────────── ZAPs, metaslab arrays, configuration
//!  ──┼── uberblock is durable ────────────────────── labels of all leaves; space can be used
//! ```
//! A crash before the uberblock leaves devices whose labels do not assign them to any pool, and the
//! pool as it was.

use super::current::PoolDevices;
use crate::live::ChangeError;
use crate::live::LiveError;
use crate::live::durable::Durable;
use crate::live::environment::Environment;
use crate::live::requests::{Answer, Requests};
use crate::live::space::accounts::Accounts;
use crate::live::space::allocation;
use crate::live::suspension::Suspension;
use crate::live::sync_state::SyncState;
use crate::pool::{AuxiliaryKind, AuxiliaryState, AuxiliaryVdev};
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::features::Feature;
use rzfs_format::{Txg, VdevId};
use rzfs_metaslab::allocator::Availability;
use rzfs_tunables::Tunables;
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::create::{NewDevice, NewVdevs, PlanOptions, TopLayout, VdevSpec};
use rzfs_vdev::{VdevConfig, VdevKind, VdevTree};
use std::collections::BTreeSet;
use std::sync::Arc;

/// First pool version with several parity columns and hot spares.
const VERSION_SPARES: u64 = 3;
/// First pool version with log devices.
const VERSION_LOGS: u64 = 7;
/// First pool version with cache devices.
const VERSION_CACHES: u64 = 10;

/// Whether new vdevs may differ from the pool in sector size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SectorSizes {
    /// All vdevs keep the same size, if they had it before.
    Same,
    /// They may differ.
    Any,
}

/// Vdevs to add to a pool.
#[derive(Clone, Debug)]
pub struct AddedVdevs {
    /// Their open devices, already checked by the caller.
    pub devices: VdevSpec<NewDevice>,
    /// log2 of their sector size; 0 uses that of the devices.
    pub ashift: u64,
    /// Whether it may differ from the pool's.
    pub sectors: SectorSizes,
}

/// A request to add vdevs.
#[derive(Debug)]
struct Addition {
    added: AddedVdevs,
    answer: Answer<()>,
}

/// Adds devices to a pool: the only place where its shape changes.
#[derive(Debug)]
pub(crate) struct Growth {
    additions: Requests<Addition>,
    devices: Arc<PoolDevices>,
    accounts: Arc<Accounts>,
    durable: Arc<Durable>,
    environment: Arc<dyn Environment>,
    /// Options common to all new vdevs.
    options: PlanOptions,
}

impl Growth {
    pub(crate) fn new(
        devices: &Arc<PoolDevices>,
        accounts: &Arc<Accounts>,
        durable: &Arc<Durable>,
        environment: &Arc<dyn Environment>,
        (engine, suspension): (&Arc<TxgEngine>, &Arc<Suspension>),
        tunables: &Tunables,
    ) -> Self {
        Self {
            additions: Requests::new(engine, suspension),
            devices: Arc::clone(devices),
            accounts: Arc::clone(accounts),
            durable: Arc::clone(durable),
            environment: Arc::clone(environment),
            options: PlanOptions::from(tunables),
        }
    }

    /// Adds vdevs; they are part of the pool when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]: they do not fit, cannot be written, or the pool is suspended.
    pub(crate) fn add(&self, added: AddedVdevs) -> Result<(), ChangeError> {
        self.additions.ask(|answer| Addition { added, answer })
    }

    /// Adds the requested vdevs, before the first pass of a txg.
    pub(crate) fn grow(&self, state: &mut SyncState, txg: Txg) {
        for Addition { added, answer } in self.additions.take(txg) {
            *answer.lock() = Some(self.take_in(state, txg, &added));
        }
    }

    fn take_in(
        &self,
        state: &mut SyncState,
        txg: Txg,
        added: &AddedVdevs,
    ) -> Result<(), ChangeError> {
        let old = self.devices.vdevs();
        check(state, &old, &added.devices)?;
        let options = PlanOptions {
            ashift: added.ashift,
            create_txg: txg,
            first_id: old.top_levels().count() as u64,
            ..self.options
        };
        let mut new = added.devices.plan(&options, &mut || self.environment.random())?;
        if added.sectors == SectorSizes::Same {
            check_sectors(&old, &new.tops)?;
        }
        let biases = new.take_biases();
        let tree = Arc::new(old.grown(new.tops.clone(), &new.devices)?);
        for (vdev, bias) in biases {
            if let Ok(vdev) = u32::try_from(vdev) {
                tree.set_allocation_bias(VdevId(vdev), bias);
            }
        }
        self.label(state, &tree, &new, txg)?;
        let unusable = |error| ChangeError::Unreadable(Arc::new(LiveError::from(error)));
        self.devices.replace_vdevs(Arc::clone(&tree));
        for top in tree.top_levels().skip(old.top_levels().count()) {
            let allocator = self.accounts.allocator();
            allocation::add(allocator, &tree, top, Availability::AfterCommit).map_err(unusable)?;
        }
        self.accounts.follow_vdevs(&tree);
        if !new.tops.is_empty() {
            // Every label contains the number of top-level vdevs.
            tree.mark_all_configs_dirty();
            state.is_config_dirty = true;
        }
        self.keep_auxiliary(state, &new);
        Ok(())
    }

    /// Writes the labels of new leaves.
    fn label(
        &self,
        state: &SyncState,
        tree: &VdevTree,
        new: &NewVdevs,
        txg: Txg,
    ) -> Result<(), ChangeError> {
        let present = self.durable.uberblock();
        let tops: BTreeSet<_> = new.tops.iter().map(|top| top.guid).collect();
        let tops = tree.top_levels().filter(|top| tops.contains(&top.guid()));
        Ok(new.label((&state.config, tree), tops, Some(&present), txg)?)
    }

    /// Adds spares and cache devices to the pool's lists, which are written with this txg.
    fn keep_auxiliary(&self, state: &mut SyncState, new: &NewVdevs) {
        let mut added = Vec::new();
        for (kind, vdevs) in
            [(AuxiliaryKind::Spare, &new.spares), (AuxiliaryKind::Cache, &new.caches)]
        {
            added.extend(vdevs.iter().map(|config| AuxiliaryVdev {
                kind,
                config: config.clone(),
                device: new.devices.get(&config.guid).cloned(),
                state: AuxiliaryState::Available,
            }));
            if !vdevs.is_empty() {
                state.changed_auxiliary.insert(kind);
            }
        }
        self.devices.add_auxiliary(added);
    }
}

/// Refuses vdevs when the pool is too old or in the wrong state.
fn check(
    state: &SyncState,
    tree: &VdevTree,
    devices: &VdevSpec<NewDevice>,
) -> Result<(), ChangeError> {
    let (version, features) = (state.config.version, &state.features);
    let is_class = |bias| matches!(bias, AllocationBias::Special | AllocationBias::Dedup);
    for top in &devices.tops {
        let is_too_old = match top.layout {
            TopLayout::Draid { .. } => !features.is_enabled(Feature::Draid),
            TopLayout::Raidz { parity: 2.. } => version < VERSION_SPARES,
            _ => false,
        };
        let lacks_class =
            top.bias.is_some_and(is_class) && !features.is_enabled(Feature::AllocationClasses);
        let lacks_logs = top.bias == Some(AllocationBias::Log) && version < VERSION_LOGS;
        if is_too_old || lacks_class || lacks_logs {
            return Err(ChangeError::PoolTooOld);
        }
        let has_parity = matches!(top.layout, TopLayout::Raidz { .. } | TopLayout::Draid { .. });
        let has_removed = tree.top_levels().any(|top| top.kind() == VdevKind::Indirect);
        if has_parity && has_removed {
            return Err(ChangeError::RemovedVdevs);
        }
    }
    let lacks_spares = !devices.spares.is_empty() && version < VERSION_SPARES;
    let lacks_caches = !devices.caches.is_empty() && version < VERSION_CACHES;
    if lacks_spares || lacks_caches { Err(ChangeError::PoolTooOld) } else { Ok(()) }
}

/// Refuses a different sector size in a pool whose vdevs all have the same.
fn check_sectors(tree: &VdevTree, tops: &[VdevConfig]) -> Result<(), ChangeError> {
    let normal = tree.top_levels().filter(|top| top.allocation_bias().is_none());
    let present: BTreeSet<u64> = normal.filter_map(|top| top.ashift()).map(u64::from).collect();
    let fits = |top: &VdevConfig| top.top.ashift.is_none_or(|ashift| present.contains(&ashift));
    if present.len() == 1 && !tops.iter().all(fits) {
        return Err(ChangeError::SectorSize);
    }
    Ok(())
}
