//! Receiving snapshots.

use super::datasets::{create_above, destroy_again};
use super::exchange::{NewContents, exchange};
use super::mounts::mount_more;
use super::properties;
use super::snapshots::stored;
use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{self, ReceiveReport, ReceiveRequest, ReceiveTarget, Refusal, StreamExtent};
use crate::request::Choice;
use rzfs::WritablePool;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, DatasetTree};
use rzfs_dsl::live::{ChangeError, LocalChanges, ReceiveProblem, check_received_name};
use rzfs_format::Guid;
use rzfs_format::objset::ObjsetType;
use rzfs_receive::{Arrived, Incoming, ReceiveError, ReceiveOrder, Received, Remains, Streams};
use rzfs_stream::Problem;
use std::fmt::Display;
use std::io::{self, Read};

/// A snapshot that has arrived, and that its target does not have yet.
#[derive(Debug)]
pub(in crate::mount) struct Arrival<'p> {
    arrived: Arrived<'p>,
    brings: Brings,
    /// Whether there was no such dataset before.
    is_new: bool,
    /// What was made above it.
    made: Vec<String>,
}

/// What a stream brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Brings {
    /// All of a snapshot.
    Everything,
    /// What has changed since another one.
    Changes,
    /// What is missing since another stream broke off.
    Rest,
}

impl Brings {
    fn of<R: Read>(incoming: &Incoming<'_, R>) -> Self {
        match incoming.source() {
            _ if incoming.is_rest() => Self::Rest,
            Some(_) => Self::Changes,
            None => Self::Everything,
        }
    }

    /// That it is not received.
    const fn cannot(self) -> &'static str {
        match self {
            Self::Everything => "cannot receive new filesystem stream",
            Self::Changes => "cannot receive incremental stream",
            Self::Rest => "cannot receive resume stream",
        }
    }
}

/// The refusal of a stream.
fn refused(brings: Brings, target: &str, error: &ReceiveError) -> Refusal {
    let what = brings.cannot();
    match error {
        ReceiveError::Change(ChangeError::Exists { name }) if name.contains('@') => {
            let reason = "destination already exists";
            refusal(format_args!("cannot restore to {name}"), reason)
        }
        ReceiveError::Change(ChangeError::Exists { name }) => {
            let reason = "must specify -F to overwrite it";
            refusal(what, format_args!("destination '{name}' exists\n{reason}"))
        }
        ReceiveError::Change(ChangeError::NotFound { name }) if name == target => {
            refusal(what, format_args!("destination '{target}' does not exist"))
        }
        ReceiveError::Change(error @ ChangeError::Receive(ReceiveProblem::NotForced { .. })) => {
            refusal(format_args!("cannot resume recv {target}"), error)
        }
        ReceiveError::Change(error) => refusal(what, error),
        error => refusal(what, words(error)),
    }
}

/// The refusal of a stream that broke off, of which what has arrived is kept if it was to be; then it
/// says how to get the rest.
fn broken_off(
    pool: &WritablePool,
    (brings, order): (Brings, &ReceiveOrder),
    error: &ReceiveError,
) -> Refusal {
    let is_cut = |problem: &Problem| {
        matches!(
            problem,
            Problem::Checksum { .. }
                | Problem::EndChecksum { .. }
                | Problem::NoEnd
                | Problem::Truncated { .. }
        ) || matches!(problem, Problem::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    };
    let token = || {
        let tree = pool.live().dataset_tree()?;
        let token = tree.open(&order.target)?.resume_token()?;
        Ok::<_, DatasetError>(token.and_then(|token| token.encode().ok()))
    };
    match error {
        ReceiveError::Stream(cut) if order.remains == Remains::Kept && is_cut(&cut.problem) => {
            let Ok(Some(token)) = token() else { return refused(brings, &order.target, error) };
            let reason = format!(
                "checksum mismatch or incomplete stream.\n\
                 Partially received snapshot is saved.\n\
                 A resuming stream can be generated on the sending system by running:\n    \
                 zfs send -t {token}"
            );
            refusal(brings.cannot(), reason)
        }
        error => refused(brings, &order.target, error),
    }
}

/// `zfs receive -A`.
pub(super) fn abandon(open: &Open, name: &str) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn Display| refusal(format_args!("cannot destroy '{name}'"), error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let tree = pool.live().dataset_tree().map_err(|error| unopened(name, error))?;
    let target = tree.open(name).map_err(|error| match error {
        DatasetError::NotFound { .. } => unopened(name, "dataset does not exist"),
        error => unopened(name, error),
    })?;
    let received = target.received_into().map_err(|error| cannot(&error))?.unwrap_or(target);
    if !received.is_inconsistent() || !received.is_resumable().map_err(|error| cannot(&error))? {
        let message = format!("'{name}' does not have any resumable receive state to abort");
        return Err(Refusal::new(message));
    }
    let destroyed = pool.live().destroy_dataset(received.name());
    destroyed
        .map_err(|error| refusal(format_args!("cannot destroy '{}'", received.name()), error))?;
    Ok(Vec::new())
}

/// What is wrong with a stream: first in OpenZFS's words, which scripts look for.
fn words(error: &ReceiveError) -> String {
    let known = match error {
        ReceiveError::Stream(error) => match &error.problem {
            Problem::Checksum { .. } | Problem::EndChecksum { .. } => "checksum mismatch",
            Problem::NoEnd | Problem::Truncated { .. } => "incomplete stream",
            Problem::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "incomplete stream"
            }
            Problem::Empty => return "failed to read from stream".to_owned(),
            Problem::Magic => return "invalid stream (bad magic number)".to_owned(),
            Problem::Deprecated { .. } | Problem::UnknownFeatures { .. } => {
                return error.to_string();
            }
            _ => "invalid backup stream",
        },
        ReceiveError::Record { .. } => "invalid backup stream",
        error => return error.to_string(),
    };
    format!("{known}\n{error}")
}

fn cannot(reason: impl Display) -> Refusal {
    refusal("cannot receive", reason)
}

/// What comes in, for the pool that receives it.
pub(in crate::mount) struct Arrivals<'a, 'f> {
    pool: &'a WritablePool,
    request: &'a ReceiveRequest,
    streams: Streams<&'f mut dyn Read>,
    /// Whether what was there before has got its properties.
    has_properties: bool,
    /// What was made above something that has not arrived as a whole, and is kept.
    left: Vec<String>,
}

impl<'a, 'f> Arrivals<'a, 'f> {
    /// Begins to read what is to be received.
    pub(in crate::mount) fn open(
        pool: &'a WritablePool,
        request: &'a ReceiveRequest,
        from: &'f mut dyn Read,
    ) -> Result<Self, Refusal> {
        let streams = Streams::open(from).map_err(|error| cannot(words(&error)))?;
        if streams.is_package() && matches!(request.target, ReceiveTarget::Snapshot(_)) {
            return Err(cannot("cannot specify snapshot name for multi-snapshot stream"));
        }
        Ok(Self { pool, request, streams, has_properties: false, left: Vec::new() })
    }

    /// Receives the next snapshot that its target does not have yet; `hear` is told what comes, and
    /// `set` sets properties of a target that is there. `None`: that was all, or nobody listens.
    pub(in crate::mount) fn next_arrival(
        &mut self,
        hear: impl Fn(ReceiveReport) -> io::Result<()>,
        set: impl Fn(&str) -> Result<(), Refusal>,
    ) -> Result<Option<Arrival<'a>>, Refusal> {
        let is_package = self.streams.is_package();
        loop {
            let next = self.streams.next_stream().map_err(|error| cannot(words(&error)))?;
            let Some(incoming) = next else { return Ok(None) };
            let tree = self.pool.live().dataset_tree().map_err(cannot)?;
            let order = order(&tree, self.request, &incoming, is_package)?;
            let Order { mut order, is_new, extent } = order;
            drop(tree);
            let (head, last) = incoming.sent().map_err(|error| cannot(words(&error)))?;
            let snapshot = order.snapshot.as_ref().unwrap_or(&last);
            check_received_name(&order.target, snapshot).map_err(cannot)?;
            let heard = hear(ReceiveReport {
                sent: format!("{head}@{last}"),
                snapshot: format!("{}@{snapshot}", order.target),
                extent,
            });
            if heard.is_err() {
                return Ok(None);
            }
            if self.request.dry_run || extent == StreamExtent::Known {
                continue;
            }
            // Properties come first: what is received has to be within quotas, and is mounted with
            // what they let happen.
            let mut made = Vec::new();
            if is_new && !incoming.is_rest() {
                let kind = match incoming.objset_type() {
                    ObjsetType::Zvol => DatasetKind::Volume,
                    _ => DatasetKind::FileSystem,
                };
                let view = self.pool.view().map_err(cannot)?;
                let properties = stored(&view, kind, &self.request.properties);
                order.properties = properties.map_err(cannot)?;
                if matches!(self.request.target, ReceiveTarget::Path(_)) {
                    create_above(self.pool, &order.target, &mut made).map_err(cannot)?;
                }
            } else if !self.has_properties {
                set(&order.target)?;
            }
            self.has_properties = true;
            let brings = Brings::of(&incoming);
            let arrived = incoming.arrive(self.pool.live(), &order);
            return match arrived {
                Ok(arrived) => Ok(Some(Arrival { arrived, brings, is_new, made })),
                Err(error) => {
                    let refused = broken_off(self.pool, (brings, &order), &error);
                    match is_there(self.pool, &order.target) {
                        true => self.left = made,
                        false => destroy_again(self.pool, &made),
                    }
                    Err(refused)
                }
            };
        }
    }
}

impl Arrivals<'_, '_> {
    /// Mounts what stays of what was made, after something was refused.
    pub(in crate::mount) fn mount_left(self, open: &Open) {
        let left = self.left.into_iter().collect();
        let Ok(mut table) = open.table() else { return };
        if !self.request.leave_unmounted {
            for complaint in mount_more(open, &mut table, &left, Choice::Automatic) {
                tracing::warn!(complaint, "what was made for a receive is not mounted");
            }
        }
    }
}

/// Sets the properties that a target is to get which is there.
pub(in crate::mount) fn set_properties(
    open: &Open,
    target: &str,
    request: &ReceiveRequest,
) -> Result<(), Refusal> {
    match request.properties.as_slice() {
        [] => Ok(()),
        properties => properties::set(open, target, properties, false).map(drop),
    }
}

impl Arrival<'_> {
    /// Lets the target have it, which is mounted as it was, or as a new file system is; tells the bytes
    /// of the stream, and what could not be done besides.
    pub(in crate::mount) fn end(
        self,
        open: &Open,
        request: &ReceiveRequest,
    ) -> Result<(u64, Vec<String>), Refusal> {
        let Self { arrived, brings, is_new, made } = self;
        let mut table = open.table()?;
        open.forget_finished(&mut table);
        // Nobody renames it from now on.
        let target = arrived.target().map_err(|_| cannot("destination was destroyed meanwhile"))?;
        let mut change = Arriving { arrived: Some(arrived), brings, target: &target };
        let (received, mut complaints) = exchange(open, &mut table, &target, &mut change)?;
        if is_new && !request.leave_unmounted {
            let new = made.into_iter().chain([target]).collect();
            complaints.extend(mount_more(open, &mut table, &new, Choice::Automatic));
        }
        Ok((received.bytes, complaints))
    }
}

/// A snapshot that its target is to have now.
struct Arriving<'a, 'p> {
    arrived: Option<Arrived<'p>>,
    brings: Brings,
    target: &'a str,
}

impl NewContents for Arriving<'_, '_> {
    type Changed = Received;

    fn refused(&self, error: &dyn Display) -> Refusal {
        cannot(error)
    }

    fn contents(&self) -> Result<Dataset, DatasetError> {
        let gone = || DatasetError::NotFound { name: self.target.to_owned() };
        self.arrived.as_ref().ok_or_else(gone)?.contents()
    }

    fn change(&mut self) -> Result<Received, Refusal> {
        let arrived = self.arrived.take().ok_or_else(|| cannot("it is received already"))?;
        arrived.end().map_err(|error| refused(self.brings, self.target, &error.into()))
    }
}

/// Where a stream goes to.
struct Order {
    order: ReceiveOrder,
    /// Whether that has to be made.
    is_new: bool,
    extent: StreamExtent,
}

fn order<R: Read>(
    tree: &DatasetTree,
    request: &ReceiveRequest,
    incoming: &Incoming<'_, R>,
    is_package: bool,
) -> Result<Order, Refusal> {
    let (sent, _) = incoming.sent().map_err(|error| cannot(words(&error)))?;
    let below = |parent: &str, rest: Option<&str>| match rest {
        Some(rest) => format!("{parent}/{rest}"),
        None => parent.to_owned(),
    };
    let (target, snapshot) = match &request.target {
        ReceiveTarget::Dataset(name) => (name.clone(), None),
        ReceiveTarget::Snapshot(name) => match name.split_once('@') {
            Some((head, last)) => (head.to_owned(), Some(last.to_owned())),
            None => (name.clone(), None),
        },
        ReceiveTarget::Path(parent) => {
            (below(parent, sent.split_once('/').map(|(_, rest)| rest)), None)
        }
        ReceiveTarget::LastName(parent) => (below(parent, sent.rsplit('/').next()), None),
    };
    let found = |name: &str| match tree.open(name) {
        Ok(dataset) => Ok(Some(dataset)),
        Err(DatasetError::NotFound { .. }) => Ok(None),
        Err(error) => Err(cannot(error)),
    };
    let mut order = ReceiveOrder {
        target,
        snapshot,
        origin: request.origin.clone(),
        properties: Vec::new(),
        changes: if request.force { LocalChanges::GivenUp } else { LocalChanges::Kept },
        remains: match request.remains {
            protocol::Remains::Destroyed => Remains::Destroyed,
            protocol::Remains::Kept => Remains::Kept,
        },
    };
    let extent = match incoming.source() {
        Some(_) => StreamExtent::Incremental,
        None => StreamExtent::Full,
    };
    if let Some(target) = found(&order.target)? {
        // What would overwrite it as a whole is not passed over.
        let may_be_known = is_package || extent == StreamExtent::Incremental;
        let is_known =
            may_be_known && has_snapshot(&target, incoming.begin().to_guid).map_err(cannot)?;
        let extent = if is_known { StreamExtent::Known } else { extent };
        // What the rest is missing of was new, and is not mounted yet.
        let is_new = incoming.is_rest() && target.is_inconsistent();
        return Ok(Order { order, is_new, extent });
    }
    if let ReceiveTarget::Path(parent) | ReceiveTarget::LastName(parent) = &request.target {
        let parent = found(parent)?
            .ok_or_else(|| cannot(format_args!("specified fs ({parent}) does not exist")))?;
        // It may have another name by now. What becomes a clone is made anew.
        let is_clone = order.origin.is_some() || incoming.is_clone();
        if let Some(source) = incoming.source().filter(|_| !is_clone)
            && let Some(renamed) = with_snapshot(&parent, source).map_err(cannot)?
        {
            order.target = renamed;
            return Ok(Order { order, is_new: false, extent });
        }
    }
    Ok(Order { order, is_new: true, extent })
}

fn is_there(pool: &WritablePool, name: &str) -> bool {
    pool.live().dataset_tree().is_ok_and(|tree| tree.open(name).is_ok())
}

fn has_snapshot(dataset: &Dataset, guid: Guid) -> Result<bool, DatasetError> {
    Ok(dataset.snapshots()?.iter().any(|snapshot| snapshot.dsl_dataset().guid == guid))
}

/// The name of what has a snapshot with this identity, of a file system and all below it.
fn with_snapshot(parent: &Dataset, guid: Guid) -> Result<Option<String>, DatasetError> {
    for dataset in parent.descendants()? {
        if has_snapshot(&dataset, guid)? {
            return Ok(Some(dataset.name().to_owned()));
        }
    }
    Ok(None)
}
