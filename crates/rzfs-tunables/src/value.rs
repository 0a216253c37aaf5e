//! What the fields of [`Tunables`](crate::Tunables) are, as numbers of their units.

use crate::unit::Unit;
use std::time::Duration;

/// A value that a tunable can have. Numbers that it has no room for become the nearest that it has;
/// the ranges of the table keep them out.
pub(crate) trait Value: Copy {
    fn of_number(number: u64, unit: Unit) -> Self;

    fn number(self, unit: Unit) -> u64;
}

macro_rules! unsigned {
    ($($kind:ty),+) => {
        $(impl Value for $kind {
            fn of_number(number: u64, _: Unit) -> Self {
                Self::try_from(number).unwrap_or(Self::MAX)
            }

            fn number(self, _: Unit) -> u64 {
                u64::try_from(self).unwrap_or(u64::MAX)
            }
        })+
    };
}

unsigned!(u64, u32, u16, usize);

impl Value for bool {
    fn of_number(number: u64, _: Unit) -> Self {
        number != 0
    }

    fn number(self, _: Unit) -> u64 {
        self.into()
    }
}

impl Value for Duration {
    fn of_number(number: u64, unit: Unit) -> Self {
        match unit {
            Unit::Nanoseconds => Self::from_nanos(number),
            Unit::Milliseconds => Self::from_millis(number),
            _ => Self::from_secs(number),
        }
    }

    fn number(self, unit: Unit) -> u64 {
        let number = match unit {
            Unit::Nanoseconds => self.as_nanos(),
            Unit::Milliseconds => self.as_millis(),
            _ => self.as_secs().into(),
        };
        u64::try_from(number).unwrap_or(u64::MAX)
    }
}
