//! Space maps and their arrays, as objects of the MOS.

use bytes::Bytes;
use rzfs_dmu::{ObjectSource, Objset, SourceObject};
use rzfs_format::ObjectId;
use rzfs_metaslab::{SpaceMapStore, StoreError, StoredObject};

/// Bytes prefetched per object.
const PREFETCH_BYTES: u64 = 1 << 20;
/// Size of a word in bytes.
const WORD: u64 = 8;

/// The MOS as the store of space accounting: that of an uberblock, or the current state of a live
/// pool.
#[derive(Clone, Debug)]
pub struct MosStore<S = Objset> {
    mos: S,
}

impl<S: ObjectSource> MosStore<S> {
    /// The store of this MOS.
    #[must_use]
    pub fn new(mos: S) -> Self {
        Self { mos }
    }
}

impl<S: ObjectSource> SpaceMapStore for MosStore<S> {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        let object = self.mos.object(object)?;
        Ok(StoredObject {
            object_type: object.object_type()?,
            block_size: object.data_block_size()?,
            extent: object.extent()?,
            bonus: Bytes::copy_from_slice(&object.bonus()?),
            order: object.bonus_order(),
        })
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let object = self.mos.object(object)?;
        let block_size = u64::from(object.data_block_size()?).max(1);
        let start = first.saturating_mul(WORD);
        let end = start.saturating_add((count as u64).saturating_mul(WORD));
        let mut words = Vec::with_capacity(count);
        let blocks = start / block_size..end.div_ceil(block_size);
        let mut at = start;
        // Each block has the byte order of its writer.
        for block in object.read_blocks(blocks, |_| ())? {
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
        let read = |(object, len): &(ObjectId, u64)| {
            let object = self.mos.object(*object)?;
            let len = (*len).min(PREFETCH_BYTES).min(object.extent()?);
            let end = len.div_ceil(u64::from(object.data_block_size()?).max(1));
            object.read_blocks(0..end, |_| ()).map(drop)
        };
        // Errors are reported when the object is read.
        objects.iter().map(read).for_each(drop);
    }
}
