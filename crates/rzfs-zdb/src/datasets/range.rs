//! The objects on a command line: `5`, `5:20`, `5:-1:fd`.

use crate::error::ZdbError;
use rzfs_format::ObjectId;
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use std::str::FromStr;

/// The kinds of objects to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Kinds {
    directories: bool,
    files: bool,
    space_maps: bool,
    zaps: bool,
    others: bool,
}

impl Kinds {
    const ALL: Self =
        Self { directories: true, files: true, space_maps: true, zaps: true, others: true };
}

/// A range of object numbers with the kinds of objects to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ObjectRange {
    first: ObjectId,
    last: ObjectId,
    kinds: Kinds,
    single: bool,
}

impl ObjectRange {
    /// The number, if it is a single object.
    pub(super) fn single(&self) -> Option<ObjectId> {
        self.single.then_some(self.first)
    }

    /// The first number.
    pub(super) fn first(&self) -> ObjectId {
        ObjectId(self.first.0.max(1))
    }

    /// Whether a number is in the range.
    pub(super) fn contains(&self, id: ObjectId) -> bool {
        (self.first..=self.last).contains(&id)
    }

    /// Whether an object is of a kind to be shown.
    pub(super) fn shows(&self, dnode: &Dnode) -> bool {
        match dnode.object_type {
            ObjectType::DIRECTORY_CONTENTS => self.kinds.directories,
            ObjectType::PLAIN_FILE_CONTENTS => self.kinds.files,
            ObjectType::SPACE_MAP => self.kinds.space_maps,
            other if is_plain_zap(other) => self.kinds.zaps,
            _ => self.kinds.others,
        }
    }
}

/// Whether objects of this type are ZAPs without a more specific type.
fn is_plain_zap(object_type: ObjectType) -> bool {
    object_type == ObjectType::ZAP_OTHER || object_type.is_self_described() && object_type.is_zap()
}

/// Parses a number as C does: decimal, octal with a leading 0, hex with 0x; negative ones count
/// from the end.
pub(super) fn number(text: &str) -> Option<u64> {
    if let Some(negative) = text.strip_prefix('-') {
        return number(negative).map(u64::wrapping_neg);
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

/// Parses flags to kinds; those after a `-` are excluded. No kind at all means all.
fn kinds(flags: &str) -> Result<Kinds, &'static str> {
    let mut kinds = Kinds::default();
    let mut set = true;
    for flag in flags.chars() {
        match flag {
            '-' => {
                set = false;
                continue;
            }
            'A' => kinds = if set { Kinds::ALL } else { Kinds::default() },
            'd' => kinds.directories = set,
            'f' => kinds.files = set,
            'm' => kinds.space_maps = set,
            'z' => kinds.zaps = set,
            _ => return Err("Invalid flag"),
        }
        set = true;
    }
    if !set {
        return Err("Invalid trailing negation operator");
    }
    Ok(if kinds == Kinds::default() { Kinds::ALL } else { kinds })
}

impl FromStr for ObjectRange {
    type Err = ZdbError;

    fn from_str(text: &str) -> Result<Self, ZdbError> {
        let parsed = parse(text);
        parsed.map_err(|reason| ZdbError::BadRange { range: text.to_owned(), reason })
    }
}

fn parse(text: &str) -> Result<ObjectRange, &'static str> {
    if text.starts_with(':') {
        return Err("Invalid leading colon");
    }
    if text.ends_with(':') {
        return Err("Invalid trailing colon");
    }
    let id = |text: &str, reason| number(text).map(ObjectId).ok_or(reason);
    let mut parts = text.splitn(4, ':');
    let first = parts.next().unwrap_or_default();
    let Some(last) = parts.next() else {
        let first = id(first, "Invalid characters in object ID")?;
        return Ok(ObjectRange { first, last: first, kinds: Kinds::ALL, single: true });
    };
    let first = id(first, "Invalid characters in start object ID")?;
    let last = id(last, "Invalid characters in end object ID")?;
    if last < first {
        return Err("Start object ID may not exceed end object ID");
    }
    let kinds = parts.next().map_or(Ok(Kinds::ALL), kinds)?;
    if parts.next().is_some() {
        return Err("Invalid colon-delimited field after flags");
    }
    Ok(ObjectRange { first, last, kinds, single: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ranges_and_kinds() {
        let range = |text: &str| text.parse::<ObjectRange>();
        assert_eq!(range("5").unwrap().single(), Some(ObjectId(5)));
        let files = range("0:-1:f").unwrap();
        assert_eq!((files.first(), files.last), (ObjectId(1), ObjectId(u64::MAX)));
        assert_eq!(files.kinds, Kinds { files: true, ..Kinds::default() });
        assert_eq!(range("1:0x20:-z").unwrap().kinds, Kinds::ALL, "nothing is everything");
        assert_eq!(range("1:2:A-m").unwrap().kinds, Kinds { space_maps: false, ..Kinds::ALL });
        for (wrong, reason) in [
            ("", "Invalid characters in object ID"),
            ("7x", "Invalid characters in object ID"),
            ("5:", "Invalid trailing colon"),
            (":5", "Invalid leading colon"),
            ("7:5", "Start object ID may not exceed end object ID"),
            ("1::f", "Invalid characters in end object ID"),
            ("1:2:q", "Invalid flag"),
            ("1:2:f-", "Invalid trailing negation operator"),
            ("1:2:f:3", "Invalid colon-delimited field after flags"),
        ] {
            let text = range(wrong).unwrap_err().to_string();
            assert_eq!(text, format!("Bad object or range: '{wrong}': {reason}\n"));
        }
    }
}
