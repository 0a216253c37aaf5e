//! What the process that serves a pool never does, whatever an image makes it do: the kernel refuses
//! it from then on (seccomp).
//!
//! It is for a process that mounts and unmounts by itself. Where it takes `fusermount3` for that, it
//! has to be able to start a program with more rights than it has.

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// Programs, the kernel's code and insides, other processes, the machine's state, keys, device nodes,
/// other roots and namespaces.
const NEVER: [c_long; 35] = [
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
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_setns,
];

/// The same, of calls that are not known everywhere.
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: [c_long; 4] =
    [libc::SYS_kexec_file_load, libc::SYS_mknod, libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: [c_long; 0] = [];

/// What calls of programs with short pointers have besides, which x86-64 may know.
const X32: c_long = 0x4000_0000;
/// Their own numbers: `execve`, `ptrace`, `kexec_load`, `process_vm_readv` and `process_vm_writev`,
/// `execveat`.
const NEVER_X32: [c_long; 6] = [520, 521, 528, 539, 540, 545];

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

/// Has the kernel refuse from now on (`EPERM`) what this process never does.
///
/// # Errors
/// The kernel has no such filters, or not on this architecture.
pub(crate) fn renounce() -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter_all_threads(&filter()?)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    const REFUSE: SeccompAction = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let word = |number: c_int| u64::from(number.cast_unsigned());
    let when = |operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?])
    };
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        NEVER.into_iter().chain(NEVER_HERE).map(|call| (call, Vec::new())).collect();
    // Whoever talks to it is on this machine.
    rules.insert(libc::SYS_socket, vec![when(SeccompCmpOp::Ne, word(libc::AF_UNIX))?]);
    let namespaces = NAMESPACES.map(word).into_iter();
    let namespaces = namespaces.map(|one| when(SeccompCmpOp::MaskedEq(one), one));
    rules.insert(libc::SYS_unshare, namespaces.collect::<Result<_, _>>()?);
    if cfg!(target_arch = "x86_64") {
        let others: Vec<_> = rules.iter().map(|(call, when)| (call | X32, when.clone())).collect();
        rules.extend(others.into_iter().chain(NEVER_X32.map(|call| (call | X32, Vec::new()))));
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, REFUSE, architecture)?.try_into()
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

    #[test]
    fn what_a_server_never_does_is_refused() {
        let refused = |error: io::Error| Errno::from_io_error(&error) == Some(Errno::PERM);
        let directory = tempfile::tempdir().unwrap();
        let within = move || {
            seccompiler::apply_filter(&filter().unwrap()).unwrap();
            assert!(refused(Command::new("true").status().unwrap_err()));
            assert!(refused(TcpListener::bind("127.0.0.1:0").unwrap_err()));
            UnixListener::bind(directory.path().join("socket")).unwrap();
            assert_eq!(rustix::process::chroot(directory.path()), Err(Errno::PERM));
            thread::spawn(|| ()).join().unwrap();
        };
        // The filter is that thread's only.
        thread::spawn(within).join().unwrap();
        assert!(Command::new("true").status().unwrap().success());
    }
}
