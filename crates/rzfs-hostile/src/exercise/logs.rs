//! Intent logs.

use super::Exercise;
use rzfs_dmu::Objset;
use rzfs_dmu::intent_log::LogChain;
use rzfs_format::Txg;
use rzfs_format::zil::ZilHeader;

/// Blocks of a log that are read.
const BLOCKS: usize = 50;

impl Exercise {
    /// Follows an intent log and decodes its records.
    pub(super) fn intent_log(&mut self, objset: &Objset, last_txg: Txg) {
        let order = objset.root().order();
        let Some(header) = self.note(ZilHeader::decode(&objset.block().zil_header, order)) else {
            return;
        };
        let mut chain = LogChain::new(objset.pipeline(), objset.id(), &header);
        if header.claim_txg.is_none() {
            chain = chain.up_to(last_txg);
        }
        for block in chain.by_ref().take(BLOCKS) {
            for record in block.records() {
                self.note(record.body());
            }
        }
        if let Some(end) = chain.end() {
            self.note(Err::<(), _>(end));
        }
    }
}
