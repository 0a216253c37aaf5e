//! `zdb -S`: what dedup would save if all data had been written with it.
//!
//! Every block of data is looked up by what a dedup table would know it by. The memory is that of
//! the distinct blocks, about 100 bytes each.

use super::report::{print_ratio, rows};
use crate::dedup_text;
use crate::zdb::error::ZdbError;
use crate::zdb::session::{Session, Verdict};
use rzfs_dmu::{DmuError, Traversal, Visitor};
use rzfs_dsl::pool::Pool;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::{DdtHistogram, DdtKey, DdtStats};
use rzfs_format::dnode::Dnode;
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::{Bookmark, SECTOR_SIZE};
use rzfs_format::{BlockPointer, Level, ObjsetId, Txg};
use std::collections::HashMap;

/// The table that there would be.
struct Simulation<'a> {
    pool: &'a Pool,
    /// Whether space counts as what data take of it without parity.
    deflate: bool,
    entries: HashMap<DdtKey, Entry>,
    damage: Vec<DmuError>,
}

/// All references to blocks that are alike.
#[derive(Clone, Copy, Default)]
struct Entry {
    references: u64,
    lsize: u64,
    psize: u64,
    dsize: u64,
}

/// Shows the histogram of the table, and what it would save.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let mut simulation =
        Simulation { pool, deflate: pool.deflate()?, entries: HashMap::new(), damage: Vec::new() };
    simulation.walk()?;
    let mut histogram = DdtHistogram::default();
    for entry in simulation.entries.values() {
        let once = |sum: u64| sum.checked_div(entry.references).unwrap_or(0);
        let stats = DdtStats {
            blocks: 1,
            lsize: once(entry.lsize),
            psize: once(entry.psize),
            dsize: once(entry.dsize),
            ref_blocks: entry.references,
            ref_lsize: entry.lsize,
            ref_psize: entry.psize,
            ref_dsize: entry.dsize,
        };
        histogram.record(entry.references, &stats);
    }
    writeln!(session.out, "Simulated DDT histogram:\n")?;
    let rows = rows(&histogram);
    let total = dedup_text::total(&rows);
    dedup_text::print(&rows, Some(&total).filter(|total| total[0] > 0), session.out)?;
    print_ratio(session.out, &histogram.total())?;
    for error in &simulation.damage {
        writeln!(session.notes, "zdb: not counted: {error}")?;
    }
    let clean = simulation.damage.is_empty();
    Ok(if clean { Verdict::Clean } else { Verdict::Unreadable })
}

impl Simulation<'_> {
    /// Visits all blocks of all objsets once.
    fn walk(&mut self) -> Result<(), ZdbError> {
        let mos = self.pool.mos().clone();
        self.objset(ObjsetId::MOS, mos.root(), Txg(0));
        for entry in mos.objects() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.damage.push(error);
                    continue;
                }
            };
            if entry.dnode.bonus_type == ObjectType::DSL_DATASET {
                let dataset = DslDataset::decode(&entry.dnode.bonus, entry.dnode.order)
                    .map_err(ZdbError::corrupt(entry.id))?;
                let objset = ObjsetId(entry.id.0);
                self.objset(objset, &dataset.root, dataset.previous_snapshot_txg);
            }
        }
        Ok(())
    }

    fn objset(&mut self, objset: ObjsetId, root: &BlockPointer, after: Txg) {
        let pipeline = self.pool.pipeline();
        Traversal { pipeline, objset, key: None, after }.run(root, self);
    }

    /// Bytes that a block takes, without parity if the pool counts so.
    fn dsize(&self, pointer: &BlockPointer) -> u64 {
        pointer.dvas().fold(0, |sum: u64, dva| {
            let ratio = self.pool.vdevs().deflate_ratio(dva.vdev()).filter(|_| self.deflate);
            let dsize = match ratio {
                Some(ratio) => (dva.asize() / SECTOR_SIZE).saturating_mul(ratio),
                None => dva.asize(),
            };
            sum.saturating_add(dsize)
        })
    }
}

impl Visitor for Simulation<'_> {
    fn pointer(&mut self, _: Bookmark, pointer: &BlockPointer, _: Option<&Dnode>) {
        let metadata = pointer.object_type().is_ok_and(|kind| kind.is_metadata());
        // Without a checksum nothing tells blocks apart.
        let nameless = matches!(
            pointer.checksum_function(),
            Err(_) | Ok(ChecksumFunction::Off | ChecksumFunction::NoParity)
        );
        let stored = !pointer.is_hole() && !pointer.is_embedded();
        if !stored || pointer.level() > Level(0) || metadata || nameless {
            return;
        }
        let dsize = self.dsize(pointer);
        let entry = self.entries.entry(DdtKey::of_pointer(pointer)).or_default();
        entry.references += 1;
        entry.lsize = entry.lsize.saturating_add(pointer.logical_size());
        entry.psize = entry.psize.saturating_add(pointer.physical_size());
        entry.dsize = entry.dsize.saturating_add(dsize);
    }

    fn damage(&mut self, error: DmuError) {
        self.damage.push(error);
    }
}
