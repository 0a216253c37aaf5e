//! The meta object set: the objects of the pool itself.
//!
//! ```text
//! MosSource            reads                          error
//! ├─ Objset            what an uberblock leads to     MosError
//! └─ LiveMos, MosTx    what the syncing txg has       LiveError
//! MosTx                changes, in a sync pass
//! ```
//! A module covers one subject: reading it, from any [`MosSource`], and changing it in a sync pass.

pub(crate) mod bookmarks;
pub(crate) mod bpobj;
pub(crate) mod config;
pub(crate) mod deadlist;
pub(crate) mod dedup_log;
pub(crate) mod error;
pub(crate) mod error_log;
pub(crate) mod extensible;
pub(crate) mod features;
pub(crate) mod history;
pub(crate) mod key_object;
pub(crate) mod live;
pub(crate) mod names;
mod open_zaps;
pub(crate) mod packed_list;
pub(crate) mod pointer_list;
pub(crate) mod property_values;
pub(crate) mod record;
pub(crate) mod resume;

use error::MosError;
use record::{BonusRecord, record_of};
use rzfs_dmu::{DmuError, Object, Objset, SourceObject};
use rzfs_format::ObjectId;
use rzfs_zap::{KeyRef, Zap, ZapEntry, ZapError, ZapValue};

/// The object from which everything else in the MOS is found.
pub(crate) const OBJECT_DIRECTORY: ObjectId = ObjectId(1);

/// Maximum entries of a list that is read into memory at once; real ones have tens.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;

/// The MOS for reading: that of an uberblock, or with changes of the syncing txg.
pub(crate) trait MosSource {
    /// Its objects.
    type Object: SourceObject;
    /// Why something cannot be read.
    type Error: From<MosError>;

    /// The object with this number.
    fn object(&self, id: ObjectId) -> Result<Self::Object, Self::Error>;

    /// Calls `look` with a ZAP; it must not access another one meanwhile.
    fn with_zap<T>(
        &self,
        zap: ObjectId,
        look: impl FnOnce(&Zap<Self::Object>) -> Result<T, ZapError<DmuError>>,
    ) -> Result<T, Self::Error>;

    /// The record in an object's bonus.
    fn record<R: BonusRecord>(&self, id: ObjectId) -> Result<R, Self::Error> {
        record_of(&self.object(id)?).map_err(Into::into)
    }

    /// The value of a key.
    fn lookup<'k>(
        &self,
        zap: ObjectId,
        key: impl Into<KeyRef<'k>>,
    ) -> Result<Option<ZapValue>, Self::Error> {
        let key = key.into();
        self.with_zap(zap, |open| match key {
            KeyRef::Name(name) => open.lookup(name),
            KeyRef::Words(words) => open.lookup_words(words),
        })
    }

    /// The number under a name; anything but a single number is damage.
    fn number(&self, zap: ObjectId, name: &str) -> Result<Option<u64>, Self::Error> {
        let Some(value) = self.lookup(zap, name)? else { return Ok(None) };
        Ok(Some(one_number(zap, name, &value)?))
    }

    /// The object under a name; `None` for a missing name or 0.
    fn object_of(&self, zap: ObjectId, name: &str) -> Result<Option<ObjectId>, Self::Error> {
        Ok(self.number(zap, name)?.and_then(|number| ObjectId(number).non_zero()))
    }

    /// An object that the object directory of every pool of this kind has.
    fn required_object(&self, name: &'static str) -> Result<ObjectId, Self::Error> {
        Ok(self.object_of(OBJECT_DIRECTORY, name)?.ok_or(MosError::NoEntry { name })?)
    }

    /// The number of entries.
    fn entry_count(&self, zap: ObjectId) -> Result<u64, Self::Error> {
        self.with_zap(zap, |open| Ok(open.entry_count()))
    }

    /// All entries.
    fn entries(&self, zap: ObjectId) -> Result<Vec<ZapEntry>, Self::Error> {
        self.with_zap(zap, |open| open.entries().collect())
    }

    /// All entries of a list that is short in every real pool: at most [`MAX_ENTRIES`].
    fn short_list(&self, zap: ObjectId) -> Result<Vec<ZapEntry>, Self::Error> {
        let entries = self.with_zap(zap, |open| {
            open.entries().take(MAX_ENTRIES + 1).collect::<Result<Vec<_>, _>>()
        })?;
        if entries.len() > MAX_ENTRIES {
            let (object, what, limit) = (zap, "entries", MAX_ENTRIES);
            return Err(MosError::TooMany { object, what, limit }.into());
        }
        Ok(entries)
    }
}

impl MosSource for Objset {
    type Object = Object;
    type Error = MosError;

    fn object(&self, id: ObjectId) -> Result<Object, MosError> {
        Ok(Self::object(self, id)?)
    }

    fn with_zap<T>(
        &self,
        zap: ObjectId,
        look: impl FnOnce(&Zap<Object>) -> Result<T, ZapError<DmuError>>,
    ) -> Result<T, MosError> {
        look(&Self::object(self, zap)?.zap()?).map_err(MosError::zap(zap))
    }
}

/// The single number that is the value of a name in an object.
pub(crate) fn one_number(object: ObjectId, name: &str, value: &ZapValue) -> Result<u64, MosError> {
    let number = value.first_u64().filter(|_| value.len() == 1);
    number.ok_or_else(|| {
        let problem = "it is not one number";
        MosError::Entry { object, name: name.to_owned(), problem }
    })
}

/// The text before the first NUL; invalid UTF-8 becomes U+FFFD.
pub(crate) fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The ZAP name of a numeric key.
pub(crate) fn number_key(number: u64) -> String {
    format!("{number:x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_zap::IntegerSize;

    #[test]
    fn a_number_is_one_number() {
        let number = |value: &ZapValue| one_number(ObjectId(7), "name", value);
        assert_eq!(number(&54_u64.into()).unwrap(), 54);
        let words = ZapValue::new(IntegerSize::Eight, &[54, 55]);
        for value in [words, "text".into(), ZapValue::new(IntegerSize::Eight, &[])] {
            assert!(number(&value).unwrap_err().is_damage(), "{value:?}");
        }
    }
}
