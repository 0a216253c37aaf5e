//! Space maps and their arrays, as objects of the MOS.

use bytes::Bytes;
use rzfs_dmu::{Object, Objset};
use rzfs_format::ObjectId;
use rzfs_metaslab::{SpaceMapStore, StoreError, StoredObject};

/// Bytes that a prefetch reads of one object.
const PREFETCH_BYTES: u64 = 1 << 20;

/// The MOS as the store of space accounting.
#[derive(Clone, Debug)]
pub struct MosStore {
    mos: Objset,
}

impl MosStore {
    /// The store of this MOS.
    #[must_use]
    pub fn new(mos: Objset) -> Self {
        Self { mos }
    }

    fn get(&self, object: ObjectId) -> Result<Object, StoreError> {
        self.mos.object(object).map_err(Into::into)
    }
}

impl SpaceMapStore for MosStore {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        let object = self.get(object)?;
        Ok(StoredObject {
            object_type: object.object_type(),
            block_size: object.block_size(),
            extent: object.dnode().extent(),
            bonus: Bytes::copy_from_slice(object.bonus()),
            order: object.order(),
        })
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        const WORD: u64 = 8;
        let object = self.get(object)?;
        let block_size = u64::from(object.block_size());
        let start = first.saturating_mul(WORD);
        let end = start.saturating_add((count as u64).saturating_mul(WORD));
        let mut words = Vec::with_capacity(count);
        let blocks = start / block_size..end.div_ceil(block_size);
        let mut at = start;
        // Each block has the byte order of its own writer.
        for block in object.read_blocks(blocks) {
            let block = block?;
            let skip = (at % block_size) as usize;
            let take = (block_size - at % block_size).min(end - at) as usize;
            let bytes = block.data.get(skip..skip + take).unwrap_or_default();
            let (chunks, _) = bytes.as_chunks::<8>();
            words.extend(chunks.iter().map(|word| block.order.u64(*word)));
            at += take as u64;
        }
        words.resize(count, 0);
        Ok(words)
    }

    fn prefetch(&self, objects: &[(ObjectId, u64)]) {
        for (object, len) in objects {
            if let Ok(object) = self.get(*object) {
                let len = (*len).min(PREFETCH_BYTES).min(object.dnode().extent());
                let end = len.div_ceil(u64::from(object.block_size()));
                drop(object.read_blocks(0..end));
            }
        }
    }
}
