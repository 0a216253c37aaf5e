//! Comparing trees of files with manifests.

use crate::manifest::{Entry, EntryKind, FileSystemManifest};
use rustix::fs::FileType;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a tree shows of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// What it is.
    pub kind: EntryKind,
    /// The twelve permission bits.
    pub mode: u32,
    /// Link count.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime: i128,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

/// Names in a directory, with the files that they name.
pub type Listing<Node> = Vec<(Vec<u8>, Node)>;

/// A tree of files. Errors are messages: they become differences.
pub trait Tree {
    /// A file of the tree.
    type Node;

    /// The root directory.
    fn root(&self) -> Result<Self::Node, String>;
    /// Names and files in a directory, without `.`, `..` and `.zfs`.
    fn list(&self, directory: &Self::Node) -> Result<Listing<Self::Node>, String>;
    /// The attributes of a file.
    fn observe(&self, node: &Self::Node) -> Result<Observed, String>;
    /// The target of a symbolic link.
    fn target(&self, node: &Self::Node) -> Result<Vec<u8>, String>;
    /// Passes the contents of a regular file to `sink`, from the beginning.
    fn contents(&self, node: &Self::Node, sink: &mut dyn FnMut(&[u8])) -> Result<(), String>;
    /// The value of an extended attribute.
    fn xattr(&self, node: &Self::Node, name: &[u8]) -> Result<Vec<u8>, String>;

    /// Whether it shows extended attributes of this name at all.
    fn shows_xattr(&self, _name: &[u8]) -> bool {
        true
    }
}

/// A tree without the times of changes.
struct Timeless<T>(T);

impl<T: Tree> Tree for Timeless<T> {
    type Node = T::Node;

    fn root(&self) -> Result<T::Node, String> {
        self.0.root()
    }

    fn list(&self, directory: &T::Node) -> Result<Listing<T::Node>, String> {
        self.0.list(directory)
    }

    fn observe(&self, node: &T::Node) -> Result<Observed, String> {
        Ok(Observed { mtime: 0, ..self.0.observe(node)? })
    }

    fn target(&self, node: &T::Node) -> Result<Vec<u8>, String> {
        self.0.target(node)
    }

    fn contents(&self, node: &T::Node, sink: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        self.0.contents(node, sink)
    }

    fn xattr(&self, node: &T::Node, name: &[u8]) -> Result<Vec<u8>, String> {
        self.0.xattr(node, name)
    }

    fn shows_xattr(&self, name: &[u8]) -> bool {
        self.0.shows_xattr(name)
    }
}

/// The same as [`differences`] but for the times of changes, which intent logs do not tell.
pub fn differences_but_times<T: Tree>(manifest: &FileSystemManifest, tree: T) -> Vec<String> {
    differences(&manifest.clone().timeless(), &Timeless(tree))
}

/// What a tree has otherwise than the manifest says, a line each; empty when they agree.
pub fn differences<T: Tree>(manifest: &FileSystemManifest, tree: &T) -> Vec<String> {
    let mut out = Vec::new();
    let found = walk(manifest, tree, &mut out);
    for path in manifest.entries.keys().filter(|path| !found.contains_key(*path)) {
        out.push(format!("{}: missing", show(path)));
    }
    for (path, node) in &found {
        match manifest.entries.get(path) {
            None => out.push(format!("{}: unexpected", show(path))),
            Some(entry) => compare(path, entry, tree, node, &mut out),
        }
    }
    out
}

fn walk<T: Tree>(
    manifest: &FileSystemManifest,
    tree: &T,
    out: &mut Vec<String>,
) -> BTreeMap<Vec<u8>, T::Node> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![Vec::new()];
    while let Some(directory) = waiting.pop() {
        let entries = match found.get(&directory) {
            Some(node) => tree.list(node),
            None => tree.root().and_then(|root| tree.list(&root)),
        };
        let entries = entries.unwrap_or_else(|error| {
            out.push(format!("{}: {error}", show(&directory)));
            Vec::new()
        });
        for (name, node) in entries {
            let path =
                if directory.is_empty() { name } else { [&directory[..], b"/", &name].concat() };
            if manifest.covered.contains(&path) {
                continue;
            }
            match tree.observe(&node) {
                Ok(observed) if observed.kind == EntryKind::Directory => waiting.push(path.clone()),
                _ => {}
            }
            if found.insert(path.clone(), node).is_some() {
                out.push(format!("{}: listed twice", show(&path)));
            }
        }
    }
    found
}

fn compare<T: Tree>(path: &[u8], entry: &Entry, tree: &T, node: &T::Node, out: &mut Vec<String>) {
    let mut differ = |message: String| out.push(format!("{}: {message}", show(path)));
    match tree.observe(node) {
        Err(error) => differ(error),
        Ok(mut observed) => {
            let device = entry.device.unwrap_or(observed.device);
            let Entry { kind, mode, links, uid, gid, size, mtime, .. } = *entry;
            let expected = Observed { kind, mode, links, uid, gid, size, mtime, device };
            observed.mode &= 0o7777;
            if observed != expected {
                differ(format!("is {observed:?}, was {expected:?}"));
            }
        }
    }
    if entry.kind == EntryKind::Symlink {
        match tree.target(node) {
            Ok(target) if target == entry.target => {}
            Ok(target) => differ(format!("links to {}", show(&target))),
            Err(error) => differ(format!("target: {error}")),
        }
    }
    if let Some(expected) = entry.sha256 {
        let mut digest = Sha256::new();
        match tree.contents(node, &mut |bytes| digest.update(bytes)) {
            Ok(()) if digest.finalize()[..] == expected => {}
            Ok(()) => differ("other contents".to_owned()),
            Err(error) => differ(format!("contents: {error}")),
        }
    }
    for (name, expected) in entry.xattrs.iter().filter(|(name, _)| tree.shows_xattr(name)) {
        match tree.xattr(node, name) {
            Ok(value) if value == *expected => {}
            Ok(_) => differ(format!("other value of {}", show(name))),
            Err(error) => differ(format!("{}: {error}", show(name))),
        }
    }
}

fn show(path: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(path))
}

/// A mounted file system as a tree; a node is a path.
#[derive(Clone, Debug)]
pub struct MountedTree(pub PathBuf);

impl MountedTree {
    fn kind(kind: FileType) -> Result<EntryKind, String> {
        Ok(match kind {
            FileType::RegularFile => EntryKind::Regular,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            FileType::CharacterDevice => EntryKind::CharDevice,
            FileType::BlockDevice => EntryKind::BlockDevice,
            FileType::Unknown => return Err("a file of no known kind".to_owned()),
        })
    }
}

impl Tree for MountedTree {
    type Node = PathBuf;

    fn root(&self) -> Result<PathBuf, String> {
        Ok(self.0.clone())
    }

    fn list(&self, directory: &PathBuf) -> Result<Listing<PathBuf>, String> {
        fs::read_dir(directory)
            .map_err(message)?
            .map(|entry| {
                let entry = entry.map_err(message)?;
                Ok((entry.file_name().into_vec(), entry.path()))
            })
            .filter(|entry| !matches!(entry, Ok((name, _)) if name == b".zfs"))
            .collect()
    }

    fn observe(&self, node: &PathBuf) -> Result<Observed, String> {
        let metadata = fs::symlink_metadata(node).map_err(message)?;
        let device = metadata.rdev();
        Ok(Observed {
            kind: Self::kind(FileType::from_raw_mode(metadata.mode()))?,
            mode: metadata.mode() & 0o7777,
            links: metadata.nlink(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.size(),
            mtime: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            device: (rustix::fs::major(device), rustix::fs::minor(device)),
        })
    }

    fn target(&self, node: &PathBuf) -> Result<Vec<u8>, String> {
        Ok(fs::read_link(node).map_err(message)?.into_os_string().into_vec())
    }

    fn contents(&self, node: &PathBuf, sink: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let mut file = File::open(node).map_err(message)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).map_err(message)? {
                0 => return Ok(()),
                read => sink(&buffer[..read]),
            }
        }
    }

    fn xattr(&self, node: &PathBuf, name: &[u8]) -> Result<Vec<u8>, String> {
        get_xattr(node, name).map_err(|error| error.to_string())
    }

    /// The kernel shows trusted attributes to root only.
    fn shows_xattr(&self, name: &[u8]) -> bool {
        rustix::process::geteuid().is_root() || !name.starts_with(b"trusted.")
    }
}

fn get_xattr(path: &Path, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    const LARGEST: usize = 64 << 10;
    let name = std::ffi::OsStr::from_bytes(name);
    let mut value = vec![0; LARGEST];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn message(error: std::io::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manifest;
    use std::os::unix::fs::symlink;

    fn manifest_of(root: &Path, lines: &str) -> FileSystemManifest {
        let link = fs::symlink_metadata(root.join("link")).unwrap();
        let (uid, gid) = (link.uid(), link.gid());
        let mtime = format!("{}.{:09}0", link.mtime(), link.mtime_nsec());
        let text = format!("# dataset p\nF\tlink\tl 777 1 {uid} {gid} 3 {mtime}\tone\n{lines}");
        Manifest::parse(text.as_bytes()).unwrap().get("p").unwrap().clone()
    }

    #[test]
    fn mounted_trees_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        symlink("one", dir.path().join("link")).unwrap();
        let tree = MountedTree(dir.path().to_path_buf());
        assert_eq!(differences(&manifest_of(dir.path(), ""), &tree), Vec::<String>::new());

        let missing = manifest_of(dir.path(), "F\tx\tf 644 1 0 0 0 0.0\t\n");
        assert_eq!(differences(&missing, &tree), ["\"x\": missing"]);

        fs::write(dir.path().join("x"), "abc").unwrap();
        let differing = differences(&missing, &tree);
        assert_eq!(differing.len(), 1);
        assert!(differing[0].starts_with("\"x\": is Observed"), "{differing:?}");
    }
}
