//! The bookmarks of a dataset: `pool/a#bookmark` (spec 04, section 15).

use super::property::{DatasetProperty, Property, PropertySource, PropertyValue};
use super::{Dataset, DatasetError, DatasetTree};
use crate::mos::{bookmarks, names};
use rzfs_format::bookmark::{BookmarkRecord, RedactionHeader};
use rzfs_format::{Guid, ObjectId};

/// A bookmark.
#[derive(Clone, Debug)]
pub struct Bookmark {
    tree: DatasetTree,
    name: String,
    record: BookmarkRecord,
}

impl Bookmark {
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

    /// Guids of the snapshots that a redacted send from this omits; `None` when it is not a
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
        let Some(property) = DatasetProperty::from_name(name) else { return Ok(None) };
        let value = match property {
            DatasetProperty::Type => Text("bookmark".to_owned()),
            DatasetProperty::Creation => Number(record.creation_time),
            DatasetProperty::CreateTxg => Number(record.creation_txg.0),
            DatasetProperty::Guid => Number(record.guid.0),
            DatasetProperty::Referenced if record.has_sums() => Number(record.referenced.used),
            DatasetProperty::LogicalReferenced if record.has_sums() => {
                Number(record.referenced.uncompressed)
            }
            DatasetProperty::RedactSnaps => match self.redaction_snapshots()? {
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
        let all = DatasetProperty::ALL.iter();
        for property in all.filter(|property| property.datasets().include_bookmarks()) {
            properties.extend(self.property(property.name())?);
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
        Ok(bookmarks::of_head(self.tree.mos(), self.object)?)
    }

    fn bookmark_of(&self, name: &str, record: BookmarkRecord) -> Bookmark {
        let name = format!("{}#{name}", self.name);
        Bookmark { tree: self.tree.clone(), name, record }
    }

    /// Its bookmarks, oldest first. Snapshots have none.
    pub fn bookmarks(&self) -> Result<Vec<Bookmark>, DatasetError> {
        let Some(names) = self.bookmark_names()? else { return Ok(Vec::new()) };
        let all = bookmarks::all(self.tree.mos(), names)?.into_iter();
        let mut bookmarks: Vec<_> =
            all.map(|(name, record)| self.bookmark_of(&name, record)).collect();
        bookmarks.sort_by(|a, b| {
            let txgs = a.record.creation_txg.cmp(&b.record.creation_txg);
            txgs.then_with(|| a.name.cmp(&b.name))
        });
        Ok(bookmarks)
    }

    /// Its bookmark with this name (the part after the `#`).
    pub fn bookmark(&self, name: &str) -> Result<Option<Bookmark>, DatasetError> {
        let Some(names) = self.bookmark_names()? else { return Ok(None) };
        let Some((name, value)) = names::find(self.tree.mos(), (&self.dataset, names), name)?
        else {
            return Ok(None);
        };
        Ok(Some(self.bookmark_of(&name, bookmarks::record(names, &value)?)))
    }
}
