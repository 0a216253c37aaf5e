//! What came of a case.

/// What came of a case that ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Whether the pool could be imported.
    pub imported: bool,
    /// Things that could be read.
    pub successes: u64,
    /// Errors that were returned.
    pub errors: u64,
    /// Errors without words.
    pub speechless: u64,
    /// Blocks with contents that were never written.
    pub wrong: u64,
}
