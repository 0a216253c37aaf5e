//! `zfs receive` into pools that are in use.

use crate::harness::Outcome;
use crate::workshop::Workshop;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Two pools: `from`, which sends, and `tank`.
pub(crate) fn pools() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 256M -R ROOT tank A");
    shop.succeed("zpool create --size 256M -R ROOT -O compression=lz4 from B");
    shop.succeed("zfs create -p from/a/b");
    shop
}

pub(crate) fn from(shop: &Workshop) -> PathBuf {
    shop.rzfs.path("root").join("from/a/b")
}

pub(crate) fn command(shop: &Workshop, line: &str) -> Command {
    let mut command = shop.rzfs.command();
    command.args(line.split(' '));
    command
}

/// A stream, as a file.
pub(crate) fn sent(shop: &Workshop, line: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let to = file.try_clone().unwrap();
    let output = command(shop, &format!("zfs send {line}")).stdout(to).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    file.rewind().unwrap();
    file
}

/// A stream of these bytes, as a file.
pub(crate) fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// Runs `zfs receive` on a stream from its start.
pub(crate) fn receive(shop: &Workshop, line: &str, stream: &File) -> Outcome {
    let mut stream = stream.try_clone().unwrap();
    stream.rewind().unwrap();
    let output = command(shop, &format!("zfs receive {line}")).stdin(stream).output().unwrap();
    Outcome {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn receives(shop: &Workshop, line: &str, stream: &File) -> String {
    let outcome = receive(shop, line, stream);
    assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
    outcome.out
}

/// The tree below a directory: the names, modes, times and contents.
pub(crate) fn tree(directory: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let (path, status) = (entry.path(), entry.metadata().unwrap());
            let contents = match status.is_dir() {
                true => Vec::new(),
                false => fs::read(&path).unwrap(),
            };
            let name = path.strip_prefix(directory).unwrap().to_owned();
            found.insert(name, (status.mode(), status.mtime(), contents));
            if status.is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

pub(crate) fn exported_and_judged(shop: &Workshop) {
    shop.succeed("zpool export from");
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn file_systems_are_received_and_go_on_with_increments_while_they_are_used() {
    let shop = pools();
    let at = from(&shop);
    fs::create_dir(at.join("directory")).unwrap();
    fs::write(at.join("directory/large"), "words and words ".repeat(100_000)).unwrap();
    fs::write(at.join("small"), "small").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let first = tree(&at);
    let full = sent(&shop, "-c from/a/b@s1");
    // Reading changes access times, and so the file system.
    let said = receives(&shop, "-v -o atime=off tank/copy", &full);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "receiving full stream of from/a/b@s1 into tank/copy@s1");
    assert!(lines[1].starts_with("received ") && lines[1].ends_with("/sec)"), "{said}");
    let copy = shop.root().join("copy");
    assert_eq!(tree(&copy), first, "it is mounted");
    let list = "zfs list -Hpo name,guid -t snapshot";
    let guid = |name: &str| {
        let listed = shop.succeed(&format!("{list} {name}"));
        listed.trim().rsplit('\t').next().unwrap().to_owned()
    };
    assert_eq!(guid("tank/copy@s1"), guid("from/a/b@s1"));

    fs::write(at.join("directory/large"), "other words ".repeat(10_000)).unwrap();
    fs::remove_file(at.join("small")).unwrap();
    fs::write(at.join("new"), "new").unwrap();
    shop.succeed("zfs snapshot from/a/b@s2");
    let increment = sent(&shop, "-i @s1 from/a/b@s2");
    let open = File::open(copy.join("directory")).unwrap();
    let said = receives(&shop, "-n tank/copy", &increment);
    assert_eq!(said, "would receive incremental stream of from/a/b@s2 into tank/copy@s2\n");
    assert_eq!(tree(&copy), first, "nothing is received");
    assert_eq!(receives(&shop, "tank/copy", &increment), "");
    assert!(fs::exists(format!("/proc/self/fd/{}/large", open.as_raw_fd())).unwrap());
    assert_eq!(tree(&copy), tree(&at));
    assert_eq!(tree(&copy.join(".zfs/snapshot/s1")), first);
    drop(open);
    // And the file system is usable.
    fs::write(copy.join("of its own"), "changed here").unwrap();
    shop.succeed("zpool sync tank");
    let history = shop.succeed("zpool history tank");
    assert!(history.contains("zfs receive -v -o atime=off tank/copy\n"), "{history}");
    exported_and_judged(&shop);
}

#[test]
fn what_does_not_fit_is_refused_in_the_words_that_scripts_know() {
    let shop = pools();
    let at = from(&shop);
    fs::write(at.join("one"), "1").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    fs::write(at.join("two"), "2").unwrap();
    shop.succeed("zfs snapshot from/a/b@s2");
    fs::write(at.join("three"), "3").unwrap();
    shop.succeed("zfs snapshot from/a/b@s3");
    let [full, second, third] =
        ["from/a/b@s1", "-i @s1 from/a/b@s2", "-i @s2 from/a/b@s3"].map(|one| sent(&shop, one));
    let new = "cannot receive new filesystem stream: ";
    let incremental = "cannot receive incremental stream: ";
    let refused = |line: &str, stream: &File, why: &str| {
        let outcome = receive(&shop, line, stream);
        let told = outcome.err.starts_with(why) && (outcome.err.lines().count() < 3);
        assert!(outcome.status == 1 && told, "{line}: {outcome:?}");
        assert_eq!(outcome.out, "", "{line}");
    };
    refused("nobody/a", &full, "cannot open 'nobody': no such pool\n");
    refused("tank/no/parent", &full, new);
    refused(
        "tank/copy",
        &second,
        &format!("{incremental}destination 'tank/copy' does not exist\n"),
    );
    receives(&shop, "tank/copy", &full);
    refused(
        "tank/copy",
        &full,
        &format!("{new}destination 'tank/copy' exists\nmust specify -F to overwrite it\n"),
    );
    refused(
        "-F tank/copy",
        &full,
        &format!(
            "{new}destination has snapshots (eg. tank/copy@s1)\nmust destroy them to overwrite it\n"
        ),
    );
    let no_source = "most recent snapshot of tank/copy does not\nmatch incremental source\n";
    refused("tank/copy", &third, &format!("{incremental}{no_source}"));
    let copy = shop.root().join("copy");
    fs::write(copy.join("local"), "local").unwrap();
    let modified = "destination tank/copy has been modified\nsince most recent snapshot\n";
    refused("tank/copy", &second, &format!("{incremental}{modified}"));
    assert_eq!(fs::read(copy.join("local")).unwrap(), b"local");
    receives(&shop, "-F tank/copy", &second);
    assert!(!copy.join("local").exists() && copy.join("two").exists());
    let known = receives(&shop, "-v tank/copy", &second);
    assert_eq!(known, "snap tank/copy@s2 already exists; ignoring\n");
    // Invalid or incomplete streams.
    let broken = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    };
    let mut whole = Vec::new();
    let mut stream = third.try_clone().unwrap();
    stream.rewind().unwrap();
    stream.read_to_end(&mut whole).unwrap();
    refused("tank/copy", &broken(b""), "cannot receive: failed to read from stream\n");
    let magic = "cannot receive: invalid stream (bad magic number)\n";
    for nonsense in [&[b'x'; 1000][..], b"garbage\n"] {
        refused("tank/copy", &broken(nonsense), magic);
    }
    let cut = broken(&whole[..whole.len() - 400]);
    refused("tank/copy", &cut, &format!("{incremental}incomplete stream\n"));
    let last = whole.len() - 700;
    whole[last] ^= 1;
    refused("tank/copy", &broken(&whole), &format!("{incremental}checksum mismatch\n"));
    assert!(!copy.join("three").exists());
    receives(&shop, "tank/copy", &third);
    assert!(copy.join("three").exists());
    assert_eq!(
        shop.refuse("zfs receive -c tank/x", 2),
        "'zfs receive -c' of OpenZFS is not supported by this software yet\n"
    );
    exported_and_judged(&shop);
}

#[test]
fn targets_are_named_in_four_ways_and_get_properties() {
    let shop = pools();
    fs::write(from(&shop).join("one"), "1").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let full = sent(&shop, "from/a/b@s1");
    shop.succeed("zfs create tank/below");
    receives(&shop, "tank/as@other", &full);
    receives(&shop, "-d tank/below", &full);
    receives(&shop, "-e tank/below", &full);
    receives(&shop, "-u -o compression=gzip -o a:b=c -x mountpoint tank/quiet", &full);
    let listed = shop.succeed("zfs list -Hro name,mounted tank");
    let listed: Vec<_> = listed.lines().map(|line| line.replace('\t', " ")).collect();
    assert_eq!(
        listed,
        [
            "tank yes",
            "tank/as yes",
            "tank/below yes",
            "tank/below/a yes",
            "tank/below/a/b yes",
            "tank/below/b yes",
            "tank/quiet no",
        ]
    );
    let snapshots = shop.succeed("zfs list -Ht snapshot -o name");
    assert!(snapshots.contains("tank/as@other\n") && snapshots.contains("tank/below/a/b@s1\n"));
    let got = shop.succeed("zfs get -Hpo value,source compression,a:b tank/quiet");
    assert_eq!(got, "gzip\tlocal\nc\tlocal\n");
    let mut cut = tempfile::tempfile().unwrap();
    let mut bytes = Vec::new();
    full.try_clone().unwrap().rewind().unwrap();
    full.try_clone().unwrap().read_to_end(&mut bytes).unwrap();
    cut.write_all(&bytes[..bytes.len() - 400]).unwrap();
    shop.succeed("zfs create tank/cut");
    assert_eq!(receive(&shop, "-d tank/cut", &cut).status, 1);
    assert_eq!(shop.succeed("zfs list -Hro name tank/cut"), "tank/cut\n", "nothing is left");
    shop.succeed("zfs destroy tank/cut");
    let none = receive(&shop, "-d tank/none", &full);
    assert_eq!(none.err, "cannot receive: specified fs (tank/none) does not exist\n");

    // A renamed snapshot is found.
    shop.succeed("zfs rename tank/below/b tank/below/renamed");
    fs::write(from(&shop).join("two"), "2").unwrap();
    shop.succeed("zfs snapshot from/a/b@s2");
    let increment = sent(&shop, "-i @s1 from/a/b@s2");
    let said = receives(&shop, "-v -e -o compression=off tank/below", &increment);
    let first = "receiving incremental stream of from/a/b@s2 into tank/below/";
    assert!(said.starts_with(first), "{said}");
    receives(&shop, "-u tank/quiet", &increment);
    // A clone is received below its origin, or where an option names the origin.
    shop.succeed("zfs clone from/a/b@s2 from/clone");
    fs::write(shop.rzfs.path("root").join("from/clone/three"), "3").unwrap();
    shop.succeed("zfs snapshot from/clone@c");
    let clone = sent(&shop, "-i from/a/b@s2 from/clone@c");
    let missing = receive(&shop, "tank/orphan", &sent(&shop, "-i from/a/b@s1 from/a/b@s2"));
    assert!(missing.err.ends_with("destination 'tank/orphan' does not exist\n"), "{missing:?}");
    receives(&shop, "tank/clone", &clone);
    // The origin is found by guid, not by name.
    shop.succeed("zfs create tank/clones");
    for stream in ["from/a/b@s1", "-i @s1 from/a/b@s2"] {
        receives(&shop, "tank/clones/origin", &sent(&shop, stream));
    }
    let said = receives(&shop, "-v -F -e tank/clones", &clone);
    assert!(said.contains(" into tank/clones/clone@c\n"), "{said}");
    receives(&shop, "-o origin=tank/quiet@s2 tank/other", &clone);
    let origin = shop.succeed("zfs get -Hpo value origin tank/other");
    assert_eq!(origin, "tank/quiet@s2\n");
    for name in ["clone", "other"] {
        assert_eq!(fs::read(shop.root().join(name).join("three")).unwrap(), b"3", "{name}");
    }
    exported_and_judged(&shop);
}

#[test]
fn all_snapshots_between_two_are_received_and_those_that_are_there_are_passed_over() {
    let shop = pools();
    let at = from(&shop);
    for number in 1..=4 {
        fs::write(at.join(format!("file{number}")), "words ".repeat(number * 5000)).unwrap();
        shop.succeed(&format!("zfs snapshot from/a/b@s{number}"));
    }
    receives(&shop, "-o atime=off tank/copy", &sent(&shop, "from/a/b@s1"));
    let few = sent(&shop, "-I @s1 from/a/b@s2");
    let all = sent(&shop, "-I s1 from/a/b@s4");
    let would = receives(&shop, "-n tank/copy", &all);
    let line = |n| format!("would receive incremental stream of from/a/b@s{n} into tank/copy@s{n}");
    assert_eq!(would.lines().map(str::to_owned).collect::<Vec<_>>(), [line(2), line(3), line(4)]);
    receives(&shop, "tank/copy", &few);
    let said = receives(&shop, "-v tank/copy", &all);
    let lines: Vec<_> = said.lines().filter(|line| !line.starts_with("received ")).collect();
    assert_eq!(
        lines,
        [
            "snap tank/copy@s2 already exists; ignoring",
            "receiving incremental stream of from/a/b@s3 into tank/copy@s3",
            "receiving incremental stream of from/a/b@s4 into tank/copy@s4",
        ]
    );
    let copy = shop.root().join("copy");
    assert_eq!(tree(&copy), tree(&at));
    for name in ["s2", "s3", "s4"] {
        let snapshot = Path::new(".zfs/snapshot").join(name);
        assert_eq!(tree(&copy.join(&snapshot)), tree(&at.join(&snapshot)), "{name}");
    }
    let sizes = shop.succeed("zfs send -nP -I @s2 from/a/b@s4");
    let lines: Vec<Vec<&str>> = sizes.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[0][..3], ["incremental", "s2", "from/a/b@s3"]);
    assert_eq!(lines[1][..3], ["incremental", "s3", "from/a/b@s4"]);
    let total: u64 = lines[2][1].parse().unwrap();
    // Plus the head and the end of the package.
    let len = sent(&shop, "-I @s2 from/a/b@s4").metadata().unwrap().len();
    assert_eq!(total + 3 * 312, len);
    let named = receive(&shop, "tank/other@name", &all);
    let why = "cannot receive: cannot specify snapshot name for multi-snapshot stream\n";
    assert_eq!((named.status, named.err.as_str()), (1, why));
    // A package that is cut off is received up to the last whole snapshot.
    receives(&shop, "-o atime=off tank/cut", &sent(&shop, "from/a/b@s1"));
    let mut bytes = Vec::new();
    let mut stream = all.try_clone().unwrap();
    stream.rewind().unwrap();
    stream.read_to_end(&mut bytes).unwrap();
    let mut cut = tempfile::tempfile().unwrap();
    cut.write_all(&bytes[..bytes.len() - 1000]).unwrap();
    let outcome = receive(&shop, "tank/cut", &cut);
    let why = "cannot receive incremental stream: incomplete stream\n";
    assert!(outcome.status == 1 && outcome.err.starts_with(why), "{outcome:?}");
    let names = shop.succeed("zfs list -Hro name -t snapshot tank/cut");
    assert_eq!(names, "tank/cut@s1\ntank/cut@s2\ntank/cut@s3\n");
    exported_and_judged(&shop);
}

/// The contents are mounted as the properties allow, or not at all.
#[test]
fn properties_of_a_target_come_before_the_contents() {
    let shop = pools();
    fs::write(from(&shop).join("one"), "1").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    fs::write(from(&shop).join("two"), "2").unwrap();
    shop.succeed("zfs snapshot from/a/b@s2");
    receives(&shop, "-o atime=off tank/copy", &sent(&shop, "from/a/b@s1"));
    let increment = sent(&shop, "-i @s1 from/a/b@s2");
    for wrong in ["compression=bogus", "recordsize=3", "version=4"] {
        let outcome = receive(&shop, &format!("-o setuid=off -o {wrong} tank/copy"), &increment);
        assert_eq!(outcome.status, 1, "{wrong}: {outcome:?}");
    }
    let names = shop.succeed("zfs list -Hro name -t snapshot tank");
    assert_eq!(names, "tank/copy@s1\n", "nothing was received");
    receives(&shop, "-o setuid=off tank/copy", &increment);
    assert_eq!(shop.succeed("zfs get -Ho value,source setuid tank/copy"), "off\tlocal\n");
    assert_eq!(tree(&shop.root().join("copy")), tree(&from(&shop)));
    exported_and_judged(&shop);
}

/// A target renamed during the receive gets everything that it should.
#[test]
fn a_target_that_is_renamed_meanwhile_is_mounted_by_its_new_name() {
    let shop = pools();
    fs::write(from(&shop).join("large"), "words and words ".repeat(200_000)).unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let mut whole = Vec::new();
    sent(&shop, "from/a/b@s1").read_to_end(&mut whole).unwrap();
    let (half, rest) = whole.split_at(whole.len() / 2);
    let mut command = command(&shop, "zfs receive -v tank/copy");
    let mut receive = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    receive.stdin.as_mut().unwrap().write_all(half).unwrap();
    receive.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    while shop.run("zfs rename tank/copy tank/other").status != 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    receive.stdin.take().unwrap().write_all(rest).unwrap();
    let output = receive.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(shop.succeed("zfs list -Hro name,mounted tank/other"), "tank/other\tyes\n");
    assert_eq!(tree(&shop.root().join("other")), tree(&from(&shop)));
    exported_and_judged(&shop);
}

/// A sender that exits or stalls leaves nothing behind, and does not block commands with force.
#[test]
fn a_stream_without_an_end_leaves_nothing() {
    let shop = pools();
    fs::write(from(&shop).join("large"), "words and words ".repeat(200_000)).unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let mut stream = sent(&shop, "from/a/b@s1");
    let mut half = vec![0; 1 << 20];
    stream.read_exact(&mut half).unwrap();
    let begin = || {
        let mut command = command(&shop, "zfs receive -v tank/copy");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut receive = command.spawn().unwrap();
        receive.stdin.as_mut().unwrap().write_all(&half).unwrap();
        // The receive has started.
        let mut said = [0; 10];
        receive.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"receiving ");
        receive
    };
    let names = || shop.succeed("zfs list -Hro name tank");
    let wait_for_none = || {
        while names() != "tank\n" {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    let mut killed = begin();
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_for_none();

    let mut slow = begin();
    let busy = shop.refuse("zpool export tank", 1);
    assert!(busy.starts_with("cannot export 'tank': pool is busy\n"), "{busy}");
    let second = receive(&shop, "tank/copy", &stream);
    assert_eq!(second.status, 1, "one at a time: {second:?}");
    fs::write(shop.root().join("meanwhile"), "written").unwrap();
    shop.succeed("zfs snapshot tank@meanwhile");
    drop(slow.stdin.take());
    let output = slow.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("cannot receive new filesystem stream: incomplete stream\n"),
        "{said}"
    );
    wait_for_none();

    let stuck = begin();
    shop.succeed("zpool export -f tank");
    let output = stuck.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(names(), "tank\n");
    receives(&shop, "tank/copy", &stream);
    assert_eq!(tree(&shop.root().join("copy")), tree(&from(&shop)));
    exported_and_judged(&shop);
}

/// A sender may wait for the result of the receive before it closes the pipe.
#[test]
fn a_stream_that_has_come_to_its_end_is_received_while_its_sender_waits() {
    let shop = pools();
    fs::write(from(&shop).join("one"), "1").unwrap();
    shop.succeed("zfs snapshot from/a/b@s1");
    let mut stream = sent(&shop, "from/a/b@s1");
    let mut command = command(&shop, "zfs receive tank/copy");
    let mut receive = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = receive.stdin.take().unwrap();
    std::io::copy(&mut stream, &mut pipe).unwrap();
    pipe.flush().unwrap();
    assert!(receive.wait().unwrap().success());
    drop(pipe);
    assert_eq!(tree(&shop.root().join("copy")), tree(&from(&shop)));
    exported_and_judged(&shop);
}

#[test]
fn a_terminal_gives_no_stream() {
    let shop = pools();
    let terminal = File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    let output = command(&shop, "zfs receive tank/x").stdin(terminal).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.\n"
    );
}
