//! A pool that this process has open, and its mounts.

use super::change::{self, Ended};
use super::events::Events;
use super::lookers::{Lookers, Unstarted};
use super::mounter::{Mounter, NotMounted, Planned};
use super::opening::Plans;
use super::plan::{Candidate, Choice, Placement, PlannedMount, plan, underneath};
use super::request::MountOptions;
use super::table::{Forgotten, MountTable};
use crate::console::{Console, Failure};
use crate::daemon::{Caller, Completeness, Ending, Manner, Mounted};
use rzfs::protocol::{Answer, Identity, MountReport, PoolReport, Refusal, Request};
use rzfs::service::{self, Access, Opening, PoolService};
use rzfs::setting::CacheFile;
use rzfs::{Pool, WritablePool};
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::{DatasetError, DatasetKind, DatasetTree, KeyStatus};
use rzfs_dsl::live::Event;
use rzfs_dsl::pool::FailMode;
use rzfs_fuse::InUse;
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak, mpsc};
use std::time::{Duration, Instant};

/// How long somebody may still use a pool that is about to be exported.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long devices may take to say how their pool is.
const REPORT_PATIENCE: Duration = Duration::from_secs(3);

/// How long a process serves its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lifetime {
    /// While something is mounted.
    Mounts,
    /// Until the pool is exported.
    Import,
}

/// What is served.
#[derive(Debug)]
pub(super) enum Contents {
    /// A pool that is read.
    Reading(PoolService),
    /// A pool that is written.
    Writing(Arc<WritablePool>, Opening),
}

impl Contents {
    pub(super) fn reading(pool: Pool) -> Self {
        Self::Reading(PoolService::new(pool))
    }

    pub(super) fn writing(pool: WritablePool) -> Result<Self, PoolError> {
        let view = pool.view()?;
        let opening = Opening {
            alternate_root: pool.alternate_root().map(ToOwned::to_owned),
            ..Opening::now(view.guid(), Access::ReadWrite)
        };
        Ok(Self::Writing(Arc::new(pool), opening))
    }

    /// The same pool, to be mounted below a directory.
    pub(super) fn below(self, root: Option<PathBuf>) -> Self {
        match self {
            Self::Writing(pool, opening) => {
                Self::Writing(pool, Opening { alternate_root: root, ..opening })
            }
            Self::Reading(service) => {
                let pool = service.pool().clone();
                let opening = Opening::now(pool.guid(), Access::ReadOnly);
                let opening = Opening { alternate_root: root, ..opening };
                Self::Reading(PoolService::of_view(pool, opening))
            }
        }
    }

    /// The same pool, of which property `cachefile` says this.
    pub(super) fn with_cache_file(self, file: Option<CacheFile>) -> Self {
        match self {
            Self::Writing(pool, opening) => {
                Self::Writing(pool, Opening { cache_file: file, ..opening })
            }
            Self::Reading(service) => Self::Reading(service.with_cache_file(file)),
        }
    }

    /// Remembers an event in the history of a pool that is written.
    pub(super) fn log(&self, event: Event) {
        if let Self::Writing(pool, _) = self
            && pool.live().log(event).is_err()
        {
            tracing::error!("the pool is suspended");
        }
    }

    /// From now on the pool can be mended: it waits for its devices when they fail. Unless they
    /// have failed already, which is the error.
    pub(super) fn attend(&self) -> Result<(), Failure> {
        let Self::Writing(pool, _) = self else { return Ok(()) };
        pool.live().attend();
        let cannot =
            |reason| super::failed(format_args!("cannot import '{}': {reason}", pool.name()));
        pool.live().failure().map_or(Ok(()), |reason| Err(cannot(reason)))
    }

    /// Has nobody wait any more for the devices of the pool if it is suspended.
    pub(super) fn relief(&self) -> impl Fn() + Send + 'static {
        let pool = self.writable().map(Arc::downgrade);
        move || {
            let pool = pool.as_ref().and_then(Weak::upgrade);
            if let Some(pool) = pool.filter(|pool| pool.live().is_suspended()) {
                pool.live().give_up_waiting();
            }
        }
    }

    /// Lets go of a pool that nobody uses.
    pub(super) fn release(self) {
        if let Self::Writing(pool, _) = self
            && let Some(pool) = Arc::into_inner(pool)
            && let Err(error) = pool.export()
        {
            tracing::error!(%error, "export");
        }
    }

    /// The pool as it is now.
    pub(super) fn view(&self) -> Result<Pool, PoolError> {
        match self {
            Self::Reading(service) => Ok(service.pool().clone()),
            Self::Writing(pool, _) => pool.view(),
        }
    }

    /// Its datasets as they are now.
    fn datasets(&self) -> Result<DatasetTree, DatasetError> {
        match self {
            Self::Reading(service) => Ok(service.pool().datasets().clone()),
            Self::Writing(pool, _) => pool.live().dataset_tree(),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Reading(service) => service.pool().name().to_owned(),
            Self::Writing(pool, _) => pool.name().to_owned(),
        }
    }

    fn writable(&self) -> Option<&Arc<WritablePool>> {
        match self {
            Self::Reading(_) => None,
            Self::Writing(pool, _) => Some(pool),
        }
    }
}

/// A pool that this process has open.
///
/// Requests that take long (they unmount, or wait for a device) hold nothing that others need:
/// whoever asks for the state of the pool, has it go on, or ends it, does not wait for them.
#[derive(Debug)]
pub(super) struct MountedPool {
    completeness: Completeness,
    /// Nothing when it is closed, or about to be. Locked for a moment only.
    open: Mutex<Option<Arc<Open>>>,
    /// Held by whoever ends it.
    ending: Mutex<()>,
    is_over: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Open {
    contents: Contents,
    mounter: Mounter,
    mounts: Mutex<MountTable>,
    /// The mounts as they were when nobody was changing them.
    reports: Mutex<Vec<MountReport>>,
    /// What `zpool set cachefile` says.
    cache_file: Mutex<Option<CacheFile>>,
    /// What could last be said of a pool that is written: all that is known of it when its devices
    /// fail.
    last_report: Mutex<Option<PoolReport>>,
    lookers: Lookers,
    pub(super) events: Arc<Events>,
    /// What makes the process go on without mounts.
    _stays: Option<Arc<dyn Any + Send + Sync>>,
}

/// What becomes of writers of a pool that does not write: it waits for its devices, or has failed
/// for good.
fn fail_mode(pool: &WritablePool) -> Option<FailMode> {
    let is_suspended = pool.live().is_suspended() || pool.live().failure().is_some();
    is_suspended.then(|| pool.live().fail_mode())
}

impl MountedPool {
    /// Mounts what is planned. What cannot be mounted is complained about, with `advice` where this
    /// user may not have the directories; if that is everything and nothing else keeps the pool, it
    /// is an error.
    pub(super) fn mount(
        contents: Contents,
        planned: &Plans,
        how: (&MountOptions, &Placement, Lifetime),
        advice: Option<&str>,
        while_mounted: Arc<dyn Any + Send + Sync>,
        console: &mut Console<'_>,
    ) -> Result<Self, Failure> {
        let (.., lifetime) = how;
        let view = contents.view().map_err(super::failed)?;
        let events = Arc::new(Events::new(view.name(), view.guid().get()));
        let writable = contents.writable();
        if let Some(pool) = writable {
            change::observe_sweeps(pool, &events);
        }
        let mounter = Mounter::new(view.version(), writable, how, &while_mounted);
        let mounter = mounter.map_err(super::failed)?;
        clear_dead_mounts(view.name());
        let mut table = MountTable::default();
        let failures = mounter.mount_all(&planned.mounts, &mut table);
        for failure in &failures {
            console.complain(failure);
        }
        if let Some(advice) = advice
            && failures.iter().any(NotMounted::is_denied)
        {
            console.complain(advice);
        }
        if let Some(pool) = writable {
            pool.replay_volumes();
        }
        let completeness = match failures.is_empty() {
            true => planned.completeness,
            false => Completeness::Partial,
        };
        let nothing = table.is_empty() && lifetime == Lifetime::Mounts;
        let stays = (lifetime == Lifetime::Import).then_some(while_mounted);
        let reports = Mutex::new(table.reports());
        let mounts = Mutex::new(table);
        let (last_report, cache_file) = (Mutex::default(), Mutex::default());
        let open = Open {
            contents,
            mounter,
            mounts,
            reports,
            cache_file,
            last_report,
            lookers: Lookers::default(),
            events,
            _stays: stays,
        };
        let open = Arc::new(open);
        if open.contents.writable().is_some() {
            // Nobody may have asked before its devices fail.
            open.inform(&Request::Pool);
        }
        let open = Mutex::new(Some(open));
        let (ending, is_over) = (Mutex::default(), AtomicBool::new(false));
        let this = Self { completeness, open, ending, is_over };
        let attended = match nothing {
            true => Err(Failure::Told),
            false => this.current().map_or(Ok(()), |open| open.contents.attend()),
        };
        if attended.is_err() {
            let released = this.end(Ending::FORCED);
            released.map_err(|refusal| Failure::Failed(refusal.message))?;
        }
        attended.map(|()| this)
    }

    /// Whether everything is mounted that was planned.
    pub(super) const fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Notes an event.
    pub(super) fn note(&self, name: &str) {
        if let Some(open) = self.current() {
            open.events.note(name, []);
        }
    }

    fn current(&self) -> Option<Arc<Open>> {
        locked(&self.open).clone()
    }

    /// Ends all mounts, and tells what was where; nothing when the pool is let go of already.
    fn end_mounts(&self, ending: &Ending) -> Result<Option<Ended>, Refusal> {
        let Some(open) = self.current() else { return Ok(None) };
        open.end_waiting(ending)?;
        if !ending.force {
            // What is refused now has changed nothing.
            open.write_everything(ending.manner)?;
        }
        let in_use = if ending.force { InUse::Detach } else { InUse::Refuse };
        let is_busy = || had_elsewhere(ending.manner, &open.contents.name());
        change::end_mounts(&open, in_use, is_busy).map(Some)
    }

    fn write_everything(&self, manner: Manner) -> Result<(), Refusal> {
        self.current().map_or(Ok(()), |open| open.write_everything(manner))
    }

    /// Mounts again what has ended for something that is refused.
    fn taken_back(&self, ended: Vec<PlannedMount>, refusal: Refusal) -> Refusal {
        match self.current() {
            Some(open) => change::taken_back(&open, ended, refusal),
            None => refusal,
        }
    }

    /// As [`MountedPool::take`]; if somebody does not let go of the pool everything is written at
    /// least.
    fn take_or_write(&self, manner: Manner) -> Result<Option<Open>, Refusal> {
        let taken = self.take(manner);
        if taken.is_err() {
            self.write_everything(manner)?;
        }
        taken
    }

    /// Takes the pool from all who answer for it, and waits for those who do at this moment.
    fn take(&self, manner: Manner) -> Result<Option<Open>, Refusal> {
        let Some(mut open) = locked(&self.open).take() else { return Ok(None) };
        let start = Instant::now();
        loop {
            match Arc::try_unwrap(open) {
                Ok(open) => return Ok(Some(open)),
                Err(shared) if start.elapsed() < PATIENCE => open = shared,
                Err(shared) => {
                    let name = shared.contents.name();
                    *locked(&self.open) = Some(shared);
                    return Err(not_ended(manner, &name, "pool is busy"));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Why a pool that is open for reading is not changed. Whoever is told has to be told as well what
/// was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("pool is read-only")]
pub(super) struct ReadOnly;

/// A pool that stays.
fn not_ended(manner: Manner, pool: &str, reason: &str) -> Refusal {
    Refusal { message: format!("cannot {} '{pool}': {reason}", manner.verb()) }
}

/// A pool that stays, as somebody has a file system of it whose mount has ended here.
fn had_elsewhere(manner: Manner, pool: &str) -> Refusal {
    let Refusal { message } = not_ended(manner, pool, "pool is busy");
    let verb = manner.verb();
    let advice = format!(
        "Others have it: a container or another mount namespace, a bind mount, or who was in it when \
         it was unmounted ('grep {pool} /proc/*/mountinfo'). 'zpool {verb} -f {pool}' takes it from \
         them."
    );
    Refusal { message: format!("{message}\n{advice}") }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mounts of a pool, to be changed.
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
    /// The mounts, to be changed. Whoever changes them at this moment may wait for the devices of a
    /// suspended pool, and nobody waits for that.
    pub(super) fn table(&self) -> Result<Table<'_>, Refusal> {
        loop {
            let table = match self.mounts.try_lock() {
                Ok(table) => table,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if self.is_suspended() => {
                    let name = self.contents.name();
                    let suspended = change::SUSPENDED;
                    let message = format!("cannot change mounts of '{name}': {suspended}");
                    return Err(Refusal { message });
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            return Ok(Table { table, reports: &self.reports });
        }
    }

    /// The mounts, to be ended: whoever changes them at this moment does not wait any more for the
    /// devices of a suspended pool.
    pub(super) fn table_at_the_end(&self) -> Table<'_> {
        Table { table: locked(&self.mounts), reports: &self.reports }
    }

    /// Where file systems are mounted; as long as somebody changes that, where they were before.
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

    /// The pool for a change of the pool itself that is asked for with this verb.
    pub(super) fn writable_to(&self, verb: &str) -> Result<&Arc<WritablePool>, Refusal> {
        let name = self.name();
        self.writable()
            .map_err(|reason| Refusal { message: format!("cannot {verb} '{name}': {reason}") })
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

    /// Answers what changes nothing.
    fn inform(self: &Arc<Self>, request: &Request) -> Answer {
        match (request, &self.contents) {
            // Known without its devices: who has the pool has to be found above all when they fail.
            (Request::Identify, Contents::Writing(pool, _)) => Answer::Identity(Identity {
                pool: pool.name().to_owned(),
                guid: pool.live().vdevs().root().guid().get(),
                process: std::process::id(),
                is_writable: true,
            }),
            (Request::Pool, Contents::Writing(pool, opening)) => self.report(pool, opening),
            (request, Contents::Writing(pool, opening)) => self.look(pool, opening, request),
            (request, Contents::Reading(service)) => service.answer(request, &self.reports()),
        }
    }

    /// Answers from what is on the devices, for as long as they take.
    fn look(&self, pool: &WritablePool, opening: &Opening, request: &Request) -> Answer {
        match pool.view() {
            Ok(view) => {
                let mut opening = Opening { suspended: fail_mode(pool), ..opening.clone() };
                if let Some(file) = &*locked(&self.cache_file) {
                    opening.cache_file = Some(file.clone());
                }
                PoolService::of_view(view, opening).answer(request, &self.reports())
            }
            Err(error) => Answer::Failed(Refusal { message: error.to_string() }),
        }
    }

    /// How the pool is, for those who ask later, too: they may not wait for it, as perhaps nobody
    /// does now.
    fn look_and_remember(&self, pool: &WritablePool, opening: &Opening) -> Answer {
        let answer = self.look(pool, opening, &Request::Pool);
        if let Answer::Pool(report) = &answer {
            *locked(&self.last_report) = Some(PoolReport::clone(report));
        }
        answer
    }

    /// Says how the pool is; if its devices fail, or do not answer for some time, how it was, with
    /// what is known without them.
    fn report(self: &Arc<Self>, pool: &Arc<WritablePool>, opening: &Opening) -> Answer {
        let (done, report) = mpsc::channel();
        let looking = {
            let (this, pool, opening) = (Arc::clone(self), Arc::clone(pool), opening.clone());
            move || drop(done.send(this.look_and_remember(&pool, &opening)))
        };
        let answer = match self.lookers.start(looking) {
            Ok(()) => report.recv_timeout(REPORT_PATIENCE).ok(),
            Err(Unstarted::Many) => None,
            Err(Unstarted::NoThread) => Some(self.look_and_remember(pool, opening)),
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
                Answer::Failed(Refusal { message })
            }
        }
    }

    /// What is to be mounted where, of these file systems or of all.
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
        for plan in planned {
            let dataset = datasets.open(&plan.dataset)?;
            // Whoever does not name a file system does not miss one without its key.
            let is_locked = dataset.key_status()? == KeyStatus::Unavailable;
            if !is_locked || choice == Choice::All {
                possible.push((dataset, plan));
            }
        }
        Ok(possible)
    }

    /// The file systems that there are now, and what decides about their mounts.
    pub(super) fn candidates(&self) -> Result<Vec<Candidate>, DatasetError> {
        candidates(&self.contents.datasets()?)
    }

    /// Those of these file systems that have a place and a key.
    pub(super) fn places(&self, names: &BTreeSet<String>) -> Result<Vec<Planned>, DatasetError> {
        let mut possible = Vec::with_capacity(names.len());
        for planned in self.planned(Some(names), Choice::All)? {
            if planned.0.key_status()? != KeyStatus::Unavailable {
                possible.push(planned);
            }
        }
        Ok(possible)
    }

    /// File systems that go where they were.
    pub(super) fn reopened(&self, plans: Vec<PlannedMount>) -> Result<Vec<Planned>, DatasetError> {
        let datasets = self.contents.datasets()?;
        plans.into_iter().map(|plan| Ok((datasets.open(&plan.dataset)?, plan))).collect()
    }

    /// Lets go of the file systems that are not mounted any more, but for those that somebody still
    /// changes: what is removed from these is to be freed.
    pub(super) fn close_file_systems<'a>(
        &self,
        table: &MountTable,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        let Some(pool) = self.contents.writable() else { return };
        let is_left = |name| pool.files_in_use(name).is_some_and(|one| table.is_left_with(&one));
        let unused = names.into_iter().filter(|name| !is_left(name));
        unused.for_each(|name| pool.close_file_system(name));
    }

    /// Lets go of file systems whose mounts somebody else has ended.
    pub(super) fn forget_finished(&self, table: &mut MountTable) {
        let Forgotten { names, files } = table.forget_finished();
        self.close_file_systems(table, names.iter().map(String::as_str));
        if let Some(pool) = self.contents.writable() {
            files.iter().for_each(|files| pool.close_files(files));
        }
    }

    /// Refuses an end that would be written where nothing is.
    fn check_manner(&self, manner: Manner) -> Result<(), Refusal> {
        match manner {
            Manner::Release => Ok(()),
            Manner::Destroy => self.writable_to(manner.verb()).map(|_| ()),
        }
    }

    /// Has nobody wait any more for devices of a suspended pool: if they have not been mended, what
    /// was not written is lost.
    fn end_waiting(&self, ending: &Ending) -> Result<(), Refusal> {
        let Some(pool) = self.contents.writable().filter(|pool| pool.live().is_suspended()) else {
            return Ok(());
        };
        if !ending.force {
            return Err(not_ended(ending.manner, pool.name(), change::SUSPENDED));
        }
        if pool.live().clear_with(None, &change::ByPath::outside_of(self)).is_err() {
            pool.live().give_up_waiting();
        }
        Ok(())
    }

    /// Writes what is not written yet, for as long as the pool can still be kept if that fails.
    fn write_everything(&self, manner: Manner) -> Result<(), Refusal> {
        let Some(pool) = self.contents.writable() else { return Ok(()) };
        match pool.sync() {
            Err(_) if pool.live().is_suspended() => {
                Err(not_ended(manner, pool.name(), change::SUSPENDED))
            }
            // A pool that has failed for good is let go of.
            _ => Ok(()),
        }
    }

    /// Lets go of the pool.
    fn close(self, Ending { manner, command, .. }: Ending) -> Result<(), Refusal> {
        let Contents::Writing(mut pool, _) = self.contents else { return Ok(()) };
        if let Some((line, user)) = command {
            // A pool that is suspended cannot be let go of in order either, which is told below.
            let _ = pool.live().log(Event::Command { line, user });
        }
        let name = pool.name().to_owned();
        let start = Instant::now();
        // Somebody may be looking a snapshot up.
        let pool = loop {
            match Arc::try_unwrap(pool) {
                Ok(pool) => break pool,
                Err(shared) if start.elapsed() < PATIENCE => pool = shared,
                Err(_) => return Err(not_ended(manner, &name, "pool is busy")),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let ended = match manner {
            Manner::Release => pool.export(),
            Manner::Destroy => pool.destroy(),
        };
        ended.map_err(|error| {
            let refusal = not_ended(manner, &name, &error.to_string());
            let message = format!(
                "{}\nThe pool was let go of as a crash would leave it; 'zpool import -f {name}' \
                 imports its last state on disk.",
                refusal.message
            );
            Refusal { message }
        })
    }
}

/// How a pool has ended of which mounts stay that nobody serves any more.
fn with_stuck(ended: Result<(), Refusal>, stuck: Vec<String>) -> Result<(), Refusal> {
    if stuck.is_empty() {
        return ended;
    }
    let lines: Vec<_> = stuck.into_iter().chain(ended.err().map(|one| one.message)).collect();
    Err(Refusal { message: lines.join("\n") })
}

/// Takes mounts away that a process has left which had the pool before and was killed: whoever gets
/// there is told "Transport endpoint is not connected".
pub(super) fn clear_dead_mounts(pool: &str) {
    let is_own = |source: &str| {
        let rest = source.strip_prefix(pool);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
    };
    let cleared = rzfs_fuse::clear_dead_mounts(is_own).unwrap_or_else(|error| {
        tracing::warn!(%error, "dead mounts stay");
        Vec::new()
    });
    for directory in cleared {
        tracing::info!(directory = %directory.display(), "a dead mount was taken away");
    }
}

/// The file systems of a pool and what decides about their mounts.
pub(super) fn candidates(datasets: &DatasetTree) -> Result<Vec<Candidate>, DatasetError> {
    let mut candidates = Vec::new();
    for dataset in datasets.root()?.descendants()? {
        if dataset.kind()? == DatasetKind::FileSystem {
            candidates.push(Candidate {
                name: dataset.name().to_owned(),
                canmount: dataset.text("canmount")?,
                mountpoint: dataset.text("mountpoint")?,
                underneath: underneath(&dataset.text("overlay")?),
            });
        }
    }
    Ok(candidates)
}

impl Mounted for MountedPool {
    fn answer(&self, request: Request, caller: Caller) -> Option<Answer> {
        let Some(open) = self.current() else {
            // A change that was asked for is not passed over in silence.
            let unmounted = Refusal { message: "the pool is unmounted".to_owned() };
            let is_change = matches!(request, Request::Change { .. });
            return is_change.then_some(Answer::Failed(unmounted));
        };
        Some(match request {
            Request::Events => Answer::Events(open.events.all()),
            Request::ClearEvents => Answer::Cleared(open.events.clear()),
            Request::Change { change, command } => {
                let _kept = open.mounter().keep();
                match change::carry_out(&open, change, command, caller) {
                    Ok(complaints) => Answer::Done { complaints },
                    Err(refusal) => Answer::Failed(refusal),
                }
            }
            request => open.inform(&request),
        })
    }

    fn end(&self, ending: Ending) -> Result<(), Refusal> {
        // Whoever is ending it already may wait for its devices.
        if let Some(open) = self.current() {
            open.check_manner(ending.manner)?;
            open.end_waiting(&ending)?;
        }
        let _turn = locked(&self.ending);
        // Mounts may be made again.
        let _kept = self.current().map(|open| open.mounter().keep());
        let Some(Ended { plans: ended, stuck }) = self.end_mounts(&ending)? else {
            return Ok(());
        };
        let taken = match ending.force {
            true => self.take_or_write(ending.manner),
            false => self.write_everything(ending.manner).and_then(|()| self.take(ending.manner)),
        };
        // Who forces it does not wait for those who do not come to an end.
        self.is_over.store(taken.is_ok() || ending.force, Ordering::Release);
        if ending.force {
            // What is refused from now on does not keep the process.
            let kept = self.current();
            let open = taken.as_ref().ok().and_then(Option::as_ref).or(kept.as_deref());
            if let Some(open) = open {
                open.table_at_the_end().remove_directories();
            }
        }
        match taken {
            Ok(open) => {
                let closed = open.map_or(Ok(()), |open| open.close(ending));
                with_stuck(closed, stuck)
            }
            Err(refusal) if ending.force => with_stuck(Err(refusal), stuck),
            Err(refusal) => Err(self.taken_back(ended, refusal)),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn is_waiting(&self) -> bool {
        self.current().is_some_and(|open| open.is_suspended())
    }
}
