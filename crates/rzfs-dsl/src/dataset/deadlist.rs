//! The dead list of a dataset: what the snapshot before it had and it has not (spec 04, section
//! 5).

use super::{DatasetError, DatasetTree};
use crate::live::amounts::Deflation;
use crate::pool::OBJECT_DIRECTORY;
use rzfs_dmu::Object;
use rzfs_format::block_pointer::BlockPointer;
use rzfs_format::bpobj::{self, BpobjHeader};
use rzfs_format::deadlist::{DeadlistHeader, parse_key};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, FormatError, ObjectId, Txg};
use std::collections::HashSet;

/// A dead list, ready for sums.
pub(super) struct Deadlist<'a> {
    tree: &'a DatasetTree,
    object: Object,
}

impl<'a> Deadlist<'a> {
    /// Opens the dead list in this object.
    pub(super) fn open(tree: &'a DatasetTree, id: ObjectId) -> Result<Self, DatasetError> {
        let object = tree.mos().object(id)?;
        match object.dnode().bonus_type {
            ObjectType::DEADLIST_HDR | ObjectType::BPOBJ_HDR => Ok(Self { tree, object }),
            _ => Err(object.wrong_type("a dead list").into()),
        }
    }

    /// Whether it is a single list of block pointers, as in pools before version 26.
    fn is_old(&self) -> bool {
        self.object.dnode().bonus_type == ObjectType::BPOBJ_HDR
    }

    /// Bytes of all blocks on it.
    pub(super) fn used(&self) -> Result<u64, DatasetError> {
        let (bonus, order) = (self.object.bonus(), self.object.order());
        let used = if self.is_old() {
            BpobjHeader::decode(bonus, order).map(|header| header.bytes)
        } else {
            DeadlistHeader::decode(bonus, order).map(|header| header.used)
        };
        used.map_err(|source| self.tree.corrupt(self.object.id(), source))
    }

    /// Bytes of the blocks on it that a snapshot of txg `txg`, or an older one, could have.
    pub(super) fn used_up_to(&self, txg: Txg) -> Result<u64, DatasetError> {
        if self.is_old() {
            return self.scan_up_to(txg);
        }
        let mut used = 0_u64;
        for entry in self.object.zap()?.entries() {
            let entry = entry.map_err(|source| self.object.zap_error(source))?;
            let key = parse_key(entry.name())
                .map_err(|source| self.tree.corrupt(self.object.id(), source))?;
            if key < txg {
                let list = ObjectId(entry.value.first_u64().unwrap_or_default());
                used = used.saturating_add(self.header(&self.tree.mos().object(list)?)?.bytes);
            }
        }
        Ok(used)
    }

    fn header(&self, list: &Object) -> Result<BpobjHeader, DatasetError> {
        let header = BpobjHeader::decode(list.bonus(), list.order());
        header.map_err(|source| self.tree.corrupt(list.id(), source))
    }

    /// The same for an old dead list: looks at every block pointer.
    fn scan_up_to(&self, txg: Txg) -> Result<u64, DatasetError> {
        let directory = self.tree.mos().object(OBJECT_DIRECTORY)?;
        let deflate = directory.zap()?.lookup_u64("deflate");
        let deflate = deflate.map_err(|source| directory.zap_error(source))?.unwrap_or(0) != 0;
        let mut used = 0_u64;
        let mut seen = HashSet::new();
        let mut pending = vec![self.object.id()];
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                let cycle = FormatError::invalid("bpobj", "it is its own sub-object");
                return Err(self.tree.corrupt(id, cycle));
            }
            let list = self.tree.mos().object(id)?;
            let header = self.header(&list)?;
            header
                .check_extent(list.dnode().extent())
                .map_err(|source| self.tree.corrupt(id, source))?;
            used = used.saturating_add(self.scan_list(&list, header.entries, txg, deflate)?);
            self.append_subobjects(&header, &mut pending)?;
        }
        Ok(used)
    }

    fn scan_list(
        &self,
        list: &Object,
        entries: u64,
        txg: Txg,
        deflate: bool,
    ) -> Result<u64, DatasetError> {
        let vdevs = self.tree.mos().pipeline().vdevs();
        let deflation = Deflation::new(&vdevs, deflate);
        let per_block = u64::from(list.block_size()) / BlockPointer::SIZE as u64;
        let mut used = 0_u64;
        for block in 0..entries.div_ceil(per_block.max(1)) {
            let left = entries.saturating_sub(block.saturating_mul(per_block));
            let take = usize::try_from(left).unwrap_or(usize::MAX);
            let block = list.read_block(BlockId(block))?;
            for pointer in bpobj::entries(&block.data, block.order).take(take) {
                let pointer = pointer.map_err(|source| self.tree.corrupt(list.id(), source))?;
                if pointer.logical_birth() <= txg {
                    let delta = deflation.of(&pointer);
                    used = used.saturating_add_signed(delta.used);
                }
            }
        }
        Ok(used)
    }

    fn append_subobjects(
        &self,
        header: &BpobjHeader,
        pending: &mut Vec<ObjectId>,
    ) -> Result<(), DatasetError> {
        let Some(array) = header.subobjects.filter(|_| header.subobject_count > 0) else {
            return Ok(());
        };
        let array = self.tree.mos().object(array)?;
        header
            .check_subobject_extent(array.dnode().extent())
            .map_err(|source| self.tree.corrupt(array.id(), source))?;
        let per_block = (array.block_size() as usize / 8).max(1);
        let mut left = usize::try_from(header.subobject_count).unwrap_or(usize::MAX);
        let mut next = BlockId(0);
        while left > 0 {
            let block = array.read_block(next)?;
            let words = block.data.as_chunks::<8>().0.iter().take(left);
            pending.extend(words.map(|word| ObjectId(block.order.u64(*word))));
            left = left.saturating_sub(per_block);
            next = BlockId(next.0.saturating_add(1));
        }
        Ok(())
    }
}
