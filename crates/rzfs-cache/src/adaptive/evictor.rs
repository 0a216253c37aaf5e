//! State kept between evictions.

use super::balance::{Balance, PerList};
use super::entry::{CLASSES, Class};

/// State kept between evictions.
#[derive(Debug)]
pub(super) struct Evictor {
    pub(super) balance: Balance,
    /// The limits of the ghosts in the last run.
    pub(super) limits: PerList,
    /// The next shard, by class.
    turns: [usize; CLASSES],
}

impl Evictor {
    pub(super) const fn new(meta_balance: u64) -> Self {
        let limits = PerList { mru_data: 0, mru_metadata: 0, mfu_data: 0, mfu_metadata: 0 };
        Self { balance: Balance::new(meta_balance), limits, turns: [0; CLASSES] }
    }

    /// The next shard.
    pub(super) const fn next_shard(&mut self, class: Class, shards: usize) -> usize {
        let turn = &mut self.turns[class.index()];
        *turn = (*turn + 1) % shards;
        *turn
    }
}
