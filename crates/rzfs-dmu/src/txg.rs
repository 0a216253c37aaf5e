//! Transaction groups (spec 06, sections 17 and 18).
//!
//! ```text
//! open ────────> quiescing ────────> syncing ───────> on disk
//! OpenTx enter   its OpenTx leave    SyncTx writes    uberblock is durable
//! ```
//! Changes of a pool go to disk in groups. A transaction, [`OpenTx`], belongs to the group that was
//! open when it began, and keeps it from quiescing until it is dropped. There is always exactly one
//! open group; one more may be quiescing or syncing.
//!
//! [`TxgEngine`] counts transactions and dirty bytes, and throttles writers before the limit is
//! reached. The syncing thread asks it for the next group with [`TxgEngine::quiesce`].

mod counters;
mod delay;
mod engine;
mod gate;
mod history;

pub use counters::DmuTxStats;
pub use delay::{DelayCurve, DirtyLimits};
pub(crate) use gate::Gate;
pub use history::{TxgIo, TxgRecord, TxgState, TxgStats};

pub use engine::quiesced::{QuiescedTxg, Work};
pub use engine::transaction::OpenTx;
pub use engine::{BeginError, Patience, Stopped, SuspendedPolicy, Torn, TxgEngine, TxgOptions};
