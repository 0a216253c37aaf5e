//! Comparing names.

/// When a name matches the name of an entry (spec 03, section 12.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Matching {
    /// When the bytes are equal.
    Exact,
    /// When the normalised forms are equal, by all rules of the ZAP.
    Normalized,
    /// When the normalised forms are equal and so is the case of letters.
    NormalizedCase,
}
