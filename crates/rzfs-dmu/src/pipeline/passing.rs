//! Reading without caching: for large one-time reads, like a send.
//!
//! Cached blocks are used. Others are read into the reader's own memory and never become part of
//! the cache: so a long stream evicts nothing that others need, and a block costs no entry, no list
//! and no eviction.

use super::batch::{Wanted, without_device};
use super::{BlockPipeline, BlockRequest, block_key};
use crate::in_force::InForce;
use crate::{Block, BlockError};
use rzfs_format::BlockPointer;

impl BlockPipeline {
    /// Reads blocks, results in the order of the requests. `owner` knows whether they are still in
    /// force.
    pub(crate) fn read_past_cache(
        &self,
        requests: &[BlockRequest<'_>],
        owner: &dyn InForce,
    ) -> Vec<Result<Block, BlockError>> {
        let mut results: Vec<Result<Block, BlockError>> = Vec::with_capacity(requests.len());
        let mut missing = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            results.push(match self.at_hand(request) {
                Ok(Some(block)) => Ok(block),
                Err(error) => Err(error),
                Ok(None) => {
                    missing.push(index);
                    Err(BlockError::NoCopy)
                }
            });
        }
        let wanted = || missing.iter().filter_map(|index| requests.get(*index));
        let pointers: Vec<&BlockPointer> = wanted().map(|request| request.pointer).collect();
        let stored = self.read_while(&pointers, owner);
        let (mut indices, mut encoded) = (Vec::new(), Vec::new());
        for ((index, request), stored) in missing.iter().zip(wanted()).zip(stored) {
            let BlockRequest { pointer, bookmark, key } = *request;
            match stored {
                Ok(stored) => {
                    let wanted = Wanted { pointer: *pointer, bookmark, key: key.cloned() };
                    indices.push(*index);
                    encoded.push(self.encoded(wanted, stored, None));
                }
                Err(error) => set(&mut results, *index, Err(error)),
            }
        }
        for (index, decoded) in indices.into_iter().zip(self.workers.decode(encoded)) {
            set(&mut results, index, decoded);
        }
        for index in missing {
            if let (Some(request), Some(Err(error))) = (requests.get(index), results.get(index)) {
                self.note_damage(request.bookmark, request.pointer, error, owner);
            }
        }
        results
    }

    /// A block that needs no device.
    fn at_hand(&self, request: &BlockRequest<'_>) -> Result<Option<Block>, BlockError> {
        if let Some(block) = without_device(request)? {
            return Ok(Some(block));
        }
        let BlockRequest { pointer, bookmark, .. } = *request;
        if let Some(block) = self.held.get(bookmark, pointer) {
            return Ok(Some(block));
        }
        // The cache has plaintext, which must not be returned without a key.
        let key = block_key(pointer).filter(|_| !request.is_locked());
        let block = key.and_then(|key| self.cache.get(&key));
        Ok(block.filter(|block| block.can_be_of(pointer)))
    }
}

fn set(results: &mut [Result<Block, BlockError>], index: usize, result: Result<Block, BlockError>) {
    if let Some(place) = results.get_mut(index) {
        *place = result;
    }
}
