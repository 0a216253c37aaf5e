//! A file: its attributes and contents.

use super::tree::FileTree;
use crate::file::File;
use crate::{FileError, FileProblem};
use rzfs_format::acl::Ace;
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::{DeviceNumber, FileFlags};
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{Attributes, ControlAttributes, ControlNode, FileSystem, NameTarget, ZplError};
use std::sync::Arc;

/// A file of a [`FileTree`], of whatever kind: a lazy handle.
///
/// ```no_run
/// # use rzfs::OpenFiles;
/// # let pool = rzfs::PoolOptions::new().device_paths(["garden.img"]).open()?;
/// let today = pool.file_system("garden/notes")?.link_node("/today")?;
/// assert_eq!(today.link_target()?, b"beds/north");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileNode {
    pub(super) tree: FileTree,
    /// From the root, without a slash at the end; empty for the root itself.
    path: Vec<u8>,
    pub(super) target: Target,
}

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A file of the file system, live or one of its snapshots.
    File(Arc<FileSystem>, ObjectId),
    /// A directory of `.zfs`.
    Control(ControlNode),
}

impl FileTree {
    /// The root directory.
    #[must_use]
    pub fn root(&self) -> FileNode {
        let live = Arc::clone(self.file_system());
        let root = live.root();
        FileNode { tree: self.clone(), path: Vec::new(), target: Target::File(live, root) }
    }
}

impl FileNode {
    /// The tree that it is in.
    #[must_use]
    pub fn tree(&self) -> &FileTree {
        &self.tree
    }

    /// The path by which it was reached, from the root of the tree, symbolic links resolved.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        if self.path.is_empty() { b"/" } else { &self.path }
    }

    /// The object number; for a directory of `.zfs` the inode number that it has instead.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        match &self.target {
            Target::File(_, object) => *object,
            Target::Control(node) => node.inode(),
        }
    }

    /// The file system that it is in: the one of the tree, or that of a snapshot. `None` for a
    /// directory of `.zfs`.
    #[must_use]
    pub fn file_system(&self) -> Option<&Arc<FileSystem>> {
        match &self.target {
            Target::File(file_system, _) => Some(file_system),
            Target::Control(_) => None,
        }
    }

    /// Identifies a file in the tree: object set and object.
    pub(super) fn identity(&self) -> (ObjsetId, ObjectId) {
        let file_system = self.file_system().unwrap_or_else(|| self.tree.file_system());
        (file_system.objset().id(), self.object())
    }

    /// Whether it is one of the virtual directories: `.zfs`, `.zfs/snapshot` and the like. The root
    /// of an entered snapshot is not.
    #[must_use]
    pub fn is_control(&self) -> bool {
        matches!(self.target, Target::Control(_))
    }

    pub(super) fn problem(&self, problem: impl Into<FileProblem>) -> FileError {
        FileError {
            dataset: self.tree.dataset().to_owned(),
            path: self.path().to_vec(),
            offset: None,
            problem: problem.into(),
        }
    }

    fn of<T>(&self, result: Result<T, ZplError>) -> Result<T, FileError> {
        result.map_err(|error| self.problem(error))
    }

    /// The attributes that `stat` shows.
    ///
    /// # Errors
    /// The file does not exist or its attributes are damaged.
    pub fn attributes(&self) -> Result<Attributes, FileError> {
        match &self.target {
            Target::File(file_system, object) => self.of(file_system.attributes(*object)),
            Target::Control(node) => {
                let control = self.tree.control().ok_or(FileProblem::NotFound);
                let control = control.map_err(|problem| self.problem(problem))?;
                Ok(of_control(&self.of(control.attributes(*node))?))
            }
        }
    }

    /// The kind of file.
    ///
    /// # Errors
    /// As [`FileNode::attributes`].
    pub fn kind(&self) -> Result<FileKind, FileError> {
        match self.target {
            Target::Control(_) => Ok(FileKind::Directory),
            Target::File(..) => Ok(self.attributes()?.kind),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// It is not a symbolic link, or is damaged.
    pub fn link_target(&self) -> Result<Vec<u8>, FileError> {
        match &self.target {
            Target::File(file_system, object) => self.of(file_system.read_link(*object)),
            Target::Control(_) => Err(self.problem(FileProblem::IsDirectory)),
        }
    }

    /// The full names of its extended attributes, sorted.
    ///
    /// # Errors
    /// They are damaged.
    pub fn xattr_names(&self) -> Result<Vec<Vec<u8>>, FileError> {
        match &self.target {
            Target::File(file_system, object) => self.of(file_system.xattr_names(*object)),
            Target::Control(_) => Ok(Vec::new()),
        }
    }

    /// The value of the extended attribute with this full name.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn xattr(&self, name: impl AsRef<[u8]>) -> Result<Vec<u8>, FileError> {
        match &self.target {
            Target::File(file_system, object) => self.of(file_system.xattr(*object, name.as_ref())),
            Target::Control(_) => Err(self.problem(FileProblem::NotFound)),
        }
    }

    /// The NFSv4 access control list; directories of `.zfs` have an empty one.
    ///
    /// # Errors
    /// It is damaged.
    pub fn acl(&self) -> Result<Vec<Ace>, FileError> {
        match &self.target {
            Target::File(file_system, object) => self.of(file_system.acl(*object)),
            Target::Control(_) => Ok(Vec::new()),
        }
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// It is not a regular file, or is damaged.
    pub fn open(&self) -> Result<File, FileError> {
        match (&self.target, self.kind()?) {
            (_, FileKind::Directory) => Err(self.problem(FileProblem::IsDirectory)),
            (Target::File(file_system, object), FileKind::Regular) => {
                self.of(file_system.open_for_reading(*object))?;
                let size = self.attributes()?.size;
                let place = self.problem(FileProblem::NotRegular);
                Ok(File::of_file(place, Arc::clone(file_system), *object, size))
            }
            _ => Err(self.problem(FileProblem::NotRegular)),
        }
    }

    /// The file with a name in this directory, including `.` and `..`. The root of the tree is its
    /// own parent.
    ///
    /// # Errors
    /// There is no such file, or this is not a directory.
    pub fn child(&self, name: &[u8]) -> Result<Self, FileError> {
        let here = self.entered()?;
        let path = here.path_of(name);
        let target = match here.child_target(name) {
            Ok(target) => target,
            Err(problem) => {
                // A missing file is named; other errors concern the directory.
                let at = Self { path, ..here };
                return Err(at.problem(problem));
            }
        };
        Self { tree: here.tree, path, target }.entered()
    }

    fn child_target(&self, name: &[u8]) -> Result<Target, FileProblem> {
        let live = self.tree.file_system();
        match &self.target {
            Target::File(file_system, object) => {
                let is_snapshot = !Arc::ptr_eq(file_system, live);
                if name == b".." && *object == file_system.root() && is_snapshot {
                    return Ok(Target::Control(ControlNode::Snapshots));
                }
                Ok(match file_system.lookup(*object, name)? {
                    NameTarget::Object(object) => Target::File(Arc::clone(file_system), object),
                    NameTarget::Control => Target::Control(ControlNode::Root),
                })
            }
            Target::Control(ControlNode::Root) if name == b".." => {
                Ok(Target::File(Arc::clone(live), live.root()))
            }
            Target::Control(node) => {
                let control = self.tree.control().ok_or(FileProblem::NotFound)?;
                match control.lookup(*node, name) {
                    Err(ZplError::NotFound { .. }) => Err(FileProblem::NotFound),
                    found => Ok(Target::Control(found?)),
                }
            }
        }
    }

    /// The same, but the root of a snapshot instead of its directory in `.zfs/snapshot`.
    pub(super) fn entered(&self) -> Result<Self, FileError> {
        let (Target::Control(ControlNode::Snapshot(objset)), Some(control)) =
            (&self.target, self.tree.control())
        else {
            return Ok(self.clone());
        };
        let snapshot = self.of(control.open(*objset))?;
        let root = snapshot.root();
        Ok(Self { target: Target::File(snapshot, root), ..self.clone() })
    }

    /// An entry of this directory.
    pub(super) fn entry(&self, name: &[u8], object: ObjectId) -> Self {
        let target = match (&self.target, ControlNode::from_inode(object)) {
            (Target::File(file_system, parent), Some(node))
                if *parent == file_system.root() && name == b".zfs" =>
            {
                Target::Control(node)
            }
            (Target::Control(_), Some(node)) => Target::Control(node),
            (Target::File(file_system, _), _) => Target::File(Arc::clone(file_system), object),
            (Target::Control(_), None) => Target::File(Arc::clone(self.tree.file_system()), object),
        };
        Self { tree: self.tree.clone(), path: self.path_of(name), target }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match name {
            b"." => self.path.clone(),
            b".." => {
                let end = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                self.path.get(..end).unwrap_or_default().to_vec()
            }
            name => [&self.path, &b"/"[..], name].concat(),
        }
    }
}

/// The attributes of a directory of `.zfs` in the form of a file's.
fn of_control(control: &ControlAttributes) -> Attributes {
    Attributes {
        object: control.inode,
        generation: 0,
        kind: FileKind::Directory,
        permissions: ControlAttributes::PERMISSIONS,
        links: control.links,
        uid: 0,
        gid: 0,
        device: DeviceNumber { major: 0, minor: 0 },
        size: control.size,
        blocks: 0,
        block_size: 512,
        atime: control.time,
        mtime: control.time,
        ctime: control.time,
        crtime: control.time,
        flags: FileFlags(0),
        project: 0,
    }
}
