//! The state of a mount: file systems, one of which serves each request.

mod changes;
mod exchange;
mod gate;
mod grafting;
mod places;
mod requests;
mod seeking;
mod told;
mod waiting;

pub(crate) use waiting::Server;

use crate::adapter::{Adapter, NONE};
use crate::answer::Answer;
use crate::attributes::Entry;
use crate::durability::Durability;
use crate::grafts::Grafts;
use crate::kernel_cache::{KernelCache, PageDropper};
use crate::mount_points::MountPoints;
use crate::options::{LeftOut, MountOptions, Nested, Opens};
use crate::wakefulness::Wakefulness;
use fuser::{
    Errno, FileAttr, INodeNo, InitFlags, KernelConfig, ReplyDirectory, ReplyDirectoryPlus,
};
use gate::{Gate, Pass};
use places::{NotInserted, Places};
use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{AclType, ControlTree, DirCookie, Files};
use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// Maximum read-ahead of the kernel, in bytes.
const MAX_READ_AHEAD: u32 = 1 << 20;

/// Capabilities requested of the kernel if it has them: large and parallel requests, attributes
/// with listings, no needless requests.
const WANTED: [InitFlags; 10] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// Maximum size of a write of the kernel. It exceeds this only if the administrator configures
/// that.
const MAX_WRITE: u32 = 1 << 20;

/// Capabilities requested besides for live file systems: the file system applies umasks, since a
/// default ACL replaces them, and clears set-user-id and set-group-id, for which the kernel would
/// otherwise query at every write; the kernel only reports when an ACL clears them.
const WANTED_FOR_CHANGES: [InitFlags; 4] = [
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_SETXATTR_EXT,
];

/// Maximum number of background requests (read-ahead, direct I/O, pages of mappings) in flight: as
/// many as the kernel can count, since those that wait for a suspended pool are among them and must
/// not hold up others. Its own limits of dirty pages and asynchronous requests are reached first.
const MAX_BACKGROUND: u16 = u16::MAX;
/// The count at which the kernel considers the file system congested, and stops read-ahead and
/// background writeback.
const CONGESTION: u16 = 48;

/// The state of a mount.
pub(crate) struct Session {
    /// The current file system at the root.
    root: RwLock<Arc<Adapter>>,
    /// Every request passes through it.
    gate: Gate,
    /// The file systems grafted into it.
    grafts: Grafts<Adapter>,
    places: Places,
    /// Blocks changes of directory names while file systems are grafted.
    shape: RwLock<()>,
    /// Whether the kernel enforces ACLs.
    lists: bool,
    /// The kernel's capabilities, once reported.
    kernel: OnceLock<InitFlags>,
    opens: Opens,
    cache: KernelCache,
    /// Requests that wait for the disk; only with a live file system.
    durability: Option<Arc<Durability>>,
    /// The same for writes that bypass the kernel's pages.
    pages: Option<PageDropper>,
    wakefulness: Option<Arc<Wakefulness>>,
    _while_mounted: Option<Arc<dyn Any + Send + Sync>>,
}

fn invalid(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error.code())
}

impl Session {
    /// A file system with nested ones and with directories for other mounts; also returns the
    /// nested ones without a place.
    ///
    /// # Errors
    /// A directory above a mount point cannot be read, or the system cannot start a thread.
    pub(crate) fn new(
        head: Files,
        control: Option<ControlTree>,
        mut nested: Vec<Nested>,
        options: &MountOptions,
    ) -> io::Result<(Self, Vec<LeftOut>)> {
        let paths: Vec<&Path> = options.mount_points.iter().map(PathBuf::as_path).collect();
        let directories = MountPoints::missing(&head, &paths)?;
        let is_live = head.live().is_some();
        let all = std::iter::once(&head).chain(nested.iter().map(|one| &one.file_system));
        let lists = options.access.has_lists(all.map(|one| one.acl_type() == AclType::Posix));
        let cache = KernelCache::default();
        let (durability, pages) = if is_live {
            (Some(Arc::new(Durability::start()?)), Some(PageDropper::start(cache.clone())?))
        } else {
            (None, None)
        };
        let session = Self {
            root: RwLock::new(Arc::new(Adapter::new(head, control, directories))),
            gate: Gate::default(),
            grafts: Grafts::default(),
            places: Places::default(),
            shape: RwLock::default(),
            lists,
            kernel: OnceLock::new(),
            opens: options.opens,
            cache,
            durability,
            pages,
            wakefulness: options.wakefulness.clone(),
            _while_mounted: options.while_mounted.clone(),
        };
        nested.sort_by_key(|one| one.path.components().count());
        let mut left_out = Vec::new();
        for one in nested {
            let path = one.path.clone();
            if let Err(NotInserted { error, .. }) = session.insert(one) {
                left_out.push(LeftOut { path, error });
            }
        }
        Ok((session, left_out))
    }

    /// The file system at the root.
    fn root(&self) -> Arc<Adapter> {
        Arc::clone(&self.root.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Admits a request, during whose pass no contents are exchanged. A thread must not take a
    /// second pass meanwhile.
    fn enter(&self) -> Pass<'_> {
        self.gate.enter()
    }

    /// The file system at the root if it is live; all others are of the same pool.
    fn live(&self) -> Option<Arc<LiveFileSystem>> {
        self.root().head().live().cloned()
    }

    /// Whether it serves this file system and no other.
    pub(crate) fn serves_only(&self, file_system: &Arc<LiveFileSystem>) -> bool {
        self.live().is_some_and(|live| Arc::ptr_eq(&live, file_system)) && self.grafts.is_empty()
    }

    /// The live file systems.
    pub(crate) fn all_live(&self) -> Vec<Arc<LiveFileSystem>> {
        let grafted = self.grafts.all();
        let grafted = grafted.iter().filter_map(|one| one.head().live().cloned());
        self.live().into_iter().chain(grafted).collect()
    }

    /// Whether the kernel enforces ACLs.
    pub(crate) const fn has_lists(&self) -> bool {
        self.lists
    }

    /// Whether the kernel has a capability.
    fn kernel_can(&self, flag: InitFlags) -> bool {
        self.kernel.get().is_some_and(|flags| flags.contains(flag))
    }

    /// Whether setting an ACL comes with the kernel's decision about set-group-id: it does if the
    /// kernel has that capability and enforces ACLs.
    fn gets_group_decision(&self) -> bool {
        self.lists && self.kernel_can(InitFlags::FUSE_SETXATTR_EXT)
    }

    /// The kernel's caches of this mount.
    pub(crate) fn kernel_cache(&self) -> KernelCache {
        self.cache.clone()
    }

    /// Makes the kernel ask again whether the roots of its file systems have a `.zfs`.
    pub(crate) fn forget_controls(&self) {
        let grafted = self.grafts.numbers().into_iter();
        let grafted = grafted.filter_map(|number| self.grafts.outer(number, INodeNo::ROOT));
        for root in std::iter::once(INodeNo::ROOT).chain(grafted) {
            self.cache.forget_control(root);
        }
    }

    /// The file system of a number of the mount, with its position, and the number there. Every
    /// request starts with it.
    fn inner(&self, outer: INodeNo) -> Answer<(usize, Arc<Adapter>, INodeNo)> {
        if let Some(wakefulness) = &self.wakefulness {
            wakefulness.note_request();
        }
        let (index, inner) = self.grafts.inner(outer).ok_or(Errno::ESTALE)?;
        Ok((index, self.file_system(index)?, inner))
    }

    /// A file system by its position.
    fn file_system(&self, index: usize) -> Answer<Arc<Adapter>> {
        match index {
            0 => Ok(self.root()),
            _ => self.grafts.get(index).ok_or(Errno::ESTALE),
        }
    }

    /// Prevents grafting while directory names change.
    fn keep_shape(&self) -> RwLockReadGuard<'_, ()> {
        self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attributes with the mount's number.
    fn numbered(&self, index: usize, mut attributes: FileAttr) -> Answer<FileAttr> {
        attributes.ino = self.grafts.outer(index, attributes.ino).ok_or(Errno::ENFILE)?;
        Ok(attributes)
    }

    /// A file as a FUSE entry with the mount's number: the kernel knows it from now on.
    fn entry(&self, index: usize, entry: Entry) -> Answer<Entry> {
        let entry = self.numbered_entry(index, entry)?;
        self.grafts.count(index);
        Ok(entry)
    }

    fn numbered_entry(&self, index: usize, mut entry: Entry) -> Answer<Entry> {
        entry.attributes = self.numbered(index, entry.attributes)?;
        if entry.attributes.ino == INodeNo::ROOT {
            // The kernel has created it itself.
            entry.generation = NONE;
        }
        Ok(entry)
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Answer<Entry> {
        let (index, adapter, directory) = self.inner(parent)?;
        // The kernel looks these two up only for files known by a handle alone.
        if name.as_bytes() == b"." {
            return self.entry(index, adapter.by_number(directory)?);
        }
        if name.as_bytes() == b".."
            && directory == INodeNo::ROOT
            && let Some((around, place)) = self.grafts.place_of(index)
        {
            let adapter = self.file_system(around)?;
            return self.entry(around, adapter.look_up(place, b"..")?);
        }
        let entry = adapter.look_up(directory, name.as_bytes())?;
        let place = (index, entry.attributes.ino);
        match self.grafts.enter(place, (parent, name)) {
            Some((grafted, of_root)) => {
                // The kernel does not learn of the covered directory.
                adapter.forget(entry.attributes.ino, 1);
                let root = of_root.root().and_then(|mut root| {
                    // The name belongs to the enclosing directory.
                    root.lifetime.name = entry.lifetime.name;
                    self.numbered_entry(grafted, root)
                });
                root.inspect_err(|_| self.grafts.forget(grafted, 1))
            }
            None => self.entry(index, entry),
        }
    }

    /// How long the kernel may cache the absence of a name in a directory.
    fn absence_lifetime(&self, parent: INodeNo) -> Duration {
        let inner = self.inner(parent);
        inner.map_or(Duration::ZERO, |(_, adapter, directory)| adapter.absence_lifetime(directory))
    }

    fn forget(&self, inode: INodeNo, lookups: u64) {
        let Some((index, inner)) = self.grafts.inner(inode) else { return };
        if let Ok(adapter) = self.file_system(index) {
            adapter.forget(inner, lookups);
        }
        self.grafts.forget(index, lookups);
    }

    fn attributes(&self, inode: INodeNo) -> Answer<(FileAttr, Duration)> {
        let (index, adapter, inode) = self.inner(inode)?;
        let (mut attributes, lifetime) = adapter.shown_attributes(inode)?;
        // The root of a graft has the number by which it was looked up.
        if index > 0 && inode == INodeNo::ROOT {
            attributes.ino = INodeNo::ROOT;
        }
        Ok((self.numbered(index, attributes)?, lifetime))
    }

    fn note_access(&self, inode: INodeNo) {
        if let Ok((_, adapter, inode)) = self.inner(inode) {
            adapter.note_access(inode);
        }
    }

    /// Negotiates the capabilities of this mount with the kernel.
    fn negotiate(&self, config: &mut KernelConfig) {
        let changes = if self.durability.is_some() { &WANTED_FOR_CHANGES[..] } else { &[] };
        for flag in WANTED.iter().chain(changes) {
            // Capabilities that the kernel lacks are optional.
            let _ = config.add_capabilities(*flag);
        }
        if self.lists {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_readahead(MAX_READ_AHEAD);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(CONGESTION);
        // The kernel reports this once.
        let _ = self.kernel.set(config.capabilities());
    }

    /// Writes pending changes: the mount has ended.
    fn close(&self) {
        self.grafts.all().iter().for_each(|one| one.close());
        self.root().close();
    }

    fn list_with_attributes(
        &self,
        directory: INodeNo,
        from: DirCookie,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let (index, adapter, directory) = self.inner(directory)?;
        adapter.list_with_attributes(directory, from, |name, next, known, placeholder| {
            let named = known.and_then(|entry| {
                let is_grafted = self.grafts.is_place(index, entry.attributes.ino);
                let shown = if is_grafted { None } else { self.entry(index, entry).ok() };
                if shown.is_none() {
                    // The entry was not sent.
                    adapter.forget(entry.attributes.ino, 1);
                }
                shown
            });
            match named {
                Some(Entry { attributes, generation, lifetime }) => {
                    let inode = attributes.ino;
                    let lifetime = lifetime.name.min(lifetime.attributes);
                    let is_full =
                        reply.add(inode, next.0, name, &lifetime, &attributes, generation);
                    if is_full {
                        // The entry does not fit, so the kernel does not learn of it.
                        self.forget(inode, 1);
                    }
                    is_full
                }
                // Without attributes the kernel asks for them when needed: the number 0 and no
                // lifetime say so.
                None => {
                    let ino = self.listed_number(index, placeholder.ino);
                    let shown = FileAttr { ino, ..*placeholder };
                    reply.add(INodeNo(0), next.0, name, &Duration::ZERO, &shown, NONE)
                }
            }
        })
    }

    fn list_names(
        &self,
        directory: INodeNo,
        from: DirCookie,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        let (index, adapter, directory) = self.inner(directory)?;
        adapter.list_names(directory, from, |inode, next, kind, name| {
            reply.add(self.listed_number(index, inode), next.0, kind, name)
        })
    }

    /// The mount's number of a listed entry: that of the root of a file system grafted there.
    fn listed_number(&self, index: usize, inode: INodeNo) -> INodeNo {
        let (of, inner) = match self.grafts.at((index, inode)) {
            Some(grafted) => (grafted, INodeNo::ROOT),
            None => (index, inode),
        };
        self.grafts.outer(of, inner).unwrap_or(inode)
    }
}
