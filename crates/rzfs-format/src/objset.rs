//! The root block of an object set (spec 03, section 1.1).
//!
//! ```text
//! 0          512          704    712    720        752      784   1024     1536      2048        2560  4096
//! | meta-dnode | ZIL header | type | flags | portable | local | pad | user   | group   | project    | pad |
//! |            |            |      |       | MAC      | MAC   |     | used   | used    | used       |     |
//! ```
//! Blocks of 1024 and 2048 bytes, from older pools, end before the accounting dnodes.

use crate::FormatError;
use crate::dnode::{Dnode, SLOT_SIZE};
use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::object_type::ObjectType;

/// Offset of the intent log's header.
pub const ZIL_HEADER_OFFSET: usize = 512;
/// Bytes of the intent log's header.
pub const ZIL_HEADER_SIZE: usize = 192;
/// Offset of the type.
pub const TYPE_OFFSET: usize = 704;
/// Offset of the flags.
pub const FLAGS_OFFSET: usize = 712;
/// Offset of the portable MAC, 32 bytes.
pub const PORTABLE_MAC_OFFSET: usize = 720;
/// Offset of the local MAC, 32 bytes.
pub const LOCAL_MAC_OFFSET: usize = 752;
/// Offsets of the dnodes for space used by user, group and project.
pub const ACCOUNTING_OFFSETS: [usize; 3] = [1024, 1536, 2048];

const WHAT: &str = "objset";

/// What an object set holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObjsetType {
    /// The meta object set of a pool.
    Meta,
    /// A file system.
    Zfs,
    /// A volume.
    Zvol,
    /// Anything else (tests).
    Other,
}

impl ObjsetType {
    /// The type with this number.
    pub fn from_number(number: u64) -> Result<Self, FormatError> {
        Ok(match number {
            1 => Self::Meta,
            2 => Self::Zfs,
            3 => Self::Zvol,
            4 => Self::Other,
            _ => return Err(FormatError::field(WHAT, "type", number)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Meta => 1,
            Self::Zfs => 2,
            Self::Zvol => 3,
            Self::Other => 4,
        }
    }

    /// The name that `zdb` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "META",
            Self::Zfs => "ZPL",
            Self::Zvol => "ZVOL",
            Self::Other => "OTHER",
        }
    }
}

/// A decoded objset block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjsetBlock {
    /// Where the other dnodes are; `None` when no object was ever created.
    pub meta_dnode: Option<Dnode>,
    /// What the set holds.
    pub objset_type: ObjsetType,
    /// `OBJSET_FLAG_*`: which accounting is complete.
    pub flags: u64,
    /// The intent log's header as stored.
    pub zil_header: [u8; ZIL_HEADER_SIZE],
    /// MAC over what a raw send carries.
    pub portable_mac: [u8; 32],
    /// MAC over the rest.
    pub local_mac: [u8; 32],
    /// The dnodes for space used by user, group and project; `None` where unused.
    pub accounting: [Option<Dnode>; 3],
    /// Byte order of the block.
    pub order: ByteOrder,
}

impl ObjsetBlock {
    /// Space of users and groups is counted for all objects.
    pub const FLAG_USER_ACCOUNTING: u64 = 1;
    /// So are the objects.
    pub const FLAG_OBJECT_ACCOUNTING: u64 = 2;
    /// So are those of projects.
    pub const FLAG_PROJECT_QUOTA: u64 = 4;

    /// Decodes a block of 1024, 2048 or 4096 bytes.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        if !matches!(bytes.len(), 1024 | 2048 | 4096) {
            return Err(FormatError::field(WHAT, "size", bytes.len() as u64));
        }
        let fields = Fields::new(WHAT, bytes, order);
        let meta_dnode = Dnode::decode(fields.bytes(0, SLOT_SIZE)?, order)?;
        if let Some(dnode) = &meta_dnode {
            if dnode.object_type != ObjectType::DNODE {
                let number = dnode.object_type.number();
                return Err(FormatError::field(WHAT, "meta-dnode type", number));
            }
            if !(dnode.data_block_size as usize).is_power_of_two() {
                return Err(FormatError::invalid(WHAT, "dnode blocks of an odd size"));
            }
        }
        let mut accounting = [None, None, None];
        for (slot, offset) in accounting.iter_mut().zip(ACCOUNTING_OFFSETS) {
            if bytes.len() >= offset + SLOT_SIZE {
                *slot = Dnode::decode(fields.bytes(offset, SLOT_SIZE)?, order)?;
            }
        }
        Ok(Self {
            meta_dnode,
            objset_type: ObjsetType::from_number(fields.u64(TYPE_OFFSET)?)?,
            flags: fields.u64(FLAGS_OFFSET)?,
            zil_header: fields.array(ZIL_HEADER_OFFSET)?,
            portable_mac: fields.array(PORTABLE_MAC_OFFSET)?,
            local_mac: fields.array(LOCAL_MAC_OFFSET)?,
            accounting,
            order,
        })
    }

    /// The bytes of the block: `size` is 1024, 2048 or 4096. Accounting dnodes that lie beyond it
    /// are left out; the dnodes' bonuses have to be in `order` already.
    ///
    /// # Panics
    /// When `size` is too small for what every objset block has.
    #[must_use]
    pub fn encode(&self, size: usize, order: ByteOrder) -> Vec<u8> {
        let mut bytes = vec![0; size];
        if let Some(dnode) = &self.meta_dnode {
            dnode.encode(&mut bytes, order);
        }
        for (dnode, offset) in self.accounting.iter().zip(ACCOUNTING_OFFSETS) {
            if let (Some(dnode), Some(slot)) = (dnode, bytes.get_mut(offset..offset + SLOT_SIZE)) {
                dnode.encode(slot, order);
            }
        }
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_bytes(ZIL_HEADER_OFFSET, &self.zil_header);
        fields.set_u64(TYPE_OFFSET, self.objset_type.number());
        fields.set_u64(FLAGS_OFFSET, self.flags);
        fields.set_bytes(PORTABLE_MAC_OFFSET, &self.portable_mac);
        fields.set_bytes(LOCAL_MAC_OFFSET, &self.local_mac);
        bytes
    }
}
