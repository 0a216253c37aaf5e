//! The caller of a request. A request carries the user and the group; the rest is read from `/proc`
//! for the few requests that depend on it: the caller waits meanwhile, so it exists.

use fuser::Request;
use rzfs_zpl::live::{Caller, Privilege};

/// A capability, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capability {
    /// `CAP_LINUX_IMMUTABLE`: flags that bind all users.
    LinuxImmutable = 9,
}

/// The user of a request. Root counts as having all capabilities.
pub(crate) fn caller(request: &Request) -> Caller {
    Asking::of(request).caller()
}

/// The same for a request that needs a capability, which root may lack: a container may be without
/// it, and the creator of a user namespace has it only there. If the system does not tell, root has
/// it.
pub(crate) fn caller_with(request: &Request, capability: Capability) -> Caller {
    let caller = caller(request);
    if caller.privilege == Privilege::Ordinary {
        return caller;
    }
    let process = format!("/proc/{}", request.pid());
    let status = std::fs::read_to_string(format!("{process}/status"));
    let effective = status.ok().as_deref().and_then(effective);
    let lacks_it = effective.is_some_and(|all| all >> (capability as u32) & 1 == 0);
    if lacks_it || is_in_another_namespace(&process) {
        return Caller { privilege: Privilege::Ordinary, ..caller };
    }
    caller
}

/// Whether a process is in another user namespace than this one.
fn is_in_another_namespace(process: &str) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("{process}/ns/user")).ok();
    let theirs = namespace(process).zip(namespace("/proc/self"));
    theirs.is_some_and(|(theirs, ours)| theirs != ours)
}

/// The caller of a request, while the request waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    uid: u32,
    gid: u32,
    process: u32,
}

impl Asking {
    pub(crate) fn of(request: &Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), process: request.pid() }
    }

    /// The user, and the group that the request names.
    pub(crate) fn caller(self) -> Caller {
        let privilege = match self.uid {
            0 => Privilege::Superuser,
            _ => Privilege::Ordinary,
        };
        Caller { uid: self.uid, gid: self.gid, privilege }
    }

    /// Whether the caller is root or in a group. `false` if it cannot be looked up.
    pub(crate) fn is_root_or_in(self, group: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.process)).ok();
        self.uid == 0
            || self.gid == group
            || status().is_some_and(|status| has_group(&status, group))
    }
}

fn has_group(status: &str, group: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.into_iter().flat_map(str::split_whitespace).any(|one| one.parse() == Ok(group))
}

/// The effective capabilities from the status of a thread.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tsh\nCapPrm:\t0000000000000000\nCapEff:\t000001fffffffdff\n";
        let capabilities = effective(status).unwrap();
        assert_eq!(capabilities >> (Capability::LinuxImmutable as u32) & 1, 0);
        assert_eq!(effective("Name:\tsh\n"), None);
    }

    #[test]
    fn groups_are_read_from_the_status() {
        let status = "Uid:\t1000\t1000\nGroups:\t4 24 1000 \nNStgid:\t4\n";
        assert!(has_group(status, 24) && has_group(status, 1000));
        assert!(!has_group(status, 2) && !has_group("Groups:\t\n", 0));
    }
}
