//! The header of an object set's intent log, which is in the set's root block and thus changes with
//! the txgs that write it (spec 05, section 10.1).

use parking_lot::Mutex;
use rzfs_format::Txg;
use rzfs_format::zil::ZilHeader;
use std::collections::BTreeMap;

/// Headers not on disk yet, by the txgs that write them.
#[derive(Debug, Default)]
pub(super) struct PendingHeaders(Mutex<BTreeMap<Txg, ZilHeader>>);

impl PendingHeaders {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The header as of the youngest txg that changed it.
    pub(super) fn newest(&self) -> Option<ZilHeader> {
        self.0.lock().last_key_value().map(|(_, header)| header.clone())
    }

    pub(super) fn set(&self, txg: Txg, header: ZilHeader) {
        self.0.lock().insert(txg, header);
    }

    pub(super) fn of(&self, txg: Txg) -> Option<ZilHeader> {
        self.0.lock().get(&txg).cloned()
    }

    /// Drops all headers.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Drops the header of a txg, unless it was changed after it was written.
    pub(super) fn settle(&self, txg: Txg, written: &ZilHeader) {
        let mut pending = self.0.lock();
        if pending.get(&txg) == Some(written) {
            pending.remove(&txg);
        }
    }
}
