//! The `rzfs` command.
#![forbid(unsafe_code)]

mod daemon;
mod getopt;

use rzfs::{calendar, quantity};

fn main() {}
