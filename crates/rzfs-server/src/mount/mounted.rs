//! An open pool and its mounts.

use super::change::{self, Arrivals, Ended, EndedArrival};
use super::contents::{Contents, Lifetime};
use super::ending::{PATIENCE, busy_elsewhere, given_up, not_ended};
use super::events::Events;
use super::locked::locked;
use super::mounter::{Mounter, Plans};
use super::open::Open;
use super::plan::{Placement, PlannedMount};
use super::refusal::refusal;
use super::table::MountTable;
use crate::daemon::{Activity, Caller, Completeness, Disposition, Ending, Line, Mounted};
use crate::error::{NotMounted, ServeError};
use crate::protocol::{Answer, ReceiveRequest, Refusal, Request, SendRequest};
use crate::request::MountOptions;
use crate::starter::{Notice, Starter};
use rzfs::WritablePool;
use rzfs_fuse::{Connections, InUse};
use rzfs_vdev::IoCounts;
use std::any::Any;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Why no stream can begin.
const POOL_CLOSING: &str = "somebody is exporting or destroying the pool";

/// An open pool.
///
/// Long requests (unmounts, waits for a device) hold no lock that others need: requests that query
/// the pool's state, resume it, or end it, do not wait for them.
#[derive(Debug)]
pub(super) struct MountedPool {
    name: String,
    completeness: Completeness,
    /// The connections of all its mounts, even while these are being changed or ended.
    connections: Connections,
    /// `None` when it is closed, or about to be. Locked only briefly.
    open: Mutex<Option<Arc<Open>>>,
    /// Held while it is being ended.
    ending: Mutex<()>,
    is_over: AtomicBool,
}

impl MountedPool {
    /// Makes the planned mounts. The starter is notified of failures; if all fail and nothing else
    /// keeps the pool open, that is an error.
    pub(super) fn mount(
        contents: Contents,
        planned: &Plans,
        how: (&MountOptions, &Placement, Lifetime),
        while_mounted: Arc<dyn Any + Send + Sync>,
        starter: &mut dyn Starter,
    ) -> Result<Self, ServeError> {
        let (_, placement, lifetime) = how;
        let view = contents.view()?;
        let events = Arc::new(Events::new(view.name(), view.guid().get()));
        let writable = contents.writable();
        if let Some(pool) = writable {
            change::observe_sweeps(pool, &events);
        }
        let mounter = Mounter::new(view.version(), writable, how, &while_mounted)?;
        clear_dead_mounts(view.name());
        let mut table = MountTable::default();
        let failures = mounter.mount_all(&planned.mounts, &mut table);
        for failure in &failures {
            starter.hear(Notice::NotMounted(failure));
        }
        if *placement == (Placement::Properties { root: None })
            && failures.iter().any(NotMounted::is_denied)
        {
            starter.hear(Notice::MountPointsDenied);
        }
        if let Some(pool) = writable {
            pool.replay_volumes();
            for log in pool.live().take_dropped_logs() {
                starter.hear(Notice::DroppedLog(&log));
            }
        }
        let connections = mounter.connections().clone();
        let completeness = match failures.is_empty() {
            true => planned.completeness,
            false => Completeness::Partial,
        };
        let nothing = table.is_empty() && lifetime == Lifetime::Mounts;
        let stays = (lifetime == Lifetime::Import).then_some(while_mounted);
        let open = Open::new(contents, (mounter, table), events, stays);
        let open = Mutex::new(Some(open));
        let (ending, is_over) = (Mutex::default(), AtomicBool::new(false));
        let name = view.name().to_owned();
        let this = Self { name, completeness, connections, open, ending, is_over };
        let attended = match nothing {
            true => Err(ServeError::NothingMounted),
            false => this.current().map_or(Ok(()), |open| open.contents.attend()),
        };
        if attended.is_err() {
            this.end(Ending::FORCED)?;
        }
        attended.map(|()| this)
    }

    /// Whether everything planned is mounted.
    pub(super) const fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Records an event.
    pub(super) fn note(&self, name: &str) {
        if let Some(open) = self.current() {
            open.events.note(name, []);
        }
    }

    fn current(&self) -> Option<Arc<Open>> {
        locked(&self.open).clone()
    }

    /// Ends all mounts, and returns the former ones; `None` if the pool is closed already.
    fn end_mounts(&self, ending: &Ending) -> Result<Option<Ended>, Refusal> {
        let Some(open) = self.current() else { return Ok(None) };
        open.check_devices(ending)?;
        if !ending.force {
            // A refusal at this point has changed nothing.
            open.write_everything(ending.manner)?;
        }
        let in_use = if ending.force { InUse::Detach } else { InUse::Refuse };
        let is_busy = || busy_elsewhere(ending.manner, &open.contents.name());
        change::end_mounts(&open, in_use, is_busy).map(Some)
    }

    fn write_everything(&self, manner: Disposition) -> Result<(), Refusal> {
        self.current().map_or(Ok(()), |open| open.write_everything(manner))
    }

    /// Receives all streams; returns complaints about failed mounts. `None` if the pool is closed
    /// meanwhile.
    fn receive_all(
        &self,
        pool: &WritablePool,
        request: &ReceiveRequest,
        from: &mut dyn Read,
        line: &Line,
    ) -> Option<Result<Vec<String>, Refusal>> {
        let mut arrivals = match Arrivals::open(pool, request, from) {
            Ok(arrivals) => arrivals,
            Err(refusal) => return Some(Err(refusal)),
        };
        let adjust = |arrivals: &Arrivals<'_, '_>| {
            let open = self.current()?;
            let _kept = open.mounter().keep();
            Some(arrivals.adjust(&open, &|report| line.say(&Answer::Adjusted(report))))
        };
        if let Err(refusal) = adjust(&arrivals)? {
            return Some(Err(refusal));
        }
        let received = self.receive_streams(&mut arrivals, request, line)?;
        // There may be room now for renames that failed before.
        let adjusted = adjust(&arrivals)?;
        let open = self.current()?;
        let _kept = open.mounter().keep();
        Some(received.and(adjusted).and_then(|()| arrivals.mount_new(&open)))
    }

    fn receive_streams(
        &self,
        arrivals: &mut Arrivals<'_, '_>,
        request: &ReceiveRequest,
        line: &Line,
    ) -> Option<Result<(), Refusal>> {
        let hear = |report| line.say(&Answer::Receiving(report));
        loop {
            let arrival = match arrivals.next_arrival(hear, || self.current()) {
                Ok(Some(arrival)) => arrival,
                Ok(None) => return Some(Ok(())),
                Err(refusal) => {
                    if let Some(open) = self.current() {
                        arrivals.mount_left(&open);
                    }
                    return Some(Err(refusal));
                }
            };
            let open = self.current()?;
            let _kept = open.mounter().keep();
            let EndedArrival { bytes, mut complaints, warnings, new } =
                match arrival.end(&open, request) {
                    Ok(ended) => ended,
                    Err(refusal) => return Some(Err(refusal)),
                };
            arrivals.note_new(new);
            if !arrivals.is_package() {
                match arrivals.mount_new(&open) {
                    Ok(more) => complaints.extend(more),
                    Err(refusal) => return Some(Err(refusal)),
                }
            }
            if line.say(&Answer::Received { bytes, complaints, warnings }).is_err() {
                // The client is gone and sends no more.
                return Some(Ok(()));
            }
        }
    }

    /// Restores the mounts that were ended for a refused operation.
    fn taken_back(&self, ended: Vec<PlannedMount>, refusal: Refusal) -> Refusal {
        match self.current() {
            Some(open) => change::taken_back(&open, ended, refusal),
            None => refusal,
        }
    }

    /// As [`MountedPool::take`]; if the pool stays in use, at least everything is written.
    fn take_or_write(&self, manner: Disposition) -> Result<Option<Open>, Refusal> {
        let taken = self.take(manner);
        if taken.is_err() {
            self.write_everything(manner)?;
        }
        taken
    }

    /// Takes the pool away from new requests, and waits for the current ones.
    fn take(&self, manner: Disposition) -> Result<Option<Open>, Refusal> {
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

/// The result of an end with mounts that stay without a server.
fn with_stuck(ended: Result<(), Refusal>, stuck: Vec<String>) -> Result<(), Refusal> {
    if stuck.is_empty() {
        return ended;
    }
    let lines: Vec<_> = stuck.into_iter().chain(ended.err().map(|one| one.message)).collect();
    Err(Refusal::new(lines.join("\n")))
}

/// Detaches mounts left by a killed process that had the pool: accesses to them fail with
/// "Transport endpoint is not connected".
pub(super) fn clear_dead_mounts(pool: &str) {
    let is_own = |source: &str, _: &Path| {
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

impl Mounted for MountedPool {
    fn answer(&self, request: Request, caller: Caller) -> Option<Answer> {
        let open = self.current()?;
        Some(match request {
            Request::Events => Answer::Events(open.events.all()),
            Request::ClearEvents => Answer::Cleared(open.events.clear()),
            Request::Stats => Answer::Stats(Box::new(open.stats())),
            Request::Change { change, command } => {
                let _kept = open.mounter().keep();
                match change::carry_out(&open, change, command, caller) {
                    Ok(complaints) => Answer::Done { complaints },
                    Err(refusal) => Answer::Failed(refusal),
                }
            }
            Request::PlanAdd(request) => match change::plan_add(&open, &request) {
                Ok(layout) => Answer::Layout(layout),
                Err(refusal) => Answer::Failed(refusal),
            },
            request => open.inform(&request),
        })
    }

    fn send(&self, request: &SendRequest, to: &mut dyn Write, line: &Line) -> Option<Answer> {
        let open = self.current()?;
        let Some(_passage) = open.passages.begin(line) else {
            return Some(Answer::Failed(refusal("cannot send", POOL_CLOSING)));
        };
        let sending = open.sending(request);
        // An end of the pool does not wait for it.
        drop(open);
        Some(match sending {
            Ok(sending) => sending.write_to(to),
            Err(refusal) => Answer::Failed(refusal),
        })
    }

    fn receive(
        &self,
        request: &ReceiveRequest,
        caller: Caller,
        from: &mut dyn Read,
        line: &Line,
    ) -> Option<Answer> {
        let open = self.current()?;
        let pool = match open.writable() {
            Ok(pool) => Arc::clone(pool),
            Err(reason) => return Some(Answer::Failed(refusal("cannot receive", reason))),
        };
        let Some(_passage) = open.passages.begin(line) else {
            return Some(Answer::Failed(refusal("cannot receive", POOL_CLOSING)));
        };
        drop(open);
        let said = self.receive_all(&pool, request, from, line)?;
        Some(
            match said.and_then(|complaints| {
                let command = (!request.dry_run).then(|| request.command.clone());
                let open = self.current();
                open.map_or(Ok(()), |open| change::remember(&open, command, caller))?;
                Ok(complaints)
            }) {
                Ok(complaints) => Answer::Done { complaints },
                Err(refusal) => Answer::Failed(refusal),
            },
        )
    }

    fn end(&self, ending: Ending) -> Result<(), Refusal> {
        let open = self.current();
        let mut _closed = None;
        if let Some(open) = &open {
            open.check_manner(ending.manner)?;
            open.check_images(&ending)?;
            open.check_devices(&ending)?;
            _closed = Some(open.close_passages(&ending)?);
        }
        // A concurrent end may be waiting for its devices, or do so later.
        let _relief = open.and_then(|open| open.relieve(&ending));
        let _turn = locked(&self.ending);
        // Mounts may be made again.
        let _kept = self.current().map(|open| open.mounter().keep());
        let Some(Ended { plans: ended, stuck }) = self.end_mounts(&ending)? else {
            return Ok(());
        };
        if ending.force
            && let Some(open) = self.current()
        {
            open.table_at_the_end().cut_off_stuck();
        }
        let taken = match ending.force {
            true => self.take_or_write(ending.manner),
            false => self.write_everything(ending.manner).and_then(|()| self.take(ending.manner)),
        };
        // A forced end does not wait for requests that do not finish.
        self.is_over.store(taken.is_ok() || ending.force, Ordering::Release);
        if ending.force {
            // Errors from now on do not keep the process.
            let kept = self.current();
            let open = taken.as_ref().ok().and_then(Option::as_ref).or(kept.as_deref());
            if let Some(open) = open {
                open.table_at_the_end().remove_directories();
            }
        }
        match taken {
            Ok(open) => {
                let forced = open.as_ref().filter(|_| ending.force);
                let forced = forced.map(|open| open.name());
                let closed = open.map_or(Ok(()), |open| open.close(ending));
                if let Some(name) = forced {
                    // Foreign mounts in an aborted one kept it.
                    clear_dead_mounts(&name);
                }
                with_stuck(closed, stuck)
            }
            Err(refusal) if ending.force => with_stuck(Err(refusal), stuck),
            Err(refusal) => Err(self.taken_back(ended, refusal)),
        }
    }

    fn activity(&self) -> Option<Activity> {
        let vdevs = Arc::downgrade(&self.current()?.contents.writable()?.live().vdevs());
        Some(Box::new(move || {
            let IoCounts { reads, writes, .. } = vdevs.upgrade()?.root().io();
            Some(reads.wrapping_add(writes))
        }))
    }

    fn give_up(&self, manner: Disposition) -> Refusal {
        self.is_over.store(true, Ordering::Release);
        // Threads blocked on a device in the kernel would keep them after the end of the process.
        rzfs_fuse::abandon_mounts(&self.connections).unwrap_or_else(|error| {
            tracing::warn!(%error, "mounts stay that nobody serves");
        });
        // Those that were aborted from outside before.
        clear_dead_mounts(&self.name);
        given_up(manner, &self.name, "its devices do not answer")
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn is_waiting(&self) -> bool {
        self.current().is_some_and(|open| open.is_suspended())
    }
}
