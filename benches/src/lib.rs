//! Benches live in `benches/`; this library has what several of them measure.

pub mod memory;
