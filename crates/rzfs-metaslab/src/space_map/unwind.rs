//! Taking entries off the end of a space map, the last one first: how a checkpoint is discarded
//! over several txgs (spec 06, sections 4.9 and 14).

use super::SpaceMap;
use crate::MetaslabError;
use crate::store::SyncStore;
use rzfs_format::space_map::{Action, Entry, Run, WORD_SIZE};
use std::ops::Range;

impl SpaceMap {
    /// Takes about `most` entries off the end, calls `visit` for each with its bytes, and stores
    /// the header. Blocks that lose all entries stay with the object. Answers with the number of
    /// entries.
    ///
    /// # Errors
    /// The store's, those of the entries, and what `visit` says; entries that were visited are
    /// gone from the header in memory then, which is not stored.
    pub fn unwind(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
        most: u64,
        mut visit: impl FnMut(&Run, Range<u64>) -> Result<(), MetaslabError>,
    ) -> Result<u64, MetaslabError> {
        let block_words = u64::from(self.block_size) / WORD_SIZE;
        let mut taken = 0;
        while let Some(last) = (self.header.length / WORD_SIZE).checked_sub(1)
            && taken < most
        {
            let base = last / block_words * block_words;
            let count = last + 1 - base;
            let words = store
                .read_words(self.object, base, count as usize)
                .map_err(MetaslabError::store(self.object))?;
            let mut entries = Vec::new();
            self.visit_block(&words, base, &mut |_, entry| {
                entries.push(entry);
                Ok(())
            })?;
            for entry in entries.into_iter().rev() {
                if let Entry::Run(run) = entry {
                    let range =
                        self.geometry.range(&run).map_err(MetaslabError::format(self.object))?;
                    let bytes = (range.end - range.start).cast_signed();
                    visit(&run, range)?;
                    self.header.allocated = match run.action {
                        Action::Allocate => self.header.allocated.saturating_sub(bytes),
                        Action::Free => self.header.allocated.saturating_add(bytes),
                    };
                    taken += 1;
                }
                self.header.length -= entry.words() * WORD_SIZE;
                if taken >= most {
                    break;
                }
            }
        }
        self.store_header(store)?;
        Ok(taken)
    }
}
