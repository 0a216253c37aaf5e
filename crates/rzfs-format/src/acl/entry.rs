//! Access control entries of version 1 (spec 05, section 7.2) and 0 (section 4.2).
//!
//! ```text
//! version 1:  0 type  2 flags  4 mask  [8 FUID  [16 object type (16)  32 inherited type (16)]]
//! version 0:  0 who   4 mask   8 flags  10 type
//! ```
//! The owner's, the owning group's and everyone's entries to allow or deny have no FUID.

use crate::FormatError;
use crate::endian::{ByteOrder, Fields};
use crate::fuid::Fuid;

/// Most entries that a list may have.
pub const MAX_ENTRIES: u64 = 1024;

const WHAT: &str = "ACL";
/// Bytes of an entry without FUID.
const ABSTRACT_SIZE: usize = 8;
/// Bytes of an entry with FUID.
const FUID_SIZE: usize = 16;
/// Bytes of an object entry.
const OBJECT_SIZE: usize = 48;
/// Bytes of an entry of version 0.
pub(super) const OLD_SIZE: usize = 12;

/// What an entry does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AceKind {
    /// Allows.
    Allow,
    /// Denies.
    Deny,
    /// Logs.
    Audit,
    /// Alarms.
    Alarm,
    /// Allows, for an object type.
    AllowObject,
    /// Denies, for an object type.
    DenyObject,
    /// Logs, for an object type.
    AuditObject,
    /// Alarms, for an object type.
    AlarmObject,
}

impl AceKind {
    fn from_number(number: u16) -> Result<Self, FormatError> {
        Ok(match number {
            0 => Self::Allow,
            1 => Self::Deny,
            2 => Self::Audit,
            3 => Self::Alarm,
            5 => Self::AllowObject,
            6 => Self::DenyObject,
            7 => Self::AuditObject,
            8 => Self::AlarmObject,
            _ => return Err(FormatError::field(WHAT, "entry type", number)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Allow => 0,
            Self::Deny => 1,
            Self::Audit => 2,
            Self::Alarm => 3,
            Self::AllowObject => 5,
            Self::DenyObject => 6,
            Self::AuditObject => 7,
            Self::AlarmObject => 8,
        }
    }

    const fn has_object(self) -> bool {
        self.number() >= 5
    }

    const fn may_be_abstract(self) -> bool {
        matches!(self, Self::Allow | Self::Deny)
    }
}

/// Flags of an entry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct AceFlags(pub u16);

impl AceFlags {
    /// Files inherit it.
    pub const FILE_INHERIT: u16 = 1;
    /// Directories inherit it.
    pub const DIRECTORY_INHERIT: u16 = 2;
    /// Children's children do not inherit it.
    pub const NO_PROPAGATE: u16 = 4;
    /// It does not apply here.
    pub const INHERIT_ONLY: u16 = 8;
    /// Successful access counts.
    pub const SUCCESSFUL_ACCESS: u16 = 0x10;
    /// Failed access counts.
    pub const FAILED_ACCESS: u16 = 0x20;
    /// The FUID is a group's.
    pub const IDENTIFIER_GROUP: u16 = 0x40;
    /// It was inherited.
    pub const INHERITED: u16 = 0x80;
    /// It is about the owner.
    pub const OWNER: u16 = 0x1000;
    /// It is about the owning group.
    pub const GROUP: u16 = 0x2000;
    /// It is about everyone.
    pub const EVERYONE: u16 = 0x4000;

    /// The bits that say whom an entry is about.
    const WHO: u16 = 0x7040;

    const fn owning_group(self) -> bool {
        self.0 & Self::WHO == Self::GROUP | Self::IDENTIFIER_GROUP
    }

    const fn is_abstract(self) -> bool {
        matches!(self.0 & Self::WHO, Self::OWNER | Self::EVERYONE) || self.owning_group()
    }
}

/// Permissions of an entry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct AccessMask(pub u32);

impl AccessMask {
    /// Read a file, list a directory.
    pub const READ_DATA: u32 = 0x1;
    /// Write a file, add a file to a directory.
    pub const WRITE_DATA: u32 = 0x2;
    /// Append to a file, add a subdirectory.
    pub const APPEND_DATA: u32 = 0x4;
    /// Read extended attributes.
    pub const READ_NAMED_ATTRS: u32 = 0x8;
    /// Write extended attributes.
    pub const WRITE_NAMED_ATTRS: u32 = 0x10;
    /// Execute a file, search a directory.
    pub const EXECUTE: u32 = 0x20;
    /// Delete from a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// Read attributes.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// Write attributes.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// Delete the file.
    pub const DELETE: u32 = 0x1_0000;
    /// Read the ACL.
    pub const READ_ACL: u32 = 0x2_0000;
    /// Write the ACL.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// Change owner and group.
    pub const WRITE_OWNER: u32 = 0x8_0000;
    /// Use the file locally at the server.
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}

/// Whom an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Who {
    /// The owner.
    Owner,
    /// The owning group.
    OwningGroup,
    /// Everyone, owner and group included.
    Everyone,
    /// A user, or with [`AceFlags::IDENTIFIER_GROUP`] a group.
    Id(Fuid),
}

/// The types of an object entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectTypes {
    /// The type that the entry is about.
    pub object: [u8; 16],
    /// The type that inherits it.
    pub inherited: [u8; 16],
}

/// An access control entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ace {
    /// What it does.
    pub kind: AceKind,
    /// Flags.
    pub flags: AceFlags,
    /// Permissions.
    pub mask: AccessMask,
    /// Whom it is about.
    pub who: Who,
    /// Types, in object entries.
    pub object: Option<ObjectTypes>,
}

impl Ace {
    /// Decodes a packed list of version 1 that has `count` entries and nothing else.
    pub fn decode_list(
        bytes: &[u8],
        order: ByteOrder,
        count: u64,
    ) -> Result<Vec<Self>, FormatError> {
        if count > MAX_ENTRIES {
            return Err(FormatError::field(WHAT, "entries", count));
        }
        let list = Self::decode_packed(bytes, order)?;
        if list.len() as u64 != count {
            return Err(FormatError::field(WHAT, "entries", list.len() as u64));
        }
        Ok(list)
    }

    /// Decodes a packed list of version 1 with as many entries as there are.
    pub fn decode_packed(bytes: &[u8], order: ByteOrder) -> Result<Vec<Self>, FormatError> {
        let mut list = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (entry, size) = Self::decode(rest, order)?;
            list.push(entry);
            if list.len() as u64 > MAX_ENTRIES {
                return Err(FormatError::field(WHAT, "entries", list.len() as u64));
            }
            rest = rest.get(size..).unwrap_or_default();
        }
        Ok(list)
    }

    fn decode(bytes: &[u8], order: ByteOrder) -> Result<(Self, usize), FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let kind = AceKind::from_number(fields.u16(0)?)?;
        let flags = AceFlags(fields.u16(2)?);
        let mask = AccessMask(fields.u32(4)?);
        if kind.may_be_abstract() && flags.is_abstract() {
            let who = who_of(flags, Fuid(0));
            return Ok((Self { kind, flags, mask, who, object: None }, ABSTRACT_SIZE));
        }
        let who = who_of(flags, Fuid(fields.u64(8)?));
        if !kind.has_object() {
            return Ok((Self { kind, flags, mask, who, object: None }, FUID_SIZE));
        }
        let object = Some(ObjectTypes { object: fields.array(16)?, inherited: fields.array(32)? });
        Ok((Self { kind, flags, mask, who, object }, OBJECT_SIZE))
    }

    /// Decodes a list of version 0 with `count` entries; bytes after them are ignored.
    pub fn decode_old_list(
        bytes: &[u8],
        order: ByteOrder,
        count: u64,
    ) -> Result<Vec<Self>, FormatError> {
        if count > MAX_ENTRIES {
            return Err(FormatError::field(WHAT, "entries", count));
        }
        let fields = Fields::new(WHAT, bytes, order);
        (0..count as usize)
            .map(|index| {
                let entry = fields.sub(WHAT, index * OLD_SIZE, OLD_SIZE)?;
                let kind = AceKind::from_number(entry.u16(10)?)?;
                if kind.has_object() {
                    return Err(FormatError::field(WHAT, "entry type", kind.number()));
                }
                let flags = AceFlags(entry.u16(8)?);
                let who = who_of(flags, Fuid::posix(entry.u32(0)?));
                Ok(Self { kind, flags, mask: AccessMask(entry.u32(4)?), who, object: None })
            })
            .collect()
    }

    /// The entry that a log says with these numbers, about a local user or group.
    pub(crate) fn of_log(
        (kind, flags, mask): (u16, u16, u32),
        who: u32,
        types: Option<[[u8; 16]; 2]>,
    ) -> Result<Self, FormatError> {
        let kind = AceKind::from_number(kind)?;
        let flags = AceFlags(flags);
        let object = types.map(|[object, inherited]| ObjectTypes { object, inherited });
        let who = who_of(flags, Fuid::posix(who));
        Ok(Self { kind, flags, mask: AccessMask(mask), who, object })
    }

    /// The packed list of version 1.
    #[must_use]
    pub fn encode_list(list: &[Self], order: ByteOrder) -> Vec<u8> {
        let mut out = Vec::new();
        for entry in list {
            out.extend(order.bytes16(entry.kind.number()));
            out.extend(order.bytes16(entry.flags.0));
            out.extend(order.bytes32(entry.mask.0));
            if entry.kind.may_be_abstract() && entry.flags.is_abstract() {
                continue;
            }
            let fuid = if let Who::Id(fuid) = entry.who { fuid } else { Fuid(u64::MAX) };
            out.extend(order.bytes64(fuid.0));
            if entry.kind.has_object() {
                let types =
                    entry.object.unwrap_or(ObjectTypes { object: [0; 16], inherited: [0; 16] });
                out.extend(types.object);
                out.extend(types.inherited);
            }
        }
        out
    }
}

fn who_of(flags: AceFlags, fuid: Fuid) -> Who {
    match flags.0 & AceFlags::WHO {
        AceFlags::OWNER => Who::Owner,
        AceFlags::EVERYONE => Who::Everyone,
        _ if flags.owning_group() => Who::OwningGroup,
        _ => Who::Id(fuid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ace(kind: AceKind, flags: u16, mask: u32) -> Ace {
        let flags = AceFlags(flags);
        Ace { kind, flags, mask: AccessMask(mask), who: who_of(flags, Fuid(0)), object: None }
    }

    #[test]
    fn list_of_the_spec_decodes() {
        let bytes = [
            0x00, 0x00, 0x00, 0x10, 0x9f, 0x01, 0x1e, 0x00, 0x00, 0x00, 0x40, 0x20, 0x89, 0x00,
            0x12, 0x00, 0x00, 0x00, 0x00, 0x40, 0x89, 0x00, 0x12, 0x00,
        ];
        let list = Ace::decode_list(&bytes, ByteOrder::Little, 3).unwrap();
        let expected = [
            ace(AceKind::Allow, 0x1000, 0x1e_019f),
            ace(AceKind::Allow, 0x2040, 0x12_0089),
            ace(AceKind::Allow, 0x4000, 0x12_0089),
        ];
        assert_eq!(list, expected);
        assert_eq!(list[1].who, Who::OwningGroup);
        assert_eq!(Ace::encode_list(&list, ByteOrder::Little), bytes);
        for count in [0, 2, 4, 1025] {
            assert!(Ace::decode_list(&bytes, ByteOrder::Little, count).is_err());
        }
        assert!(Ace::decode_list(&bytes[..23], ByteOrder::Little, 3).is_err());
    }

    #[test]
    fn old_entries_decode() {
        let bytes = [0, 0, 0, 0, 0xbf, 0x01, 0x1e, 0x00, 0x00, 0x10, 0x00, 0x00];
        let list = Ace::decode_old_list(&bytes, ByteOrder::Little, 1).unwrap();
        assert_eq!(list, [ace(AceKind::Allow, 0x1000, 0x1e_01bf)]);
        assert!(Ace::decode_old_list(&bytes, ByteOrder::Little, 2).is_err());
    }

    #[test]
    fn audit_entries_always_have_an_id() {
        let mut bytes = vec![2, 0, 0, 0x10, 1, 0, 0, 0];
        assert!(Ace::decode_list(&bytes, ByteOrder::Little, 1).is_err());
        bytes.extend([0; 8]);
        let list = Ace::decode_list(&bytes, ByteOrder::Little, 1).unwrap();
        assert_eq!((list[0].kind, list[0].who), (AceKind::Audit, Who::Owner));
    }

    fn any_ace() -> impl Strategy<Value = Ace> {
        let kinds = [0_u16, 1, 2, 3, 5, 6, 7, 8];
        (0..8_usize, any::<u16>(), any::<u32>(), any::<u64>(), any::<[u8; 16]>()).prop_map(
            move |(kind, flags, mask, fuid, object)| {
                let kind = AceKind::from_number(kinds[kind]).unwrap();
                let flags = AceFlags(flags);
                let object =
                    kind.has_object().then_some(ObjectTypes { object, inherited: [7; 16] });
                let who = who_of(flags, Fuid(fuid));
                Ace { kind, flags, mask: AccessMask(mask), who, object }
            },
        )
    }

    proptest! {
        #[test]
        fn lists_round_trip(list in proptest::collection::vec(any_ace(), 0..20), big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let bytes = Ace::encode_list(&list, order);
            prop_assert_eq!(Ace::decode_list(&bytes, order, list.len() as u64).unwrap(), list);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Ace::decode_list(&bytes, ByteOrder::Little, 5);
            let _ = Ace::decode_old_list(&bytes, ByteOrder::Big, 5);
        }
    }
}
