//! OpenZFS pools in user space: library and commands.
#![forbid(unsafe_code)]

#[cfg(feature = "commands")]
pub mod calendar;
pub mod control;
pub mod protocol;
#[cfg(feature = "commands")]
pub mod quantity;
