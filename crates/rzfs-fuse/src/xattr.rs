//! Extended attributes as FUSE wants them.

use fuser::{Errno, ReplyXattr};
use rzfs_format::xattr::Namespace;

/// The user who passes all checks.
const ROOT: u32 = 0;

/// The result of listxattr(2) for a user: every name with a zero byte. Trusted names are shown only
/// to users who may access them; FUSE passes the user, not the capabilities.
pub(crate) fn listing(names: Vec<Vec<u8>>, uid: u32) -> Vec<u8> {
    let is_shown = |name: &Vec<u8>| uid == ROOT || Namespace::of(name) != Some(Namespace::Trusted);
    names.into_iter().filter(is_shown).flat_map(|name| name.into_iter().chain([0])).collect()
}

/// Refuses a bare namespace as a name, as the kernel does for file systems whose namespaces it
/// knows; and user names that begin with a namespace after their own, as other systems, which store
/// user names without a prefix, would misread them (spec 05, section 8).
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    const NOT_OF_USERS: [&[u8]; 5] = [b"user.", b"trusted.", b"security.", b"system.", b"freebsd:"];
    let is_reserved =
        |rest: &[u8]| NOT_OF_USERS.iter().any(|namespace| rest.starts_with(namespace));
    if NAMESPACES.contains(&name) || name.strip_prefix(b"user.").is_some_and(is_reserved) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The error for an attribute of an unsupported kind: "not supported", except that a kernel that
/// checks POSIX ACLs would take that for a failed check.
pub(crate) fn unsupported(name: &[u8]) -> Errno {
    match Namespace::of(name) {
        Some(Namespace::PosixAcl) => Errno::NO_XATTR,
        _ => Errno::EOPNOTSUPP,
    }
}

/// Replies to a request for attributes: with the size alone if that was requested.
pub(crate) fn reply(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Err(error) => reply.error(error),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_administrators_are_hidden_from_others() {
        let names = || vec![b"trusted.a".to_vec(), b"trustedx".to_vec(), b"user.b".to_vec()];
        assert_eq!(listing(names(), 0), b"trusted.a\0trustedx\0user.b\0");
        assert_eq!(listing(names(), 1000), b"trustedx\0user.b\0");
        assert_eq!(listing(Vec::new(), 1000), b"");
    }
}
