//! The blocks of a log while its pool runs (spec 05, sections 10.3 and 11.3).
//!
//! ```text
//! header ──> written ──> written ──> written ──> tail: allocated, not written
//!            └─ freed from this end, with the txg that puts their records on disk
//! ```
//! The header, the frees and the allocations change with the same txgs, so at any crash the chain
//! from the header is complete.

use rzfs_format::{BlockPointer, Txg, VdevId};
use rzfs_vdev::LogTrust;
use std::collections::{BTreeSet, VecDeque};

/// A block of the chain.
#[derive(Clone, Copy, Debug)]
struct Block {
    pointer: BlockPointer,
    /// The youngest txg of a record in it.
    last_txg: Option<Txg>,
    is_written: bool,
}

impl Block {
    const fn unwritten(pointer: BlockPointer) -> Self {
        Self { pointer, last_txg: None, is_written: false }
    }

    fn birth(&self) -> Txg {
        self.pointer.logical_birth()
    }

    /// Whether everything in it is on disk with `txg`, and its space was accounted for before.
    fn is_done(&self, txg: Txg) -> bool {
        self.birth() < txg && self.has_settled(txg)
    }

    /// Whether everything in it is on disk with `txg`, and its space is accounted for with it.
    fn has_settled(&self, txg: Txg) -> bool {
        self.birth() <= txg && self.last_txg.is_none_or(|last| last <= txg)
    }
}

/// The changes of a txg to the chain.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct ChainChange {
    /// The new target of the header from this txg on, if it changes.
    pub(super) first: Option<BlockPointer>,
    /// Blocks that are no longer needed.
    pub(super) frees: Vec<BlockPointer>,
}

/// Whether records can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChainState {
    /// There is no chain.
    Absent,
    /// The header that points to it is written by this txg.
    Since(Txg),
    /// A block could not be written: its successors cannot be found. The chain ends when all of its
    /// records are on disk.
    Broken,
    /// It ended for good with this txg: the head has new contents.
    Over(Txg),
}

/// The chain.
#[derive(Debug)]
pub(super) struct Chain {
    blocks: VecDeque<Block>,
    state: ChainState,
    /// How far log devices were trusted when it started.
    trust: LogTrust,
    /// The target of the header as of the youngest txg.
    first: BlockPointer,
    /// Blocks of an earlier chain that this one replaces.
    replaced: Vec<BlockPointer>,
    /// Blocks that were added after the end.
    orphans: Vec<BlockPointer>,
}

/// The chain has ended: records written to it would not be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the chain has ended")]
pub(super) struct ChainEnded;

impl Default for Chain {
    fn default() -> Self {
        Self {
            blocks: VecDeque::new(),
            state: ChainState::Absent,
            trust: LogTrust::default(),
            first: BlockPointer::HOLE,
            replaced: Vec::new(),
            orphans: Vec::new(),
        }
    }
}

impl Chain {
    pub(super) const fn state(&self) -> ChainState {
        self.state
    }

    /// The txg of its oldest block written to one of these vdevs.
    pub(super) fn oldest_written(&self, vdevs: &BTreeSet<VdevId>) -> Option<Txg> {
        let is_there = |block: &&Block| {
            let mut dvas = block.pointer.dvas();
            block.is_written && dvas.any(|dva| vdevs.contains(&dva.vdev()))
        };
        self.blocks.iter().find(is_there).map(Block::birth)
    }

    /// The block for the next records.
    pub(super) fn tail(&self) -> Option<BlockPointer> {
        self.blocks.back().map(|block| block.pointer)
    }

    /// Starts with a block that the header points to from `since` on, instead of `replaced`.
    pub(super) fn start(
        &mut self,
        first: BlockPointer,
        since: Txg,
        trust: LogTrust,
        replaced: Option<BlockPointer>,
    ) {
        if let ChainState::Over(end) = self.state {
            // Anything older was reachable from the header, and went with it.
            self.orphans.extend(Some(first).filter(|first| first.logical_birth() > end));
            return;
        }
        self.blocks = VecDeque::from([Block::unwritten(first)]);
        self.state = ChainState::Since(since);
        self.trust = trust;
        self.first = first;
        self.replaced.extend(replaced);
    }

    /// Adds the block after `tail`, which takes records of txgs up to `last_txg`.
    ///
    /// # Errors
    /// [`ChainEnded`]: `next` is freed with its txg.
    pub(super) fn append(
        &mut self,
        tail: &BlockPointer,
        next: BlockPointer,
        last_txg: Option<Txg>,
    ) -> Result<(), ChainEnded> {
        let goes_on = matches!(self.state, ChainState::Since(_));
        match self.blocks.back_mut().filter(|block| goes_on && block.pointer == *tail) {
            Some(block) => block.last_txg = last_txg,
            None => {
                self.orphans.push(next);
                return Err(ChainEnded);
            }
        }
        self.blocks.push_back(Block::unwritten(next));
        Ok(())
    }

    /// Marks all blocks but the tail as written.
    pub(super) fn note_written(&mut self) {
        self.blocks.iter_mut().rev().skip(1).for_each(|block| block.is_written = true);
    }

    /// Marks the chain as broken by a lost or unwritten block.
    pub(super) fn break_off(&mut self) {
        if !self.blocks.is_empty() {
            self.state = ChainState::Broken;
        }
    }

    /// Ends the chain if log devices may have lost confirmed blocks of it.
    ///
    /// # Errors
    /// [`ChainEnded`].
    pub(super) fn require_trust(&mut self, trust: LogTrust) -> Result<(), ChainEnded> {
        if self.trust == trust && self.state != ChainState::Broken {
            return Ok(());
        }
        self.break_off();
        Err(ChainEnded)
    }

    /// Ends it for good with `txg`, which is being synced and frees its blocks; returns them,
    /// unless only the header on disk leads to them.
    pub(super) fn end(&mut self, txg: Txg) -> Option<Vec<BlockPointer>> {
        let before = std::mem::replace(&mut self.state, ChainState::Over(txg));
        self.orphans.extend(self.blocks.drain(..).map(|block| block.pointer));
        self.orphans.append(&mut self.replaced);
        (before != ChainState::Absent).then(|| self.take_orphans(txg))
    }

    pub(super) const fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The blocks allocated up to `txg` that were never added.
    pub(super) fn take_orphans(&mut self, txg: Txg) -> Vec<BlockPointer> {
        self.orphans.extract_if(.., |block| block.logical_birth() <= txg).collect()
    }

    /// Whether it will not change by itself, and has at most one block, allocated up to `synced`.
    pub(super) fn is_idle(&self, synced: Txg) -> bool {
        self.state != ChainState::Broken
            && self.replaced.is_empty()
            && self.orphans.is_empty()
            && self.blocks.len() <= 1
            && self.blocks.iter().all(|block| block.birth() <= synced)
    }

    /// The changes to it in `txg`, which is being synced.
    pub(super) fn sync(&mut self, txg: Txg) -> ChainChange {
        let mut change = ChainChange { first: None, frees: self.take_orphans(txg) };
        match self.state {
            ChainState::Since(since) if since <= txg => {
                change.frees.append(&mut self.replaced);
                self.free_leading(txg, &mut change.frees);
            }
            // At once: a crash after the txg would leave blocks unreachable from the header.
            ChainState::Broken if self.blocks.iter().all(|block| block.has_settled(txg)) => {
                change.frees.append(&mut self.replaced);
                change.frees.extend(self.blocks.drain(..).map(|block| block.pointer));
                self.state = ChainState::Absent;
            }
            _ => return change,
        }
        let first = self.blocks.front().map_or(BlockPointer::HOLE, |block| block.pointer);
        if first != self.first {
            self.first = first;
            change.first = Some(first);
        }
        change
    }

    /// Frees blocks from the front as long as the next one also belongs to a txg up to `txg`: the
    /// target of the header must be allocated.
    fn free_leading(&mut self, txg: Txg, frees: &mut Vec<BlockPointer>) {
        while let (Some(front), Some(second)) = (self.blocks.front(), self.blocks.get(1)) {
            if !front.is_written || !front.is_done(txg) || second.birth() > txg {
                break;
            }
            frees.push(front.pointer);
            self.blocks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::zil::{BlockForm, Verifier};
    use rzfs_format::{Dva, ObjsetId, VdevId};

    fn block(seq: u64, birth: u64) -> BlockPointer {
        let dva = Dva::new(VdevId(0), seq << 20, 4096, false);
        Verifier { guid: [1, 2], objset: ObjsetId(54), seq }.pointer(
            BlockForm::Leader,
            dva,
            4096,
            Txg(birth),
        )
    }

    /// Block 1 of txg 7 with records of txg 7, and a tail of txg 8.
    fn running() -> Chain {
        let mut chain = Chain::default();
        chain.start(block(1, 7), Txg(7), LogTrust::default(), None);
        chain.append(&block(1, 7), block(2, 8), Some(Txg(7))).unwrap();
        chain
    }

    #[test]
    fn blocks_go_with_the_txg_of_their_last_record() {
        let mut chain = running();
        chain.note_written();
        assert_eq!(chain.sync(Txg(7)), ChainChange::default(), "its space is not recorded yet");
        let change = chain.sync(Txg(8));
        assert_eq!((change.first, change.frees), (Some(block(2, 8)), vec![block(1, 7)]));
        assert_eq!(chain.tail(), Some(block(2, 8)));
        assert!(chain.is_idle(Txg(8)) && !chain.is_idle(Txg(7)));
        assert_eq!(chain.sync(Txg(9)), ChainChange::default());
    }

    #[test]
    fn blocks_stay_while_they_are_needed() {
        let mut chain = running();
        assert_eq!(chain.sync(Txg(8)), ChainChange::default(), "it is being written");
        chain.append(&block(2, 8), block(3, 9), Some(Txg(9))).unwrap();
        chain.note_written();
        assert_eq!(chain.sync(Txg(8)).frees, [block(1, 7)]);
        assert_eq!(chain.sync(Txg(8)), ChainChange::default(), "its record is of txg 9");
        let change = chain.sync(Txg(9));
        assert_eq!((change.first, change.frees), (Some(block(3, 9)), vec![block(2, 8)]));
    }

    #[test]
    fn the_header_never_points_to_a_younger_block() {
        let mut chain = Chain::default();
        chain.start(block(1, 7), Txg(7), LogTrust::default(), None);
        chain.append(&block(1, 7), block(2, 9), Some(Txg(7))).unwrap();
        chain.note_written();
        assert_eq!(chain.sync(Txg(8)), ChainChange::default());
        assert_eq!(chain.sync(Txg(9)).first, Some(block(2, 9)));
    }

    #[test]
    fn a_broken_chain_goes_as_a_whole() {
        let mut chain = running();
        chain.note_written();
        chain.append(&block(2, 8), block(3, 9), Some(Txg(9))).unwrap();
        chain.break_off();
        assert_eq!(chain.sync(Txg(8)), ChainChange::default());
        let change = chain.sync(Txg(9));
        assert_eq!(change.first, Some(BlockPointer::HOLE));
        assert_eq!(change.frees, [block(1, 7), block(2, 8), block(3, 9)]);
        assert_eq!((chain.state(), chain.tail()), (ChainState::Absent, None));
    }

    #[test]
    fn nothing_is_added_to_a_chain_that_has_ended() {
        let mut chain = running();
        chain.note_written();
        let tail = chain.tail().unwrap();
        chain.break_off();
        assert_eq!(chain.sync(Txg(8)).first, Some(BlockPointer::HOLE));
        assert_eq!(chain.append(&tail, block(3, 9), Some(Txg(9))), Err(ChainEnded));
        assert_eq!((chain.tail(), chain.sync(Txg(8))), (None, ChainChange::default()));
        // Another one was started meanwhile.
        chain.start(block(4, 9), Txg(9), LogTrust::default(), None);
        assert_eq!(chain.append(&tail, block(5, 10), Some(Txg(9))), Err(ChainEnded));
        assert!(!chain.is_idle(Txg(9)));
        assert_eq!(chain.sync(Txg(9)).frees, [block(3, 9)]);
        assert_eq!(chain.sync(Txg(10)).frees, [block(5, 10)]);
        assert_eq!(chain.tail(), Some(block(4, 9)));
    }

    #[test]
    fn a_chain_that_is_over_leaves_nothing() {
        let mut chain = running();
        chain.append(&block(2, 8), block(3, 10), Some(Txg(9))).unwrap();
        assert_eq!(chain.end(Txg(9)).unwrap(), [block(1, 7), block(2, 8)]);
        assert_eq!(chain.append(&block(3, 10), block(4, 10), Some(Txg(10))), Err(ChainEnded));
        assert_eq!(chain.take_orphans(Txg(10)), [block(3, 10), block(4, 10)]);
        assert!(!chain.has_orphans());
    }

    #[test]
    fn a_chain_that_is_over_before_it_begins_has_its_first_block_freed() {
        let mut chain = Chain::default();
        assert_eq!(chain.end(Txg(9)), None);
        // The blocks the header led to, and the new ones.
        chain.start(block(1, 7), Txg(9), LogTrust::default(), None);
        chain.start(block(2, 10), Txg(10), LogTrust::default(), Some(block(1, 7)));
        assert_eq!(chain.take_orphans(Txg(10)), [block(2, 10)]);
        assert_eq!((chain.tail(), chain.state()), (None, ChainState::Over(Txg(9))));
    }

    #[test]
    fn what_is_replaced_goes_with_the_header_that_named_it() {
        let mut chain = Chain::default();
        chain.start(block(1, 7), Txg(7), LogTrust::default(), Some(block(5, 3)));
        assert_eq!(chain.sync(Txg(6)), ChainChange::default());
        assert!(!chain.is_idle(Txg(7)));
        assert_eq!(chain.sync(Txg(7)).frees, [block(5, 3)]);
        assert!(chain.is_idle(Txg(7)));
    }
}
