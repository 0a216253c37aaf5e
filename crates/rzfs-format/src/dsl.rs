//! Directories and datasets of the dataset and snapshot layer (spec 04, sections 2 and 3).
//!
//! Both live in the bonus of an object of the MOS; when the object is *zapified* its data blocks
//! are a ZAP with further fields.

use crate::FormatError;
use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::units::{Guid, ObjectId, Txg};

/// Where the space that a directory is charged for comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsedBreakdown {
    /// The head dataset alone.
    pub head: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Children.
    pub children: u64,
    /// Reserved by children beyond what they use.
    pub child_reservations: u64,
    /// The head's refreservation beyond its unique bytes.
    pub refreservation: u64,
}

/// `dsl_dir_phys_t`: a node of the name tree, with the space charged to it.
///
/// | offset | field | | offset | field |
/// | --- | --- | --- | --- | --- |
/// | 0x00 | creation time | | 0x40 | quota |
/// | 0x08 | head dataset | | 0x48 | reservation |
/// | 0x10 | parent | | 0x50 | properties |
/// | 0x18 | origin | | 0x58 | delegations |
/// | 0x20 | children | | 0x60 | flags |
/// | 0x28 | used | | 0x68 | used breakdown, 5 words |
/// | 0x30 | compressed | | 0x90 | clones |
/// | 0x38 | uncompressed | | 0x98 | zeros to 0x100 |
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DslDir {
    /// Seconds since 1970; informational.
    pub creation_time: u64,
    /// The head dataset; `None` for `$MOS`, `$FREE` and `$LEAK`.
    pub head_dataset: Option<ObjectId>,
    /// The parent directory; `None` for the root.
    pub parent: Option<ObjectId>,
    /// The snapshot that the head was cloned from; on newer pools `$ORIGIN@$ORIGIN` for what is
    /// not a clone.
    pub origin: Option<ObjectId>,
    /// ZAP: name to child directory.
    pub children: Option<ObjectId>,
    /// Bytes charged: own head, own snapshots, children, reservations.
    pub used: u64,
    /// Physical bytes below.
    pub compressed: u64,
    /// Logical bytes below.
    pub uncompressed: u64,
    /// Quota in bytes, 0 = none.
    pub quota: u64,
    /// Reservation in bytes, 0 = none.
    pub reserved: u64,
    /// ZAP of local properties.
    pub properties: Option<ObjectId>,
    /// ZAP of delegated permissions.
    pub delegations: Option<ObjectId>,
    /// `DD_FLAG_*`.
    pub flags: u64,
    /// What `used` consists of, valid when [`DslDir::FLAG_USED_BREAKDOWN`] is set.
    pub breakdown: UsedBreakdown,
    /// ZAP of the heads of all clones of this directory's snapshots.
    pub clones: Option<ObjectId>,
}

impl DslDir {
    /// On-disk size in bytes.
    pub const SIZE: usize = 256;
    /// The breakdown of the used space is valid.
    pub const FLAG_USED_BREAKDOWN: u64 = 1;

    /// Decodes a bonus.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields =
            Fields::new("DSL directory", bonus, order).sub("DSL directory", 0, Self::SIZE)?;
        let object = |offset| fields.u64(offset).map(|number| ObjectId(number).non_zero());
        Ok(Self {
            creation_time: fields.u64(0x00)?,
            head_dataset: object(0x08)?,
            parent: object(0x10)?,
            origin: object(0x18)?,
            children: object(0x20)?,
            used: fields.u64(0x28)?,
            compressed: fields.u64(0x30)?,
            uncompressed: fields.u64(0x38)?,
            quota: fields.u64(0x40)?,
            reserved: fields.u64(0x48)?,
            properties: object(0x50)?,
            delegations: object(0x58)?,
            flags: fields.u64(0x60)?,
            breakdown: UsedBreakdown {
                head: fields.u64(0x68)?,
                snapshots: fields.u64(0x70)?,
                children: fields.u64(0x78)?,
                child_reservations: fields.u64(0x80)?,
                refreservation: fields.u64(0x88)?,
            },
            clones: object(0x90)?,
        })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let number = |object: Option<ObjectId>| object.map_or(0, ObjectId::get);
        let mut bytes = [0; Self::SIZE];
        FieldsMut::new(&mut bytes, order).set_u64s(
            0,
            &[
                self.creation_time,
                number(self.head_dataset),
                number(self.parent),
                number(self.origin),
                number(self.children),
                self.used,
                self.compressed,
                self.uncompressed,
                self.quota,
                self.reserved,
                number(self.properties),
                number(self.delegations),
                self.flags,
                self.breakdown.head,
                self.breakdown.snapshots,
                self.breakdown.children,
                self.breakdown.child_reservations,
                self.breakdown.refreservation,
                number(self.clones),
            ],
        );
        bytes
    }
}

/// `dsl_dataset_phys_t`: a head or a snapshot.
///
/// | offset | field | | offset | field |
/// | --- | --- | --- | --- | --- |
/// | 0x00 | directory | | 0x58 | uncompressed |
/// | 0x08 | previous snapshot | | 0x60 | unique |
/// | 0x10 | its creation txg | | 0x68 | fsid |
/// | 0x18 | next snapshot or head | | 0x70 | guid |
/// | 0x20 | snapshot names | | 0x78 | flags |
/// | 0x28 | number of children | | 0x80 | root block pointer, 128 bytes |
/// | 0x30 | creation time | | 0x100 | next clones |
/// | 0x38 | creation txg | | 0x108 | properties |
/// | 0x40 | dead list | | 0x110 | user references |
/// | 0x48 | referenced | | 0x118 | zeros to 0x140 |
/// | 0x50 | compressed | | | |
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DslDataset {
    /// The directory that it belongs to.
    pub dir: ObjectId,
    /// The snapshot before it, or its origin.
    pub previous_snapshot: Option<ObjectId>,
    /// Creation txg of the snapshot before it.
    pub previous_snapshot_txg: Txg,
    /// Of a snapshot: the next one, or the head. `None` for a head.
    pub next_snapshot: Option<ObjectId>,
    /// Of a head: ZAP of its snapshots' names. `None` says that this is a snapshot.
    pub snapshot_names: Option<ObjectId>,
    /// Of a snapshot: 1 + its clones.
    pub child_count: u64,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Txg of creation.
    pub creation_txg: Txg,
    /// Its dead list.
    pub deadlist: Option<ObjectId>,
    /// Bytes allocated for everything reachable.
    pub referenced: u64,
    /// Physical bytes of everything reachable.
    pub compressed: u64,
    /// Logical bytes of everything reachable.
    pub uncompressed: u64,
    /// Bytes that nothing else references.
    pub unique: u64,
    /// 56-bit identity among open datasets.
    pub fsid: u64,
    /// Identity for ever.
    pub guid: Guid,
    /// `DS_FLAG_*`.
    pub flags: u64,
    /// Pointer to the objset's root block.
    pub root: BlockPointer,
    /// Of a snapshot: ZAP of what was cloned from it.
    pub next_clones: Option<ObjectId>,
    /// Of a snapshot: ZAP of its local properties.
    pub properties: Option<ObjectId>,
    /// Of a snapshot: ZAP of user holds.
    pub user_references: Option<ObjectId>,
}

impl DslDataset {
    /// On-disk size in bytes.
    pub const SIZE: usize = 320;
    /// Being received or destroyed.
    pub const FLAG_INCONSISTENT: u64 = 1;
    /// A head's `unique` is exact.
    pub const FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
    /// To be destroyed when the last hold or clone goes.
    pub const FLAG_DEFER_DESTROY: u64 = 1 << 3;
    /// Names in it, and of its snapshots, are looked up without regard to case.
    pub const FLAG_CASE_INSENSITIVE: u64 = 1 << 16;

    /// Decodes a bonus.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new("DSL dataset", bonus, order).sub("DSL dataset", 0, Self::SIZE)?;
        let object = |offset| fields.u64(offset).map(|number| ObjectId(number).non_zero());
        Ok(Self {
            dir: ObjectId(fields.u64(0x00)?),
            previous_snapshot: object(0x08)?,
            previous_snapshot_txg: Txg(fields.u64(0x10)?),
            next_snapshot: object(0x18)?,
            snapshot_names: object(0x20)?,
            child_count: fields.u64(0x28)?,
            creation_time: fields.u64(0x30)?,
            creation_txg: Txg(fields.u64(0x38)?),
            deadlist: object(0x40)?,
            referenced: fields.u64(0x48)?,
            compressed: fields.u64(0x50)?,
            uncompressed: fields.u64(0x58)?,
            unique: fields.u64(0x60)?,
            fsid: fields.u64(0x68)?,
            guid: Guid(fields.u64(0x70)?),
            flags: fields.u64(0x78)?,
            root: BlockPointer::decode(fields.bytes(0x80, BlockPointer::SIZE)?, order)?,
            next_clones: object(0x100)?,
            properties: object(0x108)?,
            user_references: object(0x110)?,
        })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let number = |object: Option<ObjectId>| object.map_or(0, ObjectId::get);
        let mut bytes = [0; Self::SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64s(
            0,
            &[
                self.dir.0,
                number(self.previous_snapshot),
                self.previous_snapshot_txg.0,
                number(self.next_snapshot),
                number(self.snapshot_names),
                self.child_count,
                self.creation_time,
                self.creation_txg.0,
                number(self.deadlist),
                self.referenced,
                self.compressed,
                self.uncompressed,
                self.unique,
                self.fsid,
                self.guid.0,
                self.flags,
            ],
        );
        fields.set_bytes(0x80, &self.root.encode(order));
        fields.set_u64s(
            0x100,
            &[number(self.next_clones), number(self.properties), number(self.user_references)],
        );
        bytes
    }

    /// Whether it is a snapshot.
    #[must_use]
    pub const fn is_snapshot(&self) -> bool {
        self.snapshot_names.is_none()
    }

    /// Whether it lacks some of what it is to have: it is being received, or was not received to its
    /// end.
    #[must_use]
    pub const fn is_inconsistent(&self) -> bool {
        self.flags & Self::FLAG_INCONSISTENT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lines: &[(usize, [u64; 2])], size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let mut fields = FieldsMut::new(&mut bytes, ByteOrder::Big);
        for (offset, pair) in lines {
            fields.set_u64s(*offset, pair);
        }
        bytes
    }

    #[test]
    fn root_directory_of_the_spec_decodes_and_round_trips() {
        let bytes = words(
            &[
                (0x00, [0xd435_635c_0000_0000, 0x3600_0000_0000_0000]),
                (0x10, [0, 0x3000_0000_0000_0000]),
                (0x20, [0x2200_0000_0000_0000, 0x0060_cf00_0000_0000]),
                (0x30, [0x005a_0300_0000_0000, 0x005a_0300_0000_0000]),
                (0x50, [0x2100_0000_0000_0000, 0]),
                (0x60, [0x0100_0000_0000_0000, 0x0068_0000_0000_0000]),
                (0x70, [0, 0x00f8_ce00_0000_0000]),
            ],
            DslDir::SIZE,
        );
        let dir = DslDir::decode(&bytes, ByteOrder::Little).unwrap();
        assert_eq!((dir.head_dataset, dir.parent), (Some(ObjectId(54)), None));
        assert_eq!((dir.origin, dir.children), (Some(ObjectId(48)), Some(ObjectId(34))));
        assert_eq!((dir.used, dir.compressed), (13_590_528, 219_648));
        assert_eq!(dir.breakdown.head + dir.breakdown.children, dir.used);
        assert_eq!(dir.encode(ByteOrder::Little)[..], bytes[..]);
        assert!(DslDir::decode(&bytes[..255], ByteOrder::Little).is_err());
    }

    #[test]
    fn head_dataset_of_the_spec_decodes_and_round_trips() {
        let bytes = words(
            &[
                (0x00, [0x8000_0000_0000_0000, 0x9b00_0000_0000_0000]),
                (0x10, [0x2300_0000_0000_0000, 0]),
                (0x20, [0x8400_0000_0000_0000, 0]),
                (0x30, [0xd435_635c_0000_0000, 0x0800_0000_0000_0000]),
                (0x40, [0x9c00_0000_0000_0000, 0x0088_0100_0000_0000]),
                (0x60, [0, 0x07cd_4932_16f9_8c00]),
                (0x70, [0x99f2_29e6_9d00_2eed, 0x0400_0000_0000_0000]),
            ],
            DslDataset::SIZE,
        );
        let dataset = DslDataset::decode(&bytes, ByteOrder::Little).unwrap();
        assert!(!dataset.is_snapshot());
        assert_eq!((dataset.dir, dataset.previous_snapshot), (ObjectId(128), Some(ObjectId(155))));
        assert_eq!((dataset.creation_txg, dataset.referenced), (Txg(8), 100_352));
        assert_eq!(dataset.fsid, 0x8c_f916_3249_cd07);
        assert_eq!(dataset.flags, DslDataset::FLAG_UNIQUE_ACCURATE);
        assert_eq!(dataset.encode(ByteOrder::Little)[..], bytes[..]);
    }
}
