//! Calls that may lead into mounts of this same process.
//!
//! ```text
//! any thread ── errand ─────> thread with a descriptor table of its own ───────> kernel ──> FUSE
//!            <── descriptor ──                                                               │
//!                  /dev/fuse, sockets, images: only in the table of all other threads  <─────┘
//! ```
//! A call that waits for a reply of its own process survives `SIGKILL`: the kernel releases it when
//! the mount's connection ends, which takes until its last descriptor is closed. A thread that
//! shares the descriptor table of the dead process would keep it open, and so hang every program
//! that uses the mount, and hold the pool's images. So such calls are made by threads whose table
//! has none of these.

use nix::sched::{CloneFlags, unshare};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// A task for a thread with its own descriptor table, and the channel for descriptors.
type Errand = Box<dyn FnOnce(&Mutex<OwnedFd>) + Send>;

/// The errand threads: one runner per process, as they serve its open files.
static RUNNER: OnceLock<Runner> = OnceLock::new();

struct Runner {
    errands: Mutex<Sender<Errand>>,
    /// Where descriptors arrive.
    arrivals: OwnedFd,
}

/// Prepares this process for mounts below its own mounts. Must be called before anything is opened
/// that must not outlive the process; without it callers do such work themselves.
///
/// # Errors
/// The system has no threads or sockets left.
pub fn run_errands_apart() -> io::Result<()> {
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let (arrivals, departures) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    let (errands, waiting) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    thread::Builder::new().name("errands".to_owned()).spawn(move || {
        let apart = go_apart();
        let is_apart = apart.is_ok();
        // The other end waits for it.
        let _ = begun.send(apart);
        if is_apart {
            run_all(&waiting, &Arc::new(Mutex::new(departures)));
        }
    })?;
    has_begun.recv().unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))?;
    // A second call keeps the first runner.
    let _ = RUNNER.set(Runner { errands: Mutex::new(errands), arrivals });
    Ok(())
}

/// Gives this thread its own descriptor table, without the standard streams: a parent that waits
/// for their end need not wait for us.
fn go_apart() -> io::Result<()> {
    unshare(CloneFlags::CLONE_FILES)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Each errand gets a thread, as it may block; it shares the table of its creator.
fn run_all(waiting: &Receiver<Errand>, departures: &Arc<Mutex<OwnedFd>>) {
    for errand in waiting {
        let departures = Arc::clone(departures);
        let started = thread::Builder::new().name("errand".to_owned()).spawn(move || {
            errand(&departures);
        });
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for what leads into a mount");
        }
    }
}

/// Runs `open` outside the descriptor table of this process; returns its result.
///
/// # Errors
/// The descriptor cannot be handed over.
pub(crate) fn open<T, E>(
    open: impl FnOnce() -> Result<(OwnedFd, T), E> + Send + 'static,
) -> io::Result<Result<(OwnedFd, T), E>>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let Some(runner) = RUNNER.get() else { return Ok(open()) };
    let (done, outcome) = mpsc::channel();
    runner.submit(Box::new(move |departures| {
        let (descriptor, value) = match open() {
            Ok(opened) => opened,
            Err(error) => return drop(done.send(Ok(Err(error)))),
        };
        let departures = departures.lock().unwrap_or_else(PoisonError::into_inner);
        let (arrived, has_arrived) = mpsc::channel::<()>();
        let sent = send(&departures, &descriptor).map(|()| Ok((value, arrived)));
        // The receiver may unmount the file system: no other descriptor may be open by then.
        drop(descriptor);
        if done.send(sent).is_ok() {
            // The sender is dropped when the descriptor has arrived: the next one may follow.
            let _ = has_arrived.recv();
        }
    }))?;
    match outcome.recv().unwrap_or_else(|_| Err(gone()))? {
        Ok((value, _arrived)) => Ok(Ok((runner.receive()?, value))),
        Err(error) => Ok(Err(error)),
    }
}

/// Runs `act`, which leaves nothing open, outside the descriptor table of this process; returns its
/// result.
///
/// # Errors
/// No thread is available.
pub(crate) fn act<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let Some(runner) = RUNNER.get() else { return Ok(act()) };
    let (done, outcome) = mpsc::channel();
    runner.submit(Box::new(move |_| drop(done.send(act()))))?;
    outcome.recv().map_err(|_| gone())
}

/// The same with a time limit, after which it goes on unattended. `None` on timeout, or if no
/// thread is available.
pub(crate) fn attempt<T: Send + 'static>(
    patience: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, outcome) = mpsc::channel();
    // The caller may have given up.
    begin(move || drop(done.send(act())));
    outcome.recv_timeout(patience).ok()
}

/// Starts an action without waiting for it. It is dropped if it cannot be started.
pub(crate) fn begin(act: impl FnOnce() + Send + 'static) {
    let begun = match RUNNER.get() {
        Some(runner) => runner.submit(Box::new(move |_| act())),
        // A thread that shares the open files is better than blocking the caller.
        None => thread::Builder::new().name("errand".to_owned()).spawn(act).map(drop),
    };
    if let Err(error) = begun {
        tracing::warn!(%error, "no thread for what leads into a mount");
    }
}

impl Runner {
    fn submit(&self, errand: Errand) -> io::Result<()> {
        let errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        errands.send(errand).map_err(|_| gone())
    }

    /// Receives a sent descriptor.
    fn receive(&self) -> io::Result<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut buffer, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
        let bytes = &mut [IoSliceMut::new(&mut byte)];
        recvmsg(&self.arrivals, bytes, &mut buffer, RecvFlags::CMSG_CLOEXEC)?;
        let mut received = buffer.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        received.next().ok_or_else(gone)
    }
}

fn send(departures: &OwnedFd, descriptor: &OwnedFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    if !buffer.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(ErrorKind::OutOfMemory.into());
    }
    sendmsg(departures, &[IoSlice::new(&[0])], &mut buffer, SendFlags::empty())?;
    Ok(())
}

fn gone() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the thread for what leads into mounts is gone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsRawFd;

    fn opened(path: &'static str) -> io::Result<(OwnedFd, String)> {
        open(move || {
            let open = rustix::fs::open(path, OFlags::RDONLY, Mode::empty())?;
            // The thread's own open files, by its own number.
            let table = std::fs::read_dir("/proc/thread-self/fd")?.flatten();
            let names = table.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let names: Vec<_> = names.map(|name| name.display().to_string()).collect();
            Ok::<_, io::Error>((open, names.join("\n")))
        })?
    }

    #[test]
    fn descriptors_arrive_from_where_ours_are_not() {
        run_errands_apart().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let ours = file.path().display().to_string();
        let threads: Vec<_> = (0..8)
            .map(|number| {
                thread::spawn(move || {
                    let path = if number % 2 == 0 { "/dev/null" } else { "/etc/passwd" };
                    (path, opened(path).unwrap())
                })
            })
            .collect();
        for thread in threads {
            let (path, (descriptor, table)) = thread.join().unwrap();
            let name = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
            assert_eq!(std::fs::read_link(name).unwrap().to_str(), Some(path));
            assert!(table.contains(path) && !table.contains(&ours), "{table}");
        }
        assert_eq!(open(|| Err::<(OwnedFd, ()), _>("no")).unwrap().unwrap_err(), "no");
        assert_eq!(act(|| 7).unwrap(), 7);
    }
}
