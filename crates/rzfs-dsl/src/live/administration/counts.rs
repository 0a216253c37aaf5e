//! Numbers of datasets below a directory, for the properties `filesystem_limit` and
//! `snapshot_limit` (spec 04, section 12.6).
//!
//! A directory has counts from the first limit that was set on it or above it. Updates go up as
//! long as there are counts.

use super::{TaskContext, TaskError};
use crate::dataset::limits::MAX_DEPTH;
use crate::live::LiveError;
use crate::mos::MosSource;
use crate::mos::extensible::{check_fields, is_extended, zapify};
use rzfs_format::features::Feature;
use rzfs_format::property::DatasetProperty;
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeSet;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    /// File systems and volumes below, itself excluded.
    FileSystems,
    /// Snapshots of it and of all below.
    Snapshots,
}

impl Counted {
    const ALL: [Self; 2] = [Self::FileSystems, Self::Snapshots];

    const fn field(self) -> &'static str {
        match self {
            Self::FileSystems => DatasetProperty::FilesystemCount.stored_name(),
            Self::Snapshots => DatasetProperty::SnapshotCount.stored_name(),
        }
    }
}

/// Directories that are counted.
#[derive(Default)]
struct Counting {
    seen: BTreeSet<ObjectId>,
    counted: Vec<(ObjectId, [u64; 2])>,
}

/// Whether a directory with this name is counted: internal ones and receives in progress are not.
pub(super) fn is_counted(name: &str) -> bool {
    !name.starts_with(['$', '%'])
}

impl TaskContext<'_> {
    /// A count of a directory, if it is kept.
    pub(super) fn count(&self, dir: ObjectId, what: Counted) -> Result<Option<u64>, LiveError> {
        if !is_extended(&self.mos, dir)? {
            return Ok(None);
        }
        self.mos.number(dir, what.field())
    }

    fn set_count(&mut self, dir: ObjectId, what: Counted, count: u64) -> Result<(), LiveError> {
        zapify(&self.mos, &mut self.state.features, dir)?;
        self.mos.set(dir, what.field(), count)
    }

    /// Adjusts the counts from a directory upwards. A receive into an existing file system does not
    /// count: [`is_counted`].
    pub(super) fn add_to_counts(
        &mut self,
        from: Option<ObjectId>,
        what: Counted,
        change: i64,
    ) -> Result<(), LiveError> {
        let mut level = from;
        for _ in 0..MAX_DEPTH {
            let Some(dir) = level else { break };
            let Some(count) = self.count(dir, what)? else { break };
            self.mos.set(dir, what.field(), count.saturating_add_signed(change))?;
            level = self.dir(dir)?.parent;
        }
        Ok(())
    }

    /// Checks that the counts from a directory upwards can be read, before they are changed.
    pub(super) fn check_counts(&mut self, from: ObjectId) -> Result<(), LiveError> {
        let mut level = Some(from);
        for _ in 0..MAX_DEPTH {
            let Some(dir) = level else { break };
            check_fields(&self.mos, dir)?;
            for what in Counted::ALL {
                self.count(dir, what)?;
            }
            level = self.dir(dir)?.parent;
        }
        Ok(())
    }

    /// Checks that what is below a directory can be counted.
    pub(super) fn check_counting(&mut self, dir: ObjectId) -> Result<(), LiveError> {
        self.count_below(dir, &mut Counting::default(), 0).map(drop)
    }

    /// Gives a new directory counts, if the pool has any.
    pub(super) fn start_counting_new(&mut self, dir: ObjectId) -> Result<(), LiveError> {
        if self.state.features.is_active(Feature::FilesystemLimits) {
            for what in Counted::ALL {
                self.set_count(dir, what, 0)?;
            }
        }
        Ok(())
    }

    /// Counts what is below a directory that gets its first limit.
    pub(super) fn start_counting(&mut self, dir: ObjectId) -> Result<(), TaskError> {
        if !self.state.features.is_active(Feature::FilesystemLimits) {
            self.state.features.add(&self.mos, Feature::FilesystemLimits, 1)?;
        }
        let mut counting = Counting::default();
        self.count_below(dir, &mut counting, 0)?;
        for (dir, counts) in counting.counted {
            for (what, count) in Counted::ALL.into_iter().zip(counts) {
                self.set_count(dir, what, count)?;
            }
        }
        Ok(())
    }

    /// The numbers of file systems and snapshots below a directory. Directories with counts
    /// contribute those and are not descended into; each is counted once, whatever names it has.
    fn count_below(
        &mut self,
        dir: ObjectId,
        counting: &mut Counting,
        depth: usize,
    ) -> Result<[u64; 2], LiveError> {
        if !counting.seen.insert(dir) {
            return Ok([0, 0]);
        }
        let known = [self.count(dir, Counted::FileSystems)?, self.count(dir, Counted::Snapshots)?];
        if let [Some(file_systems), Some(snapshots)] = known {
            return Ok([file_systems, snapshots]);
        }
        if depth == MAX_DEPTH {
            let problem = FormatError::invalid("DSL directory", "the tree is too deep");
            return Err(LiveError::corrupt(dir)(problem));
        }
        let mut counts = [0_u64; 2];
        for (name, child) in self.children(dir)? {
            if !is_counted(&name) {
                continue;
            }
            let [file_systems, snapshots] = self.count_below(child, counting, depth + 1)?;
            counts[0] = counts[0].saturating_add(file_systems).saturating_add(1);
            counts[1] = counts[1].saturating_add(snapshots);
        }
        let head = self.dir(dir)?.head_dataset;
        let names = match head {
            Some(head) => self.dataset(head)?.snapshot_names,
            None => None,
        };
        if let Some(names) = names {
            counts[1] = counts[1].saturating_add(self.mos.entries(names)?.len() as u64);
        }
        counting.counted.push((dir, counts));
        Ok(counts)
    }
}
