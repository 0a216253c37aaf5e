//! `zfs destroy` (spec 09, section 3.5).

use super::change::{carry_out, check_head, missing, pool_with, query, require};
use super::dependents::{DestroyPlan, NEEDED};
use super::name;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::quantity;
use crate::source;
use rzfs_server::protocol::{Change, ConcurrentSnapshots, DatasetKind, DatasetReport};
use std::collections::BTreeSet;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('d', Value::None),
        ('r', Value::None),
        ('R', Value::None),
        ('f', Value::None),
        ('n', Value::None),
        ('p', Value::None),
        ('v', Value::None),
    ],
    names: &[],
};

/// The options.
struct Request {
    words: Vec<Word>,
    line: String,
}

impl Request {
    fn flag(&self, letter: char) -> bool {
        self.words.contains(&Word::Flag(letter))
    }

    /// Whether descendants, or snapshots with the same name below, are meant too.
    fn is_recursive(&self) -> bool {
        self.flag('r') || self.flag('R')
    }

    /// Treatment of concurrently taken snapshots.
    fn newcomers(&self) -> ConcurrentSnapshots {
        if self.is_recursive() { ConcurrentSnapshots::Destroy } else { ConcurrentSnapshots::Keep }
    }

    /// Whether to report what is destroyed: `-p` implies that.
    fn tells(&self) -> bool {
        self.flag('v') || self.flag('p')
    }

    /// Reports what is destroyed, or would be.
    fn tell<'n>(
        &self,
        names: impl IntoIterator<Item = &'n String>,
        console: &mut Console<'_>,
    ) -> Outcome {
        if !self.tells() {
            return Ok(());
        }
        for name in names {
            match (self.flag('p'), self.flag('n')) {
                (true, _) => writeln!(console.out, "destroy\t{name}")?,
                (false, true) => writeln!(console.out, "would destroy {name}")?,
                (false, false) => writeln!(console.out, "will destroy {name}")?,
            }
        }
        Ok(())
    }
}

/// Runs `zfs destroy`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs destroy", words);
    let words = GRAMMAR.parse(words)?;
    let operands = operands(&words);
    let request = Request { words, line };
    let [name] = operands.as_slice() else {
        let problem =
            if operands.is_empty() { "missing dataset argument" } else { "too many arguments" };
        return Err(Failure::Usage(problem.to_owned()));
    };
    if let Some((head, snapshots)) = name.split_once('@') {
        return destroy_snapshots(&request, head, snapshots, console);
    }
    if request.flag('d') {
        let problem = "deferred destroy is only for snapshots";
        return Err(Failure::Usage(problem.to_owned()));
    }
    if name.contains('#') {
        if request.is_recursive() {
            let problem = "recursive is not supported with bookmark";
            return Err(Failure::Status(problem.to_owned(), u8::MAX));
        }
        if request.flag('n') {
            let problem = "dryrun is not supported with bookmark";
            return Err(Failure::Status(problem.to_owned(), u8::MAX));
        }
        return destroy_bookmark(&request, name, console);
    }
    destroy_tree(&request, name, console)
}

fn destroy_bookmark(request: &Request, name: &str, console: &mut Console<'_>) -> Outcome {
    name::check(name).map_err(|error| Failure::Failed(format!("cannot open '{name}': {error}")))?;
    let mut client = pool_with(name)?;
    require(&mut client, name)
        .map_err(|_| Failure::Failed(format!("bookmark '{name}' does not exist.")))?;
    request.tell([&name.to_owned()], console)?;
    let change = Change::DestroyBookmark { name: name.to_owned() };
    carry_out(&mut client, change, Some(&request.line), console)
}

/// Destroys a file system or volume, with its descendants and dependents.
fn destroy_tree(request: &Request, name: &str, console: &mut Console<'_>) -> Outcome {
    check_head("open", name)?;
    let mut client = pool_with(name)?;
    let kinds = [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
    let all = query(&mut client, name, (None, &kinds), &NEEDED)?;
    let is_pool = !name.contains('/');
    if is_pool && !request.is_recursive() {
        return Err(Failure::Failed(format!(
            "cannot destroy '{name}': operation does not apply to pools\n\
             use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
             use 'zpool destroy {name}' to destroy the pool itself"
        )));
    }
    let below = || all.iter().filter(|one| one.name != name).map(|one| one.name.as_str());
    if below().next().is_some() && !request.is_recursive() {
        return Err(Failure::Failed(format!(
            "cannot destroy '{name}': filesystem has children\n\
             use '-r' to destroy the following datasets:\n{}",
            below().collect::<Vec<_>>().join("\n")
        )));
    }
    let doomed = DestroyPlan::of(&mut client, &all)?;
    if !doomed.dependents.is_empty() && !request.flag('R') {
        return Err(Failure::Failed(format!(
            "cannot destroy '{name}': filesystem has dependent clones\n\
             use '-R' to destroy the following datasets:\n{}",
            doomed.dependents.join("\n")
        )));
    }
    let mut names = doomed.into_order()?;
    // The root of a pool stays.
    names.retain(|one| !is_pool || one != name);
    request.tell(&names, console)?;
    if request.flag('n') {
        return Ok(());
    }
    let newcomers = request.newcomers();
    let change = Change::Destroy { names, force: request.flag('f'), newcomers };
    carry_out(&mut client, change, Some(&request.line), console)
}

/// Destroys snapshots of a dataset: `a,b%c,%d`.
fn destroy_snapshots(
    request: &Request,
    head: &str,
    snapshots: &str,
    console: &mut Console<'_>,
) -> Outcome {
    check_head("open", head)?;
    if snapshots.is_empty() {
        let message = format!("cannot open '{head}@': empty component in name");
        return Err(Failure::Failed(message));
    }
    let mut client = pool_with(head)?;
    let kinds = [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
    let depth = if request.is_recursive() { None } else { Some(1) };
    let all = query(&mut client, head, (depth, &kinds), &NEEDED).map_err(|_| missing(head))?;
    let heads = all.iter().filter(|one| one.kind != DatasetKind::Snapshot);
    let heads = heads.filter(|one| request.is_recursive() || one.name == head);
    let mut doomed = Vec::new();
    let mut runs = Vec::new();
    for of in heads {
        let own = all
            .iter()
            .filter(|one| one.name.split_once('@').is_some_and(|(head, _)| head == of.name));
        let own: Vec<&DatasetReport> = own.collect();
        let chosen = chosen(&own, snapshots)?;
        let mut run: Option<(String, String)> = None;
        for one in &own {
            match chosen.contains(one.name.as_str()) {
                true => {
                    doomed.push(*one);
                    let first = run.map_or_else(|| one.name.clone(), |(first, _)| first);
                    run = Some((first, one.name.clone()));
                }
                false => runs.extend(run.take()),
            }
        }
        runs.extend(run);
    }
    if doomed.is_empty() {
        let message = "could not find any snapshots to destroy; check snapshot names.";
        return Err(Failure::Failed(message.to_owned()));
    }
    let with_clones = DestroyPlan::of(&mut client, doomed.iter().copied())?;
    let clones = &with_clones.dependents;
    let doomed: Vec<String> = doomed.iter().map(|one| one.name.clone()).collect();
    if !clones.is_empty() && !request.flag('R') && !request.flag('d') {
        let name = format!("{head}@{snapshots}");
        return Err(Failure::Failed(format!(
            "cannot destroy '{name}': snapshot has dependent clones\n\
             use '-R' to destroy the following datasets:\n{}",
            clones.join("\n")
        )));
    }
    // Deferred destruction is possible only without clones.
    let takes_clones = !clones.is_empty() && request.flag('R');
    let names = if takes_clones { with_clones.into_order()? } else { doomed };
    request.tell(&names, console)?;
    if request.tells() {
        let reclaimed = source::reclaimed(&mut client, runs)?;
        match (request.flag('p'), request.flag('n')) {
            (true, _) => writeln!(console.out, "reclaim\t{}", reclaimed)?,
            (false, true) => {
                writeln!(console.out, "would reclaim {}", quantity::nicebytes(reclaimed))?
            }
            (false, false) => {
                writeln!(console.out, "will reclaim {}", quantity::nicebytes(reclaimed))?
            }
        }
    }
    if request.flag('n') {
        return Ok(());
    }
    let change = match takes_clones {
        true => {
            let newcomers = request.newcomers();
            Change::Destroy { names, force: request.flag('f'), newcomers }
        }
        false => Change::DestroySnapshots { names, defer: request.flag('d') },
    };
    carry_out(&mut client, change, Some(&request.line), console)
}

/// The selected snapshots of a head, whose oldest comes first.
fn chosen<'s>(own: &[&'s DatasetReport], words: &str) -> Result<BTreeSet<&'s str>, Failure> {
    let short = |one: &DatasetReport| one.name.split_once('@').map(|(_, name)| name.to_owned());
    let place = |name: &str| own.iter().position(|one| short(one).as_deref() == Some(name));
    let mut chosen = BTreeSet::new();
    for word in words.split(',') {
        let range = match word.split_once('%') {
            None => place(word).map(|at| at..at + 1),
            Some((_, last)) if last.contains('%') => {
                let message = format!("invalid snapshot range '{word}'");
                return Err(Failure::Failed(message));
            }
            Some((first, last)) => {
                let from = if first.is_empty() { Some(0) } else { place(first) };
                let to = if last.is_empty() { own.len().checked_sub(1) } else { place(last) };
                from.zip(to).map(|(from, to)| from..to + 1)
            }
        };
        let meant = range.and_then(|range| own.get(range)).unwrap_or_default();
        chosen.extend(meant.iter().map(|one| one.name.as_str()));
    }
    Ok(chosen)
}
