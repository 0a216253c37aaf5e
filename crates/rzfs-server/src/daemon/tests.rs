//! A daemon that serves a scripted pool.

use super::conversation::LONG_ANSWERS;
use super::signals::GLANCE;
use super::*;
use crate::control::{ControlClient, ControlError, ReceiveProgress};
use crate::protocol::{
    Answer, Change, Identity, ReceiveReport, ReceiveRequest, ReceiveTarget, Refusal, Remains,
    Request, SendRequest, StreamExtent,
};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

#[derive(Default)]
struct Fake {
    busy: AtomicBool,
    over: AtomicBool,
    /// Only a forced end succeeds.
    lingers: AtomicBool,
    /// Its devices are idle, and ending it waits for them.
    falls_silent: AtomicBool,
    /// A thread waits for the end: a request for events, or the end of a lingering pool.
    waits: AtomicBool,
    /// Changes that have started; they wait for the end of the pool.
    changes: AtomicUsize,
}

impl Fake {
    fn wait_for_end(&self) {
        self.waits.store(true, Ordering::Relaxed);
        while !self.over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        // The client that ended it is answered first.
        thread::sleep(GLANCE);
    }
}

impl Mounted for Fake {
    fn answer(&self, request: Request, _: Caller) -> Option<Answer> {
        if matches!(request, Request::Events) {
            self.wait_for_end();
        }
        if matches!(request, Request::Change { .. }) {
            self.changes.fetch_add(1, Ordering::Relaxed);
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

    fn send(&self, _: &SendRequest, to: &mut dyn Write, _: &Line) -> Option<Answer> {
        Some(match to.write_all(&[7; 1 << 20]) {
            Ok(()) => Answer::Done { complaints: Vec::new() },
            Err(error) => Answer::Failed(Refusal::new(error.to_string())),
        })
    }

    fn receive(
        &self,
        request: &ReceiveRequest,
        _: Caller,
        from: &mut dyn Read,
        line: &Line,
    ) -> Option<Answer> {
        let snapshot = request.target.dataset().to_owned();
        let (sent, extent, origin) = ("a@b".into(), StreamExtent::Full, None);
        let report = ReceiveReport { sent, snapshot, extent, origin };
        line.say(&Answer::Receiving(report)).unwrap();
        // A client that returns nothing is not waited for.
        let result = match request.force {
            true => Err(std::io::Error::other("not this one")),
            false => std::io::copy(from, &mut std::io::sink()),
        };
        Some(match result {
            Ok(bytes) => {
                let (complaints, warnings) = (Vec::new(), Vec::new());
                line.say(&Answer::Received { bytes, complaints, warnings }).unwrap();
                Answer::Done { complaints: Vec::new() }
            }
            Err(error) => Answer::Failed(Refusal::new(error.to_string())),
        })
    }

    fn end(&self, ending: Ending) -> Result<(), Refusal> {
        if self.busy.load(Ordering::Relaxed) && !ending.force {
            return Err(Refusal::new("cannot unmount '/x': pool or dataset is busy"));
        }
        if self.lingers.load(Ordering::Relaxed) && !ending.force {
            self.wait_for_end();
        }
        if self.falls_silent.load(Ordering::Relaxed) {
            loop {
                thread::park();
            }
        }
        self.over.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn activity(&self) -> Option<Activity> {
        let begun = std::time::Instant::now();
        let quiet = self.falls_silent.load(Ordering::Relaxed);
        Some(Box::new(move || Some(if quiet { 7 } else { begun.elapsed().as_micros() as u64 })))
    }

    fn give_up(&self, _: Disposition) -> Refusal {
        self.over.store(true, Ordering::Relaxed);
        Refusal::new("given up")
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
    server: thread::JoinHandle<Result<(), DaemonError>>,
}

/// The system has no threads left.
fn start(fake: Fake) -> Running {
    start_with(fake, Builder::new_current_thread().max_blocking_threads(1))
}

fn start_with(fake: Fake, threads: &mut Builder) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let control = ControlDirectory::at(directory.path().join("run"));
    control.prepare().unwrap();
    let (while_mounted, ended) = mounts_end();
    let (fake, shared) = (Arc::new(fake), &control);
    let patience = Duration::from_millis(100);
    let daemon = Daemon::bind_with(threads, patience, shared, "tank").unwrap();
    let served = Arc::clone(&fake);
    let server = thread::spawn(move || daemon.serve(served, ended));
    Running { _directory: directory, control, fake, while_mounted, server }
}

#[test]
fn a_pool_answers_until_it_is_unmounted() {
    let running = start(Fake::default());
    let [mut first, mut second] =
        [(); 2].map(|()| running.control.mounted().unwrap().clients.pop().unwrap());
    assert_eq!(first.identity().guid, 5);
    assert!(matches!(second.ask(&Request::Mounts), Ok(Answer::Identity(_))));
    assert_eq!(
        first.ask(&Request::Unmount { force: false, command: None }).unwrap(),
        Answer::Unmounted
    );
    running.server.join().unwrap().unwrap();
    assert!(running.control.mounted().unwrap().clients.is_empty());
    assert!(!running.control.socket("tank").exists());
}

#[test]
fn who_asks_about_a_pool_that_is_gone_is_hung_up_on() {
    let running = start(Fake::default());
    let mut client = running.control.mounted().unwrap().clients.pop().unwrap();
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
    let connect = || running.control.mounted().unwrap().clients.pop().unwrap();
    let ask = |mut client: ControlClient| thread::spawn(move || client.ask(&Request::History));
    let waiting = ask(connect());
    // Other requests are answered meanwhile.
    assert!(connect().ask(&Request::Mounts).is_ok());
    assert!(!waiting.is_finished());
    drop(turns);
    assert!(waiting.join().unwrap().is_ok());
    drop(running.while_mounted);
    running.server.join().unwrap().unwrap();
}

/// As with unresponsive devices.
#[test]
fn many_changes_that_wait_keep_nobody_else_and_those_whose_client_has_gone_are_not_begun() {
    let running = start_with(Fake::default(), &mut Builder::new_current_thread());
    let change = Request::Change { change: Change::Sync, command: None };
    let line = crate::protocol::encode(&change).unwrap();
    let ask = || {
        let path = running.control.socket("tank");
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.write_all(&line).unwrap();
        stream
    };
    let has_begun = || running.fake.changes.load(Ordering::Relaxed);
    let wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let connect = || running.control.mounted_as("tank").unwrap().unwrap();
    let asked: Vec<_> = (0..Turns::CHANGES).map(|_| ask()).collect();
    wait_until(&|| has_begun() == Turns::CHANGES);
    let gone: Vec<_> = (0..Turns::PLACES).map(|_| ask()).collect();
    wait_until(&|| match connect().ask(&change) {
        Err(ControlError::Refused(refusal)) => {
            refusal.message == "too many commands wait for the pool"
        }
        other => panic!("{other:?}"),
    });
    assert!(matches!(connect().ask(&Request::Mounts), Ok(Answer::Identity(_))));
    drop(gone);
    // There is room for others as soon as that is noticed.
    let waiting = loop {
        let mut one = ask();
        one.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        if one.read(&mut [0; 1]).is_err() {
            break one;
        }
    };
    assert_eq!(has_begun(), Turns::CHANGES);
    end_what_is_waited_for(running);
    drop((asked, waiting));
}

#[test]
fn a_stream_is_passed_on_until_the_pool_has_said_what_becomes_of_it() {
    let running = start(Fake::default());
    let connect = || running.control.mounted().unwrap().clients.pop().unwrap();
    let mut request = ReceiveRequest {
        target: ReceiveTarget::Dataset("tank/a".into()),
        origin: None,
        properties: Vec::new(),
        excluded: Vec::new(),
        force: false,
        force_unmount: false,
        skip_holds: false,
        leave_unmounted: false,
        remains: Remains::Destroyed,
        dry_run: false,
        command: "zfs receive tank/a".into(),
    };
    let mut heard = Vec::new();
    // Large enough that it must be read while it is written.
    let stream: &[u8] = vec![3; 5 << 20].leak();
    let received = connect().receive_snapshots(&request, stream, |progress| heard.push(progress));
    received.unwrap();
    let [ReceiveProgress::Begun(report), ReceiveProgress::Ended { bytes, .. }] = heard.as_slice()
    else {
        panic!("{heard:?}");
    };
    assert_eq!((report.snapshot.as_str(), *bytes), ("tank/a", 5 << 20));
    request.force = true;
    let endless = std::io::repeat(3);
    match connect().receive_snapshots(&request, endless, |_| ()) {
        Err(ControlError::Refused(refusal)) => assert_eq!(refusal.message, "not this one"),
        other => panic!("{other:?}"),
    }
    drop(running.while_mounted);
    running.server.join().unwrap().unwrap();
}

#[test]
fn a_busy_pool_goes_on() {
    let running = start(Fake { busy: true.into(), ..Fake::default() });
    let mut client = running.control.mounted().unwrap().clients.pop().unwrap();
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

#[test]
fn a_pool_whose_devices_do_nothing_is_given_up_by_force() {
    let running = start(Fake { falls_silent: true.into(), ..Fake::default() });
    let mut client = running.control.mounted().unwrap().clients.pop().unwrap();
    match client.ask(&Request::Unmount { force: true, command: None }) {
        Err(ControlError::Refused(refusal)) => assert_eq!(refusal.message, "given up"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(running.server.join().unwrap(), Err(DaemonError::Ended(_))));
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
    let mut waiting = running.control.mounted().unwrap().clients.pop().unwrap();
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
    // Nor after the end that follows the last mount.
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
