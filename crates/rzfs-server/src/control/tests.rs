//! Directories with sockets with and without listeners.

use super::client::is_listened_on;
use super::ownership::is_private;
use super::*;
use crate::protocol::{Answer, Identity, MAX_REQUEST, Request, WireError, receive, send};
use std::fs;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

#[test]
fn a_missing_directory_has_no_pools() {
    let parent = tempfile::tempdir().unwrap();
    let directory = ControlDirectory::at(parent.path().join("a/b"));
    assert!(directory.mounted().unwrap().clients.is_empty());
    directory.prepare().unwrap();
    directory.prepare().unwrap();
    assert!(directory.mounted().unwrap().clients.is_empty());
}

#[test]
fn sockets_are_made_anew_where_a_directory_is_left() {
    let parent = tempfile::tempdir().unwrap();
    let [session, open, left] = ["session", "open", "left"].map(|name| parent.path().join(name));
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
    assert!(directory.mounted().unwrap().clients.is_empty());
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
    let at = |length: usize| ControlDirectory::at(format!("/{}", "x".repeat(length - 1)).into());
    assert!(at(97).check_length("tank").is_ok());
    let refused = at(99).check_length("tank").unwrap_err();
    assert!(matches!(refused, ControlError::TooLong { excess: 2, .. }), "{refused:?}");
    assert!(at(59).check_length(&"x".repeat(200)).is_ok());
    assert!(at(60).check_length(&"x".repeat(MAX_SOCKET_NAME)).is_err());
    // No socket can be bound there.
    assert_eq!((at(97).sockets("tank").count(), at(98).sockets("tank").count()), (1, 0));
    assert!(at(98).mounted_as("tank").unwrap().is_none());
    // No pool can be there under any name: that must not pass for an empty list.
    assert!(at(100).mounted().unwrap().clients.is_empty());
    for refused in [at(102).mounted().err(), at(102).mounted_as("tank").err()] {
        assert!(matches!(refused, Some(ControlError::TooLong { .. })), "{refused:?}");
    }
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
    let Mounted { clients, silent: told } = directory.mounted().unwrap();
    assert!(clients.is_empty());
    let process = std::process::id();
    let mut told: Vec<_> = told.iter().map(ToString::to_string).collect();
    told.sort_unstable();
    let named = |pool| format!("pool '{pool}' does not answer (process {process})");
    let expected = [named("a"), named("b"), named("c"), "pool 'full' does not answer".to_owned()];
    assert_eq!(told, expected);
    assert!(start.elapsed() < LISTING_TIMEOUT * 3, "{:?}", start.elapsed());
    assert!(is_listened_on(&directory.socket("full")));
    assert!(is_listened_on(&directory.socket("a")));
    drop(silent);
    assert!(!is_listened_on(&directory.socket("a")));
    assert!(!is_listened_on(&directory.socket("none")));
}

/// They identify themselves, and answer nothing more: all of their threads wait for devices.
#[test]
fn pools_that_answer_nothing_more_cost_one_moment_together() {
    let parent = tempfile::tempdir().unwrap();
    let directory = ControlDirectory::at(parent.path().join("run"));
    directory.prepare().unwrap();
    for pool in ["a", "b", "c"] {
        let listener = std::os::unix::net::UnixListener::bind(directory.socket(pool)).unwrap();
        thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                receive::<Request>(&mut stream, MAX_REQUEST).unwrap();
                let (pool, guid, process) = (pool.to_owned(), 5, 6);
                let identity = Identity { pool, guid, process, is_writable: true };
                send(stream.get_mut(), &Answer::Identity(identity)).unwrap();
                kept.push(stream);
            }
        });
    }
    let start = Instant::now();
    for client in &mut directory.mounted().unwrap().clients {
        let told = client.ask(&Request::Pool).unwrap_err();
        assert!(told.to_string().ends_with("does not answer (process 6)"), "{told}");
    }
    assert!(start.elapsed() < LISTING_TIMEOUT * 2, "{:?}", start.elapsed());
    let start = Instant::now();
    let asked = directory.local_pools().unwrap();
    assert_eq!((asked.local.imported.len(), asked.silent.len()), (0, 3));
    assert!(start.elapsed() < LISTING_TIMEOUT * 2, "{:?}", start.elapsed());
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
    thread::spawn(move || tell.send(directory.mounted().unwrap().clients.len()));
    assert_eq!(told.recv_timeout(LISTING_TIMEOUT * 3), Ok(0), "{:?}", start.elapsed());
}

/// Root queries the directory of another user.
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
    assert!(directory.mounted().unwrap().clients.is_empty());
}
