//! Syncing a transaction group: from dirty objects to a durable uberblock (spec 06, sections 19
//! and 20).
//!
//! ```text
//! pass 1: datasets ─> directories ─> MOS ─> tasks ─> frees ─> space maps
//! pass 2:                           MOS ─────────> frees ─> space maps
//! ...until the MOS stays clean
//! commit: flush ─> even labels ─> uberblock ─> odd labels
//! ```
//! Each pass writes the MOS first and then changes space maps, which the next pass writes. From the
//! second pass on blocks of the same size keep their places, so the passes converge.

use super::commit::Committer;
use super::mos_space::MosSpace;
use crate::live::LiveError;
use crate::live::administration::{TaskContext, TaskEnvironment, Tasks};
use crate::live::amounts::Deflation;
use crate::live::background::sweep::Sweeps;
use crate::live::background::trim::Trimmer;
use crate::live::datasets::dir::SpaceClass;
use crate::live::datasets::generation::Generation;
use crate::live::datasets::head::SyncTargets;
use crate::live::datasets::heads::Heads;
use crate::live::devices::current::PoolDevices;
use crate::live::devices::dirty_time::DirtyTimeStore;
use crate::live::devices::growth::Growth;
use crate::live::environment::Environment;
use crate::live::error::UnlessDamaged;
use crate::live::space::accounts::Accounts;
use crate::live::space::allocation::space_features;
use crate::live::space::freer::BlockFreer;
use crate::live::space::store::LiveStore;
use crate::live::suspension::Suspension;
use crate::live::sync_state::SyncState;
use crate::mos::live::{LiveMos, MosTx};
use crate::mos::packed_list;
use crate::mos::{config, error_log};
use rzfs_dmu::live::{SyncTx, Transaction};
use rzfs_dmu::txg::{QuiescedTxg, TxgEngine, TxgIo};
use rzfs_dmu::write::{BlockWriter, ObjsetPolicy, WriteStream, write_again};
use rzfs_format::config::VdevZaps;
use rzfs_format::{BlockPointer, Txg};
use rzfs_metaslab::allocator::{Activity, SyncPass};
use rzfs_tunables::Tunables;
use rzfs_vdev::{ConfigSync, Durability, IoCounts, VdevTree};
use std::sync::Arc;

/// Passes after which something is wrong: real txgs need fewer than ten.
const MAX_PASSES: u32 = 100;

/// Adds a reference to a block in the dedup tables; `false` if they cannot have it. If a block with
/// the dedup bit was shared without them, OpenZFS 2.3 frees it with each reference.
fn add_to_dedup(
    state: &SyncState,
    mos: &MosTx<'_>,
    pointer: &BlockPointer,
) -> Result<bool, LiveError> {
    Ok(state.dedup.add(pointer)?
        || (!state.clones.has(mos, pointer)? && state.dedup.restore(pointer)?))
}

/// Device I/O between two moments.
const fn io_since(before: IoCounts, after: IoCounts) -> TxgIo {
    TxgIo {
        nread: after.bytes_read.saturating_sub(before.bytes_read),
        nwritten: after.bytes_written.saturating_sub(before.bytes_written),
        reads: after.reads.saturating_sub(before.reads),
        writes: after.writes.saturating_sub(before.writes),
    }
}

/// The results of a pass.
struct Pass<'s> {
    space: SyncPass<'s>,
    next: Next,
}

/// Whether passes have converged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Something became dirty that this pass did not write.
    AnotherPass,
    /// Everything is written.
    Done,
}

/// Writes transaction groups.
#[derive(Debug)]
pub(crate) struct Syncer {
    pub(crate) mos: Arc<LiveMos>,
    pub(crate) mos_policy: ObjsetPolicy,
    pub(crate) writer: Arc<BlockWriter>,
    pub(crate) engine: Arc<TxgEngine>,
    pub(crate) devices: Arc<PoolDevices>,
    pub(crate) growth: Arc<Growth>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) heads: Arc<Heads>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) surroundings: TaskEnvironment,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) trimmer: Arc<Trimmer>,
    pub(crate) suspension: Arc<Suspension>,
    pub(crate) committer: Committer,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) tunables: Tunables,
}

impl Syncer {
    /// Writes a group to disk.
    pub(crate) fn sync_group(
        &self,
        state: &mut SyncState,
        txg: QuiescedTxg,
    ) -> Result<(), LiveError> {
        let span = tracing::debug_span!("sync", txg = %txg.txg(), dirty = txg.dirty());
        let _syncing = span.entered();
        txg.begin_sync();
        self.growth.grow(state, txg.txg());
        let vdevs = self.devices.vdevs();
        let io_before = vdevs.root().io();
        let mut labels = ConfigSync::begin(&vdevs);
        let mut space = self.accounts.allocator().begin_sync(txg.txg())?;
        for number in 1.. {
            let pass = self.run_pass(state, &txg, number, &mut labels, space)?;
            space = pass.space;
            if pass.next == Next::Done {
                break;
            }
            if number == MAX_PASSES {
                return Err(LiveError::NoConvergence { txg: txg.txg(), passes: number });
            }
        }
        let finished = space.finish()?;
        if self.has_changed(txg.txg(), &labels) || self.committer.wants_every_txg() {
            self.committer.commit(&state.config, txg.txg(), &mut labels)?;
        }
        finished.committed()?;
        let written = std::mem::take(&mut state.written);
        self.accounts.sharing().follow(&state.clones, &state.features);
        self.accounts.settle(txg.txg(), state.dirs.known(), &written);
        self.heads.settle(txg.txg(), &std::mem::take(&mut state.changed));
        self.trimmer.committed(txg.txg());
        self.mos.close_idle_zaps();
        txg.note_io(io_since(io_before, vdevs.root().io()));
        txg.committed();
        if state.frees.has_background() {
            self.engine.request_more();
        }
        Ok(())
    }

    /// Whether the txg has changed anything that must be committed.
    fn has_changed(&self, txg: Txg, labels: &ConfigSync<'_>) -> bool {
        self.mos.objset().synced().root().logical_birth() == txg || !labels.dirty().is_empty()
    }

    /// One pass, with all of its blocks written to the devices.
    fn run_pass<'s>(
        &self,
        state: &mut SyncState,
        txg: &QuiescedTxg,
        number: u32,
        labels: &mut ConfigSync<'_>,
        space: SyncPass<'s>,
    ) -> Result<Pass<'s>, LiveError> {
        let _pass = tracing::debug_span!("pass", number).entered();
        let stream = WriteStream::start(self.devices.writer());
        let tx = SyncTx::new(txg, number, &self.writer, &stream);
        let result = self.change_and_write(state, &tx, labels, space);
        let mut failed = stream.finish();
        let mut pass = result?;
        while let Some(first) = failed.first() {
            self.suspension.suspend(first.error.clone().into())?;
            failed = write_again(&**self.devices.writer(), failed);
        }
        // A leaf may have missed something that others have, and still lack it at the end.
        labels.tree().settle_debts();
        if labels.tree().has_changed_dirty_times() {
            pass.next = Next::AnotherPass;
        }
        Ok(pass)
    }

    fn change_and_write<'s>(
        &self,
        state: &mut SyncState,
        tx: &SyncTx<'_>,
        labels: &mut ConfigSync<'_>,
        space: SyncPass<'s>,
    ) -> Result<Pass<'s>, LiveError> {
        let random = || self.environment.random();
        let mos = self.mos.in_pass(tx, &random);
        let vdevs = labels.tree();
        let deflation = Deflation::new(vdevs, state.is_deflated);
        let is_first = tx.pass() == 1;
        if is_first {
            self.sync_logs(state, &mos)?;
            let logged = error_log::log_damage(&mos, &state.features);
            logged
                .unless_damaged(|error| tracing::warn!(%error, "damage is not in the error log"))?;
        } else {
            self.write_config(state, &mos, labels)?;
        }
        self.write_auxiliary(state, &mos)?;
        self.sync_datasets(state, mos, deflation)?;
        state.dirs.write(&mos)?;
        self.sync_mos(state, &mos, deflation)?;
        if is_first {
            // Before tasks destroy more, as files may share blocks of that until the next txg.
            self.free_background(state, &mos, deflation, &space)?;
            self.run_tasks(state, mos, (vdevs, &space))?;
        }
        self.free(state, &mos, deflation, &space)?;
        if is_first {
            // Once, including changes by tasks.
            self.write_config(state, &mos, labels)?;
        }
        self.store_dirty_times(state, mos, vdevs)?;
        // Blocks of intent logs are allocated without dirtying anything else.
        let is_idle = !self.is_dirty(tx.txg())
            && !self.has_changed(tx.txg(), labels)
            && !self.accounts.allocator().has_changes(tx.txg())
            && !state.dedup.has_work(tx.txg());
        let activity = if is_idle { Activity::Idle } else { Activity::Busy };
        let mut store = LiveStore { mos, features: &mut state.features, vdevs };
        let space = space.sync(&mut store, activity)?;
        if is_first && !is_idle {
            let SyncState { clones, dedup, frees, features, leaks, .. } = &mut *state;
            let freer = BlockFreer { mos, space: &space, clones, dedup, deflation, leaks };
            frees.free_deferred(features, self.tunables.zfs_async_block_max_blocks, &freer)?;
        }
        let SyncState { clones, dedup, frees, dirs, features, leaks, .. } = &mut *state;
        let freer = BlockFreer { mos, space: &space, clones, dedup, deflation, leaks };
        dedup.write(&mos, features, &|pointer| freer.free(pointer))?;
        clones.write(&mos, features)?;
        frees.settle_leaks(&mos, dirs, leaks)?;
        self.settle_mos_space(state, &mos)?;
        state.dirs.write(&mos)?;
        let next = if self.is_dirty(tx.txg()) { Next::AnotherPass } else { Next::Done };
        Ok(Pass { space, next })
    }

    /// Runs the tasks submitted since the last txg.
    fn run_tasks(
        &self,
        state: &mut SyncState,
        mos: MosTx<'_>,
        (vdevs, space): (&VdevTree, &SyncPass<'_>),
    ) -> Result<(), LiveError> {
        let tasks = self.tasks.take(mos.tx().txg());
        self.sweeps.store(&mos, vdevs)?;
        let pool = &self.surroundings;
        let mut context = TaskContext { pool, vdevs, state, mos, space };
        tasks.into_iter().try_for_each(|task| task(&mut context))
    }

    /// Whether something has to be written in another pass.
    fn is_dirty(&self, txg: Txg) -> bool {
        self.mos.objset().is_dirty(txg)
            || self.heads.all().iter().any(|dataset| dataset.is_dirty(txg))
    }

    /// Writes the configuration if it has changed.
    fn write_config(
        &self,
        state: &mut SyncState,
        mos: &MosTx<'_>,
        labels: &mut ConfigSync<'_>,
    ) -> Result<(), LiveError> {
        if state.features.take_new_label() {
            labels.tree().mark_all_configs_dirty();
        }
        let has_new_labels = labels.absorb();
        let is_dirty = std::mem::take(&mut state.is_config_dirty) || has_new_labels;
        // Labels contain the number of their txg, and so does the configuration.
        if !is_dirty && (mos.tx().pass() > 1 || labels.dirty().is_empty()) {
            return Ok(());
        }
        config::create_vdev_zaps(mos, &mut state.features, labels.tree())?;
        labels.absorb();
        let corrupt = LiveError::corrupt(state.config_object);
        state.config.txg = mos.tx().txg();
        let features = config::features_for_read(&state.features).map_err(&corrupt)?;
        state.config.features_for_read = Some(features);
        let list = labels.tree().mos_config(&state.config, VdevZaps::Maintained);
        let list = list.map_err(corrupt)?;
        packed_list::write(mos, state.config_object, &list)
    }

    /// Writes the changed lists of spares and cache devices.
    fn write_auxiliary(&self, state: &mut SyncState, mos: &MosTx<'_>) -> Result<(), LiveError> {
        for kind in std::mem::take(&mut state.changed_auxiliary) {
            let vdevs = self.devices.auxiliary_of(kind);
            config::write_auxiliary(mos, kind, vdevs.iter().map(|vdev| &vdev.config))?;
        }
        Ok(())
    }

    /// Stores the current dirty time logs of leaves.
    fn store_dirty_times(
        &self,
        state: &mut SyncState,
        mos: MosTx<'_>,
        vdevs: &VdevTree,
    ) -> Result<(), LiveError> {
        let maps = space_features(&state.features).maps;
        let mut store = LiveStore { mos, features: &mut state.features, vdevs };
        vdevs.store_dirty_time_logs(&mut DirtyTimeStore::new(&mut store, maps))?;
        Ok(())
    }

    /// Updates the headers of intent logs for this txg.
    fn sync_logs(&self, state: &mut SyncState, mos: &MosTx<'_>) -> Result<(), LiveError> {
        self.settle_logs();
        for dataset in self.heads.all() {
            let contents = dataset.generation();
            let head = (dataset.id(), contents.objset());
            let mut frees = contents.log().sync(head, mos, &mut state.features)?;
            state.frees.now.append(&mut frees);
            state.frees.now.append(&mut dataset.take_orphans(mos.tx().txg()));
        }
        Ok(())
    }

    /// Ends chains whose blocks on log devices may be lost. The space of blocks that belong to this
    /// txg is recorded with it, and after a crash those after a lost one could not be found. The
    /// commit itself does not wait for these devices, and comes too late to free anything.
    fn settle_logs(&self) {
        let vdevs = self.devices.vdevs();
        let heads = self.heads.all();
        let mut heads: Vec<_> = heads.iter().map(|dataset| dataset.generation()).collect();
        let trust = vdevs.trust_in_logs();
        heads.retain(|head| head.log().still_trusts(trust));
        let logs = vdevs.uncertain_logs();
        let oldest = |head: &Arc<Generation>| head.log().oldest_written(&logs);
        heads.retain(|head| oldest(head).is_some());
        let Some(since) = heads.iter().filter_map(oldest).min() else { return };
        if let Err(error) = vdevs.make_durable(Durability::Records { since, vdevs: &logs }) {
            tracing::warn!(%error, "intent logs begin anew");
            heads.iter().for_each(|head| head.log().break_off());
        }
    }

    fn sync_datasets(
        &self,
        state: &mut SyncState,
        mos: MosTx<'_>,
        deflation: Deflation<'_>,
    ) -> Result<(), LiveError> {
        let mut shared = Vec::new();
        let leaks = state.frees.free_dir().map(|_| &state.leaks);
        for dataset in self.heads.all() {
            if dataset.is_dirty(mos.tx().txg()) {
                let mut around = SyncTargets {
                    mos,
                    dirs: &mut state.dirs,
                    features: &mut state.features,
                    frees: &mut state.frees.now,
                    shared: &mut shared,
                    written: &mut state.written,
                    leaks,
                    deflation,
                    livelist_max_entries: self.tunables.zfs_livelist_max_entries,
                };
                dataset.sync(&mut around)?;
            }
        }
        // Before anything is freed: newly shared blocks may lose another reference in this txg.
        for pointer in &shared {
            if pointer.is_dedup() {
                let added = add_to_dedup(state, &mos, pointer).unless_damaged(
                    |error| tracing::warn!(%error, ?pointer, "a block is shared past its dedup table"),
                )?;
                if added == Some(true) {
                    continue;
                }
            }
            let dsize = deflation.of(pointer).used.unsigned_abs();
            state.clones.add(&mos, &mut state.features, deflation.vdevs(), (pointer, dsize))?;
        }
        Ok(())
    }

    fn sync_mos(
        &self,
        state: &mut SyncState,
        mos: &MosTx<'_>,
        deflation: Deflation<'_>,
    ) -> Result<(), LiveError> {
        let mut space = MosSpace::new(deflation);
        self.mos.objset().sync(mos.tx(), self.mos_policy, &mut space)?;
        state.mos_delta += space.delta;
        state.frees.now.append(&mut space.frees);
        Ok(())
    }

    /// Charges the MOS directory.
    fn settle_mos_space(&self, state: &mut SyncState, mos: &MosTx<'_>) -> Result<(), LiveError> {
        let delta = std::mem::take(&mut state.mos_delta);
        let Some(dir) = state.mos_dir else { return Ok(()) };
        let charged = state.dirs.charge(mos, dir, SpaceClass::Head, delta);
        let warn =
            |error: &LiveError| tracing::warn!(%error, "the pool's own space is not counted");
        charged.unless_damaged(warn).map(drop)
    }

    fn free(
        &self,
        state: &mut SyncState,
        mos: &MosTx<'_>,
        deflation: Deflation<'_>,
        space: &SyncPass<'_>,
    ) -> Result<(), LiveError> {
        let SyncState { frees, features, clones, dedup, leaks, .. } = state;
        let freer = BlockFreer { mos: *mos, space, clones, dedup, deflation, leaks };
        frees.free_dead(features, self.tunables.zfs_sync_pass_deferred_free, &freer)
    }

    /// Frees some blocks of datasets destroyed in earlier txgs.
    fn free_background(
        &self,
        state: &mut SyncState,
        mos: &MosTx<'_>,
        deflation: Deflation<'_>,
        space: &SyncPass<'_>,
    ) -> Result<(), LiveError> {
        let SyncState { frees, dirs, features, clones, dedup, leaks, .. } = state;
        let freer = BlockFreer { mos: *mos, space, clones, dedup, deflation, leaks };
        let free = |pointer: &BlockPointer| freer.free(pointer);
        let limit = (deflation, self.tunables.zfs_async_block_max_blocks);
        frees.free_background(mos, dirs, features, limit, &free)
    }
}
