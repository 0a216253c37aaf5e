//! The result of a case.

/// The result of a completed case.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Whether the pool could be imported.
    pub imported: bool,
    /// Number of successful reads.
    pub successes: u64,
    /// Number of errors returned.
    pub errors: u64,
    /// Number of errors without messages.
    pub speechless: u64,
    /// Number of blocks with wrong contents.
    pub wrong: u64,
}
