//! Path resolution (POSIX, as in a chroot at the root of the tree).

use super::{FileNode, FileTree};
use crate::file::File;
use crate::{FileError, FileProblem};
use rzfs_format::dirent::FileKind;

/// Maximum number of symbolic links on a path, as in Linux.
const MAX_LINKS: usize = 40;

/// The treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LastLink {
    /// Follow it, as in stat(2).
    Follow,
    /// Return it, as in lstat(2).
    Keep,
}

impl FileTree {
    /// The file that a path leads to; symbolic links are followed.
    ///
    /// # Errors
    /// There is no such file, too many links were followed, or something on the path is damaged.
    pub fn node(&self, path: impl AsRef<[u8]>) -> Result<FileNode, FileError> {
        resolve(self, path.as_ref(), LastLink::Follow)
    }

    /// The file that a path leads to; if that is a symbolic link, the link itself.
    ///
    /// # Errors
    /// As [`FileTree::node`].
    pub fn link_node(&self, path: impl AsRef<[u8]>) -> Result<FileNode, FileError> {
        resolve(self, path.as_ref(), LastLink::Keep)
    }

    /// Opens the regular file that a path leads to.
    ///
    /// # Errors
    /// As [`FileTree::node`], or it is not a regular file.
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<File, FileError> {
        self.node(path)?.open()
    }
}

/// Resolves a path. A trailing slash requires a directory.
fn resolve(tree: &FileTree, path: &[u8], last: LastLink) -> Result<FileNode, FileError> {
    let mut node = tree.root();
    let mut pending = components(path);
    let wants_directory = path.ends_with(b"/");
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let child = node.child(&name)?;
        let is_inner = !pending.is_empty() || wants_directory || last == LastLink::Follow;
        if !is_inner || child.kind()? != FileKind::Symlink {
            node = child;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(child.problem(FileProblem::TooManyLinks));
        }
        let target = child.link_target()?;
        if target.is_empty() {
            return Err(child.problem(FileProblem::NotFound));
        }
        if target.starts_with(b"/") {
            node = tree.root();
        }
        pending.extend(components(&target));
    }
    if wants_directory && node.kind()? != FileKind::Directory {
        return Err(node.problem(FileProblem::NotDirectory));
    }
    Ok(node)
}

/// The names in a path, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').rev();
    names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}
