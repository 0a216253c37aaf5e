//! Bookmarks: what remains of a snapshot when only its place in time is kept (spec 04, section
//! 15).

use crate::endian::{ByteOrder, Fields};
use crate::{FormatError, Guid, ObjectId, Txg};

/// Sums over blocks, as the DSL keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceSums {
    /// Allocated bytes, deflated.
    pub used: u64,
    /// Physical bytes.
    pub compressed: u64,
    /// Logical bytes.
    pub uncompressed: u64,
}

/// `zfs_bookmark_phys_t`: the value of a name in a dataset's ZAP of bookmarks.
///
/// | word | field | | word | field |
/// | --- | --- | --- | --- | --- |
/// | 0 | guid of the snapshot | | 5..8 | sums of what it referenced |
/// | 1 | its creation txg | | 8..11 | sums of what died before the next snapshot |
/// | 2 | its creation time | | 11 | its IV-set guid |
/// | 3 | redaction list, 0 = none | | | |
/// | 4 | flags | | | |
///
/// The first version ends after word 2; what is missing is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BookmarkRecord {
    /// Guid of the snapshot.
    pub guid: Guid,
    /// Creation txg of the snapshot.
    pub creation_txg: Txg,
    /// Creation time of the snapshot, seconds since 1970.
    pub creation_time: u64,
    /// The list of what a redacted send of the snapshot may contain.
    pub redaction: Option<ObjectId>,
    /// `ZBM_FLAG_*`.
    pub flags: u64,
    /// What the snapshot referenced; only with [`BookmarkRecord::FLAG_HAS_SUMS`].
    pub referenced: SpaceSums,
    /// What the snapshot referenced and was freed before the next one; only with
    /// [`BookmarkRecord::FLAG_HAS_SUMS`].
    pub freed_before_next: SpaceSums,
    /// Identity of the ciphertexts of an encrypted snapshot; 0 = none.
    pub ivset_guid: Guid,
}

impl BookmarkRecord {
    /// Words of the second version.
    pub const WORDS: usize = 12;
    /// The sums are valid.
    pub const FLAG_HAS_SUMS: u64 = 1;
    /// The snapshot is still there.
    pub const FLAG_SNAPSHOT_EXISTS: u64 = 2;
    /// Words of the first version.
    pub const FIRST_VERSION_WORDS: usize = 3;

    /// Decodes the integers of the ZAP's value.
    pub fn decode(words: impl IntoIterator<Item = u64>) -> Result<Self, FormatError> {
        let mut record = [0; Self::WORDS];
        let mut have = 0;
        for (slot, word) in record.iter_mut().zip(words) {
            *slot = word;
            have += 1;
        }
        if have < Self::FIRST_VERSION_WORDS {
            let need = Self::FIRST_VERSION_WORDS * 8;
            return Err(FormatError::Truncated { what: "bookmark", need, have: have * 8 });
        }
        let sums = |[used, compressed, uncompressed]: [u64; 3]| SpaceSums {
            used,
            compressed,
            uncompressed,
        };
        let [guid, txg, time, redaction, flags, r0, r1, r2, f0, f1, f2, ivset] = record;
        Ok(Self {
            guid: Guid(guid),
            creation_txg: Txg(txg),
            creation_time: time,
            redaction: ObjectId(redaction).non_zero(),
            flags,
            referenced: sums([r0, r1, r2]),
            freed_before_next: sums([f0, f1, f2]),
            ivset_guid: Guid(ivset),
        })
    }

    /// The words of the second version.
    #[must_use]
    pub fn encode(&self) -> [u64; Self::WORDS] {
        let (referenced, freed) = (self.referenced, self.freed_before_next);
        [
            self.guid.0,
            self.creation_txg.0,
            self.creation_time,
            self.redaction.map_or(0, ObjectId::get),
            self.flags,
            referenced.used,
            referenced.compressed,
            referenced.uncompressed,
            freed.used,
            freed.compressed,
            freed.uncompressed,
            self.ivset_guid.0,
        ]
    }

    /// Whether the first version cannot say all of it.
    #[must_use]
    pub const fn needs_second_version(&self) -> bool {
        self.has_sums() || self.redaction.is_some() || self.ivset_guid.0 != 0
    }

    /// Whether the sums are valid.
    #[must_use]
    pub const fn has_sums(&self) -> bool {
        self.flags & Self::FLAG_HAS_SUMS != 0
    }
}

/// The header of a redaction list, in the bonus or the spill block of its object (spec 04,
/// section 15.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedactionHeader {
    /// How far the list has got; `None` when it is complete.
    pub progress: Option<(ObjectId, u64)>,
    /// Number of entries.
    pub entries: u64,
    /// Guids of the snapshots whose blocks were left out.
    pub snapshots: Vec<Guid>,
}

impl RedactionHeader {
    const WORDS: usize = 4;

    /// Decodes a bonus or spill block.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new("redaction list", bytes, order);
        let [object, block, entries, count] = fields.u64s::<{ Self::WORDS }>(0)?;
        let room = (bytes.len() / 8).saturating_sub(Self::WORDS);
        let count = usize::try_from(count).ok().filter(|&count| count <= room);
        let count = count.ok_or(FormatError::invalid("redaction list", "too many snapshots"))?;
        let snapshots = (0..count)
            .map(|index| fields.u64((Self::WORDS + index) * 8).map(Guid))
            .collect::<Result<_, _>>()?;
        let complete = object == u64::MAX && block == u64::MAX;
        Ok(Self { progress: (!complete).then_some((ObjectId(object), block)), entries, snapshots })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_decode() {
        let first = BookmarkRecord::decode([3_955_967_672_103_056_661, 27, 1_550_005_717]).unwrap();
        assert_eq!(first.guid, Guid(3_955_967_672_103_056_661));
        assert_eq!((first.creation_txg, first.has_sums()), (Txg(27), false));
        let words: [u64; 12] = std::array::from_fn(|index| index as u64 + 1);
        let second = BookmarkRecord::decode(words).unwrap();
        assert_eq!((second.encode(), second.redaction), (words, Some(ObjectId(4))));
        assert_eq!(second.freed_before_next.used, 9);
        let longer = words.into_iter().chain([99]);
        assert_eq!(BookmarkRecord::decode(longer), Ok(second));
        assert!(BookmarkRecord::decode([1, 2]).is_err());
    }

    #[test]
    fn redaction_headers_list_their_snapshots() {
        let words = [u64::MAX, u64::MAX, 5, 2, 77, 78, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_be_bytes()).collect();
        let header = RedactionHeader::decode(&bytes, ByteOrder::Big).unwrap();
        assert_eq!((header.entries, header.progress), (5, None));
        assert_eq!(header.snapshots, [Guid(77), Guid(78)]);
        assert!(RedactionHeader::decode(&bytes[..40], ByteOrder::Big).is_err());
        assert!(RedactionHeader::decode(&bytes[..24], ByteOrder::Big).is_err());
    }
}
