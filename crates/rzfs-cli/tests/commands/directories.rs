//! Where the control sockets of pools are, and the error messages if there can be none.

use crate::harness::{Outcome, outcome};
use crate::mounts::unprivileged;
use crate::ordinary::Ordinary;
use rustix::process::getuid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A length in bytes of a directory name that leaves no room for a socket below it.
const LONG: usize = 110;

/// An unprivileged user whose session has a runtime directory.
struct Session {
    user: Ordinary,
    directory: PathBuf,
}

impl Session {
    fn new(directory: &str) -> Self {
        let user = Ordinary::without_pool();
        let directory = user.home.join(directory);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        if getuid().is_root() {
            chown(&directory, Some(65534), Some(65534)).unwrap();
        }
        Self { user, directory }
    }

    /// A program run by the user in the session.
    fn command(&self, program: &str) -> Command {
        let mut command = unprivileged(&self.user.rzfs, Path::new(program));
        command.env_remove("RZFS_RUNTIME_DIR").env("XDG_RUNTIME_DIR", &self.directory);
        command.env("RZFS", self.user.path("rzfs")).env("IMAGE", self.user.path("z.img"));
        command
    }

    /// A shell in the session.
    fn sh(&self, script: &str) -> Outcome {
        outcome(self.command("sh").args(["-ec", script]))
    }

    /// A shell whose user is root in a user namespace; `None` if that is forbidden.
    fn apart(&self, options: &str, script: &str) -> Option<Outcome> {
        let tried = outcome(self.command("unshare").args([options, "true"]));
        if tried.status != 0 {
            eprintln!("SKIPPED: no user namespaces here: {}", tried.err);
            return None;
        }
        Some(outcome(self.command("unshare").args([options, "sh", "-ec", script])))
    }
}

impl Drop for Session {
    /// Ends leftover processes if a test fails.
    fn drop(&mut self) {
        self.sh("$RZFS zpool export -af || true");
    }
}

fn assert_said(outcome: &Outcome, out: &str) {
    assert_eq!((outcome.status, outcome.out.as_str()), (0, out), "{outcome:?}");
    assert_eq!(outcome.err, "", "{outcome:?}");
}

#[test]
fn pools_are_found_from_both_sides_of_a_user_namespace() {
    let session = Session::new("session");
    let create = "$RZFS zpool create --size 96M -m none z $IMAGE; $RZFS zpool list -Ho name";
    assert_said(&session.sh(create), "z\n");
    let Some(inside) = session.apart("-Ur", "$RZFS zpool list -Ho name; $RZFS zpool export z")
    else {
        return;
    };
    assert_said(&inside, "z\n");
    let inside =
        session.apart("-Ur", "$RZFS zpool import -d $IMAGE -N z; $RZFS zpool list -Ho name");
    assert_said(&inside.unwrap(), "z\n");
    assert!(session.directory.join("rzfs/z.sock").exists());
    assert_said(&session.sh("$RZFS zpool list -Ho name; $RZFS zpool export z"), "z\n");
    // Without a session, pools may be in other places.
    let inside = session.apart("-Ur", "unset XDG_RUNTIME_DIR; $RZFS zpool list -Ho name").unwrap();
    assert_eq!((inside.status, inside.err.as_str()), (0, ""), "{inside:?}");
}

#[test]
fn root_of_a_user_namespace_uses_no_directory_that_others_may_enter() {
    let session = Session::new("session");
    let own = session.directory.join("rzfs");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    if getuid().is_root() {
        chown(&own, Some(65534), Some(65534)).unwrap();
    }
    let Some(inside) = session.apart("-Ur", "$RZFS zpool list") else { return };
    assert_eq!(inside.status, 1, "{inside:?}");
    assert!(inside.err.contains("only its owner"), "{inside:?}");
}

#[test]
fn root_of_a_user_namespace_with_a_run_of_its_own_has_its_pools_there() {
    const NO_MOUNTS: i32 = 77;
    let session = Session::new("session");
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run || exit {NO_MOUNTS}
        $RZFS zpool create --size 96M -m none z $IMAGE
        ls /run/rzfs
        $RZFS zpool list -Ho name
        $RZFS zpool export z"
    );
    let Some(inside) = session.apart("-Urm", &script) else { return };
    if inside.status == NO_MOUNTS {
        eprintln!("SKIPPED: nothing can be mounted in a user namespace: {}", inside.err);
        return;
    }
    assert_said(&inside, "z.sock\nz\n");
}

#[test]
fn a_directory_that_is_too_long_is_told_with_the_variable_that_names_it() {
    let session = Session::new(&"x".repeat(LONG));
    let create = "$RZFS zpool create --size 96M -m none z $IMAGE";
    let refused = session.sh(create);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains(": XDG_RUNTIME_DIR is "), "{refused:?}");
    let way_out = "too long for the path of a socket (RZFS_RUNTIME_DIR can name a shorter";
    assert!(refused.err.contains(way_out), "{refused:?}");
    assert!(!refused.err.contains("SUN_LEN"), "{refused:?}");
    let refused = session.sh(&format!("RZFS_RUNTIME_DIR=$XDG_RUNTIME_DIR {create}"));
    assert!(refused.err.contains(": RZFS_RUNTIME_DIR is "), "{refused:?}");
    // It is not known whether there are pools elsewhere.
    for listing in ["zpool list", "zfs list"] {
        let refused = session.sh(&format!("$RZFS {listing}"));
        assert_eq!((refused.status, refused.out.as_str()), (1, ""), "{refused:?}");
        assert!(refused.err.contains(way_out), "{refused:?}");
    }
}
