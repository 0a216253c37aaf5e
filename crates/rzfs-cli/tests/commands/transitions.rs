//! Random changes of mounts and of the properties that control them, with mounts in use: each is
//! done completely or not at all.

use crate::harness::{Outcome, Rzfs, copy_program, outcome, wait_until};
use crate::mounts::unprivileged;
use rustix::process::getuid;
use rzfs_testkit::has_root;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NOBODY: u32 = 65534;

/// Number of random command sequences.
const SEEDS: u64 = 3;

/// The file systems below the root file system `tank`.
const BELOW: [&str; 4] = ["tank/a", "tank/a/b", "tank/a/b/c", "tank/d"];

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// A pool and the kind of user who works with it.
struct Rig {
    rzfs: Rzfs,
    binary: PathBuf,
    user: User,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// Imports a pool; its properties determine the mount points.
    Root,
    /// Mounts an image below a directory; all file systems share one mount.
    Ordinary,
}

/// What keeps a mount in use.
enum InUse {
    ByUs(#[expect(dead_code, reason = "it is open")] File),
    BySomebody(Child),
}

impl InUse {
    /// Other users, even root, cannot enter the mount of an ordinary user.
    fn by_somebody(rig: &Rig, place: &Path) -> Self {
        let mut shell = unprivileged(&rig.rzfs, Path::new("sh"));
        let script = "cd \"$0\" && echo there && exec sleep 1000";
        shell.args(["-c", script]).arg(place).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut said = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        Self::BySomebody(child)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Self::BySomebody(child) = self {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// The properties of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    canmount: String,
    mountpoint: String,
    readonly: String,
    /// `acltype`, `longname` and `rzfs:open`: they are negotiated with the kernel at mount time, so
    /// a change needs a remount.
    agreed: [String; 3],
}

impl State {
    fn has_place(&self) -> bool {
        !matches!(self.mountpoint.as_str(), "none" | "legacy")
    }

    fn is_possible(&self) -> bool {
        self.canmount != "off" && self.has_place()
    }

    fn is_automatic(&self) -> bool {
        self.canmount == "on" && self.has_place()
    }
}

type States = BTreeMap<String, State>;
type Mounts = BTreeMap<String, PathBuf>;

impl Rig {
    fn new(user: User) -> Self {
        let rzfs = Rzfs::new();
        let binary = rzfs.path("home").join("rzfs");
        for name in ["home", "run"] {
            fs::create_dir(rzfs.path(name)).unwrap();
        }
        // The binary cannot be run in a directory closed to other users.
        copy_program(&binary);
        let world = rzfs.path("");
        fs::set_permissions(&world, fs::Permissions::from_mode(0o755)).unwrap();
        if getuid().is_root() && user == User::Ordinary {
            for name in ["home", "run"] {
                chown(rzfs.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let this = Self { rzfs, binary, user };
        let image = this.rzfs.path("home").join("image");
        let image = image.to_str().unwrap();
        let mounted = this.top();
        match user {
            User::Root => this.succeed(&format!(
                "zpool create --size 96M -R {} tank {image}",
                this.rzfs.path("home").join("root").display()
            )),
            User::Ordinary => {
                this.succeed(&format!("zpool create --size 96M --export tank {image}"));
                fs::create_dir(&mounted).unwrap();
                if getuid().is_root() {
                    chown(&mounted, Some(NOBODY), Some(NOBODY)).unwrap();
                }
                this.succeed(&format!("mount {image} {}", mounted.display()))
            }
        };
        for name in BELOW {
            this.succeed(&format!("zfs create {name}"));
        }
        this
    }

    /// The initial mount point of the root file system.
    fn top(&self) -> PathBuf {
        let home = self.rzfs.path("home");
        if self.user == User::Root { home.join("root/tank") } else { home.join("mnt") }
    }

    fn run(&self, line: &str) -> Outcome {
        let mut command = match self.user {
            User::Root => self.rzfs.command(),
            User::Ordinary => unprivileged(&self.rzfs, &self.binary),
        };
        outcome(command.args(line.split(' ')))
    }

    fn succeed(&self, line: &str) -> String {
        let done = self.run(line);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{line}: {done:?}");
        done.out
    }

    fn states(&self) -> States {
        let text = self
            .succeed("zfs list -Ho name,canmount,mountpoint,readonly,acltype,longname,rzfs:open");
        let state = |line: &str| {
            let words: Vec<_> = line.split('\t').map(str::to_owned).collect();
            let Ok([name, canmount, mountpoint, readonly, agreed @ ..]) = <[_; 7]>::try_from(words)
            else {
                panic!("{line}")
            };
            (name, State { canmount, mountpoint, readonly, agreed })
        };
        text.lines().map(state).collect()
    }

    /// The mounts: according to the commands and, if they are separate mounts, to the system.
    fn mounts(&self) -> Mounts {
        let text = self.succeed("zfs mount");
        let mut told = Mounts::new();
        for line in text.lines() {
            let (name, place) = line.split_once("  ").unwrap();
            let place = PathBuf::from(place.trim_start().trim_end_matches('/'));
            assert_eq!(told.insert(name.trim_end().to_owned(), place), None, "twice: {text}");
        }
        let mut real = Mounts::new();
        for (source, at) in self.mounts_of_system() {
            let earlier = real.insert(source, at);
            assert_eq!(earlier, None, "twice: {real:?}");
        }
        match self.user {
            User::Root => assert_eq!(real, told),
            User::Ordinary => assert!(real.iter().all(|(name, at)| told.get(name) == Some(at))),
        }
        told
    }

    /// The mounts of the system in the directory of the test: sources and mount points, sorted.
    fn mounts_of_system(&self) -> Vec<(String, PathBuf)> {
        let home = self.rzfs.path("home");
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), PathBuf::from(words.next()?)))
        };
        let mut mounts: Vec<_> =
            table.lines().filter_map(mount).filter(|(_, at)| at.starts_with(&home)).collect();
        mounts.sort();
        mounts
    }

    /// The directory to which mount point properties are relative.
    fn alternate_root(&self) -> String {
        match self.user {
            User::Root => self.rzfs.path("home").join("root").display().to_string(),
            User::Ordinary => String::new(),
        }
    }

    /// The mount point that a file system should have.
    fn place(&self, name: &str, state: &State) -> PathBuf {
        match self.user {
            User::Root => state.mountpoint.clone().into(),
            User::Ordinary => {
                let below = name.strip_prefix("tank").unwrap().trim_start_matches('/');
                if below.is_empty() { self.top() } else { self.top().join(below) }
            }
        }
    }
}

/// A random command.
fn command(chance: &mut Chance, names: &[&str], user: User) -> String {
    let name = chance.pick(names);
    let leaf = name.rsplit('/').next().unwrap();
    match chance.below(24) {
        0..=2 => {
            let own = format!("/{leaf}-{}", chance.below(2));
            let inside = format!("/tank/in-{leaf}");
            let mut words = vec!["none", "legacy"];
            // A new mount point of the root file system would be in the way of the others.
            if name != "tank" {
                words.extend([own.as_str(), inside.as_str()]);
            }
            format!("zfs set mountpoint={} {name}", chance.pick(&words))
        }
        3 | 4 => format!("zfs inherit mountpoint {name}"),
        5 | 6 => {
            let word = chance.pick(&["on", "off", "noauto"]);
            format!("zfs set canmount={word} {name}")
        }
        7 => format!("zfs set readonly={} {name}", chance.pick(&["on", "off"])),
        8 if name != "tank" => {
            let other = name.replace("tank/a", "tank/e");
            let back = name.replace("tank/e", "tank/a");
            format!("zfs rename {name} {}", if other == name { back } else { other })
        }
        9 | 10 if user == User::Root || name != "tank" => format!("zfs unmount {name}"),
        11 => "zfs mount -a".to_owned(),
        12 | 13 => format!("zfs set {} {name}", chance.pick(&AGREED)),
        14 => {
            let property = chance.pick(&["acltype", "longname", "rzfs:open"]);
            format!("zfs inherit {property} {name}")
        }
        15 => {
            // A property that is not inherited returns to its default.
            let property = chance.pick(&["readonly", "canmount", "-S canmount"]);
            format!("zfs inherit {property} {name}")
        }
        16 | 17 => creation(chance, name),
        18 | 19 => destruction(chance, names),
        20 if user == User::Root || name != "tank" => format!("zfs unmount -f {name}"),
        _ => format!("zfs mount {name}"),
    }
}

/// Properties whose change needs a remount.
const AGREED: [&str; 6] = [
    "acltype=posix",
    "acltype=off",
    "longname=on",
    "longname=off",
    "rzfs:open=checked",
    "rzfs:open=unasked",
];

/// Whether a file system was created by a random command: none of the initial names begins with
/// this letter.
fn is_newcomer(name: &str) -> bool {
    name.rsplit('/').next().unwrap().starts_with('n')
}

/// A command that destroys a file system created by a random command. The initial ones stay: most
/// of them have children.
fn destruction(chance: &mut Chance, names: &[&str]) -> String {
    let newcomers: Vec<_> = names.iter().copied().filter(|name| is_newcomer(name)).collect();
    match (newcomers.is_empty(), chance.below(2)) {
        (true, _) => "zfs destroy tank/a".to_owned(),
        (false, 0) => format!("zfs destroy {}", chance.pick(&newcomers)),
        (false, _) => format!("zfs destroy -r {}", chance.pick(&newcomers)),
    }
}

/// A command that creates a child. The last name components of all file systems differ, and so do
/// their local mount points.
fn creation(chance: &mut Chance, parent: &str) -> String {
    let leaf = match parent.rsplit('/').next().unwrap() {
        "tank" => "n".to_owned(),
        leaf if leaf.len() > 2 => return format!("zfs create {parent}"),
        leaf => format!("n{leaf}"),
    };
    let own = format!("-o mountpoint=/{leaf}-{} ", chance.below(2));
    let options = [
        "",
        "",
        &own,
        "-o mountpoint=none ",
        "-o mountpoint=legacy ",
        "-o canmount=off ",
        "-o canmount=noauto ",
    ];
    format!("zfs create {}{parent}/{leaf}", chance.pick(&options))
}

/// The state before a command.
struct Before {
    states: States,
    mounts: Mounts,
    /// Whether anything is in use.
    is_busy: bool,
}

/// Checks the mounts after a command.
fn check(rig: &Rig, line: &str, done: &Outcome, before: &Before) {
    let (states, mounts) = (rig.states(), rig.mounts());
    let context = format!("{line}: {done:?}\nbefore {:#?}\n{states:#?}", before.mounts);
    match *line.split(' ').collect::<Vec<_>>().as_slice() {
        ["zfs", "mount", "-a"] => check_all((&states, &mounts), done, before, &context),
        ["zfs", "mount", name] if done.status == 0 => {
            let mut expected = before.mounts.clone();
            expected.insert(name.to_owned(), rig.place(name, &states[name]));
            assert_eq!(mounts, expected, "{context}");
        }
        ["zfs", "unmount", name] | ["zfs", "unmount", "-f", name] if done.status == 0 => {
            let mut expected = before.mounts.clone();
            let place = &before.mounts[name];
            expected.retain(|other, at| !(is_within(other, name) && at.starts_with(place)));
            assert_eq!(mounts, expected, "{context}");
        }
        ["zfs", "unmount", "-f", name] if rig.user == User::Root => {
            assert!(!before.mounts.contains_key(name), "{context}");
            assert_eq!((states, mounts), (before.states.clone(), before.mounts.clone()));
        }
        _ if states == before.states => assert_eq!(mounts, before.mounts, "refused: {context}"),
        ["zfs", "create", ref options @ .., name] => {
            let new = (name, new_state(rig, name, options, &before.states));
            check_created(rig, new, (&states, &mounts), done, before, &context);
        }
        ["zfs", "destroy", .., name] => {
            let is_gone =
                |other: &str| other == name || line.contains(" -r ") && is_within(other, name);
            let (mut left, mut mounted) = (before.states.clone(), before.mounts.clone());
            left.retain(|other, _| !is_gone(other));
            mounted.retain(|other, _| !is_gone(other));
            assert_eq!((done.status, states, mounts), (0, left, mounted), "{context}");
        }
        ["zfs", "rename", from, to] => {
            let earlier = |name: &str| match name.strip_prefix(to) {
                Some(rest) if is_within(name, to) => format!("{from}{rest}"),
                _ => name.to_owned(),
            };
            check_change(rig, &states, done, (before, &earlier), &context);
        }
        _ => check_change(rig, &states, done, (before, &str::to_owned), &context),
    }
}

fn is_within(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The expected state of a child created with these options.
fn new_state(rig: &Rig, name: &str, options: &[&str], states: &States) -> State {
    let (parent, leaf) = name.rsplit_once('/').unwrap();
    let above = &states[parent];
    let mountpoint = match above.has_place() {
        true => format!("{}/{leaf}", above.mountpoint),
        false => above.mountpoint.clone(),
    };
    let mut state = State { canmount: "on".to_owned(), mountpoint, ..above.clone() };
    for option in options.iter().filter(|option| **option != "-o") {
        match option.split_once('=').unwrap() {
            ("mountpoint", value) if value.starts_with('/') => {
                state.mountpoint = format!("{}{value}", rig.alternate_root());
            }
            ("mountpoint", value) => state.mountpoint = value.to_owned(),
            ("canmount", value) => state.canmount = value.to_owned(),
            _ => panic!("{option}"),
        }
    }
    state
}

/// Checks a new file system: it exists beside all others, and is mounted if automatic.
fn check_created(
    rig: &Rig,
    (name, state): (&str, State),
    (states, mounts): (&States, &Mounts),
    done: &Outcome,
    before: &Before,
    context: &str,
) {
    let (mut expected, mut mounted) = (before.states.clone(), before.mounts.clone());
    // The shared mount of an ordinary user is not remounted for it while it is in use.
    let is_held_up =
        rig.user == User::Ordinary && before.is_busy && done.err.starts_with("cannot unmount '");
    let is_told = is_told_read_only(done, name) || is_held_up;
    if state.is_automatic() && !is_told {
        mounted.insert(name.to_owned(), rig.place(name, &state));
    }
    expected.insert(name.to_owned(), state);
    assert_eq!((states, mounts), (&expected, &mounted), "{context}");
    assert_eq!(done.status, i32::from(is_told), "{context}");
}

/// Whether the message says that a file system is not mounted because its directory cannot be made
/// in a read-only file system.
fn is_told_read_only(done: &Outcome, name: &str) -> bool {
    done.err.contains(&format!("cannot mount '{name}'")) && done.err.contains("Read-only")
}

fn check_all((states, mounts): (&States, &Mounts), done: &Outcome, before: &Before, context: &str) {
    assert!(before.mounts.iter().all(|(name, at)| mounts.get(name) == Some(at)), "{context}");
    for (name, state) in states {
        let is_possible = !before.is_busy && !is_told_read_only(done, name);
        let is_wanted = state.is_automatic() && is_possible;
        assert!(!is_wanted || mounts.contains_key(name), "{name} is missing: {context}");
    }
}

/// Checks the mounts after a change of properties or names.
fn check_change(
    rig: &Rig,
    states: &States,
    done: &Outcome,
    (before, earlier): (&Before, &dyn Fn(&str) -> String),
    context: &str,
) {
    let mounts = rig.mounts();
    for (name, state) in states {
        let earlier = earlier(name);
        let was_mounted = before.mounts.contains_key(&earlier);
        // A file system that becomes automatic is mounted the next time.
        let comes = state.is_automatic()
            && !before.states.get(&earlier).is_some_and(State::is_automatic)
            && !context.starts_with("zfs set canmount=")
            && !context.starts_with("zfs inherit -S canmount ");
        let is_told = is_told_read_only(done, name);
        match mounts.get(name) {
            Some(place) => {
                assert_eq!(*place, rig.place(name, state), "{name}: {context}");
                assert!(state.is_possible(), "{name}: {context}");
                assert!(was_mounted || comes, "{name} came: {context}");
            }
            None if was_mounted => {
                assert!(is_told || !state.is_possible(), "{name} is lost: {context}");
            }
            None => assert!(is_told || !comes || before.is_busy, "{name} is missing: {context}"),
        }
    }
}

fn drive(user: User, seed: u64, steps: usize) {
    let rig = Rig::new(user);
    let mut chance = Chance(seed);
    let mut busy: BTreeMap<PathBuf, InUse> = BTreeMap::new();
    let (mut refused, mut changed) = (0, 0);
    for _ in 0..steps {
        let mounts = rig.mounts();
        if busy.len() > 1 || chance.below(3) == 0 {
            busy.clear();
        }
        let places: Vec<_> = mounts.values().collect();
        if !places.is_empty() && chance.below(2) == 0 {
            let place = places[chance.below(places.len())];
            let in_use = match user {
                User::Root => InUse::ByUs(File::open(place).unwrap()),
                User::Ordinary => InUse::by_somebody(&rig, place),
            };
            busy.insert(place.clone(), in_use);
        }
        let before = Before { states: rig.states(), mounts, is_busy: !busy.is_empty() };
        let names = before.states.keys().map(String::as_str);
        // Without the outermost mount, a user's process ends.
        let names: Vec<_> = names.filter(|name| user == User::Root || *name != "tank").collect();
        let line = command(&mut chance, &names, user);
        let done = rig.run(&line);
        match done.status {
            0 => changed += 1,
            _ => refused += 1,
        }
        check(&rig, &line, &done, &before);
    }
    assert!(refused > steps / 20 && changed > steps / 4, "{refused} refused, {changed} done");
    busy.clear();
    let end = if user == User::Root { "zpool export tank" } else { "umount tank" };
    // A mount unmounted by force is released when its files are closed.
    wait_until("nobody has it any more", || rig.run(end).status == 0);
    assert_eq!(rig.mounts_of_system(), []);
}

#[test]
fn roots_changes_of_mounts_happen_as_a_whole_or_not_at_all() {
    if has_root("others have one mount for all file systems") {
        (1..=SEEDS).for_each(|seed| drive(User::Root, seed, 80));
    }
}

#[test]
fn a_users_changes_of_mounts_happen_as_a_whole_or_not_at_all() {
    (1..=SEEDS).for_each(|seed| drive(User::Ordinary, seed, 30));
}

/// A pool of root; `None` for other users, who have one mount for all file systems.
fn roots_rig() -> Option<Rig> {
    has_root("others have one mount for all file systems").then(|| Rig::new(User::Root))
}

/// Checks that a command is refused because `place` is in use, and changes nothing.
fn assert_refused(rig: &Rig, line: &str, place: &Path) {
    let (mounts, states) = (rig.mounts(), rig.states());
    let refused = rig.run(line);
    let status = if line.starts_with("zfs set") { 255 } else { 1 };
    assert_eq!(refused.status, status, "{line}: {refused:?}");
    let says = format!("cannot unmount '{}': pool or dataset is busy\n", place.display());
    assert!(refused.err.starts_with(&says), "{line}: {refused:?}");
    assert_eq!((rig.mounts(), rig.states()), (mounts, states), "{line}");
}

#[test]
fn a_busy_file_system_is_not_mounted_a_second_time() {
    let Some(rig) = roots_rig() else { return };
    let place = rig.top().join("d");
    let file = File::create(place.join("file")).unwrap();
    for line in [
        "zfs set mountpoint=/elsewhere tank/d",
        "zfs set mountpoint=none tank/d",
        "zfs set canmount=off tank/d",
        "zfs destroy tank/d",
        "zfs unmount tank/d",
    ] {
        assert_refused(&rig, line, &place);
    }
    // A property that takes effect anyway is set, and the failed remount is reported.
    let mounts = rig.mounts();
    let told = rig.run("zfs set readonly=on tank/d");
    let says = "property may be set but unable to remount filesystem\n";
    assert_eq!((told.status, told.err.as_str()), (1, says));
    assert_eq!(rig.mounts(), mounts);
    drop(file);
    rig.succeed("zfs inherit readonly tank/d");
    rig.succeed("zpool export tank");
}

#[test]
fn idle_file_systems_stay_mounted_when_another_is_busy() {
    let Some(rig) = roots_rig() else { return };
    let place = rig.top().join("a/b");
    // A working directory keeps a mount in use as open files do.
    let cwd = Command::new("sleep").arg("1000").current_dir(&place).spawn().unwrap();
    let busy = InUse::BySomebody(cwd);
    for line in [
        "zfs rename tank/a tank/e",
        "zfs set mountpoint=/elsewhere tank/a",
        "zfs set mountpoint=none tank",
        "zfs set mountpoint=legacy tank",
        "zfs unmount tank/a",
        "zfs destroy -r tank/a",
        "zpool export tank",
    ] {
        assert_refused(&rig, line, &place);
    }
    let mounts = rig.mounts();
    rig.succeed("zfs mount -a");
    assert_eq!(rig.mounts(), mounts);
    // A change that does not end the mount is not refused.
    rig.succeed("zfs set canmount=noauto tank/a/b");
    rig.succeed("zfs set mountpoint=/own tank/d");
    let mut left = rig.mounts();
    left.retain(|name, _| ["tank", "tank/a", "tank/a/b"].contains(&name.as_str()));
    let refused = rig.run("zfs unmount -a");
    assert!(refused.status == 1 && refused.err.contains("busy"), "{refused:?}");
    assert_eq!(rig.mounts(), left, "all but what is busy and what it is in");
    drop(busy);
    rig.succeed("zpool export tank");
}

#[test]
fn children_come_back_with_the_mount_point_of_their_parent() {
    let Some(rig) = roots_rig() else { return };
    rig.succeed("zfs set canmount=noauto tank/a/b/c");
    let mut mounts = rig.mounts();
    for word in ["none", "legacy"] {
        rig.succeed(&format!("zfs set mountpoint={word} tank/a"));
        assert_eq!(rig.mounts().into_keys().collect::<Vec<_>>(), ["tank", "tank/d"]);
        rig.succeed("zfs mount -a");
        assert_eq!(rig.mounts().into_keys().collect::<Vec<_>>(), ["tank", "tank/d"]);
        rig.succeed("zfs inherit mountpoint tank/a");
        mounts.remove("tank/a/b/c");
        assert_eq!(rig.mounts(), mounts, "all but what is not mounted by itself");
    }
    rig.succeed("zpool export tank");
}

#[test]
fn what_is_covered_by_another_mount_is_in_use() {
    let Some(rig) = roots_rig() else { return };
    let place = rig.top().join("a/b/c");
    let tmpfs = |words: &[&str]| {
        assert!(Command::new(words[0]).args(&words[1..]).arg(&place).status().unwrap().success());
    };
    tmpfs(&["mount", "-t", "tmpfs", "cover"]);
    let covered = rig.mounts_of_system();
    for line in [
        "zfs unmount tank/a/b/c",
        "zfs unmount -f tank/a/b/c",
        "zfs set mountpoint=/elsewhere tank/a",
        "zfs rename tank/a tank/e",
        "zpool export tank",
    ] {
        let refused = rig.run(line);
        assert!(refused.status != 0 && refused.err.contains("busy"), "{line}: {refused:?}");
        assert_eq!(rig.mounts_of_system(), covered, "{line}");
    }
    tmpfs(&["umount"]);
    rig.succeed("zfs rename tank/a tank/e");
    rig.succeed("zpool export tank");
}

#[test]
fn a_forced_unmount_ends_what_is_in_use() {
    let Some(rig) = roots_rig() else { return };
    let mounts = rig.mounts();
    let busy = File::open(rig.top().join("a/b")).unwrap();
    rig.succeed("zfs unmount -f tank/a");
    assert_eq!(rig.mounts().into_keys().collect::<Vec<_>>(), ["tank", "tank/d"]);
    rig.succeed("zfs mount -a");
    assert_eq!(rig.mounts(), mounts);
    // Otherwise its users would be left without a pool.
    let refused = rig.run("zpool export tank");
    assert!(refused.status == 1 && refused.err.contains("busy"), "{refused:?}");
    assert_eq!(rig.mounts(), mounts);
    drop(busy);
    wait_until("nobody has it any more", || rig.run("zpool export tank").status == 0);
}

#[test]
fn a_new_mount_that_would_lose_another_is_taken_back() {
    let Some(rig) = roots_rig() else { return };
    fs::write(rig.top().join("a/d"), "in the way").unwrap();
    rig.succeed("zfs unmount tank/a");
    rig.succeed("zfs set mountpoint=/tank/a/d tank/d");
    let mounts = rig.mounts();
    let refused = rig.run("zfs mount tank/a");
    assert!(refused.status == 1 && refused.err.contains("'tank/d'"), "{refused:?}");
    assert_eq!(rig.mounts(), mounts);
    rig.succeed("zpool export tank");
}

/// In its own mount namespace, since it mounts on the root directory.
#[test]
fn what_is_mounted_on_the_root_directory_can_be_unmounted() {
    let rzfs = Rzfs::new();
    if !has_root("only root has mounts of its own") {
        return;
    }
    // The copied mounts of other tests would stay in use as long as they are here.
    let script = "umount -a -c -i -l -t fuse.rzfs
        set -e
        roots() { grep -c '^tank / fuse.rzfs' /proc/self/mounts || true; }
        $RZFS zpool create --size 96M -m none tank $IMAGE; roots
        $RZFS zfs set mountpoint=/ tank; roots
        $RZFS zfs unmount tank; roots
        $RZFS zfs mount tank; roots
        $RZFS zfs set readonly=on tank; roots
        $RZFS zpool export tank; roots";
    let mut shell = rzfs.prepared(Command::new("unshare"));
    shell.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    shell.env("RZFS", env!("CARGO_BIN_EXE_rzfs")).env("IMAGE", rzfs.path("image"));
    let done = outcome(&mut shell);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("0\n1\n0\n1\n1\n0\n", ""), "{done:?}");
}

#[test]
fn what_a_refused_change_has_ended_of_a_users_mount_comes_back() {
    let rig = Rig::new(User::Ordinary);
    let outermost = InUse::by_somebody(&rig, &rig.top());
    // What its mount cannot do while it is in use.
    let told = rig.run("zfs set rzfs:open=checked tank/a/b/c");
    let says = "property may be set but unable to remount filesystem\n";
    assert_eq!((told.status, told.err.as_str()), (1, says));
    let place = rig.top().join("a/b");
    let busy = InUse::by_somebody(&rig, &place);
    for line in ["zfs rename tank/a tank/e", "zfs set mountpoint=/elsewhere tank/a"] {
        assert_refused(&rig, line, &place);
    }
    drop(busy);
    let mounts = rig.mounts();
    let told = rig.run("zfs rename tank/a/b tank/f");
    assert!(told.err.contains("pool or dataset is busy"), "{told:?}");
    let moved = |(name, place): (String, PathBuf)| match name.strip_prefix("tank/a/b") {
        Some(rest) => {
            (format!("tank/f{rest}"), PathBuf::from(format!("{}/f{rest}", rig.top().display())))
        }
        None => (name, place),
    };
    assert_eq!(rig.mounts(), mounts.into_iter().map(moved).collect(), "{told:?}");
    drop(outermost);
    rig.succeed("umount tank");
}

/// Whether a file system is read-only since a mount was asked for so.
fn is_read_only_meanwhile(rig: &Rig, name: &str) -> bool {
    rig.succeed(&format!("zfs get -Ho value,source readonly {name}")) == "on\ttemporary\n"
}

#[test]
fn what_a_mount_was_asked_for_stays_when_it_moves() {
    let Some(rig) = roots_rig() else { return };
    rig.succeed("zfs unmount tank/d");
    rig.succeed("zfs mount -o ro tank/d");
    assert!(is_read_only_meanwhile(&rig, "tank/d"));
    rig.succeed("zfs rename tank/d tank/a/d");
    assert!(is_read_only_meanwhile(&rig, "tank/a/d"));
    rig.succeed("zfs set mountpoint=/elsewhere tank/a/d");
    assert!(is_read_only_meanwhile(&rig, "tank/a/d"));
    // Who sets the property itself means what is mounted as well, also while that moves.
    rig.succeed("zfs set mountpoint=/anywhere readonly=off tank/a/d");
    assert_eq!(rig.succeed("zfs get -Ho value,source readonly tank/a/d"), "off\tlocal\n");
    fs::write(rig.top().parent().unwrap().join("anywhere/file"), "it can be changed").unwrap();
    rig.succeed("zpool export tank");
}

#[test]
fn what_is_mounted_in_a_users_mount_does_what_was_asked_for_after_a_rollback_and_a_rename() {
    let rig = Rig::new(User::Ordinary);
    let is_refused = |place: &str| {
        let mut shell = unprivileged(&rig.rzfs, Path::new("sh"));
        let tried = outcome(shell.args(["-c", ": >\"$0\"/file"]).arg(rig.top().join(place)));
        tried.status != 0 && tried.err.contains("Read-only")
    };
    rig.succeed("zfs snapshot tank/d@before");
    rig.succeed("zfs unmount tank/d");
    rig.succeed("zfs mount -o ro tank/d");
    assert!(is_refused("d") && is_read_only_meanwhile(&rig, "tank/d"));
    rig.succeed("zfs rollback tank/d@before");
    assert!(is_refused("d") && is_read_only_meanwhile(&rig, "tank/d"));
    rig.succeed("zfs rename tank/d tank/a/d");
    assert!(is_refused("a/d") && is_read_only_meanwhile(&rig, "tank/a/d"));
    rig.succeed("zfs set readonly=off tank/a/d");
    assert!(!is_refused("a/d"));
    rig.succeed("umount tank");
}
