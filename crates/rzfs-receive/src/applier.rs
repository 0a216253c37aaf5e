//! Applying records to an object set (spec 08, sections 9.4 and 9.5).

mod blocks;
mod objects;
mod transactions;

use crate::error::{ReceiveError, RecordProblem};
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{LiveObject, LiveObjset};
use rzfs_dmu::txg::TxgEngine;
use rzfs_dsl::live::{HeadBudget, LivePool, Receiving};
use rzfs_format::ObjectId;
use rzfs_format::stream::Record;
use rzfs_stream::Place;
use std::sync::Arc;

/// Properties of a stream that determine the meaning of its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTraits {
    /// It is not an increment.
    pub(crate) is_full: bool,
    /// It marks objects with spill blocks, including unchanged ones.
    pub(crate) marks_spills: bool,
}

/// Applies records in sequence.
pub(crate) struct Applier<'a> {
    engine: &'a Arc<TxgEngine>,
    target: String,
    objset: LiveObjset,
    budget: HeadBudget,
    traits: StreamTraits,
    /// The object of the last record: the next one is likely to concern it, too.
    current: Option<LiveObject>,
    /// The end of the objects that may exist but are not on disk.
    touched: ObjectId,
    /// Buffer for decompressed blocks.
    scratch: Vec<u8>,
    /// The current record.
    place: Place,
}

impl<'a> Applier<'a> {
    pub(crate) fn new(
        pool: &'a LivePool,
        (target, receiving): (&str, &Receiving),
        traits: StreamTraits,
    ) -> Self {
        let dataset = receiving.dataset();
        Self {
            engine: pool.engine(),
            target: target.to_owned(),
            objset: dataset.objset(),
            budget: pool.budget(dataset),
            traits,
            current: None,
            touched: ObjectId(0),
            scratch: Vec::new(),
            place: Place::default(),
        }
    }

    /// Applies a record whose payload is verified.
    pub(crate) fn apply(
        &mut self,
        place: Place,
        record: &Record,
        payload: &[u8],
    ) -> Result<(), ReceiveError> {
        self.place = place;
        match record {
            Record::Object(object) => self.put_object(object, payload),
            Record::FreeObjects(free) => self.free_objects(free),
            Record::Write(write) => self.write(write, payload),
            Record::WriteEmbedded(write) => self.write_embedded(write, payload),
            Record::Free(range) | Record::Redact(range) => self.free_range(range),
            Record::Spill(spill) => self.put_spill(spill, payload),
            // The reader refuses these in supported streams.
            Record::Begin(_) | Record::End(_) | Record::WriteByRef(_) | Record::ObjectRange(_) => {
                Ok(())
            }
        }
    }

    fn wrong(&self, problem: impl Into<RecordProblem>) -> ReceiveError {
        ReceiveError::Record { place: self.place, problem: problem.into() }
    }

    fn failed(&self, source: DmuError) -> ReceiveError {
        ReceiveError::Dmu { place: self.place, source: Box::new(source) }
    }

    /// An object, if it exists.
    fn find(&self, id: ObjectId) -> Result<Option<LiveObject>, ReceiveError> {
        match self.objset.object(id) {
            Ok(object) => Ok(Some(object)),
            Err(DmuError::NotAllocated { .. }) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The object of a record.
    fn existing(&mut self, id: ObjectId) -> Result<LiveObject, ReceiveError> {
        if let Some(object) = self.current.as_ref().filter(|object| object.id() == id) {
            return Ok(object.clone());
        }
        let object = self.find(id)?;
        let object = object.ok_or_else(|| self.wrong(RecordProblem::NoObject { object: id }))?;
        self.current = Some(object.clone());
        Ok(object)
    }
}
