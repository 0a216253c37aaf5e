//! How to mount, and what.

use crate::connection::Connections;
use crate::wakefulness::Wakefulness;
use fuser::MountOption;
use rustix::mount::MountFlags;
use rustix::process::geteuid;
use rzfs_zpl::{ControlTree, Files};
use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Who may use a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Whoever mounted it, who can read the whole image anyway: permissions are not checked.
    #[default]
    Owner,
    /// All users, each as far as owner, mode and ACL of a file permit (`allow_other`).
    Everyone,
}

impl Access {
    /// Whether the kernel sees to lists of access rights in a mount of file systems that have them
    /// or not. What it does not see to is open to all whom the mode admits, so where others get in
    /// one that has them is enough.
    pub(crate) fn has_lists(self, mut all: impl Iterator<Item = bool>) -> bool {
        match self {
            Self::Owner => all.all(|has_lists| has_lists),
            Self::Everyone => all.any(|has_lists| has_lists),
        }
    }
}

/// Whether the kernel asks before files are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Opens {
    /// It does not, which saves two requests each time. Files whose flags forbid it can be opened
    /// for writing; writing is what fails.
    #[default]
    Unasked,
    /// It does: what flags like immutable and append-only forbid fails when a file is opened, as
    /// in the kernel's own file systems.
    Checked,
}

/// What a mount does not let happen, whatever its files say (properties `readonly`, `devices`,
/// `setuid`, `exec` and `atime`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restrictions {
    /// Nothing is changed. Always so where no file system of the mount is a live one.
    pub read_only: bool,
    /// Devices cannot be opened. Always so without root rights.
    pub no_devices: bool,
    /// Set-user-id and set-group-id have no effect. Always so without root rights.
    pub no_set_id: bool,
    /// Nothing is executed.
    pub no_execution: bool,
    /// Times of access are not kept, which the file system sees to; here it is told who asks the
    /// system. Always so where nothing is changed.
    pub no_access_times: bool,
}

impl Default for Restrictions {
    /// Neither devices nor set-user-id: a pool may come from anywhere.
    fn default() -> Self {
        Self {
            read_only: false,
            no_devices: true,
            no_set_id: true,
            no_execution: false,
            no_access_times: false,
        }
    }
}

impl Restrictions {
    /// The options of a mount that can be changed, as far as it is up to its file systems.
    pub(crate) fn mount_options(self, is_live: bool) -> Vec<MountOption> {
        // Where a helper mounts for other users it leaves these off by itself, and says so if they
        // are asked for.
        let is_root = geteuid().is_root();
        let allowed = |option| is_root.then_some(option);
        let devices =
            if self.no_devices { Some(MountOption::NoDev) } else { allowed(MountOption::Dev) };
        let set_id =
            if self.no_set_id { Some(MountOption::NoSuid) } else { allowed(MountOption::Suid) };
        let mut options: Vec<MountOption> = devices.into_iter().chain(set_id).collect();
        if self.no_execution {
            options.push(MountOption::NoExec);
        }
        if self.read_only || !is_live {
            options.push(MountOption::RO);
        }
        if self.read_only || !is_live || self.no_access_times {
            options.push(MountOption::NoAtime);
        }
        options
    }

    /// The same for the system itself.
    pub(crate) fn mount_flags(self, is_live: bool) -> MountFlags {
        let read_only = self.read_only || !is_live;
        let flags = [
            (self.no_devices, MountFlags::NODEV),
            (self.no_set_id, MountFlags::NOSUID),
            (self.no_execution, MountFlags::NOEXEC),
            (read_only, MountFlags::RDONLY),
            (read_only || self.no_access_times, MountFlags::NOATIME),
            // Without a word about them, a mount that is mounted anew keeps what it has.
            (!read_only && !self.no_access_times, MountFlags::RELATIME),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.fold(MountFlags::empty(), |all, (_, flag)| all | flag)
    }
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The name of the dataset, shown as the source of the mount.
    pub source: String,
    /// Who may use the mount.
    pub access: Access,
    /// What it does not let happen.
    pub restrictions: Restrictions,
    /// Whether opening files is checked.
    pub opens: Opens,
    /// Threads that answer requests. Requests that wait for space in memory or for blocks from disk
    /// keep theirs; those that wait for changes to be on disk, or for a suspended pool, do not.
    pub threads: usize,
    /// Keeps processors awake while requests follow each other closely.
    pub wakefulness: Option<Arc<Wakefulness>>,
    /// Directories below the root, by their relative paths, on which others are to be mounted.
    /// Where the file system lacks them the mount has them all the same.
    pub mount_points: Vec<PathBuf>,
    /// What its connection is added to.
    pub connections: Connections,
    /// Dropped when the mount has ended, whoever ended it.
    pub while_mounted: Option<Arc<dyn Any + Send + Sync>>,
}

impl MountOptions {
    /// A mount for its owner with the usual restrictions, two threads, and nothing besides.
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            access: Access::default(),
            restrictions: Restrictions::default(),
            opens: Opens::default(),
            threads: 2,
            wakefulness: None,
            mount_points: Vec::new(),
            connections: Connections::default(),
            while_mounted: None,
        }
    }
}

/// What becomes of what is in a directory that is to be mounted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoveredContents {
    /// The mount hides it.
    Hidden,
    /// It keeps the mount away.
    Respected,
}

/// A file system in another.
pub struct Nested {
    /// Where: the path from the root of the mount.
    pub path: PathBuf,
    /// The file system.
    pub file_system: Files,
    /// Its `.zfs`.
    pub control: Option<ControlTree>,
    /// What becomes of what is there.
    pub underneath: CoveredContents,
}

/// A file system that could not be put into another.
#[derive(Debug)]
pub struct LeftOut {
    /// Where it was to be: the path from the root of the mount.
    pub path: PathBuf,
    /// Why it is not there.
    pub error: io::Error,
}

/// What to do with a mount that is in use when it is to be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InUse {
    /// Leave it as it is; that is an error.
    Refuse,
    /// Take it out of the tree of directories; who has files open keeps them for as long as
    /// this process lives.
    Detach,
}
