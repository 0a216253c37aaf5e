//! Adjusts a tree to the sent one, before and after its increments are received (spec 08, section
//! 9.10).
//!
//! A local dataset matches the one in the package with which it shares the youngest snapshot. If
//! its name differs it is renamed; if it is not in the package it is destroyed, if requested. The
//! plan is recomputed after each change: one makes room for the next.

use super::places::Places;
use super::wording::cannot;
use crate::mount::change::datasets::{self, RenamedMounts, Renaming};
use crate::mount::change::snapshots;
use crate::mount::open::Open;
use crate::protocol::{ConcurrentSnapshots, ReceiveRequest, Refusal, TreeChange, TreeReport};
use rzfs::WritablePool;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_format::Guid;
use rzfs_stream::{Package, PackagedDataset, PackagedSnapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of planning passes.
const MOST_PASSES: usize = 1000;

/// The adjustment of a tree to a package.
pub(super) struct Adjustment<'a> {
    pub(super) pool: &'a WritablePool,
    pub(super) request: &'a ReceiveRequest,
    pub(super) package: &'a Package,
    pub(super) places: &'a Places,
    /// The short name of the snapshots that must exist.
    pub(super) from: &'a str,
}

/// A local dataset.
struct Local<'p> {
    dataset: Dataset,
    snapshots: Vec<Dataset>,
    /// Its counterpart in the package.
    told: Option<&'p PackagedDataset>,
}

/// An attempted change: a refused one would be refused again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tried {
    Change(TreeChange),
    /// An interim rename uses another name each time.
    MakingRoom {
        /// The dataset to be renamed.
        from: String,
    },
}

impl Tried {
    fn of(change: &TreeChange) -> Self {
        match change {
            TreeChange::Rename { from, to } if is_interim(to) => {
                Self::MakingRoom { from: from.clone() }
            }
            change => Self::Change(change.clone()),
        }
    }
}

/// The snapshots of a package and the datasets with them: several after local receives.
type Known<'p> = BTreeMap<Guid, Vec<&'p PackagedDataset>>;

impl Adjustment<'_> {
    /// Makes all necessary changes; `hear` is called with each.
    pub(super) fn carry_out(
        &self,
        open: &Open,
        hear: &dyn Fn(TreeReport) -> std::io::Result<()>,
    ) -> Result<(), Refusal> {
        let mut tried = BTreeSet::new();
        for pass in 0..MOST_PASSES {
            let changes = self.plan(pass, &tried)?;
            if changes.is_empty() {
                return Ok(());
            }
            for change in changes {
                if !tried.insert(Tried::of(&change)) {
                    continue;
                }
                let failure = self.change(open, &change).err().map(|refusal| refusal.message);
                if hear(TreeReport { change, failure }).is_err() {
                    // The client is gone.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn change(&self, open: &Open, change: &TreeChange) -> Result<(), Refusal> {
        let force = self.request.force_unmount;
        let complaints = match change {
            TreeChange::Destroy { name } if name.contains('@') => {
                snapshots::destroy(open, std::slice::from_ref(name), false)
            }
            TreeChange::Destroy { name } => datasets::destroy(
                open,
                std::slice::from_ref(name),
                force,
                ConcurrentSnapshots::Keep,
            ),
            TreeChange::Rename { from, to } => match to.split_once('@') {
                Some((_, last)) => snapshots::rename(open, std::slice::from_ref(from), last),
                None => {
                    let (from, to) = (from.clone(), to.clone());
                    // Who stayed where it is would be found under the name of another.
                    let mounts = match self.request.leave_unmounted {
                        true => RenamedMounts::Move,
                        false => RenamedMounts::Settle,
                    };
                    let renaming = Renaming { from, to, ancestors: false, force, mounts };
                    datasets::rename(open, &renaming)
                }
            },
            TreeChange::Promote { name } => snapshots::promote(open, name),
            TreeChange::Leave { .. } => Ok(Vec::new()),
        }?;
        match complaints.as_slice() {
            [] => Ok(()),
            complaints => Err(Refusal::new(complaints.join("\n"))),
        }
    }

    /// Changes that can be made in sequence and were not tried yet: a refused one does not block
    /// the others.
    fn plan(&self, pass: usize, tried: &BTreeSet<Tried>) -> Result<Vec<TreeChange>, Refusal> {
        let Some(top) = self.places.top() else { return Ok(Vec::new()) };
        let top = self.places.of(top)?;
        let known = known(self.package);
        let locals = self.locals(&top, &known).map_err(cannot)?;
        // A tree that has nothing in common with the package is unrelated.
        if locals.first().is_none_or(|top| top.told.is_none()) {
            return Ok(Vec::new());
        }
        let is_new = |change: &TreeChange| !tried.contains(&Tried::of(change));
        let mut changes: Vec<_> = match self.request.force {
            true => destructions(&locals, &known).into_iter().filter(is_new).collect(),
            false => Vec::new(),
        };
        // This comes first: the origin of the clone may then be destroyed.
        if let Some(promoted) = self.promotion(&locals, &known, &is_new).map_err(cannot)? {
            changes = vec![promoted];
        }
        if changes.is_empty() {
            changes = snapshot_renames(&locals, pass, &is_new);
        }
        if changes.is_empty() {
            changes = self.renames(&locals, pass, &is_new)?;
        }
        Ok(changes)
    }

    fn locals<'p>(&self, top: &str, known: &Known<'p>) -> Result<Vec<Local<'p>>, DatasetError> {
        let tree = self.pool.live().dataset_tree()?;
        let top = match tree.open(top) {
            Err(DatasetError::NotFound { .. }) => return Ok(Vec::new()),
            top => top?,
        };
        let all = top.descendants()?;
        let names: BTreeSet<_> = all.iter().map(|one| one.name().to_owned()).collect();
        let locals = all.into_iter().map(|dataset| {
            let snapshots = dataset.snapshots()?;
            let is_here = |told: &&&PackagedDataset| {
                self.places.of(&told.name).is_ok_and(|place| place == dataset.name())
            };
            // Among several, the one meant is missing here under its own name.
            let is_missing = |told: &&&PackagedDataset| {
                self.places.of(&told.name).is_ok_and(|place| !names.contains(&place))
            };
            let of = |one: &Dataset| {
                let all = known.get(&one.dsl_dataset().guid)?;
                let missing = || all.iter().find(is_missing);
                all.iter().find(is_here).or_else(missing).or(all.first()).copied()
            };
            let told = snapshots.iter().rev().find_map(of);
            Ok(Local { dataset, snapshots, told })
        });
        locals.collect()
    }

    /// A clone that is the origin of others at the sender. Its own origin must be part of the tree:
    /// the snapshots that it gets are taken from there.
    fn promotion(
        &self,
        locals: &[Local<'_>],
        known: &Known<'_>,
        is_new: &dyn Fn(&TreeChange) -> bool,
    ) -> Result<Option<TreeChange>, DatasetError> {
        for local in locals {
            let is_none = local.told.is_some_and(|told| told.origin.is_none());
            let Some(origin) = local.dataset.origin()?.filter(|_| is_none) else { continue };
            let change = TreeChange::Promote { name: local.dataset.name().to_owned() };
            let is_part =
                locals.iter().flat_map(|one| &one.snapshots).any(|one| one.name() == origin.name());
            if is_part && known.contains_key(&origin.dsl_dataset().guid) && is_new(&change) {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// The next dataset with another name in the package, and the datasets that keep theirs.
    fn renames(
        &self,
        locals: &[Local<'_>],
        pass: usize,
        is_new: &dyn Fn(&TreeChange) -> bool,
    ) -> Result<Vec<TreeChange>, Refusal> {
        let is_there = |name: &str| locals.iter().any(|local| local.dataset.name() == name);
        let mut left = Vec::new();
        let mut wanted = BTreeMap::new();
        for local in locals.iter().skip(1) {
            let Some(told) = local.told else { continue };
            let name = local.dataset.name();
            let source = told.snapshots.iter().find(|one| one.name == self.from);
            let has_source = source.is_some_and(|source| {
                local.snapshots.iter().any(|one| one.dsl_dataset().guid == source.guid)
            });
            if !has_source {
                let (name, from) = (name.to_owned(), self.from.to_owned());
                left.extend(Some(TreeChange::Leave { name, from }).filter(is_new));
                continue;
            }
            let to = self.places.of(&told.name)?;
            if to != name {
                wanted.insert(name.to_owned(), to);
            }
        }
        for (from, to) in &wanted {
            let above = to.rsplit_once('/').map_or("", |(above, _)| above);
            if !is_there(above) {
                continue;
            }
            let (from, to) = match is_there(to) {
                // The dataset with its name by then is its future parent.
                false if is_below(to, from) => (from.clone(), beside(from, pass)),
                false => (from.clone(), to.clone()),
                true if wanted.contains_key(to) => (to.clone(), beside(to, pass)),
                true => continue,
            };
            let change = TreeChange::Rename { from, to };
            if is_new(&change) {
                left.push(change);
                break;
            }
        }
        Ok(left)
    }
}

fn known(package: &Package) -> Known<'_> {
    let all = package.datasets.iter();
    let mut known = Known::new();
    for (told, one) in all.flat_map(|told| told.snapshots.iter().map(move |one| (told, one))) {
        known.entry(one.guid).or_default().push(told);
    }
    known
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// A name next to that of a dataset, for interim renames.
fn beside(name: &str, pass: usize) -> String {
    let above = name.rsplit_once('/').map_or("", |(above, _)| above);
    format!("{above}/{}", interim(pass))
}

/// Snapshots that have other names in the package.
fn snapshot_renames(
    locals: &[Local<'_>],
    pass: usize,
    is_new: &dyn Fn(&TreeChange) -> bool,
) -> Vec<TreeChange> {
    let mut changes = Vec::new();
    for local in locals {
        let wanted = |one: &Dataset| {
            let is_it = |told: &&PackagedSnapshot| told.guid == one.dsl_dataset().guid;
            let told = local.told?.snapshots.iter().find(is_it)?;
            let to = format!("{}@{}", local.dataset.name(), told.name);
            (to != one.name()).then_some(to)
        };
        for one in &local.snapshots {
            let Some(to) = wanted(one) else { continue };
            let taken = local.snapshots.iter().find(|other| other.name() == to);
            let change = match taken {
                None => TreeChange::Rename { from: one.name().to_owned(), to },
                Some(other) if wanted(other).is_some() => {
                    let to = format!("{}@{}", local.dataset.name(), interim(pass));
                    TreeChange::Rename { from: other.name().to_owned(), to }
                }
                Some(_) => continue,
            };
            match is_new(&change) {
                true if taken.is_some() => return vec![change],
                true => changes.push(change),
                false => {}
            }
        }
    }
    changes
}

/// Datasets unknown to the package, children first.
fn destructions(locals: &[Local<'_>], known: &Known<'_>) -> Vec<TreeChange> {
    let mut changes = Vec::new();
    let destroy = |dataset: &Dataset| TreeChange::Destroy { name: dataset.name().to_owned() };
    for local in locals.iter().rev() {
        let below = format!("{}/", local.dataset.name());
        let is_needed =
            |other: &Local<'_>| other.told.is_some() && other.dataset.name().starts_with(&below);
        if local.told.is_none() && locals.iter().any(is_needed) {
            // Its children may be renamed first.
            continue;
        }
        if local.dataset.is_inconsistent() {
            // The rest of it may still come.
            continue;
        }
        let is_unknown = |one: &&Dataset| !known.contains_key(&one.dsl_dataset().guid);
        changes.extend(local.snapshots.iter().filter(is_unknown).map(destroy));
        if local.told.is_none() {
            changes.push(destroy(&local.dataset));
        }
    }
    changes
}

/// A name for interim renames.
fn interim(pass: usize) -> String {
    format!("{}{pass}", first_of_interim())
}

fn is_interim(name: &str) -> bool {
    let last = name.rsplit(['/', '@']).next();
    last.is_some_and(|last| last.starts_with(&first_of_interim()))
}

fn first_of_interim() -> String {
    format!("recv-{}-", std::process::id())
}
