//! Files to be created: everything but their numbers is known before the transaction begins (spec
//! 05, sections 5.1 and 5.2).

use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::replay::state::LoggedObject;
use super::seed::NodeSeed;
use super::tables::{FIRST_BLOCK_SIZE, INDIRECT_SHIFT};
use super::values::bonus_capacity;
use super::values::{Split, Values};
use crate::error::{Place, ZplError};
use crate::node::decode_znode;
use crate::object::FileObject;
use crate::sync::Arc;
use rzfs_dmu::live::{LiveObject, NewObject, Transaction};
use rzfs_format::Txg;
use rzfs_format::dirent::FileKind;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_zap::NewZap;

/// A file to be created.
#[derive(Debug)]
pub(super) struct Draft {
    kind: FileKind,
    slots: u8,
    values: Values,
    split: Split,
    schema: Arc<Schema>,
    logged: Option<LoggedObject>,
}

impl LiveFileSystem {
    /// Drafts a file; `complete` may add attributes.
    pub(super) fn draft(
        &self,
        seed: &NodeSeed<'_>,
        complete: impl FnOnce(&mut Values, &Schema),
    ) -> Result<Draft, ZplError> {
        let schema = self.source.schema.registered(self.objset(), &self.engine)?;
        let mut values = seed.values(&schema, Txg(0));
        complete(&mut values, &schema);
        let slots = seed.logged.map_or(self.options().dnode_size.slots(), |logged| logged.slots);
        let (split, schema) = self.plan(self.place(seed.parent), &values, slots)?;
        Ok(Draft { kind: seed.kind, slots, values, split, schema, logged: seed.logged })
    }

    /// The placement of attributes, and the schema with the required layouts.
    pub(super) fn plan(
        &self,
        place: Place,
        values: &Values,
        slots: u8,
    ) -> Result<(Split, Arc<Schema>), ZplError> {
        let schema = self.source.schema.read();
        let split = values.split(&schema.registry, bonus_capacity(slots));
        let split = split.ok_or(ZplError::TooBig { place })?;
        let (bonus, spill) = values.lists(split);
        let schema =
            self.source.schema.with_layouts(self.objset(), &self.engine, &[&bonus, &spill])?;
        Ok((split, schema))
    }
}

impl Draft {
    /// Allocates a number: a free one, or the one in the log.
    pub(super) fn allocate(
        &self,
        file_system: &LiveFileSystem,
        tx: &dyn Transaction,
    ) -> Result<LiveObject, ZplError> {
        let object_type = match self.kind {
            FileKind::Directory => ObjectType::DIRECTORY_CONTENTS,
            _ => ObjectType::PLAIN_FILE_CONTENTS,
        };
        let new = NewObject {
            object_type,
            data_block_size: FIRST_BLOCK_SIZE,
            indirect_shift: INDIRECT_SHIFT,
            bonus_type: ObjectType::SA,
            bonus: &[],
            slots: self.slots,
        };
        let Some(logged) = self.logged else { return Ok(file_system.objset().allocate(tx, new)?) };
        let place = file_system.place(logged.object);
        file_system.objset().claim(tx, logged.object, new)?.ok_or(ZplError::Exists { place })
    }

    /// Changes an attribute of the same length that has a value.
    pub(super) fn set_u64(&mut self, attribute: Attribute, value: u64) {
        self.values.set_u64(&self.schema, attribute, value);
    }

    /// Creates the file in an object allocated for it.
    pub(super) fn make(
        &mut self,
        file_system: &LiveFileSystem,
        tx: &dyn Transaction,
        object: LiveObject,
    ) -> Result<NodeState, ZplError> {
        let generation = self.logged.map_or(tx.txg().get(), |logged| logged.generation);
        self.set_u64(Attribute::Gen, generation);
        let place = FileObject::place(&object);
        let corrupt = |source| ZplError::Corrupt { place, source };
        let encoded = self.values.encode(&self.schema, self.split).map_err(corrupt)?;
        object.set_bonus(tx, ObjectType::SA, &encoded.bonus)?;
        if let Some(spill) = encoded.spill {
            object.set_spill(tx, &spill)?;
        }
        if self.kind == FileKind::Directory {
            let master = &file_system.master;
            let normalization = master.case.normalization(master.normalization);
            let new = NewZap::new(file_system.salt()).normalization(normalization);
            object.create_zap(tx, &new).map_err(|source| object.zap_failure(source))?;
        }
        let znode = decode_znode(&object, &self.schema)?;
        Ok(NodeState::new(object, znode, &file_system.source.open_names))
    }
}
