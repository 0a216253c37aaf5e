//! The requests of a connection, and their answers.

use super::ending::Endings;
use super::error::DaemonError;
use super::line::Line;
use super::mounted::{Caller, Ending, Mounted};
use super::signals::GLANCE;
use super::turns::{QueueFull, Turn, Turns};
use crate::protocol::{
    Answer, Incoming, MAX_REQUEST, PART, PartReader, PartWriter, ReceiveRequest, Refusal, Request,
    SendRequest, WireError, encode,
};
use std::io::{self, BufReader, BufWriter, IntoInnerError, Read};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// The last answer, to a client that requested the end, or a change that entailed it.
#[derive(Debug)]
pub(super) struct FinalReply {
    to: OwnedWriteHalf,
    answer: Answer,
    /// Whether the end was requested.
    pub(super) is_end: bool,
}

/// Sends all of them.
///
/// # Errors
/// Data are lost.
pub(super) async fn send_all(farewells: Vec<FinalReply>) -> Result<(), DaemonError> {
    let mut said = Ok(());
    for farewell in farewells {
        said = said.and(farewell.say().await);
    }
    said
}

impl FinalReply {
    /// Sends it.
    ///
    /// # Errors
    /// It reports lost data.
    async fn say(mut self) -> Result<(), DaemonError> {
        if let Ok(line) = encode(&self.answer) {
            // The client may be gone.
            let _ = self.to.write_all(&line).await;
        }
        match self.answer {
            Answer::Failed(refusal) => Err(DaemonError::Ended(refusal)),
            _ => Ok(()),
        }
    }
}

/// Answers the requests of one connection.
pub(super) async fn serve_connection(
    stream: UnixStream,
    mounted: Arc<impl Mounted>,
    (endings, turns): (Endings, Arc<Turns>),
    farewells: mpsc::WeakSender<FinalReply>,
) {
    let owner = rustix::process::geteuid().as_raw();
    let caller = match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == owner => Caller { user: peer.uid() },
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "control socket: refused");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "control socket: no credentials");
            return;
        }
    };
    let (mut reader, mut writer) = stream.into_split();
    let mut incoming = Incoming::default();
    while let Some(request) = next_request(&mut reader, &mut incoming).await {
        let queue = request.as_ref().ok().and_then(|request| turns.queue(request));
        let turn = match queue {
            // A waiting request is not begun after its client has gone.
            Some(queue) => tokio::select! {
                biased;
                () = hung_up(&reader) => return,
                turn = queue.turn() => turn.map(Some),
            },
            None => Ok(None),
        };
        let request = match request {
            Ok(Request::Send(request)) => return send(request, turn, (reader, writer), mounted),
            Ok(Request::Receive(request)) => {
                let stream = ((reader, writer), incoming.rest().to_vec());
                return receive(request, (caller, turn), stream, mounted);
            }
            request => request,
        };
        // While this is held, the process waits for the farewell: also when a change ends the last
        // mount.
        let ending = match &request {
            Ok(Request::Unmount { .. } | Request::Destroy { .. } | Request::Change { .. }) => {
                farewells.upgrade()
            }
            _ => None,
        };
        let asks_for_end =
            matches!(&request, Ok(Request::Unmount { .. } | Request::Destroy { .. }));
        let (answer, room) = match (request, turn) {
            (Ok(request), Ok(turn)) if is_long(&request) => tokio::select! {
                made = make_long(request, turn, caller, &mounted) => made,
                // The same goes for a request that needs room for its answer.
                () = hung_up(&reader) => return,
            },
            (Ok(request), Ok(turn)) => {
                (carry_out(request, turn, caller, &mounted, &endings).await, None)
            }
            (Ok(_), Err(crowded)) => (Some(refused(crowded)), None),
            (Err(error), _) => (Some(refused(error)), None),
        };
        // A client that is hung up on knows that the process is about to go.
        let Some(answer) = answer else { return };
        // A change that waited while another client ended the pool is not its end.
        let has_ended = asks_for_end || matches!(&answer, Answer::Done { .. });
        if let Some(ending) = ending.as_ref().filter(|_| has_ended && mounted.is_over()) {
            // If the receiver is gone, so is the process.
            let farewell = FinalReply { to: writer, answer, is_end: asks_for_end };
            let _ = ending.send(farewell).await;
            return;
        }
        let line = encode(&answer).or_else(|error| encode(&refused(error)));
        drop(answer);
        match line {
            Ok(line) if say(&line, room, &mut writer).await => {}
            _ => return,
        }
    }
}

/// Sends an answer, for which room was reserved; returns whether the peer has it.
async fn say(line: &[u8], room: Option<LongAnswer>, writer: &mut OwnedWriteHalf) -> bool {
    let size = u32::try_from(line.len() / 1024).unwrap_or(u32::MAX);
    // Further answers are made when this one counts among the unread ones.
    let _unread = UNREAD.acquire_many(size.min(UNREAD_KIB)).await;
    drop(room);
    for part in line.chunks(PART) {
        if !matches!(timeout(READER_PATIENCE, writer.write_all(part)).await, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

/// The two directions of a connection.
type Halves = (OwnedReadHalf, OwnedWriteHalf);

/// Passes a stream on a separate thread: it takes as long as the peer does, without being waited
/// for, and ends when the peer is gone.
fn pass(halves: Halves, work: impl FnOnce(&Line) -> io::Result<()> + Send + 'static) {
    let work = move || -> io::Result<()> {
        let (reader, writer) = halves;
        let stream = reader.reunite(writer).map_err(io::Error::other)?.into_std()?;
        stream.set_nonblocking(false)?;
        work(&Line::new(stream))
    };
    let work = || work().unwrap_or_else(|error| tracing::debug!(%error, "a stream was broken off"));
    let passing = std::thread::Builder::new().name("stream".to_owned()).spawn(work);
    passing.map_or_else(|error| tracing::warn!(%error, "no stream passes"), drop);
}

/// Sends a snapshot.
fn send(
    request: SendRequest,
    turn: Result<Option<Turn>, QueueFull>,
    halves: Halves,
    mounted: Arc<impl Mounted>,
) {
    pass(halves, move |line| {
        let mut parts = BufWriter::with_capacity(PART, PartWriter::new(line.stream()));
        let answer = match &turn {
            Ok(_) => mounted.send(&request, &mut parts, line),
            Err(crowded) => Some(refused(crowded)),
        };
        // A client that is hung up on knows that the process is about to go.
        let Some(answer) = answer else { return Ok(()) };
        parts.into_inner().map_err(IntoInnerError::into_error)?.finish()?;
        line.say(&answer)
    });
}

/// Receives a snapshot, whose stream starts with `first`.
fn receive(
    request: ReceiveRequest,
    (caller, turn): (Caller, Result<Option<Turn>, QueueFull>),
    (halves, first): (Halves, Vec<u8>),
    mounted: Arc<impl Mounted>,
) {
    pass(halves, move |line| {
        if let Err(crowded) = &turn {
            return line.say(&refused(crowded));
        }
        let parts = PartReader::new(Read::chain(first.as_slice(), line.stream()));
        let mut parts = BufReader::with_capacity(PART, parts);
        match mounted.receive(&request, caller, &mut parts, line) {
            Some(answer) => line.say(&answer),
            None => Ok(()),
        }
    });
}

/// Whether the answer may grow with the pool's datasets, users or history.
const fn is_long(request: &Request) -> bool {
    matches!(request, Request::Datasets(_) | Request::History | Request::Accounts(_))
}

/// Concurrent long answers: each is in memory as a whole.
pub(super) static LONG_ANSWERS: Semaphore = Semaphore::const_new(4);
/// Room for one of them.
type LongAnswer = SemaphorePermit<'static>;
/// Answers that their peers have not read yet, in KiB.
const UNREAD_KIB: u32 = 256 << 10;
static UNREAD: Semaphore = Semaphore::const_new(UNREAD_KIB as usize);
/// How long a peer may take to read a part of its answer.
const READER_PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the peer is gone.
async fn hung_up(reader: &OwnedReadHalf) {
    while reader.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
        // It is still writing.
        sleep(GLANCE).await;
    }
}

/// The next request; `None` if the peer sends no more.
async fn next_request(
    reader: &mut OwnedReadHalf,
    incoming: &mut Incoming,
) -> Option<Result<Request, WireError>> {
    loop {
        if let Some(request) = incoming.next_message() {
            return Some(request);
        }
        let Some(room) = incoming.room() else {
            // The following bytes do not start a request.
            *incoming = Incoming::default();
            return Some(Err(WireError::TooLong(MAX_REQUEST)));
        };
        match reader.read(room).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => incoming.fill(count),
        }
    }
}

/// Makes a long answer when there is room for it; returns it with that room.
async fn make_long(
    request: Request,
    turn: Option<Turn>,
    caller: Caller,
    mounted: &Arc<impl Mounted>,
) -> (Option<Answer>, Option<LongAnswer>) {
    let room = LONG_ANSWERS.acquire().await.ok();
    let mounted = Arc::clone(mounted);
    let make = move || {
        // Held even if the client no longer waits.
        let _has = turn;
        (mounted.answer(request, caller), room)
    };
    let made = spawn_blocking(make).await;
    made.unwrap_or_else(|panicked| (Some(refused(panicked)), None))
}

async fn carry_out(
    request: Request,
    turn: Option<Turn>,
    caller: Caller,
    mounted: &Arc<impl Mounted>,
    endings: &Endings,
) -> Option<Answer> {
    if let Some(ending) = Ending::of_request(&request, caller) {
        return Some(match endings.start(mounted, ending).await {
            Ok(Ok(())) => Answer::Unmounted,
            Ok(Err(refusal)) => Answer::Failed(refusal),
            Err(panicked) => refused(panicked),
        });
    }
    let mounted = Arc::clone(mounted);
    // A client that ends a pool checks its identity first.
    if matches!(request, Request::Identify) {
        return mounted.answer(request, caller);
    }
    let answer = move || {
        // Held even if the client no longer waits.
        let _has = turn;
        mounted.answer(request, caller)
    };
    let answer = spawn_blocking(answer).await;
    answer.unwrap_or_else(|panicked| Some(refused(panicked)))
}

fn refused(error: impl std::fmt::Display) -> Answer {
    Answer::Failed(Refusal::new(error.to_string()))
}
