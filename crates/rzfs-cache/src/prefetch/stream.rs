//! One sequence of accesses.

use super::access::{AccessOutcome, ObjectShape, Prefetch};
use super::tunables::PrefetchTunables;
use std::ops::Range;
use std::time::Duration;

/// Ranges ahead of the expected block that a stream remembers.
const MAX_AHEAD: usize = 9;

/// The position of a reader, and the progress of prefetching ahead of it.
#[derive(Debug)]
pub(super) struct Stream {
    /// The next block that will be read, if the reader goes on.
    expected: u64,
    /// What was read beyond it, in order, with holes between.
    ahead: Vec<Range<u64>>,
    used: Duration,
    /// Whether the reader has missed a block.
    missed: bool,
    /// Whether the reader has caught up with prefetch since the last time that it was moved.
    late: bool,
    /// How far ahead data is prefetched, in bytes.
    distance: u64,
    /// Where that has come to.
    data_end: u64,
    /// How far ahead of that indirect blocks are, in bytes of what they point to.
    indirect_distance: u64,
    /// Where that has come to, in data blocks.
    indirect_end: u64,
}

/// How an access that is not expected stands to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// A little ahead.
    Future,
    /// A little ahead, and with it the holes are so small that the stream jumps.
    Stride,
    /// A little behind.
    Past,
    /// It is unrelated.
    Other,
}

impl Stream {
    pub(super) const fn new(expected: u64, outcome: AccessOutcome, now: Duration) -> Self {
        Self {
            expected,
            ahead: Vec::new(),
            used: now,
            missed: matches!(outcome, AccessOutcome::Missed),
            late: false,
            distance: 0,
            data_end: 0,
            indirect_distance: 0,
            indirect_end: 0,
        }
    }

    /// How long ago the stream was met.
    pub(super) const fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(self.used)
    }

    pub(super) fn touch(&mut self, outcome: AccessOutcome, now: Duration) {
        self.used = now;
        self.missed |= outcome == AccessOutcome::Missed;
        self.late |= outcome == AccessOutcome::Late;
    }

    /// Whether an access is what the stream expects. One that is not aligned begins in the block
    /// where the last one has ended.
    pub(super) const fn expects(&self, blocks: &Range<u64>) -> bool {
        blocks.start == self.expected
            || (blocks.end > self.expected && self.expected - 1 == blocks.start)
    }

    /// Moves the stream to the end of an access that it expects.
    pub(super) fn follow(&mut self, tunables: &PrefetchTunables, blocks: &Range<u64>) {
        self.expected = blocks.end;
        self.absorb(tunables);
    }

    /// Matches an unexpected access with this stream, and moves it accordingly.
    pub(super) fn meet(
        &mut self,
        tunables: &PrefetchTunables,
        shape: &ObjectShape,
        blocks: &Range<u64>,
    ) -> Verdict {
        if self.expected.abs_diff(blocks.start)
            > tunables.zfetch_max_reorder / shape.block_size.max(1)
        {
            return Verdict::Other;
        }
        if blocks.start < self.expected {
            return Verdict::Past;
        }
        self.remember(blocks.clone());
        if self.absorb(tunables) { Verdict::Stride } else { Verdict::Future }
    }

    /// Adds a range to those ahead, joined with those that it touches. Of too many, the furthest
    /// is forgotten.
    fn remember(&mut self, mut range: Range<u64>) {
        self.ahead.retain(|other| {
            let touches = other.start <= range.end && range.start <= other.end;
            if touches {
                range = range.start.min(other.start)..range.end.max(other.end);
            }
            !touches
        });
        let at = self.ahead.partition_point(|other| other.start < range.start);
        self.ahead.insert(at, range);
        self.ahead.truncate(MAX_AHEAD);
    }

    /// Moves over ranges ahead that follow without a hole, or with holes that are small against
    /// the way; says whether there were holes.
    fn absorb(&mut self, tunables: &PrefetchTunables) -> bool {
        let (mut target, mut reach, mut covered) = (self.expected, 0, 0);
        for (index, range) in self.ahead.iter().enumerate() {
            if range.end <= self.expected {
                reach = index + 1;
                continue;
            }
            let start = range.start.max(self.expected);
            covered += range.end - start;
            let way = range.end - self.expected;
            let holes = way - covered;
            if holes <= way.checked_shr(tunables.zfetch_hole_shift).unwrap_or(0) {
                target = range.end;
                reach = index + 1;
            }
        }
        let jumped = self.ahead.first().is_some_and(|first| first.start > self.expected);
        let jumped = jumped && target > self.expected;
        self.expected = target;
        self.ahead.drain(..reach);
        jumped
    }

    /// After a hit of `count` blocks: reaches further, and returns what to prefetch. When
    /// `pressed`, the distance does not double.
    pub(super) fn advance(
        &mut self,
        tunables: &PrefetchTunables,
        shape: &ObjectShape,
        count: u64,
        pressed: bool,
    ) -> Prefetch {
        let block_size = shape.block_size.max(1);
        let request = count.saturating_mul(block_size);
        if self.distance < tunables.zfetch_min_distance {
            if !pressed {
                self.distance = self.distance.saturating_mul(2).min(tunables.zfetch_min_distance);
            }
        } else if self.late {
            self.distance = self.distance.saturating_add(self.distance / 8);
        }
        self.late = false;
        self.distance = self.distance.max(request).min(tunables.zfetch_max_distance);
        self.indirect_distance = self
            .indirect_distance
            .saturating_mul(2)
            .max(request)
            .min(tunables.zfetch_max_idistance);
        if !self.missed {
            return Prefetch::default();
        }

        let clip = |block: u64| block.min(shape.blocks);
        let data_start = clip(self.data_end.max(self.expected));
        let data_end = clip(self.expected.saturating_add(self.distance / block_size));
        let data = data_start..data_end.max(data_start);
        self.data_end = data.end;

        // The last data block's own indirect block is read on the way to it.
        let indirect_start = self.indirect_end.max(data.end);
        let indirect_end = clip(data.end.saturating_add(self.indirect_distance / block_size));
        self.indirect_end = indirect_end.max(indirect_start);
        let indirect = blocks_above(indirect_start, shape)..blocks_above(self.indirect_end, shape);
        Prefetch { data, indirect }
    }
}

/// How many indirect blocks it takes to point to this many data blocks.
fn blocks_above(blocks: u64, shape: &ObjectShape) -> u64 {
    let whole = blocks.checked_shr(shape.indirect_shift).unwrap_or(0);
    let rest = blocks - whole.checked_shl(shape.indirect_shift).unwrap_or(0);
    whole + u64::from(rest > 0)
}
