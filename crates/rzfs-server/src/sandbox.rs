//! Restricts processes that read an image to the calls they need, whatever the image makes them do:
//! the kernel refuses others from then on (seccomp).
//!
//! A process that serves a pool uses this if it mounts and unmounts by itself. If it uses
//! `fusermount3`, it must be able to start a program with higher privileges.

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// The duty of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Serving pools, which it mounts.
    Serving,
    /// Showing the contents of a pool.
    Reading,
    /// The same, and creating copies of files of the pool.
    Copying,
}

impl Duty {
    /// The calls that it never needs.
    fn never(self) -> Vec<c_long> {
        let mut calls = [&NEVER[..], &NEVER_HERE].concat();
        if self != Self::Serving {
            calls.extend(MOUNTS);
        }
        if self != Self::Copying {
            calls.extend(DEVICE_NODES);
        }
        calls
    }
}

/// Programs, the kernel's code and insides, other processes, the machine's state, keys, other roots
/// and namespaces.
const NEVER: [c_long; 34] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_setns,
];

/// The same, for calls that only some architectures have.
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: [c_long; 3] = [libc::SYS_kexec_file_load, libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: [c_long; 0] = [];

#[cfg(target_arch = "x86_64")]
const DEVICE_NODES: [c_long; 2] = [libc::SYS_mknod, libc::SYS_mknodat];
#[cfg(not(target_arch = "x86_64"))]
const DEVICE_NODES: [c_long; 1] = [libc::SYS_mknodat];

const MOUNTS: [c_long; 10] = [
    OPEN_TREE_ATTR,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
];

/// The bit of calls from x32 programs, which x86-64 may support.
const X32: c_long = 0x4000_0000;
/// Their own numbers: `execve`, `ptrace`, `kexec_load`, `process_vm_readv` and `process_vm_writev`,
/// `execveat`.
const NEVER_X32: [c_long; 6] = [520, 521, 528, 539, 540, 545];

/// The kernel's number of `open_tree_attr`, the same on all architectures; libc does not know it.
const OPEN_TREE_ATTR: c_long = 467;

/// New namespaces.
const NAMESPACES: [c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Makes the kernel refuse (`EPERM`) all calls that this process never needs. Kernels without such
/// filters, and unknown architectures, are no error.
pub fn enter(duty: Duty) {
    let entered = filters(duty).map_err(seccompiler::Error::from);
    let enter = |filter: BpfProgram| seccompiler::apply_filter_all_threads(&filter);
    match entered.and_then(|filters| filters.into_iter().try_for_each(enter)) {
        Err(error) if duty == Duty::Serving => {
            tracing::warn!(%error, "the process is not kept from anything");
        }
        Err(error) => tracing::debug!(%error, "the process is not kept from anything"),
        Ok(()) => {}
    }
}

fn filters(duty: Duty) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    // Its flags are in memory, where filters cannot look. Thread creation falls back to `clone`
    // where this one is unknown.
    let unknown = [libc::SYS_clone3].map(|call| (call, Vec::new()));
    Ok([filter(refused(duty)?, libc::EPERM)?, filter(unknown.into(), libc::ENOSYS)?])
}

/// Calls, with their argument conditions.
type Calls = BTreeMap<c_long, Vec<SeccompRule>>;

fn filter(mut calls: Calls, answer: c_int) -> Result<BpfProgram, seccompiler::BackendError> {
    if cfg!(target_arch = "x86_64") {
        let others: Vec<_> = calls.iter().map(|(call, when)| (call | X32, when.clone())).collect();
        calls.extend(others);
    }
    let answer = SeccompAction::Errno(answer.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(calls, SeccompAction::Allow, answer, architecture)?.try_into()
}

fn refused(duty: Duty) -> Result<Calls, seccompiler::BackendError> {
    let word = |number: c_int| u64::from(number.cast_unsigned());
    let when = |operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?])
    };
    let mut rules: Calls = duty.never().into_iter().map(|call| (call, Vec::new())).collect();
    // Its peers are on this machine.
    rules.insert(libc::SYS_socket, vec![when(SeccompCmpOp::Ne, word(libc::AF_UNIX))?]);
    let has = |flag| when(SeccompCmpOp::MaskedEq(word(flag)), word(flag));
    let namespaces = NAMESPACES.map(has).into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_clone, namespaces.clone());
    // Those bits of `clone` hold a signal number.
    let clocks = has(libc::CLONE_NEWTIME)?;
    rules.insert(libc::SYS_unshare, namespaces.into_iter().chain([clocks]).collect());
    if cfg!(target_arch = "x86_64") {
        rules.extend(NEVER_X32.map(|call| (call | X32, Vec::new())));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::io;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::thread;

    /// Runs `work` with the filter of a duty, on a separate thread.
    fn within<T: Send + 'static>(duty: Duty, work: impl FnOnce() -> T + Send + 'static) -> T {
        let work = move || {
            for filter in filters(duty).unwrap() {
                seccompiler::apply_filter(&filter).unwrap();
            }
            work()
        };
        thread::spawn(work).join().unwrap()
    }

    #[test]
    fn who_only_reads_makes_no_device_nodes_and_who_copies_does() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        for (duty, is_refused) in
            [(Duty::Serving, true), (Duty::Reading, true), (Duty::Copying, false)]
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("pipe");
            let made = within(duty, move || {
                mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            });
            assert_eq!(made == Err(Errno::PERM), is_refused, "{duty:?}");
        }
    }

    #[test]
    fn who_only_reads_does_not_mount() {
        use rustix::mount::{UnmountFlags, unmount};
        if !rzfs_testkit::has_root("others may not mount anyway") {
            return;
        }
        for (duty, answer) in [(Duty::Serving, Errno::NOENT), (Duty::Reading, Errno::PERM)] {
            let unmounted = within(duty, || unmount("/nowhere", UnmountFlags::empty()));
            assert_eq!(unmounted, Err(answer), "{duty:?}");
        }
    }

    #[test]
    fn what_a_server_never_does_is_refused() {
        let refused = |error: io::Error| Errno::from_io_error(&error) == Some(Errno::PERM);
        let directory = tempfile::tempdir().unwrap();
        within(Duty::Serving, move || {
            assert!(refused(Command::new("true").status().unwrap_err()));
            assert!(refused(TcpListener::bind("127.0.0.1:0").unwrap_err()));
            UnixListener::bind(directory.path().join("socket")).unwrap();
            assert_eq!(rustix::process::chroot(directory.path()), Err(Errno::PERM));
            thread::spawn(|| ()).join().unwrap();
        });
        // The filter applies to that thread only.
        assert!(Command::new("true").status().unwrap().success());
    }
}
