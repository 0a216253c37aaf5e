//! The summary of the logs, and how many metaslabs a txg has to flush (spec 06, sections 13.5 and
//! 13.7).
//!
//! A log can go once every metaslab whose unflushed txg is not after it was flushed. Flushing the
//! metaslabs with the oldest unflushed txgs first frees the oldest logs first. The summary keeps,
//! for runs of consecutive logs, how many metaslabs hold them and how many blocks they have:
//!
//! ```text
//! row 0 (oldest)   txgs 21..40    3 metaslabs, 2 of them dirty    7 blocks
//! row 1            txgs 41..57    9 metaslabs, 9 of them dirty    4 blocks
//! ```
//! From that follows how many metaslabs are to be flushed now so that no limit is exceeded later,
//! without a burst when it is near.

use rzfs_format::Txg;
use std::collections::VecDeque;

/// Limits on the logs; the names are those of OpenZFS's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLimits {
    /// `zfs_unflushed_log_block_pct`: blocks of logs allowed for 100 dirty metaslabs.
    pub block_percent: u64,
    /// `zfs_unflushed_log_block_min`: the least block limit.
    pub block_min: u64,
    /// `zfs_unflushed_log_block_max`: the largest block limit.
    pub block_max: u64,
    /// `zfs_unflushed_log_txg_max`: most logs.
    pub txg_max: u64,
    /// `zfs_max_logsm_summary_length`: rows that the summary aims at.
    pub summary_length: u64,
    /// `zfs_min_metaslabs_to_flush`: least flushes of a txg that changes anything.
    pub flush_min: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            block_percent: 400,
            block_min: 1000,
            block_max: 131_072,
            txg_max: 1000,
            summary_length: 10,
            flush_min: 1,
        }
    }
}

/// Whether a metaslab has changes in the logs that its own map lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Freshness {
    /// Something was logged since the last flush.
    Dirty,
    /// The own map is the truth.
    Clean,
}

/// Consecutive logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryRow {
    /// The first txg.
    pub start: Txg,
    /// The last txg.
    pub end: Txg,
    /// Logs.
    pub txgs: u64,
    /// Metaslabs whose unflushed txg is one of these.
    pub metaslabs: u64,
    /// Those of them that are dirty.
    pub dirty_metaslabs: u64,
    /// Blocks of the logs.
    pub blocks: u64,
}

/// The summary of a pool's logs, oldest first.
///
/// The rows' txgs ascend and do not overlap.
#[derive(Clone, Default, Debug)]
pub struct LogSummary {
    rows: VecDeque<SummaryRow>,
}

impl LogSummary {
    /// A summary of no logs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The rows, oldest first.
    pub fn rows(&self) -> impl Iterator<Item = &SummaryRow> {
        self.rows.iter()
    }

    /// Metaslabs with changes that only the logs have.
    #[must_use]
    pub fn dirty_metaslabs(&self) -> u64 {
        self.rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.dirty_metaslabs))
    }

    /// Most blocks that the logs should have.
    #[must_use]
    pub fn block_limit(&self, limits: &LogLimits) -> u64 {
        let wanted = self.dirty_metaslabs().saturating_mul(limits.block_percent) / 100;
        wanted.min(limits.block_max).max(limits.block_min)
    }

    /// Counts a metaslab whose unflushed txg became `txg`, the current one.
    pub fn add_metaslab(&mut self, txg: Txg, freshness: Freshness, limits: &LogLimits) {
        let row = self.tail(txg, limits);
        row.metaslabs += 1;
        row.dirty_metaslabs += u64::from(freshness == Freshness::Dirty);
    }

    /// Counts the blocks of the log of `txg`, which is complete, and at import also its
    /// `metaslabs`, none of them dirty so far.
    pub fn add_log(&mut self, txg: Txg, metaslabs: u64, blocks: u64, limits: &LogLimits) {
        let row = self.tail(txg, limits);
        row.metaslabs = row.metaslabs.saturating_add(metaslabs);
        row.blocks = row.blocks.saturating_add(blocks);
    }

    /// No longer counts a metaslab whose unflushed txg was `txg`.
    pub fn remove_metaslab(&mut self, txg: Txg, freshness: Freshness) {
        if let Some(row) = self.row_of(txg) {
            row.metaslabs = row.metaslabs.saturating_sub(1);
            let dirty = u64::from(freshness == Freshness::Dirty);
            row.dirty_metaslabs = row.dirty_metaslabs.saturating_sub(dirty);
        }
    }

    /// A metaslab whose unflushed txg is `txg` became dirty.
    pub fn mark_dirty(&mut self, txg: Txg) {
        if let Some(row) = self.row_of(txg) {
            row.dirty_metaslabs += 1;
        }
    }

    /// No longer counts the oldest log, which had `blocks` blocks. Rows without metaslabs and
    /// blocks go.
    pub fn remove_oldest_log(&mut self, mut blocks: u64) {
        if let Some(head) = self.rows.front_mut() {
            head.txgs = head.txgs.saturating_sub(1);
        }
        while let Some(head) = self.rows.front_mut() {
            if head.blocks > blocks {
                head.blocks -= blocks;
                return;
            }
            if head.metaslabs != 0 {
                head.blocks = 0;
                return;
            }
            blocks -= head.blocks;
            self.rows.pop_front();
        }
    }

    /// Metaslabs that this txg has to flush so that the logs stay within `block_limit` and the
    /// limit on txgs (spec 06, section 13.7.1).
    ///
    /// `blocks` is what the logs have now, `incoming` what a txg is expected to add.
    #[must_use]
    pub fn flushes_due(
        &self,
        block_limit: u64,
        blocks: u64,
        incoming: u64,
        limits: &LogLimits,
    ) -> u64 {
        let signed = |value: u64| i128::from(value);
        let logs: i128 = self.rows.iter().map(|row| signed(row.txgs)).sum();
        let incoming = signed(incoming);
        let mut block_room = signed(block_limit) - signed(blocks) - incoming;
        let mut txg_room = signed(limits.txg_max) - logs;
        let (mut ahead, mut total) = (1_i128, 0_i128);
        let mut due = signed(limits.flush_min);
        for row in &self.rows {
            if block_room >= 0 && txg_room >= 0 {
                let by_txgs = txg_room + 1;
                let skip = match block_room.checked_div(incoming) {
                    None => by_txgs,
                    Some(txgs) => by_txgs.min(txgs + 1),
                };
                block_room -= skip * incoming;
                txg_room -= skip;
                ahead += skip;
            }
            // One more txg and a limit would be exceeded: this row has to be gone by then.
            block_room += signed(row.blocks);
            txg_room += signed(row.txgs);
            total += signed(row.dirty_metaslabs);
            due = due.max((total + ahead - 1) / ahead);
        }
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// The row that counts what the current txg adds; a new one if the last is full.
    fn tail(&mut self, txg: Txg, limits: &LogLimits) -> &mut SummaryRow {
        let full =
            self.rows.back().is_none_or(|row| is_full(row, txg, self.block_limit(limits), limits));
        if full {
            let fresh = SummaryRow {
                start: txg,
                end: txg,
                txgs: 1,
                metaslabs: 0,
                dirty_metaslabs: 0,
                blocks: 0,
            };
            self.rows.push_back(fresh);
        }
        let last = self.rows.len() - 1;
        let row = &mut self.rows[last];
        if row.end < txg {
            row.end = txg;
            row.txgs += 1;
        }
        row
    }

    fn row_of(&mut self, txg: Txg) -> Option<&mut SummaryRow> {
        let after = self.rows.partition_point(|row| row.start <= txg);
        self.rows.get_mut(after.checked_sub(1)?)
    }
}

fn is_full(row: &SummaryRow, txg: Txg, block_limit: u64, limits: &LogLimits) -> bool {
    let length = limits.summary_length.max(1);
    row.end != txg
        && (row.txgs >= limits.txg_max.div_ceil(length)
            || row.blocks >= block_limit.div_ceil(length).max(1))
}

#[cfg(test)]
mod tests;
