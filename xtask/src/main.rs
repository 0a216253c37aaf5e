//! Chores of the rzfs repository: `cargo xtask --help`.
fn main() {}
