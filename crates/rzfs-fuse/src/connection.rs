//! The connections between mounts and this process, as the kernel numbers them.
//!
//! A connection is identified, and aborted, by its number: this sends no request to a mount, and
//! follows no path, which might lead through another mount whose server does not respond.

use crate::system_mounts::{KIND, MountId, SystemMount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Whether the file system that a FUSE device serves still exists: a mount anywhere, or a file that
/// was open when the last one was detached.
pub(crate) fn is_connected(device: &OwnedFd) -> bool {
    let mut devices = [PollFd::new(device, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The kernel reports the end of the connection as an error on the device.
    !poll(&mut devices, Some(&at_once)).is_ok_and(|told| told > 0)
}

/// A connection of this process, current or former.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection<'a> {
    pub(crate) device: &'a OwnedFd,
    /// Major and minor number of the superblock, unique as long as it lasts.
    pub(crate) superblock: (u32, u32),
}

impl Connection<'_> {
    /// Aborts it for all users of its mounts, wherever these are.
    ///
    /// # Errors
    /// The system refuses. Without root rights this happens where it shows no connections.
    pub(crate) fn cut_off(self) -> io::Result<()> {
        if let Some(abort) = self.file("abort", OFlags::WRONLY)? {
            rustix::io::write(&abort, b"1")?;
        }
        Ok(())
    }

    /// The number of unanswered requests from all mounts.
    ///
    /// # Errors
    /// The system does not show any.
    pub(crate) fn waiting_requests(self) -> io::Result<u64> {
        let Some(waiting) = self.file("waiting", OFlags::RDONLY)? else { return Ok(0) };
        let number = io::read_to_string(File::from(waiting))?;
        number.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// A control file of the connection; `None` if that has ended.
    fn file(self, name: &str, access: OFlags) -> io::Result<Option<OwnedFd>> {
        let connections = connections().or_else(|_| shown_connections())?;
        // Connections have the minor number of their superblock, the major number is 0.
        let (_, number) = self.superblock;
        let path = format!("{number}/{name}");
        let file = match openat(&connections, path, access | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        // Ours had this number as long as it lasts. If it still lasts the file is its own; an ended
        // one is not written to.
        Ok(is_connected(self.device).then_some(file))
    }
}

/// The directory in which the system shows FUSE connections. It need not be mounted.
fn connections() -> io::Result<OwnedFd> {
    let context = fsopen(c"fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The same at its usual mount point, for users who may not mount it. A connection's files belong
/// to the user who made the mount.
fn shown_connections() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(c"/sys/fs/fuse/connections", flags, Mode::empty())?)
}

/// The connections of all mounts made with the same [`Connections`], so that they can be aborted
/// even if mounts, and the threads that change them, hang. Locked only briefly.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Vec<Registered>>>);

/// A connection, as long as its mount is held.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    device: Weak<OwnedFd>,
    superblock: (u32, u32),
    source: String,
}

impl Connections {
    fn locked(&self) -> MutexGuard<'_, Vec<Registered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the connection of a mount.
    pub(crate) fn add(&self, device: &Arc<OwnedFd>, id: MountId, source: &str) {
        let mut all = self.locked();
        all.retain(|one| one.device.strong_count() > 0);
        let (device, source) = (Arc::downgrade(device), source.to_owned());
        all.push(Registered { device, superblock: id.superblock, source });
    }

    /// Aborts all of them for all users of their mounts, as far as this user may, without waiting;
    /// returns the aborted ones.
    pub(crate) fn cut_off(&self) -> Vec<Registered> {
        let all = self.locked().clone();
        all.into_iter().filter_map(Registered::cut_off).collect()
    }
}

impl Registered {
    /// Aborts it; `None` if it has ended before.
    fn cut_off(self) -> Option<Self> {
        let device = self.device.upgrade().filter(|device| is_connected(device))?;
        let connection = Connection { device: &device, superblock: self.superblock };
        if let Err(error) = connection.cut_off() {
            tracing::warn!(%error, source = self.source, "a mount is not cut off");
        }
        Some(self)
    }

    /// Whether an existing mount uses this connection.
    pub(crate) fn has(&self, mount: &SystemMount) -> bool {
        mount.kind == KIND && mount.id.superblock == self.superblock && mount.source == self.source
    }
}
