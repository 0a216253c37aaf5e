//! The blocks of datasets and of their intent logs.

use super::{DatasetOrder, DatasetPlace, Flow, PoolVisitor, PoolWalk, Position, or_at, show};
use rzfs_dmu::intent_log::{self, LogChain};
use rzfs_dmu::{DmuError, Objset, Traversal};
use rzfs_format::dnode::Dnode;
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::zil::{Body, ZilHeader};
use rzfs_format::{BlockPointer, FormatError, Level, ObjectId, ObjsetId, Txg};

impl PoolWalk<'_> {
    /// All datasets from a position on, with their blocks born after their previous snapshots.
    pub(super) fn datasets(&self, from: Position, visitor: &mut dyn PoolVisitor) -> Flow {
        match self.order {
            DatasetOrder::ByNumber => self.by_number(from, visitor),
            DatasetOrder::OldestFirst => self.oldest_first(from, visitor),
        }
    }

    fn by_number(&self, from: Position, visitor: &mut dyn PoolVisitor) -> Flow {
        let first = place(from).map_or(0, |place| place.objset.0).max(1);
        // The position of the search for datasets.
        let mut here = from;
        for entry in self.mos.objects_from(ObjectId(first)) {
            match entry {
                Ok(entry) if entry.dnode.bonus_type == ObjectType::DSL_DATASET => {
                    self.dataset(entry.id, &entry.dnode, from, visitor)?;
                    here = start_of(Txg(0), ObjectId(entry.id.0 + 1));
                }
                Ok(_) => {}
                Err(error) => or_at(visitor.damage(error), here)?,
            }
        }
        Flow::Continue(())
    }

    fn oldest_first(&self, from: Position, visitor: &mut dyn PoolVisitor) -> Flow {
        let mut places = Vec::new();
        for entry in self.mos.objects() {
            match entry {
                Ok(entry) if entry.dnode.bonus_type == ObjectType::DSL_DATASET => {
                    // Invalid datasets are reported when they are visited.
                    let born_after = decode(&entry.dnode)
                        .map_or(Txg(0), |dataset| dataset.previous_snapshot_txg);
                    places.push(DatasetPlace { born_after, objset: ObjsetId(entry.id.0) });
                }
                Ok(_) => {}
                Err(error) => or_at(visitor.damage(error), from)?,
            }
        }
        places.sort_unstable();
        let first = place(from).unwrap_or_default();
        for place in places.into_iter().filter(|place| *place >= first) {
            let id = ObjectId(place.objset.0);
            match self.mos.object(id) {
                Ok(object) => self.dataset(id, object.dnode(), from, visitor)?,
                Err(error) => or_at(visitor.damage(error), Position::start_of_dataset(place))?,
            }
        }
        Flow::Continue(())
    }

    /// One dataset, or its remainder if the walk starts in it.
    fn dataset(
        &self,
        id: ObjectId,
        dnode: &Dnode,
        from: Position,
        visitor: &mut dyn PoolVisitor,
    ) -> Flow {
        let dataset = match decode(dnode) {
            Ok(dataset) => dataset,
            Err(source) => {
                let error = DmuError::Dnode { objset: ObjsetId::MOS, object: id, source };
                return or_at(visitor.broken(error.into()), start_of(Txg(0), id));
            }
        };
        let objset = ObjsetId(id.0);
        let here = DatasetPlace { born_after: dataset.previous_snapshot_txg, objset };
        let (skipped, next) = match from {
            Position::Log { dataset, block } if dataset.objset == objset => (block, None),
            Position::Dataset { dataset, next } if dataset.objset == objset => (0, Some(next)),
            _ => (0, None),
        };
        if !dataset.is_snapshot() && next.is_none() {
            self.log(here, &dataset.root, skipped, visitor)?;
        }
        let walk = Traversal::parents_first(self.mos.pipeline(), objset)
            .born_after(dataset.previous_snapshot_txg)
            .resumed_at(next);
        match walk.run(&dataset.root, visitor) {
            Some(next) => Flow::Break(Position::Dataset { dataset: here, next }),
            None => Flow::Continue(()),
        }
    }

    /// The intent log of a head: its blocks, and of a claimed log the data that its records point to
    /// and the references that it has to blocks which they share.
    fn log(
        &self,
        dataset: DatasetPlace,
        root: &BlockPointer,
        skipped: u64,
        visitor: &mut dyn PoolVisitor,
    ) -> Flow {
        let objset = dataset.objset;
        let Some(header) = self.log_header(objset, root) else { return Flow::Continue(()) };
        let mut chain = LogChain::new(self.mos.pipeline(), objset, &header);
        if header.claim_txg.is_none() {
            // Blocks younger than the pool were never committed.
            chain = chain.up_to(self.txg);
        }
        let mut number = 0;
        let mut show = |bookmark, pointer: &BlockPointer| {
            let here = number;
            number += 1;
            if here < skipped {
                return Flow::Continue(());
            }
            show(visitor, bookmark, pointer, Position::Log { dataset, block: here })
        };
        for block in chain {
            show(intent_log::bookmark(objset, &block.pointer), &block.pointer)?;
            let Some(claimed) = header.claim_txg else { continue };
            let in_log = Bookmark { objset, level: Level::ZIL, ..Bookmark::default() };
            for record in block.records() {
                for shared in record.shared_pointers() {
                    show(in_log, &shared)?;
                }
                let Ok(Body::Write(write)) = record.body() else { continue };
                let data = write.pointer;
                if write.is_indirect() && !data.is_hole() && data.logical_birth() >= claimed {
                    show(Bookmark { object: write.object, ..in_log }, &data)?;
                }
            }
        }
        Flow::Continue(())
    }

    /// An unreadable root is reported when the object set itself is visited.
    fn log_header(&self, objset: ObjsetId, root: &BlockPointer) -> Option<ZilHeader> {
        if root.is_hole() {
            return None;
        }
        Objset::open(self.mos.pipeline(), objset, root, None).ok()?.log_header().ok()
    }
}

fn decode(dnode: &Dnode) -> Result<DslDataset, FormatError> {
    DslDataset::decode(&dnode.bonus, dnode.order)
}

fn start_of(born_after: Txg, dataset: ObjectId) -> Position {
    Position::start_of_dataset(DatasetPlace { born_after, objset: ObjsetId(dataset.0) })
}

/// The dataset of a position.
const fn place(position: Position) -> Option<DatasetPlace> {
    match position {
        Position::Log { dataset, .. } | Position::Dataset { dataset, .. } => Some(dataset),
        _ => None,
    }
}
