//! A pool mounted by an ordinary user, and all operations that change it.

use crate::harness::{
    CHANGE_IN_MEMORY, Outcome, PYTHON, Rzfs, copy_program, has_python, is_mounted, outcome,
    wait_until,
};
use crate::mounts::unprivileged;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with};
use rustix::process::getuid;
use rzfs_server::control::ControlClient;
use rzfs_testkit::{has_root, kernel_passes};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The directory of an unprivileged user, with a pool `z` in `z.img` that is mounted at `m`.
pub(crate) struct Ordinary {
    pub(crate) rzfs: Rzfs,
    pub(crate) home: PathBuf,
}

impl Ordinary {
    pub(crate) fn new() -> Self {
        let this = Self::without_pool();
        let image = this.path("z.img");
        this.succeed(&format!("zpool create --size 128M --export z {image}"));
        this.succeed(&format!("mount {image} {}", this.path("m")));
        this
    }

    /// The directory before there is a pool.
    pub(crate) fn without_pool() -> Self {
        let rzfs = Rzfs::new();
        let home = rzfs.path("home");
        fs::create_dir(&home).unwrap();
        fs::create_dir(home.join("m")).unwrap();
        fs::create_dir(rzfs.path("run")).unwrap();
        // The binary cannot be run in a directory closed to other users.
        copy_program(&home.join("rzfs"));
        fs::set_permissions(rzfs.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        if getuid().is_root() {
            for path in [home.clone(), home.join("m"), rzfs.path("run")] {
                chown(path, Some(65534), Some(65534)).unwrap();
            }
        }
        Self { rzfs, home }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.home.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn run(&self, line: &str) -> Outcome {
        outcome(unprivileged(&self.rzfs, &self.home.join("rzfs")).args(line.split(' ')))
    }

    pub(crate) fn succeed(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
        outcome.out
    }

    /// The process that serves the pool `z`.
    pub(crate) fn process(&self) -> i32 {
        let socket = self.rzfs.path("run").join("rzfs/z.sock");
        let client = ControlClient::connect(&socket).unwrap().unwrap();
        client.identity().process.try_into().unwrap()
    }

    /// A shell of the user.
    pub(crate) fn sh(&self, script: &str) -> Command {
        let mut shell = unprivileged(&self.rzfs, Path::new("sh"));
        shell.args(["-c", script]).current_dir("/").env("M", self.path("m"));
        shell
    }

    /// The output of a shell of the user.
    pub(crate) fn shell(&self, script: &str) -> String {
        let outcome = outcome(&mut self.sh(script));
        assert_eq!(outcome.status, 0, "{script}: {outcome:?}");
        outcome.out
    }
}

impl Drop for Ordinary {
    /// Removes leftover mounts if a test fails.
    fn drop(&mut self) {
        if is_mounted(&self.home.join("m")) {
            self.run("umount --force z");
        }
    }
}

/// A shell of the user that waits somewhere until it is told to go on.
struct Staying(Child);

impl Staying {
    /// A shell that runs `first`, waits, and then runs `rest`.
    fn new(user: &Ordinary, first: &str, rest: &str) -> Self {
        Self::with(user, &format!("{first} && echo there && read line\n{rest}"))
    }

    /// A shell whose script prints `there` when it has started.
    fn with(user: &Ordinary, script: &str) -> Self {
        let mut shell = unprivileged(&user.rzfs, Path::new("sh"));
        shell.args(["-c", script]).current_dir("/").env("M", user.path("m"));
        shell.env("STOP", user.path("stop"));
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut said).unwrap();
        Self(shell)
    }

    /// Lets it go on; returns its remaining output.
    fn go_on(mut self) -> Vec<String> {
        // It may not be reading.
        let _ = self.0.stdin.take().unwrap().write_all(b"\n");
        let written = BufReader::new(self.0.stdout.take().unwrap()).lines();
        written.collect::<Result<_, _>>().unwrap()
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
fn an_ordinary_user_sees_what_his_pool_counts() {
    let user = Ordinary::new();
    let stats = user.succeed("stats z");
    assert!(stats.starts_with("z: arcstats\n") && stats.contains("\nz: objset-0x"), "{stats}");
    assert_eq!(user.run("stats y").status, 1);
    user.succeed("umount z");
}

#[test]
fn who_writes_by_path_meanwhile_loses_nothing() {
    let user = Ordinary::new();
    user.succeed("zfs create z/c");
    let script = "echo there
        i=0
        while [ ! -e $STOP ]; do
            echo $i > $M/$i.file || echo lost
            echo $i > $M/c/$i || echo lost
            i=$((i+1))
        done
        echo $i";
    let writer = Staying::with(&user, script);
    for number in 0..20 {
        user.succeed(&format!("zfs create z/new{number}"));
        user.shell(&format!("ls $M | grep -qx new{number} && echo in > $M/new{number}/file"));
        user.succeed(&format!("zfs destroy z/new{number}"));
        user.shell(&format!("test ! -e $M/new{number} && ! ls $M | grep -qx new{number}"));
    }
    fs::write(user.path("stop"), "").unwrap();
    let written = writer.go_on();
    let count: u32 = written.concat().parse().unwrap_or_else(|_| panic!("{written:?}"));
    assert!(count > 20, "{count}");
    let counted = user.shell("ls $M | grep -c file; ls $M/c | wc -l");
    assert_eq!(counted, format!("{count}\n{count}\n"));
    user.succeed("umount z");
    assert_eq!(fs::read_dir(user.path("m")).unwrap().count(), 0, "written below the mount");
}

#[test]
fn files_are_made_without_names_in_every_child() {
    if !kernel_passes("O_TMPFILE", 6, 1) {
        return;
    }
    let user = Ordinary::new();
    user.succeed("zfs create z/c");
    let script = "
import errno, os, sys
root, child = sys.argv[1], sys.argv[1] + '/c'
def make(directory):
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b'text')
    return fd
def name(fd, path):
    os.link(f'/proc/self/fd/{fd}', path, src_dir_fd=fd, follow_symlinks=True)
for directory, other in [(child, root), (root, child)]:
    fd = make(directory)
    try:
        name(fd, other + '/elsewhere')
    except OSError as error:
        print(error.errno == errno.EXDEV, os.fstat(fd).st_nlink)
    name(fd, directory + '/named')
    print(open(directory + '/named').read(), os.fstat(fd).st_nlink, os.listdir(other).count('elsewhere'))
    make(directory)
";
    let said = user.shell(&["python3 -c \"", script, "\" $M"].concat());
    assert_eq!(said, "True 0\ntext 1 0\n".repeat(2));
    user.shell("cat $M/c/named $M/named");
    user.succeed("zfs unmount z/c");
    user.succeed("zfs mount z/c");
    assert_eq!(user.shell("cat $M/c/named"), "text");
    user.succeed("zfs destroy z/c");
    user.succeed("umount z");
}

#[test]
fn children_come_and_go_while_their_parent_is_in_use() {
    let user = Ordinary::new();
    user.shell("mkdir $M/dir && echo kept > $M/kept");
    let rest = "echo more >&3; echo inside > file; cat file $M/kept; pwd -P";
    let staying = Staying::new(&user, "cd $M/dir && exec 3>>$M/kept", rest);
    let lines = [
        ("zfs create z/x", "echo x > $M/x/file; cat $M/x/file"),
        ("zfs create -p z/x/y/z", "echo z > $M/x/y/z/file; cat $M/x/file"),
        ("zfs unmount z/x", "ls -A $M | grep -x x || echo x"),
        ("zfs mount z/x/y/z", "cat $M/x/y/z/file | tr z x; test ! -e $M/x/file"),
        ("zfs mount z/x", "cat $M/x/file; test -e $M/x/y/z/file"),
        ("zfs mount -a", "cat $M/x/file; test -e $M/x/y/z/file"),
        ("zfs rename z/x z/w", "cat $M/w/file; test ! -e $M/x && test -e $M/w/y/z/file"),
        ("zfs set readonly=on z/w", "cat $M/w/file; ! touch $M/w/new 2> /dev/null"),
        ("zfs inherit readonly z/w", "cat $M/w/file; touch $M/w/new"),
        ("zfs set canmount=off z/w/y/z", "cat $M/w/file; test ! -e $M/w/y/z"),
        ("zfs destroy -r z/w", "ls -A $M | grep -x w || echo x"),
        // An existing directory.
        ("zfs create z/dir", "echo x > $M/dir/file; cat $M/dir/file"),
        ("zfs unmount z/dir", "test ! -e $M/dir/file && echo x"),
    ];
    for (line, script) in lines {
        let done = user.run(line);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{line}: {done:?}");
        assert_eq!(user.shell(script), "x\n", "{line}");
    }
    assert_eq!(staying.go_on(), ["inside", "kept", "more", &user.path("m/dir")]);
    user.succeed("zfs destroy z/dir");
    assert_eq!(user.shell("cat $M/dir/file"), "inside\n");
    user.succeed("umount z");
}

/// A directory's inode number stays reserved for the mount on it, even when a file with that number
/// in replaced contents is closed.
#[test]
fn what_is_mounted_on_a_directory_stays_when_what_had_its_number_is_closed() {
    let user = Ordinary::new();
    user.succeed("zfs snapshot z@then");
    user.shell("for n in 1 2 3 4; do echo old > $M/old$n; done");
    let old = "exec 3<$M/old1 4<$M/old2 5<$M/old3 6<$M/old4";
    let holding = Staying::new(&user, old, "true");
    user.succeed("zfs rollback z@then");
    user.shell("mkdir $M/one $M/two $M/three");
    for name in ["one", "two", "three"] {
        user.succeed(&format!("zfs create z/{name}"));
        user.shell(&format!("echo in > $M/{name}/file"));
    }
    let all = "cd $M/one && exec 3<$M/two/file 4<$M/three/file";
    let inside = Staying::new(&user, all, "cat file");
    holding.go_on();
    for name in ["one", "two", "three"] {
        // This makes the kernel forget the name and look it up again.
        assert_eq!(user.run(&format!("zfs unmount z/{name}")).status, 1);
        assert_eq!(user.shell(&format!("cat $M/{name}/file")), "in\n", "{name}");
    }
    assert_eq!(inside.go_on(), ["in"]);
    user.succeed("umount z");
}

#[test]
fn a_child_keeps_the_directories_that_lead_to_it() {
    let user = Ordinary::new();
    user.shell("mkdir $M/way $M/empty");
    user.succeed("zfs create -o canmount=off z/way");
    user.succeed("zfs create z/way/in");
    user.shell("! rmdir $M/way 2> /dev/null && ! mv -T $M/empty $M/way 2> /dev/null");
    user.shell("echo in > $M/way/in/file");
    user.succeed("zfs destroy z/way/in");
    user.shell("mv -T $M/empty $M/way && rmdir $M/way");
    // A directory that exists only in the mount looks as if the user had made it.
    user.succeed("zfs create z/way/in");
    user.shell(
        "umask 22; mkdir $M/like && test $(stat -c %u:%g:%a $M/like) = $(stat -c %u:%g:%a $M/way)",
    );
    user.shell("find $M/way -maxdepth 0 -newer $M/way/in | grep -q . && test -w $M/way");
    user.succeed("umount z");
}

/// Its directory stays, although the contents around it no longer have it.
#[test]
fn a_child_that_a_rollback_has_covered_is_not_taken_away() {
    let user = Ordinary::new();
    user.succeed("zfs snapshot z@then");
    user.succeed("zfs create z/child");
    user.shell("echo in > $M/child/file");
    user.succeed("zfs rollback z@then");
    let script = "! rmdir $M/child 2> /dev/null && ! mv -T $M/child $M/other 2> /dev/null";
    user.shell(&format!("{script} && cat $M/child/file"));
    user.succeed("zfs destroy z/child");
    user.succeed("umount z");
}

#[test]
fn a_child_stands_for_a_directory_only() {
    let user = Ordinary::new();
    user.shell("echo in > $M/file && ln $M/file $M/other && mkdir $M/dir && ln -s dir $M/link");
    user.succeed("zfs create z/dir");
    for name in ["file", "link"] {
        let refused = user.run(&format!("zfs create z/{name}"));
        let is_told = refused.err.contains(&format!("cannot mount 'z/{name}': "));
        assert!(is_told && refused.err.contains("Not a directory"), "{refused:?}");
    }
    assert_eq!(user.shell("cat $M/file $M/other"), "in\nin\n");
    user.succeed("umount z");
    let mounted = user.run(&format!("mount {} {}", user.path("z.img"), user.path("m")));
    for name in ["file", "link"] {
        assert!(mounted.err.contains(&format!("cannot mount 'z/{name}': ")), "{mounted:?}");
    }
    assert_eq!(user.shell("cat $M/file && touch $M/dir/new"), "in\n");
    assert_eq!(user.succeed("zfs mount").lines().count(), 2);
    user.succeed("umount z");
}

/// A file system that could not be mounted, or was opened only for a quota, is not in use.
#[test]
fn what_is_not_mounted_is_destroyed_under_its_new_name() {
    let user = Ordinary::new();
    user.succeed("zfs create z/d");
    user.shell("echo in > $M/d/file && echo in > $M/d/other");
    for name in ["z/d/file", "z/d/other"] {
        let refused = user.run(&format!("zfs create {name}"));
        assert!(refused.err.contains("Not a directory"), "{refused:?}");
    }
    user.succeed("zfs create -u z/quota");
    user.succeed("zfs set userquota@1000=1M z/quota");
    user.succeed("zfs rename z/d/file z/renamed");
    user.succeed("zfs rename z/quota z/moved");
    user.succeed("zfs rename z/d z/e");
    for name in ["z/renamed", "z/moved", "-r z/e"] {
        user.succeed(&format!("zfs destroy {name}"));
    }
    assert_eq!(user.succeed("zfs list -Ho name"), "z\n");
    user.succeed("umount z");
}

#[test]
fn a_childs_name_is_taken_in_every_spelling() {
    let user = Ordinary::new();
    user.succeed("zfs create -o casesensitivity=insensitive z/any");
    user.succeed("zfs create z/any/Sub");
    user.shell("echo in > $M/any/sub/file && cat $M/any/SUB/file $M/any/Sub/file");
    for command in ["mkdir sub", "mkfifo SUB", "ln -T Sub/file sub", "rmdir sUB", "mv -T Sub other"]
    {
        user.shell(&format!("cd $M/any && ! {command} 2> /dev/null && cat sub/file"));
    }
    user.shell("mkdir $M/any/new && ! mv -T $M/any/new $M/any/sub 2> /dev/null");
    let refused = user.run("zfs create z/any/sub");
    assert!(refused.err.contains("cannot mount 'z/any/sub'"), "{refused:?}");
    user.shell("cat $M/any/SUB/file");
    user.succeed("zfs create -o canmount=off z/any/SUB");
    let below = user.run("zfs create z/any/SUB/below");
    assert!(below.err.contains("cannot mount 'z/any/SUB/below'"), "{below:?}");
    user.succeed("zfs unmount z/any/Sub");
    user.shell("cd $M/any && test ! -e sub && test ! -e SUB && test ! -e Sub && ls | grep -qx new");
    user.shell("cd $M/any && mkdir sub && test -d SUB");
    user.succeed("umount z");
}

#[test]
fn what_the_helper_refuses_is_told_in_one_line() {
    let user = Ordinary::new();
    user.succeed("umount z");
    let closed = user.rzfs.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let refused = user.run(&format!("mount {} {}", user.path("z.img"), closed.display()));
    assert_eq!(refused.status, 1, "{refused:?}");
    let is_told = refused.err.starts_with("cannot mount 'z': ") && refused.err.ends_with('\n');
    assert!(is_told && refused.err.lines().count() == 1, "{refused:?}");
}

/// Whether a file system is writable depends on itself, not on the one that is the shared mount.
#[test]
fn a_child_can_be_changed_in_a_parent_that_cannot() {
    let user = Ordinary::new();
    user.succeed("zfs create z/c");
    user.succeed("zfs create z/c/d");
    let written = "for at in . c c/d; do
            touch $M/$at/new 2> /dev/null && rm $M/$at/new && printf ' %s' $at
        done; true";
    for (line, names) in [
        ("zfs set readonly=on z", ""),
        ("zfs set readonly=off z/c", " c c/d"),
        ("zfs set readonly=on z/c/d", " c"),
        ("zfs set readonly=on z/c", ""),
        ("zfs inherit readonly z/c", ""),
        ("zfs inherit readonly z", " . c"),
        ("zfs inherit readonly z/c/d", " . c c/d"),
    ] {
        user.succeed(line);
        assert_eq!(user.shell(written), names, "{line}");
        assert_eq!(user.succeed("zfs mount").lines().count(), 3, "{line}");
    }
    user.succeed("umount z");
}

#[test]
fn who_only_looks_at_a_mount_does_not_keep_it_mounted() {
    let user = Ordinary::new();
    let (place, looking) = (user.path("m"), Arc::new(()));
    let is_wanted = Arc::downgrade(&looking);
    thread::spawn(move || {
        while is_wanted.strong_count() > 0 {
            let look = open(&place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            thread::sleep(Duration::from_millis(20));
            drop(look);
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mount = format!("mount {} {}", user.path("z.img"), user.path("m"));
    for _ in 0..5 {
        user.succeed("umount z");
        user.succeed(&mount);
    }
    user.succeed("umount z");
    drop(looking);
}

#[test]
fn a_child_that_is_in_use_stays_unless_it_is_forced() {
    let user = Ordinary::new();
    user.succeed("zfs create -p z/c/d");
    user.shell("mkdir $M/c/dir && echo kept > $M/c/file");
    let busy = format!("cannot unmount '{}': pool or dataset is busy\n", user.path("m/c"));
    for (first, rest) in [
        ("cd $M/c/dir", "echo new > new; cat new ../file; pwd -P"),
        ("cd /; exec 3<$M/c/file", "cat <&3"),
    ] {
        let staying = Staying::new(&user, first, rest);
        for line in ["zfs unmount z/c", "zfs rename z/c z/e", "zfs destroy -r z/c"] {
            let refused = user.run(line);
            assert_eq!((refused.status, &refused.err), (1, &busy), "{line}");
            assert_eq!(user.shell("ls $M; ls $M/c"), "c\nd\ndir\nfile\n", "{line}");
            let mounted = user.succeed("zfs mount");
            assert_eq!(mounted.lines().count(), 3, "{line}: {mounted}");
        }
        let written = staying.go_on();
        match rest {
            "cat <&3" => assert_eq!(written, ["kept"]),
            _ => assert_eq!(written, ["new", "kept", &user.path("m/c/dir")]),
        }
        user.shell("rm -f $M/c/dir/new");
    }
    let rest = "ls 2>&1; cat <&3 2>&1; echo lost > new; cat $M/kept";
    let staying = Staying::new(&user, "echo up > $M/kept; cd $M/c/dir && exec 3<../file", rest);
    user.succeed("zfs unmount -f z/c");
    assert_eq!(user.shell("ls $M"), "kept\n");
    let said = staying.go_on();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[..2].iter().all(|line| line.contains("Stale")) && said[2] == "up", "{said:?}");
    user.succeed("zfs mount z/c");
    assert_eq!(user.shell("cat $M/c/file; ls $M/c/dir"), "kept\n");
    user.succeed("zfs rename z/c z/e");
    user.succeed("zfs destroy -r z/e");
    user.succeed("umount z");
}

#[test]
fn a_mount_that_its_user_has_detached_is_made_again_beside_who_has_it() {
    let user = Ordinary::new();
    user.succeed("zfs create z/c");
    user.shell("echo kept > $M/c/file");
    let staying = Staying::new(&user, "cd $M/c", "cat file; echo behind > new; cat new");
    user.shell("fusermount3 -uz $M");
    assert_eq!(user.succeed("zfs get -Ho value mounted z z/c"), "no\nno\n");
    assert_eq!(user.succeed("zfs mount"), "");
    user.succeed("zfs mount -a");
    assert_eq!(user.succeed("zfs get -Ho value mounted z z/c"), "yes\nyes\n");
    assert_eq!(user.shell("cat $M/c/file"), "kept\n");
    let refused = user.run("umount z");
    assert!(refused.status == 1 && refused.err.contains("pool is busy"), "{refused:?}");
    let refused = user.run("zfs destroy z/c");
    assert!(refused.status == 1 && refused.err.contains("dataset is busy"), "{refused:?}");
    assert_eq!(staying.go_on(), ["kept", "behind"]);
    assert_eq!(user.shell("cat $M/c/new"), "behind\n");
    wait_until("nobody has it any more", || user.run("zfs destroy z/c").status == 0);
    user.succeed("umount z");
}

#[test]
fn what_the_kernel_has_to_know_of_a_mount_is_made_anew() {
    let user = Ordinary::new();
    user.succeed("zfs set acltype=posix z");
    user.succeed("zfs create z/with");
    let staying = Staying::new(&user, "cd $M", "");
    let refused = user.run("zfs create -o acltype=off z/without");
    assert!(refused.err.contains("busy"), "{refused:?}");
    drop(staying);
    user.succeed("zfs mount z/without");
    user.shell("echo in > $M/without/file && echo in > $M/with/file");
    user.succeed("zfs create -o rzfs:open=checked z/checked");
    user.shell("echo in > $M/checked/file && cat $M/without/file");
    user.succeed("umount z");
}

/// What holds after every command: the mount exists, the process is the same, and files can be read
/// and written.
fn assert_goes_on(user: &Ordinary, process: i32, line: &str, done: &Outcome) {
    assert!(is_mounted(&user.home.join("m")), "{line}: {done:?}");
    assert_eq!(user.process(), process, "{line}: {done:?}");
    let script = "cat $M/kept && echo $LINE > $M/written && cat $M/written && rm $M/written";
    let done = outcome(user.sh(script).env("LINE", line));
    assert_eq!((done.status, done.out), (0, format!("kept\n{line}\n")), "{line}: {}", done.err);
}

#[test]
fn every_command_leaves_an_ordinary_users_mount_where_it_is() {
    let user = Ordinary::new();
    user.shell("echo kept > $M/kept");
    let process = user.process();
    let (first, second) = (user.path("z.img"), user.path("second.img"));
    for key in ["key", "other"] {
        fs::write(user.home.join(key), format!("{key} of many words\n")).unwrap();
    }
    let at = |key: &str| format!("keylocation=file://{}", user.path(key));
    let encrypted = "encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    for line in [
        "zfs create z/c",
        "zfs create -p z/c/d/e",
        "zfs set compression=off z",
        "zfs set readonly=on z/c",
        "zfs inherit readonly z/c",
        "zfs set atime=off z",
        "zfs set org.example:note=mine z/c",
        "zfs set canmount=noauto z/c/d",
        "zfs inherit compression z",
        "zfs inherit -r atime z",
        "zfs set exec=off z",
        "zfs inherit exec z",
        "zfs set acltype=posix z",
        "zfs set acltype=off z",
        "zfs set rzfs:open=checked z",
        "zfs inherit rzfs:open z",
        "zfs set snapdir=visible z",
        "zfs set sync=always z",
        "zfs set sync=standard recordsize=16K z",
        "zfs set quota=64M z/c",
        "zfs set quota=none z/c",
        "zfs set userquota@65534=32M z",
        "zfs set userquota@65534=none z",
        "zfs set mountpoint=none z/c",
        "zfs inherit mountpoint z/c",
        "zfs set -u canmount=off z/c/d/e",
        "zfs set canmount=on z/c/d/e",
        "zfs rename z/c/d z/moved",
        "zfs rename -u z/moved z/renamed",
        "zfs rename -p z/renamed z/new/moved",
        "zfs rename -f z/new/moved z/moved",
        "zfs unmount z/moved/e",
        "zfs mount z/moved/e",
        "zfs mount -a",
        "zfs destroy -r z/moved",
        "zfs destroy -f z/new",
        "zfs destroy z/c",
        &format!("zfs create -o {encrypted} -o {} z/secret", at("key")),
        "zfs unmount z/secret",
        "zfs unload-key z/secret",
        "zfs load-key -n z/secret",
        "zfs load-key z/secret",
        &format!("zfs change-key -o {} z/secret", at("other")),
        "zfs unload-key -a",
        "zfs mount -l z/secret",
        "zfs unmount -f z/secret",
        "zfs destroy z/secret",
        "zpool set comment=ours z",
        "zpool set autotrim=on z",
        "zpool set failmode=continue z",
        "zpool set cachefile=none z",
        "zpool clear z",
        &format!("zpool clear z {first}"),
        "zpool upgrade z",
        "zpool upgrade -a",
        "zpool reguid z",
        "zpool sync z",
        "zpool sync",
        &format!("zpool add -n --size 96M z {second}"),
        &format!("zpool add --size 96M z {second}"),
        "zpool trim -w z",
        &format!("zpool trim z {first}"),
        "zpool wait z",
        &format!("zpool initialize -w z {second}"),
        &format!("zpool initialize -u z {second}"),
        "zpool wait -t initialize z",
        "zpool ddtprune -p 10 z",
        "zpool prefetch -t ddt z",
        "zpool status -v z",
        "zpool list -v z",
        "zpool get all z",
        "zpool history -il z",
        "zpool events -v z",
        "zpool events -c",
        "zfs list -r z",
        "zfs get all z",
        "zfs mount",
        "zfs upgrade",
        "zfs upgrade -a",
        "zfs wait z",
        "zfs create z/c",
        "zfs create z/c/in",
        "zfs snapshot z@one z/c@one",
        "zfs snapshot -r -o org.example:note=mine z@all",
        "zfs rename z@one z@first",
        "zfs rename -r z@all z@every",
        "zfs hold -r tag z@every",
        "zfs holds -r z@every",
        "zfs destroy -d z@every",
        "zfs release -r tag z@every",
        "zfs bookmark z@first z#mark",
        "zfs bookmark z#mark z#copy",
        "zfs destroy z#copy",
        "zfs diff z@first",
        "zfs diff -FHt z@first z",
        "zfs userspace z",
        "zfs groupspace -n z@first",
        "zfs projectspace z/c",
        &format!("zfs project -p 5 -s -r {}", user.path("m")),
        &format!("zfs project -c -r {}", user.path("m")),
        &format!("zfs project -C -r {}", user.path("m")),
        "zfs clone z/c@one z/clone",
        "zfs snapshot z/clone@later",
        "zfs promote z/clone",
        "zfs rollback z/clone@later",
        "zfs destroy -r z/c",
        "zfs clone -p z/clone@one z/new/clone",
        "zfs destroy -R z/clone@one",
        "zfs destroy -r z/clone",
        "zfs destroy -r z/new",
        "zfs snapshot z@last",
        "zfs rollback z@last",
        "zfs rollback -r z@first",
        "zfs upgrade z",
        "zfs upgrade -r -V 5 z",
        "zfs wait -t deleteq z",
        "zfs send -nv z@first",
    ] {
        let outcome = user.run(line);
        assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
        assert_goes_on(&user, process, line, &outcome);
    }
    user.succeed("zfs snapshot z@second");
    for line in [
        "zfs send z@first > $S",
        "zfs send -i @first z@second > $I",
        "zfs send -R z@second > $S.all",
        "zfs receive z/received < $S",
        "zfs receive -F z/received < $I",
        "zfs receive -nv z/other < $S",
        "zfs receive -d z/received < $S.all",
        "! head -c 3000 $S | $R zfs receive -s z/part",
        "zfs send -t $($R zfs get -Ho value receive_resume_token z/part) > /dev/null",
        "zfs receive -A z/part",
        "zfs destroy -r z/received",
        "zfs destroy z@first%second",
    ] {
        let script = if line.starts_with('!') { line.to_owned() } else { format!("$R {line}") };
        let mut shell = user.sh(&script);
        shell.env("R", user.path("rzfs")).env("S", user.path("stream")).env("I", user.path("more"));
        let outcome = outcome(&mut shell);
        assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
        assert_goes_on(&user, process, line, &outcome);
    }
    for line in [
        "zfs destroy z",
        "zfs destroy z/missing",
        "zfs rename z/missing z/c",
        "zfs rename z z/c",
        "zfs create z",
        "zfs set nothing=1 z",
        "zfs set compression=nothing z",
        "zfs mount z",
        "zfs unmount z/missing",
        "zfs unload-key z",
        "zfs load-key z",
        "zfs snapshot z@bad@name",
        "zfs snapshot z/missing@one",
        "zfs destroy z@missing",
        "zfs rollback z@missing",
        "zfs clone z@missing z/c",
        "zfs promote z",
        "zfs hold tag z@missing",
        "zfs release tag z@missing",
        "zfs bookmark z@missing z#bad",
        "zfs send z@missing",
        "zfs receive z/new",
        "zfs receive -A z",
        "zfs diff z@missing",
        "zfs userspace z/missing",
        "zfs upgrade z/missing",
        "zfs wait z/missing",
        "zpool clear z missing",
        "zpool set nothing=1 z",
        &format!("zpool add z {first}"),
        &format!("zpool create z {first}"),
        &format!("zpool create other {second}"),
        &format!("zpool labelclear {second}"),
        &format!("zpool import -d {} z", user.home.display()),
        &format!("mount {first} {second} {}", user.path("m")),
    ] {
        let outcome = user.run(line);
        assert_ne!(outcome.status, 0, "{line}: {outcome:?}");
        assert_goes_on(&user, process, line, &outcome);
    }
    let staying = Staying::new(&user, "cd $M", "cat kept");
    for line in [
        "umount z",
        "zpool export z",
        "zpool export -a",
        "zpool destroy z",
        "zfs unmount z",
        "zfs unmount -a",
        "zfs set mountpoint=/elsewhere z",
        "zfs set canmount=off z",
    ] {
        let outcome = user.run(line);
        assert_ne!(outcome.status, 0, "{line}: {outcome:?}");
        assert_goes_on(&user, process, line, &outcome);
    }
    assert_eq!(staying.go_on(), ["kept"]);
    user.succeed("zfs create z/files");
    user.shell("echo inside > $M/files/file");
    user.succeed("umount z");
    assert!(!is_mounted(&user.home.join("m")));
    user.succeed(&format!("mount {first} {second} {}", user.path("m")));
    assert_eq!(user.shell("cat $M/files/file $M/kept"), "inside\nkept\n");
    // A command that ends the last mount also ends the process, which still replies.
    user.succeed("zfs unmount z");
    assert!(!is_mounted(&user.home.join("m")));
}

#[test]
fn what_nobody_may_execute_is_no_program() {
    let user = Ordinary::new();
    let tests = "printf '#!/bin/sh\\n' > $M/f; mkdir $M/d; chmod 644 $M/f; test -x $M/f && echo file; \
                 test -x $M/d && echo directory; test -r $M/f && echo reads; \
                 chmod 744 $M/f; test -x $M/f && echo program; cd $M/d && $M/f && echo runs";
    assert_eq!(user.shell(tests), "directory\nreads\nprogram\nruns\n");
    user.succeed("umount z");
}

#[test]
fn a_pool_is_reached_after_its_user_has_logged_out() {
    let user = Ordinary::new();
    user.succeed("umount z");
    // Pools of several tests may be in the fallback directory.
    let pool = format!("z{}", std::process::id());
    let (image, directory, session) = (user.path("z.img"), user.path("m"), user.path("session"));
    let run = |line: &str, session: Option<&str>| {
        let mut command = unprivileged(&user.rzfs, &user.home.join("rzfs"));
        command.env_remove("RZFS_RUNTIME_DIR").env_remove("XDG_RUNTIME_DIR");
        command.envs(session.map(|session| ("XDG_RUNTIME_DIR", session))).args(line.split(' '));
        outcome(&mut command)
    };
    let log_in = || user.shell(&format!("mkdir -m 700 {session}"));
    let log_out = || user.shell(&format!("rm -r {session}"));
    user.succeed(&format!("zpool import -N -d {} z {pool}", user.home.display()));
    user.succeed(&format!("zpool export {pool}"));
    log_in();
    let socket = user.home.join("session/rzfs").join(format!("{pool}.sock"));
    for name_of_target in [&pool, &directory] {
        let mounted = run(&format!("mount {image} {directory}"), Some(&session));
        assert_eq!((mounted.status, mounted.err.as_str()), (0, ""), "{mounted:?}");
        user.shell("echo kept > $M/kept");
        assert!(socket.exists());
        log_out();
        let list = format!("zpool list -Ho name {pool}");
        wait_until("it is found again", || run(&list, None).out == format!("{pool}\n"));
        // The socket is in the session's directory again after the user logs in.
        assert!(!socket.exists() && !user.home.join("session").exists());
        log_in();
        assert_eq!(run(&list, Some(&session)).out, format!("{pool}\n"));
        let ended = run(&format!("umount {name_of_target}"), Some(&session));
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{ended:?}");
        assert!(!is_mounted(&user.home.join("m")));
    }
    // The session may be back before the process has checked.
    let mounted = run(&format!("mount {image} {directory}"), Some(&session));
    assert_eq!((mounted.status, mounted.err.as_str()), (0, ""), "{mounted:?}");
    // The directory is exchanged atomically, or the process might check in between.
    let next = user.path("next");
    user.shell(&format!("mkdir -m 700 {next}"));
    renameat_with(CWD, &session, CWD, &next, RenameFlags::EXCHANGE).unwrap();
    wait_until("it is where it was", || socket.exists());
    assert_eq!(run(&format!("umount {pool}"), Some(&session)).status, 0);
    assert!(!socket.exists());
    // The session directory may belong to another user.
    for line in [format!("mount {image} {directory}"), format!("umount {pool}")] {
        let done = run(&line, Some("/"));
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
    }
}

#[test]
fn root_reaches_the_pools_of_users_that_it_is_told_of() {
    if !has_root("nobody else reaches them") {
        return;
    }
    let user = Ordinary::new();
    for line in ["zfs create z/c", "zpool sync", "zpool status z"] {
        let done = outcome(user.rzfs.command().args(line.split(' ')));
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{line}: {done:?}");
    }
    assert_eq!(user.succeed("zfs list -Ho name"), "z\nz/c\n");
    // Root's own pools are not among the user's.
    let image = user.path("root.img");
    let made = outcome(user.rzfs.command().args(["zpool", "create", "--size", "96M", "r", &image]));
    assert_eq!(made.status, 1, "{made:?}");
    assert!(made.err.contains("only its owner"), "{made:?}");
    assert!(!Path::new(&image).exists());
    // A link made by the user does not lead root to root's own pools.
    let mut own = user.rzfs.command();
    own.env("RZFS_RUNTIME_DIR", user.rzfs.path("own")).args(["zpool", "create", "--size", "96M"]);
    let own = outcome(own.arg("r").arg(&image));
    assert_eq!((own.status, own.err.as_str()), (0, ""), "{own:?}");
    let sockets = ["own", "run"].map(|name| user.rzfs.path(name).join("rzfs/r.sock"));
    symlink(&sockets[0], &sockets[1]).unwrap();
    let destroyed = outcome(user.rzfs.command().args(["zpool", "destroy", "r"]));
    assert_eq!(destroyed.status, 1, "{destroyed:?}");
    let mut export = user.rzfs.command();
    export.env("RZFS_RUNTIME_DIR", user.rzfs.path("own")).args(["zpool", "export", "r"]);
    assert_eq!(outcome(&mut export).status, 0);
    user.succeed("umount z");
}

/// Runs a script where users may let others in, which root configures. The configuration file is
/// replaced in its own mount namespace and root directory.
fn where_others_may_come_in(user: &Ordinary, script: &str) -> Outcome {
    let (root, settings) = (user.rzfs.path("root"), user.rzfs.path("fuse.conf"));
    fs::create_dir(&root).unwrap();
    fs::write(&settings, "user_allow_other\n").unwrap();
    // The copied mounts of other tests would stay in use as long as they are here.
    let world = "umount -a -c -i -l -t fuse.rzfs; mount --rbind / $ROOT && mount --bind $SETTINGS $ROOT/etc/fuse.conf &&
        exec chroot $ROOT sh -c \"$SCRIPT\"";
    let script = format!(
        "rzfs() {{ $USER_IS $HOME_IS/rzfs \"$@\"; }}
        trap 'rzfs umount --force z 2> /dev/null' EXIT
        cd / && set -e
        {script}"
    );
    let mut shell = user.rzfs.prepared(Command::new("unshare"));
    shell.args(["--mount", "--propagation", "private", "sh", "-c", world]);
    shell.env("ROOT", root).env("SETTINGS", settings).env("SCRIPT", script);
    shell.env("USER_IS", "setpriv --reuid=65534 --regid=65534 --clear-groups");
    shell.env("OTHER_IS", "setpriv --reuid=1234 --regid=1234 --clear-groups");
    shell.env("HOME_IS", &user.home).env("IMAGE", user.path("z.img")).env("M", user.path("m"));
    outcome(&mut shell)
}

/// Runs a script of root in its own mount namespace. `hide_helper` removes `fusermount3` and all
/// programs except a few in `$TOOLS`; `hide_device` removes `/dev/fuse`; `replace_helper` replaces
/// the helper by a script until `$helper` is unmounted.
fn where_something_is_missing(user: &Ordinary, script: &str) -> Outcome {
    let tools = user.rzfs.path("tools");
    fs::create_dir_all(&tools).unwrap();
    let world = format!(
        "umount -a -c -i -l -t fuse.rzfs
        cp $(command -v setpriv) $(command -v mount) $(command -v umount) $TOOLS || exit
        rzfs() {{ $TOOLS/setpriv --reuid=65534 --regid=65534 --clear-groups $HOME_IS/rzfs \"$@\"; }}
        hide_helper() {{
            for at in /bin /usr/bin /sbin /usr/sbin; do $TOOLS/mount -t tmpfs none $at; done
        }}
        replace_helper() {{
            helper=$(command -v fusermount3)
            printf '#!/bin/sh\n%s\n' \"$1\" > $TOOLS/other && chmod 755 $TOOLS/other || exit
            mount --bind $TOOLS/other $helper || exit
        }}
        hide_device() {{
            mkdir -p $TOOLS/dev && mount -t tmpfs none $TOOLS/dev || exit
            for at in null zero urandom; do
                touch $TOOLS/dev/$at && mount --bind /dev/$at $TOOLS/dev/$at || exit
            done
            mount --rbind $TOOLS/dev /dev
        }}
        is_mounted() {{
            while read -r _ at _; do test \"$at\" = $M && return 0; done < /proc/self/mounts
            return 1
        }}
        cd /
        {script}"
    );
    let mut shell = user.rzfs.prepared(Command::new("unshare"));
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &world]);
    shell.env("TOOLS", tools).env("HOME_IS", &user.home);
    shell.env("IMAGE", user.path("z.img")).env("M", user.path("m"));
    outcome(&mut shell)
}

#[test]
fn the_helper_is_asked_for_nothing_that_it_would_not_do() {
    let user = Ordinary::without_pool();
    let (helper, asked, image) = (user.path("helper"), user.path("asked"), user.path("z.img"));
    let script = format!("#!/bin/sh\necho \"$@\" >> {asked}\nexec fusermount3 \"$@\"\n");
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let rzfs = format!("FUSERMOUNT_PATH={helper} {}", user.path("rzfs"));
    user.shell(&format!("{rzfs} zpool create --size 96M -R $M z {image}"));
    user.succeed("zpool export z");
    user.shell(&format!("{rzfs} zpool import -d {image} -R $M z"));
    user.succeed("zpool export z");
    let asked = fs::read_to_string(asked).unwrap();
    let options: Vec<&str> = asked.split([' ', ',', '\n']).collect();
    assert_eq!(options.iter().filter(|word| **word == "fsname=z").count(), 2, "{asked}");
    assert!(!options.iter().any(|word| ["dev", "suid"].contains(word)), "{asked}");
}

#[test]
fn who_cannot_mount_is_told_what_is_missing() {
    if !has_root("only root has a tree of mounts of its own") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    let root = user.rzfs.path("own");
    for (hide, missing) in [
        ("hide_helper", "fusermount3 is not there: install the package 'fuse3'"),
        ("hide_device", "/dev/fuse is not there: load the kernel's module ('modprobe fuse')"),
    ] {
        let script = format!(
            "{hide}
            rzfs mount $IMAGE $M && echo mounted
            rzfs zpool import -d $IMAGE -R $M z && echo mounted
            rzfs zfs mount z && echo mounted
            rzfs zpool export z"
        );
        let done = where_something_is_missing(&user, &script);
        let told = done.err.lines().filter(|line| line.contains(missing)).count();
        assert_eq!((told, done.err.lines().count(), done.out.as_str()), (3, 3, ""), "{done:?}");
        assert!(!done.err.contains("No such file"), "{done:?}");
    }
    // Root needs no helper.
    let script = format!(
        "hide_device
        RZFS_RUNTIME_DIR={0} $HOME_IS/rzfs zpool create --size 96M -R {0} r {0}/r.img && echo mounted
        RZFS_RUNTIME_DIR={0} $HOME_IS/rzfs zpool export r",
        root.display()
    );
    fs::create_dir(&root).unwrap();
    let done = where_something_is_missing(&user, &script);
    assert!(done.out.is_empty() && done.err.lines().count() == 1, "{done:?}");
    assert!(done.err.contains("/dev/fuse is not there"), "{done:?}");
}

#[test]
fn a_pool_that_cannot_be_unmounted_any_more_is_let_go_of_by_force() {
    if !has_root("only root has a tree of mounts of its own") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    let missing = "fusermount3 is not there: install the package 'fuse3'";
    let place = user.path("m");
    let refused = format!("cannot unmount '{place}': {missing}");
    let left =
        format!("'{place}' could not be unmounted: {missing}; 'umount -l {place}' removes it");
    for command in ["zpool export -f z", "umount --force z"] {
        let script = format!(
            "rzfs mount $IMAGE $M
            $TOOLS/setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"echo '{command}' > $M/file\"
            hide_helper
            rzfs umount z
            is_mounted && rzfs zpool list -Ho name
            rzfs {command}
            echo $?
            rzfs zpool list -Ho name z 2> /dev/null
            is_mounted && $TOOLS/umount -l $M
            is_mounted || echo removed"
        );
        let done = where_something_is_missing(&user, &script);
        assert_eq!(done.out, "z\n1\nremoved\n", "{command}: {done:?}");
        let lines: Vec<_> = done.err.lines().collect();
        assert!(lines.contains(&refused.as_str()), "{command}: {done:?}");
        assert!(lines.contains(&left.as_str()), "{command}: {done:?}");
        user.succeed(&format!("mount {} {place}", user.path("z.img")));
        assert_eq!(user.shell("cat $M/file"), format!("{command}\n"));
        user.succeed("umount z");
    }
    let script = "
        $TOOLS/setpriv --reuid=65534 --regid=65534 --clear-groups \
            $HOME_IS/rzfs mount --foreground $IMAGE $M 2> $TOOLS/said &
        until is_mounted; do sleep 0.1; done
        $TOOLS/setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"echo signal > $M/file\"
        hide_helper
        kill -TERM $!
        wait $!
        echo $?
        $TOOLS/umount -l $M";
    let done = where_something_is_missing(&user, script);
    assert_eq!(done.out, "1\n", "{done:?}");
    let said = fs::read_to_string(user.rzfs.path("tools/said")).unwrap();
    assert!(said.contains(&left), "{said}");
    user.succeed(&format!("mount {} {place}", user.path("z.img")));
    assert_eq!(user.shell("cat $M/file"), "signal\n");
    user.succeed("umount z");
}

/// Changes through a mapping have not been sent in a request yet.
#[test]
fn what_only_the_kernel_knows_of_is_written_before_a_mount_is_left() {
    if !has_root("only root has a tree of mounts of its own") || !has_python() {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    fs::write(user.home.join("map.py"), CHANGE_IN_MEMORY).unwrap();
    let script = format!(
        "rzfs mount $IMAGE $M
        as_user() {{ $TOOLS/setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }}
        as_user sh -c \"head -c 4096 /dev/zero > $M/page\"
        as_user {PYTHON} $HOME_IS/map.py $M/page $HOME_IS/ready mapped > /dev/null 2>&1 &
        until test -e $HOME_IS/ready; do sleep 0.1; done
        hide_helper
        rzfs umount --force z
        $TOOLS/umount -l $M
        kill $!"
    );
    let done = where_something_is_missing(&user, &script);
    assert!(done.err.contains("could not be unmounted"), "{done:?}");
    user.succeed(&format!("mount {} {}", user.path("z.img"), user.path("m")));
    assert_eq!(user.shell("head -c 6 $M/page"), "mapped");
    user.succeed("umount z");
}

/// A helper that fails today may succeed tomorrow.
#[test]
fn a_pool_whose_mount_could_be_unmounted_later_is_not_let_go_of() {
    if !has_root("only root has a tree of mounts of its own") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    let script = "
        rzfs mount $IMAGE $M || exit
        replace_helper 'echo Cannot allocate memory >&2; exit 1'
        for command in 'zpool export -f z' 'umount --force z'; do
            rzfs $command
            echo $?
            rzfs zpool list -Ho name
        done
        $TOOLS/setpriv --reuid=65534 --regid=65534 --clear-groups \
            sh -c \"echo alive > $M/file; cat $M/file\"
        umount $helper
        rzfs zpool export z && echo exported";
    let done = where_something_is_missing(&user, script);
    assert_eq!(done.out, "1\nz\n1\nz\nalive\nexported\n", "{done:?}");
    let refused = format!("cannot unmount '{}': Cannot allocate memory", user.path("m"));
    assert_eq!(done.err.lines().collect::<Vec<_>>(), [&refused, &refused], "{done:?}");
}

#[test]
fn a_helper_that_always_fails_keeps_no_process() {
    if !has_root("only root has a tree of mounts of its own") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    // As with too small a stack limit, which it inherits from this process.
    let script = "
        rzfs mount $IMAGE $M || exit
        replace_helper 'kill -SEGV $$'
        for command in 'umount z' 'umount --force z'; do
            rzfs $command
            echo $?
        done
        rzfs zpool list -Ho name z 2> /dev/null
        umount $helper
        $TOOLS/umount -l $M && echo removed";
    let done = where_something_is_missing(&user, script);
    assert_eq!(done.out, "1\n1\nremoved\n", "{done:?}");
    let lines: Vec<_> = done.err.lines().collect();
    let [refused, left] = lines.as_slice() else { panic!("{done:?}") };
    assert!(refused.starts_with("cannot unmount") && refused.contains("SIGSEGV"), "{done:?}");
    assert!(left.contains("SIGSEGV") && left.contains("'umount -l"), "{done:?}");
    user.succeed(&format!("mount {} {}", user.path("z.img"), user.path("m")));
}

#[test]
fn what_a_helper_has_mounted_that_is_elsewhere_it_unmounts() {
    if !has_root("only root has a tree of mounts of its own") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    let script = "
        touch $TOOLS/own && mount --bind $(command -v fusermount3) $TOOLS/own || exit
        hide_helper
        export FUSERMOUNT_PATH=$TOOLS/own
        rzfs mount $IMAGE $M && is_mounted && echo mounted
        rzfs umount z
        is_mounted || echo unmounted";
    let done = where_something_is_missing(&user, script);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("mounted\nunmounted\n", ""), "{done:?}");
}

#[test]
fn who_may_not_mount_where_a_pool_says_is_told_how_to_name_a_place() {
    let user = Ordinary::without_pool();
    // Only root can make this in the root directory.
    let (pool, image) = ("nobodys-place", user.path("n.img"));
    let told = |line: &str, status: i32| {
        let done = user.run(line);
        assert_eq!(done.status, status, "{line}: {done:?}");
        let lines: Vec<_> = done.err.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2, "{line}: {done:?}");
        assert!(lines[0].starts_with(&format!("cannot mount '{pool}': /{pool}: ")), "{done:?}");
        lines[1].clone()
    };
    let advice = told(&format!("zpool create --size 96M {pool} {image}"), 1);
    assert!(advice.starts_with(&format!("'{pool}' was created and is imported")), "{advice}");
    assert_eq!(user.succeed("zpool list -Ho name"), format!("{pool}\n"));
    user.succeed(&format!("zpool export {pool}"));
    let advice = told(&format!("mount {image}"), 1);
    assert_eq!(advice, "name a directory: rzfs mount IMAGE DIRECTORY");
    let advice = told(&format!("zpool import -d {image} {pool}"), 1);
    assert!(advice.starts_with("the pool is imported: 'zfs set mountpoint="), "{advice}");
    // The advice in the message.
    user.succeed(&format!("zfs set mountpoint={} {pool}", user.path("m")));
    user.succeed(&format!("zfs mount {pool}"));
    assert!(is_mounted(&user.home.join("m")));
    user.succeed(&format!("zpool export {pool}"));
    let rooted = format!("zpool create --size 96M -R {} z {}", user.path("m"), user.path("z.img"));
    user.succeed(&rooted);
    user.succeed("zpool export z");
}

#[test]
fn a_mount_for_everyone_becomes_read_only_with_what_is_in_it() {
    if !has_root("only root lets users open their mounts to others") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    let script = "rzfs mount -o allow_other $IMAGE $M
        rzfs zfs create -p z/c/d
        chmod 755 $M $M/c $M/c/d
        $USER_IS sh -c 'for at in . c c/d; do echo $at > $M/$at/file; done'
        all() { for at in . c c/d; do $OTHER_IS cat $M/$at/file; done; rzfs zfs mount | wc -l; }
        write() { $USER_IS touch $M/$1/file 2>&1 | grep -o 'Read-only' || echo $1; }
        all; rzfs zfs set readonly=on z; all
        for at in . c c/d; do write $at; done
        rzfs zfs inherit readonly z; all
        for at in . c c/d; do write $at; done
        rzfs umount z
        rzfs mount -o ro,allow_other $IMAGE $M; all
        rzfs umount z";
    let done = where_others_may_come_in(&user, script);
    let all = ".\nc\nc/d\n3\n";
    let refused = "Read-only\n".repeat(3);
    let expected = format!("{all}{all}{refused}{all}.\nc\nc/d\n{all}");
    assert_eq!((done.out.as_str(), done.err.as_str()), (expected.as_str(), ""), "{done:?}");
}

#[test]
fn a_mount_for_everyone_has_the_lists_of_each_file_system() {
    if !has_root("only root lets users open their mounts to others") {
        return;
    }
    let user = Ordinary::new();
    user.succeed("umount z");
    let script = "rzfs mount -o allow_other $IMAGE $M
        rzfs zfs create z/before
        rzfs zfs create -o acltype=posix z/lists
        rzfs zfs create z/without
        chmod 755 $M $M/*
        for at in . before lists without; do
            $USER_IS sh -c \"umask 027; echo $at > $M/$at/file\"
        done
        $USER_IS setfacl -m u:1234:r--,g::--- $M/lists/file
        stat -c %a $M/lists/file
        look() { for at in . before lists without; do $1 cat $M/$at/file 2> /dev/null || echo no; done; }
        look \"$OTHER_IS\"
        look 'setpriv --reuid=1235 --regid=65534 --clear-groups'
        for at in . before without; do
            $USER_IS setfacl -m u:1234:r-- $M/$at/file 2>&1 | grep -o 'not supported'
        done
        getfacl -cp $M/without/file
        rzfs umount z";
    let done = where_others_may_come_in(&user, script);
    let expected = "640\nno\nno\nlists\nno\n.\nbefore\nno\nwithout\n\
        not supported\nnot supported\nnot supported\nuser::rw-\ngroup::r--\nother::---\n\n";
    assert_eq!((done.out.as_str(), done.err.as_str()), (expected, ""), "{done:?}");
}

#[test]
fn a_child_covers_no_other_that_is_spelt_differently() {
    let user = Ordinary::new();
    user.succeed("zfs create -o casesensitivity=insensitive z/any");
    user.succeed("zfs create -o canmount=off z/any/SUB");
    user.succeed("zfs create z/any/SUB/below");
    user.shell("echo kept > $M/any/SUB/below/file");
    let refused = user.run("zfs create z/any/sub");
    assert!(refused.err.contains("cannot mount 'z/any/sub'"), "{refused:?}");
    user.shell("cat $M/any/sub/below/file");
    user.succeed("umount z");
}

/// Listing the parent returns the number of the file system, not of the directory below it.
#[test]
fn who_is_in_a_child_keeps_its_name_when_the_directory_around_is_listed() {
    let user = Ordinary::new();
    for name in ["z/a", "z/a/b", "z/a/b/c"] {
        user.succeed(&format!("zfs create {name}"));
    }
    let place = user.path("m/a");
    let seen =
        user.shell("cd $M/a; touch ../new; ls -f .. > /dev/null; /bin/pwd; ls -f $M; /bin/pwd");
    let names: Vec<_> = seen.lines().filter(|line| line.starts_with('/')).collect();
    assert_eq!(names, [&place; 2]);
    // Each has one inode number, whichever way it is read.
    let numbers = "cd $M/a/b && mkdir -p c/d/e && stat -c %i . ../b && ls -id $PWD && \
        ls -fi .. | grep ' b$' && cat ../new 2> /dev/null; find $M > /dev/null && du -s $M > /dev/null";
    let numbers = user.shell(numbers);
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let numbers: Vec<_> = numbers.lines().map(first).collect();
    assert!(numbers.len() == 4 && numbers.iter().all(|one| *one == numbers[0]), "{numbers:?}");
    user.succeed("zfs unmount z/a/b/c");
    user.succeed("umount z");
}

/// As when a container, or its user, has too many processes.
#[test]
fn what_is_written_while_no_thread_can_be_started_is_kept() {
    let user = Ordinary::new();
    // In some containers even root may not.
    let limit = format!("prlimit --pid {} --nproc", user.process());
    let before = user.shell(&format!("{limit} --output SOFT --noheadings --raw"));
    user.shell(&format!("{limit}=1:"));
    user.shell("for i in 1 2 3; do head -c 4000000 /dev/urandom > $M/$i; done; sync $M/3");
    user.succeed("zpool sync z");
    assert!(user.succeed("zpool status z").contains("state: ONLINE"));
    assert_eq!(user.succeed("zpool list -Ho name"), "z\n");
    let sums = user.shell("cd $M && sha256sum 1 2 3");
    user.shell(&format!("{limit}={}:", before.trim()));
    user.succeed("umount z");
    user.succeed(&format!("mount {} {}", user.path("z.img"), user.path("m")));
    assert_eq!(user.shell("cd $M && sha256sum 1 2 3"), sums);
    user.succeed("umount z");
}

#[test]
fn a_device_is_initialized_as_soon_as_a_thread_can_be_started_for_it() {
    let user = Ordinary::new();
    let limit = format!("prlimit --pid {} --nproc", user.process());
    let before = user.shell(&format!("{limit} --output SOFT --noheadings --raw"));
    user.shell(&format!("{limit}=1:"));
    user.succeed("zpool initialize z");
    let status = || user.succeed("zpool status -i z");
    assert!(status().contains("(0% initialized, started"), "{}", status());
    user.shell(&format!("{limit}={}:", before.trim()));
    // No further command is needed: this is checked every few transaction groups.
    wait_until("it is initialized", || {
        user.succeed("zpool sync z");
        status().contains("(100% initialized, completed")
    });
    user.succeed("umount z");
}

/// The mode of a file is set last: before that, its access control lists are not complete, and its
/// owner could not set attributes on a read-only file.
#[test]
fn copies_of_files_that_may_not_be_written_keep_their_attributes() {
    if !has_python() {
        return;
    }
    let user = Ordinary::new();
    let (image, made, copy) = (user.path("z.img"), user.path("m/f"), user.path("copy"));
    let attribute = |file: &str, what: &str| {
        let script = format!("{PYTHON} -c 'import os; {what}' {file}");
        user.shell(&script.replace("FILE", &format!("\"{file}\"")))
    };
    attribute(&made, "open(FILE, \"w\").close(); os.setxattr(FILE, \"user.note\", b\"told\")");
    user.shell(&format!("chmod 400 {made}"));
    user.succeed("umount z");
    user.succeed(&format!("cp -a -q -d {image} z:/f {copy}"));
    assert_eq!(attribute(&copy, "print(os.getxattr(FILE, \"user.note\"))"), "b'told'\n");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o400);
}
