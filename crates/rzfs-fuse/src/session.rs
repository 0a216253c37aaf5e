//! What a mount serves: file systems, one of which each request goes to.

mod changes;
mod exchange;
mod gate;
mod grafting;
mod places;
mod requests;
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

/// Most bytes that the kernel should read ahead.
const MAX_READ_AHEAD: u32 = 1 << 20;

/// What the kernel is asked for, each if it has it: large and parallel requests, attributes with
/// listings, no request where none is needed.
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

/// Most bytes that the kernel should write at once. More it does not take without being told to by
/// the administrator.
const MAX_WRITE: u32 = 1 << 20;

/// What the kernel is asked for besides when something can change: umasks are for the file system
/// to apply, since a default list of access rights takes their place; and so is taking set-user-id
/// and set-group-id away, as the kernel would look for them at every write; but it is to say when a
/// list of access rights takes them.
const WANTED_FOR_CHANGES: [InitFlags; 4] = [
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_SETXATTR_EXT,
];

/// Requests in the background (reading ahead, direct reads and writes, pages of mappings) that the
/// kernel may have open at once: as many as it can count, since those that wait for a suspended
/// pool are among them, and must not hold up others. Its own limits of dirty pages and of
/// asynchronous requests are reached before.
const MAX_BACKGROUND: u16 = u16::MAX;
/// From how many on it calls the file system busy, and neither reads ahead of what is asked for nor
/// writes pages that nobody waits for.
const CONGESTION: u16 = 48;

/// What a mount serves.
pub(crate) struct Session {
    /// The file system at the root, as it is now.
    root: RwLock<Arc<Adapter>>,
    /// What every request goes through.
    gate: Gate,
    /// Those that are in it.
    grafts: Grafts<Adapter>,
    places: Places,
    /// Names of directories do not change while others are put into them.
    shape: RwLock<()>,
    /// Whether the kernel sees to lists of access rights.
    lists: bool,
    /// What the kernel can do, once it has said so.
    kernel: OnceLock<InitFlags>,
    opens: Opens,
    cache: KernelCache,
    /// Requests that wait for the disk; of a mount in which something can change.
    durability: Option<Arc<Durability>>,
    /// The same for writes past the kernel's pages.
    pages: Option<PageDropper>,
    wakefulness: Option<Arc<Wakefulness>>,
    _while_mounted: Option<Arc<dyn Any + Send + Sync>>,
}

fn invalid(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error.code())
}

impl Session {
    /// A file system with others in it, and with directories for other mounts; and which of the
    /// others have no place.
    ///
    /// # Errors
    /// A directory on the way to a mount point cannot be read, or the system has no thread.
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

    /// Lets a request in, which nobody exchanges contents under while it has the pass. Nobody asks for a
    /// second one meanwhile.
    fn enter(&self) -> Pass<'_> {
        self.gate.enter()
    }

    /// The file system at the root if it changes; all are of the same pool.
    fn live(&self) -> Option<Arc<LiveFileSystem>> {
        self.root().head().live().cloned()
    }

    /// Whether it has a file system, and no other.
    pub(crate) fn serves_only(&self, file_system: &Arc<LiveFileSystem>) -> bool {
        self.live().is_some_and(|live| Arc::ptr_eq(&live, file_system)) && self.grafts.is_empty()
    }

    /// The file systems that change.
    pub(crate) fn all_live(&self) -> Vec<Arc<LiveFileSystem>> {
        let grafted = self.grafts.all();
        let grafted = grafted.iter().filter_map(|one| one.head().live().cloned());
        self.live().into_iter().chain(grafted).collect()
    }

    /// Whether the kernel sees to lists of access rights.
    pub(crate) const fn has_lists(&self) -> bool {
        self.lists
    }

    /// Whether the kernel can do something.
    fn kernel_can(&self, flag: InitFlags) -> bool {
        self.kernel.get().is_some_and(|flags| flags.contains(flag))
    }

    /// Whether the kernel says who may not leave set-group-id on a file when its list of access
    /// rights is set: it does if it can, and sees to the lists.
    fn is_told_of_groups(&self) -> bool {
        self.lists && self.kernel_can(InitFlags::FUSE_SETXATTR_EXT)
    }

    /// What the kernel keeps of what this answers.
    pub(crate) fn kernel_cache(&self) -> KernelCache {
        self.cache.clone()
    }

    /// Has the kernel ask again whether there is a `.zfs` in the roots of its file systems.
    pub(crate) fn forget_controls(&self) {
        let grafted = self.grafts.numbers().into_iter();
        let grafted = grafted.filter_map(|number| self.grafts.outer(number, INodeNo::ROOT));
        for root in std::iter::once(INodeNo::ROOT).chain(grafted) {
            self.cache.forget_control(root);
        }
    }

    /// The file system that a number of the mount belongs to, with its position, and the number
    /// there. Every request begins with it.
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

    /// Keeps others from being grafted while names of directories change.
    fn keep_shape(&self) -> RwLockReadGuard<'_, ()> {
        self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attributes with the mount's number.
    fn numbered(&self, index: usize, mut attributes: FileAttr) -> Answer<FileAttr> {
        attributes.ino = self.grafts.outer(index, attributes.ino).ok_or(Errno::ENFILE)?;
        Ok(attributes)
    }

    /// A file as an answer names it, with the mount's number: the kernel knows it from now on.
    fn entry(&self, index: usize, entry: Entry) -> Answer<Entry> {
        let entry = self.numbered_entry(index, entry)?;
        self.grafts.count(index);
        Ok(entry)
    }

    fn numbered_entry(&self, index: usize, mut entry: Entry) -> Answer<Entry> {
        entry.attributes = self.numbered(index, entry.attributes)?;
        if entry.attributes.ino == INodeNo::ROOT {
            // The kernel has made it itself.
            entry.generation = NONE;
        }
        Ok(entry)
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Answer<Entry> {
        let (index, adapter, directory) = self.inner(parent)?;
        // The kernel asks for these two only about files of which it has nothing but a handle.
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
                // What is below is not what the kernel gets to know.
                adapter.forget(entry.attributes.ino, 1);
                let root = of_root.root().and_then(|mut root| {
                    // The name is one of the directory around.
                    root.lifetime.name = entry.lifetime.name;
                    self.numbered_entry(grafted, root)
                });
                root.inspect_err(|_| self.grafts.forget(grafted, 1))
            }
            None => self.entry(index, entry),
        }
    }

    /// How long the kernel may rely on it that a directory has no entry of a name.
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
        // What stands for a directory has the number by which it was looked up.
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

    /// Tells the kernel what this mount wants.
    fn negotiate(&self, config: &mut KernelConfig) {
        let changes = if self.durability.is_some() { &WANTED_FOR_CHANGES[..] } else { &[] };
        for flag in WANTED.iter().chain(changes) {
            // What the kernel does not have it does without.
            let _ = config.add_capabilities(*flag);
        }
        if self.lists {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_readahead(MAX_READ_AHEAD);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(CONGESTION);
        // The kernel says it once.
        let _ = self.kernel.set(config.capabilities());
    }

    /// Writes what is not written yet: the mount has ended.
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
                    // It is not named after all.
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
                        // It does not fit into the answer, so the kernel does not learn of it.
                        self.forget(inode, 1);
                    }
                    is_full
                }
                // Without attributes the kernel asks for them when it needs them: a number of 0
                // says so, and the time is none.
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

    /// The mount's number of what a listing names: that of a file system which stands for it.
    fn listed_number(&self, index: usize, inode: INodeNo) -> INodeNo {
        let (of, inner) = match self.grafts.at((index, inode)) {
            Some(grafted) => (grafted, INodeNo::ROOT),
            None => (index, inode),
        };
        self.grafts.outer(of, inner).unwrap_or(inode)
    }
}
