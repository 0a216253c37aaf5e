//! Talks to mounted pools: locates their control sockets and sends requests.
//!
//! Every process that has a pool mounted listens on `DIRECTORY/POOL.sock`; a name too long for a
//! socket path is shortened to its beginning and a checksum. Root's directory is `/run/rzfs`,
//! regardless of root's session, so that `sudo`, cron and a login shell find the same pools. Other
//! users have `rzfs` below `$XDG_RUNTIME_DIR` or `/run/user/UID`, or `/tmp/rzfs-UID` where the
//! system makes no such directories; all of these are searched for pools. Root of a user namespace
//! (`unshare -r`) may use `/run/rzfs` where `/run` belongs to the namespace, as in containers;
//! otherwise it counts as another user, and `UID` is the number outside, so that the user's pools
//! are found from both sides. `$RZFS_RUNTIME_DIR` replaces them all. A directory belongs to one
//! user and must be closed to others; any other is refused, so that no other user can put a socket
//! there. Only root may look into another user's directory, which must be named: its sockets are
//! untrusted. The system may remove a directory at logout: a surviving process then listens in the
//! next existing one.

mod client;
mod error;
mod local_pools;
mod namespace;
mod ownership;
#[cfg(test)]
mod tests;

pub use client::{ControlClient, ReceiveProgress, is_listened_on};
pub use error::ControlError;
pub use local_pools::AskedPools;

use client::SharedPatience;
use namespace::UserNamespace;
use ownership::{is_made_private, is_of_a_user, is_place_of, is_private, may_have, private_to};
use rustix::process::geteuid;
use rzfs_codec::checksum::{Salt, checksum};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A pool with the shortest name.
const SHORTEST_POOL: &str = "a";
/// How long all pools together may take to identify themselves for a listing.
const LISTING_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length in bytes of a socket path.
const MAX_SOCKET_PATH: usize = 107;

/// Maximum length in bytes of an unshortened socket name, which leaves some 60 for the directory.
const MAX_SOCKET_NAME: usize = 42;

/// Bytes of a longer name that are kept, before its checksum.
const KEPT_OF_NAME: usize = 25;

/// The variable with the directory of the sockets, which overrides all others.
const DIRECTORY_VARIABLE: &str = "RZFS_RUNTIME_DIR";

/// The variable with the runtime directory of a session.
const SESSION_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// The directory of root.
const ROOTS_DIRECTORY: &str = "/run/rzfs";

/// The directory with the sockets of one user's mounted pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlDirectory {
    /// Where new sockets are made.
    own: PathBuf,
    /// Where processes in other sessions of the user may have made theirs.
    others: Vec<PathBuf>,
    /// The variable that determines where new ones are made.
    variable: Option<&'static str>,
}

impl ControlDirectory {
    /// The directory of the calling user.
    #[must_use]
    pub fn of_user() -> Self {
        let uid = geteuid();
        let below = |variable| {
            let value = std::env::var_os(variable).map(PathBuf::from);
            // The XDG specification ignores relative paths, too.
            value.filter(|path| path.is_absolute()).map(|path| path.join("rzfs"))
        };
        if let Some(directory) = below(DIRECTORY_VARIABLE) {
            return Self { variable: Some(DIRECTORY_VARIABLE), ..Self::at(directory) };
        }
        let namespace = UserNamespace::current().filter(|_| uid.is_root());
        let roots = PathBuf::from(ROOTS_DIRECTORY);
        if uid.is_root() && (namespace.is_none() || may_have(uid, &roots)) {
            return Self::at(roots);
        }
        // The user's number outside the namespace.
        let known_as = namespace.and_then(|namespace| namespace.outside_of(uid)).unwrap_or(uid);
        let run = PathBuf::from(format!("/run/user/{}/rzfs", known_as.as_raw()));
        let temporary = PathBuf::from(format!("/tmp/rzfs-{}", known_as.as_raw()));
        let session = below(SESSION_VARIABLE);
        // `su` leaves the user another one's variable, and a session may have ended.
        let sessions = session.iter().cloned().chain([run]);
        let mut others: Vec<_> = sessions.filter(|path| is_place_of(uid, path)).collect();
        others.dedup();
        others.push(temporary);
        let own = others.remove(0);
        let variable = session.filter(|session| *session == own).map(|_| SESSION_VARIABLE);
        Self { own, others, variable }
    }

    /// This directory.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { own: path, others: Vec::new(), variable: None }
    }

    /// Makes the directory if it is missing, and checks that it is private.
    pub fn prepare(&self) -> Result<(), ControlError> {
        let fail = |source| ControlError::Directory { path: self.own.clone(), source };
        // Root makes none in a user's directory: the user could not use it any more.
        let above = self.own.parent().and_then(|above| fs::symlink_metadata(above).ok());
        if geteuid().is_root() && above.is_some_and(|above| is_of_a_user(above.uid())) {
            return Err(ControlError::Unsafe(self.own.clone()));
        }
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

    /// Checks that the directory has room for the socket of a pool.
    ///
    /// # Errors
    /// [`ControlError::TooLong`] if not.
    pub fn check_length(&self, pool: &str) -> Result<(), ControlError> {
        let length = self.socket(pool).as_os_str().len();
        match length.saturating_sub(MAX_SOCKET_PATH) {
            0 => Ok(()),
            excess => Err(ControlError::TooLong {
                path: self.own.clone(),
                variable: self.variable.unwrap_or("its path"),
                excess,
            }),
        }
    }

    /// Where the socket of a pool is made. Pool names have no slash.
    #[must_use]
    pub fn socket(&self, pool: &str) -> PathBuf {
        socket_in(&self.own, pool)
    }

    /// Where the socket of a pool can be recreated if it is gone, perhaps with its directory. Such
    /// a directory is made, but not its parents: these go with a session and come back with the
    /// next one.
    pub fn renewed_sockets(&self, pool: &str) -> impl Iterator<Item = PathBuf> {
        let all = std::iter::once(&self.own).chain(&self.others);
        let made = all.filter(|path| is_made_private(path));
        made.map(move |path| socket_in(path, pool)).filter(|path| can_be_bound(path))
    }

    /// Where a process of this user may listen for a pool.
    pub fn sockets(&self, pool: &str) -> impl Iterator<Item = PathBuf> {
        let usable = self.others.iter().filter(|path| is_private(path).is_ok_and(|usable| usable));
        let all = std::iter::once(&self.own).chain(usable);
        all.map(move |path| socket_in(path, pool)).filter(|path| can_be_bound(path))
    }

    /// Connections to all mounted pools, by name, and the errors of slow ones: all are asked at
    /// once. Sockets without a listener are skipped.
    ///
    /// Later requests to these pools have short timeouts too, unless they read much or change
    /// something.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn mounted(&self) -> Result<Mounted, ControlError> {
        self.mounted_within(LISTING_TIMEOUT)
    }

    /// The same with a time limit.
    ///
    /// # Errors
    /// As [`ControlDirectory::mounted`].
    pub fn mounted_within(&self, patience: Duration) -> Result<Mounted, ControlError> {
        let shared = SharedPatience::new(LISTING_TIMEOUT);
        let mut mounted = Mounted::default();
        for answer in
            ask_all(&self.all_sockets()?, |path| ControlClient::connect_within(path, patience))
        {
            match answer {
                Ok(client) => mounted.clients.extend(client),
                Err(error) => mounted.silent.push(error),
            }
        }
        mounted.clients.iter_mut().for_each(|client| client.share(&shared));
        mounted.clients.sort_by(|a, b| a.identity().pool.cmp(&b.identity().pool));
        Ok(mounted)
    }

    /// Where a process of this user may listen.
    fn all_sockets(&self) -> Result<Vec<PathBuf>, ControlError> {
        let mut sockets = self.own_sockets()?;
        for path in &self.others {
            // Entries put there by others are ignored.
            match sockets_in(path) {
                Ok(more) => sockets.extend(more),
                Err(error) => tracing::debug!(%error, "passed over"),
            }
        }
        Ok(sockets)
    }

    /// The sockets in its own directory, which must leave room for names.
    fn own_sockets(&self) -> Result<Vec<PathBuf>, ControlError> {
        self.check_length(SHORTEST_POOL)?;
        sockets_in(&self.own)
    }

    /// A connection to a named mounted pool, which may take longer to answer than listed ones.
    ///
    /// # Errors
    /// Among others, it exists and does not answer.
    pub fn mounted_as(&self, pool: &str) -> Result<Option<ControlClient>, ControlError> {
        // Checks that the directory can be used.
        self.own_sockets()?;
        let mut silent = None;
        for path in self.sockets(pool) {
            match ControlClient::connect(&path) {
                Ok(Some(client)) if client.identity().pool == pool => return Ok(Some(client)),
                Ok(_) => {}
                Err(error) => silent = Some(error),
            }
        }
        silent.map_or(Ok(None), Err)
    }
}

/// Pools whose names have no `~` have different sockets, unless checksums collide.
fn socket_in(directory: &Path, pool: &str) -> PathBuf {
    let name = pool.replace('/', "_");
    if name.len() <= MAX_SOCKET_NAME {
        return directory.join(format!("{name}.sock"));
    }
    let ends = name.char_indices().map(|(start, one)| start + one.len_utf8());
    let kept = ends.take_while(|end| *end <= KEPT_OF_NAME).last().unwrap_or(0);
    let kept = name.get(..kept).unwrap_or_default();
    let function = ChecksumFunction::Sha256;
    let sum = checksum(function, ByteOrder::Little, pool.as_bytes(), &Salt::default());
    directory.join(format!("{kept}~{:016x}.sock", sum.0[0]))
}

/// Whether the path of a socket is short enough.
fn can_be_bound(socket: &Path) -> bool {
    socket.as_os_str().len() <= MAX_SOCKET_PATH
}

/// The sockets in a directory that is private to the caller; root may query all users' pools.
fn sockets_in(directory: &Path) -> Result<Vec<PathBuf>, ControlError> {
    let fail = |source| ControlError::Directory { path: directory.to_owned(), source };
    let asks = geteuid();
    match private_to(directory) {
        Ok(Some(owner)) if owner == asks || asks.is_root() => {}
        Ok(_) => return Err(ControlError::Unsafe(directory.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    }
    let mut sockets = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "sock") {
            sockets.push(path);
        }
    }
    Ok(sockets)
}

/// Asks all at once.
fn ask_all<T: Send>(sockets: &[PathBuf], ask: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    thread::scope(|scope| {
        let asked: Vec<_> = sockets
            .iter()
            .map(|path| thread::Builder::new().spawn_scoped(scope, move || ask(path)))
            .collect();
        let answers = asked.into_iter().zip(sockets).map(|(asked, path)| match asked {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system has no threads left.
            Err(_) => ask(path),
        });
        answers.collect()
    })
}

/// The mounted pools.
#[derive(Debug, Default)]
pub struct Mounted {
    /// The responsive ones, by name.
    pub clients: Vec<ControlClient>,
    /// The errors of the others.
    pub silent: Vec<ControlError>,
}
