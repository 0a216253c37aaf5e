//! The process that has a pool mounted: it answers on the pool's control socket until it is told
//! to unmount, by request, by signal, or because somebody else ended its last mount.
//!
//! This is the only place with a runtime. Everything below it blocks, and runs on the runtime's
//! blocking threads.

mod background;

pub(crate) use background::{Readiness, in_background};

use rzfs::protocol::{Answer, MAX_REQUEST, Refusal, Request, WireError, decode, encode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

/// What a daemon serves.
pub(crate) trait Mounted: Send + Sync + 'static {
    /// Answers everything but [`Request::Unmount`].
    fn answer(&self, request: Request) -> Answer;

    /// Ends all mounts. After a success nothing is asked any more.
    fn unmount(&self, force: bool) -> Result<(), Refusal>;
}

/// The control socket of a pool, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: std::os::unix::net::UnixListener,
}

impl ControlSocket {
    /// Binds the socket. One that a dead process left is replaced; one that somebody listens on
    /// is an error of kind `AddrInUse`.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), listener })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves until the pool is unmounted. `ended` completes when the last mount was ended by
/// somebody else.
pub(crate) fn serve(
    socket: &ControlSocket,
    mounted: Arc<impl Mounted>,
    ended: mpsc::Receiver<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = socket.listener.try_clone()?;
    runtime.block_on(async {
        let listener = UnixListener::from_std(listener)?;
        run(listener, mounted, ended).await
    })
}

async fn run(
    listener: UnixListener,
    mounted: Arc<impl Mounted>,
    mut ended: mpsc::Receiver<()>,
) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (unmounted, mut is_unmounted) = watch::channel(false);
    loop {
        tokio::select! {
            connection = listener.accept() => match connection {
                Ok((stream, _)) => {
                    tokio::spawn(converse(stream, Arc::clone(&mounted), unmounted.clone()));
                }
                Err(error) => tracing::warn!(%error, "control socket"),
            },
            _ = terminate.recv() => if end_by_signal(&mounted).await { return Ok(()) },
            _ = interrupt.recv() => if end_by_signal(&mounted).await { return Ok(()) },
            // The answer to the request that unmounted is on its way when this fires.
            _ = is_unmounted.wait_for(|done| *done) => return Ok(()),
            _ = ended.recv() => return Ok(()),
        }
    }
}

/// Unmounts because of a signal: what is in use is detached, since nobody is there to try again.
async fn end_by_signal(mounted: &Arc<impl Mounted>) -> bool {
    let mounted = Arc::clone(mounted);
    match spawn_blocking(move || mounted.unmount(true)).await {
        Ok(Ok(())) => true,
        Ok(Err(refusal)) => {
            tracing::error!(%refusal, "unmount by signal");
            false
        }
        Err(error) => {
            tracing::error!(%error, "unmount by signal");
            true
        }
    }
}

/// Answers the requests of one connection.
async fn converse(stream: UnixStream, mounted: Arc<impl Mounted>, unmounted: watch::Sender<bool>) {
    let owner = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == owner => {}
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "control socket: refused");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "control socket: no credentials");
            return;
        }
    }
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(request) = next_request(&mut reader).await {
        let (answer, done) = match request {
            Ok(request) => carry_out(request, &mounted).await,
            Err(error) => (refused(error), false),
        };
        let line = encode(&answer).or_else(|error| encode(&refused(error)));
        let sent = match line {
            Ok(line) => writer.write_all(&line).await.is_ok(),
            Err(_) => false,
        };
        if done {
            unmounted.send_replace(true);
        }
        if done || !sent {
            return;
        }
    }
}

/// The next request; none when the peer has no more.
async fn next_request(
    reader: &mut BufReader<tokio::net::unix::OwnedReadHalf>,
) -> Option<Result<Request, WireError>> {
    let mut line = Vec::new();
    match reader.take(MAX_REQUEST).read_until(b'\n', &mut line).await {
        Ok(0) => None,
        Ok(_) if line.last() == Some(&b'\n') => Some(decode(&line)),
        Ok(_) if line.len() as u64 >= MAX_REQUEST => Some(Err(WireError::TooLong(MAX_REQUEST))),
        Ok(_) | Err(_) => None,
    }
}

/// The answer, and whether the pool is unmounted now.
async fn carry_out(request: Request, mounted: &Arc<impl Mounted>) -> (Answer, bool) {
    let mounted = Arc::clone(mounted);
    let result = spawn_blocking(move || match request {
        Request::Unmount { force } => match mounted.unmount(force) {
            Ok(()) => (Answer::Unmounted, true),
            Err(refusal) => (Answer::Failed(refusal), false),
        },
        request => (mounted.answer(request), false),
    });
    result.await.unwrap_or_else(|error| (refused(error), false))
}

fn refused(error: impl std::fmt::Display) -> Answer {
    Answer::Failed(Refusal { message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs::control::{ControlClient, ControlDirectory, ControlError};
    use rzfs::protocol::Identity;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[derive(Default)]
    struct Fake {
        busy: AtomicBool,
    }

    impl Mounted for Fake {
        fn answer(&self, _: Request) -> Answer {
            Answer::Identity(Identity { pool: "tank".into(), guid: 5, process: 6 })
        }

        fn unmount(&self, force: bool) -> Result<(), Refusal> {
            if self.busy.load(Ordering::Relaxed) && !force {
                return Err(Refusal {
                    message: "cannot unmount '/x': pool or dataset is busy".into(),
                });
            }
            Ok(())
        }
    }

    struct Running {
        _directory: tempfile::TempDir,
        control: ControlDirectory,
        ended: mpsc::Sender<()>,
        server: thread::JoinHandle<io::Result<()>>,
    }

    fn start(fake: Fake) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let control = ControlDirectory::at(directory.path().join("run"));
        control.prepare().unwrap();
        let socket = ControlSocket::bind(&control.socket("tank")).unwrap();
        let (ended, receiver) = mpsc::channel(1);
        let server = thread::spawn(move || serve(&socket, Arc::new(fake), receiver));
        Running { _directory: directory, control, ended, server }
    }

    #[test]
    fn a_pool_answers_until_it_is_unmounted() {
        let running = start(Fake::default());
        let [mut first, mut second] =
            [(); 2].map(|()| running.control.mounted().unwrap().pop().unwrap());
        assert_eq!(first.identity().guid, 5);
        assert!(matches!(second.ask(&Request::Mounts), Ok(Answer::Identity(_))));
        assert_eq!(first.ask(&Request::Unmount { force: false }).unwrap(), Answer::Unmounted);
        running.server.join().unwrap().unwrap();
        assert!(running.control.mounted().unwrap().is_empty());
        assert!(!running.control.socket("tank").exists());
    }

    #[test]
    fn a_busy_pool_goes_on() {
        let running = start(Fake { busy: true.into() });
        let mut client = running.control.mounted().unwrap().pop().unwrap();
        match client.ask(&Request::Unmount { force: false }) {
            Err(ControlError::Refused(refusal)) => {
                assert_eq!(refusal.message, "cannot unmount '/x': pool or dataset is busy");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(client.ask(&Request::Identify), Ok(Answer::Identity(_))));
        client.ask(&Request::Unmount { force: true }).unwrap();
        running.server.join().unwrap().unwrap();
    }

    #[test]
    fn the_last_unmount_by_somebody_else_ends_the_daemon() {
        let running = start(Fake::default());
        running.ended.blocking_send(()).unwrap();
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
        assert!(ControlSocket::bind(&path).is_err(), "the socket is taken");
        ControlClient::connect(&path)
            .unwrap()
            .unwrap()
            .ask(&Request::Unmount { force: false })
            .unwrap();
        running.server.join().unwrap().unwrap();
    }
}
