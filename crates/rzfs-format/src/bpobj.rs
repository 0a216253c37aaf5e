//! Persistent lists of block pointers: bpobjs, the lists of destroyed datasets, deadlists and
//! livelists (spec 04, sections 4, 5 and 10).
//!
//! ```text
//! bpobj (type 5)    bonus: BpobjHeader   data: block pointers of 128 bytes, in stored form
//!   sub-objects (type 53)                data: object numbers of further bpobjs
//! bptree            bonus: BptreeHeader  data: entries of 168 bytes, across block borders
//! deadlist (type 50), livelist           bonus: crate::deadlist::DeadlistHeader
//!                                        ZAP: birth txg -> bpobj
//! ```

mod bptree;

pub use bptree::{BptreeEntry, BptreeHeader};

use crate::endian::{Fields, FieldsMut};
use crate::units::ObjectId;
use crate::{BlockPointer, ByteOrder, FormatError};

const WHAT: &str = "bpobj";

/// Which fields a bpobj's header has; the length of its bonus says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BpobjVersion {
    /// Count and bytes (pool version below 3).
    V0,
    /// Also compressed and uncompressed bytes.
    V1,
    /// Also sub-objects (pool version 26).
    V2,
    /// Also the number of freed entries (feature `livelist`).
    V3,
}

impl BpobjVersion {
    /// Bytes of the bonus.
    #[must_use]
    pub const fn bonus_size(self) -> usize {
        match self {
            Self::V0 => 16,
            Self::V1 => 32,
            Self::V2 => 48,
            Self::V3 => 56,
        }
    }

    /// The version of a header in a bonus of `size` bytes.
    #[must_use]
    pub const fn of_bonus_size(size: usize) -> Self {
        match size {
            0..=16 => Self::V0,
            17..=32 => Self::V1,
            33..=48 => Self::V2,
            _ => Self::V3,
        }
    }
}

/// The bonus of a bpobj.
///
/// | offset | field | since |
/// |---|---|---|
/// | 0 | number of own entries | V0 |
/// | 8 | bytes: allocated size, deflated | V0 |
/// | 16 | compressed: physical sizes | V1 |
/// | 24 | uncompressed: logical sizes of data, physical ones of metadata | V1 |
/// | 32 | object with the sub-objects | V2 |
/// | 40 | number of sub-objects | V2 |
/// | 48 | number of own entries that carry the mark FREE | V3 |
///
/// The three sums include all sub-objects, the counts do not. Fields that the version lacks are
/// zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpobjHeader {
    /// Which fields are stored.
    pub version: BpobjVersion,
    /// Own entries.
    pub entries: u64,
    /// Allocated bytes, deflated, with sub-objects.
    pub bytes: u64,
    /// Physical bytes, with sub-objects.
    pub compressed: u64,
    /// Logical bytes (physical ones of metadata), with sub-objects.
    pub uncompressed: u64,
    /// The array of sub-objects.
    pub subobjects: Option<ObjectId>,
    /// How many sub-objects there are.
    pub subobject_count: u64,
    /// Own entries that carry the mark FREE.
    pub freed: u64,
}

impl BpobjHeader {
    /// Decodes a bonus of 16 bytes or more.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let version = BpobjVersion::of_bonus_size(bytes.len());
        let since = |first: BpobjVersion, offset: usize| {
            if version >= first { fields.u64(offset) } else { Ok(0) }
        };
        Ok(Self {
            version,
            entries: fields.u64(0)?,
            bytes: fields.u64(8)?,
            compressed: since(BpobjVersion::V1, 16)?,
            uncompressed: since(BpobjVersion::V1, 24)?,
            subobjects: ObjectId(since(BpobjVersion::V2, 32)?).non_zero(),
            subobject_count: since(BpobjVersion::V2, 40)?,
            freed: since(BpobjVersion::V3, 48)?,
        })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let words = [
            self.entries,
            self.bytes,
            self.compressed,
            self.uncompressed,
            self.subobjects.map_or(0, ObjectId::get),
            self.subobject_count,
            self.freed,
        ];
        let mut bytes = vec![0; self.version.bonus_size()];
        let stored = bytes.len() / 8;
        FieldsMut::new(&mut bytes, order).set_u64s(0, words.get(..stored).unwrap_or(&words));
        bytes
    }

    /// Whether the list and its sub-objects hold nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0 && self.subobject_count == 0
    }

    /// Checks that `extent` bytes of the object can hold the entries.
    pub fn check_extent(&self, extent: u64) -> Result<(), FormatError> {
        match self.entries.checked_mul(BlockPointer::SIZE as u64) {
            Some(bytes) if bytes <= extent => Ok(()),
            _ => Err(FormatError::field(WHAT, "number of entries", self.entries)),
        }
    }

    /// Checks that `extent` bytes of the sub-object array can hold the object numbers.
    pub fn check_subobject_extent(&self, extent: u64) -> Result<(), FormatError> {
        match self.subobject_count.checked_mul(8) {
            Some(bytes) if bytes <= extent => Ok(()),
            _ => Err(FormatError::field(WHAT, "number of sub-objects", self.subobject_count)),
        }
    }
}

/// What a livelist says about a block; in every other list all entries are [`ListMark::Allocated`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ListMark {
    /// The dataset got the block (in other lists: the block is listed).
    Allocated,
    /// The dataset gave the block up.
    Freed,
}

const FILL_WORD: usize = 11;
const CHECKSUM_WORDS: std::ops::Range<usize> = 12..16;
const KEPT_OF_EMBEDDED: [usize; 2] = [6, 10];

/// The mark of a stored entry: the lowest bit of its fill word.
#[must_use]
pub const fn list_mark(entry: &BlockPointer) -> ListMark {
    if entry.words()[FILL_WORD] & 1 == 0 { ListMark::Allocated } else { ListMark::Freed }
}

/// The form in which a pointer is stored in a list (spec 04, section 4.1): without fill, without
/// the payload of embedded data, and without checksum unless the dedup table needs it.
#[must_use]
pub fn stored_form(pointer: &BlockPointer, mark: ListMark) -> BlockPointer {
    let mut words = *pointer.words();
    if pointer.is_embedded() || pointer.is_redacted() {
        for (index, word) in words.iter_mut().enumerate() {
            if !KEPT_OF_EMBEDDED.contains(&index) {
                *word = 0;
            }
        }
    } else if !pointer.is_dedup()
        && let Some(checksum) = words.get_mut(CHECKSUM_WORDS)
    {
        checksum.fill(0);
    }
    words[FILL_WORD] = match mark {
        ListMark::Allocated => 0,
        ListMark::Freed => 1,
    };
    BlockPointer::from_words(words)
}

/// The size that the DSL accounts as uncompressed: the logical size of data, the physical size of
/// metadata (spec 04, section 4.1).
#[must_use]
pub fn accounted_logical_size(pointer: &BlockPointer) -> u64 {
    let metadata = pointer.object_type().is_ok_and(|kind| kind.is_metadata());
    if pointer.level().0 > 0 || metadata { pointer.physical_size() } else { pointer.logical_size() }
}

/// The entries of the valid part of one block of a list.
///
/// A pointer is returned as it is stored; holes and pointers that contradict themselves are
/// errors, after which the iteration continues.
pub fn entries(
    block: &[u8],
    order: ByteOrder,
) -> impl DoubleEndedIterator<Item = Result<BlockPointer, FormatError>> + '_ {
    block.chunks_exact(BlockPointer::SIZE).map(move |chunk| {
        let pointer = BlockPointer::decode(chunk, order)?;
        if pointer.is_hole() {
            return Err(FormatError::invalid(WHAT, "an entry is a hole"));
        }
        // Embedded entries keep their properties only, and those may be of any size.
        if !pointer.is_embedded() {
            pointer.validate()?;
        }
        Ok(pointer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dva;
    use crate::units::{Txg, VdevId};

    fn header(version: BpobjVersion) -> BpobjHeader {
        BpobjHeader {
            version,
            entries: 7,
            bytes: 51_200,
            compressed: if version >= BpobjVersion::V1 { 51_200 } else { 0 },
            uncompressed: if version >= BpobjVersion::V1 { 60_000 } else { 0 },
            subobjects: (version >= BpobjVersion::V2).then_some(ObjectId(88)),
            subobject_count: if version >= BpobjVersion::V2 { 2 } else { 0 },
            freed: if version >= BpobjVersion::V3 { 3 } else { 0 },
        }
    }

    fn plain() -> BlockPointer {
        let mut words = [0; 16];
        words[..2].copy_from_slice(&Dva::new(VdevId(0), 0x4000, 0x1000, false).0);
        // 128 KiB logical, 4 KiB physical, lz4, fletcher4, plain file, level 0, little-endian.
        words[6] = 255 | 7 << 16 | 15 << 32 | 7 << 40 | 19 << 48 | 1 << 63;
        words[10] = 30;
        words[11] = 1;
        words[12..].copy_from_slice(&[1, 2, 3, 4]);
        BlockPointer::from_words(words)
    }

    #[test]
    fn headers_of_all_versions_round_trip() {
        use BpobjVersion::{V0, V1, V2, V3};
        for version in [V0, V1, V2, V3] {
            let header = header(version);
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let bytes = header.encode(order);
                assert_eq!(bytes.len(), version.bonus_size());
                assert_eq!(BpobjHeader::decode(&bytes, order).unwrap(), header);
            }
        }
        assert!(BpobjHeader::decode(&[0; 8], ByteOrder::Little).is_err());
    }

    #[test]
    fn livelist_header_of_the_spec_decodes() {
        let words = [1_u64, 1024, 512, 512, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = BpobjHeader::decode(&bytes, ByteOrder::Little).unwrap();
        assert_eq!((header.version, header.entries, header.bytes), (BpobjVersion::V3, 1, 1024));
        assert_eq!((header.subobjects, header.freed), (None, 0));
    }

    #[test]
    fn counts_beyond_the_object_are_refused() {
        let mut header = header(BpobjVersion::V2);
        header.check_extent(7 * 128).unwrap();
        assert!(header.check_extent(7 * 128 - 1).is_err());
        header.check_subobject_extent(16).unwrap();
        assert!(header.check_subobject_extent(15).is_err());
        header.entries = u64::MAX;
        header.subobject_count = u64::MAX;
        assert!(header.check_extent(u64::MAX).is_err());
        assert!(header.check_subobject_extent(u64::MAX).is_err());
    }

    #[test]
    fn stored_pointers_keep_what_a_free_needs() {
        let stored = stored_form(&plain(), ListMark::Freed);
        assert_eq!(stored.dvas().next(), plain().dvas().next());
        assert_eq!(stored.checksum().0, [0; 4]);
        assert_eq!(list_mark(&stored), ListMark::Freed);
        assert_eq!(list_mark(&stored_form(&plain(), ListMark::Allocated)), ListMark::Allocated);

        let mut dedup = plain();
        dedup.words_mut()[6] |= 1 << 62;
        assert_eq!(stored_form(&dedup, ListMark::Allocated).checksum().0, [1, 2, 3, 4]);

        let mut embedded = plain();
        embedded.words_mut()[6] |= 1 << 39;
        let stored = stored_form(&embedded, ListMark::Allocated);
        assert_eq!(stored.logical_birth(), Txg(30));
        assert_eq!(stored.words().iter().filter(|word| **word != 0).count(), 2);
    }

    #[test]
    fn metadata_is_accounted_at_its_physical_size() {
        let mut pointer = plain();
        assert_eq!(accounted_logical_size(&pointer), 128 << 10);
        pointer.words_mut()[6] |= 1 << 56;
        assert_eq!(accounted_logical_size(&pointer), 4096);
    }

    #[test]
    fn entries_are_checked_one_by_one() {
        let stored = stored_form(&plain(), ListMark::Allocated);
        let mut block = stored.encode(ByteOrder::Big).to_vec();
        block.extend([0; 128]);
        block.extend(stored.encode(ByteOrder::Big));
        let read: Vec<_> = entries(&block, ByteOrder::Big).rev().collect();
        assert_eq!(read[0].as_ref().unwrap(), &stored);
        assert!(read[1].is_err());
        assert_eq!(read.len(), 3);
    }
}
