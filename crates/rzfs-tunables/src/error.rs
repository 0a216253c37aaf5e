//! Why a tunable cannot be set.

use crate::table::Tunable;

/// Why a tunable cannot be set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TunableError {
    /// There is none of that name.
    #[error("there is no tunable '{name}'{}", meant(*.nearest))]
    Unknown {
        /// The name.
        name: String,
        /// The tunable that may have been meant.
        nearest: Option<&'static str>,
    },
    /// It is not a value of the tunable's unit.
    #[error("{}: '{text}' is not {}", .tunable.name, .tunable.unit.of_what())]
    NotAValue {
        /// The tunable.
        tunable: &'static Tunable,
        /// What it was to be.
        text: String,
    },
    /// It is too small or too large.
    #[error("{}: {text} is out of range: {}", .tunable.name, .tunable.allowed())]
    OutOfRange {
        /// The tunable.
        tunable: &'static Tunable,
        /// What it was to be.
        text: String,
    },
}

fn meant(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean '{name}'?"),
        None => "; 'rzfs tunables' lists them".to_owned(),
    }
}
