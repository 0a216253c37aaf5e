//! The streams to send, in order (spec 08, section 6.4).

use super::wording::{no_package, refused, short};
use crate::protocol::{MissingSnapshots, Refusal, SendRequest, SentTree, Steps};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetTree};
use rzfs_format::ObjectId;
use rzfs_send::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A plan of what to send.
#[derive(Debug)]
pub(super) struct Plan {
    /// Parents come before children.
    pub(super) members: Vec<Member>,
    /// The streams, in order.
    pub(super) steps: Vec<Step>,
    /// Omissions, a line for each.
    pub(super) skipped: Vec<String>,
}

/// A file system or volume to be sent.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) head: Dataset,
    /// The index of its parent.
    pub(super) parent: Option<usize>,
    /// Its origin, if it is a clone.
    pub(super) origin: Option<Dataset>,
    /// The snapshot that the receiver has, if any.
    pub(super) from: Option<Dataset>,
    /// The last snapshot to send.
    pub(super) to: Dataset,
    /// The snapshots to describe, the oldest first, including the last two.
    pub(super) snapshots: Vec<Dataset>,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) snapshot: Dataset,
    pub(super) source: Option<Source>,
    /// The source as it is named: the beginning of a clone is all new.
    pub(super) from: Option<String>,
}

impl Plan {
    /// Plans a request.
    pub(super) fn of(pool: &Pool, request: &SendRequest) -> Result<Self, Refusal> {
        let tree = pool.datasets();
        let snapshot = opened(tree, request, &request.snapshot)?;
        match &request.tree {
            None => Self::of_one(tree, request, snapshot),
            Some(below) => Self::of_tree(tree, request, (&snapshot, below)),
        }
    }

    fn of_one(
        tree: &DatasetTree,
        request: &SendRequest,
        snapshot: Dataset,
    ) -> Result<Self, Refusal> {
        let unread = |error: DatasetError| refused(request, &error);
        let source = request.from.as_deref().map(|from| {
            let found = match from.split_once('#') {
                Some((head, _)) => tree.open(head).and_then(|head| {
                    Ok(Source::Bookmark { bookmark: tree.open_bookmark(from)?, head })
                }),
                None => tree.open(from).map(Source::Snapshot),
            };
            found.map_err(|error| match error {
                DatasetError::NotFound { .. } => refused(
                    request,
                    &format_args!(
                        "incremental source ({}) does not exist",
                        short(from, snapshot.name())
                    ),
                ),
                error => refused(request, &error),
            })
        });
        let source = source.transpose()?;
        let head = snapshot.head().map_err(unread)?;
        let mut from = None;
        let targets = match (request.steps, &source) {
            (Steps::One, _) | (Steps::Each, None) => vec![snapshot.clone()],
            (Steps::Each, Some(Source::Snapshot(first))) => {
                from = Some(first.clone());
                between(&head, first, &snapshot).map_err(unread)?
            }
            (Steps::Each, Some(Source::Bookmark { .. })) => {
                return Err(refused(request, &"multiple snapshots cannot be sent from a bookmark"));
            }
        };
        let of_head = |from: &&Dataset| from.directory_object() == head.directory_object();
        let snapshots = from.iter().filter(of_head).chain(&targets).cloned().collect();
        let origin = head.origin().map_err(unread)?;
        let member = Member { head, parent: None, origin, from, to: snapshot, snapshots };
        let steps = steps(targets, (source, request.from.clone()));
        Ok(Self { members: vec![member], steps, skipped: Vec::new() })
    }

    fn of_tree(
        tree: &DatasetTree,
        request: &SendRequest,
        (snapshot, below): (&Dataset, &SentTree),
    ) -> Result<Self, Refusal> {
        let unread = |error: DatasetError| refused(request, &error);
        if let Some(from) = &request.from {
            opened(tree, request, from)?;
        }
        let last = |name: &str| name.split_once('@').map(|(_, last)| last.to_owned());
        let from = request.from.as_deref().and_then(last);
        let to = last(snapshot.name()).unwrap_or_default();
        let taken = created(snapshot);
        let (mut members, mut skipped) = (Vec::<Member>::new(), Vec::new());
        let (mut places, mut left_out) = (BTreeMap::new(), below.excluded.clone());
        let top = snapshot.head().map_err(unread)?;
        for head in top.descendants().map_err(unread)? {
            let name = head.name().to_owned();
            if left_out.iter().any(|above| is_below(&name, above)) {
                continue;
            }
            let Some(to) = head.snapshot(&to).map_err(unread)? else {
                let is_newer = created(&head) > taken;
                if !is_newer && below.missing == MissingSnapshots::Refused {
                    return Err(no_package(
                        request,
                        &format_args!(
                            "cannot send {} recursively: snapshot {name}@{to} does not exist",
                            request.snapshot
                        ),
                    ));
                }
                if !is_newer {
                    skipped.push(format!(
                        "WARNING: skipping dataset {name} and its children: snapshot {to} does \
                         not exist"
                    ));
                }
                left_out.push(name);
                continue;
            };
            let mut snapshots = head.snapshots().map_err(unread)?;
            snapshots.retain(|one| created(one) <= created(&to));
            let from = from.as_deref().map(|from| head.snapshot(from));
            let parent = name.rsplit_once('/').and_then(|(above, _)| places.get(above)).copied();
            places.insert(name, members.len());
            let origin = head.origin().map_err(unread)?;
            let from = from.transpose().map_err(unread)?.flatten();
            members.push(Member { head, parent, origin, from, to, snapshots });
        }
        let mut steps = Vec::new();
        for member in order(request, &members)? {
            steps.extend(steps_of(member, &members, request));
        }
        Ok(Self { members, steps, skipped })
    }
}

fn opened(tree: &DatasetTree, request: &SendRequest, name: &str) -> Result<Dataset, Refusal> {
    tree.open(name).map_err(|error| match error {
        DatasetError::NotFound { .. } => {
            Refusal::new(format!("cannot open '{name}': dataset does not exist"))
        }
        error => refused(request, &error),
    })
}

fn created(dataset: &Dataset) -> rzfs_format::Txg {
    dataset.dsl_dataset().creation_txg
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The snapshots of a head after a past one, up to another, the oldest first.
fn between(head: &Dataset, from: &Dataset, to: &Dataset) -> Result<Vec<Dataset>, DatasetError> {
    let mut between = head.snapshots()?;
    between.retain(|one| created(one) > created(from) && created(one) < created(to));
    between.push(to.clone());
    Ok(between)
}

/// The streams between consecutive snapshots, the first of which has a given source.
fn steps(snapshots: Vec<Dataset>, (source, from): (Option<Source>, Option<String>)) -> Vec<Step> {
    let (mut source, mut from) = (source, from);
    let steps = snapshots.into_iter().map(|snapshot| {
        let name = Some(snapshot.name().to_owned());
        let next = Some(Source::Snapshot(snapshot.clone()));
        let (source, from) =
            (std::mem::replace(&mut source, next), std::mem::replace(&mut from, name));
        Step { snapshot, source, from }
    });
    steps.collect()
}

/// The streams of one of several members.
fn steps_of(member: &Member, members: &[Member], request: &SendRequest) -> Vec<Step> {
    let Member { from, to, origin, snapshots, .. } = member;
    let is_origin = |one: &Dataset| {
        let mut origins = members.iter().filter_map(|other| other.origin.as_ref());
        origins.any(|origin| origin.object() == one.object())
    };
    // Increments of a tree without intermediate steps come at once, except for origins of clones.
    let is_stepwise = request.from.is_none() || request.steps == Steps::Each;
    let mut sent = snapshots.clone();
    sent.retain(|one| {
        let is_new = from.as_ref().is_none_or(|from| created(one) > created(from));
        one.object() == to.object() || is_new && (is_stepwise || is_origin(one))
    });
    let first = match (from, origin) {
        (Some(from), _) => (Some(Source::Snapshot(from.clone())), Some(from.name().to_owned())),
        (None, Some(origin)) => (Some(Source::Snapshot(origin.clone())), None),
        (None, None) => (None, None),
    };
    steps(sent, first)
}

/// Parents come first, and so do origins of clones.
fn order<'m>(request: &SendRequest, members: &'m [Member]) -> Result<Vec<&'m Member>, Refusal> {
    let owners: BTreeMap<ObjectId, usize> = members
        .iter()
        .enumerate()
        .flat_map(|(at, member)| member.snapshots.iter().map(move |one| (one.object(), at)))
        .collect();
    let (mut ordered, mut sent) = (Vec::new(), BTreeSet::new());
    while sent.len() < members.len() {
        let before = sent.len();
        for (at, member) in members.iter().enumerate() {
            let origin = member.origin.as_ref().and_then(|origin| owners.get(&origin.object()));
            let is_ready = member.parent.iter().chain(origin).all(|needed| sent.contains(needed));
            if is_ready && sent.insert(at) {
                ordered.push(member);
            }
        }
        if sent.len() == before {
            let why = "a file system is a clone of what is below it";
            return Err(refused(request, &why));
        }
    }
    Ok(ordered)
}
