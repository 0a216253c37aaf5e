//! The process that has a pool mounted: it answers on the pool's control socket until it is told
//! to unmount, by request, by signal, or because somebody else ended its last mount.
//!
//! This is the only place with a runtime. Everything below it blocks, and runs on the runtime's
//! blocking threads.

mod allocator;
mod background;
mod beginning;
mod signals;

pub(crate) use allocator::restart_tuned;
pub(crate) use background::{Completeness, Input, Readiness, SERVE, Verdict, in_background};

use beginning::Beginning;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rzfs::control::{ControlDirectory, is_listened_on};
use rzfs::protocol::{Answer, Incoming, MAX_REQUEST, Refusal, Request, WireError, encode};
use rzfs_blockdev::without_number;
use signals::{GLANCE, LAST_PATIENCE, signals};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::Signal;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often it is looked whether the control socket is still there.
const SOCKET_GLANCE: Duration = Duration::from_secs(2);

/// Why a daemon does not serve its pool to a good end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// Nobody can ask for anything.
    #[error("control socket: {}", without_number(.0))]
    Socket(#[from] io::Error),
    /// The pool was let go of, but not as it was to be.
    #[error(transparent)]
    Ended(Refusal),
    /// What lets go of the pool has panicked.
    #[error("{0}")]
    Panicked(#[from] tokio::task::JoinError),
}

/// What a daemon serves.
pub(crate) trait Mounted: Send + Sync + 'static {
    /// Answers everything but [`Request::Unmount`] and [`Request::Destroy`]; [`Request::Identify`]
    /// without waiting for anything. Nothing when there is no pool any more to be asked about.
    fn answer(&self, request: Request, caller: Caller) -> Option<Answer>;

    /// Ends all mounts, and lets go of the pool.
    fn end(&self, ending: Ending) -> Result<(), Refusal>;

    /// Whether the pool is let go of: nothing is to be asked any more.
    fn is_over(&self) -> bool;

    /// Whether the pool waits for its devices.
    fn is_waiting(&self) -> bool;
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) user: u32,
}

/// How a daemon ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ending {
    pub(crate) manner: Manner,
    /// Mounts that are in use are detached.
    pub(crate) force: bool,
    /// The line for the pool's history, if somebody asked for it, and the user.
    pub(crate) command: Option<(String, u64)>,
}

/// What becomes of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Others may have it.
    Release,
    /// It is marked as destroyed.
    Destroy,
}

impl Manner {
    /// The command that asks for it.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Release => "export",
            Self::Destroy => "destroy",
        }
    }
}

impl Ending {
    /// The pool is let go of, though no command has asked for it.
    pub(crate) const FORCED: Self = Self::released(true);
    /// The same if nothing is in use.
    const UNFORCED: Self = Self::released(false);

    const fn released(force: bool) -> Self {
        Self { manner: Manner::Release, force, command: None }
    }

    /// What a request asks for, if it asks for the end.
    fn of_request(request: &Request, caller: Caller) -> Option<Self> {
        let (manner, force, command) = match request {
            Request::Unmount { force, command } => (Manner::Release, *force, command.clone()),
            Request::Destroy { force, command } => (Manner::Destroy, *force, Some(command.clone())),
            _ => return None,
        };
        let command = command.map(|line| (line, caller.user.into()));
        Some(Self { manner, force, command })
    }
}

/// The control socket of a pool.
#[derive(Debug)]
struct ControlSocket {
    pool: String,
    /// Where it may be made anew.
    directory: ControlDirectory,
    bound: BoundSocket,
}

/// A socket in a directory.
#[derive(Debug)]
struct BoundSocket {
    path: PathBuf,
    /// What has the path as long as nobody takes it away.
    file: Option<FileId>,
    listener: UnixListener,
}

/// Device and inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId(u64, u64);

impl FileId {
    /// Of what has a path, a link too.
    fn at(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self(metadata.dev(), metadata.ino()))
    }
}

impl BoundSocket {
    /// Binds the socket. One that a dead process left is replaced; one that somebody listens on
    /// is an error of kind `AddrInUse`.
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

    /// Whether those who know the path get here.
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
    fn bind(directory: &ControlDirectory, pool: &str) -> io::Result<Self> {
        let bound = BoundSocket::bind(&directory.socket(pool))?;
        Ok(Self { pool: pool.to_owned(), directory: directory.clone(), bound })
    }

    /// Makes it anew if somebody has taken it away: who logs out loses the directory of the
    /// session, and the process would be asked nothing any more.
    fn renew(&mut self) {
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

/// The end of a channel that notices when all mounts are gone.
pub(crate) type MountsEnd = mpsc::Receiver<Infallible>;

/// Something for mounts to hold while they last, and the end that notices when all are gone.
pub(crate) fn mounts_end() -> (Arc<mpsc::Sender<Infallible>>, MountsEnd) {
    let (sender, receiver) = mpsc::channel(1);
    (Arc::new(sender), receiver)
}

/// A process that is ready to serve.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: ControlSocket,
    signals: [Signal; 3],
    beginning: Beginning,
    endings: EndingThreads,
    // After what is registered with it.
    runtime: Runtime,
}

/// Lets the process have as many descriptors as the system admits: each mount takes one for every
/// thread that answers.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With what there is fewer mounts are possible, which whoever mounts is told.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Checks that there are descriptors for runtimes and signals, which panic without.
fn check_descriptors() -> io::Result<()> {
    const NEEDED: usize = 12;
    let null = File::open("/dev/null")?;
    let held: io::Result<Vec<_>> = (0..NEEDED).map(|_| null.try_clone()).collect();
    held.map(drop)
}

/// A runtime with a thread for what blocks, which it never gives back: the process can be asked
/// something also when the system has no more threads for it.
fn runtime(builder: &mut Builder) -> io::Result<Runtime> {
    const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
    let runtime = builder.thread_keep_alive(FOR_EVER).build()?;
    // The runtime would panic without a first thread.
    let tried = std::thread::Builder::new().spawn(|| ())?;
    let _ = tried.join();
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}

/// The threads that let go of the pool. Those of the runtime may be few, and all of them may wait
/// for devices; so may an end that nobody forces, and one that is forced has it wait no more.
#[derive(Debug)]
struct EndingThreads {
    unforced: Runtime,
    forced: Runtime,
}

impl EndingThreads {
    fn start() -> io::Result<Self> {
        let one = || runtime(Builder::new_current_thread().max_blocking_threads(1));
        Ok(Self { unforced: one()?, forced: one()? })
    }

    fn handles(&self) -> Endings {
        let [unforced, forced] = [&self.unforced, &self.forced].map(|one| one.handle().clone());
        Endings { unforced, forced }
    }

    fn shut_down(self, patience: Duration) {
        self.unforced.shutdown_timeout(patience);
        self.forced.shutdown_timeout(patience);
    }
}

/// How [`EndingThreads`] are put to work.
#[derive(Clone, Debug)]
struct Endings {
    unforced: Handle,
    forced: Handle,
}

impl Endings {
    /// Ends the mounts of a pool without waiting for anybody's request.
    fn start(
        &self,
        mounted: &Arc<impl Mounted>,
        ending: Ending,
    ) -> JoinHandle<Result<(), Refusal>> {
        let mounted = Arc::clone(mounted);
        let thread = if ending.force { &self.forced } else { &self.unforced };
        thread.spawn_blocking(move || mounted.end(ending))
    }
}

impl Daemon {
    /// Binds the control socket of a pool, and catches the signals that would end the process.
    pub(crate) fn bind(directory: &ControlDirectory, pool: &str) -> io::Result<Self> {
        Self::bind_with(&mut Builder::new_current_thread(), directory, pool)
    }

    fn bind_with(
        threads: &mut Builder,
        directory: &ControlDirectory,
        pool: &str,
    ) -> io::Result<Self> {
        raise_descriptor_limit();
        check_descriptors()?;
        let runtime = runtime(threads.enable_all())?;
        let endings = EndingThreads::start()?;
        let registered = runtime.enter();
        let socket = ControlSocket::bind(directory, pool)?;
        let signals = signals()?;
        drop(registered);
        let beginning = Beginning::watch(&socket.bound.path)?;
        Ok(Self { socket, signals, beginning, endings, runtime })
    }

    /// The pool is open, and about to be mounted: a signal has nobody wait for its devices any
    /// more, which `relieve` does if they are waited for. Before, it ends the process.
    pub(crate) fn mounting(&self, relieve: impl Fn() + Send + 'static) {
        self.beginning.mounting(relieve);
    }

    /// Serves until the pool is unmounted: by request, by signal, or because everybody who had
    /// the other end of `ended` is gone.
    pub(crate) fn serve(
        self,
        mounted: Arc<impl Mounted>,
        ended: mpsc::Receiver<Infallible>,
    ) -> Result<(), ServeError> {
        let Self { socket, signals, beginning, endings, runtime } = self;
        drop(beginning);
        let served = runtime.block_on(run(socket, signals, mounted, endings.handles(), ended));
        // Requests that wait for devices do not keep a process that is to end.
        runtime.shutdown_timeout(LAST_PATIENCE);
        endings.shut_down(LAST_PATIENCE);
        served
    }
}

async fn run(
    mut socket: ControlSocket,
    signals: [Signal; 3],
    mounted: Arc<impl Mounted>,
    endings: Endings,
    mut ended: mpsc::Receiver<Infallible>,
) -> Result<(), ServeError> {
    let [mut terminate, mut interrupt, mut hangup] = signals;
    let (farewell_sender, mut farewells) = mpsc::channel(1);
    let mut leaving = pin!(async {
        ended.recv().await;
        leave(&mounted, &endings).await
    });
    // Changes that were done while somebody ended the pool: their answers come when it has ended.
    let mut waiting = Vec::new();
    let mut glances = interval(SOCKET_GLANCE);
    glances.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            connection = socket.bound.listener.accept() => match connection {
                Ok((stream, _)) => {
                    let sender = farewell_sender.downgrade();
                    let (mounted, endings) = (Arc::clone(&mounted), endings.clone());
                    tokio::spawn(converse(stream, mounted, endings, sender));
                }
                Err(error) => tracing::warn!(%error, "control socket"),
            },
            _ = glances.tick() => socket.renew(),
            _ = terminate.recv() => if end(&mounted, &endings).await? { return Ok(()) },
            _ = interrupt.recv() => if end(&mounted, &endings).await? { return Ok(()) },
            _ = hangup.recv() => if end(&mounted, &endings).await? { return Ok(()) },
            Some(farewell) = farewells.recv() => {
                let is_end = farewell.is_end;
                waiting.push(farewell);
                if is_end {
                    // Whoever asked may mount the pool again at once, so the socket goes first.
                    drop(socket);
                    return say_all(waiting).await;
                }
            }
            ended = leaving.as_mut() => {
                // Perhaps that was because of a request, which is about to be answered.
                drop(farewell_sender);
                if waiting.is_empty() {
                    waiting.extend(farewells.recv().await);
                }
                drop(socket);
                return ended.and(say_all(waiting).await);
            }
        }
    }
}

/// The last answer, to whoever asked for the end, or for a change with which it came.
#[derive(Debug)]
struct Farewell {
    to: OwnedWriteHalf,
    answer: Answer,
    /// Whether the end was asked for.
    is_end: bool,
}

/// Says all of them.
///
/// # Errors
/// Something is lost.
async fn say_all(farewells: Vec<Farewell>) -> Result<(), ServeError> {
    let mut said = Ok(());
    for farewell in farewells {
        said = said.and(farewell.say().await);
    }
    said
}

impl Farewell {
    /// Says it.
    ///
    /// # Errors
    /// It is that something is lost.
    async fn say(mut self) -> Result<(), ServeError> {
        if let Ok(line) = encode(&self.answer) {
            // Whoever asked may be gone.
            let _ = self.to.write_all(&line).await;
        }
        match self.answer {
            Answer::Failed(refusal) => Err(ServeError::Ended(refusal)),
            _ => Ok(()),
        }
    }
}

/// Lets go of a pool of which nothing is mounted any more; not while it waits for its devices, as
/// nobody has given up what it keeps.
async fn leave(mounted: &Arc<impl Mounted>, endings: &Endings) -> Result<(), ServeError> {
    while endings.start(mounted, Ending::UNFORCED).await?.is_err() {
        if !mounted.is_waiting() {
            return end(mounted, endings).await.map(drop);
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

/// Unmounts where nobody is there to try again: what is in use is detached. Tells whether it is
/// unmounted.
///
/// # Errors
/// The pool is let go of, but something is lost.
async fn end(mounted: &Arc<impl Mounted>, endings: &Endings) -> Result<bool, ServeError> {
    match endings.start(mounted, Ending::FORCED).await? {
        Ok(()) => Ok(true),
        Err(refusal) if mounted.is_over() => Err(ServeError::Ended(refusal)),
        Err(refusal) => {
            tracing::error!(%refusal, "unmount");
            Ok(false)
        }
    }
}

/// Answers the requests of one connection.
async fn converse(
    stream: UnixStream,
    mounted: Arc<impl Mounted>,
    endings: Endings,
    farewells: mpsc::WeakSender<Farewell>,
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
        // For as long as somebody has this, the process waits for the farewell: also when a change
        // ends the last mount.
        let ending = match &request {
            Ok(Request::Unmount { .. } | Request::Destroy { .. } | Request::Change { .. }) => {
                farewells.upgrade()
            }
            _ => None,
        };
        let asks_for_end =
            matches!(&request, Ok(Request::Unmount { .. } | Request::Destroy { .. }));
        let answer = match request {
            Ok(request) if is_long(&request) => tokio::select! {
                answer = carry_out(request, caller, &mounted, &endings) => answer,
                // What waits for its turn is not begun for nobody.
                () = hung_up(&reader) => return,
            },
            Ok(request) => carry_out(request, caller, &mounted, &endings).await,
            Err(error) => Some(refused(error)),
        };
        // Who is hung up on knows that the process is about to go.
        let Some(answer) = answer else { return };
        // A change that was waiting when somebody else ended the pool is not what has ended it.
        let has_ended = asks_for_end || matches!(&answer, Answer::Done { .. });
        if let Some(ending) = ending.as_ref().filter(|_| has_ended && mounted.is_over()) {
            // If the other end is gone, so is the process.
            let farewell = Farewell { to: writer, answer, is_end: asks_for_end };
            let _ = ending.send(farewell).await;
            return;
        }
        let line = encode(&answer).or_else(|error| encode(&refused(error)));
        match line {
            Ok(line) if writer.write_all(&line).await.is_ok() => {}
            _ => return,
        }
    }
}

/// Whether the answer may be as long as the pool has datasets or a history.
const fn is_long(request: &Request) -> bool {
    matches!(request, Request::Datasets(_) | Request::History)
}

/// Long answers that are made at the same time: each is in memory as a whole.
static LONG_ANSWERS: Semaphore = Semaphore::const_new(4);

/// Waits until the peer is gone.
async fn hung_up(reader: &OwnedReadHalf) {
    while reader.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
        // It goes on writing.
        sleep(GLANCE).await;
    }
}

/// The next request; none when the peer has no more.
async fn next_request(
    reader: &mut OwnedReadHalf,
    incoming: &mut Incoming,
) -> Option<Result<Request, WireError>> {
    loop {
        if let Some(request) = incoming.next_message() {
            return Some(request);
        }
        let Some(room) = incoming.room() else {
            // What follows is not the beginning of a request.
            *incoming = Incoming::default();
            return Some(Err(WireError::TooLong(MAX_REQUEST)));
        };
        match reader.read(room).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => incoming.fill(count),
        }
    }
}

async fn carry_out(
    request: Request,
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
    // Whoever ends a pool asks first who it is.
    if matches!(request, Request::Identify) {
        return mounted.answer(request, caller);
    }
    let turn = match is_long(&request) {
        true => LONG_ANSWERS.acquire().await.ok(),
        false => None,
    };
    let answer = move || {
        // Also if nobody waits for it any more.
        let _turn = turn;
        mounted.answer(request, caller)
    };
    let answer = spawn_blocking(answer).await;
    answer.unwrap_or_else(|panicked| Some(refused(panicked)))
}

fn refused(error: impl std::fmt::Display) -> Answer {
    Answer::Failed(Refusal { message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs::control::{ControlClient, ControlError};
    use rzfs::protocol::Identity;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[derive(Default)]
    struct Fake {
        busy: AtomicBool,
        over: AtomicBool,
        /// Nobody ends it who does not force it.
        lingers: AtomicBool,
        /// Somebody waits for the end: whoever asks for events, or ends what lingers.
        waits: AtomicBool,
    }

    impl Fake {
        fn wait_for_end(&self) {
            self.waits.store(true, Ordering::Relaxed);
            while !self.over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            // Whoever has ended it is answered first.
            thread::sleep(GLANCE);
        }
    }

    impl Mounted for Fake {
        fn answer(&self, request: Request, _: Caller) -> Option<Answer> {
            if matches!(request, Request::Events) {
                self.wait_for_end();
            }
            if matches!(request, Request::Pool) {
                return None;
            }
            Some(Answer::Identity(Identity {
                pool: "tank".into(),
                guid: 5,
                process: 6,
                is_writable: true,
            }))
        }

        fn end(&self, ending: Ending) -> Result<(), Refusal> {
            if self.busy.load(Ordering::Relaxed) && !ending.force {
                return Err(Refusal {
                    message: "cannot unmount '/x': pool or dataset is busy".into(),
                });
            }
            if self.lingers.load(Ordering::Relaxed) && !ending.force {
                self.wait_for_end();
            }
            self.over.store(true, Ordering::Relaxed);
            Ok(())
        }

        fn is_waiting(&self) -> bool {
            false
        }

        fn is_over(&self) -> bool {
            self.over.load(Ordering::Relaxed)
        }
    }

    struct Running {
        _directory: tempfile::TempDir,
        control: ControlDirectory,
        fake: Arc<Fake>,
        while_mounted: Arc<mpsc::Sender<Infallible>>,
        server: thread::JoinHandle<Result<(), ServeError>>,
    }

    fn start(fake: Fake) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let control = ControlDirectory::at(directory.path().join("run"));
        control.prepare().unwrap();
        let (while_mounted, ended) = mounts_end();
        let (fake, shared) = (Arc::new(fake), &control);
        // The system has no more threads.
        let mut threads = Builder::new_current_thread();
        let daemon = Daemon::bind_with(threads.max_blocking_threads(1), shared, "tank").unwrap();
        let served = Arc::clone(&fake);
        let server = thread::spawn(move || daemon.serve(served, ended));
        Running { _directory: directory, control, fake, while_mounted, server }
    }

    #[test]
    fn a_pool_answers_until_it_is_unmounted() {
        let running = start(Fake::default());
        let [mut first, mut second] =
            [(); 2].map(|()| running.control.mounted().unwrap().pop().unwrap());
        assert_eq!(first.identity().guid, 5);
        assert!(matches!(second.ask(&Request::Mounts), Ok(Answer::Identity(_))));
        assert_eq!(
            first.ask(&Request::Unmount { force: false, command: None }).unwrap(),
            Answer::Unmounted
        );
        running.server.join().unwrap().unwrap();
        assert!(running.control.mounted().unwrap().is_empty());
        assert!(!running.control.socket("tank").exists());
    }

    #[test]
    fn who_asks_about_a_pool_that_is_gone_is_hung_up_on() {
        let running = start(Fake::default());
        let mut client = running.control.mounted().unwrap().pop().unwrap();
        match client.ask(&Request::Pool) {
            Err(ControlError::Wire { source, .. }) => assert!(source.is_hang_up(), "{source}"),
            other => panic!("{other:?}"),
        }
        drop(running.while_mounted);
        running.server.join().unwrap().unwrap();
    }

    #[test]
    fn long_answers_wait_for_their_turn_and_nobody_waits_for_them() {
        let running = start(Fake::default());
        let turns: Vec<_> = std::iter::from_fn(|| LONG_ANSWERS.try_acquire().ok()).collect();
        assert!(!turns.is_empty());
        let connect = || running.control.mounted().unwrap().pop().unwrap();
        let ask = |mut client: ControlClient| thread::spawn(move || client.ask(&Request::History));
        let waiting = ask(connect());
        // Others are answered meanwhile.
        assert!(connect().ask(&Request::Mounts).is_ok());
        assert!(!waiting.is_finished());
        drop(turns);
        assert!(waiting.join().unwrap().is_ok());
        drop(running.while_mounted);
        running.server.join().unwrap().unwrap();
    }

    #[test]
    fn a_busy_pool_goes_on() {
        let running = start(Fake { busy: true.into(), ..Fake::default() });
        let mut client = running.control.mounted().unwrap().pop().unwrap();
        match client.ask(&Request::Unmount { force: false, command: None }) {
            Err(ControlError::Refused(refusal)) => {
                assert_eq!(refusal.message, "cannot unmount '/x': pool or dataset is busy");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(client.ask(&Request::Identify), Ok(Answer::Identity(_))));
        client.ask(&Request::Unmount { force: true, command: None }).unwrap();
        running.server.join().unwrap().unwrap();
    }

    fn end_what_is_waited_for(running: Running) {
        while !running.fake.waits.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        let mut client = running.control.mounted_as("tank").unwrap().unwrap();
        assert_eq!(
            client.ask(&Request::Unmount { force: true, command: None }).unwrap(),
            Answer::Unmounted
        );
        running.server.join().unwrap().unwrap();
    }

    #[test]
    fn an_end_does_not_wait_behind_a_request_that_waits() {
        let running = start(Fake::default());
        let mut waiting = running.control.mounted().unwrap().pop().unwrap();
        let waiting = thread::spawn(move || drop(waiting.ask(&Request::Events)));
        end_what_is_waited_for(running);
        waiting.join().unwrap();
    }

    #[test]
    fn an_end_by_force_does_not_wait_behind_one_that_waits() {
        let running = start(Fake { lingers: true.into(), ..Fake::default() });
        let mut client = running.control.mounted_as("tank").unwrap().unwrap();
        let waiting =
            thread::spawn(move || client.ask(&Request::Unmount { force: false, command: None }));
        end_what_is_waited_for(running);
        drop(waiting.join().unwrap());
        // Nor behind the one that follows the last mount.
        let mut running = start(Fake { lingers: true.into(), ..Fake::default() });
        drop(std::mem::replace(&mut running.while_mounted, mounts_end().0));
        end_what_is_waited_for(running);
    }

    #[test]
    fn the_last_unmount_by_somebody_else_ends_the_daemon() {
        let running = start(Fake::default());
        drop(running.while_mounted);
        running.server.join().unwrap().unwrap();
    }

    #[test]
    fn nonsense_is_answered_with_a_refusal() {
        let running = start(Fake::default());
        let path = running.control.socket("tank");
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.write_all(b"hello\n{\"version\":99,\"body\":1}\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("malformed") && text.contains("version 99"), "{text}");
        assert!(Daemon::bind(&running.control, "tank").is_err(), "the socket is taken");
        ControlClient::connect(&path)
            .unwrap()
            .unwrap()
            .ask(&Request::Unmount { force: false, command: None })
            .unwrap();
        running.server.join().unwrap().unwrap();
    }
}
