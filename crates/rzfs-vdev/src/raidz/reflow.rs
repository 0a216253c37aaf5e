//! How far a RAID-Z expansion has come (spec 07, section 10.2).

/// The state of the scratch area, as the uberblock has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScratchState {
    /// Nothing was moved yet.
    NotInUse,
    /// The first part is valid in the scratch area only.
    Valid,
    /// The first part is at its new place.
    InvalidSynced,
    /// The same, finished by an importer.
    InvalidSyncedOnImport,
    /// The expansion has gone on beyond the first part.
    InvalidSyncedReflow,
}

/// The place up to which a RAID-Z expansion has moved everything: the uberblock's
/// `ub_raidz_reflow_info`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reflow {
    /// All sectors below this offset of the vdev are at their new places; bytes.
    pub offset: u64,
    /// Where the first part is.
    pub scratch: ScratchState,
}

/// Bits of the offset in units of 512 bytes; the state is above.
const OFFSET_BITS: u32 = 55;

impl Reflow {
    /// Nothing was moved yet.
    pub const NOT_STARTED: Self = Self { offset: 0, scratch: ScratchState::NotInUse };

    /// The value of the uberblock's word; `None` if its state is unknown.
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        let scratch = match word >> OFFSET_BITS {
            0 => ScratchState::NotInUse,
            1 => ScratchState::Valid,
            2 => ScratchState::InvalidSynced,
            3 => ScratchState::InvalidSyncedOnImport,
            4 => ScratchState::InvalidSyncedReflow,
            _ => return None,
        };
        Some(Self { offset: (word & ((1 << OFFSET_BITS) - 1)) << 9, scratch })
    }

    /// The uberblock's word.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        ((self.scratch as u64) << OFFSET_BITS) | ((self.offset >> 9) & ((1 << OFFSET_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values_are_inverse() {
        let half_way = Reflow { offset: 109_703_168, scratch: ScratchState::InvalidSyncedReflow };
        assert_eq!(half_way.to_word(), (4 << 55) | 214_264);
        assert_eq!(Reflow::from_word(half_way.to_word()), Some(half_way));
        assert_eq!(Reflow::from_word(0), Some(Reflow::NOT_STARTED));
        assert_eq!(Reflow::from_word(5 << 55), None);
    }
}
