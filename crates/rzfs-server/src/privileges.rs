//! What a process that serves pools keeps of root's privileges.

use rustix::io;
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use rzfs_fuse::mounts_without_helper;

/// To mount; to open devices, images, key files and the directories of mounts whoever owns them; to
/// raise limits of descriptors, use space of the host that is reserved for root, and lock memory of
/// io_uring; and to see in which namespace a caller is, and which process has a device.
const NEEDED: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_PTRACE);

/// Limits the programs started by this thread to the needed capabilities, unless they mount by a
/// helper: the allocator of a program has threads before `main`.
pub(crate) fn limit_programs() {
    if !mounts_without_helper() {
        return;
    }
    for capability in NEEDED.complement().iter() {
        // The kernel may know fewer, and refuses without CAP_SETPCAP.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}

/// Drops all capabilities that serving pools does not need, from this thread and the ones that it
/// starts. A kernel that refuses leaves it what it has.
pub(crate) fn drop_needless() {
    limit_programs();
    if let Err(error) = keep(NEEDED) {
        tracing::warn!(%error, "the process keeps its capabilities");
    }
}

fn keep(needed: CapabilitySet) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective &= needed;
    sets.permitted &= needed;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets)
}
