//! A mounted file system, and those that share its mount.

use super::plan::{PlannedMount, Site};
use super::still_mounted::refusal;
use crate::protocol::{Refusal, Temporary};
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_fuse::{
    CoveredContents, InUse, MadeDirectory, Mount, MountError, Nested, Restrictions, SystemMounts,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file system that shares the mount of another one.
#[derive(Debug)]
pub(super) struct Graft {
    pub(super) dataset: String,
    /// Where in the mount it is.
    pub(super) path: PathBuf,
    /// The origin of its place.
    pub(super) site: Site,
    /// What it does otherwise than properties say.
    pub(super) temporary: Temporary,
}

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
    /// Those that share the mount; those above come before those below.
    pub(super) grafted: Vec<Graft>,
    /// The directory if it was made for the mount.
    pub(super) made: Option<MadeDirectory>,
}

impl DatasetMount {
    /// Its file systems.
    pub(super) fn datasets(&self) -> impl Iterator<Item = &str> {
        let grafted = self.grafted.iter().map(|graft| graft.dataset.as_str());
        std::iter::once(self.dataset.as_str()).chain(grafted)
    }

    /// The same with what each does otherwise than properties say.
    pub(super) fn asked(&self) -> impl Iterator<Item = (&str, Temporary)> {
        let grafted = self.grafted.iter().map(|graft| (graft.dataset.as_str(), graft.temporary));
        std::iter::once((self.dataset.as_str(), self.temporary)).chain(grafted)
    }

    /// Their plans. They already hide the contents of their directories.
    pub(super) fn plans(&self) -> Vec<PlannedMount> {
        let (site, temporary, place) = (self.site, self.temporary, self.mountpoint.clone());
        let own = PlannedMount::new(self.dataset.clone(), place, CoveredContents::Hidden);
        let own = PlannedMount { site, temporary, ..own };
        let grafted = self.grafted.iter().map(|graft| self.plan_of(graft));
        std::iter::once(own).chain(grafted).collect()
    }

    /// The place of one of its file systems within it, and its temporary options.
    pub(super) fn place_of(&self, dataset: &str) -> Option<(&Path, Temporary)> {
        if self.dataset == dataset {
            return Some((Path::new(""), self.temporary));
        }
        let graft = self.grafted.iter().find(|graft| graft.dataset == dataset);
        graft.map(|graft| (graft.path.as_path(), graft.temporary))
    }

    /// The origin of the place of one of its file systems.
    pub(super) fn site_of(&self, dataset: &str) -> Option<Site> {
        if self.dataset == dataset {
            return Some(self.site);
        }
        self.grafted.iter().find(|graft| graft.dataset == dataset).map(|graft| graft.site)
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.mount.directory().to_owned()
    }

    /// Its file systems with their directories.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let grafted = self.grafted.iter();
        let grafted =
            grafted.map(|graft| (graft.dataset.as_str(), self.directory().join(&graft.path)));
        std::iter::once((self.dataset.as_str(), self.directory())).chain(grafted)
    }

    /// Makes these of its file systems follow a property again.
    pub(super) fn settle(&mut self, names: &BTreeSet<String>, property: DatasetProperty) {
        let own = (&self.dataset, &mut self.temporary);
        let grafted = self.grafted.iter_mut();
        let grafted = grafted.map(|graft| (&graft.dataset, &mut graft.temporary));
        let all = std::iter::once(own).chain(grafted);
        for (_, temporary) in all.filter(|(name, _)| names.contains(*name)) {
            *temporary = temporary.settled(property);
        }
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
    pub(super) fn graft(&mut self, plan: &PlannedMount, nested: Nested) -> Result<(), MountError> {
        let path = nested.path.clone();
        self.mount.graft(nested)?;
        let (dataset, site, temporary) = (plan.dataset.clone(), plan.site, plan.temporary);
        self.grafted.push(Graft { dataset, path, site, temporary });
        self.grafted.sort_by_key(|graft| graft.path.components().count());
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
        let is_meant = |graft: &Graft| which(&directory.join(&graft.path));
        if in_use == InUse::Detach {
            let (taken, kept) =
                std::mem::take(&mut self.grafted).into_iter().partition::<Vec<_>, _>(is_meant);
            self.grafted = kept;
            let paths: Vec<_> = taken.iter().rev().map(|graft| graft.path.clone()).collect();
            self.mount.ungraft_by_force(&paths);
            ended.extend(taken.iter().rev().map(|graft| self.plan_of(graft)));
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
        let Some(Graft { path, .. }) = self.grafted.get(graft) else { return Ok(None) };
        self.mount.ungraft(path).map_err(|error| refusal(&error))?;
        let graft = self.grafted.remove(graft);
        Ok(Some(self.plan_of(&graft)))
    }

    /// What was planned for one of those that share it.
    fn plan_of(&self, graft: &Graft) -> PlannedMount {
        let (site, temporary) = (graft.site, graft.temporary);
        let place = self.mountpoint.join(&graft.path);
        let plan = PlannedMount::new(graft.dataset.clone(), place, CoveredContents::Hidden);
        PlannedMount { site, temporary, shared: Some(self.mountpoint.clone()), ..plan }
    }

    /// Whether it was unmounted from outside. Without the mount table it must have ended.
    pub(super) fn was_unmounted(&self, mounts: Option<&SystemMounts>) -> bool {
        match mounts {
            Some(mounts) => self.mount.was_unmounted(mounts),
            None => self.mount.is_finished(),
        }
    }
}
