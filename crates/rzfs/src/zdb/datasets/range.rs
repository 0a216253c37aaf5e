//! The objects that a command line names: `5`, `5:20`, `5:-1:fd`.

use crate::zdb::error::ZdbError;
use rzfs_format::ObjectId;
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use std::str::FromStr;

/// Which kinds of objects are shown.
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

/// A range of object numbers with the kinds of objects that are shown of it.
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

    /// Whether an object is of the kinds that are shown.
    pub(super) fn shows(&self, dnode: &Dnode) -> bool {
        match dnode.object_type {
            ObjectType::DIRECTORY_CONTENTS => self.kinds.directories,
            ObjectType::PLAIN_FILE_CONTENTS => self.kinds.files,
            ObjectType::SPACE_MAP => self.kinds.space_maps,
            other if other.is_zap() => self.kinds.zaps,
            _ => self.kinds.others,
        }
    }
}

/// A number as C reads it: decimal, octal with a leading 0, hex with 0x, or -1 for the last.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text == "-1" => Some(u64::MAX),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

fn kinds(flags: &str) -> Option<Kinds> {
    let mut kinds = Kinds::default();
    let mut set = true;
    let mut all_but = false;
    for (index, flag) in flags.chars().enumerate() {
        match flag {
            '+' => set = true,
            '-' => {
                set = false;
                all_but |= index == 0;
            }
            'A' => kinds = if set { Kinds::ALL } else { Kinds::default() },
            _ => {}
        }
        if all_but && index == 0 {
            kinds = Kinds::ALL;
        }
        match flag {
            'd' => kinds.directories = set,
            'f' => kinds.files = set,
            'm' => kinds.space_maps = set,
            'z' => kinds.zaps = set,
            '+' | '-' | 'A' => {}
            _ => return None,
        }
    }
    Some(kinds)
}

impl FromStr for ObjectRange {
    type Err = ZdbError;

    fn from_str(text: &str) -> Result<Self, ZdbError> {
        let invalid = || ZdbError::Usage(format!("Invalid object range '{text}'"));
        let mut parts = text.split(':');
        let first = parts.next().and_then(number).map(ObjectId).ok_or_else(invalid)?;
        let Some(last) = parts.next() else {
            return Ok(Self { first, last: first, kinds: Kinds::ALL, single: true });
        };
        let last = number(last).map(ObjectId).ok_or_else(invalid)?;
        let kinds = match parts.next() {
            None => Kinds::ALL,
            Some(flags) => kinds(flags).ok_or_else(invalid)?,
        };
        if parts.next().is_some() || last < first {
            return Err(invalid());
        }
        Ok(Self { first, last, kinds, single: false })
    }
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
        assert_eq!(range("1:0x20:-z").unwrap().kinds, Kinds { zaps: false, ..Kinds::ALL });
        assert_eq!(range("1:2:A-m").unwrap().kinds, Kinds { space_maps: false, ..Kinds::ALL });
        for wrong in ["", "x", "5:", "7:5", "1:2:q", "1:2:f:3", "-2"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
