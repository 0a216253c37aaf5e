//! The `rzfs` command.
#![forbid(unsafe_code)]

mod calendar;
mod daemon;
mod getopt;
mod quantity;

fn main() {}
