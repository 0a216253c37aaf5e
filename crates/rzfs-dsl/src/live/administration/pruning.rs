//! Forgetting blocks of dedup tables that nobody has a second time (`zpool ddtprune`).

use super::task::{TaskContext, Tasks};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::space::dedup::{Single, for_singles};
use crate::pool::Pool;
use std::collections::BTreeMap;

/// Entries that are removed in one txg.
const BATCH: usize = 10_000;
/// Seconds that are counted together when the oldest entries are looked for.
const HOUR: u64 = 3600;

/// Which entries go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PruneLimit {
    /// Those that have had no second reference for so many seconds.
    Age(u64),
    /// So much of them, in percent: the oldest.
    Percent(u64),
}

/// What is left to remove: everything before an hour, and some of that hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cutoff {
    hour: u64,
    of_hour: u64,
}

/// Forgets blocks of flat dedup tables that `view` has once only. Returns how many.
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
    /// Where old entries end: for an age a second, for a share an hour and a part of it.
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

    /// Whether an entry goes, which counts against the part of the hour that does.
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
