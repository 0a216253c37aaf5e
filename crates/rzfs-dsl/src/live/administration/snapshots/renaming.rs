//! Renaming snapshots (spec 04, section 11.6).

use super::{SnapshotPlace, parts};
use crate::dataset::DatasetName;
use crate::live::administration::place::check_not_hidden;
use crate::live::administration::{TaskContext, TaskError};
use crate::live::change_error::ChangeError;
use crate::live::space::limits::SpaceTier;
use crate::mos::names;
use std::collections::BTreeSet;

impl TaskContext<'_> {
    /// Renames snapshots of several heads that have the same name: all of them, or none.
    pub(crate) fn rename_snapshots(
        &mut self,
        snapshots: &[String],
        new: &str,
    ) -> Result<(), TaskError> {
        let check = |this: &mut Self, name: &str| this.check_new_name(name, new).map(Some);
        let places = self.check_snapshots(snapshots, check)?;
        let mut heads = BTreeSet::new();
        if let Some(second) = places.iter().find(|place| !heads.insert(place.of.head)) {
            return Err(ChangeError::Exists { name: format!("{}@{new}", second.of.name) }.into());
        }
        self.require_space(SpaceTier::Reserved)?;
        for place in places {
            let head = self.dataset(place.of.head)?;
            let names = self.snapshot_names((place.of.head, &head))?;
            self.mos.remove(names, place.name.as_str())?;
            self.mos.insert(names, new, place.id.get())?;
            self.note_change(place.of.dir)?;
            let text = format!("-> @{new}");
            self.log_dataset("rename", (&place.full_name(), place.id), text)?;
        }
        Ok(())
    }

    fn check_new_name(&mut self, name: &str, new: &str) -> Result<SnapshotPlace, TaskError> {
        let place = self.snapshot(name)?;
        let full = format!("{}@{new}", place.of.name);
        check_not_hidden(new)?;
        if full.len() > DatasetName::MAX_LEN {
            return Err(ChangeError::NameTooLong { name: full }.into());
        }
        parts(&full)?;
        let head = self.dataset(place.of.head)?;
        if let Some((_, id)) = names::snapshot(&self.mos, &head, new)?
            // Where case is ignored, it can be the only difference.
            && (id != place.id || place.name == new)
        {
            return Err(ChangeError::Exists { name: full }.into());
        }
        let names = self.snapshot_names((place.of.head, &head))?;
        self.mos.check_zap(names)?;
        Ok(place)
    }
}
