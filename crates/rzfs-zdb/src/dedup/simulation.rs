//! `zdb -S`: the savings if all data had been written with dedup.
//!
//! Every block of data is looked up by its dedup table key. Memory use is about 100 bytes for each
//! distinct block.

use super::report::{print_ratio, rows};
use crate::dedup_text;
use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_dmu::{DmuError, Visit, Visitor};
use rzfs_dsl::pool::{Pool, PoolError};
use rzfs_dsl::walk::{Part, PoolVisitor, PoolWalk};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::{DdtHistogram, DdtKey, DdtStats};
use rzfs_format::{BlockPointer, Level};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The simulated table.
struct Simulation<'a> {
    pool: &'a Pool,
    /// Whether space is counted without parity.
    deflate: bool,
    entries: HashMap<DdtKey, Entry>,
    damage: Vec<DmuError>,
    /// The error that stopped the walk.
    stopped: Option<PoolError>,
}

/// All references to equal blocks.
#[derive(Clone, Copy, Default)]
struct Entry {
    references: u64,
    lsize: u64,
    psize: u64,
    dsize: u64,
}

/// Shows the histogram of the table, and the savings.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let mut simulation = Simulation {
        pool,
        deflate: pool.deflate()?,
        entries: HashMap::new(),
        damage: Vec::new(),
        stopped: None,
    };
    PoolWalk::new(pool).only(&[Part::Mos, Part::Datasets]).run(&mut simulation);
    if let Some(error) = simulation.stopped {
        return Err(error.into());
    }
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
    /// The space of a block, without parity if the pool counts so.
    fn dsize(&self, pointer: &BlockPointer) -> u64 {
        pointer.dvas().fold(0, |sum: u64, dva| {
            let (vdev, asize) = (dva.vdev(), dva.asize());
            let deflated = self.deflate.then(|| self.pool.vdevs().deflated(vdev, asize));
            sum.saturating_add(deflated.flatten().unwrap_or(asize))
        })
    }
}

impl Visitor for Simulation<'_> {
    fn block(&mut self, &Visit { bookmark, pointer, .. }: &Visit<'_>) -> ControlFlow<()> {
        let metadata = pointer.object_type().is_ok_and(|kind| kind.is_metadata());
        // Without a checksum blocks cannot be identified.
        let nameless = matches!(
            pointer.checksum_function(),
            Err(_) | Ok(ChecksumFunction::Off | ChecksumFunction::NoParity)
        );
        let is_data = bookmark.level == Level::DATA && !metadata;
        if !is_data || pointer.is_embedded() || nameless {
            return ControlFlow::Continue(());
        }
        let dsize = self.dsize(pointer);
        let entry = self.entries.entry(DdtKey::of_pointer(pointer)).or_default();
        entry.references += 1;
        entry.lsize = entry.lsize.saturating_add(pointer.logical_size());
        entry.psize = entry.psize.saturating_add(pointer.physical_size());
        entry.dsize = entry.dsize.saturating_add(dsize);
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        self.damage.push(error);
        ControlFlow::Continue(())
    }
}

impl PoolVisitor for Simulation<'_> {
    fn broken(&mut self, error: PoolError) -> ControlFlow<()> {
        self.stopped = Some(error);
        ControlFlow::Break(())
    }
}
