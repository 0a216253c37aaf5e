//! Pending frees (spec 04, sections 4, 9.5 and 10).

use super::{Flow, PoolVisitor, PoolWalk, Position, or_at, show};
use crate::mos::pointer_list::{self, PointerList};
use crate::pool::PoolError;
use rzfs_dmu::{DmuError, Object, Traversal};
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ObjectId};
use std::ops::ControlFlow;

impl PoolWalk<'_> {
    /// Deferred frees and the blocks of destroyed snapshots.
    pub(super) fn free_lists(&self, from: u64, visitor: &mut dyn PoolVisitor) -> Flow {
        // Entries of the previous lists.
        let mut before = 0;
        for name in ["sync_bplist", "free_bpobj"] {
            let Some(id) = self.entry(name, Position::FreeLists { entry: before }, visitor)? else {
                continue;
            };
            let lists = match self.mos.object(id) {
                Ok(list) => PointerList::with_sublists(list),
                Err(error) => {
                    let here = Position::FreeLists { entry: before };
                    or_at(visitor.broken(error.into()), here)?;
                    continue;
                }
            };
            for list in lists {
                match list {
                    Ok(list) => before = Self::free_list(&list, before, from, visitor)?,
                    Err(error) => {
                        let here = Position::FreeLists { entry: before };
                        or_at(visitor.broken(error.into()), here)?;
                    }
                }
            }
        }
        Flow::Continue(())
    }

    /// One list, up to the first unreadable entry; returns the number of entries including it.
    fn free_list(
        list: &PointerList,
        before: u64,
        from: u64,
        visitor: &mut dyn PoolVisitor,
    ) -> ControlFlow<Position, u64> {
        let entries = list.header().entries;
        let first = from.saturating_sub(before).min(entries);
        for (entry, number) in list.entries_from(first).zip(first..) {
            let here = Position::FreeLists { entry: before.saturating_add(number) };
            match entry {
                Ok(pointer) => show(visitor, Bookmark::default(), &pointer, here)?,
                Err(error) => {
                    or_at(visitor.broken(error.into()), here)?;
                    break;
                }
            }
        }
        ControlFlow::Continue(before.saturating_add(entries))
    }

    /// The remains of datasets being destroyed. Like the freeing code, the walk visits children
    /// first, so it knows what is already freed.
    pub(super) fn destroyed(
        &self,
        from: (u64, Option<Bookmark>),
        visitor: &mut dyn PoolVisitor,
    ) -> Flow {
        let (first, next) = from;
        let here = Position::Destroyed { entry: first, next };
        let Some(list) = self.entry("bptree_obj", here, visitor)? else {
            return Flow::Continue(());
        };
        let datasets = match pointer_list::destroyed(self.mos, list) {
            Ok(datasets) => datasets,
            Err(error) => return or_at(visitor.broken(error.into()), here),
        };
        for (entry, dataset) in datasets.into_iter().filter(|(entry, _)| *entry >= first) {
            let next = next.filter(|_| entry == first).or(dataset.next());
            let walk = Traversal::children_first(self.mos.pipeline(), dataset.resume.objset)
                .born_after(dataset.birth)
                .resumed_at(next);
            if let Some(next) = walk.run(&dataset.root, visitor) {
                return Flow::Break(Position::Destroyed { entry, next: Some(next) });
            }
        }
        Flow::Continue(())
    }

    /// Blocks only listed in livelists that are being deleted.
    pub(super) fn deleted_livelists(&self, from: u64, visitor: &mut dyn PoolVisitor) -> Flow {
        let mut number = 0;
        let here = |entry| Position::DeletedLivelists { entry };
        let Some(clones) = self.entry("com.delphix:deleted_clones", here(0), visitor)? else {
            return Flow::Continue(());
        };
        let lists = match self.lists_of_clones(clones) {
            Ok(lists) => lists,
            Err(error) => return or_at(visitor.broken(error), here(from)),
        };
        for list in lists {
            let survivors: Vec<BlockPointer> = match pointer_list::survivors(self.mos, list) {
                Ok(survivors) => survivors,
                Err(error) => {
                    or_at(visitor.broken(error.into()), here(number))?;
                    continue;
                }
            };
            for pointer in survivors {
                if number >= from {
                    show(visitor, Bookmark::default(), &pointer, here(number))?;
                }
                number += 1;
            }
        }
        Flow::Continue(())
    }

    fn lists_of_clones(&self, clones: ObjectId) -> Result<Vec<ObjectId>, PoolError> {
        let mut lists = Vec::new();
        for livelist in numbers(&self.mos.object(clones)?)? {
            lists.extend(numbers(&self.mos.object(livelist)?)?);
        }
        Ok(lists)
    }
}

/// The numbers that are the values of a ZAP's entries.
fn numbers(object: &Object) -> Result<Vec<ObjectId>, DmuError> {
    let mut numbers = Vec::new();
    for entry in object.zap()?.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        numbers.extend(entry.value.first_u64().map(ObjectId));
    }
    Ok(numbers)
}
