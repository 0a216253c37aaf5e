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

mod namespace;

use crate::protocol::{Answer, Identity, MAX_ANSWER, Refusal, Request, WireError, receive, send};
use namespace::UserNamespace;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Uid, geteuid};
use rzfs_blockdev::without_number;
use rzfs_codec::checksum::{Salt, checksum};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use std::fs;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long a pool that is named may take to say who it is.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long all pools together may take to say who they are when it is only asked which there are.
const LISTING_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a pool of another user may take to say something, and to change something: what
/// answers there says what it likes, perhaps without an end. Changes wait for others themselves.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60);
const OTHERS_CHANGE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The longest answer that is read from a pool of another user, in bytes.
const MAX_OTHERS_ANSWER: u64 = 64 << 20;

/// Bytes of the longest path that the system has room for in the address of a socket.
const MAX_SOCKET_PATH: usize = 107;

/// Bytes of the longest name that a socket has as it is, which leaves some 60 for the directory.
const MAX_SOCKET_NAME: usize = 42;

/// Bytes that are left of a longer name, in front of its checksum.
const KEPT_OF_NAME: usize = 25;

/// What can go wrong between a command and a mounted pool.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The directory of the sockets cannot be used.
    #[error("control directory {path}: {}", without_number(source))]
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
    /// The directory leaves no room for the name of a socket.
    #[error(
        "control directory {path}: {variable} is {excess} bytes too long for the path of a socket \
         (RZFS_RUNTIME_DIR can name a shorter directory, which need not exist)"
    )]
    TooLong {
        /// The directory.
        path: PathBuf,
        /// The variable that names it.
        variable: &'static str,
        /// How many bytes there are too many.
        excess: usize,
    },
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

    /// Connections to all mounted pools, by name. Sockets that nobody listens on are skipped, and
    /// so, with a warning, are pools that do not answer soon: all are asked at once.
    pub fn mounted(&self) -> Result<Vec<ControlClient>, ControlError> {
        let Mounted { clients, silent } = self.all()?;
        silent.iter().for_each(pass_over);
        Ok(clients)
    }

    /// The same, with those that do not answer.
    ///
    /// # Errors
    /// As [`ControlDirectory::mounted`].
    pub fn all(&self) -> Result<Mounted, ControlError> {
        let mut sockets = sockets_in(&self.own)?;
        for path in &self.others {
            // What others have put there is none of ours.
            match sockets_in(path) {
                Ok(more) => sockets.extend(more),
                Err(error) => tracing::debug!(%error, "passed over"),
            }
        }
        let mut mounted = Mounted::default();
        for answer in connect_all(&sockets) {
            match answer {
                Ok(client) => mounted.clients.extend(client),
                Err(error) => mounted.silent.push(error),
            }
        }
        mounted.clients.sort_by(|a, b| a.identity.pool.cmp(&b.identity.pool));
        Ok(mounted)
    }

    /// A connection to one mounted pool, which may take longer to answer than one that is not
    /// named; none, with a warning, if it does not.
    pub fn mounted_as(&self, pool: &str) -> Result<Option<ControlClient>, ControlError> {
        // Tells whether the directory can be used.
        sockets_in(&self.own)?;
        for path in self.sockets(pool) {
            match ControlClient::connect(&path) {
                Ok(Some(client)) if client.identity.pool == pool => return Ok(Some(client)),
                Ok(_) => {}
                Err(error) => pass_over(&error),
            }
        }
        Ok(None)
    }
}

fn pass_over(error: &ControlError) {
    // A pool that is in trouble keeps nobody from the others.
    tracing::warn!("{error}; it is passed over");
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

/// Whether a directory belongs to a user whom root, who asks, could lock out of it. Who is root in
/// a namespace only has no power over those whom it does not know. On the host everybody is known,
/// `nobody` too.
fn is_of_a_user(owner: u32) -> bool {
    let is_known = |namespace: UserNamespace| namespace.outside_of(Uid::from_raw(owner)).is_some();
    owner != 0 && UserNamespace::current().is_none_or(is_known)
}

/// Whether a directory is a user's, or can be made where it is missing by this user, who asks.
fn may_have(user: Uid, directory: &Path) -> bool {
    let can_make = |above: &Path| access(above, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    is_place_of(user, directory)
        && (directory.symlink_metadata().is_ok() || directory.parent().is_some_and(can_make))
}

/// Whose directory it is, if it is one and closed to everyone else.
fn private_to(directory: &Path) -> std::io::Result<Option<Uid>> {
    let metadata = fs::symlink_metadata(directory)?;
    let is_private = metadata.is_dir() && metadata.mode() & 0o077 == 0;
    Ok(is_private.then(|| Uid::from_raw(metadata.uid())))
}

/// Whether it is a directory, ours, and closed to everyone else.
fn is_private(directory: &Path) -> std::io::Result<bool> {
    Ok(private_to(directory)? == Some(geteuid()))
}

/// Whether a directory is a user's, or could be made where it is missing.
fn is_place_of(user: Uid, directory: &Path) -> bool {
    let is_theirs =
        |path: &Path| fs::symlink_metadata(path).map(|found| found.uid() == user.as_raw());
    match is_theirs(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            directory.parent().is_some_and(|above| is_theirs(above).unwrap_or(false))
        }
        found => found.unwrap_or(false),
    }
}

/// Whether it is a private directory, made if only it is missing.
fn is_made_private(directory: &Path) -> bool {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => false,
        _ => is_private(directory).unwrap_or(false),
    }
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

/// Connections to the pools that answer soon.
fn connect_all(sockets: &[PathBuf]) -> Vec<Result<Option<ControlClient>, ControlError>> {
    let ask = |path: &Path| ControlClient::connect_within(path, LISTING_TIMEOUT);
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

/// Whether somebody listens on a socket, also if it is somebody who answers nobody.
#[must_use]
pub fn is_listened_on(path: &Path) -> bool {
    let connected = open_socket(SocketFlags::NONBLOCK)
        .and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    matches!(connected, Ok(()) | Err(Errno::AGAIN))
}

fn open_socket(flags: SocketFlags) -> rustix::io::Result<rustix::fd::OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Connects. Where as many wait already as the listener lets wait, this waits as well. Whoever
/// listens has to be the user whose directory the socket is in: a link there may lead to others.
fn connect_within(path: &Path, patience: Duration) -> std::io::Result<(UnixStream, Listener)> {
    let socket = open_socket(SocketFlags::empty())?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {
            let owner = path.parent().map(fs::symlink_metadata).transpose()?;
            let listens = socket_peercred(&socket)?.uid;
            let listener = if listens == geteuid() { Listener::Own } else { Listener::Other };
            match owner.is_some_and(|owner| owner.uid() == listens.as_raw()) {
                true => Ok((socket.into(), listener)),
                false => Err(ErrorKind::ConnectionRefused.into()),
            }
        }
        Err(Errno::AGAIN) => Err(ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// The pools that are mounted.
#[derive(Debug, Default)]
pub struct Mounted {
    /// Those that answer, by name.
    pub clients: Vec<ControlClient>,
    /// Why others do not.
    pub silent: Vec<ControlError>,
}

/// Whose process listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listener {
    /// Of the user who asks.
    Own,
    /// Of another one, whom root asks.
    Other,
}

impl Listener {
    /// How long it may take to answer; for ever if nothing is said of that.
    const fn patience(self, request: &Request) -> Option<Duration> {
        match (self, request) {
            (Self::Own, _) => None,
            (
                Self::Other,
                Request::Change { .. } | Request::Unmount { .. } | Request::Destroy { .. },
            ) => Some(OTHERS_CHANGE_TIMEOUT),
            (Self::Other, _) => Some(OTHERS_TIMEOUT),
        }
    }

    /// The longest answer that is read.
    const fn limit(self) -> u64 {
        match self {
            Self::Own => MAX_ANSWER,
            Self::Other => MAX_OTHERS_ANSWER,
        }
    }
}

/// A stream on which everything has to happen before some moment.
#[derive(Debug)]
struct TimedStream {
    stream: UnixStream,
    until: Option<Instant>,
}

impl TimedStream {
    /// How much time is left, if it is limited.
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// A connection to a mounted pool.
#[derive(Debug)]
pub struct ControlClient {
    identity: Identity,
    stream: BufReader<TimedStream>,
    listener: Listener,
}

impl ControlClient {
    /// Connects to the socket at `path`; none if nobody listens there, or not any more, or has let
    /// go of the pool.
    pub fn connect(path: &Path) -> Result<Option<Self>, ControlError> {
        Self::connect_within(path, IDENTIFY_TIMEOUT)
    }

    fn connect_within(path: &Path, patience: Duration) -> Result<Option<Self>, ControlError> {
        let name = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let fail = |source: std::io::Error| ControlError::Wire {
            pool: name(),
            source: WireError::Io(source),
        };
        let until = Instant::now() + patience;
        let (stream, listener) = match connect_within(path, patience) {
            Ok(connected) => connected,
            Err(error)
                if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(fail(error)),
        };
        let identity = Identity { pool: name(), guid: 0, process: 0, is_writable: false };
        let stream = BufReader::new(TimedStream { stream, until: Some(until) });
        let mut client = Self { identity, stream, listener };
        match client.ask_until(&Request::Identify, Some(until)) {
            Ok(Answer::Identity(identity)) => client.identity = identity,
            Ok(_) => return Err(ControlError::Mismatch(client.identity.pool)),
            Err(ControlError::Wire { source, .. }) if source.is_hang_up() => return Ok(None),
            // It is just being let go of.
            Err(ControlError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(client))
    }

    /// Who answers.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Asks and waits for the answer, for ever if it is a process of this user; a refusal is an
    /// error.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ControlError> {
        let patience = self.listener.patience(request);
        self.ask_until(request, patience.map(|patience| Instant::now() + patience))
    }

    fn ask_until(
        &mut self,
        request: &Request,
        until: Option<Instant>,
    ) -> Result<Answer, ControlError> {
        let limit = self.listener.limit();
        self.stream.get_mut().until = until;
        let answer = send(self.stream.get_mut(), request)
            .and_then(|()| receive(&mut self.stream, limit))
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
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

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
    fn sockets_are_made_anew_where_a_directory_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let [session, open, left] =
            ["session", "open", "left"].map(|name| parent.path().join(name));
        let own = session.join("rzfs");
        let link = parent.path().join("link");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(parent.path().join("target")).unwrap();
        std::os::unix::fs::symlink(parent.path().join("target"), &link).unwrap();
        let others = vec![open, link, left.clone()];
        let directory = ControlDirectory { own: own.clone(), others, variable: None };
        let renewed = || directory.renewed_sockets("tank").collect::<Vec<_>>();
        assert_eq!(renewed(), [left.join("tank.sock")]);
        assert!(!session.exists() && is_private(&left).unwrap());
        fs::create_dir(&session).unwrap();
        assert_eq!(renewed(), [own.join("tank.sock"), left.join("tank.sock")]);
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
        let directory = ControlDirectory { own, others: vec![other.clone()], variable: None };
        directory.prepare().unwrap();
        assert_eq!(directory.sockets("tank").count(), 1, "there is no other place");
        ControlDirectory::at(other.clone()).prepare().unwrap();
        assert!(directory.sockets("tank").any(|path| path == other.join("tank.sock")));
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(directory.sockets("tank").count(), 1);
        assert!(directory.mounted().unwrap().is_empty());
    }

    #[test]
    fn long_names_have_short_sockets_of_their_own() {
        let directory = ControlDirectory::at("/run/rzfs".into());
        let name =
            |pool: &str| directory.socket(pool).file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name("tank"), "tank.sock");
        let [one, other] = ["a", "b"].map(|end| name(&("x".repeat(252) + end)));
        assert!(one.starts_with("xxx") && one.len() < 48, "{one}");
        assert_ne!(one, other);
        assert_eq!(name(&"x".repeat(MAX_SOCKET_NAME)).len(), MAX_SOCKET_NAME + 5);
        assert!(name(&"é".repeat(100)).ends_with(".sock"));
    }

    #[test]
    fn a_directory_without_room_for_a_socket_is_refused() {
        let at =
            |length: usize| ControlDirectory::at(format!("/{}", "x".repeat(length - 1)).into());
        assert!(at(97).check_length("tank").is_ok());
        let refused = at(99).check_length("tank").unwrap_err();
        assert!(matches!(refused, ControlError::TooLong { excess: 2, .. }), "{refused:?}");
        assert!(at(59).check_length(&"x".repeat(200)).is_ok());
        assert!(at(60).check_length(&"x".repeat(MAX_SOCKET_NAME)).is_err());
        // Nobody can listen there.
        assert_eq!((at(97).sockets("tank").count(), at(98).sockets("tank").count()), (1, 0));
        assert!(at(98).mounted_as("tank").unwrap().is_none());
    }

    #[test]
    fn pools_that_do_not_answer_cost_one_moment_together() {
        let parent = tempfile::tempdir().unwrap();
        let directory = ControlDirectory::at(parent.path().join("run"));
        directory.prepare().unwrap();
        let listen =
            |pool: &str| std::os::unix::net::UnixListener::bind(directory.socket(pool)).unwrap();
        let silent = ["a", "b", "c"].map(listen);
        let full = listen("full");
        rustix::net::listen(&full, 0).unwrap();
        let _waiting = UnixStream::connect(directory.socket("full")).unwrap();
        let start = Instant::now();
        assert!(directory.mounted().unwrap().is_empty());
        assert!(start.elapsed() < LISTING_TIMEOUT * 3, "{:?}", start.elapsed());
        assert!(is_listened_on(&directory.socket("full")));
        assert!(is_listened_on(&directory.socket("a")));
        drop(silent);
        assert!(!is_listened_on(&directory.socket("a")));
        assert!(!is_listened_on(&directory.socket("none")));
    }

    #[test]
    fn who_answers_a_little_at_a_time_is_not_waited_for_either() {
        let parent = tempfile::tempdir().unwrap();
        let directory = ControlDirectory::at(parent.path().join("run"));
        directory.prepare().unwrap();
        let slow = std::os::unix::net::UnixListener::bind(directory.socket("slow")).unwrap();
        thread::spawn(move || {
            let (mut peer, _) = slow.accept().unwrap();
            while peer.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        });
        let start = Instant::now();
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || tell.send(directory.mounted().unwrap().len()));
        assert_eq!(told.recv_timeout(LISTING_TIMEOUT * 3), Ok(0), "{:?}", start.elapsed());
    }

    /// What root is told in the directory of another user.
    #[test]
    fn what_others_say_is_not_listened_to_without_end() {
        const OTHER: u32 = 65534;
        if !rzfs_testkit::has_root("only root asks the pools of others") {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = ControlDirectory::at(parent.path().join("run"));
        directory.prepare().unwrap();
        std::os::unix::fs::chown(&directory.own, Some(OTHER), None).unwrap();
        let identity = Answer::Identity(Identity {
            pool: "tank".to_owned(),
            guid: 5,
            process: 6,
            is_writable: true,
        });
        let line = crate::protocol::encode(&identity).unwrap();
        let script = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); \
            bind(S, sockaddr_un($ARGV[0])) && listen(S, 5) or die; $| = 1; print qq(there\\n); \
            accept(C, S); sysread(C, $x, 9999); syswrite(C, $ARGV[1]); sysread(C, $x, 9999); \
            $y = 'x' x 65536; 1 while syswrite(C, $y);";
        let mut other = Command::new("perl")
            .args(["-e", script])
            .arg(directory.socket("tank"))
            .arg(std::str::from_utf8(&line).unwrap())
            .uid(OTHER)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut there = [0; 6];
        other.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
        let mut client = directory.mounted_as("tank").unwrap().unwrap();
        let told = client.ask(&Request::Pool);
        other.kill().unwrap();
        other.wait().unwrap();
        let Err(ControlError::Wire { source: WireError::TooLong(limit), .. }) = told else {
            panic!("{told:?}");
        };
        assert!(limit <= 64 << 20, "{limit}");
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
