//! Intent logs.

use super::Exercise;
use rzfs_dmu::Objset;
use rzfs_format::Txg;
use rzfs_format::zil::{BlockForm, Chain, ZilHeader};
use std::collections::HashSet;

/// Blocks of a log that are read.
const BLOCKS: usize = 50;

impl Exercise {
    /// Follows an intent log and decodes its records.
    pub(super) fn intent_log(&mut self, objset: &Objset, last_txg: Txg) {
        let order = objset.root().order();
        let Some(header) = self.note(ZilHeader::decode(&objset.block().zil_header, order)) else {
            return;
        };
        let mut pointer = header.first;
        let mut seen = HashSet::new();
        for _ in 0..BLOCKS {
            let is_young = header.claim_txg.is_none() && pointer.logical_birth() > last_txg;
            if pointer.is_hole() || is_young || !seen.insert(pointer.encode(order)) {
                return;
            }
            if self.note(Chain::check_pointer(&pointer, objset.id())).is_none() {
                return;
            }
            let read = objset.pipeline().read_stored(&[&pointer]).pop();
            let Some(data) = read.and_then(|read| self.note(read)) else { return };
            let function = self.note(pointer.checksum_function());
            let Some(form) = function.and_then(|function| self.note(BlockForm::of(function)))
            else {
                return;
            };
            let Some(chain) = self.note(Chain::decode(&data, form, pointer.order())) else {
                return;
            };
            for record in chain.records(&data) {
                let Some(record) = self.note(record) else { break };
                self.note(record.body());
            }
            pointer = chain.next;
        }
    }
}
