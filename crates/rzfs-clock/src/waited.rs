//! How waits end.

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Somebody has notified the condition, or it looked so.
    Notified,
    /// The time has come.
    Elapsed,
}
