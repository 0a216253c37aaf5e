//! Progress of a receive into a head, until it is on disk.

use crate::mos::resume::ResumePoint;
use parking_lot::Mutex;
use rzfs_format::Txg;
use std::collections::VecDeque;

/// Txgs not yet on disk, plus one.
const LIMIT: usize = 4;

/// The last points reached, each with a txg by which everything before it is on disk.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<VecDeque<(Txg, ResumePoint)>>);

impl Progress {
    /// Records that everything before a point is in this txg or in older ones.
    pub(super) fn note(&self, txg: Txg, point: ResumePoint) {
        let mut points = self.0.lock();
        match points.back_mut() {
            Some((last, reached)) if *last == txg => *reached = point,
            _ => points.push_back((txg, point)),
        }
        // Continuing from an older point only repeats work.
        if points.len() > LIMIT {
            points.pop_front();
        }
    }

    /// The point reached with this txg, if it is new.
    pub(super) fn take(&self, txg: Txg) -> Option<ResumePoint> {
        let mut points = self.0.lock();
        let mut reached = None;
        while let Some((_, point)) = points.front().copied().filter(|(of, _)| *of <= txg) {
            points.pop_front();
            reached = Some(point);
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::ObjectId;

    fn at(offset: u64) -> ResumePoint {
        ResumePoint { object: ObjectId(2), offset, bytes: offset }
    }

    #[test]
    fn a_txg_has_what_was_reached_in_it_or_before() {
        let progress = Progress::default();
        progress.note(Txg(7), at(1));
        progress.note(Txg(7), at(2));
        progress.note(Txg(8), at(3));
        progress.note(Txg(9), at(4));
        assert_eq!(progress.take(Txg(6)), None);
        assert_eq!(progress.take(Txg(8)), Some(at(3)));
        assert_eq!(progress.take(Txg(8)), None);
        assert_eq!(progress.take(Txg(9)), Some(at(4)));
    }

    #[test]
    fn places_of_txgs_in_which_nothing_was_written_are_not_collected_for_ever() {
        let progress = Progress::default();
        (1..100).for_each(|txg| progress.note(Txg(txg), at(txg)));
        assert_eq!(progress.take(Txg(95)), None);
        assert_eq!(progress.take(Txg(99)), Some(at(99)));
    }
}
