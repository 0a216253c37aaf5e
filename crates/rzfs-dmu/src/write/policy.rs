//! How the blocks of an object set are to be written (spec 02, sections 4.13, 5.4 and 7.1).

use rzfs_codec::compress::ZstdLevel;
use rzfs_format::Level;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;

/// Maximum number of copies in a block pointer.
const MAX_COPIES: u8 = 3;

/// The property `redundant_metadata`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RedundantMetadata {
    /// One more copy of all metadata.
    #[default]
    All,
    /// One more copy, except for indirect blocks directly above file data.
    Most,
    /// One more copy of essential pool metadata.
    Some,
    /// As many copies as of data.
    None,
}

/// Dataset properties that affect how its blocks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjsetPolicy {
    /// Checksum of data; a function that blocks can have.
    pub checksum: ChecksumFunction,
    /// Compression of data; never `Inherit` or `On`.
    pub compression: CompressionFunction,
    /// Level of zstd.
    pub zstd_level: ZstdLevel,
    /// Compression of metadata: lz4, or lzjb in pools without it.
    pub metadata_compression: CompressionFunction,
    /// Copies of data, 1 to 3.
    pub copies: u8,
    /// Which metadata has an additional copy.
    pub redundant_metadata: RedundantMetadata,
    /// Data blocks up to this stored size may go to the special class.
    pub special_small_blocks: u64,
    /// Whether data is deduplicated.
    pub dedup: Option<DedupPolicy>,
    /// Whether the set is encrypted.
    pub is_encrypted: bool,
}

/// The property `dedup`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupPolicy {
    /// The checksum that identifies blocks: one allowed for dedup tables.
    pub checksum: ChecksumFunction,
    /// What makes blocks with the same checksum equal.
    pub sameness: DuplicateTest,
}

/// What makes blocks with the same checksum equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DuplicateTest {
    /// The checksum.
    Checksum,
    /// Their contents, which are compared.
    Contents,
}

impl ObjsetPolicy {
    /// The policy of the MOS: three copies of everything.
    #[must_use]
    pub const fn mos(metadata_compression: CompressionFunction) -> Self {
        Self {
            checksum: ChecksumFunction::Fletcher4,
            compression: metadata_compression,
            zstd_level: ZstdLevel::DEFAULT,
            metadata_compression,
            copies: MAX_COPIES,
            redundant_metadata: RedundantMetadata::All,
            special_small_blocks: 0,
            dedup: None,
            is_encrypted: false,
        }
    }

    /// Whether data would be written the same way with another policy, so that datasets with these
    /// may share blocks.
    #[must_use]
    pub fn writes_data_like(&self, other: &Self) -> bool {
        let of = |policy: &Self| {
            let blocks = (policy.copies, policy.special_small_blocks);
            let dedup = policy.dedup.map(|dedup| dedup.checksum);
            (policy.checksum, policy.compression, blocks, dedup)
        };
        of(self) == of(other)
    }

    /// How to write a block of an object.
    #[must_use]
    pub fn block(&self, object_type: ObjectType, level: Level, part: Part) -> BlockPolicy {
        let metadata = level.0 > 0 || object_type.is_metadata() || part == Part::Spill;
        let has_ciphertext = self.is_encrypted && object_type.is_encrypted();
        let dedup = self.dedup.filter(|_| !metadata && (has_ciphertext || !self.is_encrypted));
        let checksum = match dedup {
            Some(dedup) => dedup.checksum,
            None if metadata && !is_for_metadata(self.checksum) => ChecksumFunction::Fletcher4,
            None => self.checksum,
        };
        let extra = metadata
            && match self.redundant_metadata {
                RedundantMetadata::All => true,
                RedundantMetadata::Most => {
                    level.0 >= 2 || object_type.is_metadata() || part == Part::Spill
                }
                RedundantMetadata::Some => is_critical(object_type),
                RedundantMetadata::None => false,
            };
        BlockPolicy {
            object_type,
            level,
            checksum,
            compression: match metadata {
                // Dnodes and the objset block must be partly readable without a key.
                true if self.is_encrypted
                    && level == Level::DATA
                    && is_partly_plaintext(object_type) =>
                {
                    CompressionFunction::Empty
                }
                true => self.metadata_compression,
                false => self.compression,
            },
            zstd_level: self.zstd_level,
            copies: (self.copies + u8::from(extra)).min(match has_ciphertext {
                // The third address holds salt and IV.
                true => MAX_COPIES - 1,
                false => MAX_COPIES,
            }),
            special_small_blocks: if metadata { 0 } else { self.special_small_blocks },
            dedup,
        }
    }
}

/// The part of an object that a level-0 block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// One of its blocks.
    Contents,
    /// Its spill block.
    Spill,
}

/// How to write one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPolicy {
    /// The type in the pointer: the object's, or that of the bonus for a spill block.
    pub object_type: ObjectType,
    /// The level in the object's tree.
    pub level: Level,
    /// The checksum.
    pub checksum: ChecksumFunction,
    /// The compression.
    pub compression: CompressionFunction,
    /// Level of zstd.
    pub zstd_level: ZstdLevel,
    /// Copies, 1 to 3.
    pub copies: u8,
    /// Maximum stored size with which the block may go to the special class as data.
    pub special_small_blocks: u64,
    /// Whether it is deduplicated.
    pub dedup: Option<DedupPolicy>,
}

impl BlockPolicy {
    /// Whether the block is metadata, which goes to the special class.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.level.0 > 0 || self.object_type.is_metadata()
    }

    /// Whether an unchanged block can keep its old pointer (nop-write).
    #[must_use]
    pub(crate) fn allows_unchanged(&self) -> bool {
        let strong = matches!(
            self.checksum,
            ChecksumFunction::Sha256
                | ChecksumFunction::Sha512
                | ChecksumFunction::Skein
                | ChecksumFunction::EdonR
                | ChecksumFunction::Blake3
        );
        strong
            && self.dedup.is_none()
            && self.level == Level::DATA
            && !self.object_type.is_metadata()
            && self.compression != CompressionFunction::Off
    }
}

/// Whether blocks of this type are partly readable without a key in encrypted sets.
fn is_partly_plaintext(object_type: ObjectType) -> bool {
    matches!(object_type, ObjectType::DNODE | ObjectType::OBJSET)
}

/// Whether a checksum function is strong enough for metadata.
const fn is_for_metadata(function: ChecksumFunction) -> bool {
    matches!(
        function,
        ChecksumFunction::Fletcher4
            | ChecksumFunction::Sha256
            | ChecksumFunction::Sha512
            | ChecksumFunction::Skein
            | ChecksumFunction::EdonR
            | ChecksumFunction::Blake3
    )
}

/// Whether losing a block of this type affects more than one file.
fn is_critical(object_type: ObjectType) -> bool {
    const OF_ONE_FILE: [ObjectType; 3] =
        [ObjectType::DNODE, ObjectType::SA, ObjectType::DIRECTORY_CONTENTS];
    object_type.is_metadata() && !OF_ONE_FILE.contains(&object_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(redundant_metadata: RedundantMetadata, copies: u8) -> [u8; 5] {
        let mos = ObjsetPolicy::mos(CompressionFunction::Lz4);
        let policy = ObjsetPolicy { copies, redundant_metadata, ..mos };
        let of =
            |object_type, level| policy.block(object_type, Level(level), Part::Contents).copies;
        [
            of(ObjectType::PLAIN_FILE_CONTENTS, 0),
            of(ObjectType::PLAIN_FILE_CONTENTS, 1),
            of(ObjectType::PLAIN_FILE_CONTENTS, 2),
            of(ObjectType::DNODE, 1),
            of(ObjectType::MASTER_NODE, 0),
        ]
    }

    #[test]
    fn copies_are_those_of_openzfs() {
        assert_eq!(copies(RedundantMetadata::All, 1), [1, 2, 2, 2, 2]);
        assert_eq!(copies(RedundantMetadata::Most, 1), [1, 1, 2, 2, 2]);
        assert_eq!(copies(RedundantMetadata::Some, 1), [1, 1, 1, 1, 2]);
        assert_eq!(copies(RedundantMetadata::None, 1), [1, 1, 1, 1, 1]);
        assert_eq!(copies(RedundantMetadata::All, 2), [2, 3, 3, 3, 3]);
        assert_eq!(copies(RedundantMetadata::All, 3), [3, 3, 3, 3, 3]);
    }

    #[test]
    fn encrypted_sets_have_room_for_salt_and_iv() {
        let mos = ObjsetPolicy::mos(CompressionFunction::Lz4);
        let dedup =
            DedupPolicy { checksum: ChecksumFunction::Sha256, sameness: DuplicateTest::Checksum };
        let policy = ObjsetPolicy { is_encrypted: true, dedup: Some(dedup), ..mos };
        let of = |object_type, level| policy.block(object_type, Level(level), Part::Contents);
        let file = of(ObjectType::PLAIN_FILE_CONTENTS, 0);
        assert_eq!((file.copies, file.dedup), (2, Some(dedup)));
        assert_eq!(of(ObjectType::PLAIN_FILE_CONTENTS, 1).copies, 2);
        assert_eq!(
            (of(ObjectType::MASTER_NODE, 0).copies, of(ObjectType::OBJSET, 0).copies),
            (3, 3)
        );
        let lz4 = CompressionFunction::Lz4;
        let compressions = [(0, ObjectType::DNODE), (1, ObjectType::DNODE), (0, ObjectType::SA)];
        assert_eq!(
            compressions.map(|(level, kind)| of(kind, level).compression),
            [CompressionFunction::Empty, lz4, lz4]
        );
    }

    #[test]
    fn metadata_never_goes_without_a_good_checksum() {
        for weak in [ChecksumFunction::Off, ChecksumFunction::Fletcher2] {
            let mos = ObjsetPolicy::mos(CompressionFunction::Lz4);
            let policy = ObjsetPolicy { checksum: weak, ..mos };
            let of = |level, part| {
                policy.block(ObjectType::PLAIN_FILE_CONTENTS, Level(level), part).checksum
            };
            assert_eq!(of(0, Part::Contents), weak);
            assert_eq!(of(0, Part::Spill), ChecksumFunction::Fletcher4);
            assert_eq!(of(1, Part::Contents), ChecksumFunction::Fletcher4);
        }
    }
}
