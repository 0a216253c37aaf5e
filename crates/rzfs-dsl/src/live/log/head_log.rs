//! The intent log of a head, for the writers of its files.

use super::counters::ZilCounters;
use super::not_logged::NotLogged;
use super::pending::{LogOrder, LogRecord};
use super::state::IntentLog;
use super::tunables::LogTunables;
use crate::live::datasets::generation::Generation;
use crate::live::datasets::head::LiveDataset;
use crate::live::devices::current::PoolDevices;
use crate::live::durable::Durable;
use crate::live::environment::Environment;
use crate::live::space::accounts::Accounts;
use rzfs_dmu::live::Transaction;
use rzfs_dmu::txg::TxgEngine;
use rzfs_dmu::write::BlockWriter;
use rzfs_format::{ObjectId, Txg};
use std::fmt;
use std::sync::Arc;

/// What the intent logs of heads need of their pool.
#[derive(Debug)]
pub(crate) struct LogEnvironment {
    pub(crate) engine: Arc<TxgEngine>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) devices: Arc<PoolDevices>,
    pub(crate) durable: Arc<Durable>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) writer: Arc<BlockWriter>,
    pub(crate) tunables: LogTunables,
    pub(crate) counters: ZilCounters,
}

/// The intent log of a head, for the writers of its files.
#[derive(Clone)]
pub struct HeadLog {
    pub(super) pool: Arc<LogEnvironment>,
    pub(super) dataset: Arc<LiveDataset>,
    pub(super) contents: Arc<Generation>,
}

impl fmt::Debug for HeadLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadLog").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}

impl HeadLog {
    pub(crate) fn new(
        pool: &Arc<LogEnvironment>,
        dataset: &Arc<LiveDataset>,
        contents: &Arc<Generation>,
    ) -> Self {
        let (dataset, contents) = (Arc::clone(dataset), Arc::clone(contents));
        Self { pool: Arc::clone(pool), dataset, contents }
    }

    pub(super) fn log(&self) -> &IntentLog {
        self.contents.log()
    }

    /// Adds the record of an operation, which is part of the transaction.
    pub fn add(&self, tx: &dyn Transaction, order: LogOrder, record: LogRecord) {
        self.log().pending.lock().add(tx.txg(), order, record);
    }

    /// Notes a change in the txg that has no record: commits wait for it.
    pub fn add_unlogged(&self, txg: Txg) {
        self.log().pending.lock().add_unlogged(txg);
    }

    /// Whether blocks born in a txg survive a crash now, so that records may share them: those of a
    /// txg that is not on disk do not.
    #[must_use]
    pub fn may_share(&self, birth: Txg) -> bool {
        birth <= self.pool.engine.synced_txg()
    }

    /// Commits the records of a file so far with the names, ahead of what follows: it is about to
    /// get another name.
    pub fn promote(&self, object: ObjectId) {
        self.log().pending.lock().promote(object);
    }

    /// Drops the records of a file that lost its last name.
    pub fn forget(&self, object: ObjectId) {
        self.log().pending.lock().forget(object);
    }

    /// Whether the pool supports records of extended attributes (feature `zilsaxattr`).
    #[must_use]
    pub fn knows_xattrs(&self) -> bool {
        self.log().knows_xattrs()
    }

    /// Reserves room in the ordinary space.
    pub(super) fn claim(&self, txg: Txg, bytes: u64) -> Result<(), NotLogged> {
        self.pool.accounts.admit_log(txg, bytes).map_err(|_| NotLogged::NoSpace)
    }
}
