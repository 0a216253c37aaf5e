//! Receiving snapshots.

mod before;
mod brought;
mod places;
mod tree;
mod wording;

use super::datasets::destroy_again;
use super::exchange::{NewContents, exchange};
use super::mounts::mount_more;
use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{
    self, ReceiveReport, ReceiveRequest, ReceiveTarget, Refusal, StreamExtent, TreeReport,
};
use crate::request::Choice;
use before::{Coming, Preparations, Prepared};
use brought::{engine_refused, give_delayed, give_snapshot, warnings};
use places::Places;
use rzfs::WritablePool;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, DatasetTree};
use rzfs_dsl::live::{LocalChanges, check_received_name};
use rzfs_format::Guid;
use rzfs_format::objset::ObjsetType;
use rzfs_receive::{Arrived, Incoming, ReceiveOrder, Received, Remains, Streams};
use rzfs_stream::{Package, PackageExtent, PackagedSnapshot};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Read};
use std::sync::Arc;
use tree::Adjustment;
use wording::{Brings, broken_off, cannot, refusal_of_name, refused_stream, words};

/// A snapshot that has arrived, but is not in its target yet.
#[derive(Debug)]
pub(in crate::mount) struct Arrival<'p> {
    pool: &'p WritablePool,
    arrived: Arrived<'p>,
    brings: Brings,
    /// Whether the dataset did not exist before.
    is_new: bool,
    prepared: Prepared,
    /// The package's metadata of the snapshot.
    told: Option<PackagedSnapshot>,
}

/// The outcome of an arrived snapshot.
#[derive(Debug)]
pub(in crate::mount) struct Ended {
    /// Length of the stream in bytes.
    pub(in crate::mount) bytes: u64,
    /// Secondary failures.
    pub(in crate::mount) complaints: Vec<String>,
    /// Parts of the stream that are not supported here, which is no failure.
    pub(in crate::mount) warnings: Vec<String>,
    /// File systems to be mounted.
    pub(in crate::mount) new: BTreeSet<String>,
}

/// The incoming streams of a receive.
pub(in crate::mount) struct Arrivals<'a, 'f> {
    pool: &'a WritablePool,
    request: &'a ReceiveRequest,
    streams: Streams<&'f mut dyn Read>,
    places: Places,
    package: Option<Arc<Package>>,
    preparations: Preparations<'a>,
    /// File systems to be mounted when the whole package has arrived.
    new: BTreeSet<String>,
    /// Parents made for an incomplete arrival, which are kept.
    left: Vec<String>,
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

impl<'a, 'f> Arrivals<'a, 'f> {
    /// Starts reading the streams.
    pub(in crate::mount) fn open(
        pool: &'a WritablePool,
        request: &'a ReceiveRequest,
        from: &'f mut dyn Read,
    ) -> Result<Self, Refusal> {
        let streams = Streams::open(from).map_err(|error| cannot(words(&error)))?;
        let package = streams.package().cloned();
        let several = package
            .as_ref()
            .is_none_or(|package| package.extent == PackageExtent::Tree || package.from.is_some());
        if streams.is_package() && several && matches!(request.target, ReceiveTarget::Snapshot(_)) {
            return Err(cannot("cannot specify snapshot name for multi-snapshot stream"));
        }
        let places = Places::new(request, streams.top(), package.as_deref());
        let preparations = Preparations::new(pool, request);
        let (new, left) = (BTreeSet::new(), Vec::new());
        Ok(Self { pool, request, streams, places, package, preparations, new, left })
    }

    /// Adjusts the local tree to an incrementally sent one; `hear` is called with each change.
    pub(in crate::mount) fn adjust(
        &self,
        open: &Open,
        hear: &dyn Fn(TreeReport) -> io::Result<()>,
    ) -> Result<(), Refusal> {
        let tree = self.package.as_ref().filter(|one| one.extent == PackageExtent::Tree);
        let Some((package, from)) = tree.and_then(|one| Some((one, one.from.as_deref()?))) else {
            return Ok(());
        };
        if self.request.dry_run {
            return Ok(());
        }
        let (pool, request, places) = (self.pool, self.request, &self.places);
        Adjustment { pool, request, package, places, from }.carry_out(open, hear)
    }

    /// Remembers file systems to be mounted when everything has arrived.
    pub(in crate::mount) fn note_new(&mut self, new: BTreeSet<String>) {
        self.new.extend(new);
    }

    /// Mounts the file systems of a package; returns complaints about failures.
    pub(in crate::mount) fn mount_new(&self, open: &Open) -> Result<Vec<String>, Refusal> {
        if self.new.is_empty() {
            return Ok(Vec::new());
        }
        let mut table = open.table()?;
        open.forget_finished(&mut table);
        Ok(mount_more(open, &mut table, &self.new, Choice::Automatic))
    }

    /// Receives the next snapshot new to its target; `hear` is called with its description, and
    /// `current` returns the mounted pool. `None` at the end, or if the client is gone.
    pub(in crate::mount) fn next_arrival(
        &mut self,
        hear: impl Fn(ReceiveReport) -> io::Result<()>,
        current: impl Fn() -> Option<Arc<Open>>,
    ) -> Result<Option<Arrival<'a>>, Refusal> {
        loop {
            let next = self.streams.next_stream().map_err(|error| cannot(words(&error)))?;
            let Some(incoming) = next else { return Ok(None) };
            let (head, last) = incoming.sent().map_err(|error| cannot(words(&error)))?;
            // The name gets displayed in any case.
            check_received_name(&head, &last).map_err(|_| refusal_of_name(&head))?;
            let tree = self.pool.live().dataset_tree().map_err(cannot)?;
            let order = order(&tree, self.request, &self.places, &incoming)?;
            let Order { mut order, is_new, extent } = order;
            let (mut origin, brings) = (None, Brings::of(&incoming));
            let is_made = is_new && !incoming.is_rest();
            if is_made && order.origin.is_none() {
                let found = incoming.origin(self.pool.live(), &order.target);
                origin = found.map_err(|error| refused_stream(brings, &order.target, &error))?;
                order.origin.clone_from(&origin);
            }
            let snapshot = order.snapshot.as_ref().unwrap_or(&last);
            check_received_name(&order.target, snapshot).map_err(cannot)?;
            let heard = hear(ReceiveReport {
                sent: format!("{head}@{last}"),
                snapshot: format!("{}@{snapshot}", order.target),
                extent,
                origin,
            });
            if heard.is_err() {
                return Ok(None);
            }
            if self.request.dry_run || extent == StreamExtent::Known {
                continue;
            }
            let kind = match incoming.objset_type() {
                ObjsetType::Zvol => DatasetKind::Volume,
                _ => DatasetKind::FileSystem,
            };
            let datasets = self.package.iter().flat_map(|package| &package.datasets);
            let told = datasets.into_iter().find(|told| told.name == head);
            let guid = incoming.begin().to_guid;
            let snapshots = told.into_iter().flat_map(|told| &told.snapshots);
            let told_of_snapshot = snapshots.into_iter().find(|one| one.guid == guid).cloned();
            let coming = Coming { sent: &head, kind, told, is_made };
            let mut prepared = {
                let Some(open) = current() else { return Ok(None) };
                let _kept = open.mounter().keep();
                self.preparations.prepare(&open, &self.places, &coming, &mut order)?
            };
            drop(tree);
            let arrived = match incoming.arrive(self.pool.live(), &order) {
                Ok(arrived) => arrived,
                Err(error) => {
                    let refused = broken_off(self.pool, (brings, &order), &error);
                    match is_there(self.pool, &order.target) {
                        false => destroy_again(self.pool, &prepared.made),
                        true => self.left = std::mem::take(&mut prepared.made),
                    }
                    if let Some(open) = current() {
                        prepared.take_back(&open, self.request);
                    }
                    return Err(refused);
                }
            };
            prepared.refused.extend(engine_refused(arrived.refused_properties()));
            let (pool, told) = (self.pool, told_of_snapshot);
            return Ok(Some(Arrival { pool, arrived, brings, is_new, prepared, told }));
        }
    }

    /// Mounts the remaining new datasets after a refusal.
    pub(in crate::mount) fn mount_left(&mut self, open: &Open) {
        let left = std::mem::take(&mut self.left).into_iter().collect();
        let Ok(mut table) = open.table() else { return };
        if !self.request.leave_unmounted {
            for complaint in mount_more(open, &mut table, &left, Choice::Automatic) {
                tracing::warn!(complaint, "what was made for a receive is not mounted");
            }
        }
    }

    /// Whether several streams may follow.
    pub(in crate::mount) const fn is_package(&self) -> bool {
        self.streams.is_package()
    }
}

impl Arrival<'_> {
    /// Moves the snapshot into its target, whose mount stays.
    pub(in crate::mount) fn end(
        self,
        open: &Open,
        request: &ReceiveRequest,
    ) -> Result<Ended, Refusal> {
        let Self { pool, arrived, brings, is_new, prepared, told } = self;
        // The target cannot be renamed from now on.
        let mut table = open.table().inspect_err(|_| prepared.take_back(open, request))?;
        open.forget_finished(&mut table);
        let Ok(target) = arrived.target() else {
            drop(table);
            prepared.take_back(open, request);
            return Err(cannot("destination was destroyed meanwhile"));
        };
        let mut change = Arriving { arrived: Some(arrived), brings, target: &target };
        let exchanged = exchange(open, &mut table, &target, &mut change);
        let (received, complaints) = match exchanged {
            Ok(exchanged) => exchanged,
            Err(refusal) => {
                drop(table);
                prepared.take_back(open, request);
                return Err(refusal);
            }
        };
        let Prepared { made, delayed, mut refused, .. } = prepared;
        if !delayed.is_empty() {
            refused.extend(give_delayed(pool, &target, delayed));
        }
        let mut warnings = warnings(&target, refused);
        if let Some(told) = told {
            // It may have been renamed since the stream started.
            let last = received.snapshot.split('@').next_back().unwrap_or_default();
            warnings.extend(give_snapshot(pool, &format!("{target}@{last}"), &told, request));
        }
        drop(table);
        let new = match is_new && !request.leave_unmounted {
            true => made.into_iter().chain([target]).collect(),
            false => BTreeSet::new(),
        };
        Ok(Ended { bytes: received.bytes, complaints, warnings, new })
    }
}

/// A snapshot that is moving into its target.
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
        arrived.end().map_err(|error| refused_stream(self.brings, self.target, &error.into()))
    }
}

/// The destination of a stream.
struct Order {
    order: ReceiveOrder,
    /// Whether the target must be made.
    is_new: bool,
    extent: StreamExtent,
}

fn order<R: Read>(
    tree: &DatasetTree,
    request: &ReceiveRequest,
    places: &Places,
    incoming: &Incoming<'_, R>,
) -> Result<Order, Refusal> {
    let (sent, _) = incoming.sent().map_err(|error| cannot(words(&error)))?;
    let found = |name: &str| match tree.open(name) {
        Ok(dataset) => Ok(Some(dataset)),
        Err(DatasetError::NotFound { .. }) => Ok(None),
        Err(error) => Err(cannot(error)),
    };
    let is_package = places.top().is_some();
    let snapshot = match &request.target {
        ReceiveTarget::Snapshot(name) => name.split_once('@').map(|(_, last)| last.to_owned()),
        _ => None,
    };
    let mut order = ReceiveOrder {
        target: places.of(&sent)?,
        snapshot,
        origin: request.origin.clone().filter(|_| places.is_top(&sent)),
        properties: Vec::new(),
        received: None,
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
        // A stream that would overwrite the whole target is not skipped.
        let may_be_known = is_package || extent == StreamExtent::Incremental;
        let is_known =
            may_be_known && has_snapshot(&target, incoming.begin().to_guid).map_err(cannot)?;
        let extent = if is_known { StreamExtent::Known } else { extent };
        if is_package && extent == StreamExtent::Incremental && !incoming.is_clone() {
            // The option applied to the first stream only.
            order.origin = None;
        }
        // The target of a resumed stream was new, and is not mounted yet.
        let is_new = incoming.is_rest() && target.is_inconsistent();
        return Ok(Order { order, is_new, extent });
    }
    if let Some(parent) = places.around(&sent) {
        let parent = found(parent)?
            .ok_or_else(|| cannot(format_args!("specified fs ({parent}) does not exist")));
        // If only increments of its descendants come the target itself may be missing.
        let parent = match (&request.target, parent) {
            (ReceiveTarget::Dataset(_), Err(_)) => None,
            (_, parent) => Some(parent?),
        };
        // It may have been renamed. A clone is made anew.
        let is_clone = order.origin.is_some() || incoming.is_clone();
        if let Some(source) = incoming.source().filter(|_| !is_clone)
            && let Some(parent) = parent
            && let Some(renamed) =
                with_snapshot(&parent, source, |name| !places.is_of_another(name, &sent))
                    .map_err(cannot)?
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

/// The name of an eligible dataset at or below `parent` with a snapshot of this identity.
fn with_snapshot(
    parent: &Dataset,
    guid: Guid,
    may_be: impl Fn(&str) -> bool,
) -> Result<Option<String>, DatasetError> {
    for dataset in parent.descendants()? {
        if may_be(dataset.name()) && has_snapshot(&dataset, guid)? {
            return Ok(Some(dataset.name().to_owned()));
        }
    }
    Ok(None)
}
