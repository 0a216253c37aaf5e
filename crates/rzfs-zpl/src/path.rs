//! Paths of files that are known by their numbers, for messages.

use crate::entry::DirCookie;
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::source::Source;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use std::ops::ControlFlow;

/// Directories above each other beyond this number are damage.
const MAX_DEPTH: usize = 4096;

impl<S: Source> FileSystem<S> {
    /// The path of a file from the root on, which is `/`; `None` if it is in no directory, as
    /// extended attributes and removed files are. Of a file with several names it is one of them.
    /// Its directories are searched.
    ///
    /// # Errors
    /// There is no such file, or a directory cannot be read.
    pub fn path(&self, file: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut child = file;
        while child != self.root() {
            let parent = self.source.with_file(child, |file| Ok(file.znode().parent))?;
            let is_directory = self.source.kind(parent)? == FileKind::Directory;
            if names.len() >= MAX_DEPTH || !is_directory {
                return Ok(None);
            }
            let Some(name) = self.name_in(parent, child)? else { return Ok(None) };
            names.push(name);
            child = parent;
        }
        if names.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        names.push(Vec::new());
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// The first name of a file in a directory.
    fn name_in(&self, directory: ObjectId, file: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        let mut found = None;
        self.read_dir(directory, DirCookie::START, |entry| {
            if entry.object != file || matches!(entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            found = Some(entry.name.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}
