//! What a number is.

/// A number that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// OpenZFS's name for it.
    pub name: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    #[doc(hidden)]
    pub about: &'static str,
}

/// How a number changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows: what it is at two moments tells what happened in between.
    Counter,
    /// It goes up and down: it says how things are.
    Gauge,
}

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Things or events.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Units of 2^-32.
    Fraction,
}

impl Figure {
    /// What it is, in a sentence.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.about.trim()
    }
}
