//! A pool that an ordinary user has mounted, and everything that changes it.

use crate::harness::{Outcome, Rzfs, is_mounted, outcome, wait_until};
use crate::mounts::unprivileged;
use rustix::process::getuid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The place of a user without the rights of root, with a pool `z` in `z.img` that is mounted at
/// `m`.
struct Ordinary {
    rzfs: Rzfs,
    home: PathBuf,
}

impl Ordinary {
    fn new() -> Self {
        let rzfs = Rzfs::new();
        let home = rzfs.path("home");
        fs::create_dir(&home).unwrap();
        fs::create_dir(home.join("m")).unwrap();
        fs::create_dir(rzfs.path("run")).unwrap();
        // Where others may not go the binary cannot be run.
        fs::copy(env!("CARGO_BIN_EXE_rzfs"), home.join("rzfs")).unwrap();
        fs::set_permissions(rzfs.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        if getuid().is_root() {
            for path in [home.clone(), home.join("m"), rzfs.path("run")] {
                chown(path, Some(65534), Some(65534)).unwrap();
            }
        }
        let this = Self { rzfs, home };
        let image = this.path("z.img");
        this.succeed(&format!("zpool create --size 128M --export z {image}"));
        this.succeed(&format!("mount {image} {}", this.path("m")));
        this
    }

    fn path(&self, name: &str) -> String {
        self.home.join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, line: &str) -> Outcome {
        outcome(unprivileged(&self.rzfs, &self.home.join("rzfs")).args(line.split(' ')))
    }

    fn succeed(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
        outcome.out
    }

    /// What a shell of the user writes.
    fn shell(&self, script: &str) -> String {
        let mut shell = unprivileged(&self.rzfs, Path::new("sh"));
        let outcome = outcome(shell.args(["-c", script]).current_dir("/").env("M", self.path("m")));
        assert_eq!(outcome.status, 0, "{script}: {outcome:?}");
        outcome.out
    }
}

#[test]
fn every_command_leaves_an_ordinary_users_mount_where_it_is() {
    let user = Ordinary::new();
    user.shell("echo kept > $M/kept");
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
        "zfs rename z/c/d z/moved",
        "zfs unmount z/moved/e",
        "zfs mount z/moved/e",
        "zfs mount -a",
        "zfs destroy -r z/moved",
        "zfs destroy z/c",
        "zpool set comment=ours z",
        "zpool clear z",
        "zpool upgrade z",
        "zpool reguid z",
        "zpool sync z",
    ] {
        let outcome = user.run(line);
        assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
        assert!(is_mounted(&user.home.join("m")), "{line}: {outcome:?}");
        assert_eq!(user.shell("cat $M/kept"), "kept\n", "{line}");
        assert_eq!(user.succeed("zpool list -Ho name"), "z\n", "{line}");
    }
    user.succeed("zfs create z/files");
    user.shell("echo inside > $M/files/file");
    user.succeed("umount z");
    assert!(!is_mounted(&user.home.join("m")));
    user.succeed(&format!("mount {} {}", user.path("z.img"), user.path("m")));
    assert_eq!(user.shell("cat $M/files/file $M/kept"), "inside\nkept\n");
    // The last mount that a command ends takes the process along, which answers still.
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
    // Pools of several tests may be in the place that is left.
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
        // So it is by who has logged in again.
        assert!(!socket.exists() && !user.home.join("session").exists());
        log_in();
        assert_eq!(run(&list, Some(&session)).out, format!("{pool}\n"));
        let ended = run(&format!("umount {name_of_target}"), Some(&session));
        assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{ended:?}");
        assert!(!is_mounted(&user.home.join("m")));
    }
    // The session may be back before the process has looked.
    let mounted = run(&format!("mount {image} {directory}"), Some(&session));
    assert_eq!((mounted.status, mounted.err.as_str()), (0, ""), "{mounted:?}");
    log_out();
    log_in();
    wait_until("it is where it was", || socket.exists());
    assert_eq!(run(&format!("umount {pool}"), Some(&session)).status, 0);
    assert!(!socket.exists());
}
