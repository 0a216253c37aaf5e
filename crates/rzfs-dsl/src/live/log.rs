//! The intent log of a head: makes operations durable before their txg is on disk (spec 05, section
//! 11).
//!
//! ```text
//! operation ── adds a record in its transaction ──> records of the txg, in memory
//! fsync ───── takes the records ──> log blocks ──> write, flush
//! txg is on disk ── drops its records, frees the blocks that have no others
//! ```
//! A commit never fails as long as the pool works: if something cannot be logged, for lack of space
//! or because of an error, the commit waits for its txg. The first commit also works like this: it
//! starts a chain, to which the header in the set's root block must point first.

mod chain;
pub(crate) mod claim;
mod contents;
mod counters;
mod head_log;
mod layout;
mod not_logged;
mod pending;
pub(crate) mod space;
mod state;
mod tunables;
mod turns;
mod writing;

pub use contents::{LoggedContents, LoggedPart, UnreadableWrite};
pub(crate) use counters::ZilCounters;
pub use counters::ZilStats;
pub use head_log::HeadLog;
pub(crate) use head_log::LogEnvironment;
pub use pending::{CommitScope, LogOrder, LogRecord, LoggedWrite};
pub(crate) use state::IntentLog;
pub(crate) use tunables::LogTunables;
