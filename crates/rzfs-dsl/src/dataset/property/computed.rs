//! Properties that are not stored in property ZAPs (spec 04, sections 12.1 and 13.1).

use super::value::{Property, PropertySource, PropertyValue};
use crate::dataset::limits::{HeadLimits, SpaceLimits};
use crate::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_dmu::{Object, Objset};
use rzfs_format::ObjectId;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::property::{DatasetProperty, Storage};

use PropertyValue::{Number, Text};

/// The master node of a file system, and a volume's properties.
const MASTER_NODE: ObjectId = ObjectId(1);
const VOLUME_DATA: ObjectId = ObjectId(1);
const VOLUME_PROPERTIES: ObjectId = ObjectId(2);

fn report(property: DatasetProperty, value: PropertyValue, source: PropertySource) -> Property {
    Property { name: property.name().to_owned(), value: Some(value), source, received: None }
}

fn text(text: impl Into<String>) -> PropertyValue {
    Text(text.into())
}

/// The ratio of `uncompressed` to `compressed` in hundredths.
fn ratio(uncompressed: u64, compressed: u64) -> PropertyValue {
    let hundredths = u128::from(uncompressed) * 100 / u128::from(compressed.max(1));
    let hundredths = u64::try_from(hundredths).unwrap_or(u64::MAX);
    Number(if compressed == 0 { 100 } else { hundredths })
}

/// Where the value of a settable property is stored.
#[derive(Debug)]
pub(super) enum Kept {
    /// In property ZAPs, or nowhere, in which case the default applies.
    InProperties,
    /// In another structure.
    Elsewhere(Property),
    /// This dataset has no such property.
    Nowhere,
}

impl Dataset {
    /// A settable property whose value is stored elsewhere.
    pub(super) fn kept_elsewhere(
        &self,
        property: DatasetProperty,
        kind: DatasetKind,
    ) -> Result<Kept, DatasetError> {
        use PropertySource::{Default, Local, None as Computed};
        let kept = |value: Option<_>, source| match value {
            Some(value) => Kept::Elsewhere(report(property, value, source)),
            None => Kept::Nowhere,
        };
        Ok(match property.storage() {
            Storage::MasterNode(field) => {
                let number = self.master_node_field(field.as_bytes())?;
                let shown = |number| PropertyValue::of_number(property.values(), number);
                kept(number.map(shown), Computed)
            }
            Storage::Volume(field) => {
                let objset = self.open_locked()?;
                if objset.objset_type() != ObjsetType::Zvol {
                    return Ok(Kept::Nowhere);
                }
                let size = zap_u64(&objset, VOLUME_PROPERTIES, field.as_bytes())?;
                kept(size.map(Number), if kind == DatasetKind::Volume { Local } else { Computed })
            }
            Storage::VolumeBlockSize => {
                let size = u64::from(self.open_locked()?.object(VOLUME_DATA)?.block_size());
                let is_default = property.default_number() == Some(size);
                kept(Some(Number(size)), if is_default { Default } else { Computed })
            }
            Storage::KeyObject(field) => self.key_field(property, field.as_bytes())?,
            Storage::Properties | Storage::Directory(_) | Storage::Computed => Kept::InProperties,
        })
    }

    /// A property of an encrypted dataset that is stored in its key object.
    fn key_field(&self, property: DatasetProperty, field: &[u8]) -> Result<Kept, DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(Kept::InProperties) };
        let number = zap_u64(self.tree().mos(), key, field)?.unwrap_or_default();
        let source = if (property, number) == (DatasetProperty::Pbkdf2Iters, 0) {
            PropertySource::Default
        } else {
            PropertySource::None
        };
        let value = PropertyValue::of_number(property.values(), number);
        Ok(Kept::Elsewhere(report(property, value, source)))
    }

    /// A number in the file system's master node, 0 if it is missing; `None` if there is no master
    /// node.
    fn master_node_field(&self, field: &[u8]) -> Result<Option<u64>, DatasetError> {
        let objset = self.open_locked()?;
        let Ok(master) = objset.object(MASTER_NODE) else { return Ok(None) };
        if master.object_type() != ObjectType::MASTER_NODE {
            return Ok(None);
        }
        Ok(Some(zap_u64(&objset, MASTER_NODE, field)?.unwrap_or_default()))
    }

    /// A read-only property; `None` when a dataset of this kind has no value.
    pub(super) fn computed(
        &self,
        property: DatasetProperty,
        kind: DatasetKind,
    ) -> Result<Option<Property>, DatasetError> {
        let value = match kind {
            DatasetKind::Snapshot => self.computed_for_snapshot(property)?,
            _ => self.computed_for_head(property)?,
        };
        let value = match value {
            None => self.computed_for_all(property, kind)?,
            some => some,
        };
        let source = match property {
            // These show a default where no limit was ever set.
            DatasetProperty::FilesystemCount | DatasetProperty::SnapshotCount
                if value == Some(text("none")) =>
            {
                PropertySource::Default
            }
            _ => PropertySource::None,
        };
        Ok(value.map(|value| report(property, value, source)))
    }

    fn computed_for_all(
        &self,
        property: DatasetProperty,
        kind: DatasetKind,
    ) -> Result<Option<PropertyValue>, DatasetError> {
        let dataset = self.dsl_dataset();
        Ok(Some(match property {
            DatasetProperty::Type => text(kind.name()),
            DatasetProperty::Creation => Number(dataset.creation_time),
            DatasetProperty::CreateTxg => Number(dataset.creation_txg.0),
            DatasetProperty::Guid => Number(dataset.guid.0),
            DatasetProperty::ObjsetId => Number(self.object().0),
            DatasetProperty::Referenced => Number(dataset.referenced),
            DatasetProperty::LogicalReferenced => Number(dataset.uncompressed),
            DatasetProperty::RefCompressRatio => ratio(dataset.uncompressed, dataset.compressed),
            DatasetProperty::RedactSnaps => {
                return Ok(self.redaction_snapshots()?.map(PropertyValue::of_guids));
            }
            DatasetProperty::Written => return self.written().map(|bytes| bytes.map(Number)),
            DatasetProperty::EncryptionRoot => {
                return Ok(self.encryption_root()?.map(|root| text(root.name())));
            }
            DatasetProperty::KeyStatus => match self.key_status()? {
                KeyStatus::None => return Ok(None),
                KeyStatus::Available => text("available"),
                KeyStatus::Unavailable => text("unavailable"),
            },
            _ => return Ok(None),
        }))
    }

    fn computed_for_head(
        &self,
        property: DatasetProperty,
    ) -> Result<Option<PropertyValue>, DatasetError> {
        let dir = self.dsl_dir();
        let parts = dir.breakdown;
        let used_by =
            |bytes| (dir.flags & DslDir::FLAG_USED_BREAKDOWN != 0).then_some(Number(bytes));
        Ok(Some(match property {
            DatasetProperty::Used => Number(dir.used),
            DatasetProperty::Available => Number(self.available()?),
            DatasetProperty::CompressRatio => ratio(dir.uncompressed, dir.compressed),
            DatasetProperty::LogicalUsed => Number(dir.uncompressed),
            DatasetProperty::UsedByDataset => return Ok(used_by(parts.head)),
            DatasetProperty::UsedBySnapshots => return Ok(used_by(parts.snapshots)),
            DatasetProperty::UsedByRefReservation => return Ok(used_by(parts.refreservation)),
            DatasetProperty::UsedByChildren => {
                return Ok(used_by(parts.children.saturating_add(parts.child_reservations)));
            }
            DatasetProperty::Origin => return Ok(self.origin()?.map(|origin| text(origin.name()))),
            DatasetProperty::ReceiveResumeToken => {
                let token = self.resume_token()?.map(|token| token.encode());
                return Ok(token.and_then(Result::ok).map(Text));
            }
            DatasetProperty::FilesystemCount | DatasetProperty::SnapshotCount => {
                self.directory_field(property.stored_name())?.map_or_else(|| text("none"), Number)
            }
            DatasetProperty::SnapshotsChanged => {
                let changed = self.directory_field(property.stored_name())?;
                return Ok(changed.filter(|seconds| *seconds != 0).map(Number));
            }
            _ => return Ok(None),
        }))
    }

    fn computed_for_snapshot(
        &self,
        property: DatasetProperty,
    ) -> Result<Option<PropertyValue>, DatasetError> {
        let dataset = self.dsl_dataset();
        Ok(Some(match property {
            DatasetProperty::Used => Number(dataset.unique),
            DatasetProperty::CompressRatio => ratio(dataset.uncompressed, dataset.compressed),
            DatasetProperty::DeferDestroy => {
                text(if dataset.flags & DslDataset::FLAG_DEFER_DESTROY == 0 { "off" } else { "on" })
            }
            DatasetProperty::UserRefs => Number(self.holds()?.len() as u64),
            DatasetProperty::Clones => {
                let clones = self.clone_names()?;
                return Ok((!clones.is_empty()).then(|| text(clones.join(","))));
            }
            _ => return Ok(None),
        }))
    }

    /// The names of the file systems and volumes that were cloned from this snapshot.
    pub fn clone_names(&self) -> Result<Vec<String>, DatasetError> {
        let mut clones = Vec::new();
        let Some(zap) = self.dsl_dataset().next_clones else { return Ok(clones) };
        let object = self.tree().mos().object(zap)?;
        for entry in object.zap()?.entries() {
            let entry = entry.map_err(|source| object.zap_error(source))?;
            let Some(dataset) = entry.value.first_u64() else { continue };
            let (_, dataset) = self.tree().dataset_object(ObjectId(dataset))?;
            clones.push(self.tree().directory_name(dataset.dir)?);
        }
        clones.sort();
        Ok(clones)
    }

    /// Bytes that can still be written here (spec 04, section 12.4).
    fn available(&self) -> Result<u64, DatasetError> {
        let mut chain = Vec::new();
        let mut level = Some(self.clone());
        while let Some(dataset) = level {
            chain.push(SpaceLimits::of(dataset.dsl_dir()));
            level = dataset.parent()?;
        }
        let room = SpaceLimits::available(chain.into_iter().rev(), self.tree().usable_space());
        let head = HeadLimits {
            referenced: self.dsl_dataset().referenced,
            unique: self.dsl_dataset().unique,
            refquota: self.number(DatasetProperty::RefQuota)?,
            refreservation: self.number(DatasetProperty::RefReservation)?,
        };
        Ok(head.available(room))
    }
}

/// A number in a ZAP of an objset.
fn zap_u64(objset: &Objset, object: ObjectId, key: &[u8]) -> Result<Option<u64>, DatasetError> {
    let object: Object = objset.object(object)?;
    let value = object.zap()?.lookup_u64(key);
    Ok(value.map_err(|source| object.zap_error(source))?)
}
