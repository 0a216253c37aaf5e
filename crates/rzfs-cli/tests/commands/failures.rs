//! Errors, their messages and exit statuses.

use crate::harness::{Rzfs, outcome, reference, wait_until};
use crate::workshop::Workshop;
use rustix::process::{Pid, Signal, kill_process};
use rzfs_server::protocol::{Answer, Identity, MAX_REQUEST, Request, receive, send};
use rzfs_testkit::unpack_sample;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::{Duration, Instant};

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn what_has_no_pool_is_not_mounted() {
    let rzfs = Rzfs::new();
    let (missing, empty, directory) = (rzfs.path("gone.img"), rzfs.path("empty"), rzfs.path("m"));
    std::fs::write(&empty, vec![0; 1 << 20]).unwrap();
    let gone = rzfs.run(["mount".as_ref(), missing.as_os_str(), directory.as_os_str()]);
    assert_eq!(gone.status, 1);
    assert!(gone.err.contains("gone.img") && gone.err.contains("No such file"), "{gone:?}");
    let none = rzfs.run(["mount".as_ref(), empty.as_os_str(), directory.as_os_str()]);
    assert_eq!(none.status, 1);
    assert_eq!(none.err, format!("no pool was found on {}\n", empty.display()));
    assert!(!directory.exists(), "nothing was made for it");
}

#[test]
fn signals_that_were_blocked_end_the_process_of_a_pool() {
    let shop = Workshop::new();
    let image = shop.image("A");
    let mut command = Command::new("env");
    command.args(["--block-signal=TERM", "--block-signal=INT", "--block-signal=HUP"]);
    command
        .arg(env!("CARGO_BIN_EXE_rzfs"))
        .args(["zpool", "create", "--size", "96M", "-m", "none"]);
    command.args(["tank", &image]);
    let made = outcome(&mut shop.rzfs.prepared(command));
    assert_eq!(made.status, 0, "{made:?}");
    kill_process(Pid::from_raw(shop.rzfs.daemon("tank") as i32).unwrap(), Signal::TERM).unwrap();
    wait_until("the pool is let go of", || {
        shop.rzfs.control().mounted().unwrap().clients.is_empty()
    });
    shop.judge();
}

#[test]
fn one_of_several_pools_has_to_be_named() {
    let rzfs = Rzfs::new();
    let (_, first) = reference("g01-default");
    let (_, second) = reference("g15-removed");
    let images = first.iter().chain(&second).map(|path| path.as_os_str());
    let directory = rzfs.path("m");
    let words = ["mount".as_ref()].into_iter().chain(images).chain([directory.as_os_str()]);
    let several = rzfs.run(words.clone());
    assert_eq!(several.status, 1);
    assert_eq!(several.err, "several pools were found, name one: g01, g15\n");
    let other = rzfs.run(words.chain(["-p".as_ref(), "g99".as_ref()]));
    assert_eq!(other.status, 1);
    assert_eq!(other.err, "cannot import 'g99': no such pool available\n");
}

#[test]
fn pools_of_other_systems_need_force() {
    let rzfs = Rzfs::new();
    let (_, images) = reference("g24-zil");
    let directory = rzfs.path("m");
    let words = images.iter().map(|path| path.as_os_str()).chain([directory.as_os_str()]);
    let words = ["-o".as_ref(), "ro".as_ref()].into_iter().chain(words);
    let refused = rzfs.run(["mount".as_ref()].into_iter().chain(words.clone()));
    assert_eq!(refused.status, 1);
    let err = lines(&refused.err);
    assert_eq!(err[0], "cannot import 'g24': pool was previously in use from another system.");
    assert!(err[1].starts_with("Last accessed by ") && err[1].contains("(hostid="), "{err:?}");
    assert_eq!(err[2], "The pool can be imported, use 'rzfs mount -f' to import the pool.");
    let warnings = rzfs.mount(["-f".as_ref()].into_iter().chain(words));
    assert!(warnings.contains("intent log was not replayed"), "{warnings}");
}

#[test]
fn keys_that_do_not_fit_are_errors() {
    let rzfs = Rzfs::new();
    let (image, key, directory) = (rzfs.path("garden.img"), rzfs.path("key"), rzfs.path("m"));
    unpack_sample("garden", &image).unwrap();
    std::fs::write(&key, "let me in please").unwrap();
    let mount = |key: &str| {
        rzfs.run([
            "mount",
            "-o",
            "ro",
            "-k",
            key,
            image.to_str().unwrap(),
            directory.to_str().unwrap(),
        ])
    };
    let key = key.to_str().unwrap();
    let named = mount(&format!("garden/secret={key}"));
    assert_eq!(named.status, 1);
    assert_eq!(named.err, "Key load error: Incorrect key provided for 'garden/secret'.\n");
    let any = mount(key);
    assert_eq!(any.status, 1);
    assert!(any.err.contains("is not the key of any encryption root of 'garden'"), "{any:?}");
    let unknown = mount(&format!("garden/none={key}"));
    assert_eq!(unknown.status, 1);
    assert_eq!(unknown.err, "cannot open 'garden/none': dataset does not exist\n");
    let unencrypted = mount(&format!("garden/plan={key}"));
    assert_eq!(unencrypted.err, "Key load error: 'garden/plan' is not encrypted.\n");
    assert_eq!(mount("/nonexistent/key").status, 1);
}

#[test]
fn mistakes_in_the_command_line_have_status_2() {
    let rzfs = Rzfs::new();
    for line in [
        "mount",
        "mount --nonsense x",
        "mount -o nonsense x y",
        "mount -o arc_max=much x y",
        "mount -o snapshot=tank x y",
        "umount",
        "nonsense",
        "zpool nonsense",
        "zfs list -Z",
        "zfs get",
    ] {
        let outcome = rzfs.run(line.split(' '));
        assert_eq!(outcome.status, 2, "{line}: {outcome:?}");
        assert!(!outcome.err.is_empty(), "{line}");
    }
}

#[test]
fn the_usage_offers_what_there_is() {
    let rzfs = Rzfs::new();
    let import = rzfs.run(["zpool", "import", "-Z"]);
    assert!(import.err.contains("[-d dir | -s] [-DflmN] [-R root]"), "{import:?}");
    let status = rzfs.run(["zpool", "status", "-Z"]);
    assert!(status.err.contains("usage:") && !status.err.contains("script"), "{status:?}");
}

#[test]
fn an_interval_of_nothing_is_no_name() {
    let rzfs = Rzfs::new();
    for line in ["zpool list tank 0", "zpool status tank 0", "zpool wait tank 0"] {
        let refused = rzfs.run(line.split(' '));
        assert_eq!(refused.status, 2, "{line}: {refused:?}");
        assert!(
            refused.err.starts_with("interval cannot be zero\nusage:\n"),
            "{line}: {refused:?}"
        );
    }
}

#[test]
fn what_is_not_mounted_cannot_be_unmounted() {
    let rzfs = Rzfs::new();
    for target in ["tank", "/", "/nonexistent"] {
        let outcome = rzfs.run(["umount", target]);
        assert_eq!(outcome.status, 1);
        assert_eq!(outcome.err, format!("cannot unmount '{target}': not currently mounted\n"));
    }
}

#[test]
fn without_pools_commands_say_so() {
    let rzfs = Rzfs::new();
    for (line, words) in [
        ("zpool list", "no pools available\n"),
        ("zpool status", "no pools available\n"),
        ("zpool list -H", ""),
        ("zfs list", "no datasets available\n"),
        ("zfs list -H", ""),
        ("zfs mount", ""),
    ] {
        let outcome = rzfs.run(line.split(' '));
        assert_eq!((outcome.status, outcome.out + &outcome.err), (0, words.to_owned()), "{line}");
    }
    assert_eq!(rzfs.run(["zfs", "list", "-j"]).err, "");
    let empty = rzfs.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let outcome = rzfs.run(["zpool", "import", "-d", empty.to_str().unwrap()]);
    let told = (outcome.status, &*outcome.out, &*outcome.err);
    assert_eq!(told, (0, "", "no pools available to import\n"));
}

#[test]
fn names_that_no_pool_has_are_an_error_and_not_waited_for() {
    let rzfs = Rzfs::new();
    for words in [
        &["zpool", "status", "nosuch", "1"] as &[_],
        &["zpool", "list", "nosuch", "1"],
        &["zpool", "list", "nosuch", "neither"],
        &["zpool", "list", "nosuch"],
        &["zpool", "get", "health", "nosuch"],
    ] {
        let outcome = rzfs.run(words);
        assert_eq!(outcome.status, 1, "{words:?}: {outcome:?}");
        assert!(outcome.err.contains("nosuch"), "{words:?}: {outcome:?}");
    }
}

#[test]
fn pools_with_the_longest_names_are_served() {
    let shop = Workshop::new();
    let [one, other] = ["a", "b"].map(|end| "n".repeat(238) + end);
    shop.succeed(&format!("zpool create --size 96M -R ROOT {one} A"));
    shop.succeed(&format!("zpool create --size 96M -R ROOT {other} B"));
    assert_eq!(shop.succeed("zpool list -Ho name"), format!("{one}\n{other}\n"));
    assert_eq!(shop.succeed(&format!("zpool list -Ho name {other}")), format!("{other}\n"));
    shop.succeed(&format!("zpool export {one}"));
    let longer = "n".repeat(240);
    for line in [
        format!("zpool create --size 96M -R ROOT {longer} C"),
        format!("zpool import -d IMAGES -R ROOT {one} {longer}"),
    ] {
        let refused = shop.refuse(&line, 1);
        assert!(refused.contains(&format!("'{longer}': name is too long\n")), "{refused}");
    }
    shop.succeed(&format!("zpool import -d IMAGES -R ROOT {one}"));
    let taken = shop.refuse(&format!("zpool create --size 96M {one} C"), 1);
    assert!(taken.ends_with("pool already exists\n"), "{taken}");
    shop.succeed(&format!("zpool export {one}"));
    shop.succeed(&format!("zpool export {other}"));
}

#[test]
fn pools_that_do_not_answer_keep_nobody_for_long() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let directory = shop.rzfs.control();
    let silent = ["mute", "deaf", "dumb"].map(|name| {
        let listener = UnixListener::bind(directory.socket(name)).unwrap();
        // With this backlog, every connection after the first has to wait.
        rustix::net::listen(&listener, 0).unwrap();
        let waiting = UnixStream::connect(directory.socket(name)).unwrap();
        (listener, waiting)
    });
    let start = Instant::now();
    let mut list = shop.rzfs.prepared(Command::new("timeout"));
    list.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_rzfs"), "zpool", "list", "-Ho", "name"]);
    let listed = outcome(&mut list);
    assert_eq!((listed.status, listed.out.as_str()), (1, "tank\n"), "{listed:?}");
    let mut told: Vec<_> = listed.err.lines().collect();
    told.sort_unstable();
    let expected = ["deaf", "dumb", "mute"]
        .map(|name| format!("pool '{name}' does not answer: it is left out"));
    assert_eq!(told, expected);
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    // Not all of them can be exported, which is reported; the one that responds is exported.
    let exported = shop.run("zpool export -a");
    assert_eq!(exported.status, 1, "{exported:?}");
    assert!(exported.err.contains("cannot export all pools"), "{exported:?}");
    drop(silent);
    assert_eq!(shop.succeed("zpool list -Ho name"), "");
}

/// Its process is killed after its name was read and before the next request.
#[test]
fn pools_that_die_meanwhile_keep_nobody_from_the_others() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    shop.succeed("zfs create -u tank/b");
    let listener = UnixListener::bind(shop.rzfs.control().socket("dying")).unwrap();
    let dies = || {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            receive::<Request>(&mut stream, MAX_REQUEST).unwrap();
            let (pool, guid) = ("dying".to_owned(), 1);
            let process = std::process::id();
            let identity = Identity { pool, guid, process, is_writable: true };
            send(stream.get_mut(), &Answer::Identity(identity)).unwrap();
            receive::<Request>(&mut stream, MAX_REQUEST).unwrap();
        })
    };
    let dying = dies();
    let listed = shop.run("zfs mount");
    dying.join().unwrap();
    assert_eq!((listed.status, listed.out.lines().count()), (0, 2), "{listed:?}");
    assert_eq!(listed.err, "", "a pool that is gone is not missed");
    let dying = dies();
    let mounted = shop.run("zfs mount -a");
    dying.join().unwrap();
    assert_eq!((mounted.status, mounted.err.as_str()), (0, ""), "{mounted:?}");
    drop(listener);
    assert_eq!(shop.succeed("zfs mount").lines().count(), 3);
    shop.succeed("zpool export tank");
}

#[test]
fn what_does_not_exist_cannot_be_unmounted() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let missing = "cannot open 'tank/none': dataset does not exist\n";
    assert_eq!(shop.refuse("zfs unmount tank/none", 1), missing);
    shop.succeed("zfs unmount tank");
    let unmounted = "cannot unmount 'tank': not currently mounted\n";
    assert_eq!(shop.refuse("zfs unmount tank", 1), unmounted);
    shop.succeed("zpool export tank");
}

#[test]
fn a_spare_is_added_once() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A spare S");
    let twice = "cannot add to 'tank': one or more vdevs refer to the same device\n";
    assert_eq!(shop.refuse("zpool add tank spare S", 1), twice);
    assert_eq!(shop.refuse("zpool add -f tank spare S", 1), twice);
    assert_eq!(shop.succeed("zpool status tank").matches("AVAIL").count(), 1);
    shop.succeed("zpool export tank");
}

#[test]
fn ancestors_are_not_made_for_a_rename_that_is_refused() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let before = shop.succeed("zfs list -Ho name,mounted");
    let refused = shop.refuse("zfs rename -p tank/a tank/a/b/c", 1);
    assert!(refused.starts_with("cannot rename to 'tank/a/b/c'"), "{refused}");
    let refused = shop.refuse("zfs rename -p tank/none tank/x/y/z", 1);
    assert!(refused.starts_with("cannot open 'tank/none'"), "{refused}");
    assert_eq!(shop.succeed("zfs list -Ho name,mounted"), before);
    shop.succeed("zfs rename -p tank/a tank/x/y/z");
    let names = "tank\tyes\ntank/x\tyes\ntank/x/y\tyes\ntank/x/y/z\tyes\n";
    assert_eq!(shop.succeed("zfs list -Ho name,mounted"), names);
    shop.succeed("zfs rename -pu tank/x/y/z tank/q/z");
    assert_eq!(
        shop.succeed("zfs list -Ho name,mounted tank/q tank/q/z"),
        "tank/q\tyes\ntank/q/z\tyes\n"
    );
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn statuses_of_zfs_set_and_rename_are_those_of_openzfs() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let missing = "cannot open 'tank/none': dataset does not exist\n";
    assert_eq!(shop.refuse("zfs set compression=on tank/none", 1), missing);
    shop.refuse("zfs set compression=nothing tank/a", 255);
    for line in ["zfs set compression tank/a", "zfs set tank/a compression=on", "zfs set tank/a"] {
        let refused = shop.refuse(line, 2);
        assert!(refused.contains("\nusage:\n"), "{line}: {refused}");
    }
    let before = shop.succeed("zfs list -Ho name,mounted");
    assert_eq!(shop.succeed("zfs rename tank/a tank/a"), "");
    assert_eq!(shop.refuse("zfs rename tank/none tank/none", 1), missing);
    assert_eq!(shop.succeed("zfs list -Ho name,mounted"), before);
    let deep = format!("tank{}", "/d".repeat(50));
    let refused = shop.refuse(&format!("zfs create -p {deep}"), 1);
    let reason = "maximum name nesting depth exceeded";
    assert_eq!(refused, format!("cannot create '{deep}': {reason}\n"));
    shop.succeed("zpool export tank");
}

#[test]
fn only_the_last_words_are_interval_and_count() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    let huge = "99999999999999999999";
    for (line, missing) in [
        ("zpool list -Ho name tank 1 x", &["1", "x"] as &[_]),
        ("zpool list -Ho name tank 18446744073709551615", &["18446744073709551615"]),
        ("zpool list -Ho name tank x 1 1", &["x"]),
        ("zpool status 1 x tank", &["1", "x"]),
        ("zpool history tank 1", &["1"]),
    ] {
        let outcome = shop.run(line);
        let told: String =
            missing.iter().map(|name| format!("cannot open '{name}': no such pool\n")).collect();
        assert_eq!((outcome.status, &outcome.err), (1, &told), "{line}: {outcome:?}");
        assert!(outcome.out.contains("tank"), "{line}: {outcome:?}");
    }
    for command in ["list", "status"] {
        for number in ["18446744073709551615", huge] {
            let told = format!("cannot open '{number}': no such pool\n");
            assert_eq!(shop.refuse(&format!("zpool {command} {number}"), 1), told);
        }
        for zero in ["0", "1 0", "0 1", "tank 1 0"] {
            let refused = shop.refuse(&format!("zpool {command} {zero}"), 2);
            assert!(refused.starts_with("interval cannot be zero\nusage:\n"), "{refused}");
        }
    }
    for (line, told) in [
        ("zpool wait 5", "missing 'pool' argument\n"),
        ("zpool wait tank 1 5", "too many arguments\n"),
        (&format!("zpool wait tank {huge}"), "too many arguments\n"),
    ] {
        let refused = shop.refuse(line, 2);
        assert!(refused.starts_with(told), "{line}: {refused}");
    }
    assert_eq!(shop.succeed("zpool list -Ho name 0.01 2"), "tank\ntank\n");
    shop.succeed("zpool export tank");
}

#[test]
fn commands_that_are_not_there_yet_are_no_typing_errors() {
    let rzfs = Rzfs::new();
    for line in [
        "zpool scrub tank",
        "zpool iostat 1",
        "zpool replace -Z",
        "zfs redact tank@a",
        "zfs allow tank",
        "zfs zone",
    ] {
        let command = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let told = format!("'{command}' of OpenZFS is not supported by this software yet\n");
        let outcome = rzfs.run(line.split(' '));
        assert_eq!((outcome.status, outcome.err), (2, told), "{line}");
    }
    for line in ["zpool scrubb tank", "zpool snapshot tank@a", "zfs scrub tank", "zfs nonsense"] {
        let command = line.split(' ').nth(1).unwrap();
        let outcome = rzfs.run(line.split(' '));
        assert_eq!(outcome.status, 2, "{line}: {outcome:?}");
        let told = format!("unrecognized command '{command}'\nusage: ");
        assert!(outcome.err.starts_with(&told), "{line}: {outcome:?}");
    }
}
