//! Reading what the last transaction groups wrote before a pool is trusted (spec 01, section 9.7,
//! step 11).
//!
//! When a device lies about its cache, the newest blocks are lost. The walk visits only blocks born
//! in the last txgs, so its cost is proportional to what was written then.

use rzfs_dmu::{DmuError, Objset, Traversal, Visit, Visitor};
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, Level, ObjectId, ObjsetId, Txg};
use std::ops::ControlFlow;

/// Transaction groups verified before a pool is opened.
const RECENT_TXGS: u64 = 3;

/// Blocks read together.
const BATCH: usize = 64;

/// What is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// Metadata of the last txgs.
    Recent,
    /// Metadata and data of the last txgs.
    RecentAndData,
    /// All metadata.
    All,
}

/// Blocks that could not be read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Damage {
    pub(super) metadata: u64,
    pub(super) data: u64,
    /// Metadata that may be on failing or missing devices.
    pub(super) on_missing: u64,
}

impl Damage {
    fn add_metadata(&mut self, may_come_back: bool) {
        self.metadata += 1;
        self.on_missing += u64::from(may_come_back);
    }
}

/// Reads the blocks in scope of the state at `txg`.
pub(super) fn run(mos: &Objset, txg: Txg, scope: Scope) -> Damage {
    let after = match scope {
        Scope::All => Txg::INITIAL.get() - 1,
        Scope::Recent | Scope::RecentAndData => txg.get().saturating_sub(RECENT_TXGS),
    };
    let mut reader = Reader {
        mos,
        scope,
        damage: Damage::default(),
        batch: Vec::new(),
        dnode_blocks: Vec::new(),
    };
    let walk = |reader: &mut Reader<'_>, objset, root: &BlockPointer| {
        let traversal = Traversal::parents_first(mos.pipeline(), objset);
        traversal.born_after(Txg(after)).run(root, reader);
        reader.flush();
    };
    walk(&mut reader, ObjsetId::MOS, mos.root());
    for (objset, root) in changed_datasets(mos, std::mem::take(&mut reader.dnode_blocks)) {
        walk(&mut reader, objset, &root);
    }
    reader.damage
}

/// The datasets whose objects are in these blocks of MOS dnodes.
fn changed_datasets(mos: &Objset, blocks: Vec<u64>) -> Vec<(ObjsetId, BlockPointer)> {
    let slots = rzfs_format::dnode::SLOTS_PER_BLOCK as u64;
    let mut datasets = Vec::new();
    for block in blocks {
        let first = block.saturating_mul(slots);
        let objects = mos.objects_from(ObjectId(first.max(1)));
        let in_block = objects.take_while(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.id.0 < first.saturating_add(slots))
        });
        for entry in in_block.flatten() {
            if entry.dnode.bonus_type == ObjectType::DSL_DATASET
                && let Ok(dataset) = DslDataset::decode(&entry.dnode.bonus, entry.dnode.order)
            {
                datasets.push((ObjsetId(entry.id.0), dataset.root));
            }
        }
    }
    datasets
}

struct Reader<'a> {
    mos: &'a Objset,
    scope: Scope,
    damage: Damage,
    batch: Vec<(BlockPointer, Kind)>,
    /// Visited blocks of MOS dnodes.
    dnode_blocks: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Metadata,
    Data,
}

impl Reader<'_> {
    /// Reads the deferred blocks in their stored form: no key is needed to detect damage.
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let pointers: Vec<&BlockPointer> = batch.iter().map(|(pointer, _)| pointer).collect();
        for (result, (_, kind)) in self.mos.pipeline().read_stored(&pointers).iter().zip(&batch) {
            match (result, kind) {
                (Ok(_), _) => {}
                (Err(error), Kind::Metadata) => self.damage.add_metadata(error.may_come_back()),
                (Err(_), Kind::Data) => self.damage.data += 1,
            }
        }
    }
}

impl Visitor for Reader<'_> {
    fn block(&mut self, &Visit { bookmark, pointer, .. }: &Visit<'_>) -> ControlFlow<()> {
        if bookmark.level != Level::DATA {
            // The walk itself reads it.
            return ControlFlow::Continue(());
        }
        if bookmark.object == ObjectId::META_DNODE {
            if bookmark.objset == ObjsetId::MOS {
                self.dnode_blocks.push(bookmark.block.0);
            }
            return ControlFlow::Continue(());
        }
        if pointer.is_embedded() {
            return ControlFlow::Continue(());
        }
        let kind = match pointer.object_type() {
            Ok(object_type) if !object_type.is_metadata() => Kind::Data,
            _ => Kind::Metadata,
        };
        if kind == Kind::Metadata || self.scope == Scope::RecentAndData {
            self.batch.push((*pointer, kind));
        }
        if self.batch.len() == BATCH {
            self.flush();
        }
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        tracing::warn!(%error, "metadata of a recent txg is damaged");
        self.damage.add_metadata(error.may_come_back());
        ControlFlow::Continue(())
    }
}
