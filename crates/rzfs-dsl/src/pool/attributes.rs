//! Objects of the MOS that map names to values: the object directory, ZAPs of vdevs and features
//! (spec 01, section 6).

use super::error::PoolError;
use crate::mos::error::MosError;
use crate::mos::{MAX_ENTRIES, one_number, text};
use rzfs_dmu::{DmuError, Object, Objset};
use rzfs_format::ObjectId;
use rzfs_zap::{IntegerSize, Zap, ZapEntry, ZapError, ZapValue};

/// An object of the MOS that maps names to values.
#[derive(Debug)]
pub struct Attributes {
    id: ObjectId,
    object: Object,
    zap: Zap<Object>,
}

impl Attributes {
    /// Opens the object with this number.
    ///
    /// # Errors
    /// [`PoolError::Mos`] when it does not exist or is not a ZAP.
    pub fn open(mos: &Objset, id: ObjectId) -> Result<Self, PoolError> {
        let object = mos.object(id)?;
        let zap = object.zap()?;
        Ok(Self { id, object, zap })
    }

    /// The object's number.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    fn failure(&self, source: ZapError<DmuError>) -> PoolError {
        self.object.zap_error(source).into()
    }

    fn mismatch(&self, name: &str, problem: &'static str) -> PoolError {
        MosError::Entry { object: self.id, name: name.to_owned(), problem }.into()
    }

    /// The stored value of a name.
    ///
    /// # Errors
    /// [`PoolError::Mos`] when it cannot be read.
    pub fn value(&self, name: &str) -> Result<Option<ZapValue>, PoolError> {
        self.zap.lookup(name.as_bytes()).map_err(|source| self.failure(source))
    }

    /// The number of a name.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read or has another type.
    pub fn number(&self, name: &str) -> Result<Option<u64>, PoolError> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        Ok(Some(one_number(self.id, name, &value)?))
    }

    /// The object under a name; `None` for a missing name or 0.
    ///
    /// # Errors
    /// As [`Attributes::number`].
    pub fn object(&self, name: &str) -> Result<Option<ObjectId>, PoolError> {
        Ok(self.number(name)?.and_then(|number| ObjectId(number).non_zero()))
    }

    /// The 64-bit numbers of a name.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read or has another type.
    pub fn words(&self, name: &str) -> Result<Option<Vec<u64>>, PoolError> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        if value.integer_size() == IntegerSize::Eight {
            Ok(Some(value.integers().collect()))
        } else {
            Err(self.mismatch(name, "its numbers have another size"))
        }
    }

    /// The bytes of a name.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read or has another type.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, PoolError> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let bytes = value.as_bytes().map(<[u8]>::to_vec);
        bytes.map(Some).ok_or_else(|| self.mismatch(name, "it is not a string"))
    }

    /// The text of a name, up to its NUL.
    ///
    /// # Errors
    /// As [`Attributes::bytes`].
    pub fn text(&self, name: &str) -> Result<Option<String>, PoolError> {
        Ok(self.bytes(name)?.as_deref().map(text))
    }

    /// All entries, at most [`MAX_ENTRIES`].
    ///
    /// # Errors
    /// [`PoolError`] when they cannot be read or are too many.
    pub(crate) fn entries(&self) -> Result<Vec<ZapEntry>, PoolError> {
        let mut entries = Vec::new();
        for entry in self.zap.entries() {
            if entries.len() == MAX_ENTRIES {
                let what = "entries";
                return Err(MosError::TooMany { object: self.id, what, limit: MAX_ENTRIES }.into());
            }
            entries.push(entry.map_err(|source| self.failure(source))?);
        }
        Ok(entries)
    }
}
