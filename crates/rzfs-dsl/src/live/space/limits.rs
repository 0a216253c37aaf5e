//! How much of a pool's slop space a change may use (spec 04, section 12.5).

/// How far a change may go into the slop space (spec 04, section 12.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceTier {
    /// Writing files, creating datasets: not at all.
    Normal,
    /// Administrative changes: half of it.
    Reserved,
    /// Changes that free more than they use: three quarters.
    Frees,
}

impl SpaceTier {
    /// All of them, strictest first.
    pub(crate) const ALL: [Self; 3] = [Self::Normal, Self::Reserved, Self::Frees];

    /// The index in [`SpaceTier::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The part of the slop space that must remain.
    pub(crate) const fn kept_back(self, slop: u64) -> u64 {
        match self {
            Self::Normal => slop,
            Self::Reserved => slop / 2,
            Self::Frees => slop / 4,
        }
    }
}
