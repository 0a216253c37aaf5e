//! Snapshots, clones and bookmarks.

use super::exchange::{NewContents, exchange};
use super::mounts::mount_more;
use super::problem::{Problem, reason};
use super::several::{each, not_destroyed};
use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{NewClone, Pair, Refusal};
use crate::request::Choice;
use rzfs::setting::{DatasetSetting, Occasion, SettingError};
use rzfs::zap::ZapValue;
use rzfs::{Pool, WritablePool};
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind};
use rzfs_dsl::live::{ChangeError, Destruction, NewBookmark, NewSnapshots};
use std::fmt::Display;

/// Parses properties for a dataset of this kind.
pub(super) fn stored(
    pool: &Pool,
    kind: DatasetKind,
    properties: &[Pair],
) -> Result<Vec<(String, ZapValue)>, SettingError> {
    let stored = properties.iter().map(|(name, word)| {
        let setting = DatasetSetting::parse(name, word, kind, Occasion::Creation)?;
        match setting.feature().is_some_and(|one| !pool.features().state(one).is_enabled()) {
            true => Err(SettingError::NeedsUpgrade),
            false => Ok((setting.name, setting.value)),
        }
    });
    stored.collect()
}

/// `zfs snapshot`.
pub(super) fn take(
    open: &Open,
    names: Vec<String>,
    properties: &[Pair],
) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn Display| refusal("cannot create snapshots", error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let view = pool.view().map_err(|error| cannot(&error))?;
    let properties = stored(&view, DatasetKind::Snapshot, properties);
    let properties = properties.map_err(|error| cannot(&error))?;
    let taken = pool.live().take_snapshots(&NewSnapshots { names, properties });
    let none = Some("no snapshots were created");
    taken.map_err(|error| each("cannot create snapshot", error, none))?;
    Ok(Vec::new())
}

/// `zfs destroy` of snapshots.
pub(super) fn destroy(open: &Open, names: &[String], defer: bool) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("destroy snapshots of")?;
    let when = if defer { Destruction::Deferred } else { Destruction::AtOnce };
    pool.live().destroy_snapshots(names, when).map_err(not_destroyed)?;
    Ok(Vec::new())
}

/// `zfs rename` of snapshots.
pub(super) fn rename(open: &Open, names: &[String], to: &str) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("rename snapshots of")?;
    let renamed = pool.live().rename_snapshots(names, to);
    renamed.map_err(|error| each("cannot rename", error, None))?;
    Ok(Vec::new())
}

/// `zfs hold`.
pub(super) fn hold(open: &Open, names: &[String], tag: &str) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("hold snapshots of")?;
    let held = pool.live().hold_snapshots(names, tag);
    held.map_err(|error| each("cannot hold snapshot", error, None))?;
    Ok(Vec::new())
}

/// `zfs release`.
pub(super) fn release(open: &Open, names: &[String], tag: &str) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("release snapshots of")?;
    let released = pool.live().release_snapshots(names, tag);
    released.map_err(|error| each("cannot release hold from snapshot", error, None))?;
    Ok(Vec::new())
}

/// `zfs bookmark`.
pub(super) fn bookmark(open: &Open, source: String, name: &str) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("create bookmarks in")?;
    let new = NewBookmark { source, name: name.to_owned() };
    pool.live().create_bookmarks(&[new]).map_err(|error| {
        let cannot = |why: &dyn Display| refusal(format!("cannot create bookmark '{name}'"), why);
        match error {
            ChangeError::Each(mut errors) if errors.len() == 1 => match errors.remove(0).1 {
                ChangeError::Exists { .. } => cannot(&"bookmark exists"),
                error @ ChangeError::NotAnAncestor { .. } => {
                    cannot(&format_args!("source {error}"))
                }
                error => cannot(&error),
            },
            error => cannot(&error),
        }
    })?;
    Ok(Vec::new())
}

/// `zfs destroy` of a bookmark.
pub(super) fn destroy_bookmark(open: &Open, name: String) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("destroy bookmarks of")?;
    let destroyed = pool.live().destroy_bookmarks(&[name]);
    destroyed.map_err(|error| each("cannot destroy bookmark", error, None))?;
    Ok(Vec::new())
}

/// `zfs clone`.
pub(super) fn clone(open: &Open, new: NewClone) -> Result<Vec<String>, Refusal> {
    let NewClone { name, origin, properties, ancestors } = new;
    let cannot = |error: &dyn Display| refusal(format_args!("cannot create '{name}'"), error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let mut made = Vec::new();
    if ancestors {
        super::datasets::create_above(pool, &name, &mut made).map_err(|error| cannot(&error))?;
    }
    let cloned = || -> Result<(), Problem> {
        let view = pool.view()?;
        let kind = view.datasets().open(&origin)?.head()?.kind()?;
        let properties = stored(&view, kind, &properties)?;
        let new = rzfs_dsl::live::NewClone { origin: origin.clone(), properties };
        Ok(pool.live().clone_snapshot(&name, &new)?)
    };
    match cloned() {
        Err(Problem::Change(ChangeError::Exists { .. })) if ancestors => return Ok(Vec::new()),
        Err(Problem::Dataset(error)) => return Err(unopened(&origin, reason(&error))),
        cloned => cloned.map_err(|error| cannot(&error))?,
    }
    let made = made.into_iter().chain([name]).collect();
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let mut complaints = mount_more(open, &mut table, &made, Choice::Automatic);
    if !complaints.is_empty() {
        complaints.push("filesystem successfully created, but not mounted".to_owned());
    }
    Ok(complaints)
}

/// `zfs promote`.
pub(super) fn promote(open: &Open, name: &str) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn Display| refusal(format_args!("cannot promote '{name}'"), error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let origin = pool.view().ok().and_then(|view| {
        let clone = view.datasets().open(name).ok()?;
        Some(clone.origin().ok()??.name().to_owned())
    });
    pool.live().promote(name).map_err(|error| match error {
        ChangeError::ConflictingSnapshots { conflicts, .. } => {
            let origin = origin.unwrap_or_default();
            let lines = conflicts.iter().map(|snapshot| {
                cannot(&format_args!("conflicting snapshot '{snapshot}' from parent '{origin}'"))
                    .message
            });
            Refusal::new(lines.collect::<Vec<_>>().join("\n"))
        }
        error => cannot(&error),
    })?;
    Ok(Vec::new())
}

/// `zfs rollback` to the last snapshot.
pub(super) fn roll_back(open: &Open, snapshot: &str) -> Result<Vec<String>, Refusal> {
    let name = snapshot.split('@').next().unwrap_or_default();
    let cannot = |error: &dyn Display| refusal(format_args!("cannot rollback '{name}'"), error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let mut change = Rollback { pool, name, snapshot };
    let ((), complaints) = exchange(open, &mut table, name, &mut change)?;
    Ok(complaints)
}

struct Rollback<'a> {
    pool: &'a WritablePool,
    name: &'a str,
    snapshot: &'a str,
}

impl NewContents for Rollback<'_> {
    type Changed = ();

    fn refused(&self, error: &dyn Display) -> Refusal {
        refusal(format_args!("cannot rollback '{}'", self.name), error)
    }

    fn contents(&self) -> Result<Dataset, DatasetError> {
        let tree = self.pool.live().dataset_tree()?;
        match self.snapshot.contains('@') {
            true => tree.open(self.snapshot),
            false => {
                let last = tree.open(self.name)?.snapshots()?.pop();
                last.ok_or_else(|| DatasetError::NotFound { name: self.snapshot.to_owned() })
            }
        }
    }

    fn change(&mut self) -> Result<(), Refusal> {
        self.pool.live().roll_back(self.snapshot).map_err(|error| self.refused(&error))
    }
}
