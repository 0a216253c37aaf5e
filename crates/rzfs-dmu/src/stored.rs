//! Blocks as they are stored, in one piece each: which copies there are, and which of them can be
//! read.

use crate::BlockError;
use crate::in_flight::InFlight;
use crate::injector::BlockInjector;
use crate::patience::Waiter;
use bytes::Bytes;
use rzfs_codec::checksum::{self, Salt};
use rzfs_format::{BlockPointer, Dva};
use rzfs_vdev::{BlockRead, CurrentTree, VdevError};
use std::sync::Arc;

/// Whether the blocks that are read have to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expectation {
    /// Somebody wrote them: a device that does not have them has made an error.
    Present,
    /// They may never have been written, or be wanted by nobody: nothing is counted.
    Possible,
}

/// The blocks of one pool, compressed and encrypted as they are.
pub(crate) struct StoredBlocks {
    pub(crate) vdevs: Arc<CurrentTree>,
    /// What is on its way to the devices.
    pub(crate) in_flight: Arc<InFlight>,
    /// The salt of keyed checksums.
    pub(crate) salt: Salt,
    /// Whether gang headers can be larger than a sector.
    pub(crate) dynamic_gang_headers: bool,
    /// Fault injection for tests.
    pub(crate) injector: Option<Arc<dyn BlockInjector>>,
    /// Who waits when devices fail.
    pub(crate) waiter: Waiter,
}

impl StoredBlocks {
    /// What was stored, or what an injector makes of it.
    pub(crate) fn injected(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        match &self.injector {
            Some(injector) => injector.inject_stored(pointer, stored),
            None => stored,
        }
    }

    /// Makes an attempt to read blocks, and others at those that failed, as long as this thread is
    /// to wait for devices.
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

    /// Tries to read blocks that lie in one piece, copy by copy.
    pub(crate) fn try_to_read(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results: Vec<Result<Bytes, BlockError>> =
            pointers.iter().map(|_| Err(BlockError::NoCopy)).collect();
        let mut copies: Vec<Vec<Dva>> = pointers.iter().map(|bp| self.copies(bp)).collect();
        let verifiers: Vec<_> = pointers
            .iter()
            .map(|bp| move |data: &[u8]| checksum::verify(bp, data, &self.salt).is_ok())
            .collect();
        loop {
            let mut batch = Vec::new();
            let mut indices = Vec::new();
            for (index, (bp, verify)) in pointers.iter().zip(&verifiers).enumerate() {
                let failed = results.get(index).is_some_and(Result::is_err);
                let Some(copies) = copies.get_mut(index).filter(|_| failed) else {
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
                let result = result.map_err(BlockError::Device);
                if let Some(slot) = results.get_mut(index)
                    && is_news(slot, &result)
                {
                    *slot = result;
                }
            }
        }
    }

    /// Reads copies of blocks from the devices, or from what is on its way there.
    pub(crate) fn read_copies(
        &self,
        reads: Vec<BlockRead<'_>>,
        expectation: Expectation,
    ) -> Vec<Result<Bytes, VdevError>> {
        let in_flight = |read: &BlockRead<'_>| self.in_flight.get(read.dva, read.birth, read.size);
        let mut results: Vec<_> = reads.iter().map(|read| in_flight(read).map(Ok)).collect();
        let is_known = |result: &Option<_>| result.is_some();
        let rest = reads.into_iter().zip(results.iter().map(is_known));
        let rest: Vec<_> = rest.filter(|(_, known)| !known).map(|(read, _)| read).collect();
        let vdevs = self.vdevs.get();
        let read = match expectation {
            Expectation::Present => vdevs.read(rest),
            Expectation::Possible => vdevs.read_speculative(rest),
        };
        let mut read = read.into_iter();
        results.iter_mut().filter(|result| result.is_none()).for_each(|slot| *slot = read.next());
        results.into_iter().flatten().collect()
    }

    /// The copies that lie inside of this pool's vdevs, the first to try last.
    pub(crate) fn copies(&self, bp: &BlockPointer) -> Vec<Dva> {
        let vdevs = self.vdevs.get();
        let mut copies: Vec<Dva> = bp.dvas().filter(|dva| vdevs.contains(*dva)).collect();
        copies.reverse();
        copies
    }
}

/// Whether what came of another copy says more than what is known: as long as one copy may be had
/// when its devices work again, the block is not lost.
fn is_news(known: &Result<Bytes, BlockError>, other: &Result<Bytes, BlockError>) -> bool {
    let may_be_mended =
        |result: &Result<_, BlockError>| result.as_ref().is_err_and(|error| !error.is_damage());
    other.is_ok() || !may_be_mended(known) || may_be_mended(other)
}
