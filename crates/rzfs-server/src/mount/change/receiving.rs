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

/// A snapshot that has arrived, and that its target does not have yet.
#[derive(Debug)]
pub(in crate::mount) struct Arrival<'p> {
    pool: &'p WritablePool,
    arrived: Arrived<'p>,
    brings: Brings,
    /// Whether there was no such dataset before.
    is_new: bool,
    prepared: Prepared,
    /// What is said of the snapshot besides.
    told: Option<PackagedSnapshot>,
}

/// What has become of a snapshot that has arrived.
#[derive(Debug)]
pub(in crate::mount) struct Ended {
    /// Bytes of the stream.
    pub(in crate::mount) bytes: u64,
    /// What could not be done besides.
    pub(in crate::mount) complaints: Vec<String>,
    /// What of the stream is not had here, and is no failure.
    pub(in crate::mount) warnings: Vec<String>,
    /// What is to be mounted.
    pub(in crate::mount) new: BTreeSet<String>,
}

/// What comes in, for the pool that receives it.
pub(in crate::mount) struct Arrivals<'a, 'f> {
    pool: &'a WritablePool,
    request: &'a ReceiveRequest,
    streams: Streams<&'f mut dyn Read>,
    places: Places,
    package: Option<Arc<Package>>,
    preparations: Preparations<'a>,
    /// What of a package is to be mounted when all of it is there.
    new: BTreeSet<String>,
    /// What was made above something that has not arrived as a whole, and is kept.
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
    /// Begins to read what is to be received.
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

    /// Brings what is here into line with a tree of which only news come; `hear` is told of each change.
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

    /// Remembers what is to be mounted when everything is there.
    pub(in crate::mount) fn note_new(&mut self, new: BTreeSet<String>) {
        self.new.extend(new);
    }

    /// Mounts what a package has brought; tells what could not be mounted.
    pub(in crate::mount) fn mount_new(&self, open: &Open) -> Result<Vec<String>, Refusal> {
        if self.new.is_empty() {
            return Ok(Vec::new());
        }
        let mut table = open.table()?;
        open.forget_finished(&mut table);
        Ok(mount_more(open, &mut table, &self.new, Choice::Automatic))
    }

    /// Receives the next snapshot that its target does not have yet; `hear` is told what comes, and
    /// `current` tells what is mounted. `None`: that was all, or nobody listens.
    pub(in crate::mount) fn next_arrival(
        &mut self,
        hear: impl Fn(ReceiveReport) -> io::Result<()>,
        current: impl Fn() -> Option<Arc<Open>>,
    ) -> Result<Option<Arrival<'a>>, Refusal> {
        loop {
            let next = self.streams.next_stream().map_err(|error| cannot(words(&error)))?;
            let Some(incoming) = next else { return Ok(None) };
            let (head, last) = incoming.sent().map_err(|error| cannot(words(&error)))?;
            // It is shown, whatever becomes of it here.
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

    /// Mounts what stays of what was made, after something was refused.
    pub(in crate::mount) fn mount_left(&mut self, open: &Open) {
        let left = std::mem::take(&mut self.left).into_iter().collect();
        let Ok(mut table) = open.table() else { return };
        if !self.request.leave_unmounted {
            for complaint in mount_more(open, &mut table, &left, Choice::Automatic) {
                tracing::warn!(complaint, "what was made for a receive is not mounted");
            }
        }
    }

    /// Whether there may be several streams.
    pub(in crate::mount) const fn is_package(&self) -> bool {
        self.streams.is_package()
    }
}

impl Arrival<'_> {
    /// Lets the target have it, which stays mounted as it was.
    pub(in crate::mount) fn end(
        self,
        open: &Open,
        request: &ReceiveRequest,
    ) -> Result<Ended, Refusal> {
        let Self { pool, arrived, brings, is_new, prepared, told } = self;
        // Nobody renames it from now on.
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
            // It was called otherwise when it began to come.
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
        arrived.end().map_err(|error| refused_stream(self.brings, self.target, &error.into()))
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
        // What would overwrite it as a whole is not passed over.
        let may_be_known = is_package || extent == StreamExtent::Incremental;
        let is_known =
            may_be_known && has_snapshot(&target, incoming.begin().to_guid).map_err(cannot)?;
        let extent = if is_known { StreamExtent::Known } else { extent };
        if is_package && extent == StreamExtent::Incremental && !incoming.is_clone() {
            // That was for the first one of them.
            order.origin = None;
        }
        // What the rest is missing of was new, and is not mounted yet.
        let is_new = incoming.is_rest() && target.is_inconsistent();
        return Ok(Order { order, is_new, extent });
    }
    if let Some(parent) = places.around(&sent) {
        let parent = found(parent)?
            .ok_or_else(|| cannot(format_args!("specified fs ({parent}) does not exist")));
        // Where only news of something below it come, it may be that all of it is missing.
        let parent = match (&request.target, parent) {
            (ReceiveTarget::Dataset(_), Err(_)) => None,
            (_, parent) => Some(parent?),
        };
        // It may have another name by now. What becomes a clone is made anew.
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

/// The name of what has a snapshot with this identity, of a file system and all below it that may be meant.
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
