//! Bodies of log records, by kind (spec 05, section 10.5).
//!
//! Names are NUL-terminated and lie inside of the record; counts are checked against its length.

use super::attributes::ExtendedAttributes;
use super::kind::RecordKind;
use crate::FormatError;
use crate::acl::{Ace, MAX_ENTRIES};
use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, Fields};
use crate::fuid::Fuid;
use crate::units::ObjectId;
use crate::znode::{DeviceNumber, Timestamp};

/// Bits of the object number in a word that also says how large the dnode is.
const OBJECT_BITS: u64 = (1 << 48) - 1;
const CREATE_SIZE: usize = 104;
const CREATE_ACL_SIZE: usize = 144;
const WRITE_SIZE: usize = 192;
const SETATTR_SIZE: usize = 112;
const CLONE_SIZE: usize = 72;
const LOG_ACE_SIZE: usize = 12;
const LOG_OBJECT_ACE_SIZE: usize = 44;

/// The object that a record creates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewObject {
    /// Its number.
    pub object: ObjectId,
    /// 512-byte slots of its dnode.
    pub slots: u16,
    /// `st_mode` with type bits.
    pub mode: u64,
    /// Owner.
    pub uid: Fuid,
    /// Group.
    pub gid: Fuid,
    /// Generation.
    pub generation: u64,
    /// Creation time.
    pub create_time: Timestamp,
    /// Device number.
    pub device: DeviceNumber,
}

impl NewObject {
    fn decode(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
        let at = |delta: usize| fields.u64(offset + delta);
        let word = at(0)?;
        Ok(Self {
            object: ObjectId(word & OBJECT_BITS),
            slots: (word >> 56) as u16 + 1,
            mode: at(8)?,
            uid: Fuid(at(16)?),
            gid: Fuid(at(24)?),
            generation: at(32)?,
            create_time: Timestamp::decode([at(40)?, at(48)?]),
            device: DeviceNumber::decode(at(56)?),
        })
    }
}

/// Creation of a file, directory, link or xattr directory.
#[derive(Clone, Debug)]
pub struct Create<'a> {
    /// The directory; the owner of an xattr directory.
    pub directory: ObjectId,
    /// The new object.
    pub new: NewObject,
    /// Extended attributes.
    pub attributes: Option<ExtendedAttributes>,
    /// Domains of owner and group, where they have one.
    pub domains: Vec<&'a [u8]>,
    /// The name; empty for an xattr directory.
    pub name: &'a [u8],
    /// The target of a symbolic link; otherwise empty.
    pub target: &'a [u8],
}

/// An access control entry as logs have it: 12 bytes, or 44 with types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogAce {
    /// POSIX id, or index of a FUID.
    pub who: u32,
    /// Permissions.
    pub mask: u32,
    /// Flags.
    pub flags: u16,
    /// Type.
    pub kind: u16,
    /// Types, in object entries.
    pub object: Option<[[u8; 16]; 2]>,
}

/// An ACL with the identities of other domains in it.
#[derive(Clone, Debug)]
pub struct AclRecord<'a> {
    /// Entries.
    pub entries: Vec<LogAce>,
    /// Flags of the list.
    pub flags: u64,
    /// FUIDs that the entries name.
    pub fuids: Vec<Fuid>,
    /// Domains of the FUIDs.
    pub domains: Vec<&'a [u8]>,
}

impl AclRecord<'_> {
    /// The list; `None` when it names users or groups of other domains.
    ///
    /// # Errors
    /// An entry is of no known type.
    pub fn local_list(&self) -> Result<Option<Vec<Ace>>, FormatError> {
        if !self.fuids.is_empty() || !self.domains.is_empty() {
            return Ok(None);
        }
        let entry = |it: &LogAce| Ace::of_log((it.kind, it.flags, it.mask), it.who, it.object);
        self.entries.iter().map(entry).collect::<Result<_, _>>().map(Some)
    }
}

/// Creation of a file or directory with an ACL.
#[derive(Clone, Debug)]
pub struct CreateAcl<'a> {
    /// The directory.
    pub directory: ObjectId,
    /// The new object.
    pub new: NewObject,
    /// The ACL.
    pub acl: AclRecord<'a>,
    /// Extended attributes.
    pub attributes: Option<ExtendedAttributes>,
    /// The name.
    pub name: &'a [u8],
}

/// The whiteout that a rename leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whiteout(pub NewObject);

/// A rename.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Directory of the old name.
    pub from_directory: ObjectId,
    /// Directory of the new name.
    pub to_directory: ObjectId,
    /// Old name.
    pub from: &'a [u8],
    /// New name.
    pub to: &'a [u8],
    /// What takes the old name's place.
    pub whiteout: Option<Whiteout>,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The file.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Where the data is when it is not in the record.
    pub pointer: BlockPointer,
    /// The data; empty when it is at [`Write::pointer`].
    pub data: &'a [u8],
}

impl Write<'_> {
    /// Whether the data is at [`Write::pointer`].
    #[must_use]
    pub const fn is_indirect(&self) -> bool {
        self.data.is_empty()
    }
}

/// A change of attributes.
#[derive(Clone, Debug)]
pub struct SetAttr<'a> {
    /// The file.
    pub object: ObjectId,
    /// Which attributes, in the bits of the platform that wrote the log.
    pub mask: u64,
    /// `st_mode`.
    pub mode: u64,
    /// Owner.
    pub uid: Fuid,
    /// Group.
    pub gid: Fuid,
    /// Length.
    pub size: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Extended attributes.
    pub attributes: Option<ExtendedAttributes>,
    /// Domains of owner and group, where they have one.
    pub domains: Vec<&'a [u8]>,
}

impl SetAttr<'_> {
    /// The mode, as Linux has it.
    pub const MODE: u64 = 0x1;
    /// The owner, as Linux has it.
    pub const UID: u64 = 0x2;
    /// The group, as Linux has it.
    pub const GID: u64 = 0x4;
    /// The length, as Linux has it.
    pub const SIZE: u64 = 0x8;
    /// The access time, as Linux has it.
    pub const ATIME: u64 = 0x10;
    /// The modification time, as Linux has it.
    pub const MTIME: u64 = 0x20;
    /// The change time, as Linux has it.
    pub const CTIME: u64 = 0x40;
    /// The bit of the extended attributes, as Linux has it.
    pub const LINUX_XVATTR: u64 = 0x8000_0000;
    /// The bit of the extended attributes, as illumos and FreeBSD have it.
    pub const ILLUMOS_XVATTR: u64 = 0x1_0000;
}

/// Setting or removing an extended attribute.
#[derive(Clone, Copy, Debug)]
pub struct SetXattr<'a> {
    /// The file.
    pub object: ObjectId,
    /// The name.
    pub name: &'a [u8],
    /// The value; `None` = remove.
    pub value: Option<&'a [u8]>,
}

/// Cloning of blocks into a file.
#[derive(Clone, Debug)]
pub struct CloneRange {
    /// The file.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Block size.
    pub block_size: u64,
    /// The blocks.
    pub pointers: Vec<BlockPointer>,
}

/// The body of a record.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// Creates without an ACL.
    Create(Create<'a>),
    /// Creates with an ACL.
    CreateAcl(CreateAcl<'a>),
    /// Removes a name.
    Remove {
        /// The directory.
        directory: ObjectId,
        /// The name.
        name: &'a [u8],
    },
    /// Adds a name.
    Link {
        /// The directory.
        directory: ObjectId,
        /// The file.
        object: ObjectId,
        /// The name.
        name: &'a [u8],
    },
    /// Renames.
    Rename(Rename<'a>),
    /// Writes.
    Write(Write<'a>),
    /// Frees a range.
    Truncate {
        /// The file.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Number of bytes; 0 = to the end.
        length: u64,
    },
    /// Sets attributes.
    SetAttr(SetAttr<'a>),
    /// Sets the ACL.
    Acl {
        /// The file.
        object: ObjectId,
        /// The list.
        acl: AclRecord<'a>,
    },
    /// Sets an extended attribute.
    SetXattr(SetXattr<'a>),
    /// Clones blocks.
    CloneRange(CloneRange),
}

impl<'a> Body<'a> {
    /// Decodes the body of a record of `kind`; `bytes` are the whole record.
    pub(super) fn decode(
        kind: RecordKind,
        bytes: &'a [u8],
        order: ByteOrder,
    ) -> Result<Self, FormatError> {
        use RecordKind as Kind;
        let fields = Fields::new(kind.name(), bytes, order);
        match kind {
            Kind::Create
            | Kind::Mkdir
            | Kind::MkXattr
            | Kind::Symlink
            | Kind::CreateAttr
            | Kind::MkdirAttr => create(kind, &fields).map(Self::Create),
            Kind::CreateAcl | Kind::CreateAclAttr | Kind::MkdirAcl | Kind::MkdirAclAttr => {
                create_acl(kind, &fields).map(Self::CreateAcl)
            }
            Kind::Remove | Kind::Rmdir => Ok(Self::Remove {
                directory: object(&fields, 32)?,
                name: Strings::new(&fields, 40)?.next()?,
            }),
            Kind::Link => Ok(Self::Link {
                directory: object(&fields, 32)?,
                object: object(&fields, 40)?,
                name: Strings::new(&fields, 48)?.next()?,
            }),
            Kind::Rename | Kind::RenameExchange => rename(&fields, 48, None).map(Self::Rename),
            Kind::RenameWhiteout => {
                let whiteout = Whiteout(NewObject::decode(&fields, 48)?);
                rename(&fields, 112, Some(whiteout)).map(Self::Rename)
            }
            Kind::Write | Kind::Write2 => write(kind, &fields).map(Self::Write),
            Kind::Truncate => {
                let (offset, length) = (fields.u64(40)?, fields.u64(48)?);
                check_range(kind, offset, length)?;
                Ok(Self::Truncate { object: object(&fields, 32)?, offset, length })
            }
            Kind::SetAttr => set_attr(&fields).map(Self::SetAttr),
            Kind::AclV0 => {
                let entries = old_entries(&fields)?;
                let acl = AclRecord { entries, flags: 0, fuids: Vec::new(), domains: Vec::new() };
                Ok(Self::Acl { object: object(&fields, 32)?, acl })
            }
            Kind::Acl => {
                let (acl, _) = acl(&fields, 40, 80)?;
                Ok(Self::Acl { object: object(&fields, 32)?, acl })
            }
            Kind::SetXattr => set_xattr(&fields).map(Self::SetXattr),
            Kind::CloneRange => clone_range(kind, &fields).map(Self::CloneRange),
        }
    }
}

fn object(fields: &Fields<'_>, offset: usize) -> Result<ObjectId, FormatError> {
    Ok(ObjectId(fields.u64(offset)? & OBJECT_BITS))
}

/// Ranges end before 2^63.
fn check_range(kind: RecordKind, offset: u64, length: u64) -> Result<(), FormatError> {
    match offset.checked_add(length).and_then(|end| i64::try_from(end).ok()) {
        Some(_) => Ok(()),
        None => Err(FormatError::field(kind.name(), "offset", offset)),
    }
}

/// The bytes from `offset` to the end of the record.
fn rest<'a>(fields: &Fields<'a>, offset: usize) -> Result<&'a [u8], FormatError> {
    fields.bytes(offset, fields.len().saturating_sub(offset))
}

/// NUL-terminated strings one after another.
struct Strings<'a>(&'a [u8]);

impl<'a> Strings<'a> {
    fn new(fields: &Fields<'a>, offset: usize) -> Result<Self, FormatError> {
        rest(fields, offset).map(Self)
    }

    fn next(&mut self) -> Result<&'a [u8], FormatError> {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| FormatError::invalid("log record", "a name without end"))?;
        let (string, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        Ok(string)
    }
}

/// The domains of owner and group: one string per distinct domain.
fn id_domains<'a>(
    strings: &mut Strings<'a>,
    uid: Fuid,
    gid: Fuid,
) -> Result<Vec<&'a [u8]>, FormatError> {
    let mut count = usize::from(uid.domain() != 0);
    count += usize::from(gid.domain() != 0 && gid.domain() != uid.domain());
    (0..count).map(|_| strings.next()).collect()
}

/// The extended attributes at `offset`, and where they end.
fn attributes(
    fields: &Fields<'_>,
    offset: usize,
) -> Result<(ExtendedAttributes, usize), FormatError> {
    let bytes = fields.bytes(offset, ExtendedAttributes::SIZE)?;
    let attributes = ExtendedAttributes::decode(bytes, fields.order())?;
    Ok((attributes, offset + ExtendedAttributes::SIZE))
}

fn create<'a>(kind: RecordKind, fields: &Fields<'a>) -> Result<Create<'a>, FormatError> {
    let new = NewObject::decode(fields, 40)?;
    let (attributes, end) = if matches!(kind, RecordKind::CreateAttr | RecordKind::MkdirAttr) {
        let (attributes, end) = attributes(fields, CREATE_SIZE)?;
        (Some(attributes), end)
    } else {
        (None, CREATE_SIZE)
    };
    let mut strings = Strings::new(fields, end)?;
    let domains = id_domains(&mut strings, new.uid, new.gid)?;
    let name = strings.next()?;
    let target = if kind == RecordKind::Symlink { strings.next()? } else { &[] };
    Ok(Create { directory: object(fields, 32)?, new, attributes, domains, name, target })
}

fn create_acl<'a>(kind: RecordKind, fields: &Fields<'a>) -> Result<CreateAcl<'a>, FormatError> {
    let has_attributes = matches!(kind, RecordKind::CreateAclAttr | RecordKind::MkdirAclAttr);
    let (attributes, end) = if has_attributes {
        let (attributes, end) = attributes(fields, CREATE_ACL_SIZE)?;
        (Some(attributes), end)
    } else {
        (None, CREATE_ACL_SIZE)
    };
    let (acl, mut strings) = acl(fields, 104, end)?;
    Ok(CreateAcl {
        directory: object(fields, 32)?,
        new: NewObject::decode(fields, 40)?,
        acl,
        attributes,
        name: strings.next()?,
    })
}

/// The ACL whose counts are at `counts` and whose entries are at `entries`, and the strings
/// after its domains.
fn acl<'a>(
    fields: &Fields<'a>,
    counts: usize,
    entries: usize,
) -> Result<(AclRecord<'a>, Strings<'a>), FormatError> {
    let what = "log record ACL";
    let [count, domain_count, fuid_count, size, flags] = fields.u64s(counts)?;
    if count > MAX_ENTRIES || fuid_count > 2 * MAX_ENTRIES || domain_count > fuid_count + 2 {
        return Err(FormatError::field(what, "entries", count));
    }
    let bad_size = || FormatError::field(what, "size", size);
    let size = usize::try_from(size).map_err(|_| bad_size())?;
    let list = fields.bytes(entries, size)?;
    let mut list = Fields::new(what, list, fields.order());
    let mut decoded = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (entry, taken) = log_entry(&list)?;
        decoded.push(entry);
        list = list.sub(what, taken, list.len() - taken)?;
    }
    let mut offset = entries + size.checked_next_multiple_of(8).ok_or_else(bad_size)?;
    let mut fuids = Vec::with_capacity(fuid_count as usize);
    for _ in 0..fuid_count {
        fuids.push(Fuid(fields.u64(offset)?));
        offset += 8;
    }
    let mut strings = Strings::new(fields, offset)?;
    let domains = (0..domain_count).map(|_| strings.next()).collect::<Result<_, _>>()?;
    Ok((AclRecord { entries: decoded, flags, fuids, domains }, strings))
}

fn log_entry(fields: &Fields<'_>) -> Result<(LogAce, usize), FormatError> {
    let kind = fields.u16(10)?;
    let has_object = (5..=8).contains(&kind);
    let object = if has_object { Some([fields.array(12)?, fields.array(28)?]) } else { None };
    let entry =
        LogAce { who: fields.u32(0)?, mask: fields.u32(4)?, flags: fields.u16(8)?, kind, object };
    Ok((entry, if has_object { LOG_OBJECT_ACE_SIZE } else { LOG_ACE_SIZE }))
}

fn old_entries(fields: &Fields<'_>) -> Result<Vec<LogAce>, FormatError> {
    let count = fields.u64(40)?;
    if count > MAX_ENTRIES {
        return Err(FormatError::field("TX_ACL_V0", "entries", count));
    }
    (0..count as usize)
        .map(|index| {
            let entry = fields.sub("TX_ACL_V0", 48 + index * LOG_ACE_SIZE, LOG_ACE_SIZE)?;
            Ok(LogAce {
                who: entry.u32(0)?,
                mask: entry.u32(4)?,
                flags: entry.u16(8)?,
                kind: entry.u16(10)?,
                object: None,
            })
        })
        .collect()
}

fn rename<'a>(
    fields: &Fields<'a>,
    names: usize,
    whiteout: Option<Whiteout>,
) -> Result<Rename<'a>, FormatError> {
    let mut strings = Strings::new(fields, names)?;
    Ok(Rename {
        from_directory: object(fields, 32)?,
        to_directory: object(fields, 40)?,
        from: strings.next()?,
        to: strings.next()?,
        whiteout,
    })
}

fn write<'a>(kind: RecordKind, fields: &Fields<'a>) -> Result<Write<'a>, FormatError> {
    let (offset, length) = (fields.u64(40)?, fields.u64(48)?);
    check_range(kind, offset, length)?;
    let data = rest(fields, WRITE_SIZE)?;
    let data = if data.is_empty() {
        data
    } else {
        usize::try_from(length)
            .ok()
            .filter(|length| *length > 0)
            .and_then(|length| data.get(..length))
            .ok_or_else(|| FormatError::field(kind.name(), "length", length))?
    };
    Ok(Write {
        object: object(fields, 32)?,
        offset,
        length,
        pointer: BlockPointer::decode(fields.bytes(64, BlockPointer::SIZE)?, fields.order())?,
        data,
    })
}

fn set_attr<'a>(fields: &Fields<'a>) -> Result<SetAttr<'a>, FormatError> {
    let mask = fields.u64(40)?;
    let has_attributes = mask & (SetAttr::LINUX_XVATTR | SetAttr::ILLUMOS_XVATTR) != 0;
    let (attributes, end) = if has_attributes {
        let (attributes, end) = attributes(fields, SETATTR_SIZE)?;
        (Some(attributes), end)
    } else {
        (None, SETATTR_SIZE)
    };
    let (uid, gid) = (Fuid(fields.u64(56)?), Fuid(fields.u64(64)?));
    // Ids that the mask leaves out are not meant, so their domains need not be there.
    let domains = id_domains(&mut Strings::new(fields, end)?, uid, gid).unwrap_or_default();
    Ok(SetAttr {
        object: object(fields, 32)?,
        mask,
        mode: fields.u64(48)?,
        uid,
        gid,
        size: fields.u64(72)?,
        atime: Timestamp::decode(fields.u64s(80)?),
        mtime: Timestamp::decode(fields.u64s(96)?),
        attributes,
        domains,
    })
}

fn set_xattr<'a>(fields: &Fields<'a>) -> Result<SetXattr<'a>, FormatError> {
    let size = fields.u64(40)?;
    let mut strings = Strings::new(fields, 48)?;
    let name = strings.next()?;
    let value = usize::try_from(size)
        .ok()
        .and_then(|size| strings.0.get(..size))
        .ok_or_else(|| FormatError::field("TX_SETSAXATTR", "size", size))?;
    let value = if value.is_empty() { None } else { Some(value) };
    Ok(SetXattr { object: object(fields, 32)?, name, value })
}

fn clone_range(kind: RecordKind, fields: &Fields<'_>) -> Result<CloneRange, FormatError> {
    let (offset, length) = (fields.u64(40)?, fields.u64(48)?);
    let (block_size, count) = (fields.u64(56)?, fields.u64(64)?);
    check_range(kind, offset, length)?;
    let covers = count.checked_mul(block_size).is_some_and(|bytes| {
        length <= bytes && length > bytes.saturating_sub(block_size) && offset % block_size == 0
    });
    if block_size == 0 || !covers {
        return Err(FormatError::field(kind.name(), "length", length));
    }
    let pointers = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(BlockPointer::SIZE))
        .ok_or_else(|| FormatError::field(kind.name(), "pointers", count))?;
    let pointers = fields
        .bytes(CLONE_SIZE, pointers)?
        .chunks_exact(BlockPointer::SIZE)
        .map(|bytes| BlockPointer::decode(bytes, fields.order()))
        .collect::<Result<_, _>>()?;
    Ok(CloneRange { object: object(fields, 32)?, offset, length, block_size, pointers })
}

#[cfg(test)]
mod tests;
