//! The place of a mount in the directory tree.
//!
//! A mount is identified by its number, not by its path: the owner of a directory above it may
//! rename that and put something else there. The system is asked for the current path each time,
//! and the mount found there must have the number. Numbers are reused as soon as they are free, so
//! the mount must also be a FUSE mount with our source and superblock. Superblock numbers are
//! reused too: ours is valid as long as its connection lasts, which is checked last. Only another
//! mount of the same superblock can get the number of one that has ended.

use crate::connection::{Connection, Connections, is_connected};
use crate::lack::{MissingPrerequisite, helper, open_device};
use crate::options::{Access, InUse, MountOptions, Restrictions};
use crate::place::{Entry, MountPlace, PlaceError, mount_of};
use crate::process_files::with_held_path;
use crate::system_mounts::{MountId, SUBTYPE, SystemMount, SystemMounts};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::process::{getgid, getuid};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a process that merely looks at a mount may keep it busy.
const INSPECTION_GRACE: Duration = Duration::from_millis(200);

/// A mount that is not attached to a directory yet.
#[derive(Debug)]
pub(crate) struct Detached {
    mount: OwnedFd,
    source: String,
}

impl Detached {
    /// A new mount and its request device; `None` where the system leaves mounting to a helper: for
    /// users without root rights, and before Linux 5.4.
    pub(crate) fn new(
        options: &MountOptions,
        is_live: bool,
    ) -> io::Result<Option<(Self, OwnedFd)>> {
        let Some(context) = context()? else { return Ok(None) };
        let device = open_device().map_err(MissingPrerequisite::of_device)?;
        let mount = Self::in_context(&context, device.as_fd(), options, is_live)?;
        Ok(mount.map(|mount| (mount, device)))
    }

    /// A mount that is served through a device: if one exists already, the same file system again,
    /// with all that the kernel knows of it.
    ///
    /// # Errors
    /// Among others, the other mount is no longer in use, or the system cannot make a second one
    /// (before Linux 5.15).
    pub(crate) fn of_device(
        device: BorrowedFd<'_>,
        options: &MountOptions,
        is_live: bool,
    ) -> io::Result<Option<Self>> {
        match context()? {
            Some(context) => Self::in_context(&context, device, options, is_live),
            None => Ok(None),
        }
    }

    fn in_context(
        context: &OwnedFd,
        device: BorrowedFd<'_>,
        options: &MountOptions,
        is_live: bool,
    ) -> io::Result<Option<Self>> {
        let text = [
            ("source", options.source.clone()),
            ("subtype", SUBTYPE.to_owned()),
            ("fd", device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", getuid().as_raw().to_string()),
            ("group_id", getgid().as_raw().to_string()),
        ];
        for (key, value) in text {
            fsconfig_set_string(context, key, value)?;
        }
        let everyone: &[&str] = match options.access {
            Access::Owner => &[],
            Access::Everyone => &["allow_other", "default_permissions"],
        };
        let flags = options.restrictions.mount_flags(is_live);
        let read_only: &[&str] = if flags.contains(MountFlags::RDONLY) { &["ro"] } else { &[] };
        for flag in everyone.iter().chain(read_only) {
            fsconfig_set_flag(context, *flag)?;
        }
        match fsconfig_create(context) {
            Err(Errno::PERM) => return Ok(None),
            created => created?,
        }
        let mount = fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(flags))?;
        Ok(Some(Self { mount, source: options.source.clone() }))
    }

    /// Calls `act` with a path to the mount.
    pub(crate) fn with_path<T: Send>(&self, act: impl FnOnce(&Path) -> T + Send) -> io::Result<T> {
        with_held_path(self.mount.as_fd(), Path::new(""), act)
    }

    /// Attaches the mount at its place.
    pub(crate) fn attach(
        self,
        place: &MountPlace,
        connection: &Arc<OwnedFd>,
    ) -> io::Result<Attachment> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.mount, c"", place.descriptor(), c"", flags)?;
        let id = mount_of(self.mount.as_fd()).ok();
        let identity = id.map(|id| Identity { id, connection: Some(Arc::clone(connection)) });
        Ok(Attachment { identity, directory: place.path().to_owned(), source: self.source })
    }
}

/// A mount that this process has made; unmounted on drop, unless it is in use.
#[derive(Debug)]
pub(crate) struct Attached {
    at: Attachment,
    finally: OnDrop,
}

/// What happens to a mount on drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnDrop {
    Unmounted,
    Left,
}

impl Attached {
    pub(crate) fn new(at: Attachment) -> Self {
        Self { at, finally: OnDrop::Unmounted }
    }

    /// Its attachment.
    pub(crate) fn at(&self) -> &Attachment {
        &self.at
    }

    /// Holds another attachment from now on; the previous one has ended.
    pub(crate) fn replace(&mut self, at: Attachment) {
        self.at = at;
    }

    /// Releases the mount without unmounting it.
    pub(crate) fn leave(mut self) {
        self.finally = OnDrop::Left;
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.finally == OnDrop::Left {
            return;
        }
        if let Err(error) = self.at.unmount(InUse::Refuse) {
            tracing::warn!(%error, directory = %self.at.directory.display(), "unmount");
        }
    }
}

/// The context of a new mount; `None` where the system leaves mounting to a helper.
fn context() -> io::Result<Option<OwnedFd>> {
    match fsopen(c"fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::PERM | Errno::NOSYS | Errno::NODEV) => Ok(None),
        context => Ok(Some(context?)),
    }
}

fn attributes(flags: MountFlags) -> MountAttrFlags {
    [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .fold(MountAttrFlags::empty(), |all, (_, attribute)| all | attribute)
}

/// Identifies a mount.
#[derive(Debug)]
struct Identity {
    id: MountId,
    /// The device of a mount that this process serves.
    connection: Option<Arc<OwnedFd>>,
}

/// A mount in the directory tree.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Unknown before Linux 5.8; then only the path identifies it.
    identity: Option<Identity>,
    directory: PathBuf,
    source: String,
}

impl Attachment {
    /// The mount that a helper has made at a place.
    pub(crate) fn made_at(
        place: &MountPlace,
        source: &str,
        connection: &Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let (directory, source) = (place.path().to_owned(), source.to_owned());
        let Ok(below) = mount_of(place.descriptor()) else {
            return Ok(Self { identity: None, directory, source });
        };
        let id = Entry::find(&directory).map_err(into_io)?.mount()?;
        // The helper mounted it elsewhere.
        if id == below {
            return Err(Errno::STALE.into());
        }
        let identity = Some(Identity { id, connection: Some(Arc::clone(connection)) });
        Ok(Self { identity, directory, source })
    }

    /// A mount from the system's mount table.
    pub(crate) fn of_system(mount: &SystemMount) -> Self {
        Self {
            identity: Some(Identity { id: mount.id, connection: None }),
            directory: mount.directory.clone(),
            source: mount.source.clone(),
        }
    }

    /// Where it was mounted.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its current place; `None` if it is no longer attached.
    ///
    /// # Errors
    /// Its place is unknown, its directory cannot be reached, or something is mounted over it: then
    /// it is in use.
    pub(crate) fn find(&self) -> io::Result<Option<CurrentMount>> {
        let directory = match &self.identity {
            None => self.directory.clone(),
            Some(identity) => match SystemMount::with_number(identity.id.number)? {
                Some(mount) if self.is_it(&mount) => mount.directory,
                _ => return Ok(None),
            },
        };
        let entry = Entry::find(&directory).map_err(into_io)?;
        match &self.identity {
            Some(identity) if entry.mount()? != identity.id => Err(Errno::BUSY.into()),
            _ => Ok(Some(CurrentMount { entry, directory })),
        }
    }

    /// Whether something is mounted at or below a path in it.
    pub(crate) fn carries(&self, path: &Path) -> io::Result<bool> {
        let all = SystemMount::all()?;
        let is_own = |mount: &&SystemMount| self.is_it(mount);
        let Some(own) = all.iter().find(is_own) else { return Ok(false) };
        let place = own.directory.join(path);
        Ok(all.iter().any(|one| one.parent == own.id.number && one.directory.starts_with(&place)))
    }

    /// Where other file systems are mounted within it, in any of its mounts: paths from its root.
    pub(crate) fn mounted_within(&self) -> io::Result<Vec<PathBuf>> {
        let mounts = SystemMounts::now()?;
        let own = self.identity.as_ref().map(|identity| identity.id.superblock);
        Ok(own.map_or_else(Vec::new, |own| mounts.within(own).into_iter().collect()))
    }

    /// Whether it is among these mounts, as far as it can be identified.
    pub(crate) fn is_among(&self, mounts: &SystemMounts) -> bool {
        let Some(identity) = &self.identity else { return true };
        mounts.with_number(identity.id.number).is_some_and(|mount| self.is_it(mount))
    }

    /// Whether another mount shows the same superblock, as far as that can be told.
    pub(crate) fn has_superblock_of(&self, mount: &SystemMount) -> bool {
        let is_same = |own: &Identity| own.id.superblock == mount.id.superblock;
        self.identity.as_ref().is_some_and(is_same) && mount.source == self.source
    }

    /// Whether an entry of the mount table is this mount.
    fn is_it(&self, mount: &SystemMount) -> bool {
        let Some(Identity { id, connection }) = &self.identity else { return false };
        mount.id == *id
            && mount.kind.starts_with("fuse")
            && mount.source == self.source
            && connection.as_deref().is_none_or(is_connected)
    }

    /// Unmounts it. Processes that merely look at it, such as desktop indexers and other processes
    /// in search of dead mounts, keep it busy for a moment only.
    ///
    /// # Errors
    /// It is in use, or the system refuses.
    pub(crate) fn unmount(&self, in_use: InUse) -> io::Result<()> {
        let until = Instant::now() + INSPECTION_GRACE;
        loop {
            match self.try_unmount(in_use) {
                Err(error) if is_busy(&error) && Instant::now() < until => {
                    thread::sleep(INSPECTION_GRACE / 20);
                }
                outcome => return outcome,
            }
        }
    }

    fn try_unmount(&self, in_use: InUse) -> io::Result<()> {
        let Some(CurrentMount { entry, directory }) = self.find()? else { return Ok(()) };
        let flags = match in_use {
            InUse::Refuse => UnmountFlags::NOFOLLOW,
            InUse::Detach => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        };
        match entry.with_path(|path| rustix::mount::unmount(path, flags))? {
            Ok(()) => Ok(()),
            Err(Errno::PERM) => fusermount(&directory, in_use),
            // Another process was faster.
            Err(Errno::INVAL | Errno::NOENT) if self.has_gone()? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The connection to its server, which is this process.
    ///
    /// # Errors
    /// The connection is unknown.
    pub(crate) fn connection(&self) -> io::Result<Connection<'_>> {
        match &self.identity {
            Some(Identity { id, connection: Some(device) }) => {
                Ok(Connection { device, superblock: id.superblock })
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Registers it for being aborted by others, if its connection is known.
    pub(crate) fn register(&self, connections: &Connections) {
        if let Some(Identity { id, connection: Some(device) }) = &self.identity {
            connections.add(device, *id, &self.source);
        }
    }

    /// Whether the system no longer has it, as far as that can be told.
    pub(crate) fn has_gone(&self) -> io::Result<bool> {
        let Some(identity) = &self.identity else { return Ok(true) };
        Ok(!SystemMount::with_number(identity.id.number)?.is_some_and(|mount| self.is_it(&mount)))
    }

    /// Whether its superblock is read-only for all its mounts; `None` where it is not attached or
    /// the system does not say.
    pub(crate) fn is_read_only(&self) -> Option<bool> {
        let number = self.identity.as_ref()?.id.number;
        let mount = SystemMount::with_number(number).ok()??;
        self.is_it(&mount).then_some(mount.is_read_only)
    }

    /// Changes the restrictions that the system enforces.
    pub(crate) fn restrict(&self, restrictions: Restrictions, is_live: bool) -> io::Result<()> {
        let Some(found) = self.find()? else { return Ok(()) };
        let root = found.entry.open()?;
        let is_other = |identity: &Identity| mount_of(root.as_fd()).ok() != Some(identity.id);
        if self.identity.as_ref().is_some_and(is_other) {
            return Err(Errno::STALE.into());
        }
        let flags = restrictions.mount_flags(is_live);
        let remount = |path: &Path| rustix::mount::mount_remount(path, flags, c"");
        Ok(with_held_path(root.as_fd(), Path::new(""), remount)??)
    }
}

/// Whether an unmount failed because the mount is in use.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// A mount as the system shows it now, and its place.
#[derive(Debug)]
pub(crate) struct CurrentMount {
    pub(crate) entry: Entry,
    directory: PathBuf,
}

fn into_io(error: PlaceError) -> io::Error {
    match error {
        PlaceError::System { source, .. } => source,
        error => io::Error::other(error),
    }
}

/// Whether this process may mount and unmount without a helper.
#[must_use]
pub fn mounts_without_helper() -> bool {
    fsopen(c"fuse", FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
}

/// Unmounts through the helper that may do so without root rights.
fn fusermount(directory: &Path, in_use: InUse) -> io::Result<()> {
    /// The endings of its messages that stem from the system.
    const KNOWN: [(&str, Errno); 7] = [
        ("Device or resource busy", Errno::BUSY),
        ("Operation not permitted", Errno::PERM),
        ("Permission denied", Errno::ACCESS),
        ("Too many open files", Errno::MFILE),
        ("Too many open files in system", Errno::NFILE),
        ("Resource temporarily unavailable", Errno::AGAIN),
        ("Cannot allocate memory", Errno::NOMEM),
    ];
    let helper = helper().ok_or(MissingPrerequisite::Helper)?;
    let mut command = Command::new(&helper);
    command.arg("-u");
    if in_use == InUse::Detach {
        command.arg("-z");
    }
    command.arg("--").arg(directory).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(MissingPrerequisite::NoRun)?;
    if output.status.success() {
        return Ok(());
    }
    let message = match String::from_utf8_lossy(&output.stderr).trim() {
        // A helper killed by a signal prints no message.
        "" => format!("{}: {}", helper.display(), output.status),
        words => words.to_owned(),
    };
    let known = KNOWN.iter().find(|(words, _)| message.ends_with(words));
    Err(known.map_or_else(|| io::Error::other(message), |(_, error)| (*error).into()))
}
