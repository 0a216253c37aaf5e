//! Reading blocks.
//!
//! A batch of blocks goes through one loop. Every block has a task that says which ranges of which
//! leaves it needs next; all of these are sent to the devices together, and every completion goes
//! back to its task, which is then finished or needs more:
//!
//! ```text
//!  what is wanted                          when the data does not verify, or devices fail
//!  ─ the best copy of every data column    ─ other copies of the column
//!  ─ parity in place of columns that       ─ parity
//!    no leaf has                           ─ copies on leaves that are known to lack the block
//!                                          ─ everything, then every combination of copies and
//!                                            reconstructions until one has the block's checksum
//!                                          ─ what leaves were given and have not confirmed, from
//!                                            memory: they may have lost it
//! ```
//!
//! The caller's `verify` alone decides what is the block. Leaves that returned something else get a
//! checksum error, unless the block is gone meanwhile: then its replacement is right, and nothing
//! is counted or tried any longer.
//!
//! Memory: a batch needs at most the columns of its blocks, with parity, and the blocks; a block
//! that has to be reconstructed needs all its copies besides. Blocks are at most 16 MiB.

mod assembly;
mod leaf_io;
mod probe;
mod request;
mod search;
mod task;

pub(crate) use leaf_io::is_gone;
pub(crate) use probe::answers;

pub use request::{BlockRead, Finding, FindingKind, Scrubbed, Verify};

use crate::error::{AddressProblem, VdevError};
use crate::plan::LeafCopy;
use crate::tree::VdevTree;
use bytes::Bytes;
use leaf_io::LeafQueue;
use rzfs_blockdev::{IoBuffer, read_exact_at};
use rzfs_format::{Dva, Guid, Txg};
use task::{Purpose, Step, Task};

/// One copy of a block.
#[derive(Debug)]
pub struct CopyRead {
    /// The leaf that has it.
    pub leaf: Guid,
    /// What is stored there, right or wrong.
    pub data: Result<Bytes, VdevError>,
}

impl VdevTree {
    /// Reads blocks. The results are in the order of the reads; each is `size` bytes accepted by
    /// `verify`.
    ///
    /// All reads of the healthy case are in flight together. Blocks that need more are handled
    /// while others are still in flight.
    #[must_use]
    pub fn read(&self, reads: Vec<BlockRead<'_>>) -> Vec<Result<Bytes, VdevError>> {
        let outcomes = self.run(reads, Purpose::Read);
        outcomes.into_iter().map(|outcome| outcome.data).collect()
    }

    /// Reads blocks that may not exist, like the next one of an intent log: the same as
    /// [`Self::read`], but missing ones do not count as errors.
    #[must_use]
    pub fn read_speculative(&self, reads: Vec<BlockRead<'_>>) -> Vec<Result<Bytes, VdevError>> {
        let outcomes = self.run(reads, Purpose::Speculative);
        outcomes.into_iter().map(|outcome| outcome.data).collect()
    }

    /// Reads everything stored for blocks: all copies, all parity, all filler. Reports and counts
    /// errors, even where the block can be read without that part.
    #[must_use]
    pub fn scrub(&self, reads: Vec<BlockRead<'_>>) -> Vec<Scrubbed> {
        self.run(reads, Purpose::Scrub)
    }

    /// Reads an address without any check, as `zdb -R` does: the best copy of everything, missing
    /// columns reconstructed.
    ///
    /// # Errors
    /// When the address is invalid or too many devices are missing.
    pub fn read_unverified(&self, dva: Dva, size: u64, birth: Txg) -> Result<Bytes, VdevError> {
        let outcomes = self.read(vec![BlockRead { dva, size, birth, verify: &|_: &[u8]| true }]);
        outcomes.into_iter().next().unwrap_or_else(|| {
            let problem = AddressProblem::Size;
            Err(VdevError::Address { vdev: dva.vdev(), dva, size, problem })
        })
    }

    /// All copies of a contiguous block: on a disk, on a mirror, or where either was moved to.
    /// Blocks spread over several columns have no copies.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn read_copies(&self, dva: Dva, size: u64, birth: Txg) -> Result<Vec<CopyRead>, VdevError> {
        let plans = self.plan(dva, size, birth)?;
        let copies = match plans.as_slice() {
            [plan] if plan.single_column() => plan.copies(0),
            _ => &[],
        };
        let read = |copy: &LeafCopy| {
            let node = self.node(copy.leaf);
            let (name, guid) = (node.name.clone(), node.guid);
            let device = self.leaf(copy.leaf)?.usable_device()?;
            let data = read_exact_at(device.as_ref(), copy.position, size as usize)
                .map(IoBuffer::freeze)
                .map_err(|source| VdevError::Io { name, guid, source });
            Some(CopyRead { leaf: guid, data })
        };
        Ok(copies.iter().filter_map(read).collect())
    }

    fn run(&self, reads: Vec<BlockRead<'_>>, purpose: Purpose) -> Vec<Scrubbed> {
        let mut results: Vec<Option<Scrubbed>> = reads.iter().map(|_| None).collect();
        let mut tasks: Vec<Option<Task<'_>>> = Vec::with_capacity(reads.len());
        let mut queue = LeafQueue::new(self);
        for (index, read) in reads.into_iter().enumerate() {
            match self.plan(read.dva, read.size, read.birth) {
                Ok(plans) => tasks.push(Task::new(self, index, read, plans, purpose)),
                Err(error) => {
                    tasks.push(None);
                    if let Some(slot) = results.get_mut(index) {
                        *slot = Some(Scrubbed { data: Err(error), findings: Vec::new() });
                    }
                }
            }
            advance(&mut tasks, &mut results, index, &mut queue);
        }
        while let Some(finished) = queue.next() {
            for (read, outcome) in finished {
                let index = read.task;
                if let Some(Some(task)) = tasks.get_mut(index) {
                    task.accept(read, outcome);
                }
                advance(&mut tasks, &mut results, index, &mut queue);
            }
        }
        queue.probe_suspects();
        results.into_iter().flatten().collect()
    }
}

/// Advances a task, and takes its result when it is finished.
fn advance(
    tasks: &mut [Option<Task<'_>>],
    results: &mut [Option<Scrubbed>],
    index: usize,
    queue: &mut LeafQueue<'_>,
) {
    let Some(slot) = tasks.get_mut(index) else { return };
    let Some(task) = slot else { return };
    if let Step::Finished(outcome) = task.step(queue) {
        *slot = None;
        if let Some(result) = results.get_mut(index) {
            *result = Some(outcome);
        }
    }
}
