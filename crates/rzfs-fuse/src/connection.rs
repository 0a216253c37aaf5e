//! The connections between mounts and this process, as the kernel numbers them.
//!
//! A connection is known by a number, and ended by it: nothing is asked of a mount for that, and no
//! path is followed, which may lead through another mount whose process does not answer.

use crate::system_mounts::{KIND, MountId, SystemMount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Whether anything is left of the file system that a FUSE device serves: a mount, anywhere, or a
/// file that was open when the last one was detached.
pub(crate) fn is_connected(device: &OwnedFd) -> bool {
    let mut devices = [PollFd::new(device, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The kernel tells the server that nobody is left by an error on its device.
    !poll(&mut devices, Some(&at_once)).is_ok_and(|told| told > 0)
}

/// A connection that this process has, or had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection<'a> {
    pub(crate) device: &'a OwnedFd,
    /// Major and minor number of the superblock, which is its own as long as it lasts.
    pub(crate) superblock: (u32, u32),
}

impl Connection<'_> {
    /// Ends it for all who have its mounts, wherever these are.
    ///
    /// # Errors
    /// The system refuses. Without root rights it does so where it shows no connections.
    pub(crate) fn cut_off(self) -> io::Result<()> {
        if let Some(abort) = self.file("abort", OFlags::WRONLY)? {
            rustix::io::write(&abort, b"1")?;
        }
        Ok(())
    }

    /// How many requests wait for an answer, wherever they come from.
    ///
    /// # Errors
    /// The system does not show any.
    pub(crate) fn waiting_requests(self) -> io::Result<u64> {
        let Some(waiting) = self.file("waiting", OFlags::RDONLY)? else { return Ok(0) };
        let number = io::read_to_string(File::from(waiting))?;
        number.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// A file in which the system shows, or ends, the connection; nothing if that has ended.
    fn file(self, name: &str, access: OFlags) -> io::Result<Option<OwnedFd>> {
        let connections = connections().or_else(|_| shown_connections())?;
        // Connections have the minor number of their superblock, the major number is 0.
        let (_, number) = self.superblock;
        let path = format!("{number}/{name}");
        let file = match openat(&connections, path, access | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        // Ours had the number for as long as it lasts. If it is there still, the file is its own,
        // and does nothing when it has gone.
        Ok(is_connected(self.device).then_some(file))
    }
}

/// The directory in which the system shows the connections of FUSE. It may be mounted nowhere.
fn connections() -> io::Result<OwnedFd> {
    let context = fsopen(c"fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The same where it usually is mounted, for users who may not do that. What is shown of a
/// connection belongs to the user who has mounted it.
fn shown_connections() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(c"/sys/fs/fuse/connections", flags, Mode::empty())?)
}

/// The connections of the mounts that have been made with the same [`Connections`], for whoever has
/// to end them though mounts, and those who change mounts, may wait for ever. Locked for a moment
/// only.
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

    /// Adds that of a mount.
    pub(crate) fn add(&self, device: &Arc<OwnedFd>, id: MountId, source: &str) {
        let mut all = self.locked();
        all.retain(|one| one.device.strong_count() > 0);
        let (device, source) = (Arc::downgrade(device), source.to_owned());
        all.push(Registered { device, superblock: id.superblock, source });
    }

    /// Ends all of them for all who have their mounts, where this user may do so, which waits for
    /// nothing; answers which they were.
    pub(crate) fn cut_off(&self) -> Vec<Registered> {
        let all = self.locked().clone();
        all.into_iter().filter_map(Registered::cut_off).collect()
    }
}

impl Registered {
    /// Ends it; nothing if it has ended before.
    fn cut_off(self) -> Option<Self> {
        let device = self.device.upgrade().filter(|device| is_connected(device))?;
        let connection = Connection { device: &device, superblock: self.superblock };
        if let Err(error) = connection.cut_off() {
            tracing::warn!(%error, source = self.source, "a mount is not cut off");
        }
        Some(self)
    }

    /// Whether a mount that there is has it.
    pub(crate) fn has(&self, mount: &SystemMount) -> bool {
        mount.kind == KIND && mount.id.superblock == self.superblock && mount.source == self.source
    }
}
