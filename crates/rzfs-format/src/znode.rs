//! The attributes of a file, from either of the format's two stores (spec 05, sections 2 to 6).
//!
//! - Bonus type SA: system attributes, see [`crate::sa`].
//! - Bonus type ZNODE, from version 1 to 4 and in files that were never converted since:
//!
//! ```text
//!   0 atime  16 mtime  32 ctime  48 crtime  64 gen  72 mode  80 size  88 parent  96 links
//! 104 xattr 112 rdev  120 flags 128 uid    136 gid 144 pad 176 ACL (88) 264 link target | scanstamp
//! ```

use crate::FormatError;
use crate::acl::ZnodeAcl;
use crate::dirent::FileKind;
use crate::endian::{ByteOrder, Fields};
use crate::fuid::Fuid;
use crate::sa::{Attribute, SaBuffer, SaValue};
use crate::units::ObjectId;

/// Bytes of a legacy znode without its tail.
pub const LEGACY_SIZE: usize = 264;
/// The longest target of a symbolic link that any reader accepts, in bytes.
pub const MAX_LINK_TARGET: u64 = 65535;

const WHAT: &str = "znode";
const LEGACY_ACL_OFFSET: usize = 176;

/// The version of a file system's format, as the master node has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZplVersion(u8);

impl ZplVersion {
    /// The first version.
    pub const INITIAL: Self = Self(1);
    /// Directory entries carry types.
    pub const DIRENT_TYPE: Self = Self(2);
    /// FUIDs, case folding, flags of Windows.
    pub const FUID: Self = Self(3);
    /// Accounting by user and group.
    pub const USERSPACE: Self = Self(4);
    /// System attributes.
    pub const SA: Self = Self(5);

    /// The version with this number, 1 to 5.
    pub fn from_number(number: u64) -> Result<Self, FormatError> {
        match number {
            1..=5 => Ok(Self(number as u8)),
            _ => Err(FormatError::field("master node", "VERSION", number)),
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 as u64
    }

    /// The newest version that a pool of this version may have.
    #[must_use]
    pub const fn newest_of_pool(pool_version: u64) -> Self {
        match pool_version {
            0..9 => Self::DIRENT_TYPE,
            9..15 => Self::FUID,
            15..24 => Self::USERSPACE,
            _ => Self::SA,
        }
    }
}

/// Flags of a file (`ZPL_FLAGS`; spec 05, section 6.1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct FileFlags(pub u64);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl FileFlags {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every flag with its name, from the lowest bit up.
            pub const NAMED: &'static [(Self, &'static str)] =
                &[$((Self::$name, stringify!($name))),*];
        }
    };
}

flags! {
    /// An xattr directory or a file in one.
    XATTR = 0x1;
    /// The ACL has entries to inherit.
    INHERIT_ACE = 0x2;
    /// The ACL says what the mode says.
    ACL_TRIVIAL = 0x4;
    /// The ACL has object entries.
    ACL_OBJ_ACE = 0x8;
    /// The ACL is protected from inheritance.
    ACL_PROTECTED = 0x10;
    /// The ACL was defaulted.
    ACL_DEFAULTED = 0x20;
    /// The ACL was inherited.
    ACL_AUTO_INHERIT = 0x40;
    /// The tail of the legacy bonus is a scanstamp.
    BONUS_SCANSTAMP = 0x80;
    /// No entry denies execution to anyone.
    NO_EXECS_DENIED = 0x100;
    /// Read-only, as DOS knows it.
    READONLY = 0x1_0000_0000;
    /// Hidden.
    HIDDEN = 0x2_0000_0000;
    /// System file.
    SYSTEM = 0x4_0000_0000;
    /// To be archived.
    ARCHIVE = 0x8_0000_0000;
    /// Cannot change.
    IMMUTABLE = 0x10_0000_0000;
    /// Cannot be unlinked.
    NOUNLINK = 0x20_0000_0000;
    /// Can only grow.
    APPENDONLY = 0x40_0000_0000;
    /// Not to be dumped.
    NODUMP = 0x80_0000_0000;
    /// Opaque in a union.
    OPAQUE = 0x100_0000_0000;
    /// A virus was found.
    AV_QUARANTINED = 0x200_0000_0000;
    /// Changed since the last scan for viruses.
    AV_MODIFIED = 0x400_0000_0000;
    /// A reparse point.
    REPARSE = 0x800_0000_0000;
    /// Offline.
    OFFLINE = 0x1000_0000_0000;
    /// Sparse.
    SPARSE = 0x2000_0000_0000;
    /// Children inherit the project id.
    PROJINHERIT = 0x4000_0000_0000;
    /// The object has a project id.
    PROJID = 0x8000_0000_0000;
}

impl FileFlags {
    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags but those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A time as stored: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp {
    /// Seconds; before 1970 negative.
    pub seconds: i64,
    /// Nanoseconds of the second, below 10^9.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Decodes the two words of a time. Nanoseconds beyond a second are clamped.
    #[must_use]
    pub fn decode([seconds, nanoseconds]: [u64; 2]) -> Self {
        Self { seconds: seconds as i64, nanoseconds: nanoseconds.min(999_999_999) as u32 }
    }

    /// The two words.
    #[must_use]
    pub const fn encode(self) -> [u64; 2] {
        [self.seconds as u64, self.nanoseconds as u64]
    }
}

/// A device's major and minor number.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device of the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes `ZPL_RDEV` as OpenZFS on Linux shows it: the low 32 bits, `major << 20 | minor`.
    /// Systems whose numbers have 64 bits write others; they name no device of this one.
    #[must_use]
    pub const fn decode(value: u64) -> Self {
        let value = value as u32;
        Self { major: value >> 20, minor: value & 0xf_ffff }
    }

    /// The number as Linux writes it; majors have 12 bits and minors 20.
    #[must_use]
    pub const fn encode(self) -> u64 {
        (self.major as u64) << 20 | (self.minor as u64) & 0xf_ffff
    }
}

/// The attributes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Znode {
    /// What kind of file it is.
    pub kind: FileKind,
    /// `st_mode`: the kind's type bits and twelve permission bits.
    pub mode: u32,
    /// Length of a file in bytes; entries + 2 of a directory; length of a link's target.
    pub size: u64,
    /// The txg of creation: the generation number.
    pub generation: u64,
    /// Link count.
    pub links: u64,
    /// The directory of the last link; the owner of an xattr directory.
    pub parent: ObjectId,
    /// Flags.
    pub flags: FileFlags,
    /// Owner.
    pub uid: Fuid,
    /// Group.
    pub gid: Fuid,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of an attribute.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Device number; zero for what is no device.
    pub device: DeviceNumber,
    /// Project id, 0 by default.
    pub project: u64,
    /// Modification counter, where one is kept.
    pub sequence: Option<u64>,
    /// The xattr directory.
    pub xattr: Option<ObjectId>,
}

impl Znode {
    /// The attributes from a bonus of type SA and, where one is, the spill block.
    pub fn from_sa(
        bonus: &SaBuffer<'_>,
        spill: Option<&SaBuffer<'_>>,
    ) -> Result<Self, FormatError> {
        let mut found = SaValues::default();
        found.take(bonus)?;
        if let Some(spill) = spill {
            found.take(spill)?;
        }
        let mode = found.u64(Attribute::Mode)?;
        let flags = FileFlags(found.u64(Attribute::Flags)?);
        let has_project = flags.contains(FileFlags::PROJID);
        Self {
            kind: kind_of(mode)?,
            mode: mode as u32,
            size: found.u64(Attribute::Size)?,
            generation: found.u64(Attribute::Gen)?,
            links: found.u64(Attribute::Links)?,
            parent: ObjectId(found.u64(Attribute::Parent)?),
            flags,
            uid: Fuid(found.u64(Attribute::Uid)?),
            gid: Fuid(found.u64(Attribute::Gid)?),
            atime: found.time(Attribute::Atime)?,
            mtime: found.time(Attribute::Mtime)?,
            ctime: found.time(Attribute::Ctime)?,
            crtime: found.time(Attribute::Crtime)?,
            device: DeviceNumber::decode(found.optional(Attribute::Rdev)?.unwrap_or(0)),
            project: found.optional(Attribute::Projid)?.filter(|_| has_project).unwrap_or(0),
            sequence: found.optional(Attribute::Seq)?,
            xattr: found.optional(Attribute::Xattr)?.map(ObjectId).and_then(ObjectId::non_zero),
        }
        .checked()
    }

    fn checked(self) -> Result<Self, FormatError> {
        if i64::try_from(self.size).is_err() {
            return Err(FormatError::field(WHAT, "size", self.size));
        }
        Ok(self)
    }

    /// Whether this is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

fn kind_of(mode: u64) -> Result<FileKind, FormatError> {
    let bad = || FormatError::field(WHAT, "mode", mode);
    let mode = u32::try_from(mode).ok().filter(|mode| mode >> 16 == 0).ok_or_else(bad)?;
    FileKind::from_mode(mode).ok_or_else(bad)
}

/// The values of one object's buffers, by attribute.
#[derive(Default)]
struct SaValues<'a> {
    values: [Option<SaValue<'a>>; Attribute::ALL.len()],
}

impl<'a> SaValues<'a> {
    fn take(&mut self, buffer: &SaBuffer<'a>) -> Result<(), FormatError> {
        for value in buffer.values() {
            let Some(attribute) = value.attribute else { continue };
            if let Some(slot) = self.values.get_mut(attribute.index())
                && slot.replace(value).is_some()
            {
                return Err(FormatError::field(WHAT, "repeated attribute", value.number.0));
            }
        }
        Ok(())
    }

    fn value(&self, attribute: Attribute) -> Option<&SaValue<'a>> {
        self.values.get(attribute.index()).and_then(Option::as_ref)
    }

    fn required(&self, attribute: Attribute) -> Result<&SaValue<'a>, FormatError> {
        self.value(attribute)
            .ok_or_else(|| FormatError::field(WHAT, "missing attribute", attribute.index() as u64))
    }

    fn u64(&self, attribute: Attribute) -> Result<u64, FormatError> {
        self.required(attribute)?.u64()
    }

    fn time(&self, attribute: Attribute) -> Result<Timestamp, FormatError> {
        Ok(Timestamp::decode(self.required(attribute)?.u64_pair()?))
    }

    fn optional(&self, attribute: Attribute) -> Result<Option<u64>, FormatError> {
        self.value(attribute).map(SaValue::u64).transpose()
    }
}

/// A decoded legacy znode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LegacyZnode<'a> {
    /// The attributes.
    pub znode: Znode,
    /// The ACL or where it is.
    pub acl: ZnodeAcl<'a>,
    /// What follows in the bonus: a link's target or a scanstamp.
    pub tail: &'a [u8],
}

impl<'a> LegacyZnode<'a> {
    /// Decodes a bonus of type ZNODE: at least 264 bytes.
    pub fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let mode = fields.u64(72)?;
        let znode = Znode {
            kind: kind_of(mode)?,
            mode: mode as u32,
            size: fields.u64(80)?,
            generation: fields.u64(64)?,
            links: fields.u64(96)?,
            parent: ObjectId(fields.u64(88)?),
            flags: FileFlags(fields.u64(120)?),
            uid: Fuid(fields.u64(128)?),
            gid: Fuid(fields.u64(136)?),
            atime: Timestamp::decode(fields.u64s(0)?),
            mtime: Timestamp::decode(fields.u64s(16)?),
            ctime: Timestamp::decode(fields.u64s(32)?),
            crtime: Timestamp::decode(fields.u64s(48)?),
            device: DeviceNumber::decode(fields.u64(112)?),
            project: 0,
            sequence: None,
            xattr: ObjectId(fields.u64(104)?).non_zero(),
        }
        .checked()?;
        Ok(Self {
            znode,
            acl: ZnodeAcl::decode(fields.bytes(LEGACY_ACL_OFFSET, ZnodeAcl::SIZE)?, order)?,
            tail: fields.bytes(LEGACY_SIZE, bytes.len().saturating_sub(LEGACY_SIZE))?,
        })
    }

    /// The target of a symbolic link, when the bonus holds it; a longer one is in the object's
    /// first data block.
    #[must_use]
    pub fn link_target(&self) -> Option<&'a [u8]> {
        usize::try_from(self.znode.size).ok().and_then(|size| self.tail.get(..size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endian::FieldsMut;
    use proptest::prelude::*;

    fn legacy(order: ByteOrder) -> Vec<u8> {
        let mut bytes = vec![0; 320];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64s(16, &[(-1_i64) as u64, 7]);
        fields.set_u64(64, 6);
        fields.set_u64(72, 0o104_755);
        fields.set_u64(80, 6);
        fields.set_u64(88, 0x21);
        fields.set_u64(96, 1);
        fields.set_u64(104, 0x84);
        fields.set_u64(120, 0x104);
        fields.set_u64(128, 1000);
        fields.set_u32(184, 3);
        fields.set_u16(190, 36);
        fields.set_bytes(264, b"target");
        bytes
    }

    #[test]
    fn legacy_znode_of_the_spec_decodes_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let bytes = legacy(order);
            let legacy = LegacyZnode::decode(&bytes, order).unwrap();
            let znode = &legacy.znode;
            assert_eq!((znode.kind, znode.mode), (FileKind::Regular, 0o104_755));
            assert_eq!((znode.generation, znode.size, znode.links), (6, 6, 1));
            assert_eq!((znode.parent, znode.xattr), (ObjectId(0x21), Some(ObjectId(0x84))));
            assert_eq!(znode.flags, FileFlags(0x104));
            assert_eq!(znode.mtime, Timestamp { seconds: -1, nanoseconds: 7 });
            assert_eq!(znode.uid.to_posix(), 1000);
            assert_eq!(legacy.link_target(), Some(&b"target"[..]));
        }
    }

    #[test]
    fn short_or_impossible_legacy_znodes_are_refused() {
        let good = legacy(ByteOrder::Little);
        for len in [0, 176, 263] {
            assert!(LegacyZnode::decode(&good[..len], ByteOrder::Little).is_err());
        }
        for (offset, byte) in [(72 + 7, 1), (73, 0x31), (87, 0x80)] {
            let mut bytes = good.clone();
            bytes[offset] = byte;
            assert!(LegacyZnode::decode(&bytes, ByteOrder::Little).is_err(), "byte {offset}");
        }
    }

    #[test]
    fn device_numbers_of_the_spec_decode() {
        for (value, major, minor) in
            [(0x50_0001, 5, 1), (0x1031_1170, 259, 70000), (1 << 32 | 2, 0, 2)]
        {
            assert_eq!(DeviceNumber::decode(value), DeviceNumber { major, minor });
        }
        assert_eq!(DeviceNumber { major: 259, minor: 70000 }.encode(), 0x1031_1170);
    }

    #[test]
    fn versions_need_their_pool_versions() {
        let newest = |pool| ZplVersion::newest_of_pool(pool).number();
        assert_eq!([1, 8, 9, 14, 15, 23, 24, 28, 5000].map(newest), [2, 2, 3, 3, 4, 4, 5, 5, 5]);
        assert!(ZplVersion::from_number(0).is_err());
        assert!(ZplVersion::from_number(6).is_err());
    }

    #[test]
    fn wild_nanoseconds_are_clamped() {
        assert_eq!(Timestamp::decode([1, u64::MAX]).nanoseconds, 999_999_999);
    }

    proptest! {
        #[test]
        fn any_bonus_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..330), big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            if let Ok(legacy) = LegacyZnode::decode(&bytes, order) {
                prop_assert!(legacy.link_target().is_none_or(|target| target.len() <= 56 + 10));
            }
        }
    }
}
