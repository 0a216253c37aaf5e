//! What a mount serves: file systems, one of which each request goes to.

mod changes;
mod requests;
mod waiting;

pub(crate) use waiting::Server;

use crate::adapter::{Adapter, Answer, NONE};
use crate::attributes::Entry;
use crate::durability::Durability;
use crate::grafts::Grafts;
use crate::kernel_cache::{KernelCache, PageDropper};
use crate::mount::{MountOptions, Nested, Opens};
use crate::mount_points::MountPoints;
use crate::wakefulness::Wakefulness;
use fuser::{
    Errno, FileAttr, INodeNo, InitFlags, KernelConfig, ReplyDirectory, ReplyDirectoryPlus,
};
use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{AclType, ControlTree, DirCookie, Files};
use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
/// and set-group-id away, as the kernel would look for them at every write.
const WANTED_FOR_CHANGES: [InitFlags; 3] =
    [InitFlags::FUSE_DONT_MASK, InitFlags::FUSE_HANDLE_KILLPRIV_V2, InitFlags::FUSE_HAS_IOCTL_DIR];

/// Requests in the background (reading ahead, direct reads and writes, pages of mappings) that the
/// kernel may have open at once: as many as it can count, since those that wait for a suspended pool
/// are among them, and must not hold up others. Its own limits of dirty pages and of asynchronous
/// requests are reached before.
const MAX_BACKGROUND: u16 = u16::MAX;
/// From how many on it calls the file system busy, and neither reads ahead of what is asked for nor
/// writes pages that nobody waits for.
const CONGESTION: u16 = 48;

/// What a mount serves.
pub(crate) struct Session {
    /// The file system at the root, then those that are grafted into it.
    file_systems: Vec<Adapter>,
    grafts: Grafts,
    /// What the kernel can do.
    kernel: InitFlags,
    opens: Opens,
    cache: KernelCache,
    /// Requests that wait for the disk; of a mount in which something can change.
    durability: Option<Arc<Durability>>,
    /// The same for writes past the kernel's pages.
    pages: Option<PageDropper>,
    wakefulness: Option<Arc<Wakefulness>>,
    _while_mounted: Option<Arc<dyn Any + Send + Sync>>,
}

impl Session {
    /// A file system with others in it, and with directories for other mounts.
    ///
    /// # Errors
    /// A directory on the way to a mount point cannot be read, or the system has no thread.
    pub(crate) fn new(
        head: Files,
        control: Option<ControlTree>,
        mut nested: Vec<Nested>,
        options: &MountOptions,
    ) -> io::Result<Self> {
        nested.sort_by_key(|one| one.path.components().count());
        let places: Vec<PathBuf> = nested.iter().map(|one| one.path.clone()).collect();
        // For each the file system that it is in, and where there.
        let within: Vec<(usize, &Path)> =
            (0..places.len()).map(|of| enclosing(&places, of)).collect();
        let of = |file_system: usize| {
            let inner = within.iter().filter(move |(index, _)| *index == file_system);
            inner.map(|(_, path)| *path)
        };
        let paths: Vec<&Path> =
            of(0).chain(options.mount_points.iter().map(PathBuf::as_path)).collect();
        let directories = MountPoints::missing(&head, &paths)?;
        let mut file_systems = vec![Adapter::new(head, control, directories)];
        for (index, one) in nested.into_iter().enumerate() {
            let paths: Vec<&Path> = of(index + 1).collect();
            let directories = MountPoints::missing(&one.file_system, &paths)?;
            file_systems.push(Adapter::new(one.file_system, one.control, directories));
        }
        let mut grafts = Grafts::default();
        for (index, (outer, path)) in within.iter().enumerate() {
            let Some(adapter) = file_systems.get(*outer) else { continue };
            let mut directory = INodeNo::ROOT;
            for name in path.iter() {
                let found = adapter.look_up(directory, name.as_bytes());
                let found = found.map_err(|error| io::Error::from_raw_os_error(error.code()))?;
                directory = found.attributes.ino;
            }
            grafts.insert(*outer, directory, index + 1);
        }
        let kernel = InitFlags::empty();
        let is_live = file_systems.iter().any(|one| one.head().live().is_some());
        let cache = KernelCache::default();
        let (durability, pages) = if is_live {
            (Some(Arc::new(Durability::start()?)), Some(PageDropper::start(cache.clone())?))
        } else {
            (None, None)
        };
        Ok(Self {
            file_systems,
            grafts,
            kernel,
            opens: options.opens,
            cache,
            durability,
            pages,
            wakefulness: options.wakefulness.clone(),
            _while_mounted: options.while_mounted.clone(),
        })
    }

    /// A file system that changes, if there is one; all are of the same pool.
    fn live(&self) -> Option<&Arc<LiveFileSystem>> {
        self.file_systems.iter().find_map(|one| one.head().live())
    }

    /// What the kernel keeps of what this answers.
    pub(crate) fn kernel_cache(&self) -> KernelCache {
        self.cache.clone()
    }

    /// The root directories of its file systems.
    pub(crate) fn roots(&self) -> Vec<INodeNo> {
        let numbers = 0..self.file_systems.len();
        numbers.filter_map(|index| self.grafts.outer(index, INodeNo::ROOT)).collect()
    }

    /// The file system that a number of the mount belongs to, with its position, and the number
    /// there. Every request begins with it.
    fn inner(&self, outer: INodeNo) -> Answer<(usize, &Adapter, INodeNo)> {
        if let Some(wakefulness) = &self.wakefulness {
            wakefulness.note_request();
        }
        let (index, inner) = self.grafts.inner(outer).ok_or(Errno::ESTALE)?;
        Ok((index, self.file_systems.get(index).ok_or(Errno::ESTALE)?, inner))
    }

    /// Attributes with the mount's number.
    fn numbered(&self, index: usize, mut attributes: FileAttr) -> Answer<FileAttr> {
        attributes.ino = self.grafts.outer(index, attributes.ino).ok_or(Errno::ENFILE)?;
        Ok(attributes)
    }

    /// A file as an answer names it, with the mount's number.
    fn entry(&self, index: usize, mut entry: Entry) -> Answer<Entry> {
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
            let adapter = self.file_systems.get(around).ok_or(Errno::ESTALE)?;
            return self.entry(around, adapter.look_up(place, b"..")?);
        }
        let entry = adapter.look_up(directory, name.as_bytes())?;
        match self.grafts.at(index, entry.attributes.ino) {
            Some(grafted) => {
                // What is below is not what the kernel gets to know.
                adapter.forget(entry.attributes.ino, 1);
                let adapter = self.file_systems.get(grafted).ok_or(Errno::ESTALE)?;
                self.entry(grafted, adapter.root()?)
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
        if let Ok((_, adapter, inode)) = self.inner(inode) {
            adapter.forget(inode, lookups);
        }
    }

    fn attributes(&self, inode: INodeNo) -> Answer<(FileAttr, Duration)> {
        let (index, adapter, inode) = self.inner(inode)?;
        let (attributes, lifetime) = adapter.shown_attributes(inode)?;
        Ok((self.numbered(index, attributes)?, lifetime))
    }

    fn note_access(&self, inode: INodeNo) {
        if let Ok((_, adapter, inode)) = self.inner(inode) {
            adapter.note_access(inode);
        }
    }

    /// Tells the kernel what this mount wants.
    fn negotiate(&mut self, config: &mut KernelConfig) {
        let changes = if self.durability.is_some() { &WANTED_FOR_CHANGES[..] } else { &[] };
        for flag in WANTED.iter().chain(changes) {
            // What the kernel does not have it does without.
            let _ = config.add_capabilities(*flag);
        }
        // The kernel takes "not supported" for an error once it was told of ACLs.
        let has_lists = |one: &Adapter| one.head().acl_type() == AclType::Posix;
        if self.file_systems.iter().all(has_lists) {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_readahead(MAX_READ_AHEAD);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(CONGESTION);
        self.kernel = config.capabilities();
    }

    /// Writes what is not written yet: the mount has ended.
    fn close(&self) {
        self.file_systems.iter().for_each(Adapter::close);
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
                let is_grafted = self.grafts.at(index, entry.attributes.ino).is_some();
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
                None => reply.add(INodeNo(0), next.0, name, &Duration::ZERO, placeholder, NONE),
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
            let inode = self.grafts.outer(index, inode).unwrap_or(inode);
            reply.add(inode, next.0, kind, name)
        })
    }
}

/// The file system that a nested one is in, by its position, and where there. The nested ones
/// come after the one at the root, so theirs is their position + 1.
fn enclosing(places: &[PathBuf], of: usize) -> (usize, &Path) {
    let Some(path) = places.get(of) else { return (0, Path::new("")) };
    let inside = |(index, other): (usize, &PathBuf)| {
        let relative = path.strip_prefix(other).ok().filter(|_| index != of)?;
        Some((index + 1, relative))
    };
    let all = places.iter().enumerate().filter_map(inside);
    all.min_by_key(|(_, relative)| relative.components().count()).unwrap_or((0, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_system_is_the_one_around() {
        let places = ["a", "b", "a/b/c", "a/b/c/d"].map(PathBuf::from);
        let found: Vec<_> = (0..places.len()).map(|of| enclosing(&places, of)).collect();
        let path = Path::new;
        assert_eq!(found, [(0, path("a")), (0, path("b")), (1, path("b/c")), (3, path("d"))]);
    }
}
