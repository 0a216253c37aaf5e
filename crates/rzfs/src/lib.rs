//! OpenZFS pools in user space: library and commands.
#![forbid(unsafe_code)]
