//! Queries pools for the datasets in a command.

use super::name;
use super::order::{self, SortKey};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::Word;
use crate::source::{self, PoolClient};
use rzfs_server::protocol::{
    DatasetKind, DatasetListing, DatasetQuery, DatasetReport, Refusal, Selection,
};
use std::collections::BTreeMap;

/// Names and words for kinds of datasets (`-t`).
const KINDS: [(&str, &[DatasetKind]); 8] = [
    ("filesystem", &[DatasetKind::Filesystem]),
    ("fs", &[DatasetKind::Filesystem]),
    ("volume", &[DatasetKind::Volume]),
    ("vol", &[DatasetKind::Volume]),
    ("snapshot", &[DatasetKind::Snapshot]),
    ("snap", &[DatasetKind::Snapshot]),
    ("bookmark", &[DatasetKind::Bookmark]),
    ("all", &DatasetKind::ALL),
];

/// The datasets for a command.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Operands.
    pub(super) names: Vec<String>,
    /// `-d` with a device.
    pub(super) devices: Vec<String>,
    /// `-t`.
    pub(super) kinds: Option<Vec<DatasetKind>>,
    /// The kinds shown without `-t`.
    pub(super) default_kinds: &'static [DatasetKind],
    /// Levels below the operands: `-r` for all, `-d` for a number.
    pub(super) depth: Depth,
    /// Properties to query.
    pub(super) properties: Selection,
    /// `-s` and `-S`.
    pub(super) order: Vec<SortKey>,
}

/// Levels below the operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// Not specified.
    Unsaid,
    /// All.
    Unlimited,
    /// This many.
    Limited(u32),
}

impl Query {
    /// Takes operands, devices, kinds and depth from the options of a command.
    pub(super) fn of(
        words: &[Word],
        default_kinds: &'static [DatasetKind],
    ) -> Result<Self, Failure> {
        let mut query = Self {
            names: Vec::new(),
            devices: Vec::new(),
            kinds: None,
            default_kinds,
            depth: Depth::Unsaid,
            properties: Selection::All,
            order: Vec::new(),
        };
        for word in words {
            match word {
                Word::Operand(name) => query.names.push(name.clone()),
                Word::Device(device) => query.devices.push(device.clone()),
                Word::Flag('r') if query.depth == Depth::Unsaid => query.depth = Depth::Unlimited,
                Word::Option('d', depth) => {
                    let levels = depth.parse().map_err(|_| {
                        let problem = "neither a number of levels nor a device that exists";
                        Failure::Failed(format!("-d {depth}: {problem}"))
                    })?;
                    query.depth = Depth::Limited(levels);
                }
                Word::Option('t', kinds) => query.kinds = Some(parse_kinds(kinds)?),
                _ => {}
            }
        }
        Ok(query)
    }

    /// Queries all relevant pools, reports names that none has, and sorts.
    pub(super) fn run(
        &self,
        console: &mut Console<'_>,
    ) -> Result<(Vec<DatasetReport>, Outcome), Failure> {
        let pools: Vec<String> = self
            .names
            .iter()
            .filter(|name| !name.starts_with(['/', '.']))
            .map(|name| name::pool_of(name).to_owned())
            .collect();
        let all_names_are_pools = pools.len() == self.names.len();
        let wanted = if all_names_are_pools { pools } else { Vec::new() };
        let found = source::respondents(&self.devices, &wanted, console)?;
        let (mut respondents, mut outcome) = (found.pools, found.outcome);
        let mut datasets = BTreeMap::new();
        if self.names.is_empty() {
            for respondent in &mut respondents {
                let kinds = self.kinds.clone().unwrap_or_else(|| self.default_kinds.to_vec());
                let depth = match self.depth {
                    Depth::Limited(depth) => Some(depth),
                    Depth::Unsaid | Depth::Unlimited => None,
                };
                let listing = self.ask(respondent.as_mut(), Vec::new(), kinds, depth);
                match source::unless_gone(listing) {
                    Ok(Some(listing)) => collect(listing, &mut datasets, &mut outcome, console),
                    Ok(None) => {}
                    Err(Failure::Silent(reason)) => {
                        outcome = Err(source::report_omitted(reason, console));
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        for name in &self.names {
            let known = self.named(name, &mut respondents, console);
            match known {
                Ok(listing) => collect(listing, &mut datasets, &mut outcome, console),
                Err(reason) => {
                    let failed = found.failed.iter().any(|pool| pool == name::pool_of(name));
                    if !failed {
                        console.complain(format_args!("cannot open '{name}': {reason}"));
                    }
                    outcome = Err(Failure::Told);
                }
            }
        }
        let mut datasets: Vec<_> = datasets.into_values().collect();
        order::sort(&mut datasets, &self.order);
        Ok((datasets, outcome))
    }

    /// The datasets for one operand, or why it cannot be opened.
    fn named(
        &self,
        typed: &str,
        respondents: &mut [Box<dyn PoolClient>],
        _: &mut Console<'_>,
    ) -> Result<DatasetListing, String> {
        let name = if typed.starts_with(['/', '.']) && !typed.is_empty() {
            dataset_at(typed, respondents)?
        } else {
            typed.to_owned()
        };
        name::check(&name).map_err(|error| error.to_string())?;
        let is_bookmark = name.contains('#');
        let wants = |kind| self.kinds.as_ref().is_some_and(|kinds| kinds.contains(&kind));
        let takes_bookmarks = self.default_kinds.contains(&DatasetKind::Bookmark);
        if is_bookmark && !wants(DatasetKind::Bookmark) && !takes_bookmarks {
            return Err("bookmark delimiter '#' is not expected here".to_owned());
        }
        let (kinds, depth) = self.kinds_and_depth(&name);
        let pool = name::pool_of(&name);
        let respondent = respondents.iter_mut().find(|one| one.pool() == pool);
        let Some(respondent) = respondent else {
            return Err("dataset does not exist".to_owned());
        };
        let ask = |respondent: &mut dyn PoolClient, kinds: Vec<DatasetKind>| {
            self.ask(respondent, vec![name.clone()], kinds, depth).map_err(text)
        };
        let listing = ask(respondent.as_mut(), kinds.clone())?;
        // A name of an existing dataset of another kind cannot be listed, unless it stands for its
        // descendants: with any given depth, even 0.
        let is_itself = self.depth == Depth::Unsaid && depth == Some(0);
        if listing.datasets.is_empty() && listing.failures.is_empty() && is_itself {
            return Err("operation not applicable to datasets of this type".to_owned());
        }
        Ok(listing)
    }

    /// A name with just `-t snapshot` or `-t bookmark` stands for its snapshots or bookmarks; a
    /// named snapshot is shown without `-t`.
    fn kinds_and_depth(&self, name: &str) -> (Vec<DatasetKind>, Option<u32>) {
        let short = [DatasetKind::Snapshot, DatasetKind::Bookmark];
        let kinds = match &self.kinds {
            Some(kinds) => kinds.clone(),
            None if name.contains('@') => vec![DatasetKind::Snapshot],
            None => self.default_kinds.to_vec(),
        };
        let one_short_kind = kinds.len() == 1 && short.contains(&kinds[0]);
        let depth = match self.depth {
            Depth::Unlimited => None,
            Depth::Limited(depth) => Some(depth),
            Depth::Unsaid if one_short_kind && !name.contains(['@', '#']) => Some(1),
            Depth::Unsaid => Some(0),
        };
        (kinds, depth)
    }

    fn ask(
        &self,
        respondent: &mut dyn PoolClient,
        names: Vec<String>,
        kinds: Vec<DatasetKind>,
        depth: Option<u32>,
    ) -> Result<DatasetListing, Failure> {
        let properties = match &self.properties {
            Selection::All => Selection::All,
            Selection::Named(names) => {
                let keys = self.order.iter().map(|key| key.property.clone());
                Selection::Named(names.iter().cloned().chain(keys).collect())
            }
        };
        source::datasets(respondent, DatasetQuery { names, depth, kinds, properties })
    }
}

pub(super) fn text(failure: Failure) -> String {
    match failure {
        Failure::Usage(text)
        | Failure::Failed(text)
        | Failure::Refused(Refusal { message: text, .. })
        | Failure::Gone(text)
        | Failure::Silent(text)
        | Failure::Status(text, _) => text,
        Failure::Told => String::new(),
        Failure::Output(error) => error.to_string(),
    }
}

fn collect(
    listing: DatasetListing,
    datasets: &mut BTreeMap<String, DatasetReport>,
    outcome: &mut Outcome,
    console: &mut Console<'_>,
) {
    for failure in listing.failures {
        console.complain(format_args!("cannot open '{}': {}", failure.name, failure.reason));
        *outcome = Err(Failure::Told);
    }
    datasets.extend(listing.datasets.into_iter().map(|dataset| (dataset.name.clone(), dataset)));
}

/// The file system mounted at or around a path.
pub(super) fn dataset_at(
    path: &str,
    respondents: &mut [Box<dyn PoolClient>],
) -> Result<String, String> {
    let missing = |_| "No such file or directory".to_owned();
    let path = std::fs::canonicalize(path).map_err(missing)?;
    let mut best: Option<(usize, String)> = None;
    for respondent in respondents {
        let mounts = source::unless_gone(source::mounts(respondent.as_mut())).map_err(text)?;
        for mount in mounts.into_iter().flatten() {
            let length = mount.mountpoint.len();
            let is_better = best.as_ref().is_none_or(|(known, _)| length > *known);
            if path.starts_with(&mount.mountpoint) && is_better {
                best = Some((length, mount.dataset));
            }
        }
    }
    best.map(|(_, dataset)| dataset).ok_or_else(|| "not a ZFS filesystem".to_owned())
}

fn parse_kinds(text: &str) -> Result<Vec<DatasetKind>, Failure> {
    let mut kinds: Vec<DatasetKind> = Vec::new();
    for word in text.split(',') {
        let known = KINDS.iter().find(|(name, _)| *name == word);
        let (_, more) = known.ok_or_else(|| Failure::Usage(format!("invalid type '{word}'")))?;
        for kind in *more {
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
    }
    Ok(kinds)
}
