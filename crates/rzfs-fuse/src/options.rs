//! Options for mounting.

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
    /// The user who mounted it and can read the whole image anyway: permissions are not checked.
    #[default]
    Owner,
    /// All users, each as far as owner, mode and ACL of a file permit (`allow_other`).
    Everyone,
}

impl Access {
    /// Whether the kernel enforces ACLs in a mount of file systems with or without them. Otherwise
    /// the mode alone decides, so if other users have access one file system with ACLs is enough.
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
    /// It does not, which saves two requests each time. Files whose flags forbid writing can be
    /// opened for it; the writes fail.
    #[default]
    Unasked,
    /// It does: opens that flags such as immutable and append-only forbid fail, as in the kernel's
    /// own file systems.
    Checked,
}

/// Operations that a mount forbids, whatever its files permit (properties `readonly`, `devices`,
/// `setuid`, `exec` and `atime`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restrictions {
    /// Nothing can be changed. Implied if no file system of the mount is live.
    pub read_only: bool,
    /// Devices cannot be opened. Implied without root rights.
    pub no_devices: bool,
    /// Set-user-id and set-group-id have no effect. Implied without root rights.
    pub no_set_id: bool,
    /// Nothing can be executed.
    pub no_execution: bool,
    /// Access times are not kept. The file system itself ensures that; here it is reported to users
    /// of the system. Implied if nothing can be changed.
    pub no_access_times: bool,
}

impl Default for Restrictions {
    /// Forbids devices and set-user-id: a pool may come from anywhere.
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
    /// The changeable mount options, as far as the file systems decide.
    pub(crate) fn mount_options(self, is_live: bool) -> Vec<MountOption> {
        // A helper that mounts for other users leaves these out, and complains if they are given.
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
            // Without any of them, a remount keeps the current setting.
            (!read_only && !self.no_access_times, MountFlags::RELATIME),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.fold(MountFlags::empty(), |all, (_, flag)| all | flag)
    }
}

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The name of the dataset, shown as the source of the mount.
    pub source: String,
    /// Who may use the mount.
    pub access: Access,
    /// The operations that it forbids.
    pub restrictions: Restrictions,
    /// Whether opening files is checked.
    pub opens: Opens,
    /// Threads that answer requests. Requests that wait for memory or for blocks from disk keep
    /// theirs; those that wait for changes to be on disk, or for a suspended pool, do not.
    pub threads: usize,
    /// Keeps processors awake while requests follow each other closely.
    pub wakefulness: Option<Arc<Wakefulness>>,
    /// Mount points below the root, by relative path. Where the file system lacks them the mount
    /// provides them.
    pub mount_points: Vec<PathBuf>,
    /// The set that its connection is added to.
    pub connections: Connections,
    /// Dropped when the mount has ended for any reason.
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

/// Treatment of the contents of a directory that is mounted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoveredContents {
    /// The mount hides it.
    Hidden,
    /// They prevent the mount.
    Respected,
}

/// A file system nested in another.
pub struct Nested {
    /// Its path from the root of the mount.
    pub path: PathBuf,
    /// The file system.
    pub file_system: Files,
    /// Its `.zfs`.
    pub control: Option<ControlTree>,
    /// Treatment of the contents of its directory.
    pub underneath: CoveredContents,
}

/// A file system that could not be nested in another.
#[derive(Debug)]
pub struct LeftOut {
    /// Its intended path from the root of the mount.
    pub path: PathBuf,
    /// The reason.
    pub error: io::Error,
}

/// Treatment of a mount that is in use when it is to be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InUse {
    /// It stays as it is; that is an error.
    Refuse,
    /// It is detached from the directory tree; open files stay usable as long as this process
    /// lives.
    Detach,
}
