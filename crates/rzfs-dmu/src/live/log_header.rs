//! The header of an object set's intent log, which is in the set's root block and so changes with
//! the txgs that write it (spec 05, section 10.1).

use super::objset::LiveObjset;
use super::transaction::Transaction;
use crate::DmuError;
use parking_lot::Mutex;
use rzfs_format::Txg;
use rzfs_format::zil::ZilHeader;
use std::collections::BTreeMap;

/// Headers that are not on disk yet, by the txgs that write them.
#[derive(Debug, Default)]
pub(super) struct PendingHeaders(Mutex<BTreeMap<Txg, ZilHeader>>);

impl PendingHeaders {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn of(&self, txg: Txg) -> Option<ZilHeader> {
        self.0.lock().get(&txg).cloned()
    }

    /// Forgets the header of a txg, unless it was changed after it was written.
    pub(super) fn settle(&self, txg: Txg, written: &ZilHeader) {
        let mut pending = self.0.lock();
        if pending.get(&txg) == Some(written) {
            pending.remove(&txg);
        }
    }
}

impl LiveObjset {
    /// The header of the set's intent log, as the youngest txg that has changed it leaves it.
    ///
    /// # Errors
    /// The header on disk is damaged.
    pub fn log_header(&self) -> Result<ZilHeader, DmuError> {
        let pending = self.inner.headers.0.lock();
        if let Some((_, header)) = pending.last_key_value() {
            return Ok(header.clone());
        }
        self.synced().log_header()
    }

    /// Has the transaction's txg write this header into the set's root block; the set is dirty
    /// then, if nothing else of it is. Whoever derives it from [`LiveObjset::log_header`] sees
    /// to it that nobody else does so at the same time.
    pub fn set_log_header(&self, tx: &dyn Transaction, header: ZilHeader) {
        self.inner.headers.0.lock().insert(tx.txg(), header);
    }
}
