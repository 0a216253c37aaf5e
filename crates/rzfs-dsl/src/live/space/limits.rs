//! How much of a pool a change, or a directory of datasets, may take (spec 04, section 12).

use rzfs_format::dsl::DslDir;

/// How far a change may go into the space that is held back (spec 04, section 12.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceTier {
    /// Writing files, making datasets: not at all.
    Normal,
    /// Changes of administrators: half of it.
    Reserved,
    /// What sets more free than it takes: three quarters.
    Frees,
}

impl SpaceTier {
    /// All of them, from the strictest on.
    pub(crate) const ALL: [Self; 3] = [Self::Normal, Self::Reserved, Self::Frees];

    /// The place in [`SpaceTier::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// What has to stay of the space that is held back.
    pub(crate) const fn kept_back(self, slop: u64) -> u64 {
        match self {
            Self::Normal => slop,
            Self::Reserved => slop / 2,
            Self::Frees => slop / 4,
        }
    }
}

/// Directories above each other; names are too short for deeper trees.
pub(crate) const MAX_DEPTH: usize = 128;

/// What a directory uses and may use.
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

    /// Bytes that can still be charged to the last of these directories, the first of which is
    /// the root of a pool with `pool` bytes.
    pub(crate) fn available(chain: impl Iterator<Item = Self>, pool: u64) -> u64 {
        let mut space = pool;
        for (depth, dir) in chain.enumerate() {
            if depth == 0 {
                space = space.saturating_sub(dir.used);
            } else {
                space = space.saturating_add(dir.reserved.saturating_sub(dir.used));
            }
            if dir.quota != 0 {
                space = space.min(dir.quota.saturating_sub(dir.used));
            }
        }
        space
    }
}
