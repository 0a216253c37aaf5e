//! The intent log of a head: what makes operations durable before their txg is on disk (spec 05,
//! section 11).
//!
//! ```text
//! operation ── adds a record in its transaction ──> records of the txg, in memory
//! fsync ───── takes the records ──> log blocks ──> write, flush
//! txg is on disk ── drops its records, frees the blocks that have none but such
//! ```
//! A commit never fails as long as the pool works: what cannot be logged, for want of space or
//! because of an error, is waited for as part of its txg. That is also how the first commit goes:
//! it begins a chain, to which the header in the set's root block has to point first.

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
pub(crate) use head_log::LogSurroundings;
pub use pending::{CommitScope, LogOrder, LogRecord, LoggedWrite};
pub(crate) use state::IntentLog;
pub(crate) use tunables::LogTunables;
