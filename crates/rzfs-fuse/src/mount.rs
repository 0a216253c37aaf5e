//! Mounting and unmounting.

use crate::attachment::{Attached, Attachment, Detached, is_busy};
use crate::connection::{Connection, is_connected};
use crate::errands;
use crate::exchange::{Exchange, ExchangeOutcome, NotExchanged};
use crate::lack::MissingPrerequisite;
use crate::options::{Access, InUse, LeftOut, MountOptions, Nested, Opens, Restrictions};
use crate::place::{MountPlace, without_number};
use crate::process_files::hold_process_files;
use crate::session::{Server, Session};
use crate::system_mounts::{SUBTYPE, SystemMounts};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{AclType, ControlTree, Files};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a refused unmount waits for the lookup of a name.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(1);

/// How long the kernel may write back data of a mount that cannot be unmounted.
const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait for the replies to the kernel's writes.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How long a mount must answer nothing to count as stuck.
const STUCK_PATIENCE: Duration = Duration::from_secs(3);

/// Why a file system cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} '{}': {}", directory.display(), without_number(source))]
pub struct MountError {
    action: &'static str,
    directory: PathBuf,
    source: io::Error,
}

impl MountError {
    /// Whether the mount is in use.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        is_busy(&self.source)
    }

    /// Whether a retry may succeed soon: the system lacks a resource such as descriptors, threads
    /// or memory.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.lack() {
            Some(MissingPrerequisite::NoRun(error)) => lacks_resources(error),
            Some(MissingPrerequisite::Helper | MissingPrerequisite::Device) => false,
            None => lacks_resources(&self.source),
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The mount's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The missing prerequisite, if that is the reason.
    #[must_use]
    pub fn lack(&self) -> Option<&MissingPrerequisite> {
        self.source.get_ref()?.downcast_ref()
    }

    /// The reason alone, without action and directory.
    #[must_use]
    pub fn reason(&self) -> String {
        without_number(&self.source)
    }
}

fn lacks_resources(error: &io::Error) -> bool {
    const RESOURCES: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| RESOURCES.contains(&error))
}

/// A mounted file system; unmounted on drop.
#[derive(Debug)]
pub struct Mount {
    // Dropped first: a session ends with its mount.
    attached: Attached,
    session: BackgroundSession,
    /// The device of its requests.
    device: Arc<OwnedFd>,
    served: Weak<Session>,
    access: Access,
    opens: Opens,
    mounted_by: MountedBy,
    /// Whether it contains a file system that can be changed.
    is_live: bool,
}

/// The program that mounted a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MountedBy {
    /// This process.
    Ourselves,
    /// `fusermount3`. When such a session is dropped `fuser` unmounts again whatever is in its
    /// place.
    Helper,
}

impl Mount {
    /// Mounts a file system on a directory, and serves it with its own threads: read-only, or
    /// read-write if it is live and not restricted. With `control` its root has the directory
    /// `.zfs`.
    ///
    /// No other mount may serve the same live file system: the kernel caches files on the premise
    /// that only it changes them.
    ///
    /// Without root rights this needs `fusermount3`.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses.
    pub fn new(
        file_system: impl Into<Files>,
        control: Option<ControlTree>,
        directory: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let fail = |error| failure("mount", directory, io::Error::other(error));
        let place = MountPlace::named(directory).map_err(fail)?;
        let mounted = Self::with_nested(file_system, control, Vec::new(), &place, options);
        mounted.map(|(mount, _)| mount)
    }

    /// Mounts a file system and others inside it as one mount, for users who may not mount on their
    /// own mounts. Nested ones without a directory to replace are left out.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses.
    pub fn with_nested(
        file_system: impl Into<Files>,
        control: Option<ControlTree>,
        nested: Vec<Nested>,
        place: &MountPlace,
        options: &MountOptions,
    ) -> Result<(Self, Vec<LeftOut>), MountError> {
        let file_system = file_system.into();
        let is_live = file_system.live().is_some()
            || nested.iter().any(|one| one.file_system.live().is_some());
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(options.source.clone()),
            MountOption::Subtype(SUBTYPE.to_owned()),
        ];
        config.mount_options.extend(options.restrictions.mount_options(is_live));
        if options.access == Access::Everyone {
            config.acl = SessionACL::All;
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = true;
        let attach = || {
            // Unmounting needs it.
            hold_process_files()?;
            let (session, left_out) = Session::new(file_system, control, nested, options)?;
            let cache = session.kernel_cache();
            let session = Server::new(session)?;
            let served = session.session();
            match Detached::new(options, is_live)? {
                Some((mount, device)) => {
                    let acl = config.acl;
                    let session = fuser::Session::from_fd(session, device, acl, config)?;
                    cache.connect(session.notifier());
                    let device = Arc::new(session.as_fd().try_clone_to_owned()?);
                    let session = session.spawn()?;
                    let at = mount.attach(place, &device)?;
                    Ok((at, session, device, MountedBy::Ourselves, served, left_out))
                }
                None => {
                    MissingPrerequisite::check_device()?;
                    // The helper determines with this user's rights where the user may mount.
                    let session = fuser::Session::new(session, place.path(), &config)
                        .map_err(MissingPrerequisite::of_helped)?;
                    cache.connect(session.notifier());
                    let device = Arc::new(session.as_fd().try_clone_to_owned()?);
                    let session = session.spawn()?;
                    let at = Attachment::made_at(place, &options.source, &device)?;
                    Ok((at, session, device, MountedBy::Helper, served, left_out))
                }
            }
        };
        let attached = attach().map_err(|source| failure("mount", place.path(), source));
        attached.map(|(at, session, device, mounted_by, served, left_out)| {
            at.register(&options.connections);
            let attached = Attached::new(at);
            let MountOptions { access, opens, .. } = *options;
            let mount =
                Self { attached, session, device, served, access, opens, mounted_by, is_live };
            (mount, left_out)
        })
    }

    /// Grafts another file system onto a directory of the mount while it is used. The options known
    /// to the kernel stay: see [`fits_lists`](Self::fits_lists) and [`opens`](Self::opens).
    ///
    /// # Errors
    /// [`MountError`]: the place cannot be read, other file systems are there or below, or a mount
    /// is there.
    pub fn graft(&self, nested: Nested) -> Result<(), MountError> {
        let directory = self.directory().join(&nested.path);
        let graft = || {
            if self.attached.at().carries(&nested.path)? {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            let session = self.served.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            session.graft(nested)
        };
        graft().map_err(|source| failure("mount", &directory, source))
    }

    /// Removes the file system that was grafted at a path.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, see [`MountError::is_in_use`], or another one is in it.
    pub fn ungraft(&self, path: &Path) -> Result<(), MountError> {
        let directory = self.directory().join(path);
        let ungraft = || {
            if self.attached.at().carries(path)? {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            // All of it is gone with the mount.
            let Some(session) = self.served.upgrade() else { return Ok(()) };
            session.ungraft(path)
        };
        ungraft().map_err(|source| {
            // Its users have lost its name until the next lookup.
            let place = directory.clone();
            errands::attempt(LOOK_UP_PATIENCE, move || drop(std::fs::symlink_metadata(place)));
            failure("unmount", &directory, source)
        })
    }

    /// Removes the file systems that were grafted at these paths, deepest first. Their users get
    /// `ESTALE` from now on.
    pub fn ungraft_by_force(&self, paths: &[PathBuf]) {
        // All of it is gone with the mount if it is not served.
        if let Some(session) = self.served.upgrade() {
            session.ungraft_by_force(paths);
        }
    }

    /// Replaces the contents of the file system at a path of the mount while it is used: open files
    /// that the new contents have too stay usable, others return `ESTALE`.
    ///
    /// # Errors
    /// [`NotExchanged`]: nothing has changed.
    pub fn exchange<X: Exchange>(&self, path: &Path, exchange: &mut X) -> ExchangeOutcome<X> {
        let mounted = self.attached.at().mounted_within().map_err(NotExchanged::Unsuitable)?;
        let gone = || NotExchanged::Unsuitable(io::ErrorKind::NotConnected.into());
        self.served.upgrade().ok_or_else(gone)?.exchange(path, &mounted, exchange)
    }

    /// Whether a file system with or without ACLs can be added: whether the kernel enforces them
    /// was decided at mount time.
    #[must_use]
    pub fn fits_lists(&self, has_lists: bool) -> bool {
        let is_seen_to = self.served.upgrade().is_some_and(|session| session.has_lists());
        self.access.has_lists([is_seen_to, has_lists].into_iter()) == is_seen_to
    }

    /// Whether the kernel asks before files are opened.
    #[must_use]
    pub const fn opens(&self) -> Opens {
        self.opens
    }

    /// Where it was mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.attached.at().directory()
    }

    /// Whether it has ended: it was unmounted, and nothing uses it any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Whether another process has unmounted it, given a recent mount table. It may still be
    /// [reachable](Self::is_reachable).
    #[must_use]
    pub fn was_unmounted(&self, mounts: &SystemMounts) -> bool {
        // The table may miss entries while others change it, so it is read again.
        let at = self.attached.at();
        self.is_finished() || !at.is_among(mounts) && at.has_gone().unwrap_or(false)
    }

    /// Whether it can still be reached: at its place, through a bind mount, in another namespace,
    /// or through files that were open when it was detached.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        is_connected(&self.device)
    }

    /// Whether it serves this live file system alone, with these options.
    #[must_use]
    pub fn serves(&self, file_system: &Files, options: &MountOptions) -> bool {
        let (Some(live), Some(session)) = (file_system.live(), self.served.upgrade()) else {
            return false;
        };
        let is_posix = file_system.acl_type() == AclType::Posix;
        session.serves_only(live)
            && session.has_lists() == self.access.has_lists([is_posix].into_iter())
            && (self.access, self.opens) == (options.access, options.opens)
    }

    pub(crate) fn attachment(&self) -> &Attachment {
        self.attached.at()
    }

    /// The live file systems in it, as long as it has not ended.
    #[must_use]
    pub fn live_file_systems(&self) -> Vec<Arc<LiveFileSystem>> {
        self.served.upgrade().map(|session| session.all_live()).unwrap_or_default()
    }

    /// Mounts again a mount that was unmounted but is still reachable, so that all its users always
    /// see the same state, including the directories for other mounts.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses. It does so without root rights, before Linux 5.15, and
    /// when it is no longer in use.
    pub fn attach_again(
        &mut self,
        place: &MountPlace,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let attach = || {
            let mount = Detached::of_device(self.device.as_fd(), options, self.is_live)?;
            let mount = mount.ok_or(io::ErrorKind::PermissionDenied)?;
            mount.attach(place, &self.device)
        };
        let at = attach().map_err(|source| failure("mount", place.path(), source))?;
        self.attached.replace(at);
        if let Some(session) = self.served.upgrade()
            && let Err(error) = session.make_mount_points(&options.mount_points)
        {
            tracing::warn!(%error, "directories to mount on are missing");
        }
        // All users share the read-only state of the superblock. Remounting, which writes all
        // changes first, is needed only if that differs. The file system itself refuses changes
        // while there are writers.
        let read_only = options.restrictions.mount_flags(self.is_live).contains(MountFlags::RDONLY);
        if self.attached.at().is_read_only() != Some(read_only)
            && let Err(error) = self.restrict(options.restrictions)
        {
            tracing::debug!(%error, "mounted as it was");
        }
        Ok(())
    }

    /// Asks the system to unmount it. It then soon [is finished](Self::is_finished), unless it is
    /// [still reachable](Self::is_reachable) elsewhere.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, see [`MountError::is_in_use`].
    pub fn request_unmount(&self, in_use: InUse) -> Result<(), MountError> {
        if self.is_finished() {
            return Ok(());
        }
        let unmount = || {
            // Detaching would take along foreign mounts on it.
            if in_use == InUse::Detach && self.attached.at().carries(Path::new(""))? {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            self.attached.at().unmount(in_use)
        };
        unmount().map_err(|source| failure("unmount", self.directory(), source))
    }

    /// Makes the kernel write back its changes, for a mount that loses its server, or the users of
    /// its other mounts.
    pub fn write_back(&self) {
        if let Err(error) = self.sync_all() {
            tracing::warn!(%error, directory = %self.directory().display(), "not written back");
        }
        // The kernel may only have sent them; it does not report all replies.
        let at = self.attached.at();
        let start = Instant::now();
        let waiting = || at.connection().and_then(Connection::waiting_requests);
        while start.elapsed() < ANSWER_PATIENCE && waiting().is_ok_and(|number| number > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        let sync = |path: &Path| {
            let path = path.to_owned();
            let synced = errands::attempt(WRITE_BACK_PATIENCE, move || {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::syncfs(rustix::fs::open(&path, flags, Mode::empty())?)
            });
            Ok(synced.ok_or(io::ErrorKind::TimedOut)??)
        };
        // It may no longer be in any of our directories: a new mount of the device leads there.
        let options = MountOptions::new("zfs");
        match Detached::of_device(self.device.as_fd(), &options, self.is_live) {
            Ok(Some(mount)) => mount.with_path(sync)?,
            Ok(None) | Err(_) => match self.attached.at().find()? {
                Some(found) => found.entry.with_path(sync)?,
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    /// The mounts among these that have requests waiting and answer none of them during a while of
    /// observation.
    pub fn stuck_among<'a>(mounts: impl IntoIterator<Item = &'a Self>) -> Vec<&'a Self> {
        let waiting = |mount: &Self| {
            let connection = mount.attached.at().connection();
            connection.and_then(Connection::waiting_requests).unwrap_or(0)
        };
        let mut stuck: Vec<_> =
            mounts.into_iter().map(|mount| (mount, waiting(mount).max(1))).collect();
        let start = Instant::now();
        while !stuck.is_empty() && start.elapsed() < STUCK_PATIENCE {
            stuck.retain(|(mount, before)| waiting(mount) >= *before);
            std::thread::sleep(STUCK_PATIENCE / 100);
        }
        stuck.into_iter().map(|(mount, _)| mount).collect()
    }

    /// Aborts it for all its users, everywhere: their requests fail with `ENOTCONN` from now on,
    /// and unwritten data in the kernel is lost.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses. It does so before Linux 5.8, and without root rights where
    /// it shows no connections in `/sys/fs/fuse`.
    pub fn cut_off(&self) -> Result<(), MountError> {
        let cut_off = self.attached.at().connection().and_then(Connection::cut_off);
        cut_off.map_err(|error| failure("cut off", self.directory(), error))
    }

    /// Changes the restrictions that the system enforces, even while the mount is in use. A file
    /// system that is not live stays read-only.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses. This happens without root rights, and where files are
    /// open for writing in a mount that is to be read-only.
    pub fn restrict(&self, restrictions: Restrictions) -> Result<(), MountError> {
        let restricted = self.attached.at().restrict(restrictions, self.is_live);
        restricted.map_err(|error| failure("remount", self.directory(), error))
    }

    /// Updates at once whether its root directories show a `.zfs` (property `snapdir`), which the
    /// kernel caches otherwise.
    pub fn show_snapshot_directories(&self) {
        if let Some(session) = self.served.upgrade() {
            session.forget_controls();
        }
    }

    /// Unmounts it and waits for all replies.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, or the session had failed before.
    pub fn unmount(self) -> Result<(), MountError> {
        self.request_unmount(InUse::Refuse)?;
        let Self { attached, session, .. } = self;
        let ended = session.umount_and_join();
        ended.map_err(|source| failure("unmount", attached.at().directory(), source))
    }

    /// Releases a mount that has ended or was detached: if it is still in use, its threads keep
    /// serving open files.
    pub fn abandon(self) {
        let Self { attached, session, mounted_by, .. } = self;
        attached.leave();
        if mounted_by == MountedBy::Helper {
            return std::mem::forget(session);
        }
        let wait = move || {
            if let Err(error) = session.join() {
                tracing::warn!(%error, "a mount that has ended");
            }
        };
        // Its remaining users are not waited for; without a thread only descriptors leak.
        let _ = std::thread::Builder::new().name("rzfs-abandoned".to_owned()).spawn(wait);
    }
}

fn failure(action: &'static str, directory: &Path, source: io::Error) -> MountError {
    MountError { action, directory: directory.to_owned(), source }
}
