#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod figure;
mod macros;

pub use figure::{Figure, Kind, Unit};

/// A group of numbers at one moment.
pub trait Kstat {
    /// OpenZFS's name for the group.
    const NAME: &'static str;
    /// What the numbers are, in their order.
    const FIGURES: &'static [Figure];

    /// The numbers.
    fn values(&self) -> Vec<u64>;

    /// The numbers by their names.
    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::FIGURES.iter().map(|figure| figure.name).zip(self.values())
    }
}
