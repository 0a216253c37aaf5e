//! Paths in a dataset.

use rzfs_dmu::{Object, Objset};
use rzfs_format::ObjectId;
use rzfs_format::dirent::DirectoryEntry;
use rzfs_format::object_type::ObjectType;
use rzfs_zpl::{FileSystem, FileSystemOptions};

/// `ENOENT`.
const NOT_FOUND: i32 = 2;

/// A path that does not exist.
pub(super) struct NotFound {
    /// The path up to the missing name.
    pub(super) path: String,
    /// The errno.
    pub(super) errno: i32,
}

/// The object at a path; names after a file are ignored, as in zdb.
pub(super) fn object(objset: &Objset, pool_version: u64, path: &str) -> Result<Object, NotFound> {
    let not_found = |path: &str, errno: i32| NotFound { path: path.to_owned(), errno };
    let options = FileSystemOptions { pool_version, ..FileSystemOptions::default() };
    let file_system =
        FileSystem::open(objset.clone(), options).map_err(|error| not_found("/", error.errno()))?;
    let read = |id: ObjectId, path: &str| {
        objset.object(id).map_err(|error| not_found(path, error.errno()))
    };
    let mut walked = String::new();
    let mut object = read(file_system.root(), "/")?;
    for name in path.strip_suffix('/').unwrap_or(path).split('/') {
        if object.object_type() != ObjectType::DIRECTORY_CONTENTS {
            break;
        }
        walked.push('/');
        walked.push_str(name);
        let value = object
            .zap()
            .and_then(|zap| zap.lookup_u64(name).map_err(|source| object.zap_error(source)));
        let value = value.map_err(|error| not_found(&walked, error.errno()))?;
        let value = value.ok_or_else(|| not_found(&walked, NOT_FOUND))?;
        object = read(DirectoryEntry::decode(value).object, &walked)?;
    }
    Ok(object)
}
