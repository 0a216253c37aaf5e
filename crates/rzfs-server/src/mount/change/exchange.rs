//! Replaces the contents of a file system, mounted or not.
//!
//! If it is mounted this happens below the mount, which never disappears. If that is impossible, as
//! too much differs or something cannot be read, it is remounted with all mounts below it.

use super::mounts::{end, mount_again, taken_back};
use crate::mount::open::Open;
use crate::mount::refusal::refusal;
use crate::mount::table::MountTable;
use crate::protocol::{Refusal, Temporary};
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_fuse::{Exchange, Exchanged, InUse, NotExchanged, Successor};
use rzfs_zpl::{FileSystem, FileSystemOptions, ZplError};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// A change that replaces the contents of a file system.
pub(super) trait NewContents {
    /// The result of the change.
    type Changed;

    /// The refusal for a reason.
    fn refused(&self, reason: &dyn Display) -> Refusal;

    /// The new contents; the latest unwritten changes need not be in them.
    fn contents(&self) -> Result<Dataset, DatasetError>;

    /// Performs the change, once.
    fn change(&mut self) -> Result<Self::Changed, Refusal>;
}

/// The same for a file system that is mounted.
struct Below<'a, N> {
    open: &'a Open,
    name: &'a str,
    temporary: Temporary,
    new: &'a mut N,
}

impl<N: NewContents> Exchange for Below<'_, N> {
    type Changed = N::Changed;
    type Error = Refusal;

    fn states(&mut self) -> Result<[FileSystem; 2], NotExchanged<Refusal>> {
        let refused = |error: &dyn Display| NotExchanged::Refused(self.new.refused(error));
        let pool = self.open.writable().map_err(|error| refused(&error))?;
        pool.sync().map_err(|error| refused(&error))?;
        let view = pool.view().map_err(|error| refused(&error))?;
        let before = view.datasets().open(self.name).map_err(|error| refused(&error))?;
        let after = self.new.contents().map_err(|error| refused(&error))?;
        let unreadable = |error: Box<ZplError>| NotExchanged::Unsuitable(io::Error::other(error));
        let read = |dataset| read(dataset, view.version()).map_err(unreadable);
        Ok([read(&before)?, read(&after)?])
    }

    fn change(&mut self) -> Result<N::Changed, Refusal> {
        self.new.change()
    }

    fn successor(&mut self) -> Result<Successor, Refusal> {
        let name = self.name;
        let cannot = |error: &dyn Display| refusal(format_args!("cannot mount '{name}'"), error);
        let view = self.open.view().map_err(|error| cannot(&error))?;
        let dataset = view.datasets().open(name).map_err(|error| cannot(&error))?;
        let opened = self.open.mounter().open(&dataset, self.temporary);
        let (files, control) = opened.map_err(|error| cannot(&error))?;
        let live = files.live().ok_or_else(|| cannot(&"it is only read"))?;
        Ok((live.clone(), control))
    }
}

fn read(dataset: &Dataset, pool_version: u64) -> Result<FileSystem, Box<ZplError>> {
    let options = FileSystemOptions::of_dataset(dataset, pool_version)?;
    let objset = dataset.open_objset().map_err(ZplError::from)?;
    Ok(FileSystem::open(objset, options)?)
}

/// Carries out a change that replaces the contents of a file system: open files that are not in the
/// new contents become stale. Returns the mounts that failed.
pub(super) fn exchange<N: NewContents>(
    open: &Open,
    table: &mut MountTable,
    name: &str,
    new: &mut N,
) -> Result<(N::Changed, Vec<String>), Refusal> {
    let place = table.of_dataset(name).and_then(|mount| Some((mount, mount.place_of(name)?)));
    let Some((mount, (path, temporary))) = place else {
        return mounted_anew(open, table, name, new);
    };
    if let Ok(pool) = open.writable() {
        // Most of it, before other requests have to wait for the rest.
        pool.sync().map_err(|error| new.refused(&error))?;
    }
    let exchanged = mount.mount.exchange(path, &mut Below { open, name, temporary, new });
    match exchanged {
        Ok(Exchanged { changed, lost: None }) => Ok((changed?, Vec::new())),
        Ok(Exchanged { changed, lost: Some(Refusal { message, .. }) }) => {
            // No process may go on with the old contents.
            let mut complaints = vec![message];
            let ended = end(open, table, &affected(table, name), InUse::Detach);
            let others = ended.map_err(|refusal| complaints.push(refusal.message));
            let mut others = others.unwrap_or_default();
            others.retain(|plan| plan.dataset != name);
            complaints.extend(mount_again(open, table, others));
            Ok((changed?, complaints))
        }
        Err(NotExchanged::Refused(refusal)) => Err(refusal),
        Err(NotExchanged::Busy) => Err(new.refused(&"pool or dataset is busy")),
        Err(NotExchanged::Unsuitable(error)) => {
            tracing::info!(%error, name, "mounted anew");
            mounted_anew(open, table, name, new)
        }
    }
}

/// A file system, and those that are mounted below it.
fn affected(table: &MountTable, name: &str) -> BTreeSet<String> {
    let mounted = table.reports().into_iter().find(|report| report.dataset == name);
    let below = mounted.iter().flat_map(|report| table.below(Path::new(&report.mountpoint)));
    below.chain([name.to_owned()]).collect()
}

/// The same by remounting the file system and all mounts below it.
fn mounted_anew<N: NewContents>(
    open: &Open,
    table: &mut MountTable,
    name: &str,
    new: &mut N,
) -> Result<(N::Changed, Vec<String>), Refusal> {
    let ended = end(open, table, &affected(table, name), InUse::Detach)?;
    match new.change() {
        Ok(changed) => Ok((changed, mount_again(open, table, ended))),
        Err(refusal) => Err(taken_back(open, table, ended, refusal)),
    }
}
