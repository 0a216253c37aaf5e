//! The error of a decoder.

/// Bytes that are not the structure they claim to be.
///
/// It names the structure and what is wrong with it; whoever knows the place (device, object,
/// offset) adds it to its own error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The input ends before the structure does.
    #[error("{what}: {need} bytes are needed, {have} are there")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Bytes that the structure takes.
        need: usize,
        /// Bytes that were given.
        have: usize,
    },
    /// A field has a value that the format does not allow.
    #[error("{what}: {field} is {value:#x}")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The structure contradicts itself.
    #[error("{what}: {problem}")]
    Invalid {
        /// The structure.
        what: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// A list lacks a pair that it must have.
    #[error("nvlist: there is no \"{name}\"")]
    MissingName {
        /// Name of the pair.
        name: Box<str>,
    },
    /// A pair of a list has another type than its name demands.
    #[error("nvlist: \"{name}\" is of type {found}, not {wanted}")]
    WrongType {
        /// Name of the pair.
        name: Box<str>,
        /// Its type.
        found: &'static str,
        /// The type that it should have.
        wanted: &'static str,
    },
}

impl FormatError {
    /// Shorthand for [`FormatError::Field`].
    #[must_use]
    pub fn field(what: &'static str, field: &'static str, value: impl Into<u64>) -> Self {
        Self::Field { what, field, value: value.into() }
    }

    /// Shorthand for [`FormatError::Invalid`].
    #[must_use]
    pub fn invalid(what: &'static str, problem: &'static str) -> Self {
        Self::Invalid { what, problem }
    }
}
