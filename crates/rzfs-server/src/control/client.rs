//! Connections to mounted pools.

use super::error::ControlError;
use crate::protocol::{
    Answer, Identity, MAX_ANSWER, PART, PartReader, PartWriter, ReceiveReport, ReceiveRequest,
    Request, SendRequest, TreeReport, WireError, receive, send,
};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use std::fs;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a named pool may take to identify itself.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a pool of another user may take to answer, and to change something: its answers are
/// untrusted, and may never end. Changes have timeouts of their own.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60);
const OTHERS_CHANGE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The longest answer accepted from a pool of another user, in bytes.
const MAX_OTHERS_ANSWER: u64 = 64 << 20;

/// How long a listed pool may take for a request that reads, possibly much.
const LISTED_READING_TIMEOUT: Duration = Duration::from_secs(60);

/// The minimum timeout of each of them when others have used up the shared time.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// The time that listed pools may take together without an answer: each of them may be silent.
#[derive(Clone, Debug)]
pub(super) struct SharedPatience(Arc<Mutex<Duration>>);

impl SharedPatience {
    pub(super) fn new(patience: Duration) -> Self {
        Self(Arc::new(Mutex::new(patience)))
    }

    fn left(&self) -> Duration {
        (*self.0.lock().unwrap_or_else(PoisonError::into_inner)).max(LEAST_PATIENCE)
    }

    /// Deducts a wait without result.
    fn spend(&self, time: Duration) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(time);
    }
}

/// A connection to a mounted pool.
#[derive(Debug)]
pub struct ControlClient {
    identity: Identity,
    stream: BufReader<TimedStream>,
    listener: Listener,
    /// Shared with the other listed pools; `None` for a named pool.
    shared: Option<SharedPatience>,
}

impl ControlClient {
    /// Whether the process belongs to the calling user. Another user's, which root queries, is
    /// untrusted.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.listener == Listener::Own
    }

    /// Connects to the socket at `path`; `None` if there is no listener, or no longer, or it has
    /// closed the pool.
    pub fn connect(path: &Path) -> Result<Option<Self>, ControlError> {
        Self::connect_within(path, IDENTIFY_TIMEOUT)
    }

    pub(super) fn connect_within(
        path: &Path,
        patience: Duration,
    ) -> Result<Option<Self>, ControlError> {
        let name = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let fail =
            |source: std::io::Error| ControlError::of_wire(&name(), None, WireError::Io(source));
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
        // Until it identifies itself.
        let process = socket_peercred(&stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let process = process.unsigned_abs();
        let identity = Identity { pool: name(), guid: 0, process, is_writable: false };
        let stream = BufReader::new(TimedStream { stream, limit: Limit::Until(until) });
        let mut client = Self { identity, stream, listener, shared: None };
        match client.ask_within(&Request::Identify, Limit::Until(until)) {
            Ok(Answer::Identity(identity)) => client.identity = identity,
            Ok(_) => return Err(ControlError::Mismatch(client.identity.pool)),
            Err(ControlError::Wire { source, .. }) if source.is_hang_up() => return Ok(None),
            // It is just being closed.
            Err(ControlError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(client))
    }

    /// Whether the process mounts where this one can see it: in the same mount namespace, as far as
    /// can be told.
    #[must_use]
    pub fn shares_mounts(&self) -> bool {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
        let Ok(peer) = socket_peercred(&self.stream.get_ref().stream) else { return true };
        let peer = peer.pid.as_raw_nonzero().to_string();
        match (namespace("self"), namespace(&peer)) {
            (Ok(own), Ok(other)) => own == other,
            _ => true,
        }
    }

    /// The identity of the pool.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Makes it share a time budget with the others of a listing.
    pub(super) fn share(&mut self, patience: &SharedPatience) {
        self.shared = Some(patience.clone());
    }

    /// Sends a request and waits for the answer; without a limit for a process of this user, if its
    /// pool was named or is to be changed. A refusal is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ControlError> {
        let patience = match (self.listener.patience(request), &self.shared) {
            (None, Some(shared)) => listed_patience(request, shared),
            (patience, _) => patience,
        };
        let start = Instant::now();
        let until = patience.map(|patience| Limit::Until(start + patience));
        let answer = self.ask_within(request, until.unwrap_or(Limit::None));
        if let (Err(ControlError::Silent { .. }), Some(shared)) = (&answer, &self.shared) {
            shared.spend(start.elapsed());
        }
        answer
    }

    /// Sends a request whose answer is useful only until some moment.
    pub(super) fn ask_until(
        &mut self,
        request: &Request,
        until: Instant,
    ) -> Result<Answer, ControlError> {
        self.ask_within(request, Limit::Until(until))
    }

    fn failed(&self, source: WireError) -> ControlError {
        let process = Some(self.identity.process).filter(|process| *process != 0);
        ControlError::of_wire(&self.identity.pool, process, source)
    }

    /// Sends a snapshot to `to`; returns what was left out. Errors of writing there are kept apart
    /// from those of the pool.
    pub fn send_snapshot(
        mut self,
        request: &SendRequest,
        to: &mut dyn Write,
    ) -> Result<std::io::Result<Vec<String>>, ControlError> {
        let pool = self.identity.pool.clone();
        let failed = |source| ControlError::Wire { pool: pool.clone(), source };
        let request = Request::Send(request.clone());
        self.stream.get_mut().limit = self.listener.patience(&request).into();
        send(self.stream.get_mut(), &request).map_err(failed)?;
        let copied = copy(PartReader::new(&mut self.stream), to);
        if let Err(error) = copied.map_err(|error| failed(hang_up(error)))? {
            return Ok(Err(error));
        }
        match self.next_answer()? {
            Answer::Done { complaints } => Ok(to.flush().map(|()| complaints)),
            _ => Err(ControlError::Mismatch(pool)),
        }
    }

    /// Receives the snapshots in the stream `from`; `hear` is called when one begins and ends.
    ///
    /// A separate thread forwards the stream: the pool may answer before its end. The thread ends
    /// with the stream, or with the process.
    pub fn receive_snapshots(
        mut self,
        request: &ReceiveRequest,
        from: impl Read + Send + 'static,
        mut hear: impl FnMut(ReceiveProgress),
    ) -> Result<(), ControlError> {
        let pool = self.identity.pool.clone();
        let failed = |source| ControlError::Wire { pool: pool.clone(), source };
        // A stream takes as long as its sender does.
        self.stream.get_mut().limit = Limit::None;
        send(self.stream.get_mut(), &Request::Receive(request.clone())).map_err(failed)?;
        let to = self.stream.get_ref().stream.try_clone();
        let to = to.map_err(|error| failed(error.into()))?;
        let passing = std::thread::Builder::new().name("stream".to_owned());
        let passing = passing.spawn(move || pass_on(from, &to));
        passing.map_err(|error| failed(error.into()))?;
        loop {
            match self.next_answer()? {
                Answer::Receiving(report) => hear(ReceiveProgress::Begun(report)),
                Answer::Received { bytes, complaints, warnings } => {
                    hear(ReceiveProgress::Ended { bytes, complaints, warnings });
                }
                Answer::Adjusted(report) => hear(ReceiveProgress::Adjusted(report)),
                Answer::Done { complaints } => {
                    if !complaints.is_empty() {
                        hear(ReceiveProgress::Settled { complaints });
                    }
                    return Ok(());
                }
                _ => return Err(ControlError::Mismatch(pool)),
            }
        }
    }

    /// The next answer to a request; a refusal is an error.
    fn next_answer(&mut self) -> Result<Answer, ControlError> {
        let answer = receive(&mut self.stream, self.listener.limit());
        match answer.map_err(|source| self.failed(source))? {
            Answer::Failed(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }

    fn ask_within(&mut self, request: &Request, limit: Limit) -> Result<Answer, ControlError> {
        self.stream.get_mut().limit = limit;
        let sent = send(self.stream.get_mut(), request);
        sent.map_err(|source| self.failed(source))?;
        self.next_answer()
    }
}

/// How long a listed pool may take to answer: known facts come soon, reads take longer, and changes
/// have timeouts of their own.
fn listed_patience(request: &Request, shared: &SharedPatience) -> Option<Duration> {
    match request {
        Request::Identify
        | Request::Pool
        | Request::Mounts
        | Request::Events
        | Request::ClearEvents
        | Request::Stats => Some(shared.left()),
        Request::Datasets(_)
        | Request::History
        | Request::Holds { .. }
        | Request::Accounts(_)
        | Request::UnfreedFiles { .. }
        | Request::Reclaimed { .. }
        | Request::Differences(_)
        | Request::StreamSizes(_) => Some(LISTED_READING_TIMEOUT),
        Request::Change { .. }
        | Request::PlanAdd(_)
        | Request::Send(_)
        | Request::Receive(_)
        | Request::Unmount { .. }
        | Request::Destroy { .. } => None,
    }
}

/// Progress messages of a receive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceiveProgress {
    /// A snapshot begins.
    Begun(ReceiveReport),
    /// It has arrived.
    Ended {
        /// Bytes of the stream after its first record.
        bytes: u64,
        /// Further failures.
        complaints: Vec<String>,
        /// Parts of the stream that are not supported here, which is no failure.
        warnings: Vec<String>,
    },
    /// A local dataset was adjusted to the sent tree.
    Adjusted(TreeReport),
    /// Everything has arrived.
    Settled {
        /// Failures at the end.
        complaints: Vec<String>,
    },
}

/// Copies a stream to its end, without buffering: the sender may wait for the effect of what it has
/// sent. Errors of writing are kept apart from those of reading.
fn copy(
    mut from: impl Read,
    to: &mut (impl Write + ?Sized),
) -> std::io::Result<std::io::Result<()>> {
    let mut buffer = vec![0; PART];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(Ok(())),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Err(error) = to.write_all(buffer.get(..count).unwrap_or_default()) {
            return Ok(Err(error));
        }
    }
}

/// Forwards a stream in parts. If it cannot be read the peer gets no end mark, and if the peer
/// stops reading so does this: the peer has given its reason.
fn pass_on(from: impl Read, to: &UnixStream) {
    let mut parts = PartWriter::new(to);
    let passed = copy(from, &mut parts).flatten().and_then(|()| parts.finish().map(drop));
    if let Err(error) = passed {
        tracing::debug!(%error, "a stream was broken off");
        // The peer may be gone.
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Turns an unexpected end into a hang-up.
fn hang_up(error: std::io::Error) -> WireError {
    match error.kind() {
        ErrorKind::UnexpectedEof => WireError::Closed,
        _ => error.into(),
    }
}

/// The owner of the listening process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listener {
    /// The calling user.
    Own,
    /// Another user, whose pool root queries.
    Other,
}

impl Listener {
    /// How long it may take to answer; `None` for no limit.
    const fn patience(self, request: &Request) -> Option<Duration> {
        match (self, request) {
            (Self::Own, _) => None,
            (
                Self::Other,
                Request::Change { .. }
                | Request::PlanAdd(_)
                | Request::Unmount { .. }
                | Request::Destroy { .. },
            ) => Some(OTHERS_CHANGE_TIMEOUT),
            (Self::Other, _) => Some(OTHERS_TIMEOUT),
        }
    }

    /// The longest accepted answer.
    const fn limit(self) -> u64 {
        match self {
            Self::Own => MAX_ANSWER,
            Self::Other => MAX_OTHERS_ANSWER,
        }
    }
}

/// A time limit for reading and writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    /// No limit.
    None,
    /// Everything by this moment.
    Until(Instant),
    /// A limit for each operation: forwarding takes as long as the peers do.
    EachTime(Duration),
}

impl From<Option<Duration>> for Limit {
    fn from(patience: Option<Duration>) -> Self {
        patience.map_or(Self::None, Self::EachTime)
    }
}

/// A stream with a time limit.
#[derive(Debug)]
struct TimedStream {
    stream: UnixStream,
    limit: Limit,
}

impl TimedStream {
    /// The remaining time, if it is limited.
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = match self.limit {
            Limit::None => None,
            Limit::Until(until) => Some(until.saturating_duration_since(Instant::now())),
            Limit::EachTime(patience) => Some(patience),
        };
        match left {
            Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// The system reports a timeout of a stream as an operation that would block.
fn in_time(error: std::io::Error) -> std::io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes).map_err(in_time)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(in_time)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// Whether a process listens on a socket, even an unresponsive one.
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

/// Connects. If the listener's queue is full this waits. The listener must be the user who owns the
/// socket's directory: a link there may lead to other users.
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
