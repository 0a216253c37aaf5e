//! Registry and layouts of a live file system (spec 05, sections 2.1 and 2.2).
//!
//! Layouts are registered in a separate transaction, before the one that writes attributes with
//! them: so no transaction on a file has to hold the tables of the whole file system. An unused
//! layout is harmless.

use super::tables::Table;
use crate::error::{Place, ZplError};
use crate::master::MasterNode;
use crate::schema;
use crate::sync::{Arc, Mutex, RwLock};
use rzfs_dmu::live::{LiveObjset, Transaction};
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, AttributeNumber, RegisteredAttribute, Schema};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{IntegerSize, ZapValue};

/// Objects of the tables in a new file system, numbered as by OpenZFS.
const REGISTRY: ObjectId = ObjectId(35);
const LAYOUTS: ObjectId = ObjectId(36);

/// The registered attributes: all but the modification counter, which is kept where it exists but
/// never added.
fn written() -> impl Iterator<Item = Attribute> {
    Attribute::ALL.into_iter().filter(|attribute| *attribute != Attribute::Seq)
}

/// The tables of system attributes on disk.
#[derive(Debug)]
pub(super) struct SchemaTables {
    master: Table,
    registry: Option<Table>,
    layouts: Option<Table>,
    salt: u64,
}

impl SchemaTables {
    /// The tables of a file system without any.
    pub(super) const fn new(master: Table, salt: u64) -> Self {
        Self { master, registry: None, layouts: None, salt }
    }

    fn open(objset: &LiveObjset, master: ObjectId, salt: u64) -> Result<Self, ZplError> {
        let master = Table::open(objset, master, ObjectType::SA_MASTER_NODE)?;
        let linked = |name, kind| match master.number(name)?.map(ObjectId) {
            Some(id) if id != ObjectId(0) => Table::open(objset, id, kind).map(Some),
            _ => Ok(None),
        };
        let registry = linked("REGISTRY", ObjectType::SA_ATTR_REGISTRATION)?;
        let layouts = linked("LAYOUTS", ObjectType::SA_ATTR_LAYOUTS)?;
        Ok(Self { master, registry, layouts, salt })
    }

    /// Registers attributes missing in the schema.
    pub(super) fn register(
        &mut self,
        objset: &LiveObjset,
        tx: &dyn Transaction,
        schema: &mut Schema,
    ) -> Result<(), ZplError> {
        let mut entries: Vec<RegisteredAttribute> = Vec::new();
        if self.registry.is_none() {
            let known = schema.registry.entries().into_iter().cloned();
            entries.extend(known);
        }
        let place = Place { objset: objset.id(), object: self.master.object().id() };
        for attribute in written() {
            if schema.registry.number(attribute).is_none() {
                let entry = schema.registry.register(attribute);
                entries.push(entry.map_err(|source| ZplError::Corrupt { place, source })?);
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        let kind = ObjectType::SA_ATTR_REGISTRATION;
        let registry = match &mut self.registry {
            Some(table) => table,
            empty => {
                let table = Table::create(objset, tx, kind, Some(REGISTRY), self.salt)?;
                self.master.set(tx, "REGISTRY", table.object().id().0)?;
                empty.insert(table)
            }
        };
        for entry in entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            registry.set(tx, &name, entry.encode())?;
        }
        Ok(())
    }

    /// Adds a layout, unless the schema has it.
    pub(super) fn add_layout(
        &mut self,
        objset: &LiveObjset,
        tx: &dyn Transaction,
        schema: &mut Schema,
        attributes: &[AttributeNumber],
    ) -> Result<(), ZplError> {
        if schema.layouts.find(attributes).is_some() {
            return Ok(());
        }
        let place = Place { objset: objset.id(), object: self.master.object().id() };
        let Schema { registry, layouts } = schema;
        let layout = layouts.add(attributes, registry);
        let number = layout.map_err(|source| ZplError::Corrupt { place, source })?.number();
        let kind = ObjectType::SA_ATTR_LAYOUTS;
        let table = match &mut self.layouts {
            Some(table) => table,
            empty => {
                let table = Table::create(objset, tx, kind, Some(LAYOUTS), self.salt)?;
                self.master.set(tx, "LAYOUTS", table.object().id().0)?;
                empty.insert(table)
            }
        };
        let numbers: Vec<u64> = attributes.iter().map(|number| u64::from(number.0)).collect();
        table.set(tx, &number.to_string(), ZapValue::new(IntegerSize::Two, &numbers))
    }

    fn objects(&self) -> Vec<&rzfs_dmu::live::LiveObject> {
        let tables = [Some(&self.master), self.registry.as_ref(), self.layouts.as_ref()];
        tables.into_iter().flatten().map(Table::object).collect()
    }
}

/// The schema of a live file system.
#[derive(Debug)]
pub(super) struct LiveSchema {
    current: RwLock<Arc<Schema>>,
    /// Held while the schema grows; `None` in file systems without a schema.
    tables: Mutex<Option<SchemaTables>>,
}

impl LiveSchema {
    pub(super) fn open(
        objset: &LiveObjset,
        master: &MasterNode,
        salt: u64,
    ) -> Result<Self, ZplError> {
        let current = schema::read(objset, master)?;
        let tables = master.sa_master.map(|id| SchemaTables::open(objset, id, salt)).transpose()?;
        Ok(Self { current: RwLock::new(Arc::new(current)), tables: Mutex::new(tables) })
    }

    /// The current schema.
    pub(super) fn read(&self) -> Arc<Schema> {
        Arc::clone(&self.current.read())
    }

    /// The schema, with all written attributes registered.
    pub(super) fn registered(
        &self,
        objset: &LiveObjset,
        engine: &Arc<TxgEngine>,
    ) -> Result<Arc<Schema>, ZplError> {
        let is_complete =
            |schema: &Schema| written().all(|each| schema.registry.number(each).is_some());
        let schema = self.read();
        if is_complete(&schema) {
            return Ok(schema);
        }
        self.grow(objset, engine, |tables, tx, schema| tables.register(objset, tx, schema))
    }

    /// The schema, with layouts for these attribute lists.
    pub(super) fn with_layouts(
        &self,
        objset: &LiveObjset,
        engine: &Arc<TxgEngine>,
        lists: &[&[AttributeNumber]],
    ) -> Result<Arc<Schema>, ZplError> {
        let schema = self.read();
        if lists.iter().all(|list| schema.layouts.find(list).is_some()) {
            return Ok(schema);
        }
        self.grow(objset, engine, |tables, tx, schema| {
            lists.iter().try_for_each(|list| tables.add_layout(objset, tx, schema, list))
        })
    }

    /// Changes the schema in a separate transaction. If that fails, the state of the tables is
    /// unknown, and the schema stays as it is until the file system is reopened: a layout number
    /// must never be used twice.
    fn grow(
        &self,
        objset: &LiveObjset,
        engine: &Arc<TxgEngine>,
        change: impl FnOnce(&mut SchemaTables, &dyn Transaction, &mut Schema) -> Result<(), ZplError>,
    ) -> Result<Arc<Schema>, ZplError> {
        let mut guard = self.tables.lock();
        let place = Place { objset: objset.id(), object: crate::master::MASTER_NODE };
        let Some(tables) = guard.as_mut() else {
            let source = FormatError::invalid("master node", "no table of system attributes");
            return Err(ZplError::Corrupt { place, source });
        };
        let mut schema = (*self.read()).clone();
        let tx = engine.begin_unthrottled(&tables.objects())?;
        if let Err(error) = change(tables, &tx, &mut schema) {
            *guard = None;
            return Err(error);
        }
        let schema = Arc::new(schema);
        *self.current.write() = Arc::clone(&schema);
        Ok(schema)
    }
}
