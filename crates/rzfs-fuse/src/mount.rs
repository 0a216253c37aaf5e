//! Mounting and unmounting.

use crate::adapter::Adapter;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rzfs_zpl::{ControlTree, FileSystem};
use std::io;
use std::path::{Path, PathBuf};
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

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The name of the dataset, shown as the source of the mount.
    pub source: String,
    /// Who may use the mount.
    pub access: Access,
    /// Threads that answer requests.
    pub threads: usize,
}

/// Why a file system cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} '{}': {source}", directory.display())]
pub struct MountError {
    action: &'static str,
    directory: PathBuf,
    source: io::Error,
}

/// A mounted file system; unmounted when it is dropped.
#[derive(Debug)]
pub struct Mount {
    directory: PathBuf,
    session: BackgroundSession,
}

impl Mount {
    /// Mounts a file system on a directory, and answers its requests from threads of its own.
    /// With `control` its root has the directory `.zfs`.
    ///
    /// Without root rights this needs `fusermount3`.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses.
    pub fn new(
        file_system: Arc<FileSystem>,
        control: Option<ControlTree>,
        directory: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(options.source.clone()),
            MountOption::Subtype("zfs".to_owned()),
            MountOption::RO,
            MountOption::NoAtime,
        ];
        if options.access == Access::Everyone {
            config.acl = SessionACL::All;
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = true;
        let adapter = Adapter::new(file_system, control);
        let session = fuser::spawn_mount(adapter, directory, &config);
        Ok(Self {
            session: session.map_err(|source| failure("mount", directory, source))?,
            directory: directory.to_owned(),
        })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it was unmounted by somebody else.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts it and waits until all requests are answered.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, or the session had failed before.
    pub fn unmount(self) -> Result<(), MountError> {
        let Self { directory, session } = self;
        session.umount_and_join().map_err(|source| failure("unmount", &directory, source))
    }
}

fn failure(action: &'static str, directory: &Path, source: io::Error) -> MountError {
    MountError { action, directory: directory.to_owned(), source }
}
