//! Files by their paths.

use crate::ProofError;
use rzfs_format::ObjectId;
use rzfs_format::znode::Timestamp;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, FilePlace, LiveFileSystem, Named, NewFile, NewKind,
    RenameMode, TimeChange, WriteAt, XattrMode,
};
use rzfs_zpl::{DirCookie, DirEntry, NameTarget, ZplError};
use std::ops::ControlFlow;

const ROOT: Caller = Caller::SUPERUSER;

/// The files of a file system, by paths relative to its root; all as the superuser.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a>(pub &'a LiveFileSystem);

impl Files<'_> {
    fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').unwrap_or(("", path))
    }

    /// The object with this path.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, path: &str) -> Result<ObjectId, ProofError> {
        let mut object = self.0.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.0.lookup(object, name.as_bytes());
            match found.map_err(|source| ProofError::at(path, source))? {
                NameTarget::Object(next) => object = next,
                NameTarget::Control => return Ok(object),
            }
        }
        Ok(object)
    }

    fn in_parent<T>(
        &self,
        path: &str,
        act: impl FnOnce(ObjectId, &[u8]) -> Result<T, ZplError>,
    ) -> Result<T, ProofError> {
        let (parent, name) = Self::split(path);
        let parent = self.find(parent)?;
        act(parent, name.as_bytes()).map_err(|source| ProofError::at(path, source))
    }

    fn on<T>(
        &self,
        path: &str,
        act: impl FnOnce(ObjectId) -> Result<T, ZplError>,
    ) -> Result<T, ProofError> {
        let object = self.find(path)?;
        act(object).map_err(|source| ProofError::at(path, source))
    }

    /// Makes a file of some kind.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`].
    pub fn make(&self, path: &str, kind: NewKind<'_>) -> Result<ObjectId, ProofError> {
        let permissions = match kind {
            NewKind::Directory => 0o755,
            NewKind::Symlink(_) => 0o777,
            _ => 0o644,
        };
        let new = NewFile { kind, permissions, umask: 0o022, caller: ROOT };
        self.in_parent(path, |parent, name| Ok(self.0.create(parent, name, &new)?.object))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`].
    pub fn mkdir(&self, path: &str) -> Result<ObjectId, ProofError> {
        self.make(path, NewKind::Directory)
    }

    /// Makes a directory, unless there is something of that name.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`].
    pub fn mkdir_if_missing(&self, path: &str) -> Result<(), ProofError> {
        const EEXIST: i32 = 17;
        match self.mkdir(path) {
            Err(ProofError::File { source, .. }) if source.errno() == EEXIST => Ok(()),
            result => result.map(drop),
        }
    }

    /// Makes a regular file with these contents.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`] and [`LiveFileSystem::write`].
    pub fn put(&self, path: &str, contents: &[u8]) -> Result<(), ProofError> {
        self.make(path, NewKind::Regular)?;
        self.write(path, 0, contents)
    }

    /// Writes into a file.
    ///
    /// # Errors
    /// As [`LiveFileSystem::write`].
    pub fn write(&self, path: &str, offset: u64, data: &[u8]) -> Result<(), ProofError> {
        self.on(path, |file| {
            let mut written = 0;
            while written < data.len() {
                let at = WriteAt::Offset(offset + written as u64);
                written += self.0.write(file, at, &data[written..], ROOT)?.1;
            }
            Ok(())
        })
    }

    /// Makes a file that begins as another does, sharing its blocks as far as possible.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`] and [`LiveFileSystem::copy_range`].
    pub fn copy(&self, from: &str, to: &str, len: u64) -> Result<(), ProofError> {
        let source = FilePlace { object: self.find(from)?, offset: 0 };
        let target = self.make(to, NewKind::Regular)?;
        let mut done = 0;
        loop {
            let place = |object| FilePlace { object, offset: done };
            let (source, target) = (place(source.object), place(target));
            let copied = self.0.copy_range(target, (self.0, source), len - done, ROOT);
            match copied.map_err(|source| ProofError::at(to, source))? {
                0 => return Ok(()),
                copied => done += copied,
            }
        }
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// As [`FileSystem::read_dir`](rzfs_zpl::FileSystem::read_dir).
    pub fn names(&self, path: &str) -> Result<Vec<String>, ProofError> {
        let directory = self.find(path)?;
        let mut names = Vec::new();
        let visit = |entry: DirEntry<'_>| {
            if !matches!(entry.name, b"." | b"..") {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
            }
            ControlFlow::Continue(())
        };
        let listed = self.0.read_dir(directory, DirCookie::START, visit);
        listed.map_err(|source| ProofError::at(path, source))?;
        Ok(names)
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// As [`LiveFileSystem::truncate`].
    pub fn truncate(&self, path: &str, size: u64) -> Result<(), ProofError> {
        self.on(path, |file| self.0.truncate(file, size, ROOT))
    }

    /// Makes a hole.
    ///
    /// # Errors
    /// As [`LiveFileSystem::allocate`].
    pub fn punch(&self, path: &str, offset: u64, len: u64) -> Result<(), ProofError> {
        self.on(path, |file| self.0.allocate(file, offset, len, Allocation::Punch, ROOT))
    }

    /// Links a file under another name.
    ///
    /// # Errors
    /// As [`LiveFileSystem::link`].
    pub fn link(&self, path: &str, new: &str) -> Result<(), ProofError> {
        let file = self.find(path)?;
        self.in_parent(new, |parent, name| self.0.link(file, parent, name).map(drop))
    }

    /// Renames a file, replacing the target.
    ///
    /// # Errors
    /// As [`LiveFileSystem::rename`].
    pub fn rename(&self, from: &str, to: &str) -> Result<(), ProofError> {
        let (old_parent, old) = Self::split(from);
        let directory = self.find(old_parent)?;
        let old = Named { directory, name: old.as_bytes() };
        self.in_parent(to, |directory, name| {
            self.0.rename(old, Named { directory, name }, RenameMode::Replace, ROOT)
        })
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// As [`LiveFileSystem::unlink`].
    pub fn unlink(&self, path: &str) -> Result<(), ProofError> {
        self.in_parent(path, |parent, name| self.0.unlink(parent, name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`LiveFileSystem::rmdir`].
    pub fn rmdir(&self, path: &str) -> Result<(), ProofError> {
        self.in_parent(path, |parent, name| self.0.rmdir(parent, name))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As [`LiveFileSystem::set_xattr`].
    pub fn set_xattr(&self, path: &str, name: &str, value: &[u8]) -> Result<(), ProofError> {
        self.on(path, |file| self.0.set_xattr(file, name.as_bytes(), value, XattrMode::Any))
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`LiveFileSystem::set_attributes`].
    pub fn set(&self, path: &str, change: AttributeChange) -> Result<(), ProofError> {
        self.on(path, |file| self.0.set_attributes(file, &change, ROOT).map(drop))
    }

    /// Sets permissions.
    ///
    /// # Errors
    /// As [`LiveFileSystem::set_attributes`].
    pub fn chmod(&self, path: &str, permissions: u32) -> Result<(), ProofError> {
        self.set(
            path,
            AttributeChange { permissions: Some(permissions), ..AttributeChange::default() },
        )
    }

    /// Sets owner and group.
    ///
    /// # Errors
    /// As [`LiveFileSystem::set_attributes`].
    pub fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<(), ProofError> {
        self.set(
            path,
            AttributeChange { uid: Some(uid), gid: Some(gid), ..AttributeChange::default() },
        )
    }

    /// Sets the time of the last change of the contents.
    ///
    /// # Errors
    /// As [`LiveFileSystem::set_attributes`].
    pub fn touch(&self, path: &str, mtime: Timestamp) -> Result<(), ProofError> {
        let mtime = Some(TimeChange::At(mtime));
        self.set(path, AttributeChange { mtime, ..AttributeChange::default() })
    }
}
