//! Properties that are not kept in property ZAPs (spec 04, sections 12.1 and 13.1).

use super::table::{CASE_SENSITIVITY, ENCRYPTION, Form, KEY_FORMAT, NORMALIZATION, UTF8_ONLY};
use super::value::{Property, PropertySource, PropertyValue};
use crate::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_dmu::{Object, Objset};
use rzfs_format::ObjectId;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;

use PropertyValue::{Number, Text};

/// The master node of a file system, and a volume's properties.
const MASTER_NODE: ObjectId = ObjectId(1);
const VOLUME_DATA: ObjectId = ObjectId(1);
const VOLUME_PROPERTIES: ObjectId = ObjectId(2);

fn property(name: &str, value: Option<PropertyValue>, source: PropertySource) -> Property {
    Property { name: name.to_owned(), value, source, received: None }
}

fn text(text: impl Into<String>) -> PropertyValue {
    Text(text.into())
}

/// Hundredths of `uncompressed` to `compressed`.
fn ratio(uncompressed: u64, compressed: u64) -> PropertyValue {
    let hundredths = u128::from(uncompressed) * 100 / u128::from(compressed.max(1));
    let hundredths = u64::try_from(hundredths).unwrap_or(u64::MAX);
    Number(if compressed == 0 { 100 } else { hundredths })
}

/// Where the value of a settable property is.
#[derive(Debug)]
pub(super) enum Kept {
    /// In property ZAPs, or nowhere: then the default holds.
    InProperties,
    /// In another structure.
    Elsewhere(Property),
    /// This dataset has no such property.
    Nowhere,
}

impl Dataset {
    /// A settable property whose value is kept in other places.
    pub(super) fn kept_elsewhere(
        &self,
        name: &str,
        kind: DatasetKind,
    ) -> Result<Kept, DatasetError> {
        use PropertySource::{Default, Local, None as Computed};
        let kept = |value: Option<_>, source| match value {
            Some(value) => Kept::Elsewhere(property(name, Some(value), source)),
            None => Kept::Nowhere,
        };
        Ok(match name {
            "version" | "utf8only" | "normalization" | "casesensitivity" => {
                kept(self.master_node_value(name)?, Computed)
            }
            "volsize" => {
                let objset = self.open_locked()?;
                if objset.objset_type() != ObjsetType::Zvol {
                    return Ok(Kept::Nowhere);
                }
                let size = zap_u64(&objset, VOLUME_PROPERTIES, b"size")?;
                kept(size.map(Number), if kind == DatasetKind::Volume { Local } else { Computed })
            }
            "volblocksize" => {
                let size = u64::from(self.open_locked()?.object(VOLUME_DATA)?.block_size());
                kept(Some(Number(size)), if size == 16384 { Default } else { Computed })
            }
            "encryption" => self.key_field(name, b"DSL_CRYPTO_SUITE", ENCRYPTION)?,
            "keyformat" => self.key_field(name, b"keyformat", KEY_FORMAT)?,
            "pbkdf2iters" => self.key_field(name, b"pbkdf2iters", Form::Number)?,
            _ => Kept::InProperties,
        })
    }

    /// A property of an encrypted dataset that its key object has.
    fn key_field(&self, name: &str, field: &[u8], form: Form) -> Result<Kept, DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(Kept::InProperties) };
        let value = zap_u64(self.tree().mos(), key, field)?.unwrap_or_default();
        let source = if (name, value) == ("pbkdf2iters", 0) {
            PropertySource::Default
        } else {
            PropertySource::None
        };
        Ok(Kept::Elsewhere(property(name, Some(form.show_number(value)), source)))
    }

    /// A field of the file system's master node as the property shows it.
    fn master_node_value(&self, name: &str) -> Result<Option<PropertyValue>, DatasetError> {
        let objset = self.open_locked()?;
        let Ok(master) = objset.object(MASTER_NODE) else { return Ok(None) };
        if master.object_type() != ObjectType::MASTER_NODE {
            return Ok(None);
        }
        let (key, form): (&[u8], Form) = match name {
            "version" => (b"VERSION", Form::Number),
            "utf8only" => (b"utf8only", UTF8_ONLY),
            "normalization" => (b"normalization", NORMALIZATION),
            _ => (b"casesensitivity", CASE_SENSITIVITY),
        };
        let value = zap_u64(&objset, MASTER_NODE, key)?.unwrap_or_default();
        Ok(Some(form.show_number(value)))
    }

    /// A read-only property; `None` when there is none of this name for this kind.
    pub(super) fn computed(
        &self,
        name: &str,
        kind: DatasetKind,
    ) -> Result<Option<Property>, DatasetError> {
        let value = match kind {
            DatasetKind::Snapshot => self.computed_for_snapshot(name)?,
            _ => self.computed_for_head(name, kind)?,
        };
        let value = match value {
            None => self.computed_for_all(name, kind)?,
            some => some,
        };
        let source = match name {
            // These show a default where nobody ever set a limit.
            "filesystem_count" | "snapshot_count" if value == Some(text("none")) => {
                PropertySource::Default
            }
            _ => PropertySource::None,
        };
        Ok(value.map(|value| property(name, Some(value), source)))
    }

    fn computed_for_all(
        &self,
        name: &str,
        kind: DatasetKind,
    ) -> Result<Option<PropertyValue>, DatasetError> {
        let dataset = self.dsl_dataset();
        Ok(Some(match name {
            "type" => text(kind.name()),
            "creation" => Number(dataset.creation_time),
            "createtxg" => Number(dataset.creation_txg.0),
            "guid" => Number(dataset.guid.0),
            "objsetid" => Number(self.object().0),
            "referenced" => Number(dataset.referenced),
            "logicalreferenced" => Number(dataset.uncompressed),
            "refcompressratio" => ratio(dataset.uncompressed, dataset.compressed),
            "redact_snaps" => {
                return Ok(self.redaction_snapshots()?.map(PropertyValue::of_guids));
            }
            "written" => return self.written().map(|bytes| bytes.map(Number)),
            "encryptionroot" => {
                return Ok(self.encryption_root()?.map(|root| text(root.name())));
            }
            "keystatus" => match self.key_status()? {
                KeyStatus::None => return Ok(None),
                KeyStatus::Available => text("available"),
                KeyStatus::Unavailable => text("unavailable"),
            },
            _ => return Ok(None),
        }))
    }

    fn computed_for_head(
        &self,
        name: &str,
        kind: DatasetKind,
    ) -> Result<Option<PropertyValue>, DatasetError> {
        let dir = self.dsl_dir();
        let parts = dir.breakdown;
        if name.starts_with("usedby") && dir.flags & DslDir::FLAG_USED_BREAKDOWN == 0 {
            return Ok(None);
        }
        Ok(Some(match name {
            "used" => Number(dir.used),
            "available" => Number(self.available()?),
            "compressratio" => ratio(dir.uncompressed, dir.compressed),
            "logicalused" => Number(dir.uncompressed),
            "usedbydataset" => Number(parts.head),
            "usedbysnapshots" => Number(parts.snapshots),
            "usedbyrefreservation" => Number(parts.refreservation),
            "usedbychildren" => Number(parts.children.saturating_add(parts.child_reservations)),
            "origin" => return Ok(self.origin()?.map(|origin| text(origin.name()))),
            "filesystem_count" if kind == DatasetKind::Volume => return Ok(None),
            "filesystem_count" | "snapshot_count" => {
                let count = self.directory_field(&format!("com.joyent:{name}"))?;
                count.map_or_else(|| text("none"), Number)
            }
            "snapshots_changed" => {
                let changed = self.directory_field("com.ixsystems:snapshots_changed")?;
                return Ok(changed.filter(|seconds| *seconds != 0).map(Number));
            }
            _ => return Ok(None),
        }))
    }

    fn computed_for_snapshot(&self, name: &str) -> Result<Option<PropertyValue>, DatasetError> {
        let dataset = self.dsl_dataset();
        Ok(Some(match name {
            "used" => Number(dataset.unique),
            "compressratio" => ratio(dataset.uncompressed, dataset.compressed),
            "defer_destroy" => {
                text(if dataset.flags & DslDataset::FLAG_DEFER_DESTROY == 0 { "off" } else { "on" })
            }
            "userrefs" => Number(self.holds()?.len() as u64),
            "clones" => {
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
        let dataset = self.dsl_dataset();
        let mut space = self.directory_space()?;
        let reserved = self.number("refreservation")?;
        space = space.saturating_add(reserved.saturating_sub(dataset.unique));
        let limit = self.number("refquota")?;
        if limit != 0 {
            space = space.min(limit.saturating_sub(dataset.referenced));
        }
        Ok(space)
    }

    fn directory_space(&self) -> Result<u64, DatasetError> {
        let mut limits = Vec::new();
        let mut level = Some(self.clone());
        while let Some(dataset) = level {
            limits.push(dataset.dsl_dir().clone());
            level = dataset.parent()?;
        }
        let mut space = u64::MAX;
        for (depth, dir) in limits.iter().rev().enumerate() {
            let mut quota = if dir.quota == 0 { u64::MAX } else { dir.quota };
            if depth == 0 {
                quota = quota.min(self.tree().usable_space());
            } else {
                space = space.saturating_add(dir.reserved.saturating_sub(dir.used));
            }
            space = space.min(quota.saturating_sub(dir.used));
        }
        Ok(space)
    }
}

/// A number in a ZAP of an objset.
fn zap_u64(objset: &Objset, object: ObjectId, key: &[u8]) -> Result<Option<u64>, DatasetError> {
    let object: Object = objset.object(object)?;
    let value = object.zap()?.lookup_u64(key);
    Ok(value.map_err(|source| object.zap_error(source))?)
}
