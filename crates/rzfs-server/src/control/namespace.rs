//! The outside identities of users in the process's user namespace.

use rustix::process::Uid;
use std::fs;

/// The kernel's map of the namespace's users, and the number of all unmapped ones.
const MAP: &str = "/proc/self/uid_map";
const STRANGERS: &str = "/proc/sys/kernel/overflowuid";

/// The default number of unmapped users.
const USUAL_STRANGERS: u32 = 65534;

/// Users with successive numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    /// The first one's number in the namespace.
    inside: u32,
    /// The same user's number in the parent namespace.
    outside: u32,
    /// How many there are.
    count: u32,
}

impl Range {
    /// The only range on the host, and in containers that share the host's users.
    const EVERYBODY: Self = Self { inside: 0, outside: 0, count: u32::MAX };

    /// A line of the map.
    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { inside: next()?, outside: next()?, count: next()? })
    }

    /// The outside number of a user in the namespace.
    fn outside_of(self, user: u32) -> Option<u32> {
        let position = user.checked_sub(self.inside).filter(|position| *position < self.count)?;
        self.outside.checked_add(position)
    }
}

/// A user namespace other than the host's: its root is another user outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UserNamespace {
    ranges: Vec<Range>,
    /// The number under which unmapped users appear.
    strangers: u32,
}

impl UserNamespace {
    /// The namespace of this process; `None` if it is the host's, or unknown.
    pub(super) fn current() -> Option<Self> {
        let strangers = fs::read_to_string(STRANGERS).ok();
        let strangers = strangers.and_then(|number| number.trim().parse().ok());
        let map = fs::read_to_string(MAP).ok()?;
        Self::parse(&map, strangers.unwrap_or(USUAL_STRANGERS))
    }

    fn parse(map: &str, strangers: u32) -> Option<Self> {
        let ranges: Vec<_> = map.lines().filter_map(Range::parse).collect();
        (ranges != [Range::EVERYBODY]).then_some(Self { ranges, strangers })
    }

    /// A user's number in the parent namespace; `None` if unknown: a user with the number of
    /// unmapped ones may be one of these, even if the namespace maps that number.
    pub(super) fn outside_of(&self, user: Uid) -> Option<Uid> {
        let user = Some(user.as_raw()).filter(|user| *user != self.strangers)?;
        let outside = self.ranges.iter().find_map(|range| range.outside_of(user));
        outside.map(Uid::from_raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_namespace_is_somebody_outside() {
        let outside = |map: &str, user| {
            let namespace = UserNamespace::parse(map, USUAL_STRANGERS).unwrap();
            namespace.outside_of(Uid::from_raw(user)).map(Uid::as_raw)
        };
        let host = "         0          0 4294967295\n";
        assert_eq!(UserNamespace::parse(host, USUAL_STRANGERS), None);
        assert_eq!(outside("0 1000 1\n", 0), Some(1000));
        assert_eq!(outside("0 1000 1\n", 65534), None);
        let several = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(outside(several, 0), Some(1000));
        assert_eq!(outside(several, 33), Some(100_032));
        assert_eq!(outside(several, 65537), None);
        // A namespace without a map yet.
        assert_eq!(outside("", 0), None);
    }

    #[test]
    fn strangers_are_nobody_also_where_their_number_is_somebodys() {
        // As in rootless containers: /tmp, which is root's outside, appears to be 65534's.
        let map = "         0       1000          1\n         1     100000      65536\n";
        let outside = |strangers, user| {
            let namespace = UserNamespace::parse(map, strangers).unwrap();
            namespace.outside_of(Uid::from_raw(user)).map(Uid::as_raw)
        };
        assert_eq!(outside(USUAL_STRANGERS, 65534), None);
        assert_eq!(outside(USUAL_STRANGERS, 65533), Some(165_532));
        assert_eq!(outside(65533, 65533), None);
        assert_eq!(outside(65533, 65534), Some(165_533));
    }
}
