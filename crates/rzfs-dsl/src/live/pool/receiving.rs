//! Receiving a snapshot into a running pool.

use super::LivePool;
use crate::dataset::{Dataset, DatasetError, DatasetTree};
use crate::live::administration::{
    Begun, Continuation, Destination, Interruption, NewReceive, Outcome,
};
use crate::live::change_error::{ChangeError, ReceiveProblem};
use crate::live::datasets::head::LiveDataset;
use crate::mos::resume::ResumePoint;
use std::sync::Arc;

/// Txgs after which the receiver has released a receive whose stream broke off.
const SYNCS_TO_BREAK_OFF: usize = 16;

/// A receive in progress. The receiver writes the stream to [`Receiving::dataset`], and then
/// [ends](LivePool::end_receive) it or [breaks it off](LivePool::break_off_receive); one that is
/// only dropped, and cannot be resumed, is destroyed at the next import.
#[derive(Debug)]
pub struct Receiving {
    begun: Begun,
    dataset: Arc<LiveDataset>,
}

impl Receiving {
    /// The dataset to write to, invisible to others.
    #[must_use]
    pub const fn dataset(&self) -> &Arc<LiveDataset> {
        &self.dataset
    }

    /// The starting point: past the beginning for a stream that continues another one.
    #[must_use]
    pub const fn start(&self) -> ResumePoint {
        self.begun.start
    }
}

impl LivePool {
    /// Begins to receive a snapshot: into a new file system or volume, or beside an existing one
    /// until everything has arrived. An existing file system stays in use, unchanged.
    ///
    /// # Errors
    /// [`ChangeError`], mostly [`ChangeError::Receive`]: the stream does not fit the target.
    pub fn begin_receive(&self, new: &NewReceive) -> Result<Receiving, ChangeError> {
        loop {
            let source = new.origin.as_deref().unwrap_or(&new.target);
            let key = match self.dataset_tree()?.open(source) {
                Ok(dataset) if new.source.is_some() => dataset.loaded_key()?,
                Ok(_) | Err(DatasetError::NotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            let target = new.target.as_str();
            let (new, heads) = (new.clone(), Arc::clone(&self.heads));
            let begun = self.tasks.administer(move |context| {
                let begun = context.begin_receive(&new, key)?;
                // It stays open from here on, even when unused heads are closed.
                Ok(begun.and_then(|begun| heads.get(begun.head).map(|head| (begun, head))))
            });
            let begun = match begun {
                Err(ChangeError::Busy { .. }) if self.destroy_abandoned_receive(target) => continue,
                begun => begun?,
            };
            if let Some((begun, dataset)) = begun {
                return Ok(Receiving { begun, dataset });
            }
        }
    }

    /// Resumes a kept receive with the remainder of its stream.
    ///
    /// # Errors
    /// [`ChangeError`], mostly [`ChangeError::Receive`]: the stream is not the remainder, or
    /// another receive is in progress.
    pub fn resume_receive(
        &self,
        new: &NewReceive,
        at: Continuation,
    ) -> Result<Receiving, ChangeError> {
        for _ in 0..SYNCS_TO_BREAK_OFF {
            if let Some(receiving) = self.try_resume(new, at)? {
                return Ok(receiving);
            }
            if self.engine.wait_synced_unless_suspended(self.engine.open_txg()).is_err() {
                break;
            }
        }
        Err(ReceiveProblem::Partial { target: new.target.clone() }.into())
    }

    /// The same; `None`: the partial data is in use.
    fn try_resume(
        &self,
        new: &NewReceive,
        at: Continuation,
    ) -> Result<Option<Receiving>, ChangeError> {
        let target = self.dataset_tree()?.open(&new.target)?;
        let _nobody_ends = self.ending_receive.lock();
        let received = target.received_into()?.unwrap_or(target);
        if !received.is_inconsistent() || !received.is_resumable()? {
            return Err(ReceiveProblem::NotTheRest.into());
        }
        let Some(dataset) = self.heads.open_received(&received)? else { return Ok(None) };
        let (new, head) = (new.clone(), dataset.id());
        let begun = self.tasks.administer(move |context| context.resume_receive(&new, head, at))?;
        Ok(Some(Receiving { begun, dataset }))
    }

    /// Records that everything up to a point of the stream was written: after an interruption, the
    /// receive can be resumed there.
    pub fn note_received(&self, receiving: &Receiving, point: ResumePoint) {
        match receiving.begun.new.interruption {
            Interruption::Destroyed => {}
            // What was written so far is in this txg or in older ones.
            Interruption::Kept { .. } => {
                receiving.dataset.note_progress(self.engine.open_txg(), point);
            }
        }
    }

    /// The current name of a receive's target, which may have been renamed, as may its ancestors.
    ///
    /// # Errors
    /// [`DatasetError`]: it was destroyed.
    pub fn receive_target(&self, receiving: &Receiving) -> Result<String, DatasetError> {
        let head = match receiving.begun.destination {
            Destination::New => receiving.begun.head,
            Destination::Existing { head } => head,
        };
        Ok(self.dataset_tree()?.by_object(head)?.name().to_owned())
    }

    /// The received data on disk: includes everything written before a [sync](LivePool::sync).
    ///
    /// # Errors
    /// [`DatasetError`]: it was destroyed with its target.
    pub fn received_contents(&self, receiving: &Receiving) -> Result<Dataset, DatasetError> {
        self.dataset_tree()?.by_object(receiving.begun.head)
    }

    /// Ends a completely written receive: the target atomically gets the contents and the snapshot.
    /// A file system in use must then be [opened](LivePool::open_dataset) again, as after a
    /// [rollback](LivePool::roll_back).
    ///
    /// # Errors
    /// [`ChangeError`]: the target was changed or destroyed meanwhile, or there is no room. The
    /// received data is then destroyed, or kept.
    pub fn end_receive(&self, receiving: Receiving) -> Result<(), ChangeError> {
        let Receiving { begun, dataset } = receiving;
        let _ending = self.ending_receive.lock();
        drop(dataset);
        let ended = self.try_end(&begun);
        if ended.is_err() {
            self.break_off(&begun).unwrap_or_else(|error| {
                tracing::warn!(%error, target = begun.new.target, "what was received is left behind");
            });
        }
        ended
    }

    /// Destroys an abandoned partial receive of a target, left because the pool was suspended when
    /// it was to be destroyed. Returns whether there was one.
    fn destroy_abandoned_receive(&self, target: &str) -> bool {
        let Some(_nobody_ends) = self.ending_receive.try_lock() else { return false };
        let left = self.dataset_tree().and_then(|tree| tree.open(target)?.received_into());
        let is_left = |left: &Dataset| left.is_resumable().is_ok_and(|is_resumable| !is_resumable);
        let left = left.ok().flatten().filter(is_left);
        left.is_some_and(|left| self.destroy_dataset(left.name()).is_ok())
    }

    fn try_end(&self, begun: &Begun) -> Result<(), ChangeError> {
        loop {
            // It stays open until it is destroyed.
            let _head = match begun.destination {
                Destination::New => None,
                Destination::Existing { head } => {
                    Some(self.heads.open(&self.dataset_tree()?.by_object(head)?)?)
                }
            };
            let begun = begun.clone();
            match self.tasks.administer(move |context| context.end_receive(&begun))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Destroys the partially received data, or keeps it; the target is unchanged.
    ///
    /// # Errors
    /// [`ChangeError`]: it is gone already, or the pool is suspended.
    pub fn break_off_receive(&self, receiving: Receiving) -> Result<(), ChangeError> {
        let Receiving { begun, dataset } = receiving;
        let _kept = match begun.new.interruption {
            Interruption::Destroyed => {
                drop(dataset);
                None
            }
            // It stays open until its progress is on disk.
            Interruption::Kept { .. } => Some(dataset),
        };
        self.break_off(&begun)
    }

    /// Destroys the partial receive of a dataset, which is stored below it and would keep it and
    /// its snapshots from being destroyed.
    ///
    /// # Errors
    /// [`ChangeError`]: a receive is in progress, or the pool is suspended.
    pub fn destroy_received(&self, name: &str) -> Result<(), ChangeError> {
        let received = match self.dataset_tree()?.open(name) {
            Err(DatasetError::NotFound { .. }) => None,
            dataset => dataset?.received_into()?,
        };
        received.map_or(Ok(()), |received| self.destroy_dataset(received.name()))
    }

    fn break_off(&self, begun: &Begun) -> Result<(), ChangeError> {
        if let Interruption::Kept { .. } = begun.new.interruption {
            let begun = begun.clone();
            return self.tasks.administer(move |context| context.keep_receive(&begun));
        }
        loop {
            let begun = begun.clone();
            match self.tasks.administer(move |context| context.abandon_receive(&begun))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Destroys receives interrupted by an export or crash, unless they can be resumed (spec 08,
    /// section 9.2). What cannot be destroyed stays as it is, and is not mounted.
    pub(in crate::live) fn clear_interrupted_receives(&self) {
        let left = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "an interrupted receive is left behind");
        };
        let interrupted = match self.dataset_tree().and_then(|tree| interrupted(&tree)) {
            Ok(interrupted) => interrupted,
            Err(error) => return left(&error),
        };
        for name in interrupted {
            self.destroy_dataset(&name).unwrap_or_else(|error| left(&error));
        }
    }
}

/// The names of all heads with an unfinished receive that cannot be resumed.
fn interrupted(tree: &DatasetTree) -> Result<Vec<String>, DatasetError> {
    let mut names = Vec::new();
    for dataset in tree.root()?.descendants()? {
        let received = dataset.received_into()?;
        for dataset in received.into_iter().chain([dataset]) {
            if dataset.dsl_dataset().is_inconsistent() && !dataset.is_resumable()? {
                names.push(dataset.name().to_owned());
            }
        }
    }
    Ok(names)
}
