//! The visible contents of a file system, as a manifest.

use crate::ProofError;
use rzfs_format::ObjectId;
use rzfs_testkit::{Entry, EntryKind, FileSystemManifest};
use rzfs_zpl::{DirCookie, FileSystem, Source, ZplError};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Bytes of a file read at once.
const READ_SIZE: u64 = 1 << 20;

/// Names in a directory, with their files.
pub type Names = Vec<(Vec<u8>, ObjectId)>;

/// The names in a directory, without `.`, `..` and `.zfs`.
///
/// # Errors
/// It cannot be read.
pub fn names<S: Source>(fs: &FileSystem<S>, directory: ObjectId) -> Result<Names, ZplError> {
    let mut names = Names::new();
    fs.read_dir(directory, DirCookie::START, |entry| {
        if !matches!(entry.name, b"." | b".." | b".zfs") {
            names.push((entry.name.to_vec(), entry.object));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// Extended attributes of a file.
fn xattrs<S: Source>(
    fs: &FileSystem<S>,
    file: ObjectId,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ZplError> {
    let names = fs.xattr_names(file)?;
    names.into_iter().map(|name| Ok((name.clone(), fs.xattr(file, &name)?))).collect()
}

/// Records the visible contents.
///
/// # Errors
/// A file that cannot be read.
pub fn record<S: Source>(fs: &FileSystem<S>) -> Result<FileSystemManifest, ProofError> {
    let mut manifest = FileSystemManifest {
        root_xattrs: xattrs(fs, fs.root()).map_err(|source| ProofError::at("", source))?,
        ..FileSystemManifest::default()
    };
    let mut directories = vec![(Vec::new(), fs.root())];
    while let Some((directory, object)) = directories.pop() {
        let at = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let found = names(fs, object);
        for (name, file) in found.map_err(|source| ProofError::at(&at(&directory), source))? {
            let path =
                if directory.is_empty() { name } else { [&directory[..], b"/", &name].concat() };
            let entry = entry(fs, file).map_err(|source| ProofError::at(&at(&path), source))?;
            if entry.kind == EntryKind::Directory {
                directories.push((path.clone(), file));
            }
            manifest.entries.insert(path, entry);
        }
    }
    Ok(manifest)
}

fn entry<S: Source>(fs: &FileSystem<S>, file: ObjectId) -> Result<Entry, ZplError> {
    let attributes = fs.attributes(file)?;
    let kind = EntryKind::from(attributes.kind);
    let nanoseconds = i128::from(attributes.mtime.nanoseconds);
    let device = (attributes.device.major, attributes.device.minor);
    Ok(Entry {
        kind,
        mode: attributes.permissions.into(),
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        mtime: i128::from(attributes.mtime.seconds) * 1_000_000_000 + nanoseconds,
        target: match kind {
            EntryKind::Symlink => fs.read_link(file)?,
            _ => Vec::new(),
        },
        sha256: match kind {
            EntryKind::Regular => Some(digest(fs, file)?),
            _ => None,
        },
        device: match kind {
            EntryKind::CharDevice | EntryKind::BlockDevice => Some(device),
            _ => None,
        },
        xattrs: xattrs(fs, file)?,
    })
}

fn digest<S: Source>(fs: &FileSystem<S>, file: ObjectId) -> Result<[u8; 32], ZplError> {
    let mut digest = Sha256::new();
    let mut offset = 0;
    loop {
        let segments = fs.read_segments(file, offset, READ_SIZE)?;
        if segments.is_empty() {
            return Ok(digest.finalize().into());
        }
        for segment in segments {
            digest.update(&segment);
            offset += segment.len() as u64;
        }
    }
}

/// The differences between two manifests, a line for each file. Files covered by other file systems
/// in either of them are left out.
#[must_use]
pub fn differences(expected: &FileSystemManifest, found: &FileSystemManifest) -> Vec<String> {
    let is_covered = |path: &[u8]| {
        expected.covered.iter().chain(&found.covered).any(|mount| {
            path.strip_prefix(&mount[..])
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    };
    let mut out = Vec::new();
    if expected.root_xattrs != found.root_xattrs {
        out.push("the root directory has other extended attributes".to_owned());
    }
    for (path, entry) in expected.entries.iter().filter(|(path, _)| !is_covered(path)) {
        let name = String::from_utf8_lossy(path);
        match found.entries.get(path) {
            None => out.push(format!("{name:?} is missing")),
            Some(other) if other != entry => {
                out.push(format!("{name:?} is {}, was {}", show(other), show(entry)));
            }
            Some(_) => {}
        }
    }
    let unexpected = found.entries.keys().filter(|path| !expected.entries.contains_key(*path));
    for path in unexpected.filter(|path| !is_covered(path)) {
        out.push(format!("{:?} is unexpected", String::from_utf8_lossy(path)));
    }
    out
}

/// An entry, with long values cut.
fn show(entry: &Entry) -> String {
    let mut text = format!("{entry:?}");
    let end = (0..=text.len().min(400)).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
