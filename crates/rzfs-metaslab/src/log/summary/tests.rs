use super::*;
use proptest::prelude::*;

/// A summary of rows (txgs, dirty metaslabs, blocks).
fn summary(rows: &[(u64, u64, u64)]) -> LogSummary {
    let mut start = 10;
    let rows = rows.iter().map(|&(txgs, dirty_metaslabs, blocks)| {
        let row = SummaryRow {
            start: Txg(start),
            end: Txg(start + txgs - 1),
            txgs,
            metaslabs: dirty_metaslabs,
            dirty_metaslabs,
            blocks,
        };
        start += txgs;
        row
    });
    LogSummary { rows: rows.collect() }
}

#[test]
fn flush_estimates_of_the_spec() {
    let mut usual = vec![(100, 50, 100); 9];
    usual.push((40, 200, 40));
    let tight = [(20, 300, 400), (20, 250, 400), (20, 350, 3100)];
    let cases: [(u64, u64, u64, &[_], u64); 6] = [
        (1000, 940, 1, &usual, 1),
        (1000, 940, 10, &usual, 8),
        (1000, 999, 5, &usual, 50),
        (1000, 500, 0, &[(100, 30, 500)], 1),
        (4000, 3900, 120, &tight, 300),
        (1000, 0, 0, &[], 1),
    ];
    for (limit, blocks, incoming, rows, due) in cases {
        let found = summary(rows).flushes_due(limit, blocks, incoming, &LogLimits::default());
        assert_eq!(found, due, "limit {limit}, {blocks} blocks, {incoming} incoming");
    }
}

#[test]
fn block_limit_follows_dirty_metaslabs_between_its_bounds() {
    let limits = LogLimits::default();
    for (dirty, limit) in [(0, 1000), (250, 1000), (251, 1004), (40_000, 131_072)] {
        assert_eq!(summary(&[(1, dirty, 0)]).block_limit(&limits), limit);
    }
}

#[test]
fn rows_end_when_they_are_full() {
    let limits = LogLimits { txg_max: 30, ..LogLimits::default() };
    let mut summary = LogSummary::new();
    for txg in 100..107 {
        summary.add_metaslab(Txg(txg), Freshness::Dirty, &limits);
        summary.add_log(Txg(txg), 0, 1, &limits);
    }
    let rows: Vec<_> = summary.rows().map(|row| (row.start.0, row.end.0, row.txgs)).collect();
    assert_eq!(rows, [(100, 102, 3), (103, 105, 3), (106, 106, 1)]);
    // A row's share of 1000 blocks is 100; a txg is never split.
    let mut summary = LogSummary::new();
    summary.add_metaslab(Txg(7), Freshness::Clean, &limits);
    summary.add_log(Txg(7), 0, 500, &limits);
    summary.add_metaslab(Txg(7), Freshness::Dirty, &limits);
    summary.add_metaslab(Txg(9), Freshness::Dirty, &limits);
    let rows: Vec<_> = summary.rows().map(|row| (row.metaslabs, row.dirty_metaslabs)).collect();
    assert_eq!(rows, [(2, 1), (1, 1)]);
}

#[test]
fn logs_leave_from_the_front() {
    let mut summary = summary(&[(2, 1, 5), (2, 1, 4)]);
    summary.remove_oldest_log(2);
    assert_eq!(summary.rows().next().map(|row| (row.txgs, row.blocks)), Some((1, 3)));
    summary.remove_metaslab(Txg(11), Freshness::Dirty);
    summary.remove_oldest_log(3);
    let head = summary.rows().next().unwrap();
    assert_eq!((head.start, head.txgs, head.blocks), (Txg(12), 2, 4));
    summary.mark_dirty(Txg(13));
    assert_eq!(summary.dirty_metaslabs(), 2);
    // Everything was flushed in this txg: its own row stays.
    summary.remove_oldest_log(9);
    assert_eq!(summary.rows().map(|row| (row.txgs, row.blocks)).collect::<Vec<_>>(), [(1, 0)]);
}

proptest! {
    #[test]
    fn flushing_what_is_due_keeps_the_limits(
        adds in prop::collection::vec((0_u64..20, 1_u64..8), 50..200),
        txg_max in 10_u64..60,
    ) {
        // Every txg logs the same number of blocks and makes some metaslabs dirty.
        let limits = LogLimits { txg_max, block_min: 40, block_percent: 0, ..LogLimits::default() };
        let mut summary = LogSummary::new();
        let mut unflushed: VecDeque<u64> = VecDeque::new();
        let mut logs: VecDeque<(u64, u64)> = VecDeque::new();
        let blocks_each = adds[0].1.min(4);
        for (txg, (dirtied, _)) in (10_u64..).zip(adds) {
            let blocks = logs.iter().map(|log| log.1).sum();
            let incoming = if logs.is_empty() { 0 } else { blocks_each };
            let limit = summary.block_limit(&limits);
            let due = summary.flushes_due(limit, blocks, incoming, &limits);
            for _ in 0..due {
                let Some(old) = unflushed.pop_front() else { break };
                summary.remove_metaslab(Txg(old), Freshness::Dirty);
            }
            for _ in 0..=dirtied {
                summary.add_metaslab(Txg(txg), Freshness::Dirty, &limits);
                unflushed.push_back(txg);
            }
            let oldest = unflushed.front().copied().unwrap_or(txg);
            while let Some(&(log, blocks)) = logs.front() && log < oldest {
                summary.remove_oldest_log(blocks);
                logs.pop_front();
            }
            summary.add_log(Txg(txg), 0, blocks_each, &limits);
            logs.push_back((txg, blocks_each));
            prop_assert_eq!(summary.dirty_metaslabs(), unflushed.len() as u64);
            let total: u64 = summary.rows().map(|row| row.blocks).sum();
            prop_assert_eq!(total, logs.iter().map(|log| log.1).sum::<u64>());
            // A row is given up as a whole, so the limits hold up to one row.
            prop_assert!(logs.len() as u64 <= txg_max + txg_max.div_ceil(10) + 1);
            prop_assert!(total <= 40 + 4 + 2 * blocks_each, "{} blocks", total);
        }
    }
}
