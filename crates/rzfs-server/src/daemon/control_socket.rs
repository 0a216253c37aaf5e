//! The socket that a daemon listens on.

use crate::control::{ControlDirectory, is_listened_on};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// The control socket of a pool.
#[derive(Debug)]
pub(super) struct ControlSocket {
    pool: String,
    /// Where it may be recreated.
    directory: ControlDirectory,
    bound: BoundSocket,
}

/// A socket in a directory.
#[derive(Debug)]
struct BoundSocket {
    path: PathBuf,
    /// The file at the path as long as it is not removed.
    file: Option<FileId>,
    listener: UnixListener,
}

/// Device and inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId(u64, u64);

impl FileId {
    /// The identity of the entry at a path, even a link.
    fn at(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self(metadata.dev(), metadata.ino()))
    }
}

impl BoundSocket {
    /// Binds the socket. A dead process's socket is replaced; one with a listener is an error of
    /// kind `AddrInUse`.
    fn bind(path: &Path) -> io::Result<Self> {
        if is_listened_on(path) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self { path: path.to_owned(), file: FileId::at(path), listener })
    }

    /// Whether the path still leads here.
    fn is_there(&self) -> bool {
        self.file.is_some() && FileId::at(&self.path) == self.file
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ControlSocket {
    pub(super) fn bind(directory: &ControlDirectory, pool: &str) -> io::Result<Self> {
        let bound = BoundSocket::bind(&directory.socket(pool))?;
        Ok(Self { pool: pool.to_owned(), directory: directory.clone(), bound })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.bound.path
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.bound.listener.accept().await.map(|(stream, _)| stream)
    }

    /// Recreates the socket if it was removed: a logout removes the session's directory, and the
    /// process would be unreachable.
    pub(super) fn renew(&mut self) {
        if self.bound.is_there() {
            return;
        }
        for path in self.directory.renewed_sockets(&self.pool) {
            match BoundSocket::bind(&path) {
                Ok(bound) => {
                    tracing::info!(path = %path.display(), "the control socket was made anew");
                    self.bound = bound;
                    return;
                }
                Err(error) => tracing::warn!(%error, path = %path.display(), "control socket"),
            }
        }
    }
}
