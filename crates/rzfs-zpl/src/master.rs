//! The master node: the entry point of a file system (spec 05, sections 1.2 and 1.3).

use crate::error::{Place, ZplError};
use crate::object::{FileObject, typed_object};
use rzfs_dmu::ObjectSource;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::property::DatasetProperty;
use rzfs_format::znode::ZplVersion;
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{Normalization, Zap, ZapError};

/// The master node's object.
pub(crate) const MASTER_NODE: ObjectId = ObjectId(1);

/// Entries of the master node that are properties.
pub(crate) const VERSION: &str = DatasetProperty::Version.stored_name();
pub(crate) const UTF8_ONLY: &str = DatasetProperty::Utf8Only.stored_name();
pub(crate) const NORMALIZATION: &str = DatasetProperty::Normalization.stored_name();
pub(crate) const CASE: &str = DatasetProperty::CaseSensitivity.stored_name();

/// Whether names that differ in case are different (property `casesensitivity`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CaseSensitivity {
    /// They are.
    Sensitive,
    /// They are not.
    Insensitive,
    /// They are, unless the caller asks otherwise, which does not happen on Linux.
    Mixed,
}

impl CaseSensitivity {
    /// The on-disk number.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Sensitive => 0,
            Self::Insensitive => 1,
            Self::Mixed => 2,
        }
    }

    /// The normalisation of directories in a file system with this normalisation.
    pub(crate) const fn normalization(self, normalization: Normalization) -> Normalization {
        let fold_case = !matches!(self, Self::Sensitive);
        Normalization { fold_case, ..normalization }
    }
}

/// The entries of the master node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MasterNode {
    /// Version of the file system.
    pub version: ZplVersion,
    /// The root directory.
    pub root: ObjectId,
    /// Unlinked files that were open.
    pub delete_queue: ObjectId,
    /// The master node of system attributes; in version 5.
    pub sa_master: Option<ObjectId>,
    /// Whether names that differ in case are different.
    pub case: CaseSensitivity,
    /// Normalisation of names, apart from case.
    pub normalization: Normalization,
    /// Whether names must be in UTF-8.
    pub utf8_only: bool,
    /// The FUID table.
    pub fuid_table: Option<ObjectId>,
    /// The directory `.zfs/shares`.
    pub shares: Option<ObjectId>,
}

impl MasterNode {
    /// Whether files are only found by the exact bytes of their names, not by other forms.
    #[must_use]
    pub fn has_exact_names(&self) -> bool {
        self.case == CaseSensitivity::Sensitive && self.normalization == Normalization::default()
    }

    /// The normalisation for comparing names.
    #[must_use]
    pub fn compared_names(&self) -> Normalization {
        let fold_case = self.case == CaseSensitivity::Insensitive;
        Normalization { fold_case, ..self.normalization }
    }

    /// Reads the master node of an object set in a pool of version `pool_version`.
    ///
    /// # Errors
    /// The set is not a file system, its key is not loaded, its version is too new, or the master
    /// node is damaged.
    pub fn read<S: ObjectSource>(source: &S, pool_version: u64) -> Result<Self, ZplError> {
        let objset = source.on_disk();
        let id = objset.id();
        if objset.objset_type() != ObjsetType::Zfs {
            let found = objset.objset_type().name();
            return Err(ZplError::WrongKind { objset: id, found, wanted: "a file system" });
        }
        if objset.is_locked() {
            return Err(ZplError::Locked { objset: id });
        }
        let object = typed_object(source, MASTER_NODE, ObjectType::MASTER_NODE)?;
        let entries = Entries { place: object.place(), zap: object.open_zap()? };

        let version = entries.required(VERSION)?;
        let unsupported = || ZplError::Version { objset: id, version };
        let version = ZplVersion::from_number(version).map_err(|_| unsupported())?;
        if version > ZplVersion::newest_of_pool(pool_version) {
            return Err(unsupported());
        }
        let sa_master = if version >= ZplVersion::SA {
            Some(ObjectId(entries.required("SA_ATTRS")?))
        } else {
            None
        };
        Ok(Self {
            version,
            root: ObjectId(entries.required("ROOT")?),
            delete_queue: ObjectId(entries.required("DELETE_QUEUE")?),
            sa_master,
            case: match entries.number(CASE)?.unwrap_or(0) {
                0 => CaseSensitivity::Sensitive,
                1 => CaseSensitivity::Insensitive,
                2 => CaseSensitivity::Mixed,
                other => return Err(entries.bad_value(CASE, other)),
            },
            normalization: entries.normalization()?,
            utf8_only: entries.number(UTF8_ONLY)?.unwrap_or(0) != 0,
            fuid_table: entries.object("FUID")?,
            shares: entries.object("SHARES")?,
        })
    }
}

struct Entries<O> {
    place: Place,
    zap: Zap<O>,
}

impl<O: FileObject> Entries<O> {
    fn number(&self, name: &str) -> Result<Option<u64>, ZplError> {
        self.zap.lookup_u64(name).map_err(|error| match error {
            ZapError::ValueKind => self.bad_value("entry", 0),
            error => self.place.zap_failure(error),
        })
    }

    fn required(&self, entry: &'static str) -> Result<u64, ZplError> {
        let objset = self.place.objset;
        self.number(entry)?
            .filter(|value| *value != 0)
            .ok_or(ZplError::MasterEntry { objset, entry })
    }

    fn object(&self, name: &str) -> Result<Option<ObjectId>, ZplError> {
        Ok(self.number(name)?.map(ObjectId).and_then(ObjectId::non_zero))
    }

    fn normalization(&self) -> Result<Normalization, ZplError> {
        let value = self.number(NORMALIZATION)?.unwrap_or(0);
        Normalization::from_flags(value).map_err(|_| self.bad_value(NORMALIZATION, value))
    }

    fn bad_value(&self, field: &'static str, value: u64) -> ZplError {
        ZplError::Corrupt {
            place: self.place,
            source: FormatError::field("master node", field, value),
        }
    }
}
