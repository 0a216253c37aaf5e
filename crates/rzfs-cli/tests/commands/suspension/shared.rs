//! The shared mount of an ordinary user, with all file systems of a pool, while the devices of the
//! pool fail.

use super::{SmallHost, answer_of};
use crate::harness::{Outcome, is_mounted, outcome, wait_until};
use crate::mounts::unprivileged;
use crate::ordinary::Ordinary;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// A suspended pool `z` with the file systems `z` and `z/c`, and processes that write to both.
pub(super) struct Shared {
    pub(super) user: Ordinary,
    host: SmallHost,
    pub(super) image: String,
    writers: Vec<Child>,
}

impl Shared {
    /// `None` if the host of limited size cannot be mounted.
    fn new() -> Option<Self> {
        Self::prepared(|_| ())
    }

    /// The same, after `prepare` has run on the pool.
    pub(super) fn prepared(prepare: impl FnOnce(&Ordinary)) -> Option<Self> {
        let user = Ordinary::without_pool();
        let images = user.rzfs.path("images");
        fs::create_dir(&images).unwrap();
        let host = SmallHost::mount(images.clone(), "48M")?;
        chown(&images, Some(65534), Some(65534)).unwrap();
        let image = images.join("z.img").to_str().unwrap().to_owned();
        user.succeed(&format!("zpool create --size 256M -O compression=off --export z {image}"));
        user.succeed(&format!("mount {image} {}", user.path("m")));
        user.succeed("zfs create z/c");
        user.shell("echo kept > $M/kept && echo inside > $M/c/kept");
        prepare(&user);
        user.succeed("zpool sync z");
        let mut this = Self { user, host, image, writers: Vec::new() };
        this.write("head -c 64M /dev/zero > $M/c/large");
        wait_until("the pool is suspended", || {
            this.user.run("zpool get -Ho value health z").out == "SUSPENDED\n"
        });
        // More than there are processors, for each file system.
        for number in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            for at in ["", "c/"] {
                this.write(&format!("head -c 3M /dev/zero > $M/{at}waits{number}"));
            }
        }
        // Give them time to reach the point where they wait.
        thread::sleep(Duration::from_millis(500));
        Some(this)
    }

    fn write(&mut self, script: &str) {
        // Some of them print that the write failed.
        self.writers.push(self.user.sh(script).stderr(Stdio::null()).spawn().unwrap());
    }

    /// Runs a program of the user that must not wait for the pool.
    fn prompt(&self, words: &[&str]) -> Outcome {
        let mut command = unprivileged(&self.user.rzfs, Path::new("timeout"));
        command.args(["-s", "KILL", "60"]).args(words).env("M", self.user.path("m"));
        let outcome = outcome(&mut command);
        assert!(![-1, 137].contains(&outcome.status), "{words:?} waits: {outcome:?}");
        outcome
    }

    fn command(&self, line: &str) -> Outcome {
        let binary = self.user.path("rzfs");
        self.prompt(&[&[binary.as_str()][..], &line.split(' ').collect::<Vec<_>>()].concat())
    }

    fn shell(&self, script: &str) -> Outcome {
        self.prompt(&["sh", "-c", script])
    }

    /// Reads succeed in both file systems.
    fn read(&self) {
        let script =
            "cat $M/kept $M/c/kept && ls -l $M $M/c > /dev/null && test ! -e $M/c/missing &&
            stat $M/waits0 $M/c/waits0 > /dev/null && find $M -name kept | wc -l";
        let read = self.shell(script);
        assert_eq!((read.status, read.out.as_str()), (0, "kept\ninside\n2\n"), "{read:?}");
    }

    /// Commands report the state of the pool, or that they cannot be executed.
    fn ask(&self) {
        assert!(self.command("zpool status z").out.contains(" state: SUSPENDED\n"));
        assert!(self.command("zpool list").out.contains("SUSPENDED"));
        assert_eq!(self.command("zfs list -Ho name").out, "z\nz/c\n");
        assert_eq!(self.command("zfs mount").out.lines().count(), 2);
        for (line, what) in [
            ("zpool sync z", "cannot sync 'z'"),
            ("zfs unmount z/c", "cannot unmount 'z/c'"),
            ("zfs unmount z", "cannot unmount 'z'"),
            ("zfs destroy z/c", "cannot destroy 'z/c'"),
            ("zfs rename z/c z/d", "cannot rename 'z/c'"),
            ("zfs set atime=off z/c", "cannot set property for 'z/c'"),
            ("zfs create z/new", "cannot create 'z/new'"),
            ("zpool export z", "cannot export 'z'"),
        ] {
            let refused = self.command(line);
            let told = format!("{what}: pool I/O is currently suspended");
            let is_told = refused.status != 0 && refused.err.starts_with(&told);
            assert!(is_told, "{line}: {refused:?}");
        }
        let refused = self.command("umount z");
        assert!(refused.err.contains("pool I/O is currently suspended"), "{refused:?}");
        assert_eq!(self.command("zpool clear z").err, "cannot clear errors for z: I/O error\n");
        assert!(is_mounted(&self.user.home.join("m")));
    }

    /// The host is enlarged and the pool cleared: everything that was written reaches the disk,
    /// except writes to a file system that was removed by force.
    pub(super) fn mend(&mut self) {
        self.host.resize("400M");
        let cleared = self.command("zpool clear z");
        assert_eq!((cleared.status, cleared.err.as_str()), (0, ""), "{cleared:?}");
    }

    pub(super) fn wait_for_writers(&mut self) -> Vec<bool> {
        let ends = std::mem::take(&mut self.writers).into_iter().map(|mut writer| {
            answer_of("a writer is answered", move || writer.wait().unwrap().success())
        });
        ends.collect()
    }

    /// The pool is closed, no writer waits any more, and synced data is there.
    fn lost(mut self) {
        wait_until("the process is gone", || self.command("zpool list -Ho name").out.is_empty());
        self.wait_for_writers();
        wait_until("the mount is gone", || !is_mounted(&self.user.home.join("m")));
        self.host.resize("400M");
        self.user.succeed(&format!("mount -f {} {}", self.image, self.user.path("m")));
        assert_eq!(self.user.shell("cat $M/kept $M/c/kept"), "kept\ninside\n");
        self.user.succeed("umount z");
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for writer in &mut self.writers {
            let _ = writer.kill();
        }
    }
}

#[test]
fn a_shared_mount_goes_on_with_its_suspended_pool() {
    let Some(mut shared) = Shared::new() else { return };
    shared.read();
    shared.ask();
    shared.read();
    shared.mend();
    assert!(shared.wait_for_writers().iter().all(|is_written| *is_written));
    let sizes = shared.user.shell("stat -c %s $M/c/large $M/waits* $M/c/waits* | sort -nu");
    assert_eq!(sizes, format!("{}\n{}\n", 3 << 20, 64 << 20));
    shared.user.succeed("zfs create z/new");
    shared.user.succeed("umount z");
    let check = shared.user.run(&format!("zdb -bcc -e -p {} z", shared.image));
    assert!(check.out.contains("No leaks"), "{check:?}");
}

#[test]
fn a_file_system_is_taken_from_a_shared_mount_while_the_pool_is_suspended() {
    let Some(mut shared) = Shared::new() else { return };
    let unmounted = shared.command("zfs unmount -f z/c");
    assert_eq!((unmounted.status, unmounted.err.as_str()), (0, ""), "{unmounted:?}");
    let read = shared.shell("cat $M/kept; ls $M/c");
    assert_eq!(read.out, "kept\n", "{read:?}");
    shared.mend();
    shared.wait_for_writers();
    shared.user.succeed("zfs mount z/c");
    assert_eq!(shared.user.shell("cat $M/c/kept"), "inside\n");
    shared.user.succeed("umount z");
}

/// The kernel keeps the entries of a directory while a file is being created in it.
#[test]
fn many_file_systems_are_taken_from_a_shared_mount_as_fast_as_one() {
    const INSIDE: usize = 8;
    let prepared = Shared::prepared(|user| {
        user.succeed("zfs set sync=always z/c");
        (0..INSIDE).for_each(|number| drop(user.succeed(&format!("zfs create z/c/in{number}"))));
    });
    let Some(mut shared) = prepared else { return };
    let unmounted = shared.command("zfs unmount -f z/c");
    assert_eq!((unmounted.status, unmounted.err.as_str()), (0, ""), "{unmounted:?}");
    assert_eq!(shared.command("zfs mount").out.lines().count(), 1);
    shared.mend();
    shared.wait_for_writers();
    shared.user.succeed("zfs mount -a");
    assert_eq!(
        shared.user.shell("cat $M/c/kept; ls -d $M/c/in* | wc -l"),
        format!("inside\n{INSIDE}\n")
    );
    shared.user.succeed("umount z");
}

#[test]
fn a_shared_mount_ends_by_force_and_by_a_signal_while_its_pool_is_suspended() {
    let Some(shared) = Shared::new() else { return };
    let exported = shared.command("zpool export -f z");
    assert_eq!(exported.status, 1, "{exported:?}");
    assert!(
        exported.err.starts_with("the pool 'z' was let go of but not exported"),
        "{exported:?}"
    );
    shared.lost();
    let Some(shared) = Shared::new() else { return };
    kill_process(Pid::from_raw(shared.user.process()).unwrap(), Signal::TERM).unwrap();
    shared.lost();
}
