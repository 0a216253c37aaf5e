#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod error;
mod nearest;
mod number;
mod row;
mod serialization;
mod setting;
mod table;
mod unit;
mod value;

pub use error::TunableError;
pub use row::Row;
pub use table::{TABLE, Tunable, Tunables};
pub use unit::Unit;
