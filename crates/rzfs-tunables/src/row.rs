//! A row of the table.

use crate::number;
use crate::unit::Unit;
use std::fmt;
use std::ops::RangeInclusive;

/// A row of the table: something that can be tuned, by one of `Values`.
pub struct Row<Values> {
    /// OpenZFS's name for it, or one that begins with `rzfs_` where it has none.
    pub name: &'static str,
    /// The part of the table that it is in.
    pub section: &'static str,
    /// What its number counts.
    pub unit: Unit,
    /// The number that it is without being set.
    pub default: u64,
    /// The numbers that it may be.
    pub range: RangeInclusive<u64>,
    pub(crate) about: &'static str,
    pub(crate) get: fn(&Values) -> u64,
    pub(crate) put: fn(&mut Values, u64),
}

impl<Values> Row<Values> {
    /// What it is for, in a sentence or two.
    #[must_use]
    pub fn about(&self) -> String {
        self.about.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Its value as a number of its unit.
    #[must_use]
    pub fn number(&self, values: &Values) -> u64 {
        (self.get)(values)
    }

    /// A number of its unit, in words: `5 s`, `128K`.
    #[must_use]
    pub fn shown(&self, number: u64) -> String {
        match self.unit {
            Unit::Bytes => number::short(number),
            Unit::Count | Unit::Log2 | Unit::Flag => number.to_string(),
            unit => format!("{number} {}", unit.name()),
        }
    }

    /// The numbers that it may be, in words: `1 to 3600 s`, `at least 1`.
    #[must_use]
    pub fn allowed(&self) -> String {
        let (least, most) = (*self.range.start(), *self.range.end());
        match (least, most) {
            (0, u64::MAX) => "any".to_owned(),
            (least, u64::MAX) => format!("at least {}", self.shown(least)),
            (least, most) if self.unit == Unit::Bytes => {
                format!("{} to {}", self.shown(least), self.shown(most))
            }
            (least, most) => format!("{least} to {}", self.shown(most)),
        }
    }
}

impl<Values> fmt::Debug for Row<Values> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<Values> PartialEq for Row<Values> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<Values> Eq for Row<Values> {}
