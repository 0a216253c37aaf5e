//! Pools mounted for writing, as the kernel and OpenZFS's zdb see them.

mod attributes;
mod contents;
mod control;
mod durable;
mod fresh;
mod handles;
mod listing;
mod mounted;
mod mounts;
mod names;
mod panics;
mod unnamed;
mod users;
