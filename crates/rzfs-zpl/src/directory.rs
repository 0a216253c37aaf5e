//! Directories: looking up names and listing them (spec 05, sections 3.2 and 3.3).

use crate::entry::{CONTROL_NAME, DirCookie, DirEntry, NameTarget, control_entry, dot_entries};
use crate::error::{Place, ZplError};
use crate::file_system::FileSystem;
use crate::options::{MAX_LONG_NAME, SnapshotDirectory};
use crate::source::Source;
use rzfs_dmu::{DmuError, Object};
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{ZapEntry, ZapError};
use std::ops::ControlFlow;

impl<S: Source> FileSystem<S> {
    /// The target of a name in a directory, including `.` and `..`.
    ///
    /// # Errors
    /// There is no such entry, the name is invalid, `directory` is not a directory, or the target
    /// cannot be opened.
    pub fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<NameTarget, ZplError> {
        self.source.with_file(directory, |node| {
            node.require_directory()?;
            let object = match name {
                b"." => return Ok(NameTarget::Object(directory)),
                b".." => self.parent(node),
                CONTROL_NAME if self.has_control_in(directory) => return Ok(NameTarget::Control),
                _ => {
                    let entry = self.entry(node, name)?;
                    entry.ok_or(ZplError::NotFound { place: node.place() })?.object
                }
            };
            if object != directory {
                // While the directory is locked: a file that loses its name is gone.
                let kind = self.kind_of(node.place(), object)?;
                if name == b".." && kind != FileKind::Directory {
                    let source = ZplError::NotDirectory { place: self.place(object) };
                    return Err(dangling_at(node.place(), object, source));
                }
            }
            Ok(NameTarget::Object(object))
        })
    }

    /// Refuses names that are invalid for new entries.
    pub(crate) fn check_name(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        let max = self.source.option(|options| options.max_name);
        self.name_rules.check(directory, name, max)
    }

    /// Refuses names that are invalid for all entries; existing ones may be longer than new ones.
    pub(crate) fn check_known_name(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        self.name_rules.check(directory, name, MAX_LONG_NAME)
    }

    /// The entry with this name.
    pub(crate) fn entry(
        &self,
        directory: &S::File,
        name: &[u8],
    ) -> Result<Option<DirectoryEntry>, ZplError> {
        let place = directory.place();
        self.check_known_name(place, name)?;
        let names = self.source.names(directory)?;
        let value = match self.name_rules.lookup(&names, name) {
            Ok(value) => value,
            Err(ZapError::ValueKind) => {
                let problem = FormatError::invalid("directory", "a value that is no number");
                return Err(directory.corrupt(problem));
            }
            Err(error) => return Err(place.zap_failure(error)),
        };
        if value.is_none() {
            self.check_name(place, name)?;
        }
        Ok(value.map(DirectoryEntry::decode))
    }

    /// The parent of a directory; the root is its own parent.
    fn parent(&self, directory: &S::File) -> ObjectId {
        let id = directory.place().object;
        if id == self.root() { id } else { directory.znode().parent }
    }

    /// Passes the entries of a directory from a position on to `visit`, until it stops or there are
    /// no more. Every entry has the position after it, at which a later call continues. The
    /// directory is locked meanwhile: `visit` must not call back.
    ///
    /// # Errors
    /// `directory` is not a directory, or an entry cannot be read; those before it were visited.
    pub fn read_dir(
        &self,
        directory: ObjectId,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ZplError> {
        self.source.with_file(directory, |node| {
            node.require_directory()?;
            for entry in self.leading_entries(node) {
                if from < entry.next && visit(entry).is_break() {
                    return Ok(());
                }
            }
            let place = node.place();
            // One on disk would stand for the control directory with whoever lists before he looks up.
            let is_covered = self.has_control_in(directory);
            for entry in self.source.names(node)?.entries_from(from.zap()) {
                let entry = entry.map_err(|source| place.zap_failure(source))?;
                if is_covered && entry.name() == CONTROL_NAME {
                    continue;
                }
                let DirectoryEntry { object, kind } = entry_value(place, &entry)?;
                let kind = match kind {
                    Some(kind) => kind,
                    None => self.kind_of(place, object)?,
                };
                let next = DirCookie::after(entry.next);
                if visit(DirEntry { name: entry.name(), object, kind, next }).is_break() {
                    return Ok(());
                }
            }
            Ok(())
        })
    }

    /// The entries that are not in the ZAP.
    fn leading_entries(&self, node: &S::File) -> impl Iterator<Item = DirEntry<'static>> + use<S> {
        let id = node.place().object;
        let visible = self.snapshot_directory() == SnapshotDirectory::Visible;
        let control = (id == self.root() && visible).then(control_entry);
        dot_entries(id, self.parent(node)).into_iter().chain(control)
    }

    /// The kind of a directory entry's target.
    fn kind_of(&self, directory: Place, object: ObjectId) -> Result<FileKind, ZplError> {
        let kind = self.source.kind(object);
        kind.map_err(|source| dangling_at(directory, object, source))
    }
}

/// Decodes a directory entry.
pub(crate) fn entry_value(directory: Place, entry: &ZapEntry) -> Result<DirectoryEntry, ZplError> {
    let value = entry.value.first_u64();
    Ok(DirectoryEntry::decode(value.ok_or(ZplError::EntryValue { directory })?))
}

/// A dangling entry is damage; one whose object cannot be read keeps that error.
pub(crate) fn dangling_at(directory: Place, object: ObjectId, source: ZplError) -> ZplError {
    if source.is_missing() || matches!(source, ZplError::NotDirectory { .. }) {
        ZplError::DanglingEntry { directory, object, source: Box::new(source) }
    } else {
        source
    }
}

/// Compile-time check: cached ZAPs are shared between threads.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<rzfs_zap::Zap<Object>>();
    shared::<FileSystem>();
    shared::<ZapError<DmuError>>();
};
