//! The counters of a pool, as plain data.

use crate::protocol::{KstatKind, KstatReport, ObjsetName, StatsReport, TxgReport};
use rzfs_dmu::BlockPipeline;
use rzfs_dmu::txg::TxgRecord;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::ObjsetStats;
use rzfs_dsl::live::LivePool;
use rzfs_format::objset::ObjsetType;
use rzfs_kstat::Kstat;
use std::collections::BTreeMap;

/// The counters of a read-only pool; `file_systems` are those in use.
#[must_use]
pub fn of_pool(
    pool: &Pool,
    file_systems: impl IntoIterator<Item = (ObjsetName, ObjsetStats)>,
) -> StatsReport {
    let mut kstats = of_pipeline(pool.mos().pipeline());
    kstats.extend(of_objsets(file_systems));
    StatsReport { kstats, txgs: Vec::new() }
}

/// The counters of a writable pool.
#[must_use]
pub fn of_writable(pool: &LivePool) -> StatsReport {
    let mut kstats = of_pipeline(pool.pipeline());
    kstats.push(report(KstatKind::DmuTx, None, &pool.engine().stats()));
    kstats.push(report(KstatKind::Zil, None, &pool.log_stats()));
    let file_systems = pool.datasets().into_iter();
    let file_systems =
        file_systems.filter(|one| one.objset().synced().objset_type() == ObjsetType::Zfs);
    kstats.extend(of_objsets(file_systems.map(|dataset| {
        let name = ObjsetName { id: dataset.id().get(), name: dataset.name() };
        (name, dataset.counters().read())
    })));
    StatsReport { kstats, txgs: pool.engine().history().iter().map(txg).collect() }
}

fn of_pipeline(pipeline: &BlockPipeline) -> Vec<KstatReport> {
    vec![
        report(KstatKind::Arcstats, None, &pipeline.cache().stats()),
        report(KstatKind::Zfetchstats, None, &pipeline.prefetching().stats()),
    ]
}

fn of_objsets(
    file_systems: impl IntoIterator<Item = (ObjsetName, ObjsetStats)>,
) -> Vec<KstatReport> {
    let mut all: Vec<_> = file_systems.into_iter().collect();
    all.sort_by(|(a, _), (b, _)| (&a.name, a.id).cmp(&(&b.name, b.id)));
    all.into_iter().map(|(name, stats)| report(KstatKind::Objset, Some(name), &stats)).collect()
}

fn report(kind: KstatKind, objset: Option<ObjsetName>, stats: &impl Kstat) -> KstatReport {
    let mut values = values(stats);
    values.retain(|name, _| kind.figures().any(|figure| figure.name == name));
    KstatReport { kind, objset, values }
}

fn txg(record: &TxgRecord) -> TxgReport {
    let TxgRecord { txg, state, stats } = record;
    TxgReport { txg: txg.get(), state: state.letter(), values: values(stats) }
}

fn values(stats: &impl Kstat) -> BTreeMap<String, u64> {
    stats.named().map(|(name, value)| (name.to_owned(), value)).collect()
}
