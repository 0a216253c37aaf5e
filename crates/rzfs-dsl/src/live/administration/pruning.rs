//! Pruning unique blocks from dedup tables (`zpool ddtprune`).

use super::task::{TaskContext, Tasks};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::space::dedup::{Single, for_singles};
use crate::pool::Pool;
use std::collections::BTreeMap;

/// Entries removed in one txg.
const BATCH: usize = 10_000;
/// Seconds grouped together when searching for the oldest entries.
const HOUR: u64 = 3600;

/// Which entries to prune.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PruneLimit {
    /// Those without a second reference for this many seconds.
    Age(u64),
    /// This percentage of them, oldest first.
    Percent(u64),
}

/// What remains to remove: everything before an hour, and part of that hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cutoff {
    hour: u64,
    of_hour: u64,
}

/// Prunes entries of flat dedup tables that `view` has only once. Returns their number.
pub(crate) fn prune_dedup(
    tasks: &Tasks,
    view: &Pool,
    limit: PruneLimit,
    now: u64,
) -> Result<u64, ChangeError> {
    let Some(mut cutoff) = Cutoff::find(view, limit, now)? else { return Ok(0) };
    let prune = |batch: Vec<Single>| match batch.is_empty() {
        true => Ok(0),
        false => tasks.administer(move |context| Ok(context.prune(&batch)?)),
    };
    let (mut batch, mut removed) = (Vec::new(), 0);
    for_singles(view, |single| {
        if cutoff.takes(limit, &single) {
            batch.push(single);
        }
        if batch.len() == BATCH {
            removed += prune(std::mem::take(&mut batch))?;
        }
        Ok::<_, ChangeError>(())
    })?;
    Ok(removed + prune(batch)?)
}

impl Cutoff {
    /// Finds the cutoff of old entries: a second for an age, an hour and a part of it for a share.
    fn find(view: &Pool, limit: PruneLimit, now: u64) -> Result<Option<Self>, ChangeError> {
        let percent = match limit {
            PruneLimit::Age(age) => {
                return Ok(Some(Self { hour: now.saturating_sub(age), of_hour: 0 }));
            }
            PruneLimit::Percent(percent) => percent.min(100),
        };
        let mut hours: BTreeMap<u64, u64> = BTreeMap::new();
        for_singles(view, |single| {
            *hours.entry(single.since / HOUR).or_default() += 1;
            Ok::<_, ChangeError>(())
        })?;
        let all = hours.values().map(|count| u128::from(*count)).sum::<u128>();
        let mut wanted = u64::try_from(all * u128::from(percent) / 100).unwrap_or(u64::MAX);
        for (hour, count) in hours {
            if wanted <= count {
                return Ok((wanted > 0).then_some(Self { hour, of_hour: wanted }));
            }
            wanted -= count;
        }
        Ok(None)
    }

    /// Whether to prune an entry; counts it against the part of the hour.
    fn takes(&mut self, limit: PruneLimit, single: &Single) -> bool {
        let hour = single.since / HOUR;
        match limit {
            PruneLimit::Age(_) => single.since < self.hour,
            PruneLimit::Percent(_) if hour == self.hour && self.of_hour > 0 => {
                self.of_hour -= 1;
                true
            }
            PruneLimit::Percent(_) => hour < self.hour,
        }
    }
}

impl TaskContext<'_> {
    fn prune(&mut self, batch: &[Single]) -> Result<u64, LiveError> {
        let state = &mut *self.state;
        state.dedup.prune(&self.mos, &mut state.features, self.vdevs, batch)
    }
}
