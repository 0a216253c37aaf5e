//! Copies a file and everything below it.

use super::contents::{Fidelity, contents};
use super::destination::{Directory, EntryName, Identity, mode_of};
use super::kept::{Made, keep};
use super::progress::Progress;
use crate::files::cat::CopyError;
use crate::files::complaints::Complaints;
use rustix::fs::FileType;
use rzfs::format::dirent::FileKind;
use rzfs::format::{ObjectId, ObjsetId};
use rzfs::zpl::Attributes;
use rzfs::{FileNode, WalkEntry};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The copy of one tree to the host. Only the directory being filled is open, besides the one at
/// the start, however deep the tree is.
pub(super) struct TreeCopy<'p> {
    fidelity: Fidelity,
    is_root: bool,
    progress: &'p Progress,
    /// The destination of the tree.
    base: Directory,
    /// The directory being filled.
    current: Directory,
    /// The directories around it, the innermost last.
    levels: Vec<Level>,
    /// The path from `base` to `current`, with a slash after every name.
    path: Vec<u8>,
    /// The copies of files with several names: their paths from `base`, and their identities.
    copied: HashMap<SourceIdentity, (Vec<u8>, Identity)>,
}

/// Identifies a file of the pool.
type SourceIdentity = (ObjsetId, ObjectId);

/// The identity of a file that may have further names.
fn identity(entry: &WalkEntry, attributes: &Attributes) -> Option<SourceIdentity> {
    let file_system = entry.node.file_system().filter(|_| attributes.links > 1)?;
    Some((file_system.objset().id(), attributes.object))
}

/// A directory being filled.
struct Level {
    source: FileNode,
    attributes: Attributes,
    /// The parent directory; `None` for `base` itself.
    above: Option<Identity>,
    /// Length of the path of the parent directory.
    path_len: usize,
}

impl<'p> TreeCopy<'p> {
    pub(super) fn new(
        base: Directory,
        fidelity: Fidelity,
        is_root: bool,
        progress: &'p Progress,
    ) -> io::Result<Self> {
        Ok(Self {
            fidelity,
            is_root,
            progress,
            current: base.duplicate()?,
            base,
            levels: Vec::new(),
            path: Vec::new(),
            copied: HashMap::new(),
        })
    }

    /// Copies `source` into the destination as `name`; without a name its contents.
    ///
    /// Errors of single files are reported.
    ///
    /// # Errors
    /// The destination is gone.
    pub(super) fn run(
        mut self,
        source: &FileNode,
        name: Option<EntryName>,
        complaints: &mut Complaints<'_, '_>,
    ) -> io::Result<()> {
        let enters_control = source.is_control();
        let mut walk = source.walk().with_attributes();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.progress.suspend(|| complaints.file(&error));
                    continue;
                }
            };
            while self.levels.len() > entry.depth {
                self.leave(complaints)?;
            }
            if entry.depth > 0 && entry.node.is_control() && !enters_control {
                continue;
            }
            let own_name =
                if entry.depth == 0 { name.clone() } else { EntryName::new(&entry.name) };
            let copied = match own_name {
                None if entry.depth == 0 => self.fill_base(&entry),
                None => {
                    let shown = rzfs::ShownPath(&entry.name);
                    self.progress.suspend(|| {
                        complaints.say(format_args!("'{shown}' is no name for a file: left out"));
                    });
                    walk.skip_contents();
                    continue;
                }
                Some(name) => self.copy(&entry, &name, complaints),
            };
            if let Err(error) = copied {
                walk.skip_contents();
                let shown = self.shown(&entry.name);
                self.progress.suspend(|| match error {
                    CopyError::Read(error) => complaints.file(&error),
                    CopyError::Write(error) => complaints.host(&shown, &error),
                });
            }
        }
        while !self.levels.is_empty() {
            self.leave(complaints)?;
        }
        Ok(())
    }

    /// Copies the contents of the directory into the destination itself.
    fn fill_base(&mut self, entry: &WalkEntry) -> Result<(), CopyError> {
        let attributes = entry.node.attributes()?;
        let source = entry.node.clone();
        self.levels.push(Level { source, attributes, above: None, path_len: 0 });
        Ok(())
    }

    fn copy(
        &mut self,
        entry: &WalkEntry,
        name: &EntryName,
        complaints: &mut Complaints<'_, '_>,
    ) -> Result<(), CopyError> {
        let attributes = entry.node.attributes()?;
        if attributes.kind == FileKind::Directory {
            return self.enter(entry, name, attributes);
        }
        let identity = identity(entry, &attributes);
        if self.is_linked(name, identity) {
            self.progress.bytes(attributes.size);
            return Ok(());
        }
        let permissions = self.permissions(&attributes, 0);
        let held = match attributes.kind {
            FileKind::Regular => {
                return self.regular(entry, name, (&attributes, identity), complaints);
            }
            FileKind::Symlink => self.current.symlink(name, &entry.node.link_target()?)?,
            kind => {
                let kind = special(kind);
                let device = (attributes.device.major, attributes.device.minor);
                self.current.special(name, kind, permissions, device)?
            }
        };
        let made = rustix::fs::fstat(&held).map_err(io::Error::from)?;
        self.keep(&entry.node, &attributes, &Made::Held(held), complaints);
        self.remember(name, identity, (made.st_dev, made.st_ino));
        Ok(())
    }

    /// Whether a file with several names was copied before, and has been linked here.
    fn is_linked(&self, name: &EntryName, identity: Option<SourceIdentity>) -> bool {
        let copied = identity.and_then(|identity| self.copied.get(&identity));
        copied
            .is_some_and(|(path, made)| self.current.link(name, &self.base, (path, *made)).is_ok())
    }

    /// Remembers the copy of a file that has further names.
    fn remember(&mut self, name: &EntryName, identity: Option<SourceIdentity>, made: Identity) {
        if let Some(identity) = identity {
            let path = [&self.path, name.as_bytes()].concat();
            self.copied.insert(identity, (path, made));
        }
    }

    /// The permissions for creating a file: if it gets its final ones once complete, those until
    /// then.
    fn permissions(&self, attributes: &Attributes, until_then: u16) -> u16 {
        match self.fidelity {
            Fidelity::Contents => attributes.permissions,
            Fidelity::Archive => until_then,
        }
    }

    fn regular(
        &mut self,
        entry: &WalkEntry,
        name: &EntryName,
        (attributes, identity): (&Attributes, Option<SourceIdentity>),
        complaints: &mut Complaints<'_, '_>,
    ) -> Result<(), CopyError> {
        let file = entry.node.open()?;
        let mut out = self.current.create(name, self.permissions(attributes, 0o600))?;
        let copied = contents(&file, &mut out, self.progress);
        self.keep(&entry.node, attributes, &Made::Open(out.as_fd()), complaints);
        if copied.is_ok() {
            let made = out.metadata()?;
            self.remember(name, identity, (made.dev(), made.ino()));
        }
        copied
    }

    fn enter(
        &mut self,
        entry: &WalkEntry,
        name: &EntryName,
        attributes: Attributes,
    ) -> Result<(), CopyError> {
        let permissions = match self.fidelity {
            Fidelity::Contents => Some(attributes.permissions),
            Fidelity::Archive => None,
        };
        let above = Some(self.current.identity()?);
        self.current = self.current.make(name, permissions)?;
        let (source, path_len) = (entry.node.clone(), self.path.len());
        self.levels.push(Level { source, attributes, above, path_len });
        self.path.extend_from_slice(name.as_bytes());
        self.path.push(b'/');
        Ok(())
    }

    /// Returns to the parent directory.
    fn leave(&mut self, complaints: &mut Complaints<'_, '_>) -> io::Result<()> {
        let Some(Level { source, attributes, above, path_len }) = self.levels.pop() else {
            return Ok(());
        };
        let parent = match above {
            Some(identity) => self.current.parent(identity)?,
            None => self.current.duplicate()?,
        };
        match self.fidelity {
            Fidelity::Archive => {
                self.keep(&source, &attributes, &Made::Open(self.current.as_fd()), complaints);
            }
            Fidelity::Contents if attributes.permissions & 0o700 != 0o700 && above.is_some() => {
                let mode = rustix::fs::fstat(&self.current)?.st_mode as u16 & 0o777;
                let owner = attributes.permissions | 0o077;
                rustix::fs::fchmod(&self.current, mode_of(mode & owner))?;
            }
            Fidelity::Contents => {}
        }
        self.current = parent;
        self.path.truncate(path_len);
        Ok(())
    }

    fn keep(
        &self,
        node: &FileNode,
        attributes: &Attributes,
        made: &Made<'_>,
        complaints: &mut Complaints<'_, '_>,
    ) {
        if self.fidelity == Fidelity::Contents {
            return;
        }
        for unkept in keep(node, attributes, made, self.is_root) {
            let shown = rzfs::ShownPath(node.path());
            self.progress.suspend(|| complaints.say(format_args!("{shown}: {unkept}")));
        }
    }

    /// The path of an entry of the current directory, for messages.
    fn shown(&self, name: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        PathBuf::from(std::ffi::OsString::from_vec([&self.path, name].concat()))
    }
}

/// The system's type of a special file.
const fn special(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}
