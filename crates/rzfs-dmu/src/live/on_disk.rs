//! An object on disk at some txg.

use super::object::LiveObject;
use crate::in_force::InForce;
use crate::tree::Tree;
use rzfs_format::BlockPointer;
use rzfs_format::dnode::Dnode;
use std::sync::Arc;

/// An object with its dnode on disk at one moment. The next sync may replace the dnode, and reuse
/// the space of what only this one has.
#[derive(Clone)]
pub(super) struct OnDisk<'a> {
    object: &'a LiveObject,
    dnode: Arc<Dnode>,
}

impl LiveObject {
    /// The object with this dnode.
    pub(super) const fn with_dnode(&self, dnode: Arc<Dnode>) -> OnDisk<'_> {
        OnDisk { object: self, dnode }
    }

    /// The object on disk; `None` if it is not there.
    pub(super) fn synced(&self) -> Option<OnDisk<'_>> {
        let dnode = self.state().synced.clone()?;
        Some(self.with_dnode(dnode))
    }
}

impl OnDisk<'_> {
    pub(super) fn dnode(&self) -> &Dnode {
        &self.dnode
    }

    /// Its tree. After a failed read, look it up again if it is [replaced](OnDisk::is_replaced) by
    /// then.
    pub(super) fn tree(&self) -> Tree<'_> {
        let objset = self.object.objset();
        Tree {
            pipeline: objset.pipeline(),
            key: objset.key(),
            objset: objset.id(),
            object: self.object.id(),
            dnode: &self.dnode,
            existence: None,
            owner: self,
        }
    }

    /// Whether a sync has replaced the dnode on disk.
    pub(super) fn is_replaced(&self) -> bool {
        let state = self.object.state();
        !state.synced.as_ref().is_some_and(|synced| Arc::ptr_eq(synced, &self.dnode))
    }
}

impl InForce for OnDisk<'_> {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        !self.is_replaced()
    }
}
