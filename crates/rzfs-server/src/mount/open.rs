//! An open pool with its mounts.

use super::contents::{Contents, candidates};
use super::events::Events;
use super::locked::locked;
use super::lookers::{Inspectors, NotStarted};
use super::mounter::{Mounter, Planned};
use super::passages::Passages;
use super::plan::{Candidate, PlannedMount, plan};
use super::refusal::SUSPENDED;
use super::table::{Forgotten, MountTable};
use crate::protocol::{
    Answer, Identity, MountReport, PoolReport, Refusal, Request, SendRequest, StatsReport,
};
use crate::request::Choice;
use crate::service::{self, Opening, PoolService, Sending};
use rzfs::setting::CacheFile;
use rzfs::{Pool, WritablePool};
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::{DatasetError, KeyStatus};
use rzfs_dsl::pool::FailMode;
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, mpsc};
use std::time::Duration;

/// How long devices may take for a report: less than a client that queries all pools waits.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Open {
    pub(super) contents: Contents,
    mounter: Mounter,
    mounts: Mutex<MountTable>,
    /// The mounts as of the last completed change.
    reports: Mutex<Vec<MountReport>>,
    /// The value of `zpool set cachefile`.
    cache_file: Mutex<Option<CacheFile>>,
    /// The last report of a writable pool: all that is known when its devices fail.
    last_report: Mutex<Option<PoolReport>>,
    lookers: Inspectors,
    pub(super) passages: Passages,
    pub(super) events: Arc<Events>,
    /// Keeps the process alive without mounts.
    _stays: Option<Arc<dyn Any + Send + Sync>>,
}

/// The fate of writers of a pool that cannot write: it waits for its devices, or has failed for
/// good.
fn fail_mode(pool: &WritablePool) -> Option<FailMode> {
    let is_suspended = pool.live().is_suspended() || pool.live().failure().is_some();
    is_suspended.then(|| pool.live().fail_mode())
}

/// The number of removed files of a file system that are not freed as it is in use.
fn unfreed_files(pool: &WritablePool, name: &str) -> Result<u64, Refusal> {
    let datasets = pool.live().dataset_tree().map_err(|error| Refusal::new(error.to_string()))?;
    let dataset = service::file_system(&datasets, name)?;
    let Some(files) = pool.files_in_use(dataset.name()) else { return Ok(0) };
    files.unfreed_files().map_err(|error| {
        Refusal::new(format!("cannot read the removed files of '{name}': {error}"))
    })
}

/// Why a pool open for reading is not changed. The message must name the refused operation as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("pool is read-only")]
pub(super) struct ReadOnly;

/// The mounts of a pool, locked for changes.
pub(super) struct Table<'a> {
    table: MutexGuard<'a, MountTable>,
    reports: &'a Mutex<Vec<MountReport>>,
}

impl Deref for Table<'_> {
    type Target = MountTable;

    fn deref(&self) -> &MountTable {
        &self.table
    }
}

impl DerefMut for Table<'_> {
    fn deref_mut(&mut self) -> &mut MountTable {
        &mut self.table
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        *locked(self.reports) = self.table.reports();
    }
}

impl Open {
    /// A pool with its mounts; `stays` keeps the process alive without mounts.
    pub(super) fn new(
        contents: Contents,
        (mounter, table): (Mounter, MountTable),
        events: Arc<Events>,
        stays: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Arc<Self> {
        let reports = Mutex::new(table.reports());
        let open = Arc::new(Self {
            contents,
            mounter,
            mounts: Mutex::new(table),
            reports,
            cache_file: Mutex::default(),
            last_report: Mutex::default(),
            lookers: Inspectors::default(),
            passages: Passages::default(),
            events,
            _stays: stays,
        });
        if open.contents.writable().is_some() {
            // There may be no other query before its devices fail.
            open.inform(&Request::Pool);
        }
        open
    }

    /// Locks the mounts for changes. The holder of the lock may wait for the devices of a suspended
    /// pool; this does not.
    pub(super) fn table(&self) -> Result<Table<'_>, Refusal> {
        loop {
            let table = match self.mounts.try_lock() {
                Ok(table) => table,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if self.is_suspended() => {
                    let name = self.contents.name();
                    let suspended = SUSPENDED;
                    let message = format!("cannot change mounts of '{name}': {suspended}");
                    return Err(Refusal::new(message));
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            return Ok(Table { table, reports: &self.reports });
        }
    }

    /// Locks the mounts to end them: the holder of the lock no longer waits for the devices of a
    /// suspended pool.
    pub(super) fn table_at_the_end(&self) -> Table<'_> {
        Table { table: locked(&self.mounts), reports: &self.reports }
    }

    /// The mounts; during a change, the ones before.
    pub(super) fn reports(&self) -> Vec<MountReport> {
        match self.mounts.try_lock() {
            Ok(table) => table.reports(),
            Err(_) => locked(&self.reports).clone(),
        }
    }

    /// Whether the pool waits for its devices.
    pub(super) fn is_suspended(&self) -> bool {
        self.contents.writable().is_some_and(|pool| pool.live().is_suspended())
    }

    /// The pool for changes.
    pub(super) fn writable(&self) -> Result<&Arc<WritablePool>, ReadOnly> {
        self.contents.writable().ok_or(ReadOnly)
    }

    /// The pool for a change of the pool itself, named by this verb.
    pub(super) fn writable_to(&self, verb: &str) -> Result<&Arc<WritablePool>, Refusal> {
        let name = self.name();
        self.writable().map_err(|reason| Refusal::new(format!("cannot {verb} '{name}': {reason}")))
    }

    /// The name of the pool.
    pub(super) fn name(&self) -> String {
        self.contents.name()
    }

    /// `zpool set cachefile`.
    pub(super) fn set_cache_file(&self, file: CacheFile) {
        *locked(&self.cache_file) = Some(file);
    }

    pub(super) fn view(&self) -> Result<Pool, PoolError> {
        self.contents.view()
    }

    pub(super) const fn mounter(&self) -> &Mounter {
        &self.mounter
    }

    /// Answers requests that change nothing.
    pub(super) fn inform(self: &Arc<Self>, request: &Request) -> Answer {
        match (request, &self.contents) {
            // Known without its devices: the owner must be identifiable above all when they fail.
            (Request::Identify, Contents::Writing(pool, _)) => Answer::Identity(Identity {
                pool: pool.name().to_owned(),
                guid: pool.live().vdevs().root().guid().get(),
                process: std::process::id(),
                is_writable: true,
            }),
            (Request::Mounts, _) => Answer::Mounts(self.reports()),
            (Request::Pool, Contents::Writing(pool, opening)) => self.report(pool, opening),
            (Request::UnfreedFiles { file_system }, Contents::Writing(pool, _)) => {
                match unfreed_files(pool, file_system) {
                    Ok(files) => Answer::UnfreedFiles(files),
                    Err(refusal) => Answer::Failed(refusal),
                }
            }
            (request, Contents::Writing(pool, opening)) => self.look(pool, opening, request),
            (request, Contents::Reading(service)) => service.answer(request, &self.reports()),
        }
    }

    /// A snapshot that can be sent.
    pub(super) fn sending(&self, request: &SendRequest) -> Result<Sending, Refusal> {
        match &self.contents {
            Contents::Writing(pool, opening) => {
                let view = pool.view().map_err(|error| Refusal::new(error.to_string()))?;
                PoolService::of_view(view, opening.clone()).sending(request)
            }
            Contents::Reading(service) => service.sending(request),
        }
    }

    /// The pool's counters: this reads nothing.
    pub(super) fn stats(&self) -> StatsReport {
        match &self.contents {
            Contents::Writing(pool, _) => service::of_writable(pool.live()),
            Contents::Reading(service) => {
                service::of_pool(service.pool(), self.mounter.fixed().stats())
            }
        }
    }

    /// Answers from the devices, however long they take.
    fn look(&self, pool: &WritablePool, opening: &Opening, request: &Request) -> Answer {
        match pool.view() {
            Ok(view) => {
                let mut opening = Opening { suspended: fail_mode(pool), ..opening.clone() };
                if let Some(file) = &*locked(&self.cache_file) {
                    opening.cache_file = Some(file.clone());
                }
                PoolService::of_view(view, opening).answer(request, &self.reports())
            }
            Err(error) => Answer::Failed(Refusal::new(error.to_string())),
        }
    }

    /// Reports the pool's state, and stores it for later queries: these may not wait, and possibly
    /// this one no longer does.
    fn look_and_remember(&self, pool: &WritablePool, opening: &Opening) -> Answer {
        let answer = self.look(pool, opening, &Request::Pool);
        if let Answer::Pool(report) = &answer {
            *locked(&self.last_report) = Some(PoolReport::clone(report));
        }
        answer
    }

    /// Reports the pool's state; if its devices fail, or are slow, the last state, updated without
    /// them.
    fn report(self: &Arc<Self>, pool: &Arc<WritablePool>, opening: &Opening) -> Answer {
        let (done, report) = mpsc::channel();
        let looking = {
            let (this, pool, opening) = (Arc::clone(self), Arc::clone(pool), opening.clone());
            move || drop(done.send(this.look_and_remember(&pool, &opening)))
        };
        let answer = match self.lookers.start(looking) {
            Ok(()) => report.recv_timeout(REPORT_PATIENCE).ok(),
            Err(NotStarted::Many) => None,
            Err(NotStarted::NoThread) => Some(self.look_and_remember(pool, opening)),
        };
        let suspended = fail_mode(pool);
        match (answer, locked(&self.last_report).clone()) {
            (Some(Answer::Pool(report)), _) => Answer::Pool(report),
            (Some(failed), _) if suspended.is_none() => failed,
            (_, Some(last)) => {
                Answer::Pool(Box::new(service::renewed(last, &pool.live().vdevs(), suspended)))
            }
            (Some(failed), None) => failed,
            (None, None) => {
                let message = format!("the devices of '{}' do not answer", pool.name());
                Answer::Failed(Refusal::new(message))
            }
        }
    }

    /// The planned mounts of these file systems or of all.
    pub(super) fn planned(
        &self,
        names: Option<&BTreeSet<String>>,
        choice: Choice,
    ) -> Result<Vec<Planned>, DatasetError> {
        let datasets = self.contents.datasets()?;
        let mut candidates = candidates(&datasets)?;
        candidates.retain(|one| names.is_none_or(|names| names.contains(&one.name)));
        let root = datasets.root()?;
        let planned = plan(root.name(), &candidates, self.mounter.placement(), choice);
        let mut possible = Vec::with_capacity(planned.len());
        for mut plan in planned {
            plan.temporary = self.mounter.temporary();
            let dataset = datasets.open(&plan.dataset)?;
            // A file system without its key is no error unless it was named.
            let is_locked = dataset.key_status()? == KeyStatus::Unavailable;
            if !is_locked || choice == Choice::All {
                possible.push((dataset, plan));
            }
        }
        Ok(possible)
    }

    /// The current file systems, with the properties that decide about their mounts.
    pub(super) fn candidates(&self) -> Result<Vec<Candidate>, DatasetError> {
        candidates(&self.contents.datasets()?)
    }

    /// The ones among these file systems with a place and a key.
    pub(super) fn places(&self, names: &BTreeSet<String>) -> Result<Vec<Planned>, DatasetError> {
        let mut possible = Vec::with_capacity(names.len());
        for planned in self.planned(Some(names), Choice::All)? {
            if planned.0.key_status()? != KeyStatus::Unavailable {
                possible.push(planned);
            }
        }
        Ok(possible)
    }

    /// The file systems mounted below a mount point.
    pub(super) fn below_mount_point(&self, table: &MountTable, mountpoint: &str) -> Vec<String> {
        match self.mounter.placement().of_mount_point(mountpoint) {
            Some(place) => table.below(&place).collect(),
            None => Vec::new(),
        }
    }

    /// File systems with their former places.
    pub(super) fn reopened(&self, plans: Vec<PlannedMount>) -> Result<Vec<Planned>, DatasetError> {
        let datasets = self.contents.datasets()?;
        plans.into_iter().map(|plan| Ok((datasets.open(&plan.dataset)?, plan))).collect()
    }

    /// Closes the file systems that are no longer mounted, except those still in use elsewhere:
    /// their removed files must be freed.
    pub(super) fn close_file_systems<'a>(
        &self,
        table: &MountTable,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        let Some(pool) = self.contents.writable() else { return };
        let is_left =
            |name| pool.files_in_use(name).is_some_and(|one| table.is_still_used_with(&one));
        let unused = names.into_iter().filter(|name| !is_left(name));
        unused.for_each(|name| pool.close_file_system(name));
    }

    /// Closes file systems whose mounts were ended from outside.
    pub(super) fn forget_finished(&self, table: &mut MountTable) {
        let Forgotten { names, files } = table.forget_finished();
        self.close_file_systems(table, names.iter().map(String::as_str));
        if let Some(pool) = self.contents.writable() {
            files.iter().for_each(|files| pool.close_files(files));
        }
    }
}
