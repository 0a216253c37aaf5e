//! The block reference tables of a pool (block cloning), and `zdb -T`.

use super::error::ZdbError;
use super::session::Session;
use super::text::histogram;
use rzfs_dmu::Object;
use rzfs_dsl::pool::{FeatureState, Pool};
use rzfs_format::VdevId;
use rzfs_format::brt::{BrtHeader, classic_count, vdev_key};
use rzfs_format::features::Feature;

/// The table of one top-level vdev.
pub(crate) struct CloneTable {
    vdev: VdevId,
    header: BrtHeader,
}

/// All tables of a pool.
pub(crate) struct CloneTables {
    tables: Vec<CloneTable>,
}

impl CloneTables {
    /// Reads the headers of all tables.
    pub(crate) fn open(pool: &Pool) -> Result<Self, ZdbError> {
        let mut tables = Vec::new();
        for vdev in pool.vdevs().top_levels() {
            let Some(id) = vdev.vdev_id() else { continue };
            let Some(object) = pool.directory().object(&vdev_key(id))? else { continue };
            let object = pool.mos().object(object)?;
            let header = BrtHeader::decode(object.bonus(), object.order())
                .map_err(ZdbError::corrupt(object.id()))?;
            tables.push(CloneTable { vdev: id, header });
        }
        Ok(Self { tables })
    }

    /// The tables by vdev.
    pub(crate) fn tables(&self) -> &[CloneTable] {
        &self.tables
    }
}

impl CloneTable {
    /// The vdev.
    pub(crate) const fn vdev(&self) -> VdevId {
        self.vdev
    }

    /// Calls `visit` for all entries with the byte offset of the block and its references beyond
    /// the first.
    pub(crate) fn visit(
        &self,
        pool: &Pool,
        visit: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ZdbError> {
        let object: Object = pool.mos().object(self.header.entries)?;
        for entry in object.zap()?.entries() {
            let entry = entry.map_err(|source| object.zap_error(source))?;
            let Some(&[offset]) = entry.key.as_words() else { continue };
            let count = match (entry.value.first_u64(), entry.value.as_bytes()) {
                (Some(count), _) => count,
                (None, Some(bytes)) => classic_count(bytes, self.header.counter_order)
                    .map_err(ZdbError::corrupt(object.id()))?,
                (None, None) => continue,
            };
            visit(offset, count);
        }
        Ok(())
    }
}

/// Shows the tables: the savings, with `-TT` by vdev, with `-TTT` by number of references, with
/// `-TTTT` block by block.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    if pool.features().state(Feature::BlockCloning) == FeatureState::Disabled {
        writeln!(session.out, "BRT: unsupported on this pool")?;
        return Ok(());
    }
    let tables = CloneTables::open(pool)?;
    let sum = |part: fn(&BrtHeader) -> u64| {
        let parts = tables.tables().iter().map(|table| part(&table.header));
        parts.fold(0, |sum: u64, part| sum.saturating_add(part))
    };
    let (used, saved) = (sum(|header| header.used_space), sum(|header| header.saved_space));
    if used == 0 {
        writeln!(session.out, "BRT: empty")?;
        return Ok(());
    }
    let percent = (u128::from(used) + u128::from(saved)) * 100 / u128::from(used);
    let [used, saved] = [used, saved].map(|bytes| session.number(bytes));
    writeln!(
        session.out,
        "BRT: used {used}; saved {saved}; ratio {}.{:02}x",
        percent / 100,
        percent % 100
    )?;
    if session.arguments.block_references < 2 {
        return Ok(());
    }
    for table in tables.tables() {
        let header = &table.header;
        let [count, used, saved] = [header.total_count, header.used_space, header.saved_space]
            .map(|number| session.number(number));
        writeln!(
            session.out,
            "BRT: vdev {}: refcnt {count}; used {used}; saved {saved}",
            table.vdev
        )?;
    }
    match session.arguments.block_references {
        0..=2 => Ok(()),
        3 => print_histograms(session, pool, &tables),
        _ => print_entries(session, pool, &tables),
    }
}

/// Shows histograms of blocks by number of references.
fn print_histograms(
    session: &mut Session<'_>,
    pool: &Pool,
    tables: &CloneTables,
) -> Result<(), ZdbError> {
    for table in tables.tables() {
        let mut buckets = [0_u64; 65];
        table.visit(pool, &mut |_, count| {
            let bucket = count.checked_ilog2().map_or(0, |power| power as usize + 1);
            if let Some(bucket) = buckets.get_mut(bucket) {
                *bucket += 1;
            }
        })?;
        writeln!(session.out, "\nBRT: vdev {}: DVAs with 2^n refcnts:", table.vdev)?;
        histogram::print(session.out, &buckets, 0)?;
    }
    Ok(())
}

fn print_entries(
    session: &mut Session<'_>,
    pool: &Pool,
    tables: &CloneTables,
) -> Result<(), ZdbError> {
    writeln!(session.out, "\n{:<16} {:<10}", "DVA", "REFCNT")?;
    for table in tables.tables() {
        let mut written = Ok(());
        table.visit(pool, &mut |offset, count| {
            if written.is_ok() {
                let dva = format!("{}:{offset:x}", table.vdev);
                written = writeln!(session.out, "{dva:<16} {count:<10}");
            }
        })?;
        written?;
    }
    Ok(())
}
