//! Live object sets.

use super::log_header::PendingHeaders;
use super::numbers::Numbers;
use super::orphans::Orphans;
use super::state::ObjectCore;
use super::transaction::Transaction;
use crate::{BlockPipeline, DmuError, Objset};
use parking_lot::{Mutex, RwLock};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::objset::{ObjsetBlock, ObjsetType};
use rzfs_format::zil::ZilHeader;
use rzfs_format::{ByteOrder, ObjectId, ObjsetId, Txg};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

/// Txgs in which an object can be dirty at one time differ in their low bits.
const SLOTS: usize = 4;

/// Objects that are dirty in one txg.
pub(super) type DirtyObjects = BTreeMap<ObjectId, Arc<ObjectCore>>;

/// A live object set; a handle that can be cloned and shared.
#[derive(Clone, Debug)]
pub struct LiveObjset {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pipeline: Arc<BlockPipeline>,
    id: ObjsetId,
    key: Option<Arc<DatasetKey>>,
    /// The set on disk.
    pub(super) synced: RwLock<Objset>,
    pub(super) objects: Mutex<HashMap<ObjectId, Weak<ObjectCore>>>,
    pub(super) dirty: [Mutex<DirtyObjects>; SLOTS],
    pub(super) numbers: Mutex<Numbers>,
    pub(super) headers: PendingHeaders,
    /// Whether another set has replaced it.
    pub(super) is_superseded: AtomicBool,
    pub(super) orphans: Orphans,
}

impl LiveObjset {
    /// Opens a set on disk for changes. There must be only one live set of it.
    #[must_use]
    pub fn open(synced: Objset) -> Self {
        let (pipeline, id) = (Arc::clone(synced.pipeline()), synced.id());
        // Other holders are not affected by its replacement here.
        let synced = synced.kept();
        Self {
            inner: Arc::new(Inner {
                pipeline,
                id,
                key: synced.shared_key().cloned(),
                synced: RwLock::new(synced),
                objects: Mutex::default(),
                dirty: Default::default(),
                numbers: Mutex::default(),
                headers: PendingHeaders::default(),
                is_superseded: AtomicBool::new(false),
                orphans: Orphans::default(),
            }),
        }
    }

    /// A new set without objects; it is not on disk before it is synced. With a key it is
    /// encrypted.
    #[must_use]
    pub fn create(
        pipeline: &Arc<BlockPipeline>,
        id: ObjsetId,
        (objset_type, flags): (ObjsetType, u64),
        key: Option<Arc<DatasetKey>>,
    ) -> Self {
        let block = ObjsetBlock {
            meta_dnode: None,
            objset_type,
            flags,
            zil_header: [0; rzfs_format::objset::ZIL_HEADER_SIZE],
            portable_mac: [0; 32],
            local_mac: [0; 32],
            accounting: [None, None, None],
            order: ByteOrder::NATIVE,
        };
        Self::open(Objset::unwritten(pipeline, id, block, key))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ObjsetId {
        self.inner.id
    }

    /// The pipeline that reads its blocks.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.inner.pipeline
    }

    /// The key of its blocks, if it is encrypted and the key was loaded when it was opened.
    #[must_use]
    pub fn key(&self) -> Option<&Arc<DatasetKey>> {
        self.inner.key.as_ref()
    }

    /// Whether it is encrypted and was opened without the key: only the header of its intent log
    /// can be changed.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.synced().is_locked()
    }

    /// The set on disk. Blocks of it may be replaced while they are read, which is not an error; a
    /// reader that keeps its blocks from being reused reads one that is [kept](Objset::kept).
    #[must_use]
    pub fn synced(&self) -> Objset {
        self.inner.synced.read().clone()
    }

    /// Replaces the set on disk.
    pub(super) fn replace_synced(&self, with: impl FnOnce(&Objset) -> Objset) {
        let mut synced = self.inner.synced.write();
        let new = with(&synced);
        std::mem::replace(&mut *synced, new).set_replaced();
    }

    /// Whether it has dirty data in a txg.
    #[must_use]
    pub fn is_dirty(&self, txg: Txg) -> bool {
        !self.dirty(txg).lock().is_empty() || self.inner.headers.of(txg).is_some()
    }

    /// Whether it has no dirty data in any txg.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.inner.headers.is_empty() && !self.has_dirty_objects()
    }

    /// Whether it has a dirty object in some txg.
    #[must_use]
    pub fn has_dirty_objects(&self) -> bool {
        self.inner.dirty.iter().any(|dirty| !dirty.lock().is_empty())
    }

    /// Whether there are other handles to it or to one of its objects.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    pub(super) fn dirty(&self, txg: Txg) -> &Mutex<DirtyObjects> {
        &self.inner.dirty[(txg.get() % SLOTS as u64) as usize]
    }

    pub(super) fn mark_dirty(&self, txg: Txg, core: &Arc<ObjectCore>) {
        self.dirty(txg).lock().insert(core.id, Arc::clone(core));
    }

    /// The header of the set's intent log, as of the youngest txg that changed it.
    ///
    /// # Errors
    /// The header on disk is damaged.
    pub fn log_header(&self) -> Result<ZilHeader, DmuError> {
        // A header that is no longer pending is on disk by then.
        match self.inner.headers.newest() {
            Some(header) => Ok(header),
            None => self.synced().log_header(),
        }
    }

    /// Sets the header that the transaction's txg writes to the set's root block, which makes the
    /// set dirty. A caller that derives it from [`LiveObjset::log_header`] must make sure that no
    /// other one does so at the same time.
    pub fn set_log_header(&self, tx: &dyn Transaction, header: ZilHeader) {
        self.inner.headers.set(tx.txg(), header);
    }
}
