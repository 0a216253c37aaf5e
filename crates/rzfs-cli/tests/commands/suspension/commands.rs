//! Every command that changes or asks a pool, while that waits for its devices.

use super::reports::without_devices_of;
use super::shared::Shared;
use super::{Waiting, answer_of, prompt};
use crate::harness::{Outcome, Rzfs, is_mounted, outcome, wait_until};
use crate::mounts::unprivileged;
use crate::ordinary::Ordinary;
use crate::workshop::Workshop;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long a command may take, in seconds; it is killed then.
const PATIENCE: &str = "30";
const KILLED: i32 = 137;

/// What becomes of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It has nothing to write, and is carried out.
    Done,
    /// It ends with this status, and says that the pool is suspended.
    Refused(u8),
    /// It ends with this status, and says why.
    Told(u8),
}

use End::{Done, Refused, Told};

/// The commands, as a shell reads them: `$P` is the pool, `$M` where it is mounted, `$K` a file with a key,
/// `$S` one with a stream and `$I` one with an increment, `$D` an image that there is not yet.
const COMMANDS: &[(&str, End)] = &[
    ("zfs snapshot $P/plain@new", Refused(1)),
    ("zfs snapshot -r -o a:b=c $P@new", Refused(1)),
    ("zfs destroy $P/unmounted", Refused(1)),
    ("zfs destroy -r $P/gone", Refused(1)),
    ("zfs destroy -R $P/plain", Refused(1)),
    ("zfs destroy -nv -r $P/gone", Done),
    ("zfs destroy $P/plain@two", Refused(1)),
    ("zfs destroy -r $P@top", Refused(1)),
    ("zfs destroy -d $P/held@kept", Refused(1)),
    ("zfs destroy $P/plain@two%top", Refused(1)),
    ("zfs destroy $P/plain#mark", Refused(1)),
    ("zfs rename $P/plain $P/moved", Refused(1)),
    ("zfs rename -u $P/plain $P/moved", Refused(1)),
    ("zfs rename -p $P/plain $P/away/moved", Refused(1)),
    ("zfs rename $P/plain@two $P/plain@three", Refused(1)),
    ("zfs rename -r $P@top $P@head", Refused(1)),
    ("zfs rollback $P/plain@top", Refused(1)),
    ("zfs rollback -r $P/plain@one", Refused(1)),
    ("zfs rollback -R $P/plain@one", Refused(1)),
    ("zfs clone $P/plain@one $P/other", Refused(1)),
    ("zfs clone -p $P/plain@one $P/way/other", Refused(1)),
    ("zfs promote $P/clone", Refused(1)),
    ("zfs hold tag $P/plain@one", Refused(1)),
    ("zfs hold -r tag $P@top", Refused(1)),
    ("zfs release mine $P/held@kept", Refused(1)),
    ("zfs holds -r $P/held@kept", Done),
    ("zfs bookmark $P/plain@one $P/plain#new", Refused(1)),
    ("zfs bookmark $P/plain#mark $P/plain#copy", Refused(1)),
    ("zfs send $P/plain@one > /dev/null", Done),
    ("zfs send -i @one $P/plain@two > /dev/null", Done),
    ("zfs send -R $P/gone@top > /dev/null", Done),
    ("zfs send -nv $P/plain@one", Done),
    ("zfs receive $P/received < $S", Refused(1)),
    ("zfs receive -F $P/plain < $S", Refused(1)),
    ("zfs receive -s -v $P/received < $S", Refused(1)),
    ("zfs receive -d $P < $S", Refused(1)),
    ("zfs receive -F $P/increments < $I", Refused(1)),
    ("zfs receive -n $P/received < $S", Done),
    ("zfs receive -A $P/plain", Told(1)),
    ("zfs diff $P/plain@one $P/plain@two", Done),
    ("zfs diff $P/plain@one", Refused(1)),
    ("zfs create $P/new", Refused(1)),
    ("zfs create -p -o atime=off $P/new/below", Refused(1)),
    ("zfs set atime=off $P/plain", Refused(255)),
    ("zfs set a:b=c quota=30M $P/plain", Refused(255)),
    ("zfs set userquota@1=10M $P/plain", Refused(255)),
    ("zfs set a:b=c $P/plain@one", Refused(255)),
    ("zfs inherit compression $P/plain", Refused(1)),
    ("zfs inherit -r compression $P", Refused(1)),
    ("zfs get all $P/plain", Done),
    ("zfs list -r -t all $P", Done),
    ("zfs load-key -n -L file://$K $P/locked", Done),
    ("zfs unload-key $P/loaded", Refused(255)),
    ("zfs unload-key $P/plain", Told(255)),
    ("zfs change-key -o keylocation=file://$K $P/open", Refused(255)),
    ("zfs userspace $P/plain", Done),
    ("zfs groupspace $P/plain@one", Done),
    ("zfs projectspace $P/plain", Done),
    ("zfs project -r $M/plain", Done),
    ("zfs upgrade", Done),
    ("zfs upgrade -a", Done),
    ("zfs wait -t deleteq $P/plain", Done),
    ("zfs mount", Done),
    ("zfs mount -a", Refused(1)),
    ("zfs mount $P/unmounted", Refused(1)),
    ("zfs unmount $P/plain", Refused(1)),
    ("zfs unmount -a", Refused(1)),
    ("zpool add --size 96M $P $D", Refused(1)),
    ("zpool add -n --size 96M $P $D", Done),
    ("zpool trim $P", Refused(255)),
    ("zpool initialize $P", Refused(255)),
    ("zpool reguid $P", Refused(1)),
    ("zpool upgrade $P", Refused(1)),
    ("zpool set comment=words $P", Refused(1)),
    ("zpool get all $P", Done),
    ("zpool list -v $P", Done),
    ("zpool status -v $P", Done),
    ("zpool history -il $P", Done),
    ("zpool events -v $P", Done),
    ("zpool sync $P", Refused(1)),
    ("zpool wait $P", Done),
    ("zpool ddtprune -p 10 $P", Refused(255)),
    ("zpool prefetch -t ddt $P", Done),
    ("zpool export $P", Refused(1)),
    ("stats $P", Done),
];

/// What is there for them, made before the pool is suspended.
const PREPARATIONS: &[&str] = &[
    "zfs snapshot $P/plain@one",
    "zfs snapshot $P/plain@two",
    "zfs bookmark $P/plain@one $P/plain#mark",
    "zfs clone $P/plain@one $P/clone",
    "zfs create $P/gone",
    "zfs create $P/gone/below",
    "zfs create $P/held",
    "zfs snapshot $P/held@kept",
    "zfs hold mine $P/held@kept",
    "zfs create $P/unmounted",
    "zfs unmount $P/unmounted",
    "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$K $P/open",
    "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$K $P/locked",
    "zfs unmount $P/locked",
    "zfs unload-key $P/locked",
    "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$K $P/loaded",
    "zfs unmount $P/loaded",
    "zfs snapshot -r $P@top",
    "zfs destroy $P/unmounted@top",
    "zfs send $P/plain@one > $S",
    "zfs send -i @one $P/plain@two > $I",
    "zfs receive $P/increments < $S",
    "zpool sync $P",
];

/// What can be done again when the pool goes on.
const AFTERWARDS: &[&str] = &[
    "zfs snapshot -r $P@new",
    "zfs rename $P/plain@two $P/plain@three",
    "zfs rollback $P/plain@new",
    "zfs promote $P/clone",
    "zfs hold tag $P/plain@new",
    "zfs release tag $P/plain@new",
    "zfs bookmark $P/plain@new $P/plain#new",
    "zfs receive $P/received < $S",
    "zfs create $P/new",
    "zfs set atime=off $P/plain",
    "zfs load-key -n $P/locked",
    "zfs unload-key $P/loaded",
    "zfs destroy -r $P/gone",
    "zpool ddtprune -p 10 $P",
    "zpool upgrade $P",
    "zfs mount -a",
    "zpool sync $P",
];

/// Who runs them, and what their words mean.
struct User<'a> {
    rzfs: &'a Rzfs,
    /// Runs a program as this user.
    program: fn(&Rzfs, &Path) -> Command,
    binary: PathBuf,
    pool: &'static str,
    mount: PathBuf,
    /// Where key, streams and the new image are.
    place: PathBuf,
}

impl<'a> User<'a> {
    fn root(shop: &'a Workshop) -> Self {
        Self {
            rzfs: &shop.rzfs,
            program: |rzfs, program| rzfs.prepared(Command::new(program)),
            binary: PathBuf::from(env!("CARGO_BIN_EXE_rzfs")),
            pool: "tank",
            mount: shop.root(),
            place: shop.rzfs.path(""),
        }
    }

    fn ordinary(user: &'a Ordinary) -> Self {
        Self {
            rzfs: &user.rzfs,
            program: unprivileged,
            binary: user.home.join("rzfs"),
            pool: "z",
            mount: user.home.join("m"),
            place: user.home.clone(),
        }
    }

    /// Runs one, which does not get more than its time.
    fn run(&self, line: &str) -> Outcome {
        self.shell(&format!("exec $R {line}"))
    }

    fn shell(&self, script: &str) -> Outcome {
        let mut command = (self.program)(self.rzfs, Path::new("timeout"));
        command.args(["-s", "KILL", PATIENCE, "sh", "-c", script]);
        command.env("R", &self.binary).env("P", self.pool).env("M", &self.mount);
        for (name, file) in [("K", "key"), ("S", "stream"), ("I", "increment"), ("D", "new.img")] {
            command.env(name, self.place.join(file));
        }
        outcome(&mut command)
    }

    fn succeed(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
        outcome.out
    }

    fn prepare(&self) {
        fs::write(self.place.join("key"), [7; 32]).unwrap();
        self.succeed("zfs create -o dedup=on -o recordsize=4K $P/plain");
        let written = self.shell("head -c 300000 /dev/urandom > $M/plain/file");
        assert_eq!(written.status, 0, "{written:?}");
        PREPARATIONS.iter().for_each(|line| drop(self.succeed(line)));
    }

    /// What the pool has.
    fn contents(&self) -> [String; 3] {
        [
            "zfs list -Ho name,mounted -t all -r $P",
            "zfs get -rHo name,property,value,source compression,atime,quota,a:b $P",
            "zfs holds -rH $P@top $P/held@kept",
        ]
        .map(|line| self.succeed(line))
    }

    /// Runs all of them. `check` says whether each has ended as it has to.
    fn ask(&self, check: impl Fn(End, &Outcome) -> bool) {
        let mut wrong = Vec::new();
        for (line, end) in COMMANDS {
            let outcome = self.run(line);
            if !check(*end, &outcome) || self.place.join("new.img").exists() {
                wrong.push(format!("{line}: {end:?}: {outcome:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(is_mounted(&self.mount));
    }

    /// Does what has been refused.
    fn go_on(&self) {
        AFTERWARDS.iter().for_each(|line| drop(self.succeed(line)));
    }
}

/// What is said where the pool can be read.
fn is_as_told(end: End, outcome: &Outcome) -> bool {
    let Outcome { status, err, .. } = outcome;
    match end {
        Done => (*status, err.as_str()) == (0, ""),
        Refused(expected) => {
            *status == i32::from(expected) && err.contains("pool I/O is currently suspended")
        }
        Told(expected) => *status == i32::from(expected) && !err.is_empty(),
    }
}

#[test]
fn no_command_waits_for_a_suspended_pool() {
    let Some(waiting) = Waiting::prepared(|shop| User::root(shop).prepare()) else { return };
    let user = User::root(&waiting.shop);
    let before = user.contents();
    user.ask(is_as_told);
    // Nor do those that come later.
    user.ask(is_as_told);
    assert_eq!(user.contents(), before);
    // It needs nothing of the devices that they do not give.
    user.succeed("zfs load-key $P/locked");
    waiting.host.resize("400M");
    user.succeed("zpool clear $P");
    assert_eq!(user.contents(), before);
    user.go_on();
    waiting.mend();
}

#[test]
fn no_command_waits_for_a_suspended_pool_that_is_to_continue() {
    let prepared = Waiting::prepared(|shop| {
        User::root(shop).prepare();
        shop.succeed("zpool set failmode=continue tank");
    });
    let Some(waiting) = prepared else { return };
    let user = User::root(&waiting.shop);
    let before = user.contents();
    user.ask(is_as_told);
    let project = user.run("zfs project -p 7 $M/kept");
    assert!(project.status == 255 && project.err.contains("failed to set"), "{project:?}");
    user.ask(is_as_told);
    assert_eq!(user.contents(), before);
    waiting.host.resize("400M");
    user.succeed("zpool clear $P");
    for writer in waiting.writers.into_iter().chain([waiting.filler]) {
        let _ = answer_of("a writer is answered", move || writer.join().unwrap());
    }
    assert_eq!(user.contents(), before);
    user.succeed("zfs project -p 7 $M/kept");
    user.go_on();
    user.succeed("zpool export $P");
    waiting.shop.judge();
    waiting.shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(
        user.succeed("zfs project $M/kept"),
        format!("    7 - {}\n", waiting.shop.root().join("kept").display())
    );
    waiting.shop.succeed("zpool export tank");
}

#[test]
fn no_command_of_an_ordinary_user_waits_for_a_suspended_pool() {
    for fail_mode in ["wait", "continue"] {
        let prepared = Shared::prepared(|user| {
            User::ordinary(user).prepare();
            user.succeed(&format!("zpool set failmode={fail_mode} z"));
        });
        let Some(mut shared) = prepared else { return };
        let user = User::ordinary(&shared.user);
        let before = user.contents();
        user.ask(is_as_told);
        user.ask(is_as_told);
        assert_eq!(user.contents(), before);
        shared.mend();
        shared.wait_for_writers();
        let user = User::ordinary(&shared.user);
        assert_eq!(user.contents(), before);
        user.go_on();
        user.succeed("zpool export $P");
        let check = shared.user.run(&format!("zdb -bcc -e -p {} z", shared.image));
        assert!(check.out.contains("No leaks"), "{check:?}");
    }
}

/// Nothing can be read either; whether it has to be is another question.
#[test]
fn no_command_waits_for_a_pool_whose_devices_are_gone() {
    let shop = without_devices_of("256M", |shop| User::root(shop).prepare());
    let user = User::root(&shop);
    let file = shop.root().join("late");
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::create(&file)?;
        file.write_all(b"late")?;
        file.sync_all()
    });
    wait_until("the pool is suspended", || {
        prompt(&shop, "zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    for _ in 0..2 {
        user.ask(|end, outcome| match end {
            _ if [-1, KILLED].contains(&outcome.status) => false,
            Done => outcome.status == 0 || !outcome.err.is_empty(),
            Refused(_) | Told(_) => outcome.status != 0 && !outcome.err.is_empty(),
        });
    }
    shop.succeed("zpool import -d IMAGES -R ROOT host");
    user.succeed("zpool clear $P");
    answer_of("the writer goes on", || writer.join().unwrap()).unwrap();
    let host = shop.rzfs.path("root").join("host");
    user.succeed("zfs load-key -a");
    user.go_on();
    user.succeed("zpool export $P");
    let walked = shop.run(&format!("zdb -bcc -e -p {} tank", host.display()));
    assert!(walked.status == 0 && walked.out.contains("No leaks"), "{walked:?}");
    shop.succeed(&format!("zpool import -d {} -R ROOT tank", host.display()));
    assert_eq!(fs::read_to_string(shop.root().join("late")).unwrap(), "late");
    shop.succeed("zpool export tank");
    shop.succeed("zpool export host");
}
