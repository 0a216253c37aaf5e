//! Directories: looking up names and listing them (spec 05, sections 3.2 and 3.3).

use crate::entry::{CONTROL_NAME, DirCookie, DirEntry, Found, control_entry, dot_entries};
use crate::error::{Place, ZplError};
use crate::file_system::FileSystem;
use crate::node::Node;
use crate::options::{MAX_LONG_NAME, SnapshotDirectory};
use rzfs_dmu::{DmuError, Object};
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{ZapEntry, ZapError};
use std::ops::ControlFlow;

impl FileSystem {
    /// What a name in a directory leads to, `.` and `..` included.
    ///
    /// # Errors
    /// There is no such entry, no entry can have this name, `directory` is none, or what the
    /// entry names cannot be opened.
    pub fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<Found, ZplError> {
        let node = self.node(directory)?;
        node.require_directory()?;
        match name {
            b"." => return Ok(Found::Object(directory)),
            b".." => return self.parent(&node).map(Found::Object),
            CONTROL_NAME if directory == self.root() && self.has_control_directory() => {
                return Ok(Found::Control);
            }
            _ => {}
        }
        match self.lookup_entry(&node, name)? {
            Some(entry) => Ok(Found::Object(entry.object)),
            None => Err(ZplError::NotFound { place: node.place() }),
        }
    }

    /// The entry with this name, whose object was opened.
    pub(crate) fn lookup_entry(
        &self,
        directory: &Node,
        name: &[u8],
    ) -> Result<Option<DirectoryEntry>, ZplError> {
        // There may be long ones from when they were allowed.
        self.names.check(directory.place(), name, MAX_LONG_NAME)?;
        let zap = self.directory_zap(directory)?;
        let value = match self.names.lookup(&zap, name) {
            Ok(value) => value,
            Err(ZapError::ValueKind) => {
                let problem = FormatError::invalid("directory", "a value that is no number");
                return Err(directory.corrupt(problem));
            }
            Err(error) => return Err(directory.object().zap_error(error).into()),
        };
        let Some(entry) = value.map(DirectoryEntry::decode) else {
            self.names.check(directory.place(), name, self.options.max_name)?;
            return Ok(None);
        };
        self.node(entry.object).map_err(|source| dangling(directory, entry.object, source))?;
        Ok(Some(entry))
    }

    /// The number of the directory above a directory; the root's is its own.
    fn parent_number(&self, directory: &Node) -> ObjectId {
        if directory.id() == self.root() { directory.id() } else { directory.znode().parent }
    }

    /// The directory above a directory.
    fn parent(&self, directory: &Node) -> Result<ObjectId, ZplError> {
        let parent = self.parent_number(directory);
        let open = self.node(parent).and_then(|node| node.require_directory());
        open.map_err(|source| dangling(directory, parent, source))?;
        Ok(parent)
    }

    /// Hands the entries of a directory from a position on to `visit`, until it breaks off or
    /// there are no more. Every entry has the position after it, from which a later call goes on.
    ///
    /// # Errors
    /// `directory` is none, or an entry cannot be read; those before it were visited.
    pub fn read_dir(
        &self,
        directory: ObjectId,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ZplError> {
        let node = self.node(directory)?;
        node.require_directory()?;
        for entry in self.leading_entries(&node) {
            if from < entry.next && visit(entry).is_break() {
                return Ok(());
            }
        }
        let zap = self.directory_zap(&node)?;
        for entry in zap.entries_from(from.zap()) {
            let entry = entry.map_err(|source| node.object().zap_error(source))?;
            let value = entry_value(node.place(), &entry)?;
            let listed = DirEntry {
                name: entry.name(),
                object: value.object,
                kind: self.kind_of(&node, value)?,
                next: DirCookie::after(entry.next),
            };
            if visit(listed).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The entries that no ZAP holds.
    fn leading_entries(&self, node: &Node) -> impl Iterator<Item = DirEntry<'static>> + use<> {
        let visible = self.options.snapshot_directory == SnapshotDirectory::Visible;
        let control = (node.id() == self.root() && visible).then(control_entry);
        dot_entries(node.id(), self.parent_number(node)).into_iter().chain(control)
    }

    /// The kind that an entry says, else the one of its object.
    fn kind_of(&self, directory: &Node, entry: DirectoryEntry) -> Result<FileKind, ZplError> {
        match entry.kind {
            Some(kind) => Ok(kind),
            None => match self.node(entry.object) {
                Ok(node) => Ok(node.znode().kind),
                Err(source) => Err(dangling(directory, entry.object, source)),
            },
        }
    }
}

/// What an entry of a directory says.
pub(crate) fn entry_value(directory: Place, entry: &ZapEntry) -> Result<DirectoryEntry, ZplError> {
    let value = entry.value.first_u64();
    Ok(DirectoryEntry::decode(value.ok_or(ZplError::EntryValue { directory })?))
}

/// An entry that leads to nothing is damage; one whose object cannot be read stays that.
fn dangling(directory: &Node, object: ObjectId, source: ZplError) -> ZplError {
    dangling_at(directory.place(), object, source)
}

/// The same, of a directory that is known by its place.
pub(crate) fn dangling_at(directory: Place, object: ObjectId, source: ZplError) -> ZplError {
    if source.is_missing() || matches!(source, ZplError::NotDirectory { .. }) {
        ZplError::DanglingEntry { directory, object, source: Box::new(source) }
    } else {
        source
    }
}

/// Statically: the ZAPs that are cached are shared between threads.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<rzfs_zap::Zap<Object>>();
    shared::<FileSystem>();
    shared::<ZapError<DmuError>>();
};
