//! A file system as a tree for comparison by the test kit.

use rzfs_format::ObjectId;
use rzfs_testkit::{EntryKind, Listing, Observed, Tree};
use rzfs_zpl::{DirCookie, FileSystem, NameTarget};
use std::ops::ControlFlow;

/// A file system; a node is an object.
#[derive(Debug)]
pub struct FileSystemTree<'a>(pub &'a FileSystem);

impl Tree for FileSystemTree<'_> {
    type Node = ObjectId;

    fn root(&self) -> Result<ObjectId, String> {
        Ok(self.0.root())
    }

    fn list(&self, directory: &ObjectId) -> Result<Listing<ObjectId>, String> {
        let mut entries = Vec::new();
        let mut kinds = Vec::new();
        let mut collect = |entry: rzfs_zpl::DirEntry<'_>| {
            if !matches!(entry.name, b"." | b".." | b".zfs") {
                entries.push((entry.name.to_vec(), entry.object));
                kinds.push(entry.kind);
            }
            ControlFlow::Continue(())
        };
        self.0.read_dir(*directory, DirCookie::START, &mut collect).map_err(|e| e.to_string())?;
        let objects: Vec<_> = entries.iter().map(|(_, object)| *object).collect();
        self.0.prefetch_attributes(&objects);
        for ((name, object), kind) in entries.iter().zip(kinds) {
            let found = self.0.lookup(*directory, name).map_err(|e| e.to_string())?;
            if found != NameTarget::Object(*object) {
                return Err(format!("{name:?} is listed as {object} but found as {found:?}"));
            }
            let attributes = self.0.attributes(*object).map_err(|e| e.to_string())?;
            if attributes.kind != kind {
                return Err(format!("{name:?} is listed as {kind:?}"));
            }
        }
        Ok(entries)
    }

    fn observe(&self, node: &ObjectId) -> Result<Observed, String> {
        let attributes = self.0.attributes(*node).map_err(|e| e.to_string())?;
        Ok(Observed {
            kind: EntryKind::from(attributes.kind),
            mode: attributes.permissions.into(),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            mtime: i128::from(attributes.mtime.seconds) * 1_000_000_000
                + i128::from(attributes.mtime.nanoseconds),
            device: (attributes.device.major, attributes.device.minor),
        })
    }

    fn target(&self, node: &ObjectId) -> Result<Vec<u8>, String> {
        self.0.read_link(*node).map_err(|e| e.to_string())
    }

    fn contents(&self, node: &ObjectId, sink: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let mut offset = 0;
        loop {
            let segments =
                self.0.read_segments(*node, offset, 1 << 20).map_err(|e| e.to_string())?;
            if segments.is_empty() {
                return Ok(());
            }
            for segment in segments {
                sink(&segment);
                offset += segment.len() as u64;
            }
        }
    }

    fn xattr(&self, node: &ObjectId, name: &[u8]) -> Result<Vec<u8>, String> {
        self.0.xattr(*node, name).map_err(|e| e.to_string())
    }
}
