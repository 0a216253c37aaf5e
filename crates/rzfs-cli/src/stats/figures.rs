//! The counters of a pool, with names and kinds: the common input of all output formats.

use rzfs_kstat::{Figure, Kind};
use rzfs_server::protocol::{KstatKind, KstatReport, ObjsetName, StatsReport, TxgReport};
use std::collections::BTreeMap;

/// A counter and its value.
pub(super) type Number = (&'static Figure, u64);

/// The counters of a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolStats {
    pub(super) pool: String,
    pub(super) sections: Vec<Section>,
    /// The last transaction groups, the oldest first.
    pub(super) txgs: Vec<Txg>,
}

/// A kstat.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) kind: KstatKind,
    pub(super) name: String,
    /// Its dataset, if it belongs to one.
    pub(super) objset: Option<ObjsetName>,
    pub(super) numbers: Vec<Number>,
}

/// A transaction group.
#[derive(Clone, Debug)]
pub(super) struct Txg {
    pub(super) txg: u64,
    pub(super) state: char,
    pub(super) numbers: Vec<Number>,
}

/// The reported values among the known ones.
fn numbers(
    figures: impl IntoIterator<Item = &'static Figure>,
    values: &BTreeMap<String, u64>,
) -> Vec<Number> {
    let figures = figures.into_iter();
    figures.filter_map(|figure| Some((figure, *values.get(figure.name)?))).collect()
}

impl PoolStats {
    pub(super) fn new(pool: String, report: StatsReport) -> Self {
        let StatsReport { kstats, txgs } = report;
        let sections = kstats.into_iter().map(|kstat| {
            let (name, numbers) = (kstat.name(), numbers(kstat.kind.figures(), &kstat.values));
            let KstatReport { kind, objset, .. } = kstat;
            Section { kind, name, objset, numbers }
        });
        let txgs = txgs.into_iter().map(|TxgReport { txg, state, values }| Txg {
            txg,
            state,
            numbers: numbers(TxgReport::figures(), &values),
        });
        Self { pool, sections: sections.collect(), txgs: txgs.collect() }
    }

    /// The difference to the counters `before`, if the pool is there. Of transaction groups only
    /// those not on disk then.
    pub(super) fn since(&self, before: &[Self]) -> Self {
        let mut since = self.clone();
        let Some(before) = before.iter().find(|one| one.pool == self.pool) else { return since };
        for section in &mut since.sections {
            let old = before.sections.iter().find(|old| {
                old.kind == section.kind
                    && old.objset.as_ref().map(id) == section.objset.as_ref().map(id)
            });
            if let Some(old) = old {
                section.numbers.iter_mut().for_each(|number| subtract(number, &old.numbers));
            }
        }
        let committed = before.txgs.iter().filter(|one| one.state == COMMITTED);
        let last = committed.map(|one| one.txg).max();
        since.txgs.retain(|one| last.is_none_or(|last| one.txg > last));
        since
    }
}

/// The letter of a committed transaction group.
const COMMITTED: char = 'C';

const fn id(objset: &ObjsetName) -> u64 {
    objset.id
}

/// Subtracts the old value of a counter; a smaller one was restarted.
fn subtract((figure, value): &mut Number, old: &[Number]) {
    if figure.kind == Kind::Counter
        && let Some((_, old)) = old.iter().find(|(other, _)| other.name == figure.name)
    {
        *value = value.checked_sub(*old).unwrap_or(*value);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A pool with a dataset, and transaction groups up to `txg`, which is open.
    pub(in super::super) fn pool(dataset: &str, reads: u64, size: u64, txg: u64) -> PoolStats {
        let values = |all: &[(&str, u64)]| {
            all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let objset = Some(ObjsetName { id: 0x36, name: dataset.to_owned() });
        let group = |txg, state| TxgReport { txg, state, values: values(&[("ndirty", txg)]) };
        let report = StatsReport {
            kstats: vec![
                KstatReport {
                    kind: KstatKind::Arcstats,
                    objset: None,
                    values: values(&[("size", size), ("hits", reads), ("nobody_knows", 1)]),
                },
                KstatReport {
                    kind: KstatKind::Objset,
                    objset,
                    values: values(&[("reads", reads)]),
                },
            ],
            txgs: vec![group(txg - 1, 'C'), group(txg, 'O')],
        };
        PoolStats::new("tank".to_owned(), report)
    }

    fn shown(pool: &PoolStats) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        let named = |numbers: &[Number]| numbers.iter().map(|(one, n)| (one.name, *n)).collect();
        let sections = pool.sections.iter();
        sections.map(|one| (one.name.as_str(), named(&one.numbers))).collect()
    }

    #[test]
    fn numbers_that_are_known_are_shown_in_the_order_of_the_kstat() {
        let expected =
            [("arcstats", vec![("hits", 5), ("size", 100)]), ("objset-0x36", vec![("reads", 5)])];
        assert_eq!(shown(&pool("tank/a", 5, 100, 8)), expected);
    }

    #[test]
    fn an_interval_shows_what_was_counted_in_it() {
        let before = [pool("tank/a", 5, 100, 8)];
        let since = pool("tank/renamed", 7, 90, 10).since(&before);
        let expected =
            [("arcstats", vec![("hits", 2), ("size", 90)]), ("objset-0x36", vec![("reads", 2)])];
        assert_eq!(shown(&since), expected);
        assert_eq!(since.txgs.iter().map(|one| one.txg).collect::<Vec<_>>(), [9, 10]);
        // After a new import.
        let since = pool("tank/a", 3, 90, 8).since(&before);
        assert_eq!(shown(&since)[1], ("objset-0x36", vec![("reads", 3)]));
        assert_eq!(since.txgs.iter().map(|one| one.txg).collect::<Vec<_>>(), [8]);
    }
}
