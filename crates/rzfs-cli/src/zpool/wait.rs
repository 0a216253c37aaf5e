//! `zpool wait` (spec 09, section 2).

use super::selection::{Repetition, Stamp, parse_stamp, print_stamp};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::quantity::nicenum;
use crate::source::required;
use crate::source::{self, PoolClient};
use rzfs_format::property::PoolProperty;
use rzfs_server::protocol::{
    PoolReport, PropertyValue, ScanFunction, ScanReport, ScanState, SweepKind, SweepReport,
    SweepState, VdevReport,
};
use std::time::{Duration, Instant};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('H', Value::None),
        ('p', Value::None),
        ('T', Value::Required),
        ('t', Value::Required),
    ],
    names: &[],
};

/// How often a pool is queried.
const POLL: Duration = Duration::from_millis(100);

/// Minimum width of a column.
const WIDTH: usize = 6;

/// An activity of a pool that ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    Discard,
    Free,
    Initialize,
    Replace,
    Remove,
    Resilver,
    Scrub,
    Trim,
    RaidzExpand,
}

impl Activity {
    /// All of them, with their words and headings, in column order.
    const ALL: [(Self, &'static str, &'static str); 9] = [
        (Self::Discard, "discard", "DISCARD"),
        (Self::Free, "free", "FREEING"),
        (Self::Initialize, "initialize", "INITIALIZE"),
        (Self::Replace, "replace", "REPLACE"),
        (Self::Remove, "remove", "REMOVE"),
        (Self::Resilver, "resilver", "RESILVER"),
        (Self::Scrub, "scrub", "SCRUB"),
        (Self::Trim, "trim", "TRIM"),
        (Self::RaidzExpand, "raidz_expand", "RAIDZ_EXPAND"),
    ];

    /// Bytes left to do; `None` if it is not under way.
    fn left(self, pool: &PoolReport) -> Option<u64> {
        match self {
            Self::Discard => {
                let discarded = pool.checkpoint.filter(|checkpoint| checkpoint.discarding)?;
                Some(discarded.space)
            }
            Self::Free => freeing(pool).filter(|bytes| *bytes > 0),
            Self::Initialize => sweeps(&pool.root, SweepKind::Initialize),
            Self::Trim => sweeps(&pool.root, SweepKind::Trim),
            Self::Replace => None,
            Self::Remove => {
                let removal = pool.removal.filter(|one| one.state == ScanState::Scanning)?;
                Some(removal.to_copy.saturating_sub(removal.copied))
            }
            Self::Resilver => scan(pool.scan.as_ref(), ScanFunction::Resilver),
            Self::Scrub => scan(pool.scan.as_ref(), ScanFunction::Scrub),
            Self::RaidzExpand => {
                let expansion = pool.expansion.filter(|one| one.state == ScanState::Scanning)?;
                Some(expansion.to_reflow.saturating_sub(expansion.reflowed))
            }
        }
    }
}

fn freeing(pool: &PoolReport) -> Option<u64> {
    let property =
        pool.properties.iter().find(|property| property.name == PoolProperty::Freeing.name())?;
    match property.value {
        PropertyValue::Number(bytes) => Some(bytes),
        _ => None,
    }
}

fn scan(scan: Option<&ScanReport>, function: ScanFunction) -> Option<u64> {
    let runs = |scan: &&ScanReport| scan.function == function && scan.state == ScanState::Scanning;
    scan.filter(runs).map(|scan| scan.to_examine.saturating_sub(scan.issued))
}

/// Bytes left of all active sweeps of leaves.
fn sweeps(vdev: &VdevReport, kind: SweepKind) -> Option<u64> {
    let own = match kind {
        SweepKind::Initialize => vdev.initialize,
        SweepKind::Trim => vdev.trim,
    };
    let left = |sweep: SweepReport| sweep.total.saturating_sub(sweep.done);
    let own = own.filter(|sweep| sweep.state == SweepState::Active).map(left);
    let below = vdev.children.iter().filter_map(|child| sweeps(child, kind));
    own.into_iter().chain(below).reduce(u64::saturating_add)
}

/// Waits until none of these is under way.
pub(super) fn wait_for(pool: &mut dyn PoolClient, activities: &[Activity]) -> Outcome {
    loop {
        let report = source::pool_report(pool)?;
        if !activities.iter().any(|one| one.left(&report).is_some()) {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

/// The format of the remaining work.
struct Table {
    activities: Vec<Activity>,
    scripted: bool,
    exact: bool,
    stamp: Option<Stamp>,
}

/// Runs `zpool wait`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut operands = operands(&words);
    let Repetition { interval, count } = Repetition::take(&mut operands)?;
    let pool = match operands.as_slice() {
        _ if count.is_some() => return Err(Failure::Usage("too many arguments".to_owned())),
        [] => return Err(Failure::Usage("missing 'pool' argument".to_owned())),
        [pool] => pool,
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let mut activities = Vec::new();
    let mut stamp = None;
    for word in &words {
        match word {
            Word::Option('t', list) => activities = parse_activities(list)?,
            Word::Option('T', text) => stamp = Some(parse_stamp(text)?),
            _ => {}
        }
    }
    if activities.is_empty() {
        activities = Activity::ALL.iter().map(|(activity, ..)| *activity).collect();
    }
    let mut client = required(pool)?;
    let Some(interval) = interval else { return wait_for(&mut client, &activities) };
    let table = Table { activities, scripted: flag('H'), exact: flag('p'), stamp };
    table.watch(&mut client, interval, console)
}

fn parse_activities(list: &str) -> Result<Vec<Activity>, Failure> {
    let wanted = list.split(',').map(|word| {
        let known = Activity::ALL.iter().find(|(_, name, _)| *name == word);
        let unknown = || Failure::Usage(format!("invalid activity '{word}'"));
        known.map(|(activity, ..)| *activity).ok_or_else(unknown)
    });
    let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
    // Columns have a fixed order.
    let all = Activity::ALL.iter().map(|(activity, ..)| *activity);
    Ok(all.filter(|activity| wanted.contains(activity)).collect())
}

impl Table {
    /// Prints the remaining work periodically until there is none.
    fn watch(
        &self,
        pool: &mut dyn PoolClient,
        interval: Duration,
        console: &mut Console<'_>,
    ) -> Outcome {
        let mut is_first = true;
        loop {
            let report = source::pool_report(pool)?;
            let left: Vec<Option<u64>> =
                self.activities.iter().map(|activity| activity.left(&report)).collect();
            let is_over = left.iter().all(Option::is_none);
            if is_over && !is_first {
                return Ok(());
            }
            print_stamp(self.stamp, console)?;
            if is_first && !self.scripted {
                self.print_row(console, |index| self.heading(index).to_owned())?;
            }
            self.print_row(console, |index| {
                let bytes = left.get(index).copied().flatten().unwrap_or(0);
                if self.exact { bytes.to_string() } else { nicenum(bytes) }
            })?;
            console.out.flush()?;
            if is_over {
                return Ok(());
            }
            is_first = false;
            let next = Instant::now() + interval;
            while Instant::now() < next {
                std::thread::sleep(POLL.min(next.saturating_duration_since(Instant::now())));
                let report = source::pool_report(pool)?;
                if !self.activities.iter().any(|activity| activity.left(&report).is_some()) {
                    return Ok(());
                }
            }
        }
    }

    fn heading(&self, index: usize) -> &'static str {
        let activity = self.activities.get(index);
        let known = Activity::ALL.iter().find(|(known, ..)| Some(known) == activity);
        known.map_or("", |(_, _, heading)| heading)
    }

    fn print_row(&self, console: &mut Console<'_>, cell: impl Fn(usize) -> String) -> Outcome {
        for index in 0..self.activities.len() {
            let width = self.heading(index).len().max(WIDTH);
            match self.scripted {
                true => write!(console.out, "\t{}", cell(index))?,
                false => write!(console.out, "  {:>width$}", cell(index))?,
            }
        }
        writeln!(console.out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_keep_the_order_of_columns() {
        let parsed = parse_activities("trim,initialize").unwrap();
        assert_eq!(parsed, [Activity::Initialize, Activity::Trim]);
        assert!(
            matches!(parse_activities("bad"), Err(Failure::Usage(text)) if text.contains("'bad'"))
        );
    }

    #[test]
    fn what_is_left_is_that_of_leaves_that_go_on() {
        let sweep = |state, done| Some(SweepReport { state, action_time: 1, done, total: 10 });
        let leaf = |trim| VdevReport { trim, ..VdevReport::default() };
        let children = vec![
            leaf(sweep(SweepState::Active, 3)),
            leaf(sweep(SweepState::Active, 10)),
            leaf(sweep(SweepState::Suspended, 5)),
            leaf(None),
        ];
        let root = VdevReport { children, ..VdevReport::default() };
        let mut pool = PoolReport { root, ..PoolReport::default() };
        assert_eq!(Activity::Trim.left(&pool), Some(7));
        assert_eq!(Activity::Initialize.left(&pool), None);
        pool.root.children.truncate(0);
        assert_eq!(Activity::Trim.left(&pool), None);
    }
}
