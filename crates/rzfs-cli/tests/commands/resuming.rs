//! `zfs receive -s` and `-A`, `zfs send -t`: interrupted streams and their resumption.

use crate::harness::kill_server;
use crate::receiving::{command, exported_and_judged, from, pools, receive, receives, sent, tree};
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::Stdio;

/// Incompressible bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(&mut next).take(len).collect()
}

/// The first part of a stream.
fn part_of(stream: &File, percent: u64) -> File {
    let mut stream = stream.try_clone().unwrap();
    let length = stream.metadata().unwrap().len() * percent / 100;
    stream.rewind().unwrap();
    let mut part = tempfile::tempfile().unwrap();
    std::io::copy(&mut stream.take(length), &mut part).unwrap();
    part
}

fn token(shop: &Workshop, name: &str) -> String {
    let line = format!("zfs get -Ho value receive_resume_token {name}");
    shop.succeed(&line).trim().to_owned()
}

/// Receives an incomplete stream, and returns the token.
fn breaks_off(shop: &Workshop, line: &str, what: &str, stream: &File) -> String {
    let outcome = receive(shop, &format!("-s {line}"), stream);
    let token = token(shop, line.rsplit(' ').next().unwrap());
    let said = format!(
        "cannot receive {what} stream: checksum mismatch or incomplete stream.\n\
         Partially received snapshot is saved.\n\
         A resuming stream can be generated on the sending system by running:\n    \
         zfs send -t {token}\n"
    );
    assert_eq!((outcome.status, outcome.err), (1, said));
    assert!(token.starts_with("1-"), "{token}");
    token
}

/// Creates the files to send, of several sizes.
fn fill(directory: &Path, seed: u64) {
    fs::create_dir_all(directory.join("deep")).unwrap();
    for number in 0..8 {
        let name = directory.join(format!("deep/noise {number}"));
        fs::write(name, noise(seed + number, 700_000)).unwrap();
    }
    fs::write(directory.join("text"), "words and words ".repeat(40_000)).unwrap();
    fs::write(directory.join("small"), "small").unwrap();
    let sparse = File::create(directory.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
}

#[test]
fn a_new_file_system_is_received_in_several_attempts() {
    let shop = pools();
    let at = from(&shop);
    fill(&at, 10);
    shop.succeed("zfs snapshot from/a/b@s1");
    let full = sent(&shop, "-c from/a/b@s1");
    let first = breaks_off(&shop, "-o atime=off tank/copy", "new filesystem", &part_of(&full, 60));
    let state = "zfs get -Hpo value mounted,type tank/copy";
    assert_eq!(shop.succeed(state), "no\nfilesystem\n");
    let mounted = shop.refuse("zfs mount tank/copy", 1);
    assert_eq!(
        mounted,
        "cannot mount 'tank/copy': Contains partially-completed state from \"zfs receive -s\", \
         which can be resumed with \"zfs send -t\"\n"
    );
    let busy = shop.refuse("zfs snapshot tank/copy@x", 1);
    assert!(busy.starts_with("cannot create snapshot 'tank/copy@x': dataset is busy\n"), "{busy}");
    // The state persists, and nothing else can be received there.
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(token(&shop, "tank/copy"), first);
    let exists = receive(&shop, "-s tank/copy", &full);
    assert_eq!(
        exists.err,
        "cannot receive new filesystem stream: destination 'tank/copy' exists\n\
         must specify -F to overwrite it\n"
    );
    let partial = receive(&shop, "-F tank/copy", &full);
    assert_eq!(
        (partial.status, partial.err.as_str()),
        (
            1,
            "cannot receive new filesystem stream: destination tank/copy contains \
             partially-complete state from \"zfs receive -s\".\n"
        )
    );

    let said = shop.succeed(&format!("zfs send -nvt {first}"));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..2], ["resume token contents:", "nvlist version: 0"]);
    assert!(lines[2].starts_with("\tobject = 0x") && lines[3].starts_with("\toffset = 0x"));
    assert_eq!(lines[6..8], ["\ttoname = from/a/b@s1", "\tcompressok = 1"], "{said}");
    assert!(lines[8].starts_with("full send of from/a/b@s1 estimated size is "), "{said}");
    let rest = sent(&shop, &format!("-t {first}"));
    let length = |file: &File| file.metadata().unwrap().len();
    assert!(length(&rest) * 2 < length(&full), "{} of {}", length(&rest), length(&full));
    let parsable = shop.succeed(&format!("zfs send -nPt {first}"));
    assert!(parsable.ends_with(&format!("\nsize\t{}\n", length(&rest))), "{parsable}");

    let second = breaks_off(&shop, "tank/copy", "resume", &part_of(&rest, 50));
    assert_ne!(second, first);
    let old = receive(&shop, "-s tank/copy", &rest);
    assert!(old.err.starts_with("cannot receive resume stream: invalid backup stream"), "{old:?}");
    let rest = sent(&shop, &format!("-t {second}"));
    let said = receives(&shop, "-sv tank/copy", &rest);
    assert!(said.starts_with("receiving full stream of from/a/b@s1 into tank/copy@s1\n"), "{said}");
    assert_eq!(token(&shop, "tank/copy"), "-");
    let copy = shop.root().join("copy");
    assert_eq!(tree(&copy), tree(&at), "it is mounted");
    assert_eq!(tree(&copy.join(".zfs/snapshot/s1")), tree(&at));
    let done = receive(&shop, "-s tank/copy", &rest);
    assert_eq!(done.status, 1, "{done:?}");
    exported_and_judged(&shop);
}

#[test]
fn increments_are_received_in_several_attempts_while_what_they_change_is_used() {
    let shop = pools();
    let at = from(&shop);
    fs::write(at.join("first"), "first").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    receives(&shop, "-o atime=off tank/copy", &sent(&shop, "from/a/b@s1"));
    let before = tree(&at);
    fill(&at, 20);
    fs::remove_file(at.join("first")).unwrap();
    shop.succeed("zfs snapshot from/a/b@s2");
    let increment = sent(&shop, "-i @s1 from/a/b@s2");
    let copy = shop.root().join("copy");
    let nothing = "'tank/copy' does not have any resumable receive state to abort\n";
    assert_eq!(shop.refuse("zfs receive -A tank/copy", 1), nothing);
    breaks_off(&shop, "tank/copy", "incremental", &part_of(&increment, 30));
    assert_eq!(tree(&copy), before);
    assert_eq!(shop.succeed("zfs list -Hro name tank"), "tank\ntank/copy\n");
    let other = receive(&shop, "tank/copy", &increment);
    assert_eq!(
        (other.status, other.err.as_str()),
        (
            1,
            "cannot receive incremental stream: destination tank/copy contains \
             partially-complete state from \"zfs receive -s\".\n"
        )
    );
    shop.succeed("zfs receive -A tank/copy");
    assert_eq!(token(&shop, "tank/copy"), "-");
    assert_eq!(shop.refuse("zfs receive -A tank/copy", 1), nothing);
    let history = shop.succeed("zpool history tank");
    assert!(history.contains("zfs receive -A tank/copy\n"), "{history}");

    let first = breaks_off(&shop, "tank/copy", "incremental", &part_of(&increment, 70));
    // The snapshot is found under any name, and so is its source.
    shop.succeed("zfs bookmark from/a/b@s1 from/a/b#kept");
    shop.succeed("zfs destroy from/a/b@s1");
    shop.succeed("zfs rename from/a/b@s2 from/a/b@later");
    shop.succeed("zfs rename from/a/b from/c");
    let said = shop.succeed(&format!("zfs send -nvt {first}"));
    assert!(said.contains("send from from/c#kept to from/c@later estimated size is "), "{said}");
    let rest = sent(&shop, &format!("-t {first}"));
    let open = File::open(copy.join("first")).unwrap();
    receives(&shop, "tank/copy@s2", &rest);
    drop(open);
    let now = shop.rzfs.path("root").join("from/c");
    assert_eq!(tree(&copy), tree(&now));
    assert_eq!(tree(&copy.join(".zfs/snapshot/s1")), before);
    assert_eq!(token(&shop, "tank/copy"), "-");
    // Both are gone in the end.
    shop.succeed("zfs destroy from/c@later");
    let gone = shop.refuse(&format!("zfs send -nt {first}"), 255);
    assert_eq!(
        gone,
        "cannot resume send: 'from/a/b@s2' used in the initial send no longer exists\n"
    );
    exported_and_judged(&shop);
}

#[test]
fn what_is_left_of_a_receive_is_destroyed_with_its_target() {
    let shop = pools();
    let at = from(&shop);
    fs::write(at.join("first"), "first").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let full = sent(&shop, "from/a/b@s1");
    fill(&at, 30);
    shop.succeed("zfs snapshot from/a/b@s2");
    let increment = sent(&shop, "-i @s1 from/a/b@s2");
    let whole = sent(&shop, "from/a/b@s2");
    receives(&shop, "tank/copy", &full);
    breaks_off(&shop, "tank/copy", "incremental", &part_of(&increment, 50));
    breaks_off(&shop, "tank/new", "new filesystem", &part_of(&whole, 50));
    breaks_off(&shop, "tank/other", "new filesystem", &part_of(&whole, 50));
    shop.succeed("zfs create tank/below");
    let outcome = receive(&shop, "-s -d tank/below", &part_of(&whole, 50));
    assert!(outcome.err.contains("Partially received snapshot is saved."), "{outcome:?}");
    let mounted = shop.succeed("zfs list -Ho name,mounted -r tank/below");
    assert_eq!(mounted, "tank/below\tyes\ntank/below/a\tyes\ntank/below/a/b\tno\n");
    shop.succeed("zfs destroy tank/new");
    shop.succeed("zfs receive -A tank/other");
    shop.succeed("zfs destroy -r tank/copy");
    shop.succeed("zfs destroy -r tank/below");
    assert_eq!(shop.succeed("zfs list -Hro name tank"), "tank\n");
    assert_eq!(
        shop.refuse("zfs receive -A tank/new", 1),
        "cannot open 'tank/new': dataset does not exist\n"
    );
    receives(&shop, "tank/copy", &whole);
    exported_and_judged(&shop);
}

#[test]
fn whoever_goes_away_leaves_what_can_be_resumed() {
    let shop = pools();
    let at = from(&shop);
    fill(&at, 40);
    shop.succeed("zfs snapshot from/a/b@s1");
    let mut stream = sent(&shop, "from/a/b@s1");
    let mut half = vec![0; 3 << 20];
    stream.read_exact(&mut half).unwrap();
    let mut receiver = command(&shop, "zfs receive -sv tank/copy");
    receiver.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut receiver = receiver.spawn().unwrap();
    receiver.stdin.as_mut().unwrap().write_all(&half).unwrap();
    let mut said = [0; 10];
    receiver.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let running = receive(&shop, "-sF tank/copy", &stream);
    assert!(running.err.contains("contains partially-complete state"), "{running:?}");
    let abandoned = shop.refuse("zfs receive -A tank/copy", 1);
    assert_eq!(abandoned, "cannot destroy 'tank/copy': dataset is busy\n");
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    // The next part arrives as soon as the receive has ended; then every process is killed.
    let rest = || sent(&shop, &format!("-t {}", token(&shop, "tank/copy")));
    let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
    loop {
        let part = receive(&shop, "-s tank/copy", &part_of(&rest(), 40));
        if part.err.contains("is saved") {
            break;
        }
        pause();
    }
    let before = token(&shop, "tank/copy");
    let mut stream = rest();
    let mut half = vec![0; 1 << 20];
    stream.read_exact(&mut half).unwrap();
    let mut receiver = command(&shop, "zfs receive -s tank/copy");
    receiver.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut receiver = receiver.spawn().unwrap();
    receiver.stdin.as_mut().unwrap().write_all(&half).unwrap();
    while token(&shop, "tank/copy") == before {
        shop.succeed("zpool sync tank");
        pause();
    }
    kill_server(&shop.rzfs, "tank");
    assert_eq!(receiver.wait().unwrap().code(), Some(1));
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_ne!(token(&shop, "tank/copy"), before);
    receives(&shop, "tank/copy", &rest());
    assert_eq!(tree(&shop.root().join("copy")), tree(&at));
    exported_and_judged(&shop);
}

#[test]
fn tokens_of_anybody_are_judged() {
    let shop = pools();
    fs::write(from(&shop).join("one"), "1").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let full = sent(&shop, "from/a/b@s1");
    let token = breaks_off(&shop, "tank/copy", "new filesystem", &part_of(&full, 90));
    for (line, said) in [
        ("-t x".to_owned(), "resume token is corrupt (invalid format)"),
        (format!("-t {token}0"), "resume token is corrupt (payload is not hex-encoded)"),
        (token.replacen("1-", "-t 1-1", 1), "resume token is corrupt (incorrect checksum)"),
        (token.replacen("1-", "-t 2-", 1), "resume token is corrupt (invalid version 2)"),
    ] {
        let refused = shop.refuse(&format!("zfs send -n {line}"), 255);
        assert_eq!(refused, format!("cannot resume send: {said}\n"));
    }
    let flags = shop.refuse(&format!("zfs send -n -i @s0 -t {token}"), 2);
    assert!(flags.starts_with("invalid flags combined with -t\n"), "{flags}");
    let many = shop.refuse(&format!("zfs send -n -t {token} from/a/b@s1"), 2);
    assert!(many.starts_with("too many arguments\n"), "{many}");
    let option = shop.refuse("zfs receive -A -F -n tank/copy", 2);
    assert!(option.starts_with("invalid option\n"), "{option}");
    // Another snapshot has its name now.
    shop.succeed("zfs destroy from/a/b@s1");
    shop.succeed("zfs snapshot from/a/b@s1");
    assert_eq!(
        shop.refuse(&format!("zfs send -n -t {token}"), 255),
        "cannot resume send: 'from/a/b@s1' is no longer the same snapshot used in the initial send\n"
    );
    exported_and_judged(&shop);
}

/// A receiver with a partial snapshot can send it on; the rest comes from a complete sender.
#[test]
fn what_has_arrived_is_sent_on_and_resumed_there() {
    let shop = pools();
    let at = from(&shop);
    fill(&at, 50);
    shop.succeed("zfs snapshot from/a/b@s1");
    let full = sent(&shop, "from/a/b@s1");
    let before = tree(&at);
    fs::remove_file(at.join("deep/noise 3")).unwrap();
    fs::write(at.join("deep/noise 5"), noise(99, 900_000)).unwrap();
    fill(&at.join("more"), 60);
    shop.succeed("zfs snapshot from/a/b@s2");
    let increment = sent(&shop, "-i @s1 from/a/b@s2");
    assert_eq!(shop.refuse("zfs send -nS tank", 1).lines().count(), 1);
    let usage = shop.refuse("zfs send -nS tank@x", 2);
    assert!(usage.starts_with("saved send must specify the dataset"), "{usage}");
    for (stream, what, now) in
        [(&full, "new filesystem", &before), (&increment, "incremental", &tree(&at))]
    {
        let first = breaks_off(&shop, "-o atime=off tank/copy", what, &part_of(stream, 60));
        let told = shop.succeed("zfs send -nPS tank/copy");
        let saved = sent(&shop, "-S tank/copy");
        let length = saved.metadata().unwrap().len();
        assert!(told.ends_with(&format!("size\t{length}\n")), "{told}");
        let second = breaks_off(&shop, "-o atime=off tank/second", what, &saved);
        for (copy, token) in [("copy", first), ("second", second)] {
            let rest = sent(&shop, &format!("-t {token}"));
            let length = |stream: &File| stream.metadata().unwrap().len();
            let (missing, whole) = (length(&rest), length(stream));
            assert!(missing * 10 < whole * 6, "{copy}: {missing} of {whole}");
            receives(&shop, &format!("tank/{copy}"), &rest);
            assert_eq!(tree(&shop.root().join(copy)), *now, "{copy}");
        }
    }
    exported_and_judged(&shop);
}

/// A partly received file keeps its block size.
#[test]
fn the_rest_of_a_stream_has_blocks_as_its_beginning() {
    let shop = pools();
    let at = from(&shop);
    shop.succeed("zfs set recordsize=1M compression=off from/a/b");
    fs::write(at.join("large"), noise(1, 24 << 20)).unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    for (name, first, then) in [("plain", "", "-L "), ("large", "-L ", "")] {
        let target = format!("tank/{name}");
        let stream = sent(&shop, &format!("{first}from/a/b@s1"));
        let token = breaks_off(&shop, &target, "new filesystem", &part_of(&stream, 50));
        receives(&shop, &format!("-s {target}"), &sent(&shop, &format!("{then}-t {token}")));
        assert_eq!(tree(&shop.root().join(name)), tree(&at), "{name}");
        shop.succeed(&format!("zfs destroy -r {target}"));
    }
    exported_and_judged(&shop);
}

/// What an interrupted package left is not mistaken for a local dataset.
#[test]
fn what_is_kept_of_a_tree_is_not_destroyed_as_something_else() {
    let shop = pools();
    let at = from(&shop);
    shop.succeed("zfs snapshot -r from/a@s1");
    receives(&shop, "tank/tree", &sent(&shop, "-R from/a@s1"));
    shop.succeed("zfs create from/a/new");
    fs::write(at.join("../new/noise"), noise(7, 8 << 20)).unwrap();
    shop.succeed("zfs snapshot -r from/a@s2");
    let news = sent(&shop, "-R -I @s1 from/a@s2");
    let cut = receive(&shop, "-sF tank/tree", &part_of(&news, 60));
    assert_eq!(cut.status, 1, "{cut:?}");
    let token = token(&shop, "tank/tree/new");
    assert!(token.starts_with("1-"), "{token} {cut:?}");
    receives(&shop, "-s tank/tree/new", &sent(&shop, &format!("-t {token}")));
    assert_eq!(tree(&shop.root().join("tree/new")), tree(&at.join("../new")));
    exported_and_judged(&shop);
}
