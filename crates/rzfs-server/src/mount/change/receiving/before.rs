//! Prepares a receive: sets the properties of its target, and of the datasets above it.
//!
//! The user's properties apply to everything received, even if the named target is not:
//!
//! ```text
//! tank/x            the named target      its own
//! tank/x/there      not received          inherited, before its children come
//! tank/x/there/new  received              inherited
//! tank/away         was renamed here      its own, when received
//! ```
//! A receive must respect quotas, and mounts with the restrictions of properties.

use super::brought::{Asked, Brought, asked_for, engine_refused};
use super::places::Places;
use super::wording::cannot;
use crate::mount::change::datasets::{create_above_with, destroy_again};
use crate::mount::change::properties::{self, Mounts};
use crate::mount::change::snapshots::stored;
use crate::mount::open::Open;
use crate::protocol::{Pair, ReceiveRequest, ReceiveTarget, Refusal};
use rzfs::WritablePool;
use rzfs::zap::ZapValue;
use rzfs_dsl::dataset::{DatasetError, DatasetKind};
use rzfs_dsl::live::{EarlierValues, PropertyRecord, ReceivedProperties};
use rzfs_receive::ReceiveOrder;
use rzfs_stream::PackagedDataset;
use std::collections::BTreeSet;

/// The preparations of a package so far.
#[derive(Debug)]
pub(super) struct Preparations<'a> {
    pool: &'a WritablePool,
    request: &'a ReceiveRequest,
    /// The targets whose properties are set.
    settled: BTreeSet<String>,
    /// The datasets that have the user's properties and pass them on.
    in_line: BTreeSet<String>,
}

/// An incoming stream.
pub(super) struct Coming<'a> {
    /// The file system or volume, as the sender names it.
    pub(super) sent: &'a str,
    pub(super) kind: DatasetKind,
    /// The package's metadata of it.
    pub(super) told: Option<&'a PackagedDataset>,
    /// Whether its target must be made.
    pub(super) is_made: bool,
}

/// The preparations for a stream.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// The datasets made above the target.
    pub(super) made: Vec<String>,
    /// The changed properties of existing datasets.
    changed: Vec<PropertyRecord>,
    /// Properties that the target gets with its contents.
    pub(super) delayed: Vec<(String, ZapValue)>,
    /// Properties that the target rejects, with reasons.
    pub(super) refused: Vec<(String, String)>,
}

impl Prepared {
    /// Reverts changes of properties, the last first, as an operation was refused.
    pub(super) fn take_back(&self, open: &Open, request: &ReceiveRequest) {
        for record in self.changed.iter().rev() {
            let taken_back = properties::take_back(open, record, mounts(request));
            taken_back.unwrap_or_else(|refusal| {
                tracing::warn!(message = refusal.message, "properties stay changed");
            });
        }
    }
}

impl<'a> Preparations<'a> {
    pub(super) const fn new(pool: &'a WritablePool, request: &'a ReceiveRequest) -> Self {
        Self { pool, request, settled: BTreeSet::new(), in_line: BTreeSet::new() }
    }

    /// Prepares the target of an order, and its parents; a new target gets its properties through
    /// the order.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was changed.
    pub(super) fn prepare(
        &mut self,
        open: &Open,
        places: &Places,
        coming: &Coming<'_>,
        order: &mut ReceiveOrder,
    ) -> Result<Prepared, Refusal> {
        let mut prepared = Prepared::default();
        match self.carry_out((open, places), coming, order, &mut prepared) {
            Ok(()) => Ok(prepared),
            Err(refusal) => {
                destroy_again(self.pool, &prepared.made);
                prepared.take_back(open, self.request);
                Err(refusal)
            }
        }
    }

    fn carry_out(
        &mut self,
        (open, places): (&Open, &Places),
        coming: &Coming<'_>,
        order: &mut ReceiveOrder,
        prepared: &mut Prepared,
    ) -> Result<(), Refusal> {
        let is_first = self.settled.insert(order.target.clone());
        if !is_first && !coming.is_made {
            return Ok(());
        }
        let (asked, above) = self.asked(places, coming.sent, &order.target)?;
        let tree = self.pool.live().dataset_tree().map_err(cannot)?;
        for (name, asked) in &above {
            match tree.open(name) {
                Ok(_) => self.bring_into_line(open, name, *asked, &mut prepared.changed)?,
                // It gets made, or nothing can be below it.
                Err(DatasetError::NotFound { .. }) => {}
                Err(error) => return Err(cannot(error)),
            }
        }
        let brought = Brought::new(coming.told, coming.kind, self.request, asked);
        let Brought { received, delayed, own, refused } = brought;
        prepared.delayed = delayed;
        prepared.refused = refused;
        if coming.is_made {
            let view = self.pool.view().map_err(cannot)?;
            order.properties = stored(&view, coming.kind, &own).map_err(cannot)?;
            let is_told = received.is_some() || !own.is_empty();
            // Its current properties are the user's choice.
            let earlier = EarlierValues::Absent;
            let received = ReceivedProperties { earlier, ..received.unwrap_or_default() };
            order.received = is_told.then_some(received);
            if matches!(self.request.target, ReceiveTarget::Path(_)) {
                let own = |name: &str| self.own_above(&above, name);
                create_above_with(self.pool, &order.target, own, &mut prepared.made)
                    .map_err(cannot)?;
                // Nor is it undone by the next package that mentions them.
                for (name, asked) in above.iter().filter(|(name, _)| prepared.made.contains(name)) {
                    self.bring_into_line(open, name, *asked, &mut prepared.changed)?;
                }
            }
        } else if received.is_some() || !own.is_empty() {
            let gets = (&received.unwrap_or_default(), own.as_slice());
            let (mounts, records) = (mounts(self.request), &mut prepared.changed);
            let refused = properties::receive(open, &order.target, gets, mounts, records)?;
            prepared.refused.extend(engine_refused(&refused));
        }
        let names = above.into_iter().map(|(name, _)| name);
        self.in_line.extend(names.chain([order.target.clone()]));
        Ok(())
    }

    /// How a target gets the user's properties, and its ancestors that must get them first,
    /// outermost first.
    fn asked(
        &self,
        places: &Places,
        sent: &str,
        target: &str,
    ) -> Result<(Asked, Vec<(String, Asked)>), Refusal> {
        if places.is_top(sent) {
            return Ok((Asked::Own, Vec::new()));
        }
        if self.request.properties.is_empty() {
            return Ok((Asked::Inherited, Vec::new()));
        }
        let top = places.top().map(|top| places.of(top)).transpose()?;
        let mut above = Vec::new();
        let mut name = target;
        while let Some((parent, _)) = name.rsplit_once('/') {
            let is_top = top.as_deref() == Some(parent);
            let is_in_line = self.in_line.contains(parent);
            if !is_in_line {
                let asked = if is_top { Asked::Own } else { Asked::Inherited };
                above.push((parent.to_owned(), asked));
            }
            if is_top || is_in_line {
                above.reverse();
                return Ok((Asked::Inherited, above));
            }
            name = parent;
        }
        Ok((Asked::Apart, Vec::new()))
    }

    /// Sets the user's properties on an ancestor of a target.
    fn bring_into_line(
        &self,
        open: &Open,
        name: &str,
        asked: Asked,
        records: &mut Vec<PropertyRecord>,
    ) -> Result<(), Refusal> {
        let (own, inherited) = asked_for(self.request, DatasetKind::FileSystem, asked);
        let received = ReceivedProperties { inherited, ..ReceivedProperties::default() };
        let gets = (&received, own.as_slice());
        properties::receive(open, name, gets, mounts(self.request), records).map(drop)
    }

    /// The own properties of a dataset made above a target.
    fn own_above(&self, above: &[(String, Asked)], name: &str) -> &[Pair] {
        let is_top = above.iter().any(|(one, asked)| one == name && *asked == Asked::Own);
        if is_top { &self.request.properties } else { &[] }
    }
}

const fn mounts(request: &ReceiveRequest) -> Mounts {
    if request.leave_unmounted { Mounts::Stay } else { Mounts::Move }
}
