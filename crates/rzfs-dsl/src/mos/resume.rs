//! The progress of a resumable receive: entries beside the record of the receiving dataset (spec
//! 08, section 8.1).
//!
//! They are written in the same txg as the records they cover, so after a crash nothing is missing
//! before the recorded point.

use super::error::MosError;
use super::extensible::{is_extended, zapify};
use super::features::Features;
use super::live::MosTx;
use super::{MosSource, one_number};
use crate::live::LiveError;
use rzfs_format::nvlist::NvString;
use rzfs_format::stream::{StreamFeatures, StreamName};
use rzfs_format::{Guid, ObjectId};
use rzfs_stream::ResumeToken;
use rzfs_zap::{IntegerSize, ZapValue};

const FROM_GUID: &str = "com.delphix:resume_fromguid";
const TO_GUID: &str = "com.delphix:resume_toguid";
const TO_NAME: &str = "com.delphix:resume_toname";
const OBJECT: &str = "com.delphix:resume_object";
const OFFSET: &str = "com.delphix:resume_offset";
const BYTES: &str = "com.delphix:resume_bytes";
const BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";

/// Stream features needed for the remainder.
const FLAGS: [(StreamFeatures, &str); 4] = [
    (StreamFeatures::LARGE_BLOCKS, "com.delphix:resume_largeblockok"),
    (StreamFeatures::EMBED_DATA, "com.delphix:resume_embedok"),
    (StreamFeatures::COMPRESSED, "com.delphix:resume_compressok"),
    (StreamFeatures::RAW, "com.datto:resume_rawok"),
];

/// Maximum snapshots of a redaction bookmark; real ones have a few.
const MAX_SNAPS: usize = 1 << 12;

/// Progress of a receive: the last record applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumePoint {
    /// The object of the record.
    pub object: ObjectId,
    /// First byte of its block in the object; 0 if it concerns the object itself.
    pub offset: u64,
    /// Bytes of the stream up to its end, over all attempts and without their first records.
    pub bytes: u64,
}

impl ResumePoint {
    /// Nothing was received yet.
    pub const START: Self = Self { object: ObjectId(1), offset: 0, bytes: 0 };

    fn entries(self) -> [(&'static str, u64); 3] {
        [(OBJECT, self.object.get()), (OFFSET, self.offset), (BYTES, self.bytes)]
    }
}

/// Whether a dataset has such a state, valid or not.
pub(crate) fn is_there<M: MosSource>(mos: &M, dataset: ObjectId) -> Result<bool, M::Error> {
    Ok(is_extended(mos, dataset)? && mos.lookup(dataset, TO_GUID)?.is_some())
}

/// The state of a dataset, if it has one.
pub(crate) fn read<M: MosSource>(
    mos: &M,
    dataset: ObjectId,
) -> Result<Option<ResumeToken>, M::Error> {
    match is_there(mos, dataset)? {
        true => decode(dataset, |name| mos.lookup(dataset, name)).map(Some),
        false => Ok(None),
    }
}

/// Decodes the state from the entries of a dataset.
fn decode<E: From<MosError>>(
    dataset: ObjectId,
    look_up: impl Fn(&str) -> Result<Option<ZapValue>, E>,
) -> Result<ResumeToken, E> {
    let wrong =
        |name: &str, problem| MosError::Entry { object: dataset, name: name.to_owned(), problem };
    let find = |name: &str| match look_up(name)? {
        Some(value) => Ok::<_, E>(Some(one_number(dataset, name, &value)?)),
        None => Ok(None),
    };
    let number = |name: &str| Ok::<_, E>(find(name)?.ok_or_else(|| wrong(name, "it is missing"))?);
    let object = ObjectId(number(OBJECT)?);
    if object.get() == 0 || object >= ObjectId::END {
        return Err(wrong(OBJECT, "it is no object of a file system").into());
    }
    let name = look_up(TO_NAME)?;
    let name = name.as_ref().and_then(ZapValue::as_bytes).and_then(|bytes| {
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        StreamName::new(name).ok().filter(|_| name.contains(&b'@'))?;
        NvString::new(name).ok()
    });
    let mut features = StreamFeatures::NONE;
    for (feature, name) in FLAGS {
        if look_up(name)?.is_some() {
            features = features.with(feature);
        }
    }
    let snaps = look_up(BOOKMARK_SNAPS)?;
    if snaps.as_ref().is_some_and(|snaps| snaps.len() > MAX_SNAPS) {
        return Err(wrong(BOOKMARK_SNAPS, "there are too many").into());
    }
    Ok(ResumeToken {
        to_guid: Guid(number(TO_GUID)?),
        to_name: name.ok_or_else(|| wrong(TO_NAME, "it is no name of a snapshot"))?,
        from_guid: find(FROM_GUID)?.map(Guid),
        object,
        offset: number(OFFSET)?,
        bytes: number(BYTES)?,
        features,
        redact_snaps: None,
        bookmark_redact_snaps: snaps.map(|guids| guids.integers().collect()),
    })
}

/// Creates the initial state of a dataset.
pub(crate) fn write(
    mos: &MosTx<'_>,
    features: &mut Features,
    dataset: ObjectId,
    state: &ResumeToken,
) -> Result<(), LiveError> {
    zapify(mos, features, dataset)?;
    if let Some(from) = state.from_guid {
        mos.set(dataset, FROM_GUID, from.get())?;
    }
    mos.set(dataset, TO_GUID, state.to_guid.get())?;
    let name: Vec<u64> = state.to_name.iter().copied().chain([0]).map(u64::from).collect();
    mos.set(dataset, TO_NAME, ZapValue::new(IntegerSize::One, &name))?;
    for (feature, name) in FLAGS {
        if state.features.contains(feature) {
            mos.set(dataset, name, 1_u64)?;
        }
    }
    let ResumeToken { object, offset, bytes, .. } = *state;
    set_point(mos, dataset, ResumePoint { object, offset, bytes })
}

/// Updates the progress in a dataset's state.
pub(crate) fn set_point(
    mos: &MosTx<'_>,
    dataset: ObjectId,
    point: ResumePoint,
) -> Result<(), LiveError> {
    let set = |(name, number): (&str, u64)| mos.set(dataset, name, number);
    point.entries().into_iter().try_for_each(set)
}

/// Removes the state from a completely received dataset.
pub(crate) fn remove(mos: &MosTx<'_>, dataset: ObjectId) -> Result<(), LiveError> {
    if !is_extended(mos, dataset)? {
        return Ok(());
    }
    let all = [FROM_GUID, TO_GUID, TO_NAME, OBJECT, OFFSET, BYTES, BOOKMARK_SNAPS];
    let flags = FLAGS.into_iter().map(|(_, name)| name);
    all.into_iter().chain(flags).try_for_each(|name| mos.remove(dataset, name).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const DATASET: ObjectId = ObjectId(81);

    fn entries() -> BTreeMap<&'static str, ZapValue> {
        [
            (FROM_GUID, 7_u64.into()),
            (TO_GUID, u64::MAX.into()),
            (TO_NAME, "tank/src@b".into()),
            (OBJECT, 3_u64.into()),
            (OFFSET, 262_144_u64.into()),
            (BYTES, 396_688_u64.into()),
            ("com.delphix:resume_compressok", 1_u64.into()),
        ]
        .into()
    }

    fn decoded(entries: &BTreeMap<&'static str, ZapValue>) -> Result<ResumeToken, MosError> {
        decode(DATASET, |name| Ok(entries.get(name).cloned()))
    }

    #[test]
    fn the_state_of_the_spec_is_a_token() {
        let token = decoded(&entries()).unwrap();
        assert_eq!((token.object, token.offset, token.bytes), (ObjectId(3), 262_144, 396_688));
        assert_eq!((token.to_guid, token.from_guid), (Guid(u64::MAX), Some(Guid(7))));
        assert_eq!(
            (&*token.to_name.to_text(), token.features),
            ("tank/src@b", StreamFeatures::COMPRESSED)
        );
        assert_eq!(ResumeToken::decode(&token.encode().unwrap()).unwrap(), token);
    }

    #[test]
    fn a_state_that_makes_no_sense_is_none() {
        let long = "x".repeat(300) + "@y";
        let words = |words: &[u64]| ZapValue::new(IntegerSize::Eight, words);
        for (name, value) in [
            (FROM_GUID, "text".into()),
            (TO_GUID, words(&[1, 2])),
            (TO_NAME, 7_u64.into()),
            (TO_NAME, "tank/src".into()),
            (TO_NAME, "".into()),
            (TO_NAME, long.as_str().into()),
            (OBJECT, 0_u64.into()),
            (OBJECT, (1_u64 << 48).into()),
            (OBJECT, words(&[])),
            (OFFSET, "0".into()),
            (BYTES, words(&[])),
            (BOOKMARK_SNAPS, words(&[0; MAX_SNAPS + 1])),
        ] {
            let mut entries = entries();
            entries.insert(name, value.clone());
            let error = decoded(&entries).unwrap_err();
            assert!(matches!(error, MosError::Entry { .. }), "{name} {value:?}: {error}");
        }
        for name in [TO_GUID, TO_NAME, OBJECT, OFFSET, BYTES] {
            let mut entries = entries();
            entries.remove(name);
            assert!(decoded(&entries).is_err(), "{name}");
        }
    }
}
