//! Holds, which keep snapshots from being destroyed (spec 04, section 16).

use super::SnapshotPlace;
use crate::dataset::SnapshotIdentity;
use crate::live::LiveError;
use crate::live::administration::{TaskContext, TaskError};
use crate::live::change_error::ChangeError;
use crate::live::space::limits::SpaceTier;
use crate::mos::MosSource;
use rzfs_format::ObjectId;
use rzfs_format::dsl::DslDataset;

/// The first version with holds.
const HOLDS_VERSION: u64 = 18;
/// Maximum length of a tag in bytes.
const MAX_TAG: usize = 256;

/// What a snapshot is needed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::live::administration) enum Need {
    Hold,
    Clone,
}

impl TaskContext<'_> {
    /// Holds snapshots with a tag that none of them has yet: all of them, or none.
    pub(crate) fn hold(&mut self, snapshots: &[String], tag: &str) -> Result<(), TaskError> {
        let places = self.check_snapshots(snapshots, |this, name| {
            if this.state.config.version < HOLDS_VERSION {
                return Err(ChangeError::WrongKind { name: name.to_owned() }.into());
            }
            if tag.len() > MAX_TAG {
                return Err(ChangeError::TagTooLong { name: name.to_owned() }.into());
            }
            if tag.is_empty() || tag.contains('\0') {
                return Err(ChangeError::InvalidTag { name: name.to_owned() }.into());
            }
            let place = this.snapshot(name)?;
            if this.has_hold(place.id, tag)? {
                return Err(ChangeError::TagExists { name: name.to_owned() }.into());
            }
            Ok(Some(place))
        })?;
        self.require_space(SpaceTier::Normal)?;
        let now = self.now();
        for place in places {
            let holds = self.holds_of(place.id)?;
            self.mos.insert(holds, tag, now)?;
            let text = format!("tag={tag} temp=0 refs={}", self.mos.entry_count(holds)?);
            self.log_dataset("hold", (&place.full_name(), place.id), text)?;
        }
        Ok(())
    }

    /// Releases holds where they exist; snapshots that were only waiting for that are destroyed.
    pub(crate) fn release(&mut self, snapshots: &[String], tag: &str) -> Result<(), TaskError> {
        let places = self.check_snapshots(snapshots, |this, name| {
            let place = this.snapshot(name)?;
            if this.has_hold(place.id, tag)? {
                this.refuse_if_kept(place.id, Need::Hold)?;
                return Ok(Some(place));
            }
            Err(ChangeError::NoSuchTag { name: name.to_owned() }.into())
        })?;
        self.require_space(SpaceTier::Frees)?;
        for place in places {
            let holds = self.holds_of(place.id)?;
            self.mos.remove(holds, tag)?;
            let text = format!("tag={tag} refs={}", self.mos.entry_count(holds)?);
            self.log_dataset("release", (&place.full_name(), place.id), text)?;
            self.destroy_if_deferred(place.id, |_| Ok(place))?;
        }
        Ok(())
    }

    fn has_hold(&self, snapshot: ObjectId, tag: &str) -> Result<bool, LiveError> {
        let Some(zap) = self.dataset(snapshot)?.user_references else { return Ok(false) };
        Ok(self.mos.lookup(zap, tag)?.is_some())
    }

    /// The number of holds on a snapshot.
    pub(super) fn hold_count(&self, snapshot: &DslDataset) -> Result<u64, LiveError> {
        snapshot.user_references.map_or(Ok(0), |zap| self.mos.entry_count(zap))
    }

    /// Whether a snapshot goes, as it is to be destroyed as soon as nobody needs it, once this need
    /// of it is given up.
    fn goes_without(
        &self,
        snapshot: &DslDataset,
        given_up: Option<Need>,
    ) -> Result<bool, LiveError> {
        let (holds, clones) = match given_up {
            None => (0, 0),
            Some(Need::Hold) => (1, 0),
            Some(Need::Clone) => (0, 1),
        };
        // The head, or the next snapshot, counts as a child.
        Ok(snapshot.flags & DslDataset::FLAG_DEFER_DESTROY != 0
            && snapshot.child_count <= 1 + clones
            && self.hold_count(snapshot)? <= holds)
    }

    /// Refuses to drop a need if the snapshot would then be destroyed while it is being read.
    pub(in crate::live::administration) fn refuse_if_kept(
        &mut self,
        id: ObjectId,
        need: Need,
    ) -> Result<(), TaskError> {
        let snapshot = self.dataset(id)?;
        let goes = self.goes_without(&snapshot, Some(need))?;
        if goes && self.pool.readers.is_kept(SnapshotIdentity::of(id, &snapshot)) {
            let name = self.snapshot_of(id)?.full_name();
            return Err(ChangeError::Busy { name }.into());
        }
        Ok(())
    }

    /// Destroys a snapshot marked for deferred destruction if it is no longer needed. If it is
    /// damaged or being read, it stays: there is no caller to refuse.
    pub(in crate::live::administration) fn destroy_if_deferred(
        &mut self,
        id: ObjectId,
        place: impl FnOnce(&mut Self) -> Result<SnapshotPlace, LiveError>,
    ) -> Result<(), TaskError> {
        let ready = self.check(|this| {
            let snapshot = this.dataset(id)?;
            if !this.goes_without(&snapshot, None)? {
                return Ok(None);
            }
            if this.pool.readers.is_kept(SnapshotIdentity::of(id, &snapshot)) {
                tracing::warn!(snapshot = %id, "a snapshot that somebody reads stays");
                return Ok(None);
            }
            let place = place(this)?;
            this.check_chain(&place, &snapshot)?;
            Ok(Some(place))
        });
        match ready {
            Ok(Some(place)) => self.destroy_snapshot(&place),
            Ok(None) => Ok(()),
            Err(TaskError::Refused(error)) => {
                tracing::warn!(%error, snapshot = %id, "a snapshot that nobody needs stays");
                Ok(())
            }
            Err(failed) => Err(failed),
        }
    }
}
