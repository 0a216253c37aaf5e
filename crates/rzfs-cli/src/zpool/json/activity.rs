//! Current or last activities of a pool as JSON.

use super::PoolJson;
use crate::json::{Numbers, object};
use crate::property::Precision;
use crate::quantity::nicebytes;
use rzfs_server::protocol::{
    CheckpointReport, ExpansionReport, PoolReport, RemovalReport, ScanFunction, ScanReport,
    ScanState, VdevReport,
};
use serde_json::Value;

impl PoolJson {
    /// The members for scrubs and resilvers, removals, checkpoints and expansions.
    pub(super) fn activities(&self, pool: &PoolReport) -> Vec<(&'static str, Value)> {
        let scan = pool.scan.as_ref().map(|scan| self.scan(scan));
        let removal = pool.removal.as_ref().map(|removal| self.removal(removal, pool));
        let checkpoint = pool.checkpoint.as_ref().map(|checkpoint| self.checkpoint(checkpoint));
        let expansion = pool.expansion.as_ref().map(|expansion| self.expansion(expansion, pool));
        [
            ("scan_stats", scan),
            ("removal_stats", removal),
            ("checkpoint_stats", checkpoint),
            ("raidz_expand_stats", expansion),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
    }

    fn is_exact(&self) -> bool {
        self.writer.precision == Precision::Exact
    }

    pub(super) fn time(&self, seconds: u64) -> Value {
        match (seconds, self.is_exact()) {
            (0, false) => "-".into(),
            (seconds, false) => self.writer.calendar.date(seconds).into(),
            (seconds, true) => self.numbers.exact(seconds),
        }
    }

    fn size(&self, bytes: u64) -> Value {
        match (self.numbers, self.is_exact()) {
            (Numbers::Integers, _) => bytes.into(),
            (_, true) => bytes.to_string().into(),
            (_, false) => nicebytes(bytes).into(),
        }
    }

    fn scan(&self, scan: &ScanReport) -> Value {
        let function = match scan.function {
            ScanFunction::Scrub => "SCRUB",
            ScanFunction::Resilver => "RESILVER",
        };
        object([
            ("function", function.into()),
            ("state", state_name(scan.state).into()),
            ("start_time", self.time(scan.start_time)),
            ("end_time", self.time(scan.end_time)),
            ("to_examine", self.size(scan.to_examine)),
            ("examined", self.size(scan.examined)),
            ("skipped", self.size(scan.skipped)),
            ("processed", self.size(scan.processed)),
            ("errors", self.numbers.exact(scan.errors)),
            ("bytes_per_scan", self.size(0)),
            ("pass_start", self.numbers.exact(0)),
            ("scrub_pause", self.time(scan.pause_time)),
            ("scrub_spent_paused", self.numbers.exact(0)),
            ("issued_bytes_per_scan", self.size(0)),
            ("issued", self.size(scan.issued)),
        ])
    }

    fn removal(&self, removal: &RemovalReport, pool: &PoolReport) -> Value {
        object([
            ("name", top_level(pool, removal.vdev).into()),
            ("state", state_name(removal.state).into()),
            ("removing_vdev", self.numbers.exact(removal.vdev)),
            ("start_time", self.time(removal.start_time)),
            ("end_time", self.time(removal.end_time)),
            ("to_copy", self.size(removal.to_copy)),
            ("copied", self.size(removal.copied)),
            ("mapping_memory", self.size(removal.mapping_memory)),
        ])
    }

    fn checkpoint(&self, checkpoint: &CheckpointReport) -> Value {
        let state = if checkpoint.discarding { "DISCARDING" } else { "EXISTS" };
        object([
            ("state", state.into()),
            ("start_time", self.time(checkpoint.start_time)),
            ("space", self.size(checkpoint.space)),
        ])
    }

    fn expansion(&self, expansion: &ExpansionReport, pool: &PoolReport) -> Value {
        let left = match expansion.state {
            ScanState::Scanning | ScanState::Paused => expansion.to_reflow,
            ScanState::Finished | ScanState::Canceled => 0,
        };
        object([
            ("name", top_level(pool, expansion.vdev).into()),
            ("state", state_name(expansion.state).into()),
            ("expanding_vdev", self.numbers.exact(expansion.vdev)),
            ("start_time", self.time(expansion.start_time)),
            ("end_time", self.time(expansion.end_time)),
            ("to_reflow", self.size(left)),
            ("reflowed", self.size(expansion.reflowed)),
            ("waiting_for_resilver", self.numbers.exact(0)),
        ])
    }
}

/// The kind of a top-level vdev as the prefix of its name: `raidz1`, `indirect`.
fn top_level(pool: &PoolReport, id: u64) -> String {
    let name = |top: &VdevReport| match top.kind.as_str() {
        "raidz" => format!("raidz{}", top.parity),
        kind => kind.to_owned(),
    };
    pool.root.children.iter().find(|top| top.id == id).map(name).unwrap_or_default()
}

const fn state_name(state: ScanState) -> &'static str {
    match state {
        ScanState::Scanning | ScanState::Paused => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
    }
}
