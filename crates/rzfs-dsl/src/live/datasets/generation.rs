//! Generations of a head: its contents, until others take their place.
//!
//! A rollback, or receiving a stream, exchanges what a head has while its files are in use. Whoever
//! works with a head holds the generation that it has begun with, and everything that belongs
//! together is in there: the object set and its intent log. So nobody mixes two of them. A
//! generation that is superseded refuses everything ([`DmuError::Superseded`]) and stays until its
//! last user has gone and all blocks have been freed that its transactions have still allocated.
//!
//! [`DmuError::Superseded`]: rzfs_dmu::DmuError::Superseded

use crate::accounting::AccountingScope;
use crate::live::log::IntentLog;
use crate::live::log::space::LogSpace;
use rzfs_dmu::intent_log::owned_blocks;
use rzfs_dmu::live::{LiveObjset, SyncTx, Transaction};
use rzfs_dmu::{DmuError, Objset};
use rzfs_format::objset::{ObjsetBlock, ObjsetType};
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, Txg};
use std::sync::Arc;

/// The contents of a head, as long as it has these.
#[derive(Debug)]
pub struct Generation {
    objset: LiveObjset,
    scope: AccountingScope,
    log: IntentLog,
    log_space: LogSpace,
}

impl Generation {
    pub(crate) fn new(objset: LiveObjset, scope: AccountingScope) -> Self {
        Self { objset, scope, log: IntentLog::default(), log_space: LogSpace::default() }
    }

    /// What is on disk.
    pub(crate) fn open(objset: Objset) -> Self {
        let flags = objset.block().flags;
        let scope = match objset.objset_type() {
            ObjsetType::Zfs if flags & ObjsetBlock::FLAG_PROJECT_QUOTA != 0 => {
                AccountingScope::WithProjects
            }
            ObjsetType::Zfs if flags & ObjsetBlock::FLAG_OBJECT_ACCOUNTING != 0 => {
                AccountingScope::SpaceAndObjects
            }
            ObjsetType::Zfs if flags & ObjsetBlock::FLAG_USER_ACCOUNTING != 0 => {
                AccountingScope::Space
            }
            _ => AccountingScope::Nothing,
        };
        Self::new(LiveObjset::open(objset), scope)
    }

    /// The object set.
    #[must_use]
    pub const fn objset(&self) -> &LiveObjset {
        &self.objset
    }

    /// What of its space is counted for owners.
    pub(crate) const fn scope(&self) -> AccountingScope {
        self.scope
    }

    pub(crate) const fn log(&self) -> &IntentLog {
        &self.log
    }

    pub(crate) const fn log_space(&self) -> &LogSpace {
        &self.log_space
    }

    /// Gives the intent log a new header, and frees blocks that the log had and that this header
    /// does not lead to, both with the transaction's txg.
    pub fn change_log(&self, tx: &dyn Transaction, header: ZilHeader, frees: &[BlockPointer]) {
        self.log_space.free(tx.txg(), frees);
        self.objset.set_log_header(tx, header);
    }

    /// Counts references of the intent log, whose header changes in the same txg, to blocks.
    pub(crate) fn share_with_log(&self, tx: &dyn Transaction, blocks: &[BlockPointer]) {
        self.log_space.share(tx.txg(), blocks);
    }

    /// Whether somebody else has it, or a part of it.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.objset.is_shared()
    }

    /// Whether transactions have allocated blocks that nobody has freed yet.
    fn has_orphans(&self) -> bool {
        self.objset.has_orphans() || self.log.has_orphans()
    }

    fn take_orphans(&self, txg: Txg) -> Vec<BlockPointer> {
        let mut orphans = self.objset.take_orphans(txg);
        orphans.extend(self.log.take_orphans(txg));
        orphans
    }
}

/// The generations of a head that somebody may have.
#[derive(Debug)]
pub(super) struct Generations {
    pub(super) current: Arc<Generation>,
    superseded: Vec<Arc<Generation>>,
}

impl Generations {
    pub(super) fn new(first: Generation) -> Self {
        Self { current: Arc::new(first), superseded: Vec::new() }
    }

    /// Exchanges the contents in the txg that is being synced, which has written what it changes
    /// of the old ones. New ones that have no intent log are not dirty in it.
    pub(super) fn replace(&mut self, tx: &SyncTx<'_>, objset: Objset) -> Superseded {
        let new = Arc::new(Generation::open(objset));
        if new.objset.log_header().ok() != Some(ZilHeader::default()) {
            new.objset.set_log_header(tx, ZilHeader::default());
        }
        let old = std::mem::replace(&mut self.current, new);
        // Nobody but this txg frees what it has.
        let objset = old.objset.synced().kept();
        old.objset.supersede();
        let log = old.log.end(tx.txg());
        self.superseded.push(old);
        Superseded { objset, log }
    }

    /// Blocks of superseded generations that a txg frees when it is synced. A generation goes when
    /// nobody has it any more.
    pub(super) fn take_orphans(&mut self, txg: Txg) -> Vec<BlockPointer> {
        let mut orphans = Vec::new();
        self.superseded.retain(|old| {
            let is_used = old.is_used();
            orphans.extend(old.take_orphans(txg));
            is_used || old.has_orphans()
        });
        orphans
    }

    pub(super) fn has_orphans(&self) -> bool {
        self.superseded.iter().any(|old| old.has_orphans())
    }

    pub(super) fn is_used(&self) -> bool {
        self.current.is_used() || self.superseded.iter().any(Generation::is_used)
    }

    /// Whether nothing of them has to be written or freed any more, as of a txg on disk.
    pub(super) fn is_idle(&self, synced: Txg) -> bool {
        self.superseded.is_empty()
            && self.current.objset.is_clean()
            && self.current.log.is_idle(synced)
    }
}

/// What is left of contents that others have taken the place of.
pub(crate) struct Superseded {
    objset: Objset,
    /// Blocks of the intent log; `None` if only the header knows them.
    log: Option<Vec<BlockPointer>>,
}

impl Superseded {
    /// Blocks of the intent log, none of which leads anywhere any more.
    pub(crate) fn log_blocks(self) -> Result<Vec<BlockPointer>, DmuError> {
        let Self { objset, log } = self;
        match log {
            Some(blocks) => Ok(blocks),
            None => Ok(owned_blocks(objset.pipeline(), objset.id(), &objset.log_header()?)),
        }
    }
}
