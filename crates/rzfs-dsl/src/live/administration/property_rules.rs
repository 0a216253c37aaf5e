//! Valid values of properties (spec 04, sections 13 and 14.1).

use crate::dataset::DatasetKind;
use crate::dataset::property::DatasetProperty;
use crate::live::change_error::ChangeError;
use rzfs_format::property::Storage;
use rzfs_zap::{IntegerSize, ZapValue};

/// Maximum length of a property's name, and of its value with the NUL.
const MAX_NAME: usize = 255;
const MAX_VALUE: usize = 8192;

/// A property that can be stored in a property ZAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// A user property.
    User,
    /// One of OpenZFS.
    Native(DatasetProperty),
}

/// Whether this is a valid user property name.
pub(super) fn is_user_property(name: &str) -> bool {
    let is_valid =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte);
    name.contains(':') && name.bytes().all(is_valid)
}

/// Looks up a property to set on a dataset of this kind.
pub(super) fn known(kind: DatasetKind, name: &str) -> Result<Known, ChangeError> {
    let property = || name.to_owned();
    if name.contains(':') {
        return match (name.len() <= MAX_NAME, is_user_property(name)) {
            (false, _) => Err(ChangeError::PropertyNameTooLong { property: property() }),
            (true, true) => Ok(Known::User),
            (true, false) => Err(ChangeError::UnknownProperty { property: property() }),
        };
    }
    let applies =
        |native: &DatasetProperty| native.is_settable() && native.datasets().include(kind);
    let native = DatasetProperty::from_name(name).filter(applies);
    let native = native.ok_or_else(|| ChangeError::UnknownProperty { property: property() })?;
    match native.storage() {
        Storage::Properties => Ok(Known::Native(native)),
        _ => Err(ChangeError::ReadOnlyProperty { property: property() }),
    }
}

/// Checks a value independently of the pool and dataset.
pub(super) fn check_value(known: Known, name: &str, value: &ZapValue) -> Result<(), ChangeError> {
    let invalid = |problem| ChangeError::InvalidValue { property: name.to_owned(), problem };
    let is_text = match known {
        Known::User => true,
        Known::Native(native) => native.values().is_text(),
    };
    if is_text {
        let bytes = match value.as_bytes() {
            Some(bytes) if value.integer_size() == IntegerSize::One => bytes,
            _ => return Err(invalid("must be a string")),
        };
        return match bytes.split_last() {
            _ if bytes.len() > MAX_VALUE => {
                Err(ChangeError::ValueTooLong { property: name.to_owned() })
            }
            Some((0, text)) if !text.contains(&0) => Ok(()),
            _ => Err(invalid("must be a string")),
        };
    }
    let number = value.first_u64().filter(|_| value.len() == 1);
    let number = number.ok_or_else(|| invalid("must be a number"))?;
    let Known::Native(native) = known else { return Ok(()) };
    native.values().check(number).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: impl Into<ZapValue>) -> Result<(), ChangeError> {
        let known = known(DatasetKind::FileSystem, name)?;
        check_value(known, name, &value.into())
    }

    #[test]
    fn values_are_checked() {
        for (name, number) in
            [("recordsize", 512), ("compression", 16 | 19 << 7), ("copies", 3), ("quota", 5)]
        {
            check(name, number).unwrap();
        }
        for (name, number) in [
            ("recordsize", 3000),
            ("recordsize", 32 << 20),
            ("compression", 15 | 3 << 7),
            ("compression", 16 | 50 << 7),
            ("copies", 4),
            ("atime", 2),
            ("mountpoint", 1),
        ] {
            assert_eq!(check(name, number).unwrap_err().errno(), 22, "{name}={number}");
        }
        check("mountpoint", "/x").unwrap();
        check("com.example:a", "").unwrap();
        assert!(check("com.example:a", 1).is_err());
        assert!(check("Com.example:a", "x").is_err());
        assert_eq!(check("a:b", "x".repeat(8192).as_str()).unwrap_err().errno(), 7);
        check("a:b", "x".repeat(8191).as_str()).unwrap();
    }

    #[test]
    fn properties_that_cannot_be_set_are_refused() {
        for name in ["volsize", "used", "casesensitivity", "nonsense", "encryption"] {
            assert!(known(DatasetKind::FileSystem, name).is_err(), "{name}");
        }
        assert!(known(DatasetKind::Volume, "recordsize").is_err());
        assert!(known(DatasetKind::Snapshot, "compression").is_err());
        assert!(known(DatasetKind::Snapshot, "exec").is_ok());
    }
}
