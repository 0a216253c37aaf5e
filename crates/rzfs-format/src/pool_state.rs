//! States of pools by their numbers (spec 01, section 4.5).

use crate::FormatError;

/// What a label or configuration says about its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PoolState {
    /// Imported, or never exported.
    Active = 0,
    /// Cleanly exported.
    Exported = 1,
    /// Destroyed; can still be imported.
    Destroyed = 2,
    /// The label of a hot spare.
    Spare = 3,
    /// The label of a cache device.
    L2Cache = 4,
}

impl PoolState {
    /// The state with this number.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a number that no label has.
    pub fn from_number(number: u64) -> Result<Self, FormatError> {
        Ok(match number {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            3 => Self::Spare,
            4 => Self::L2Cache,
            _ => return Err(FormatError::field("pool", "state", number)),
        })
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for number in 0..5 {
            assert_eq!(PoolState::from_number(number).unwrap().number(), number);
        }
        assert!(PoolState::from_number(5).is_err());
    }
}
