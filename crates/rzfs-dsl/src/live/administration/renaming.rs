//! Renaming file systems and volumes within their pool (spec 04, section 11.5).

use super::counts::Counted;
use super::place::{Place, check_new_name, check_not_hidden};
use super::{TaskContext, TaskError};
use crate::dataset::DatasetName;
use crate::dataset::limits::MAX_DEPTH;
use crate::live::LiveError;
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::SpaceClass;
use crate::live::space::limits::SpaceTier;
use crate::mos::MosSource;
use rzfs_format::dsl::DslDir;
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeSet;

/// A checked rename.
struct Move<'a> {
    place: Place,
    dir: DslDir,
    old_parent: ObjectId,
    new_parent: ObjectId,
    last: &'a str,
}

impl TaskContext<'_> {
    pub(crate) fn rename_dataset(&mut self, from: &str, to: &str) -> Result<(), TaskError> {
        let Move { place, dir, old_parent, new_parent, last } =
            self.check(|this| this.check_rename(from, to))?;
        self.require_space(SpaceTier::Reserved)?;
        let mos = self.mos;
        self.log_dataset("rename", (from, place.head), format!("-> {to}"))?;
        if old_parent != new_parent {
            self.move_counts(place.dir, (old_parent, new_parent))?;
            self.charge_parent(old_parent, &dir, -1)?;
            self.charge_parent(new_parent, &dir, 1)?;
        }
        let old_name = from.rsplit_once('/').map_or(from, |(_, name)| name);
        let (old_names, new_names) = (self.child_map(old_parent)?, self.child_map(new_parent)?);
        mos.remove(old_names, old_name)?;
        mos.insert(new_names, last, place.dir.get())?;
        self.state.dirs.change(&mos, place.dir, |dir| dir.parent = Some(new_parent))?;
        self.state.changed.push(to.to_owned());
        Ok(())
    }

    /// The child directories ZAP of a directory.
    fn child_map(&mut self, parent: ObjectId) -> Result<ObjectId, LiveError> {
        let missing = || FormatError::invalid("DSL directory", "it has no map of children");
        self.dir(parent)?.children.ok_or_else(missing).map_err(LiveError::corrupt(parent))
    }

    fn check_rename<'a>(&mut self, from: &str, to: &'a str) -> Result<Move<'a>, TaskError> {
        check_not_hidden(from)?;
        let place = self.head(from)?;
        let dir = self.dir(place.dir)?;
        let crosses = || ChangeError::CrossesPools { name: from.to_owned() };
        let old_parent = dir.parent.ok_or_else(crosses)?;
        if to.split('/').next() != Some(self.pool.name.as_str()) {
            return Err(crosses().into());
        }
        let (parent, last) = check_new_name(to)?;
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(ChangeError::BelowItself { name: from.to_owned() }.into());
        }
        let new_parent = self.parent_of_new(to, parent)?.dir;
        if self.child_dir(new_parent, last)?.is_some() {
            return Err(ChangeError::Exists { name: to.to_owned() }.into());
        }
        self.check_key_of_moved(from, place.dir, new_parent)?;
        let nesting = to.matches('/').count();
        self.check_names_below(place.dir, (to.len(), nesting), 0, &mut BTreeSet::new())?;
        if old_parent != new_parent {
            self.check_room((&place, &dir), (old_parent, new_parent))?;
            self.check_counts(old_parent)?;
            self.check_counts(new_parent)?;
            self.check_counting(place.dir)?;
        }
        let tables = [self.child_map(old_parent)?, self.child_map(new_parent)?];
        tables.into_iter().try_for_each(|table| self.mos.check_zap(table))?;
        Ok(Move { place, dir, old_parent, new_parent, last })
    }

    /// Checks that no descendant gets too long a name or too deep a place. A directory is visited
    /// once, whatever names it has.
    fn check_names_below(
        &mut self,
        dir: ObjectId,
        (len, nesting): (usize, usize),
        depth: usize,
        seen: &mut BTreeSet<ObjectId>,
    ) -> Result<(), TaskError> {
        if !seen.insert(dir) {
            return Ok(());
        }
        if depth == MAX_DEPTH {
            let problem = FormatError::invalid("DSL directory", "the tree is too deep");
            return Err(LiveError::corrupt(dir)(problem).into());
        }
        let head = self.dir(dir)?.head_dataset;
        let names = match head {
            Some(head) => self.dataset(head)?.snapshot_names,
            None => None,
        };
        let snapshots = match names {
            Some(names) => self.mos.entries(names)?,
            None => Vec::new(),
        };
        let longest = snapshots.iter().map(|entry| entry.name().len() + 1).max().unwrap_or(0);
        if len + longest > DatasetName::MAX_LEN {
            let name = String::from("a dataset or snapshot below it");
            return Err(ChangeError::NameTooLong { name }.into());
        }
        for (name, child) in self.children(dir)? {
            if nesting + 1 >= super::place::MAX_NESTING {
                return Err(ChangeError::TooDeep { name }.into());
            }
            let place = (len + 1 + name.len(), nesting + 1);
            self.check_names_below(child, place, depth + 1, seen)?;
        }
        Ok(())
    }

    /// Checks that the new branch, up to the common ancestor, has enough room, including what the
    /// old one no longer needs but has reserved anyway.
    fn check_room(
        &mut self,
        (place, dir): (&Place, &DslDir),
        (old_parent, new_parent): (ObjectId, ObjectId),
    ) -> Result<(), TaskError> {
        let wanted = dir.used.max(dir.reserved);
        let above: Vec<ObjectId> = self.dirs_above(place.dir)?;
        let mut room = u64::MAX;
        for id in self.dirs_above(new_parent)?.into_iter().filter(|id| !above.contains(id)) {
            let dir = self.dir(id)?;
            if dir.quota != 0 {
                room = room.min(dir.quota.saturating_sub(dir.used));
            }
        }
        if wanted > room {
            return Err(ChangeError::Quota { name: place.name.clone() }.into());
        }
        if wanted > self.available_for_move(wanted, old_parent, new_parent)? {
            return Err(ChangeError::NoSpace.into());
        }
        Ok(())
    }

    /// A directory and its ancestors.
    pub(super) fn dirs_above(&mut self, dir: ObjectId) -> Result<Vec<ObjectId>, LiveError> {
        let mut chain = Vec::new();
        let mut level = Some(dir);
        while let Some(id) = level.filter(|_| chain.len() < MAX_DEPTH) {
            chain.push(id);
            level = self.dir(id)?.parent;
        }
        Ok(chain)
    }

    /// Takes a directory's space from a parent, or gives it to one.
    fn charge_parent(
        &mut self,
        parent: ObjectId,
        dir: &DslDir,
        sign: i64,
    ) -> Result<(), TaskError> {
        let signed = |bytes: u64| bytes.cast_signed().wrapping_mul(sign);
        let delta = SpaceDelta {
            used: signed(dir.used),
            compressed: signed(dir.compressed),
            uncompressed: signed(dir.uncompressed),
        };
        let (mos, dirs) = (self.mos, &mut self.state.dirs);
        dirs.charge(&mos, parent, SpaceClass::Children, delta)?;
        let excess = signed(dir.reserved.saturating_sub(dir.used));
        let delta = SpaceDelta { used: excess, ..SpaceDelta::default() };
        Ok(dirs.charge(&mos, parent, SpaceClass::ChildReservations, delta)?)
    }

    /// Moves the counts of a directory and its descendants to another branch.
    fn move_counts(
        &mut self,
        dir: ObjectId,
        (old_parent, new_parent): (ObjectId, ObjectId),
    ) -> Result<(), TaskError> {
        // A branch with counts needs the counts of what moves there.
        if self.count(new_parent, Counted::FileSystems)?.is_some()
            && self.count(dir, Counted::FileSystems)?.is_none()
        {
            self.start_counting(dir)?;
        }
        for (what, itself) in [(Counted::FileSystems, 1), (Counted::Snapshots, 0)] {
            let below = self.count(dir, what)?.unwrap_or(0).cast_signed();
            let moved = below.saturating_add(itself);
            self.add_to_counts(Some(old_parent), what, -moved)?;
            self.add_to_counts(Some(new_parent), what, moved)?;
        }
        Ok(())
    }
}
