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

/// How long an unmount that is refused waits for a name that somebody may ask for.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(1);

/// How long the kernel may write what it has of a mount that cannot be unmounted.
const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait for the answers to what the kernel has written.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How long nothing is answered by whoever answers nothing any more.
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

    /// Whether it may go better in a moment: the system lacks what comes back, as descriptors,
    /// threads and memory do.
    #[must_use]
    pub fn is_momentary(&self) -> bool {
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

    /// What the system lacks, if it is that.
    #[must_use]
    pub fn lack(&self) -> Option<&MissingPrerequisite> {
        self.source.get_ref()?.downcast_ref()
    }

    /// Why, without what and where.
    #[must_use]
    pub fn reason(&self) -> String {
        without_number(&self.source)
    }
}

fn lacks_resources(error: &io::Error) -> bool {
    const RESOURCES: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| RESOURCES.contains(&error))
}

/// A mounted file system; unmounted when it is dropped.
#[derive(Debug)]
pub struct Mount {
    // The first to be dropped: a session ends with its mount.
    attached: Attached,
    session: BackgroundSession,
    /// Where its requests come from.
    device: Arc<OwnedFd>,
    served: Weak<Session>,
    access: Access,
    opens: Opens,
    mounted_by: MountedBy,
    /// Whether there is a file system in it that can be changed.
    is_live: bool,
}

/// Who has mounted a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MountedBy {
    /// This process.
    Ourselves,
    /// `fusermount3`. When such a session is dropped `fuser` unmounts once more whatever is in its
    /// place.
    Helper,
}

impl Mount {
    /// Mounts a file system on a directory, and answers its requests from threads of its own: for
    /// reading, or for writing too if it is a live one and not restricted. With `control` its root
    /// has the directory `.zfs`.
    ///
    /// No other mount may serve the same live file system: the kernel keeps what it has learnt of
    /// files, since only it changes them.
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

    /// Mounts a file system with others in it: one mount for all of them. For users who may not
    /// mount on what they have mounted. Others that have no directory to stand for are left out.
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
            // Without, it could not be unmounted.
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
                    // The helper looks where this user may mount, with this user's rights.
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

    /// Has one more file system stand for a directory of the mount, which goes on being used. The
    /// kernel's part stays as it is: see [`fits_lists`](Self::fits_lists) and
    /// [`opens`](Self::opens).
    ///
    /// # Errors
    /// [`MountError`]: the place cannot be read, others are there or below, or something is mounted
    /// there.
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

    /// Takes a file system out of the mount again: what was grafted at a path.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, see [`MountError::is_in_use`], or another one is in it.
    pub fn ungraft(&self, path: &Path) -> Result<(), MountError> {
        let directory = self.directory().join(path);
        let ungraft = || {
            if self.attached.at().carries(path)? {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            // All of it has gone with the mount.
            let Some(session) = self.served.upgrade() else { return Ok(()) };
            session.ungraft(path)
        };
        ungraft().map_err(|source| {
            // Who is in there has lost its name, until somebody looks it up.
            let place = directory.clone();
            errands::attempt(LOOK_UP_PATIENCE, move || drop(std::fs::symlink_metadata(place)));
            failure("unmount", &directory, source)
        })
    }

    /// Takes file systems out of the mount again: what was grafted at these paths, the deepest
    /// first. Who is in one of them gets `ESTALE` from now on.
    pub fn ungraft_by_force(&self, paths: &[PathBuf]) {
        // All of it has gone with the mount if nobody serves it.
        if let Some(session) = self.served.upgrade() {
            session.ungraft_by_force(paths);
        }
    }

    /// Gives the file system that is at a path of the mount other contents, while it is used: who has
    /// files open that the new contents have too goes on with them, of others with `ESTALE`.
    ///
    /// # Errors
    /// [`NotExchanged`]: everything is as it was.
    pub fn exchange<X: Exchange>(&self, path: &Path, exchange: &mut X) -> ExchangeOutcome<X> {
        let mounted = self.attached.at().mounted_within().map_err(NotExchanged::Unsuitable)?;
        let gone = || NotExchanged::Unsuitable(io::ErrorKind::NotConnected.into());
        self.served.upgrade().ok_or_else(gone)?.exchange(path, &mounted, exchange)
    }

    /// Whether a file system that has lists of access rights, or has none, can be added: whether
    /// the kernel sees to them was decided when it was mounted.
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

    /// Whether it has ended: it was unmounted, and nobody has it any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Whether somebody else has unmounted it, given what was mounted a moment ago. Others may
    /// still [reach it](Self::is_reachable).
    #[must_use]
    pub fn was_unmounted(&self, mounts: &SystemMounts) -> bool {
        // The table may lack what is there while others change it, so it is looked at again.
        let at = self.attached.at();
        self.is_finished() || !at.is_among(mounts) && at.has_gone().unwrap_or(false)
    }

    /// Whether somebody can still get at it: where it was mounted, where a bind mount has it too,
    /// in another namespace, or through what was open when it was detached.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        is_connected(&self.device)
    }

    /// Whether it serves a file system that changes, and no other, in the way that is asked for.
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

    /// The file systems in it that change, as long as it has not ended.
    #[must_use]
    pub fn live_file_systems(&self) -> Vec<Arc<LiveFileSystem>> {
        self.served.upgrade().map(|session| session.all_live()).unwrap_or_default()
    }

    /// Mounts what has ended and somebody still has once more, so that all who have it see
    /// the same at every moment, the directories for other mounts included.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses. It does so without root rights, before Linux 5.15, and
    /// when nobody has it any more.
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
        // Whether anything can be changed is the same for all who have it. Only if that differs it
        // is mounted anew, as all that they have changed is written before. If somebody writes, the
        // file system refuses changes itself.
        let read_only = options.restrictions.mount_flags(self.is_live).contains(MountFlags::RDONLY);
        if self.attached.at().is_read_only() != Some(read_only)
            && let Err(error) = self.restrict(options.restrictions)
        {
            tracing::debug!(%error, "mounted as it was");
        }
        Ok(())
    }

    /// Asks the system to unmount it. Afterwards it [is finished](Self::is_finished) soon, unless
    /// it is [still reachable](Self::is_reachable) elsewhere.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, see [`MountError::is_in_use`].
    pub fn request_unmount(&self, in_use: InUse) -> Result<(), MountError> {
        if self.is_finished() {
            return Ok(());
        }
        let unmount = || {
            // Detaching would take along what others have mounted on it.
            if in_use == InUse::Detach && self.attached.at().carries(Path::new(""))? {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            self.attached.at().unmount(in_use)
        };
        unmount().map_err(|source| failure("unmount", self.directory(), source))
    }

    /// Has the kernel write what it has of changes that were made through it, for a mount that
    /// loses its server, or those who have it elsewhere.
    pub fn write_back(&self) {
        if let Err(error) = self.sync_all() {
            tracing::warn!(%error, directory = %self.directory().display(), "not written back");
        }
        // The kernel may only have sent it; it does not tell everybody what is answered.
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
        // It may be in no directory of ours any more: a mount of its own leads there.
        let options = MountOptions::new("zfs");
        match Detached::of_device(self.device.as_fd(), &options, self.is_live) {
            Ok(Some(mount)) => mount.with_path(sync)?,
            Ok(None) | Err(_) => match self.attached.at().find()? {
                Some(found) => found.entry.with_path(sync)?,
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    /// Those of some mounts of which requests wait, and none is answered for a while, in which all
    /// of them are watched.
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

    /// Takes it from all who have it, wherever that is: what they ask from now on fails with
    /// `ENOTCONN`, and what the kernel had not written yet is lost.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses. It does so before Linux 5.8, and without root rights where
    /// it shows no connections in `/sys/fs/fuse`.
    pub fn cut_off(&self) -> Result<(), MountError> {
        let cut_off = self.attached.at().connection().and_then(Connection::cut_off);
        cut_off.map_err(|error| failure("cut off", self.directory(), error))
    }

    /// Has the system let other things happen than so far, also while the mount is in use. A file
    /// system that is not a live one stays read-only.
    ///
    /// # Errors
    /// [`MountError`]: the system refuses. It does so without root rights, and where files are open
    /// for writing in a mount that is to be read-only.
    pub fn restrict(&self, restrictions: Restrictions) -> Result<(), MountError> {
        let restricted = self.attached.at().restrict(restrictions, self.is_live);
        restricted.map_err(|error| failure("remount", self.directory(), error))
    }

    /// Has it show at once whether its root directories have a `.zfs` (property `snapdir`), which
    /// the kernel remembers otherwise.
    pub fn show_snapshot_directories(&self) {
        if let Some(session) = self.served.upgrade() {
            session.forget_controls();
        }
    }

    /// Unmounts it and waits until all requests are answered.
    ///
    /// # Errors
    /// [`MountError`]: it is in use, or the session had failed before.
    pub fn unmount(self) -> Result<(), MountError> {
        self.request_unmount(InUse::Refuse)?;
        let Self { attached, session, .. } = self;
        let ended = session.umount_and_join();
        ended.map_err(|source| failure("unmount", attached.at().directory(), source))
    }

    /// Lets go of a mount that has ended or was detached: the threads of one that is still in use
    /// serve whoever has files open.
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
        // Nobody waits for those who still use it; without a thread nothing is lost but
        // descriptors.
        let _ = std::thread::Builder::new().name("rzfs-abandoned".to_owned()).spawn(wait);
    }
}

fn failure(action: &'static str, directory: &Path, source: io::Error) -> MountError {
    MountError { action, directory: directory.to_owned(), source }
}
