//! Stored blocks in one piece each: their copies, and which of them can be read.

use crate::BlockError;
use crate::in_flight::InFlight;
use crate::in_force::InForce;
use crate::injector::BlockInjector;
use crate::patience::Waiter;
use bytes::Bytes;
use rzfs_codec::checksum::{self, Salt};
use rzfs_format::{BlockPointer, Dva};
use rzfs_vdev::{BlockRead, CurrentTree, VdevError, Verify};
use std::sync::Arc;

/// Whether the blocks being read must exist.
#[derive(Clone, Copy)]
pub(crate) enum Expectation<'a> {
    /// They were written: a device without them has an error.
    Present,
    /// The same, as long as they are in force: afterwards other contents are not an error.
    While(&'a dyn InForce),
    /// They may never have been written, or not be needed: no errors are counted.
    Possible,
}

impl Expectation<'_> {
    /// Whether wrong contents are an error.
    pub(crate) fn is_in_force(self, pointer: &BlockPointer) -> bool {
        match self {
            Self::While(owner) => owner.is_in_force(pointer),
            Self::Present | Self::Possible => true,
        }
    }
}

/// Verifies a block by the checksum in its pointer.
struct Checksummed<'a> {
    pointer: &'a BlockPointer,
    salt: &'a Salt,
    expectation: Expectation<'a>,
}

impl Verify for Checksummed<'_> {
    fn is_block(&self, data: &[u8]) -> bool {
        checksum::verify(self.pointer, data, self.salt).is_ok()
    }

    fn is_expected(&self) -> bool {
        self.expectation.is_in_force(self.pointer)
    }
}

/// The stored blocks of one pool, compressed and encrypted.
pub(crate) struct StoredBlocks {
    pub(crate) vdevs: Arc<CurrentTree>,
    /// Blocks being written.
    pub(crate) in_flight: Arc<InFlight>,
    /// The salt of keyed checksums.
    pub(crate) salt: Salt,
    /// Whether gang headers can be larger than a sector.
    pub(crate) dynamic_gang_headers: bool,
    /// Fault injection for tests.
    pub(crate) injector: Option<Arc<dyn BlockInjector>>,
    /// Waits when devices fail.
    pub(crate) waiter: Waiter,
}

impl StoredBlocks {
    /// The stored data, or its replacement by an injector.
    pub(crate) fn injected(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        match &self.injector {
            Some(injector) => injector.inject_stored(pointer, stored),
            None => stored,
        }
    }

    /// Tries to read blocks, and retries those that failed as long as this thread is to wait for
    /// devices.
    pub(crate) fn patiently(
        &self,
        pointers: &[&BlockPointer],
        attempt: impl Fn(&[&BlockPointer]) -> Vec<Result<Bytes, BlockError>>,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results = attempt(pointers);
        while results.iter().filter_map(|it| it.as_ref().err()).any(|it| self.waiter.wait(it)) {
            let all = pointers.iter().copied().zip(&mut results);
            let (missing, slots): (Vec<_>, Vec<_>) = all.filter(|(_, slot)| slot.is_err()).unzip();
            for (slot, result) in slots.into_iter().zip(attempt(&missing)) {
                *slot = result;
            }
        }
        results
    }

    /// Tries to read blocks stored in one piece, copy by copy.
    pub(crate) fn try_to_read(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation<'_>,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results: Vec<Result<Bytes, BlockError>> =
            pointers.iter().map(|_| Err(BlockError::NoCopy)).collect();
        let mut copies: Vec<Vec<Dva>> = pointers.iter().map(|bp| self.copies(bp)).collect();
        let salt = &self.salt;
        let verifiers: Vec<_> =
            pointers.iter().map(|pointer| Checksummed { pointer, salt, expectation }).collect();
        loop {
            let mut batch = Vec::new();
            let mut indices = Vec::new();
            for (index, (bp, verify)) in pointers.iter().zip(&verifiers).enumerate() {
                let is_missing = results.get(index).is_some_and(is_missing);
                let Some(copies) = copies.get_mut(index).filter(|_| is_missing) else {
                    continue;
                };
                if let Some(dva) = copies.pop() {
                    indices.push(index);
                    batch.push(BlockRead {
                        dva,
                        size: bp.physical_size(),
                        birth: bp.physical_birth(),
                        verify,
                    });
                }
            }
            if batch.is_empty() {
                return results;
            }
            for (index, result) in indices.into_iter().zip(self.read_copies(batch, expectation)) {
                let result = result.map_err(BlockError::from);
                if let Some(slot) = results.get_mut(index)
                    && is_news(slot, &result)
                {
                    *slot = result;
                }
            }
        }
    }

    /// Reads copies of blocks from the devices, or from those being written.
    pub(crate) fn read_copies(
        &self,
        reads: Vec<BlockRead<'_>>,
        expectation: Expectation<'_>,
    ) -> Vec<Result<Bytes, VdevError>> {
        let in_flight = |read: &BlockRead<'_>| self.in_flight.get(read.dva, read.birth, read.size);
        let mut results: Vec<_> = reads.iter().map(|read| in_flight(read).map(Ok)).collect();
        let is_known = |result: &Option<_>| result.is_some();
        let rest = reads.into_iter().zip(results.iter().map(is_known));
        let rest: Vec<_> = rest.filter(|(_, known)| !known).map(|(read, _)| read).collect();
        let vdevs = self.vdevs.get();
        let read = match expectation {
            Expectation::Present | Expectation::While(_) => vdevs.read(rest),
            Expectation::Possible => vdevs.read_speculative(rest),
        };
        let mut read = read.into_iter();
        results.iter_mut().filter(|result| result.is_none()).for_each(|slot| *slot = read.next());
        results.into_iter().flatten().collect()
    }

    /// The copies inside this pool's vdevs, the first to try last.
    pub(crate) fn copies(&self, bp: &BlockPointer) -> Vec<Dva> {
        let vdevs = self.vdevs.get();
        let mut copies: Vec<Dva> = bp.dvas().filter(|dva| vdevs.contains(*dva)).collect();
        copies.reverse();
        copies
    }
}

/// Whether another copy may have the block.
fn is_missing(result: &Result<Bytes, BlockError>) -> bool {
    !matches!(result, Ok(_) | Err(BlockError::Overtaken))
}

/// Whether the result of another copy is more informative: as long as one copy may be readable when
/// its devices work again, the block is not lost.
fn is_news(known: &Result<Bytes, BlockError>, other: &Result<Bytes, BlockError>) -> bool {
    let may_be_mended =
        |result: &Result<_, BlockError>| result.as_ref().is_err_and(|error| !error.is_damage());
    other.is_ok() || !may_be_mended(known) || may_be_mended(other)
}
