use bitflags::bitflags;

bitflags! {
    /// Setxattr flags of the kernel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct SetxattrFlags: u32 {
        /// Clear SGID when `system.posix_acl_access` is set.
        const FUSE_SETXATTR_ACL_KILL_SGID = 1 << 0;
    }
}
