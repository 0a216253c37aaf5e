//! OpenZFS pools in user space: library and commands.
#![forbid(unsafe_code)]

pub mod control;
pub mod protocol;
