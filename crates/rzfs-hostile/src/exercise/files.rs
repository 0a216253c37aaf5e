//! Directories and files.

use super::Exercise;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zpl::{DirCookie, FileSystem};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Files of a file system that are looked at.
const FILES: usize = 80;
/// Names of a directory that are looked at.
const NAMES: usize = 40;
/// Bytes that are read at each end of a file.
const READ: usize = 32 << 10;

impl Exercise {
    /// Walks over the first files of a file system.
    pub(super) fn file_system(&mut self, file_system: &FileSystem) {
        let mut pending = VecDeque::from([file_system.root()]);
        for _ in 0..FILES {
            let Some(object) = pending.pop_front() else { return };
            let Some(attributes) = self.note(file_system.attributes(object)) else { continue };
            self.note(file_system.acl(object));
            self.note(file_system.statistics(object));
            for name in self.note(file_system.xattr_names(object)).unwrap_or_default() {
                self.note(file_system.xattr(object, &name));
            }
            match attributes.kind {
                FileKind::Directory => self.directory(file_system, object, &mut pending),
                FileKind::Symlink => {
                    self.note(file_system.read_link(object));
                }
                FileKind::Regular => self.file(file_system, object, attributes.size),
                _ => {}
            }
        }
    }

    fn directory(
        &mut self,
        file_system: &FileSystem,
        directory: ObjectId,
        pending: &mut VecDeque<ObjectId>,
    ) {
        let mut names = Vec::new();
        let listed = file_system.read_dir(directory, DirCookie::START, |entry| {
            names.push((entry.name.to_vec(), entry.object));
            if names.len() < NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.note(listed);
        for (name, object) in names {
            self.note(file_system.lookup(directory, &name));
            if name != b"." && name != b".." && pending.len() < FILES {
                pending.push_back(object);
            }
        }
    }

    fn file(&mut self, file_system: &FileSystem, object: ObjectId, size: u64) {
        let mut buffer = vec![0; READ];
        self.note(file_system.read(object, 0, &mut buffer));
        self.note(file_system.read(object, size.saturating_sub(READ as u64), &mut buffer));
        self.note(file_system.read(object, size / 2, &mut buffer));
        self.note(file_system.seek_hole(object, 0));
        self.note(file_system.seek_data(object, size / 2));
    }
}
