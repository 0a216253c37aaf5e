//! How an operation works: it locks files, computes their changes, begins a transaction, and
//! applies them.
//!
//! Locks come first, then the transaction: while it is open only tables are locked, for a single
//! change. So transactions never wait for each other.
//!
//! Readers of a file must not wait for an operation that holds its lock and waits for a suspended
//! pool. So in a file system whose callers wait, an operation releases its locks and returns
//! [`ZplError::Suspended`] before it has changed anything; the caller waits and retries. Changes of
//! names and attributes continue in memory first, as the kernel locks a directory while a name in
//! it changes, and it could not be listed meanwhile.
//!
//! Lock order:
//!
//! ```text
//! renaming ─> files by number ─> xattr directories and files of these ─> schema ─> transaction
//! transaction ─> unlinked set
//! ```

use super::admission::{Admission, Freeing};
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::options::{Changes, LiveOptions};
use super::values::bonus_capacity;
use super::values::{Split, Values};
use crate::error::ZplError;
use crate::node::{Node, decode_znode};
use crate::sync::Arc;
use rzfs_dmu::live::{LiveObject, Transaction};
use rzfs_dmu::txg::OpenTx;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::Txg;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::znode::FileFlags;

/// Groups that a change without room waits for while removed files are freed: freed space is
/// available two groups later.
const MOST_WAITS: u32 = 8;

/// The new attributes of a file.
#[derive(Debug)]
pub(super) struct Prepared {
    values: Values,
    split: Split,
    schema: Arc<Schema>,
}

impl LiveFileSystem {
    /// Begins a transaction that changes files: these objects and new ones, once there is room.
    pub(super) fn begin(
        &self,
        objects: &[&LiveObject],
        demand: SpaceDemand,
    ) -> Result<OpenTx, ZplError> {
        self.begin_unless_claimed(objects, demand, |_| 0)
    }

    /// The same for a change whose blocks may already be dirty: `claimed` returns the bytes of the
    /// demand already claimed by another transaction of a txg.
    pub(super) fn begin_unless_claimed(
        &self,
        objects: &[&LiveObject],
        demand: SpaceDemand,
        claimed: impl Fn(Txg) -> u64,
    ) -> Result<OpenTx, ZplError> {
        if self.is_read_only() {
            return Err(ZplError::ReadOnly { objset: self.objset().id() });
        }
        self.admitted(objects, demand, claimed)
    }

    /// Whether files cannot be changed.
    pub(super) fn is_read_only(&self) -> bool {
        self.options().changes() == Changes::Refused
    }

    /// Begins an administrative transaction, even in a read-only file system.
    pub(super) fn begin_administration(
        &self,
        objects: &[&LiveObject],
        demand: SpaceDemand,
    ) -> Result<OpenTx, ZplError> {
        self.admitted(objects, demand, |_| 0)
    }

    fn admitted(
        &self,
        objects: &[&LiveObject],
        demand: SpaceDemand,
        claimed: impl Fn(Txg) -> u64,
    ) -> Result<OpenTx, ZplError> {
        let demand = if self.source.replay.is_on() { demand.done_before() } else { demand };
        let mut waits = 0;
        loop {
            match self.admission(&self.options()).begin(objects, demand, &claimed) {
                // Removed files are being freed, unless snapshots share their space.
                Err(ZplError::NoSpace { .. } | ZplError::Quota { .. })
                    if !matches!(demand, SpaceDemand::Frees(_))
                        && self.reclaimer.is_busy()
                        && waits < MOST_WAITS =>
                {
                    waits += 1;
                    self.wait_for(self.engine.open_txg())?;
                }
                result => {
                    let tx = result?;
                    self.source.replay.note(self.objset(), &tx);
                    return Ok(tx);
                }
            }
        }
    }

    /// Waits until a group is on disk, for a change that begins or continues then.
    pub(super) fn wait_for(&self, txg: Txg) -> Result<(), ZplError> {
        Ok(self.engine.wait_synced_with(txg, self.patience())?)
    }

    /// Begins a transaction that writes up to `bytes` and frees this many blocks on disk, unless
    /// its group has reached its limit of frees.
    pub(super) fn begin_freeing(
        &self,
        objects: &[&LiveObject],
        bytes: u64,
        blocks: u64,
    ) -> Result<Freeing, ZplError> {
        if self.is_read_only() {
            return Err(ZplError::ReadOnly { objset: self.objset().id() });
        }
        let begun = self.admission(&self.options()).begin_freeing(objects, bytes, blocks)?;
        if let Freeing::Begun(tx) = &begun {
            self.source.replay.note(self.objset(), tx);
        }
        Ok(begun)
    }

    /// The admission of transactions.
    pub(super) fn admission<'a>(&'a self, options: &'a LiveOptions) -> Admission<'a> {
        Admission {
            engine: &self.engine,
            space: &*options.space,
            objset: self.objset().id(),
            patience: self.patience(),
        }
    }

    /// Computes the new attributes of a file.
    pub(super) fn prepare(
        &self,
        state: &NodeState,
        change: impl FnOnce(&mut Values, &Schema),
    ) -> Result<Prepared, ZplError> {
        let place = state.place();
        let object = state.object();
        let schema = self.source.schema.registered(self.objset(), &self.engine)?;
        let mut values = state.values(&schema)?;
        if let Some(atime) = state.pending_atime {
            values.set_time(&schema, Attribute::Atime, atime);
        }
        if let Some(sequence) = state.znode().sequence {
            values.set_u64(&schema, Attribute::Seq, sequence.wrapping_add(1));
        }
        change(&mut values, &schema);
        let (split, schema) = self.plan(place, &values, object.slots()?)?;
        debug_assert!(split.in_capacity(bonus_capacity(object.slots()?)));
        Ok(Prepared { values, split, schema })
    }
}

impl Prepared {
    /// Changes an attribute of the same length that has a value.
    pub(super) fn set_u64(&mut self, attribute: Attribute, value: u64) {
        self.values.set_u64(&self.schema, attribute, value);
    }

    /// Applies the changes.
    pub(super) fn apply(self, tx: &dyn Transaction, state: &mut NodeState) -> Result<(), ZplError> {
        let place = state.place();
        let corrupt = |source| ZplError::Corrupt { place, source };
        let object = state.object().clone();
        let encoded = self.values.encode(&self.schema, self.split).map_err(corrupt)?;
        object.set_bonus(tx, ObjectType::SA, &encoded.bonus)?;
        match encoded.spill {
            Some(spill) => object.set_spill(tx, &spill)?,
            None if object.has_spill()? => object.remove_spill(tx)?,
            None => {}
        }
        let znode = decode_znode(&object, &self.schema)?;
        state.node = Node::new(object, znode);
        state.pending_atime = None;
        Ok(())
    }
}

/// The kind of change to a file, for its times and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    /// Its contents, or its names if it is a directory; also changes the attributes.
    Contents,
    /// Its attributes.
    Attributes,
}

impl LiveFileSystem {
    /// Updates times and flags for a change.
    pub(super) fn touch(&self, values: &mut Values, schema: &Schema, touch: Touch) {
        let now = self.options().clock.now();
        if touch == Touch::Contents {
            values.set_time(schema, Attribute::Mtime, now);
            values.change_flags(schema, |flags| flags.with(FileFlags::AV_MODIFIED));
        }
        values.set_time(schema, Attribute::Ctime, now);
        values.change_flags(schema, |flags| flags.with(FileFlags::ARCHIVE));
    }
}
