//! How much of a pool a change may take (spec 04, section 12.5).

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
