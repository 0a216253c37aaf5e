//! Properties of datasets: values in force and where they come from (spec 04, sections 12 to 14).
//!
//! A property that can be set lives in a ZAP of the dataset's directory (or of the snapshot
//! itself), in the number that the format uses; it may come from an ancestor, a send stream or the
//! default. All others are computed from the dataset's own structures.

mod computed;
mod lookup;
mod table;
mod value;

pub use table::{Appliance, Form, Inheritance, NativeProperty, SETTABLE};
pub use value::{Property, PropertySource, PropertyValue};

use super::{Dataset, DatasetError, DatasetKind};
use computed::Kept;

/// Native properties in the order of `zfs get all`.
///
/// `mounted` is missing: it is not a property of the pool but of whoever has mounted it.
pub const NATIVE_ORDER: &[&str] = &[
    "type",
    "creation",
    "used",
    "available",
    "referenced",
    "compressratio",
    "origin",
    "quota",
    "reservation",
    "volsize",
    "volblocksize",
    "recordsize",
    "mountpoint",
    "sharenfs",
    "checksum",
    "compression",
    "atime",
    "devices",
    "exec",
    "setuid",
    "readonly",
    "zoned",
    "snapdir",
    "aclmode",
    "aclinherit",
    "createtxg",
    "canmount",
    "xattr",
    "copies",
    "version",
    "utf8only",
    "normalization",
    "casesensitivity",
    "vscan",
    "nbmand",
    "sharesmb",
    "refquota",
    "refreservation",
    "guid",
    "primarycache",
    "secondarycache",
    "usedbysnapshots",
    "usedbydataset",
    "usedbychildren",
    "usedbyrefreservation",
    "defer_destroy",
    "userrefs",
    "logbias",
    "objsetid",
    "dedup",
    "mlslabel",
    "sync",
    "dnodesize",
    "refcompressratio",
    "written",
    "clones",
    "logicalused",
    "logicalreferenced",
    "volmode",
    "filesystem_limit",
    "snapshot_limit",
    "filesystem_count",
    "snapshot_count",
    "snapdev",
    "acltype",
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
    "relatime",
    "redundant_metadata",
    "overlay",
    "encryption",
    "keylocation",
    "keyformat",
    "pbkdf2iters",
    "encryptionroot",
    "keystatus",
    "special_small_blocks",
    "redact_snaps",
    "snapshots_changed",
    "prefetch",
    "volthreading",
    "direct",
    "longname",
];

impl Dataset {
    /// A property by its full name; `None` when it does not apply to this kind of dataset or no
    /// property has the name.
    pub fn property(&self, name: &str) -> Result<Option<Property>, DatasetError> {
        if name.contains(':') {
            return self.user_property(name).map(Some);
        }
        if name.starts_with("written@") || name.starts_with("written#") {
            return self.written_property(name);
        }
        let kind = self.kind()?;
        match NativeProperty::find(name) {
            Some(native) if native.applies.to(kind) => self.settable(native, kind),
            Some(_) => Ok(None),
            None => self.computed(name, kind),
        }
    }

    /// All native properties that apply and have a value, in the order of `zfs get all`, then the
    /// user properties.
    pub fn properties(&self) -> Result<Vec<Property>, DatasetError> {
        let mut properties = Vec::new();
        for name in NATIVE_ORDER {
            properties.extend(self.property(name)?);
        }
        for name in self.user_property_names()? {
            properties.push(self.user_property(&name)?);
        }
        Ok(properties)
    }

    /// A property whose value is a number; 0 when it has none.
    pub fn number(&self, name: &str) -> Result<u64, DatasetError> {
        Ok(match self.property(name)?.and_then(|property| property.value) {
            Some(PropertyValue::Number(number)) => number,
            _ => 0,
        })
    }

    /// The number in force of a property that is kept as a number, in the format's encoding; `None`
    /// for properties that are not.
    pub fn stored_number(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        let Some(native) = NativeProperty::find(name) else { return Ok(None) };
        let found = self.lookup(native.name, native.inheritance)?;
        let stored = found.value.and_then(|(value, _)| value.first_u64());
        Ok(stored.or_else(|| native.default_number()))
    }

    /// A property whose value is text; empty when it has none.
    pub fn text(&self, name: &str) -> Result<String, DatasetError> {
        Ok(match self.property(name)?.and_then(|property| property.value) {
            Some(PropertyValue::Text(text)) => text,
            _ => String::new(),
        })
    }

    /// A property that is kept in ZAPs, by the table.
    fn settable(
        &self,
        native: &NativeProperty,
        kind: DatasetKind,
    ) -> Result<Option<Property>, DatasetError> {
        match self.kept_elsewhere(native.name, kind)? {
            Kept::InProperties => {}
            Kept::Elsewhere(property) => return Ok(Some(property)),
            Kept::Nowhere => return Ok(None),
        }
        let found = self.lookup(native.name, native.inheritance)?;
        let received = found.received.map(|value| native.form.show(&value));
        let (value, source) = match found.value {
            Some((value, source)) => (native.form.show(&value), source),
            None => (native.default_value(), PropertySource::Default),
        };
        let value = match native.name {
            "mountpoint" => PropertyValue::Text(self.mountpoint(value, &source)),
            _ => value,
        };
        Ok(Some(Property { name: native.name.to_owned(), value: Some(value), source, received }))
    }

    /// Where the file system goes: below the mount point that it inherits, or at `/POOL`.
    fn mountpoint(&self, value: PropertyValue, source: &PropertySource) -> String {
        let below = |root: &str, ancestor: &str| {
            let rest = self.name().strip_prefix(ancestor).unwrap_or_default();
            match (root, rest) {
                ("none" | "legacy", _) => root.to_owned(),
                ("/", rest) if !rest.is_empty() => rest.to_owned(),
                (root, rest) => format!("{root}{rest}"),
            }
        };
        match (value, source) {
            (PropertyValue::Text(root), PropertySource::Inherited(ancestor)) => {
                below(&root, ancestor)
            }
            (_, PropertySource::Default) => format!("/{}", self.name()),
            (PropertyValue::Text(path), _) => path,
            (PropertyValue::Number(_), _) => String::new(),
        }
    }
}
