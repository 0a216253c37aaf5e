//! Counters in Prometheus's text format 0.0.4.

use super::figures::{PoolStats, Section};
use prometheus::core::{AtomicU64, Collector, GenericCounterVec, GenericGaugeVec};
use prometheus::{Error, Opts, Registry, TextEncoder};
use rzfs_kstat::{Figure, Kind};
use std::collections::BTreeMap;

/// A metric: one counter of all pools, or of their datasets.
enum Metric {
    Counter(GenericCounterVec<AtomicU64>),
    Gauge(GenericGaugeVec<AtomicU64>),
}

impl Metric {
    fn new(name: &str, figure: &Figure, labels: &[&str]) -> Result<Self, Error> {
        let options = Opts::new(name, figure.about());
        Ok(match figure.kind {
            Kind::Counter => Self::Counter(GenericCounterVec::new(options, labels)?),
            Kind::Gauge => Self::Gauge(GenericGaugeVec::new(options, labels)?),
        })
    }

    fn set(&self, labels: &[&str], value: u64) -> Result<(), Error> {
        match self {
            Self::Counter(counter) => {
                counter.get_metric_with_label_values(labels)?.inc_by(value);
            }
            Self::Gauge(gauge) => gauge.get_metric_with_label_values(labels)?.set(value),
        }
        Ok(())
    }

    fn collector(self) -> Box<dyn Collector> {
        match self {
            Self::Counter(counter) => Box::new(counter),
            Self::Gauge(gauge) => Box::new(gauge),
        }
    }
}

/// The name of a metric: `rzfs_`, the kstat, and the counter without the kstat's name.
fn metric_name(section: &Section, figure: &Figure) -> String {
    let kstat = section.kind.name();
    let number = figure.name.strip_prefix(&format!("{kstat}_")).unwrap_or(figure.name);
    let total = if figure.kind == Kind::Counter { "_total" } else { "" };
    format!("rzfs_{kstat}_{number}{total}")
}

/// Encodes all counters of pools. Those of single transaction groups are left out: a series would
/// concern another group each time.
pub(super) fn encode(pools: &[PoolStats]) -> Result<String, Error> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for PoolStats { pool, sections, .. } in pools {
        for section in sections {
            let (names, labels) = match &section.objset {
                Some(objset) => (&["pool", "dataset"][..], vec![pool.as_str(), &objset.name]),
                None => (&["pool"][..], vec![pool.as_str()]),
            };
            for (figure, value) in &section.numbers {
                let name = metric_name(section, figure);
                if !metrics.contains_key(&name) {
                    metrics.insert(name.clone(), Metric::new(&name, figure, names)?);
                }
                if let Some(metric) = metrics.get(&name) {
                    metric.set(&labels, *value)?;
                }
            }
        }
    }
    let registry = Registry::new();
    metrics.into_values().try_for_each(|metric| registry.register(metric.collector()))?;
    TextEncoder::new().encode_to_string(&registry.gather())
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::pool;
    use super::*;

    #[test]
    fn numbers_are_metrics_with_labels() {
        let text = encode(&[pool("tank/a", 5, 100, 8)]).unwrap();
        let expected = "# HELP rzfs_arcstats_hits_total Blocks found.\n\
                        # TYPE rzfs_arcstats_hits_total counter\n\
                        rzfs_arcstats_hits_total{pool=\"tank\"} 5\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("# TYPE rzfs_arcstats_size gauge\n"), "{text}");
        let dataset = "\nrzfs_objset_reads_total{dataset=\"tank/a\",pool=\"tank\"} 5\n";
        assert!(text.contains(dataset), "{text}");
        assert!(!text.contains("ndirty"), "{text}");
        assert_eq!(encode(&[]).unwrap(), "");
    }

    #[test]
    fn names_do_not_break_out_of_labels() {
        let hostile = "tank/\"} 1\nrzfs_fake 2\\";
        let text = encode(&[pool(hostile, 5, 100, 8)]).unwrap();
        let label = r#"dataset="tank/\"} 1\nrzfs_fake 2\\","#;
        assert!(text.contains(label), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("rzfs_fake")), "{text}");
    }

    #[test]
    fn the_name_of_a_kstat_stands_once() {
        use rzfs_server::protocol::KstatKind;
        let name = |kind: KstatKind, number: &str| {
            let section = Section { kind, name: String::new(), objset: None, numbers: Vec::new() };
            let figure = kind.figures().find(|figure| figure.name == number).unwrap();
            metric_name(&section, figure)
        };
        assert_eq!(name(KstatKind::Zil, "zil_itx_count"), "rzfs_zil_itx_count_total");
        assert_eq!(name(KstatKind::DmuTx, "dmu_tx_assigned"), "rzfs_dmu_tx_assigned_total");
        assert_eq!(name(KstatKind::Zfetchstats, "io_active"), "rzfs_zfetchstats_io_active");
    }
}
