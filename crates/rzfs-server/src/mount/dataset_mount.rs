//! A mounted file system, and those that share its mount.

use super::plan::{PlannedMount, Site};
use super::still_mounted::refusal;
use crate::protocol::{Refusal, Temporary};
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_fuse::{
    CoveredContents, InUse, MadeDirectory, Mount, MountError, Nested, Restrictions, SystemMounts,
};
use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Debug)]
pub(super) struct DatasetMount {
    pub(super) dataset: String,
    /// Its planned place; the mount knows its real one, without links.
    pub(super) mountpoint: PathBuf,
    pub(super) mount: Mount,
    /// The operations that it forbids.
    pub(super) restrictions: Restrictions,
    /// The origin of its place.
    pub(super) site: Site,
    /// Its temporary options.
    pub(super) temporary: Temporary,
    /// The datasets that share the mount, and their places in it; parents come first.
    pub(super) grafted: Vec<(String, PathBuf)>,
    /// The directory if it was made for the mount.
    pub(super) made: Option<MadeDirectory>,
}

impl DatasetMount {
    /// Its file systems.
    pub(super) fn datasets(&self) -> impl Iterator<Item = &str> {
        let grafted = self.grafted.iter().map(|(name, _)| name.as_str());
        std::iter::once(self.dataset.as_str()).chain(grafted)
    }

    /// Their plans. They already hide the contents of their directories.
    pub(super) fn plans(&self) -> Vec<PlannedMount> {
        let (site, temporary) = (self.site, self.temporary);
        let plan = |dataset: &str, mountpoint| {
            PlannedMount::new(dataset.to_owned(), mountpoint, CoveredContents::Hidden)
        };
        let own = PlannedMount { site, temporary, ..plan(&self.dataset, self.mountpoint.clone()) };
        let grafted = self.grafted.iter();
        let grafted = grafted.map(|(name, path)| plan(name, self.mountpoint.join(path)));
        std::iter::once(own).chain(grafted).collect()
    }

    /// The place of one of its file systems within it, and its temporary options.
    pub(super) fn place_of(&self, dataset: &str) -> Option<(&Path, Temporary)> {
        if self.dataset == dataset {
            return Some((Path::new(""), self.temporary));
        }
        let grafted = self.grafted.iter().find(|(name, _)| name == dataset);
        grafted.map(|(_, path)| (path.as_path(), Temporary::default()))
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.mount.directory().to_owned()
    }

    /// Its file systems with their directories.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let grafted = self.grafted.iter();
        let grafted = grafted.map(|(name, path)| (name.as_str(), self.directory().join(path)));
        std::iter::once((self.dataset.as_str(), self.directory())).chain(grafted)
    }

    /// Drops the temporary option for a property.
    pub(super) fn settle(&mut self, property: DatasetProperty) {
        self.temporary = self.temporary.filtered(|other, _| other != property);
    }

    /// Changes its restrictions, even while it is in use.
    pub(super) fn restrict(&mut self, restrictions: Restrictions) -> Result<(), MountError> {
        match self.mount.restrict(restrictions) {
            // The system refuses this to ordinary users even without a change.
            Err(_) if self.restrictions == restrictions => {}
            restricted => restricted?,
        }
        self.restrictions = restrictions;
        Ok(())
    }

    /// Adds a file system to the shared mount, which remains in use.
    pub(super) fn graft(&mut self, dataset: &str, nested: Nested) -> Result<(), MountError> {
        let path = nested.path.clone();
        self.mount.graft(nested)?;
        self.grafted.push((dataset.to_owned(), path));
        self.grafted.sort_by_key(|(_, path)| path.components().count());
        Ok(())
    }

    /// Removes grafts in matching directories, the deepest first, until one is in use.
    pub(super) fn ungraft_those(
        &mut self,
        which: impl Fn(&Path) -> bool,
        in_use: InUse,
        ended: &mut Vec<PlannedMount>,
    ) -> Result<(), Refusal> {
        let directory = self.directory();
        let is_meant = |(_, path): &(String, PathBuf)| which(&directory.join(path));
        if in_use == InUse::Detach {
            let (taken, kept) =
                std::mem::take(&mut self.grafted).into_iter().partition::<Vec<_>, _>(is_meant);
            self.grafted = kept;
            let paths: Vec<_> = taken.iter().rev().map(|(_, path)| path.clone()).collect();
            self.mount.ungraft_by_force(&paths);
            ended.extend(taken.into_iter().rev().map(|graft| self.plan_of(graft)));
            return Ok(());
        }
        for graft in (0..self.grafted.len()).rev() {
            if self.grafted.get(graft).is_some_and(is_meant) {
                ended.extend(self.ungraft(graft)?);
            }
        }
        Ok(())
    }

    /// Removes a graft, unless it is in use; returns its plan.
    pub(super) fn ungraft(&mut self, graft: usize) -> Result<Option<PlannedMount>, Refusal> {
        let Some((_, path)) = self.grafted.get(graft) else { return Ok(None) };
        self.mount.ungraft(path).map_err(|error| refusal(&error))?;
        let graft = self.grafted.remove(graft);
        Ok(Some(self.plan_of(graft)))
    }

    /// The plan of a graft.
    fn plan_of(&self, (dataset, path): (String, PathBuf)) -> PlannedMount {
        PlannedMount::new(dataset, self.mountpoint.join(path), CoveredContents::Hidden)
    }

    /// Whether it was unmounted from outside. Without the mount table it must have ended.
    pub(super) fn was_unmounted(&self, mounts: Option<&SystemMounts>) -> bool {
        match mounts {
            Some(mounts) => self.mount.was_unmounted(mounts),
            None => self.mount.is_finished(),
        }
    }
}
