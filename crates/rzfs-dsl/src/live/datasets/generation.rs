//! Generations of a head: its contents, until they are replaced.
//!
//! A rollback or a receive exchanges a head's contents while its files are in use. A user of a head
//! holds the generation it started with, which keeps together what belongs together: the object set
//! and its intent log. So two of them are never mixed. A superseded generation refuses everything
//! ([`DmuError::Superseded`]) and stays until its last user is gone and all blocks allocated by its
//! transactions have been freed.
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

/// The contents of a head, until they are replaced.
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

    /// The generation on disk.
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

    /// Which space is accounted to owners.
    pub(crate) const fn scope(&self) -> AccountingScope {
        self.scope
    }

    pub(crate) const fn log(&self) -> &IntentLog {
        &self.log
    }

    pub(crate) const fn log_space(&self) -> &LogSpace {
        &self.log_space
    }

    /// Gives the intent log a new header, and frees log blocks that this header no longer reaches,
    /// both with the transaction's txg.
    pub fn change_log(&self, tx: &dyn Transaction, header: ZilHeader, frees: &[BlockPointer]) {
        self.log_space.free(tx.txg(), frees);
        self.objset.set_log_header(tx, header);
    }

    /// Counts block references of the intent log, whose header changes in the same txg.
    pub(crate) fn share_with_log(&self, tx: &dyn Transaction, blocks: &[BlockPointer]) {
        self.log_space.share(tx.txg(), blocks);
    }

    /// Whether another holder has it, or a part of it.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.objset.is_shared()
    }

    /// Whether transactions have allocated blocks that are not freed yet.
    fn has_orphans(&self) -> bool {
        self.objset.has_orphans() || self.log.has_orphans()
    }

    fn take_orphans(&self, txg: Txg) -> Vec<BlockPointer> {
        let mut orphans = self.objset.take_orphans(txg);
        orphans.extend(self.log.take_orphans(txg));
        orphans
    }
}

/// The generations of a head that may be in use.
#[derive(Debug)]
pub(super) struct Generations {
    pub(super) current: Arc<Generation>,
    superseded: Vec<Arc<Generation>>,
}

impl Generations {
    pub(super) fn new(first: Generation) -> Self {
        Self { current: Arc::new(first), superseded: Vec::new() }
    }

    /// Exchanges the contents in the syncing txg, which has written the changes of the old ones.
    /// New ones without an intent log are not dirty in it.
    pub(super) fn replace(&mut self, tx: &SyncTx<'_>, objset: Objset) -> Superseded {
        let new = Arc::new(Generation::open(objset));
        if new.objset.log_header().ok() != Some(ZilHeader::default()) {
            new.objset.set_log_header(tx, ZilHeader::default());
        }
        let old = std::mem::replace(&mut self.current, new);
        // Only this txg frees its blocks.
        let objset = old.objset.synced().kept();
        old.objset.supersede();
        let log = old.log.end(tx.txg());
        self.superseded.push(old);
        Superseded { objset, log }
    }

    /// Blocks of superseded generations that a txg frees when it is synced. A generation is dropped
    /// when it is no longer in use.
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

    /// Whether nothing remains to be written or freed, as of a txg on disk.
    pub(super) fn is_idle(&self, synced: Txg) -> bool {
        self.superseded.is_empty()
            && self.current.objset.is_clean()
            && self.current.log.is_idle(synced)
    }
}

/// The remains of replaced contents.
pub(crate) struct Superseded {
    objset: Objset,
    /// Blocks of the intent log; `None` if only the header knows them.
    log: Option<Vec<BlockPointer>>,
}

impl Superseded {
    /// Blocks of the intent log, detached from the chain.
    pub(crate) fn log_blocks(self) -> Result<Vec<BlockPointer>, DmuError> {
        let Self { objset, log } = self;
        match log {
            Some(blocks) => Ok(blocks),
            None => Ok(owned_blocks(objset.pipeline(), objset.id(), &objset.log_header()?)),
        }
    }
}
