//! The bookmarks of a dataset: `pool/a#bookmark` (spec 04, section 15).

use super::property::{Property, PropertySource, PropertyValue};
use super::{Dataset, DatasetError, DatasetTree};
use rzfs_format::bookmark::{BookmarkRecord, RedactionHeader};
use rzfs_format::{Guid, ObjectId};

/// The field of a dataset's object that leads to its bookmarks.
const FIELD: &str = "com.delphix:bookmarks";

/// A bookmark.
#[derive(Clone, Debug)]
pub struct Bookmark {
    tree: DatasetTree,
    name: String,
    record: BookmarkRecord,
}

impl Bookmark {
    /// The properties that bookmarks can have, in the order of `zfs get all`.
    pub const PROPERTIES: [&str; 7] = [
        "type",
        "creation",
        "referenced",
        "createtxg",
        "guid",
        "logicalreferenced",
        "redact_snaps",
    ];

    /// The full name: `pool/a#bookmark`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is stored.
    #[must_use]
    pub const fn record(&self) -> &BookmarkRecord {
        &self.record
    }

    /// Guids of the snapshots that a redacted send from this leaves out; `None` when it is no
    /// redaction bookmark.
    pub fn redaction_snapshots(&self) -> Result<Option<Vec<Guid>>, DatasetError> {
        let Some(list) = self.record.redaction else { return Ok(None) };
        let object = self.tree.mos().object(list)?;
        let header = match object.spill()? {
            Some(spill) => RedactionHeader::decode(&spill.data, spill.order),
            None => RedactionHeader::decode(object.bonus(), object.order()),
        };
        let header = header.map_err(|source| self.tree.corrupt(list, source))?;
        Ok(Some(header.snapshots))
    }

    /// A property; `None` when the bookmark has none of this name.
    pub fn property(&self, name: &str) -> Result<Option<Property>, DatasetError> {
        use PropertyValue::{Number, Text};
        let record = &self.record;
        let value = match name {
            "type" => Text("bookmark".to_owned()),
            "creation" => Number(record.creation_time),
            "createtxg" => Number(record.creation_txg.0),
            "guid" => Number(record.guid.0),
            "referenced" if record.has_sums() => Number(record.referenced.used),
            "logicalreferenced" if record.has_sums() => Number(record.referenced.uncompressed),
            "redact_snaps" => match self.redaction_snapshots()? {
                Some(guids) => PropertyValue::of_guids(guids),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let (name, value) = (name.to_owned(), Some(value));
        Ok(Some(Property { name, value, source: PropertySource::None, received: None }))
    }

    /// All properties, in the order of `zfs get all`.
    pub fn properties(&self) -> Result<Vec<Property>, DatasetError> {
        let mut properties = Vec::new();
        for name in Self::PROPERTIES {
            properties.extend(self.property(name)?);
        }
        Ok(properties)
    }
}

impl DatasetTree {
    /// The bookmark with this name: `pool/a#bookmark`.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] when there is none.
    pub fn open_bookmark(&self, name: &str) -> Result<Bookmark, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let (head, bookmark) = name.split_once('#').ok_or_else(not_found)?;
        self.open(head)?.bookmark(bookmark)?.ok_or_else(not_found)
    }
}

impl Dataset {
    /// The ZAP of its bookmarks.
    fn bookmark_names(&self) -> Result<Option<ObjectId>, DatasetError> {
        if self.is_snapshot() {
            return Ok(None);
        }
        Ok(self.dataset_field(FIELD)?.map(ObjectId))
    }

    fn bookmark_of(&self, name: &str, record: BookmarkRecord) -> Bookmark {
        let name = format!("{}#{name}", self.name);
        Bookmark { tree: self.tree.clone(), name, record }
    }

    /// Its bookmarks, oldest first. Snapshots have none.
    pub fn bookmarks(&self) -> Result<Vec<Bookmark>, DatasetError> {
        let mut bookmarks = Vec::new();
        let Some(names) = self.bookmark_names()? else { return Ok(bookmarks) };
        let object = self.tree.mos().object(names)?;
        for entry in object.zap()?.entries() {
            let entry = entry.map_err(|source| object.zap_error(source))?;
            let record = BookmarkRecord::decode(entry.value.integers());
            let record = record.map_err(|source| self.tree.corrupt(names, source))?;
            bookmarks.push(self.bookmark_of(&String::from_utf8_lossy(entry.name()), record));
        }
        bookmarks.sort_by(|a, b| {
            let txgs = a.record.creation_txg.cmp(&b.record.creation_txg);
            txgs.then_with(|| a.name.cmp(&b.name))
        });
        Ok(bookmarks)
    }

    /// Its bookmark with this name (the part behind the `#`).
    pub fn bookmark(&self, name: &str) -> Result<Option<Bookmark>, DatasetError> {
        let Some(names) = self.bookmark_names()? else { return Ok(None) };
        let Some((name, value)) = self.lookup_name(names, name)? else { return Ok(None) };
        let record = BookmarkRecord::decode(value.integers());
        let record = record.map_err(|source| self.tree.corrupt(names, source))?;
        Ok(Some(self.bookmark_of(&name, record)))
    }
}
