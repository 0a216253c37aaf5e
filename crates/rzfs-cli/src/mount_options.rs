//! The words of `-o` for mount(8), `zfs mount` and `rzfs mount`.

use crate::console::{Failure, Outcome};
use rzfs_server::protocol::Temporary;

/// Options that mount(8) handles itself, that the kernel reports for every FUSE mount and that a
/// remount repeats, and that other file systems require.
const IGNORED_OPTIONS: [&str; 24] = [
    "",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "async",
    "silent",
    "loud",
    "zfsutil",
    "default_permissions",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "iversion",
    "acl",
    "posixacl",
    "xattr",
];
const SAYS_NOTHING_WITH_A_VALUE: [&str; 12] = [
    "x-",
    "X-",
    "comment=",
    "user=",
    "uhelper=",
    "helper=",
    "user_id=",
    "group_id=",
    "rootmode=",
    "fd=",
    "max_read=",
    "blksize=",
];

/// Mount options, classified.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sorted {
    /// Options that correspond to properties.
    pub(crate) temporary: Temporary,
    /// Whether this is a remount.
    pub(crate) is_remount: bool,
    /// All other significant options.
    pub(crate) others: Vec<String>,
}

impl Sorted {
    /// Parses words separated by commas.
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut sorted = Self::default();
        for word in words.into_iter().flat_map(|words| words.split(',')) {
            let says_nothing = IGNORED_OPTIONS.contains(&word)
                || SAYS_NOTHING_WITH_A_VALUE.iter().any(|begin| word.starts_with(begin));
            match word {
                _ if says_nothing || sorted.temporary.take(word) => {}
                "remount" => sorted.is_remount = true,
                other => sorted.others.push(other.to_owned()),
            }
        }
        sorted
    }

    /// Refuses unknown options.
    pub(crate) fn refuse_others(&self) -> Outcome {
        match self.others.first() {
            Some(word) => Err(Failure::Usage(format!("unknown mount option '{word}'"))),
            None => Ok(()),
        }
    }

    /// The significant words.
    pub(crate) fn words(&self) -> Vec<String> {
        let temporary = self.temporary.options().into_iter().map(str::to_owned);
        temporary.chain(self.others.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab_and_of_the_kernel_are_sorted() {
        let words =
            ["rw,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,remount,ro"];
        let sorted = Sorted::of(words);
        assert!(sorted.is_remount && sorted.others.is_empty());
        assert_eq!(sorted.temporary.readonly, Some(true));
        assert_eq!(sorted.temporary.setuid, Some(false));
        let sorted = Sorted::of(["defaults,nofail,x-systemd.automount", "key=/k,noatime,sync"]);
        assert_eq!(sorted.others, ["key=/k", "sync"]);
        assert_eq!(sorted.temporary, Temporary { atime: Some(false), ..Temporary::default() });
    }
}
