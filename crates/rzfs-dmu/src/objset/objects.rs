//! The objects of a set, by number.

use super::{Objset, slots_of};
use crate::{DmuError, Object};
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ObjectId};
use std::sync::Arc;

impl Objset {
    /// The meta-dnode as an object, with the dnodes as its data. `None` when no object was ever
    /// created.
    #[must_use]
    pub fn meta_object(&self) -> Option<Object> {
        let dnode = self.inner.block.meta_dnode.clone()?;
        Some(Object::new(self.clone(), ObjectId::META_DNODE, Arc::new(dnode)))
    }

    /// The pointer to a block of this object set.
    ///
    /// # Errors
    /// There is no such object or block, or its parents cannot be read.
    pub fn pointer_at(&self, bookmark: &Bookmark) -> Result<BlockPointer, DmuError> {
        if *bookmark == Bookmark::root(self.inner.id) {
            return Ok(self.inner.root);
        }
        let object = bookmark.object;
        let missing = || DmuError::NotAllocated { objset: self.inner.id, object };
        let object = match object {
            ObjectId::META_DNODE => self.meta_object().ok_or_else(missing)?,
            object => self.object(object)?,
        };
        let level = u8::try_from(bookmark.level.0).map_err(|_| missing())?;
        let block = bookmark.block.0;
        let pointers = object.pointers(level, block..block.saturating_add(1));
        pointers.into_iter().next().unwrap_or_else(|| Err(missing()))
    }

    /// The object with this number; the accounting objects have their special numbers.
    pub fn object(&self, id: ObjectId) -> Result<Object, DmuError> {
        let not_allocated = || DmuError::NotAllocated { objset: self.inner.id, object: id };
        let accounting = match id {
            ObjectId::USER_USED => Some(0),
            ObjectId::GROUP_USED => Some(1),
            ObjectId::PROJECT_USED => Some(2),
            _ => None,
        };
        let dnode = if let Some(index) = accounting {
            let [user, group, project] = &self.inner.block.accounting;
            let dnode = [user, group, project].get(index).copied().and_then(Option::clone);
            dnode.ok_or_else(not_allocated)?
        } else {
            self.read_dnode(id)?.ok_or_else(not_allocated)?
        };
        Ok(Object::new(self.clone(), id, Arc::new(dnode)))
    }

    /// Those of the objects with these numbers that exist and can be read, in no particular order.
    /// Their dnode blocks are read together.
    #[must_use]
    pub fn objects_of(&self, ids: &[ObjectId]) -> Vec<Object> {
        let Some(tree) = self.meta_tree() else { return Vec::new() };
        let slots = slots_of(&tree);
        let valid = ids.iter().filter(|id| id.0 != 0 && **id < ObjectId::END);
        let mut wanted: Vec<(u64, ObjectId)> = valid.map(|id| (id.0 / slots, *id)).collect();
        wanted.sort_unstable();
        let runs = wanted.chunk_by(|(a, _), (b, _)| *b <= *a + 1);
        let (mut numbers, mut pointers) = (Vec::new(), Vec::new());
        for run in runs {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
            numbers.extend(*first..=*last);
            pointers.extend(tree.pointers(0, *first..*last + 1));
        }
        let blocks = tree.begin(0, numbers.iter().copied(), pointers).finish();
        let mut found = Vec::with_capacity(wanted.len());
        for same_block in wanted.chunk_by(|(a, _), (b, _)| a == b) {
            let block = same_block
                .first()
                .and_then(|(number, _)| numbers.binary_search(number).ok())
                .and_then(|index| blocks.get(index));
            let Some(Ok(Some(block))) = block else { continue };
            for (_, id) in same_block {
                if let Ok(Some(dnode)) = self.dnode_in(block, *id) {
                    found.push(Object::new(self.clone(), *id, Arc::new(dnode)));
                }
            }
        }
        found
    }
}
