//! Space limits of directories and heads (spec 04, section 12.4).

use rzfs_format::dsl::DslDir;

/// Maximum nesting of directories: names have at most 255 bytes, so a valid tree is never deeper.
pub(crate) const MAX_DEPTH: usize = 128;

/// The used space and limits of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpaceLimits {
    pub(crate) used: u64,
    pub(crate) quota: u64,
    pub(crate) reserved: u64,
}

impl SpaceLimits {
    pub(crate) const fn of(dir: &DslDir) -> Self {
        Self { used: dir.used, quota: dir.quota, reserved: dir.reserved }
    }

    /// Bytes that can still be charged to the last of these directories; the first is the root of a
    /// pool with `pool` bytes.
    pub(crate) fn available(chain: impl Iterator<Item = Self>, pool: u64) -> u64 {
        let mut chain = chain;
        let Some(root) = chain.next() else { return pool };
        let space = root.within_quota(pool.saturating_sub(root.used));
        chain.fold(space, |space, dir| dir.within(space))
    }

    /// Bytes that can still be charged to this directory, given `space` bytes in its parent.
    pub(crate) fn within(self, space: u64) -> u64 {
        self.within_quota(space.saturating_add(self.reserved.saturating_sub(self.used)))
    }

    fn within_quota(self, space: u64) -> u64 {
        match self.quota {
            0 => space,
            quota => space.min(quota.saturating_sub(self.used)),
        }
    }
}

/// The used space and limits of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) referenced: u64,
    pub(crate) unique: u64,
    pub(crate) refquota: u64,
    pub(crate) refreservation: u64,
}

impl HeadLimits {
    /// Bytes that can still be written to the head, with `room` bytes left in its directory.
    pub(crate) fn available(self, room: u64) -> u64 {
        let reserved = self.refreservation.saturating_sub(self.unique);
        let space = room.saturating_add(reserved);
        match self.refquota {
            0 => space,
            quota => space.min(quota.saturating_sub(self.referenced)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_what_those_above_have_and_what_is_reserved_for_them() {
        let limits = |used, quota, reserved| SpaceLimits { used, quota, reserved };
        let available = |chain: &[SpaceLimits]| SpaceLimits::available(chain.iter().copied(), 1000);
        let root = limits(400, 0, 0);
        assert_eq!(available(&[root]), 600);
        assert_eq!(available(&[limits(400, 900, 0)]), 500);
        assert_eq!(available(&[root, limits(100, 0, 250)]), 750);
        assert_eq!(available(&[root, limits(100, 150, 250)]), 50);
        assert_eq!(available(&[limits(1200, 0, 0), limits(200, 100, 0)]), 0);
    }

    #[test]
    fn heads_have_what_is_reserved_for_them_within_their_quotas() {
        let head = HeadLimits { referenced: 80, unique: 30, refquota: 0, refreservation: 50 };
        assert_eq!(head.available(100), 120);
        assert_eq!(HeadLimits { refquota: 100, ..head }.available(100), 20);
        assert_eq!(HeadLimits { refquota: 50, ..head }.available(100), 0);
    }
}
