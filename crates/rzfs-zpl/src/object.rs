//! Objects that hold files: of a read-only set, or of a live one.

use crate::error::{Place, ZplError};
use rzfs_dmu::{DmuError, ObjectSource, SourceObject};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{Zap, ZapError};

/// An object that may hold a file.
pub trait FileObject: SourceObject {
    /// Its number and its set's.
    fn place(&self) -> Place {
        Place { objset: self.objset_id(), object: self.id() }
    }

    /// The ZAP in it.
    fn open_zap(self) -> Result<Zap<Self>, ZplError> {
        let place = self.place();
        Zap::open(self).map_err(|source| place.zap_failure(source))
    }

    /// Adds the location to an error of the object's ZAP.
    fn zap_failure(&self, source: ZapError<DmuError>) -> ZplError {
        self.place().zap_failure(source)
    }
}

impl<O: SourceObject> FileObject for O {}

/// The object with this number, which must have this type.
pub(crate) fn typed_object<S: ObjectSource>(
    source: &S,
    id: ObjectId,
    kind: ObjectType,
) -> Result<S::Object, ZplError> {
    let object = source.object(id)?;
    let found = object.object_type()?;
    if found == kind {
        return Ok(object);
    }
    let source = FormatError::field("object", "type", found.number());
    Err(ZplError::Corrupt { place: object.place(), source })
}
