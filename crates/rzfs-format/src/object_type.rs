//! DMU object types (spec 02, section 3).

use crate::FormatError;

/// The type of a DMU object; valid by construction.
///
/// Numbers below 0x80 index the fixed table; from 0x80 on the number describes itself
/// (metadata, encrypted, byte-swap class).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectType(u8);

const NEW_STYLE: u8 = 0x80;
const NEW_STYLE_METADATA: u8 = 0x40;
const NEW_STYLE_ENCRYPTED: u8 = 0x20;
const NEW_STYLE_SWAP_MASK: u8 = 0x1f;

/// How the contents of an object are laid out, as far as byte order goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteSwapClass {
    /// Bytes.
    Uint8,
    /// 16-bit numbers.
    Uint16,
    /// 32-bit numbers.
    Uint32,
    /// 64-bit numbers.
    Uint64,
    /// ZAP blocks.
    Zap,
    /// Dnodes.
    Dnode,
    /// An objset block.
    Objset,
    /// Legacy znodes.
    Znode,
    /// Version-0 access control entries.
    OldAcl,
    /// Access control entries.
    Acl,
}

use ByteSwapClass as Swap;

struct TypeInfo {
    name: &'static str,
    swap: Swap,
    metadata: bool,
    encrypted: bool,
}

const fn info(name: &'static str, swap: Swap, metadata: bool, encrypted: bool) -> TypeInfo {
    TypeInfo { name, swap, metadata, encrypted }
}

/// Names are the ones that `zdb` prints.
const TABLE: [TypeInfo; 54] = [
    info("unallocated", Swap::Uint8, true, false),
    info("object directory", Swap::Zap, true, false),
    info("object array", Swap::Uint64, true, false),
    info("packed nvlist", Swap::Uint8, true, false),
    info("packed nvlist size", Swap::Uint64, true, false),
    info("bpobj", Swap::Uint64, true, false),
    info("bpobj header", Swap::Uint64, true, false),
    info("SPA space map header", Swap::Uint64, true, false),
    info("SPA space map", Swap::Uint64, true, false),
    info("ZIL intent log", Swap::Uint64, true, true),
    info("DMU dnode", Swap::Dnode, true, true),
    info("DMU objset", Swap::Objset, true, false),
    info("DSL directory", Swap::Uint64, true, false),
    info("DSL directory child map", Swap::Zap, true, false),
    info("DSL dataset snap map", Swap::Zap, true, false),
    info("DSL props", Swap::Zap, true, false),
    info("DSL dataset", Swap::Uint64, true, false),
    info("ZFS znode", Swap::Znode, true, false),
    info("ZFS V0 ACL", Swap::OldAcl, true, true),
    info("ZFS plain file", Swap::Uint8, false, true),
    info("ZFS directory", Swap::Zap, true, true),
    info("ZFS master node", Swap::Zap, true, false),
    info("ZFS delete queue", Swap::Zap, true, true),
    info("zvol object", Swap::Uint8, false, true),
    info("zvol prop", Swap::Zap, true, false),
    info("other uint8[]", Swap::Uint8, false, true),
    info("other uint64[]", Swap::Uint64, false, true),
    info("other ZAP", Swap::Zap, true, false),
    info("persistent error log", Swap::Zap, true, false),
    info("SPA history", Swap::Uint8, true, false),
    info("SPA history offsets", Swap::Uint64, true, false),
    info("Pool properties", Swap::Zap, true, false),
    info("DSL permissions", Swap::Zap, true, false),
    info("ZFS ACL", Swap::Acl, true, true),
    info("ZFS SYSACL", Swap::Uint8, true, true),
    info("FUID table", Swap::Uint8, true, true),
    info("FUID table size", Swap::Uint64, true, false),
    info("DSL dataset next clones", Swap::Zap, true, false),
    info("scan work queue", Swap::Zap, true, false),
    info("ZFS user/group/project used", Swap::Zap, true, true),
    info("ZFS user/group/project quota", Swap::Zap, true, true),
    info("snapshot refcount tags", Swap::Zap, true, false),
    info("DDT ZAP algorithm", Swap::Zap, true, false),
    info("DDT statistics", Swap::Zap, true, false),
    info("System attributes", Swap::Uint8, true, true),
    info("SA master node", Swap::Zap, true, true),
    info("SA attr registration", Swap::Zap, true, true),
    info("SA attr layouts", Swap::Zap, true, true),
    info("scan translations", Swap::Zap, true, false),
    info("deduplicated block", Swap::Uint8, false, true),
    info("DSL deadlist map", Swap::Zap, true, false),
    info("DSL deadlist map hdr", Swap::Uint64, true, false),
    info("DSL dir clones", Swap::Zap, true, false),
    info("bpobj subobj", Swap::Uint64, true, false),
];

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl ObjectType {
            $($(#[$doc])* pub const $name: Self = Self($number);)*
        }
    };
}

types! {
    /// A free dnode slot.
    NONE = 0;
    /// The MOS's object directory.
    OBJECT_DIRECTORY = 1;
    /// An array of object numbers.
    OBJECT_ARRAY = 2;
    /// A packed nvlist.
    PACKED_NVLIST = 3;
    /// Bonus: the size of a packed nvlist.
    PACKED_NVLIST_SIZE = 4;
    /// A list of block pointers.
    BPOBJ = 5;
    /// Bonus: header of a list of block pointers.
    BPOBJ_HDR = 6;
    /// Bonus: header of a space map.
    SPACE_MAP_HEADER = 7;
    /// A space map.
    SPACE_MAP = 8;
    /// A block of the intent log.
    INTENT_LOG = 9;
    /// The meta-dnode.
    DNODE = 10;
    /// An objset's root block.
    OBJSET = 11;
    /// A DSL directory.
    DSL_DIR = 12;
    /// Names of a DSL directory's children.
    DSL_DIR_CHILD_MAP = 13;
    /// Names of a dataset's snapshots.
    DSL_DS_SNAP_MAP = 14;
    /// Local properties.
    DSL_PROPS = 15;
    /// A DSL dataset.
    DSL_DATASET = 16;
    /// Bonus: a legacy znode.
    ZNODE = 17;
    /// A version-0 ACL.
    OLD_ACL = 18;
    /// A file's contents.
    PLAIN_FILE_CONTENTS = 19;
    /// A directory's entries.
    DIRECTORY_CONTENTS = 20;
    /// A file system's master node.
    MASTER_NODE = 21;
    /// Files that are unlinked but open.
    UNLINKED_SET = 22;
    /// A volume's contents.
    ZVOL = 23;
    /// A volume's properties.
    ZVOL_PROP = 24;
    /// Other bytes.
    PLAIN_OTHER = 25;
    /// Other 64-bit numbers.
    UINT64_OTHER = 26;
    /// Another ZAP.
    ZAP_OTHER = 27;
    /// The persistent error log.
    ERROR_LOG = 28;
    /// The pool's history.
    SPA_HISTORY = 29;
    /// Bonus: offsets of the pool's history.
    SPA_HISTORY_OFFSETS = 30;
    /// The pool's properties.
    POOL_PROPS = 31;
    /// Delegated permissions.
    DSL_PERMS = 32;
    /// An ACL.
    ACL = 33;
    /// Bonus: an ACL of the system.
    SYSACL = 34;
    /// The FUID table.
    FUID = 35;
    /// Bonus: size of the FUID table.
    FUID_SIZE = 36;
    /// Clones of a snapshot.
    NEXT_CLONES = 37;
    /// The scan's queue.
    SCAN_QUEUE = 38;
    /// Space used by user, group or project.
    USERGROUP_USED = 39;
    /// Quotas of users, groups or projects.
    USERGROUP_QUOTA = 40;
    /// User holds.
    USERREFS = 41;
    /// A dedup table.
    DDT_ZAP = 42;
    /// Statistics of a dedup table.
    DDT_STATS = 43;
    /// System attributes (bonus and spill).
    SA = 44;
    /// The master node of system attributes.
    SA_MASTER_NODE = 45;
    /// The registry of system attributes.
    SA_ATTR_REGISTRATION = 46;
    /// The layouts of system attributes.
    SA_ATTR_LAYOUTS = 47;
    /// The scan's translations.
    SCAN_XLATE = 48;
    /// A block pointer made up from a dedup-table entry.
    DEDUP = 49;
    /// A dead list.
    DEADLIST = 50;
    /// Bonus: header of a dead list.
    DEADLIST_HDR = 51;
    /// Clones below a DSL directory.
    DSL_CLONES = 52;
    /// Sub-objects of a list of block pointers.
    BPOBJ_SUBOBJ = 53;
    /// New style: numbers that are metadata.
    UINT64_METADATA = 0xC3;
    /// New style: a ZAP that is metadata.
    ZAP_METADATA = 0xC4;
}

impl ObjectType {
    /// The type with this number, if the format knows it (spec 02, section 2.12, check 1).
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        let valid = if number & NEW_STYLE == 0 {
            usize::from(number) < TABLE.len()
        } else {
            number & NEW_STYLE_SWAP_MASK < 10
        };
        if valid {
            Ok(Self(number))
        } else {
            Err(FormatError::field("object type", "number", number))
        }
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    fn table(self) -> Option<&'static TypeInfo> {
        if self.0 & NEW_STYLE == 0 { TABLE.get(usize::from(self.0)) } else { None }
    }

    /// Whether the number describes itself instead of standing in the table.
    #[must_use]
    pub const fn is_self_described(self) -> bool {
        self.0 & NEW_STYLE != 0
    }

    /// Whether the contents are metadata.
    #[must_use]
    pub fn is_metadata(self) -> bool {
        self.table().map_or(self.0 & NEW_STYLE_METADATA != 0, |info| info.metadata)
    }

    /// Whether encrypted datasets encrypt the contents.
    #[must_use]
    pub fn is_encrypted(self) -> bool {
        self.table().map_or(self.0 & NEW_STYLE_ENCRYPTED != 0, |info| info.encrypted)
    }

    /// How the contents are laid out, as far as byte order goes.
    #[must_use]
    pub fn byte_swap_class(self) -> ByteSwapClass {
        match (self.table(), self.0 & NEW_STYLE_SWAP_MASK) {
            (Some(info), _) => info.swap,
            (None, 0) => Swap::Uint8,
            (None, 1) => Swap::Uint16,
            (None, 2) => Swap::Uint32,
            (None, 3) => Swap::Uint64,
            (None, 4) => Swap::Zap,
            (None, 5) => Swap::Dnode,
            (None, 6) => Swap::Objset,
            (None, 7) => Swap::Znode,
            (None, 8) => Swap::OldAcl,
            (None, _) => Swap::Acl,
        }
    }

    /// Whether objects of this type hold a ZAP.
    #[must_use]
    pub fn is_zap(self) -> bool {
        self.byte_swap_class() == Swap::Zap
    }

    /// The name that `zdb` prints; for types that only say how their data is swapped, that of the
    /// swap.
    #[must_use]
    pub fn name(self) -> &'static str {
        if let Some(info) = self.table() {
            return info.name;
        }
        match self.byte_swap_class() {
            Swap::Uint8 => "uint8",
            Swap::Uint16 => "uint16",
            Swap::Uint32 => "uint32",
            Swap::Uint64 => "uint64",
            Swap::Zap => "zap",
            Swap::Dnode => "dnode",
            Swap::Objset => "objset",
            Swap::Znode => "znode",
            Swap::OldAcl => "oldacl",
            Swap::Acl => "acl",
        }
    }
}
