//! Tasks: changes requested by administrators, made by the syncing thread.

use crate::dataset::{Keyring, Readers};
use crate::live::LiveError;
use crate::live::amounts::Deflation;
use crate::live::change_error::{ChangeError, EncryptionProblem, ReceiveProblem};
use crate::live::datasets::creation::Maker;
use crate::live::datasets::dir::SpaceTrial;
use crate::live::datasets::heads::Heads;
use crate::live::devices::heartbeat::HeartbeatControl;
use crate::live::environment::Environment;
use crate::live::error::{MayBeDamage, UnlessDamaged};
use crate::live::requests::Requests;
use crate::live::space::accounts::Accounts;
use crate::live::space::freer::BlockFreer;
use crate::live::space::limits::SpaceTier;
use crate::live::suspension::Suspension;
use crate::live::sync_state::SyncState;
use crate::mos::history::{self, Event, Occasion};
use crate::mos::live::MosTx;
use rzfs_dmu::live::Transaction;
use rzfs_dmu::txg::{Stopped, TxgEngine};
use rzfs_format::{BlockPointer, ObjectId, Txg};
use rzfs_metaslab::allocator::SyncPass;
use rzfs_vdev::VdevTree;
use std::fmt;
use std::sync::Arc;

/// Approximate bytes written by a task: a few blocks of the MOS.
const TASK_BYTES: u64 = 128 << 10;

/// A change of the pool's own objects, made in the first pass of a txg. An error aborts the txg.
pub(crate) type Task = Box<dyn FnOnce(&mut TaskContext<'_>) -> Result<(), LiveError> + Send>;

/// Why a task failed.
#[derive(Debug)]
pub(crate) enum TaskError {
    /// Nothing has changed.
    Refused(ChangeError),
    /// Something may have changed: the txg cannot be completed.
    Failed(LiveError),
}

impl From<ChangeError> for TaskError {
    fn from(error: ChangeError) -> Self {
        Self::Refused(error)
    }
}

impl MayBeDamage for TaskError {
    fn damage(&self) -> Option<&LiveError> {
        match self {
            Self::Refused(_) => None,
            Self::Failed(error) => error.damage(),
        }
    }
}

impl From<EncryptionProblem> for TaskError {
    fn from(problem: EncryptionProblem) -> Self {
        Self::Refused(problem.into())
    }
}

impl From<ReceiveProblem> for TaskError {
    fn from(problem: ReceiveProblem) -> Self {
        Self::Refused(problem.into())
    }
}

impl From<LiveError> for TaskError {
    fn from(error: LiveError) -> Self {
        Self::Failed(error)
    }
}

/// What tasks change or notify besides the pool's own objects.
#[derive(Debug)]
pub(crate) struct TaskEnvironment {
    /// The name of the pool.
    pub(crate) name: String,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) heads: Arc<Heads>,
    pub(crate) accounts: Arc<Accounts>,
    /// The loaded keys.
    pub(crate) keyring: Arc<Keyring>,
    /// The readers of snapshots.
    pub(crate) readers: Arc<Readers>,
    pub(crate) heart: Arc<HeartbeatControl>,
    pub(crate) suspension: Arc<Suspension>,
    pub(crate) has_lz4: bool,
}

/// The context of a task.
pub(crate) struct TaskContext<'a> {
    pub(crate) pool: &'a TaskEnvironment,
    /// The vdevs of the pool in this txg.
    pub(crate) vdevs: &'a VdevTree,
    pub(crate) state: &'a mut SyncState,
    pub(crate) mos: MosTx<'a>,
    pub(crate) space: &'a SyncPass<'a>,
}

/// The tasks waiting for the next txg.
pub(crate) struct Tasks(Requests<Task>);

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl Tasks {
    pub(crate) fn new(engine: &Arc<TxgEngine>, suspension: &Arc<Suspension>) -> Self {
        Self(Requests::new(engine, suspension))
    }

    /// Runs a task in the next txg and waits until it is on disk.
    ///
    /// # Errors
    /// The task was refused, or the pool is suspended.
    pub(crate) fn administer<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut TaskContext<'_>) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, ChangeError> {
        self.0.ask(|answer| {
            Box::new(move |context: &mut TaskContext<'_>| {
                let result = match task(context) {
                    Ok(value) => Ok(value),
                    Err(TaskError::Refused(error)) => Err(error),
                    Err(TaskError::Failed(error)) => return Err(error),
                };
                *answer.lock() = Some(result);
                Ok(())
            })
        })
    }

    /// Queues a task for the next txg without waiting for it.
    ///
    /// # Errors
    /// [`Stopped`]: the pool no longer accepts changes.
    pub(crate) fn post(&self, task: Task) -> Result<(), Stopped> {
        self.0.post(task)
    }

    /// The tasks of a txg.
    pub(crate) fn take(&self, txg: Txg) -> Vec<Task> {
        self.0.take(txg)
    }
}

impl<'a> TaskContext<'a> {
    /// Runs the read-only part of a task: read errors refuse it.
    pub(crate) fn check<T>(
        &mut self,
        check: impl FnOnce(&mut Self) -> Result<T, TaskError>,
    ) -> Result<T, TaskError> {
        match check(self) {
            Err(TaskError::Failed(error)) => Err(ChangeError::Unreadable(Arc::new(error)).into()),
            other => other,
        }
    }

    /// Refuses when the pool is too full to guarantee room for what the task writes.
    pub(crate) fn require_space(&mut self, tier: SpaceTier) -> Result<(), TaskError> {
        self.check(|this| {
            let root = this.root_dir()?;
            let pool = this.pool.accounts.usable_space(tier);
            let room = this.state.dirs.available(&this.mos, root, pool)?;
            if room < TASK_BYTES { Err(ChangeError::NoSpace.into()) } else { Ok(()) }
        })
    }

    /// Bytes in the pool for datasets, used or not.
    pub(crate) fn pool_space(&self) -> u64 {
        self.pool.accounts.usable_space(SpaceTier::Normal)
    }

    /// Bytes that can still be charged to a directory.
    pub(crate) fn available(&mut self, dir: ObjectId) -> Result<u64, LiveError> {
        let pool = self.pool_space();
        self.state.dirs.available(&self.mos, dir, pool)
    }

    /// Bytes that could be charged to a directory if the charges of a trial were made.
    pub(super) fn available_in(
        &mut self,
        trial: &SpaceTrial,
        dir: ObjectId,
    ) -> Result<u64, LiveError> {
        let pool = self.pool_space();
        self.state.dirs.available_in(trial, &self.mos, dir, pool)
    }

    /// Charges a directory and its ancestors in a trial.
    pub(super) fn try_charge(
        &mut self,
        trial: &mut SpaceTrial,
        dir: ObjectId,
        bytes: u64,
    ) -> Result<(), LiveError> {
        self.state.dirs.try_charge(trial, &self.mos, (dir, None), bytes.cast_signed())
    }

    /// Bytes that could be charged to a directory if this many were moved there from another one:
    /// common ancestors keep them.
    pub(super) fn available_for_move(
        &mut self,
        bytes: u64,
        from: ObjectId,
        to: ObjectId,
    ) -> Result<u64, LiveError> {
        let above = self.dirs_above(from)?;
        let both = self.dirs_above(to)?.into_iter().find(|id| above.contains(id));
        let mut trial = SpaceTrial::default();
        let gone = bytes.cast_signed().wrapping_neg();
        self.state.dirs.try_charge(&mut trial, &self.mos, (from, both), gone)?;
        self.available_in(&trial, to)
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.pool.environment.now()
    }

    /// The builder of datasets.
    pub(super) fn maker(&mut self) -> Maker<'_> {
        Maker {
            mos: self.mos,
            dirs: &mut self.state.dirs,
            features: &mut self.state.features,
            environment: &*self.pool.environment,
        }
    }

    pub(crate) fn deflation(&self) -> Deflation<'a> {
        Deflation::new(self.vdevs, self.state.is_deflated)
    }

    /// Frees a block at once.
    pub(crate) fn free(&self, pointer: &BlockPointer) -> Result<(), LiveError> {
        let (mos, space, deflation) = (self.mos, self.space, self.deflation());
        let (clones, dedup) = (&self.state.clones, &*self.state.dedup);
        let leaks = &self.state.leaks;
        BlockFreer { mos, space, clones, dedup, deflation, leaks }.free(pointer)
    }

    /// Appends to the pool's history, unless that is damaged.
    pub(crate) fn log(&mut self, event: &Event) -> Result<(), LiveError> {
        let Some(history) = self.state.history else { return Ok(()) };
        let environment = &self.pool.environment;
        let occasion = Occasion {
            txg: self.mos.tx().txg(),
            time: environment.now(),
            host: environment.host().name.as_deref().unwrap_or("(none)"),
        };
        let appended = history::append(&self.mos, history, event, occasion);
        let warn = |error: &LiveError| tracing::warn!(%error, "the history lacks an event");
        appended.unless_damaged(warn).map(drop)
    }

    /// Appends an operation on a dataset to the pool's history.
    pub(crate) fn log_dataset(
        &mut self,
        operation: &'static str,
        (name, object): (&str, ObjectId),
        text: String,
    ) -> Result<(), LiveError> {
        let dataset = Some((name.to_owned(), object));
        self.log(&Event::Internal { operation, text, dataset })
    }
}
