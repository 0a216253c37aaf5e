//! Talking to the pools that are mounted: where their control sockets are and how to ask.
//!
//! Every process that has a pool mounted listens on `DIRECTORY/POOL.sock`. Root's directory is
//! `/run/rzfs`, whatever session root is in, so that `sudo`, cron and a login shell find the same
//! pools. Everybody else's is `rzfs` below `$XDG_RUNTIME_DIR` or `/run/user/UID`, or
//! `/tmp/rzfs-UID` where the system makes no such directories; pools are looked for in all of
//! these. `$RZFS_RUNTIME_DIR` takes the place of them all. A directory belongs to one user and
//! nobody else may enter it; one that does not look like that is refused, so no other user can put
//! a socket there.

use crate::protocol::{Answer, Identity, MAX_ANSWER, Refusal, Request, WireError, receive, send};
use std::fs;
use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a pool may take to say who it is.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// What can go wrong between a command and a mounted pool.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The directory of the sockets cannot be used.
    #[error("control directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The directory of the sockets is open to other users.
    #[error(
        "control directory {0}: must be a directory that only its owner, you, may enter \
         (RZFS_RUNTIME_DIR can name the directory for another)"
    )]
    Unsafe(PathBuf),
    /// The pool did not answer, or not in our language.
    #[error("pool '{pool}': {source}")]
    Wire {
        /// The pool.
        pool: String,
        /// What happened.
        source: WireError,
    },
    /// The pool answered something else than it was asked.
    #[error("pool '{0}': the answer does not fit the question")]
    Mismatch(String),
    /// The pool refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
}

/// The variable with the directory below which the sockets are, in place of all others.
const DIRECTORY_VARIABLE: &str = "RZFS_RUNTIME_DIR";

/// The directory with the sockets of one user's mounted pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlDirectory {
    /// Where new sockets are made.
    own: PathBuf,
    /// Where processes of other sessions of the user may have made theirs.
    others: Vec<PathBuf>,
}

impl ControlDirectory {
    /// The directory of the user who asks.
    #[must_use]
    pub fn of_user() -> Self {
        let uid = rustix::process::geteuid();
        let below = |variable| {
            let value = std::env::var_os(variable).map(PathBuf::from);
            // What the XDG specification says of relative ones, too.
            value.filter(|path| path.is_absolute()).map(|path| path.join("rzfs"))
        };
        if let Some(directory) = below(DIRECTORY_VARIABLE) {
            return Self::at(directory);
        }
        if uid.is_root() {
            return Self::at(PathBuf::from("/run/rzfs"));
        }
        let run = PathBuf::from(format!("/run/user/{}", uid.as_raw()));
        let run = run.is_dir().then(|| run.join("rzfs"));
        let temporary = PathBuf::from(format!("/tmp/rzfs-{}", uid.as_raw()));
        let mut others: Vec<_> = below("XDG_RUNTIME_DIR").into_iter().chain(run).collect();
        others.dedup();
        others.push(temporary);
        Self { own: others.remove(0), others }
    }

    /// This directory.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { own: path, others: Vec::new() }
    }

    /// Makes the directory if it is missing, and checks that it is private.
    pub fn prepare(&self) -> Result<(), ControlError> {
        let fail = |source| ControlError::Directory { path: self.own.clone(), source };
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.own) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(fail(error)),
            _ => {}
        }
        if is_private(&self.own).map_err(fail)? {
            Ok(())
        } else {
            Err(ControlError::Unsafe(self.own.clone()))
        }
    }

    /// Where the socket of a pool is made. Pool names have no slash.
    #[must_use]
    pub fn socket(&self, pool: &str) -> PathBuf {
        socket_in(&self.own, pool)
    }

    /// Where somebody of this user may listen for a pool.
    pub fn sockets(&self, pool: &str) -> impl Iterator<Item = PathBuf> {
        let usable = self.others.iter().filter(|path| is_private(path).is_ok_and(|usable| usable));
        std::iter::once(&self.own).chain(usable).map(move |path| socket_in(path, pool))
    }

    /// Connections to all mounted pools, by name. Sockets that nobody listens on are skipped, and so,
    /// with a warning, are pools that do not answer in time.
    pub fn mounted(&self) -> Result<Vec<ControlClient>, ControlError> {
        let mut clients = mounted_in(&self.own)?;
        for path in &self.others {
            // What others have put there is none of ours.
            match mounted_in(path) {
                Ok(more) => clients.extend(more),
                Err(error @ (ControlError::Unsafe(_) | ControlError::Directory { .. })) => {
                    tracing::debug!(%error, "passed over");
                }
                Err(error) => return Err(error),
            }
        }
        clients.sort_by(|a, b| a.identity.pool.cmp(&b.identity.pool));
        Ok(clients)
    }
}

fn socket_in(directory: &Path, pool: &str) -> PathBuf {
    directory.join(format!("{}.sock", pool.replace('/', "_")))
}

/// Whether it is a directory, ours, and closed to everyone else.
fn is_private(directory: &Path) -> std::io::Result<bool> {
    let metadata = fs::symlink_metadata(directory)?;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw();
    Ok(metadata.is_dir() && ours && metadata.mode() & 0o077 == 0)
}

fn mounted_in(directory: &Path) -> Result<Vec<ControlClient>, ControlError> {
    let fail = |source| ControlError::Directory { path: directory.to_owned(), source };
    match is_private(directory) {
        Ok(true) => {}
        Ok(false) => return Err(ControlError::Unsafe(directory.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    }
    let mut clients = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match ControlClient::connect(&path) {
            Ok(client) => clients.extend(client),
            // A pool that is in trouble keeps nobody from the others.
            Err(error) => tracing::warn!("{error}; it is passed over"),
        }
    }
    Ok(clients)
}

/// A connection to a mounted pool.
#[derive(Debug)]
pub struct ControlClient {
    identity: Identity,
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects to the socket at `path`; none if nobody listens there, or not any more, or has let go
    /// of the pool.
    pub fn connect(path: &Path) -> Result<Option<Self>, ControlError> {
        let name = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let fail = |source: std::io::Error| ControlError::Wire {
            pool: name(),
            source: WireError::Io(source),
        };
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(fail(error)),
        };
        stream.set_read_timeout(Some(IDENTIFY_TIMEOUT)).map_err(fail)?;
        let identity = Identity { pool: name(), guid: 0, process: 0, is_writable: false };
        let mut client = Self { identity, stream: BufReader::new(stream) };
        match client.ask(&Request::Identify) {
            Ok(Answer::Identity(identity)) => client.identity = identity,
            Ok(_) => return Err(ControlError::Mismatch(client.identity.pool)),
            Err(ControlError::Wire { source, .. }) if source.is_hang_up() => return Ok(None),
            // It is just being let go of.
            Err(ControlError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        client.stream.get_ref().set_read_timeout(None).map_err(fail)?;
        Ok(Some(client))
    }

    /// Who answers.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Asks and waits for the answer; a refusal is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ControlError> {
        let answer = send(self.stream.get_mut(), request)
            .and_then(|()| receive(&mut self.stream, MAX_ANSWER))
            .map_err(|source| ControlError::Wire { pool: self.identity.pool.clone(), source })?;
        match answer {
            Answer::Failed(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_missing_directory_has_no_pools() {
        let parent = tempfile::tempdir().unwrap();
        let directory = ControlDirectory::at(parent.path().join("a/b"));
        assert!(directory.mounted().unwrap().is_empty());
        directory.prepare().unwrap();
        directory.prepare().unwrap();
        assert!(directory.mounted().unwrap().is_empty());
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let directory = ControlDirectory::at(parent.path().join("open"));
        directory.prepare().unwrap();
        fs::set_permissions(&directory.own, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(directory.mounted(), Err(ControlError::Unsafe(_))));
        assert!(matches!(directory.prepare(), Err(ControlError::Unsafe(_))));
        let link = ControlDirectory::at(parent.path().join("link"));
        std::os::unix::fs::symlink(parent.path(), &link.own).unwrap();
        assert!(matches!(link.mounted(), Err(ControlError::Unsafe(_))));
    }

    #[test]
    fn pools_of_other_sessions_are_found_unless_somebody_else_made_the_place() {
        let parent = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| parent.path().join(name));
        let directory = ControlDirectory { own, others: vec![other.clone()] };
        directory.prepare().unwrap();
        assert_eq!(directory.sockets("tank").count(), 1, "there is no other place");
        ControlDirectory::at(other.clone()).prepare().unwrap();
        assert!(directory.sockets("tank").any(|path| path == other.join("tank.sock")));
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(directory.sockets("tank").count(), 1);
        assert!(directory.mounted().unwrap().is_empty());
    }

    #[test]
    fn abandoned_sockets_are_skipped() {
        let parent = tempfile::tempdir().unwrap();
        let directory = ControlDirectory::at(parent.path().join("run"));
        directory.prepare().unwrap();
        drop(std::os::unix::net::UnixListener::bind(directory.socket("gone")).unwrap());
        assert!(directory.mounted().unwrap().is_empty());
    }
}
