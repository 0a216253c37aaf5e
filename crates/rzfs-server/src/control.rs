//! Talking to the pools that are mounted: where their control sockets are and how to ask.
//!
//! Every process that has a pool mounted listens on `DIRECTORY/POOL.sock`; of a long name, which
//! the system has no room for in the path of a socket, there are the beginning and a checksum.
//! Root's directory is `/run/rzfs`, whatever session root is in, so that `sudo`, cron and a login
//! shell find the same pools. Everybody else's is `rzfs` below `$XDG_RUNTIME_DIR` or
//! `/run/user/UID`, or `/tmp/rzfs-UID` where the system makes no such directories; pools are looked
//! for in all of these. Who is root in a user namespace only (`unshare -r`) may have `/run/rzfs`
//! where `/run` is the namespace's own, as in containers; where it is not, that is everybody else,
//! and `UID` is the number outside, so that pools of the user are found from both sides.
//! `$RZFS_RUNTIME_DIR` takes the place of them all. A directory belongs to one user and nobody else
//! may enter it; one that does not look like that is refused, so no other user can put a socket
//! there. Only root may look into a directory of somebody else, which has to be named: what answers
//! there says what it likes. The system may take a directory away when its user logs out: a process
//! that goes on then listens in the next one of them that is there.

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
/// How long all pools together may take to say who they are when it is only asked which there are.
const LISTING_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of the longest path that the system has room for in the address of a socket.
const MAX_SOCKET_PATH: usize = 107;

/// Bytes of the longest name that a socket has as it is, which leaves some 60 for the directory.
const MAX_SOCKET_NAME: usize = 42;

/// Bytes that are left of a longer name, in front of its checksum.
const KEPT_OF_NAME: usize = 25;

/// The variable with the directory below which the sockets are, in place of all others.
const DIRECTORY_VARIABLE: &str = "RZFS_RUNTIME_DIR";

/// The variable with the directory that a session has.
const SESSION_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// The directory of root.
const ROOTS_DIRECTORY: &str = "/run/rzfs";

/// The directory with the sockets of one user's mounted pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlDirectory {
    /// Where new sockets are made.
    own: PathBuf,
    /// Where processes of other sessions of the user may have made theirs.
    others: Vec<PathBuf>,
    /// The variable that says where new ones are made.
    variable: Option<&'static str>,
}

impl ControlDirectory {
    /// The directory of the user who asks.
    #[must_use]
    pub fn of_user() -> Self {
        let uid = geteuid();
        let below = |variable| {
            let value = std::env::var_os(variable).map(PathBuf::from);
            // What the XDG specification says of relative ones, too.
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
        // What the user has outside of the namespace.
        let known_as = namespace.and_then(|namespace| namespace.outside_of(uid)).unwrap_or(uid);
        let run = PathBuf::from(format!("/run/user/{}/rzfs", known_as.as_raw()));
        let temporary = PathBuf::from(format!("/tmp/rzfs-{}", known_as.as_raw()));
        let session = below(SESSION_VARIABLE);
        // `su` leaves its user the variable of another one, and a session may have ended.
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
        // Root makes none in a user's directory: the user could not use that any more.
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
    /// [`ControlError::TooLong`] if it has not.
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

    /// Where the socket of a pool can be made anew when it has gone, and its directory with it
    /// perhaps. Such a directory is made, but not what is above it: a session takes that along when
    /// it ends, and it comes back with the next one.
    pub fn renewed_sockets(&self, pool: &str) -> impl Iterator<Item = PathBuf> {
        let all = std::iter::once(&self.own).chain(&self.others);
        let made = all.filter(|path| is_made_private(path));
        made.map(move |path| socket_in(path, pool)).filter(|path| can_be_bound(path))
    }

    /// Where somebody of this user may listen for a pool.
    pub fn sockets(&self, pool: &str) -> impl Iterator<Item = PathBuf> {
        let usable = self.others.iter().filter(|path| is_private(path).is_ok_and(|usable| usable));
        let all = std::iter::once(&self.own).chain(usable);
        all.map(move |path| socket_in(path, pool)).filter(|path| can_be_bound(path))
    }

    /// Connections to all mounted pools, by name, and why others do not answer soon: all are asked at
    /// once. Sockets that nobody listens on are skipped.
    ///
    /// What is asked of these pools later is not waited for much longer either, unless it is to read
    /// what is long, or to change something.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn mounted(&self) -> Result<Mounted, ControlError> {
        self.mounted_within(LISTING_TIMEOUT)
    }

    /// The same in so much time.
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

    /// Where somebody of this user may listen.
    fn all_sockets(&self) -> Result<Vec<PathBuf>, ControlError> {
        let mut sockets = self.own_sockets()?;
        for path in &self.others {
            // What others have put there is none of ours.
            match sockets_in(path) {
                Ok(more) => sockets.extend(more),
                Err(error) => tracing::debug!(%error, "passed over"),
            }
        }
        Ok(sockets)
    }

    /// Those in its own directory, which has room for some.
    fn own_sockets(&self) -> Result<Vec<PathBuf>, ControlError> {
        self.check_length(SHORTEST_POOL)?;
        sockets_in(&self.own)
    }

    /// A connection to one mounted pool, which may take longer to answer than one that is not
    /// named.
    ///
    /// # Errors
    /// Among others it is there and does not answer.
    pub fn mounted_as(&self, pool: &str) -> Result<Option<ControlClient>, ControlError> {
        // Tells whether the directory can be used.
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

/// Pools whose names have no `~` have different sockets, but for names of the same checksum.
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

/// Whether the system has room for the path of a socket.
fn can_be_bound(socket: &Path) -> bool {
    socket.as_os_str().len() <= MAX_SOCKET_PATH
}

/// The sockets in a directory, which is private to whoever asks; root may ask everybody.
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
            // The system has no more threads.
            Err(_) => ask(path),
        });
        answers.collect()
    })
}

/// The pools that are mounted.
#[derive(Debug, Default)]
pub struct Mounted {
    /// Those that answer, by name.
    pub clients: Vec<ControlClient>,
    /// Why others do not.
    pub silent: Vec<ControlError>,
}
