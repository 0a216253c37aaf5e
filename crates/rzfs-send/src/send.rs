//! A snapshot to be sent.

use crate::flow;
use crate::form::Sealing;
use crate::raw::{self, IvSets};
use crate::records::Terms;
use crate::source::{Source, Start};
use crate::{Form, SendError};
use rzfs_dmu::{DmuError, Objset};
use rzfs_dsl::dataset::property::PropertyValue;
use rzfs_dsl::dataset::{Dataset, DatasetTree, KeptSnapshot};
use rzfs_dsl::pool::FeatureStates;
use rzfs_format::dnode::SLOT_SIZE;
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::nvlist::{Encoding, NvList, NvValue};
use rzfs_format::objset::ObjsetType;
use rzfs_format::property::DatasetProperty;
use rzfs_format::stream::{
    Begin, BeginFlags, MAGIC, RECORD_SIZE, Record, StreamFeatures, StreamKind, StreamName,
    VersionInfo,
};
use rzfs_format::units::Bookmark;
use rzfs_format::znode::ZplVersion;
use rzfs_format::{BlockId, ByteOrder, FormatError, Guid, Level, ObjectId};
use rzfs_stream::{Package, ResumeToken, StreamError, StreamWriter};
use std::io::Write;

/// One snapshot to be sent, with its BEGIN, or a partially received one. It cannot be destroyed
/// while this exists.
#[derive(Debug)]
pub struct Send {
    objset: Objset,
    begin: Begin,
    /// The payload of BEGIN, and its packed form.
    list: NvList,
    packed: Vec<u8>,
    terms: Terms,
    ending: Ending,
    _kept: Kept,
}

/// The end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// An END record: the stream is complete.
    Complete,
    /// None, as in an interrupted stream.
    BrokenOff,
}

/// Protects the blocks to be sent.
#[derive(Debug)]
enum Kept {
    /// Keeps the snapshot from being destroyed.
    Snapshot(#[expect(dead_code, reason = "it is held")] KeptSnapshot),
    /// Keeps the blocks of a txg from being reused.
    View(#[expect(dead_code, reason = "it is held")] DatasetTree),
}

/// The amount sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Records, including BEGIN and END.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Send {
    /// A stream of `snapshot`: all of it, or the changes since `source`. `features` are those of
    /// its pool.
    ///
    /// # Errors
    /// It is not a snapshot, or cannot be sent in this form; the source is not in its past;
    /// something cannot be read; its key is not loaded.
    pub fn new(
        snapshot: &Dataset,
        source: Option<&Source>,
        form: Form,
        features: &FeatureStates,
    ) -> Result<Self, SendError> {
        let name = || snapshot.name().to_owned();
        if !snapshot.is_snapshot() {
            return Err(SendError::NotASnapshot { name: name() });
        }
        let start = source.map(|source| source.start_of(snapshot)).transpose()?;
        let kept = Kept::Snapshot(snapshot.keep());
        let named = (snapshot.dsl_dataset().guid, snapshot.name().as_bytes());
        Self::of((snapshot, kept), start, named, (form, features))
    }

    /// A partially received snapshot in a head: a stream that equals the beginning of the
    /// interrupted one, and breaks off at the same place.
    ///
    /// # Errors
    /// As [`Send::new`].
    pub fn saved(
        received: &Dataset,
        token: &ResumeToken,
        form: Form,
        features: &FeatureStates,
    ) -> Result<Self, SendError> {
        let start = match token.from_guid.filter(|guid| *guid != Guid(0)) {
            Some(guid) => Some(Start::before(received, guid)?),
            None => None,
        };
        let kept = Kept::View(received.tree().clone());
        let named = (token.to_guid, token.to_name.as_bytes());
        let mut send = Self::of((received, kept), start, named, (form, features))?;
        send.ending = Ending::BrokenOff;
        send.terms.last = Some((token.object, token.offset));
        Ok(send)
    }

    fn of(
        (snapshot, kept): (&Dataset, Kept),
        start: Option<Start>,
        (to_guid, to_name): (Guid, &[u8]),
        (form, features): (Form, &FeatureStates),
    ) -> Result<Self, SendError> {
        let name = || snapshot.name().to_owned();
        if snapshot.redaction_snapshots()?.is_some() {
            return Err(SendError::Redacted { name: name() });
        }
        let sealed = match form.raw {
            true => snapshot.sealed_keys()?,
            false => None,
        };
        if sealed.as_ref().is_some_and(|sealed| sealed.keys.version.number() == 0) {
            return Err(SendError::OldKeys { name: name() });
        }
        let form = form.of(if sealed.is_some() { Sealing::Sealed } else { Sealing::Plain });
        let objset = match sealed {
            Some(_) => snapshot.open_locked()?,
            None => snapshot.open_objset()?,
        };
        let kind = match objset.objset_type() {
            ObjsetType::Zfs | ObjsetType::Zvol => objset.objset_type(),
            _ => return Err(SendError::Kind { name: name() }),
        };
        let features = stream_features(snapshot, kind, form, features)?;
        let start = start.unwrap_or_default();
        let dataset = snapshot.dsl_dataset();
        let begin = Begin {
            magic: MAGIC,
            version: VersionInfo::new(StreamKind::Substream, features),
            creation_time: dataset.creation_time,
            objset_type: kind.number() as u32,
            flags: begin_flags(dataset, &start),
            to_guid,
            from_guid: start.guid,
            to_name: StreamName::new(to_name).map_err(|_| SendError::Kind { name: name() })?,
            ..Begin::default()
        };
        let meta = objset.block().meta_dnode.as_ref();
        let slots = meta.map_or(0, |meta| meta.extent() / SLOT_SIZE as u64);
        let terms = Terms {
            objset: objset.id(),
            to_guid,
            after: start.txg,
            features,
            form,
            end: ObjectId(slots.min(ObjectId::END.0)),
            start: None,
            last: None,
        };
        let mut list = NvList::new();
        if let Some(sealed) = sealed {
            let to = snapshot.iv_set()?.unwrap_or_default();
            let key_data = raw::key_data(&sealed, &objset, IvSets { to, from: start.iv_set });
            let inserted = key_data.and_then(|data| list.insert(raw::KEY_DATA, data));
            inserted.map_err(SendError::List)?;
        }
        let (packed, ending) = (Vec::new(), Ending::Complete);
        Self { objset, begin, list, packed, terms, ending, _kept: kept }.with_list_packed()
    }

    /// The same starting from the record for this object, or for its block at `offset`: the
    /// receiver has everything before from another stream.
    ///
    /// # Errors
    /// There is no such object, or it cannot be read.
    pub fn resumed_at(mut self, object: ObjectId, offset: u64) -> Result<Self, SendError> {
        if object.get() == 0 || object >= ObjectId::END {
            return Err(SendError::NoPlace { object });
        }
        let found = match self.objset.object(object) {
            Err(DmuError::NotAllocated { .. }) => return Err(SendError::NoPlace { object }),
            found => found?,
        };
        let size = u64::from(found.block_size()).max(1);
        // The whole object is sent again, including holes before its first block.
        let (level, block) = match offset {
            0 => (Level(i8::MAX), BlockId(0)),
            offset => (Level::DATA, BlockId(offset / size)),
        };
        let objset = self.objset.id();
        self.terms.start = Some(Bookmark { objset, object, level, block });
        let told = self.list.insert("resume_object", NvValue::UInt64(object.get()));
        let told = told.and_then(|()| self.list.insert("resume_offset", NvValue::UInt64(offset)));
        told.map_err(SendError::List)?;
        let version = self.begin.version;
        let features = version.features().with(StreamFeatures::RESUMING);
        self.begin.version = VersionInfo::new(StreamKind::Substream, features);
        self.with_list_packed()
    }

    /// The same with its current list packed and padded to whole words (spec 08, section 6.1).
    fn with_list_packed(mut self) -> Result<Self, SendError> {
        if !self.list.is_empty() {
            self.packed = self.list.encode(Encoding::Xdr).map_err(SendError::List)?;
            self.packed.resize(self.packed.len().next_multiple_of(8), 0);
        }
        self.begin.payload_length = self.packed.len() as u32;
        Ok(self)
    }

    /// The head of the stream.
    #[must_use]
    pub const fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Size of the stream, determined by a walk that reads no contents.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn size(&self) -> Result<u64, SendError> {
        let ends = match self.ending {
            Ending::Complete => 2 * RECORD_SIZE as u64,
            Ending::BrokenOff => RECORD_SIZE as u64,
        };
        let list = self.packed.len() as u64;
        Ok((ends + list).saturating_add(flow::measure(&self.objset, self.terms)?))
    }

    /// Writes the stream to a sink, with one call for each record; a buffered sink merges small
    /// ones.
    ///
    /// # Errors
    /// Something cannot be read; the sink fails; the snapshot was destroyed. The written part then
    /// has no end.
    pub fn write_to(&self, sink: impl Write) -> Result<Sent, SendError> {
        let mut writer = StreamWriter::new(sink, ByteOrder::NATIVE);
        self.write_stream(&mut writer)?;
        finish(writer)
    }

    /// Writes several streams as a package with the name `name` and, if any, the description
    /// `contents`.
    ///
    /// # Errors
    /// As [`Send::write_to`]; the name or the contents are too long for a stream.
    pub fn write_package(
        sends: &[Self],
        (name, contents): (&str, Option<&Package>),
        sink: impl Write,
    ) -> Result<Sent, SendError> {
        let mut writer = StreamWriter::new(sink, ByteOrder::NATIVE);
        let place = writer.place();
        let unfit = |error: FormatError| StreamError { place, problem: error.into() };
        let payload = contents.map(Package::encode).transpose().map_err(unfit)?;
        let payload = payload.unwrap_or_default();
        // Receivers look for holds only if this feature is set.
        let features = match contents.is_some_and(Package::has_holds) {
            true => StreamFeatures::HOLDS,
            false => StreamFeatures::NONE,
        };
        let head = Begin {
            magic: MAGIC,
            version: VersionInfo::new(StreamKind::Package, features),
            to_name: StreamName::new(name.as_bytes())
                .map_err(|_| SendError::Kind { name: name.to_owned() })?,
            payload_length: payload.len() as u32,
            ..Begin::default()
        };
        writer.write(&Record::Begin(head), &payload)?;
        writer.end(Guid(0))?;
        sends.iter().try_for_each(|send| send.write_stream(&mut writer))?;
        writer.end(Guid(0))?;
        finish(writer)
    }

    /// Writes the stream as a part of a writer's output.
    ///
    /// # Errors
    /// As [`Send::write_to`].
    pub fn write_stream<W: Write>(&self, writer: &mut StreamWriter<W>) -> Result<(), SendError> {
        writer.write(&Record::Begin(self.begin), &self.packed)?;
        flow::write(&self.objset, self.terms, writer)?;
        match self.ending {
            Ending::Complete => Ok(writer.end(self.terms.to_guid)?),
            Ending::BrokenOff => Ok(()),
        }
    }
}

/// Flushes the sink.
fn finish<W: Write>(writer: StreamWriter<W>) -> Result<Sent, SendError> {
    let place = writer.place();
    let flushed = writer.into_inner().flush();
    flushed.map_err(|error| StreamError { place, problem: error.into() })?;
    Ok(Sent { records: place.record, bytes: place.offset })
}

fn begin_flags(dataset: &DslDataset, start: &Start) -> BeginFlags {
    let mut flags = BeginFlags::FREERECORDS.with(BeginFlags::SPILL_BLOCK);
    if start.is_in_origin {
        flags = flags.with(BeginFlags::CLONE);
    }
    if dataset.flags & DslDataset::FLAG_CASE_INSENSITIVE != 0 {
        flags = flags.with(BeginFlags::CI_DATA);
    }
    flags
}

/// The features required to receive the stream (spec 08, section 3.2).
fn stream_features(
    snapshot: &Dataset,
    kind: ObjsetType,
    form: Form,
    pool: &FeatureStates,
) -> Result<StreamFeatures, SendError> {
    let uses =
        |feature: Feature| Ok::<_, SendError>(snapshot.dataset_field(feature.guid())?.is_some());
    let mut features = StreamFeatures::NONE;
    let mut add = |is_needed: bool, feature: StreamFeatures| {
        if is_needed {
            features = features.with(feature);
        }
    };
    if kind == ObjsetType::Zfs {
        let version = snapshot.property(DatasetProperty::Version.name())?;
        let has_spills = version.and_then(|version| version.value).is_some_and(|version| {
            matches!(version, PropertyValue::Number(number) if number >= ZplVersion::SA.number())
        });
        add(has_spills, StreamFeatures::SA_SPILL);
    }
    let embeds = form.embedded && pool.is_active(Feature::EmbeddedData);
    let large = form.large_blocks && uses(Feature::LargeBlocks)?;
    add(form.raw, StreamFeatures::RAW);
    add(embeds, StreamFeatures::EMBED_DATA);
    add(form.compressed, StreamFeatures::COMPRESSED);
    add((embeds || form.compressed) && pool.is_active(Feature::Lz4Compress), StreamFeatures::LZ4);
    add(form.compressed && uses(Feature::ZstdCompress)?, StreamFeatures::ZSTD);
    add(large, StreamFeatures::LARGE_BLOCKS);
    add(uses(Feature::LargeDnode)?, StreamFeatures::LARGE_DNODE);
    add(uses(Feature::LongName)?, StreamFeatures::LONGNAME);
    if uses(Feature::LargeMicroZap)? {
        if !large {
            return Err(SendError::LargeMicrozap { name: snapshot.name().to_owned() });
        }
        add(true, StreamFeatures::LARGE_MICROZAP);
    }
    Ok(features)
}
