//! A stream from its beginning to its end.

use crate::applier::{Applier, StreamTraits};
use crate::error::{ReceiveError, Unsupported};
use crate::package;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_dsl::live::{
    ChangeError, Continuation, Interruption, LivePool, LocalChanges, NameLookup, NewReceive,
    ReceiveProblem, ReceivedProperties, Receiving, ResumePoint,
};
use rzfs_format::features::Feature;
use rzfs_format::nvlist::NvString;
use rzfs_format::objset::ObjsetType;
use rzfs_format::stream::{Begin, BeginFlags, Record, StreamFeatures, StreamKind};
use rzfs_format::{BlockId, ByteOrder, Guid, ObjectId};
use rzfs_stream::{
    Nesting, Package, PackagedBlocks, Problem, ReadOptions, StreamError, StreamReader,
};
use rzfs_zap::ZapValue;
use std::io::Read;
use std::sync::Arc;

/// The objset type of volumes in streams.
const VOLUME: u32 = 3;

/// Features of streams, with the pool features that they require.
const NEEDED: [(StreamFeatures, Feature); 4] = [
    (StreamFeatures::EMBED_DATA, Feature::EmbeddedData),
    (StreamFeatures::LZ4, Feature::Lz4Compress),
    (StreamFeatures::LARGE_DNODE, Feature::LargeDnode),
    (StreamFeatures::ZSTD, Feature::ZstdCompress),
];

/// The same for features that the dataset then uses, whatever blocks follow.
const USED: [(StreamFeatures, Feature); 3] = [
    (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
    (StreamFeatures::LONGNAME, Feature::LongName),
    (StreamFeatures::LARGE_MICROZAP, Feature::LargeMicroZap),
];

/// The destination of a stream, with options.
#[derive(Clone, Debug)]
pub struct ReceiveOrder {
    /// The file system or volume that gets the snapshot.
    pub target: String,
    /// The name of the snapshot; `None` for the stream's.
    pub snapshot: Option<String>,
    /// The snapshot from which a missing target is cloned; `None` for the stream's origin, if it
    /// has one.
    pub origin: Option<String>,
    /// Properties of a new target, in stored form.
    pub properties: Vec<(String, ZapValue)>,
    /// Received properties of a new target, if the stream has any.
    pub received: Option<ReceivedProperties>,
    /// Treatment of local changes of the target.
    pub changes: LocalChanges,
    /// Treatment of the partial state of an interrupted stream.
    pub remains: Remains,
}

impl ReceiveOrder {
    /// What the stream says goes to `target`, which keeps its own changes; of what breaks off nothing
    /// remains.
    pub fn for_target(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            snapshot: None,
            origin: None,
            properties: Vec::new(),
            received: None,
            changes: LocalChanges::Kept,
            remains: Remains::Destroyed,
        }
    }
}

/// Treatment of the partial state of an interrupted stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remains {
    /// It is destroyed.
    Destroyed,
    /// It is kept: a stream that starts at the point of interruption can resume it.
    Kept,
}

/// The received snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The full name of the snapshot.
    pub snapshot: String,
    /// Bytes of the stream after its first record.
    pub bytes: u64,
}

/// A stream that has arrived completely, but is not in its target yet. Dropping it is like an
/// interruption of the stream.
#[derive(Debug)]
pub struct Arrived<'p> {
    pool: &'p LivePool,
    /// `None` once it is finished.
    receiving: Option<Receiving>,
    received: Received,
    refused: Vec<(String, ChangeError)>,
}

impl Arrived<'_> {
    /// Properties of the stream that a new target rejects, with reasons.
    #[must_use]
    pub fn refused_properties(&self) -> &[(String, ChangeError)] {
        &self.refused
    }

    /// The current name of its target, which may have been renamed meanwhile.
    ///
    /// # Errors
    /// [`DatasetError`]: it was destroyed.
    pub fn target(&self) -> Result<String, DatasetError> {
        match &self.receiving {
            Some(receiving) => self.pool.receive_target(receiving),
            None => Ok(self.received.snapshot.split('@').next().unwrap_or_default().to_owned()),
        }
    }

    /// The target's new contents in their on-disk state: complete once [synced](LivePool::sync).
    ///
    /// # Errors
    /// [`DatasetError`]: it was destroyed.
    pub fn contents(&self) -> Result<Dataset, DatasetError> {
        match &self.receiving {
            Some(receiving) => self.pool.received_contents(receiving),
            None => self.pool.dataset_tree()?.open(&self.received.snapshot),
        }
    }

    /// Moves it into the target: contents and snapshot, atomically. A file system in use must be
    /// [reopened](LivePool::open_dataset) then.
    ///
    /// # Errors
    /// [`ChangeError`]: the target is unchanged.
    pub fn end(mut self) -> Result<Received, ChangeError> {
        if let Some(receiving) = self.receiving.take() {
            self.pool.end_receive(receiving)?;
        }
        Ok(self.received.clone())
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        if let Some(receiving) = self.receiving.take() {
            break_off(self.pool, receiving, &self.received.snapshot);
        }
    }
}

/// Destroys or keeps the partial state of a snapshot whose receive failed.
fn break_off(pool: &LivePool, receiving: Receiving, snapshot: &str) {
    pool.break_off_receive(receiving).unwrap_or_else(|error| {
        tracing::warn!(%error, snapshot, "what was received is left behind");
    });
}

/// The streams of a source: one of a snapshot, or a package of several.
#[derive(Debug)]
pub struct Streams<R> {
    reader: StreamReader<R>,
    /// The beginning of a single stream.
    alone: Option<Begin>,
    head: Option<PackageHead>,
}

/// The head of a package, before its streams.
#[derive(Debug)]
struct PackageHead {
    name: String,
    package: Option<Arc<Package>>,
}

impl<R: Read> Streams<R> {
    /// Reads the beginning, for a package its whole description.
    ///
    /// # Errors
    /// It is not a stream, or the description of a package is invalid.
    pub fn open(source: R) -> Result<Self, ReceiveError> {
        let mut reader = StreamReader::new(source, ReadOptions::default());
        let begin = match reader.next_record()? {
            Some(Record::Begin(begin)) => begin,
            _ => return Err(StreamError { place: reader.place(), problem: Problem::Empty }.into()),
        };
        if begin.version.kind() == Some(StreamKind::Substream) {
            return Ok(Self { reader, alone: Some(begin), head: None });
        }
        check_supported(&reader, &begin)?;
        let place = reader.place();
        let mut packed = Vec::new();
        reader.read_payload_to(&mut packed)?;
        // The end of the head, whose checksum verifies the payload.
        reader.next_record()?;
        let name = begin.to_name.to_text().into_owned();
        let package = match packed.as_slice() {
            [] => None,
            packed => {
                let decoded = Package::decode(packed);
                let decoded = decoded.map_err(|error| StreamError { place, problem: error.into() });
                let mut package = decoded?;
                if package.blocks == PackagedBlocks::Raw {
                    return Err(Unsupported::Raw.into());
                }
                if !begin.version.features().contains(StreamFeatures::HOLDS) {
                    let snapshots = package.datasets.iter_mut().flat_map(|one| &mut one.snapshots);
                    snapshots.for_each(|snapshot| snapshot.holds = None);
                }
                package::check(&package, &name)?;
                Some(Arc::new(package))
            }
        };
        Ok(Self { reader, alone: None, head: Some(PackageHead { name, package }) })
    }

    /// Whether several streams may follow.
    #[must_use]
    pub const fn is_package(&self) -> bool {
        self.head.is_some()
    }

    /// The sender's name of the file system or volume at the root of the package.
    #[must_use]
    pub fn top(&self) -> Option<&str> {
        self.head.as_ref()?.name.split('@').next()
    }

    /// The description of a package.
    #[must_use]
    pub fn package(&self) -> Option<&Arc<Package>> {
        self.head.as_ref()?.package.as_ref()
    }

    /// The next stream; `None` after the last one. The unread rest of the previous one is skipped,
    /// but verified.
    ///
    /// # Errors
    /// It cannot be read, or its kind is not supported.
    pub fn next_stream(&mut self) -> Result<Option<Incoming<'_, R>>, ReceiveError> {
        let begin = match self.alone.take() {
            Some(begin) => begin,
            None => {
                while self.reader.nesting().is_in_substream() {
                    self.reader.next_record()?;
                }
                match self.reader.next_record()? {
                    Some(Record::Begin(begin)) => begin,
                    _ => return Ok(None),
                }
            }
        };
        Incoming::new(&mut self.reader, begin).map(Some)
    }
}

/// Refuses unsupported kinds of streams before any change is made for them.
fn check_supported<R: Read>(reader: &StreamReader<R>, begin: &Begin) -> Result<(), ReceiveError> {
    let features = begin.version.features();
    for (feature, unsupported) in
        [(StreamFeatures::RAW, Unsupported::Raw), (StreamFeatures::REDACTED, Unsupported::Redacted)]
    {
        if features.contains(feature) {
            return Err(unsupported.into());
        }
    }
    match reader.order() == Some(ByteOrder::NATIVE) {
        true => Ok(()),
        false => Err(Unsupported::ByteOrder.into()),
    }
}

/// A stream with its beginning read.
#[derive(Debug)]
pub struct Incoming<'s, R> {
    reader: &'s mut StreamReader<R>,
    begin: Begin,
    /// Its starting point, if it resumes an interrupted one.
    rest: Option<Continuation>,
}

impl<'s, R: Read> Incoming<'s, R> {
    fn new(reader: &'s mut StreamReader<R>, begin: Begin) -> Result<Self, ReceiveError> {
        check_supported(reader, &begin)?;
        let features = begin.version.features();
        let rest = match features.contains(StreamFeatures::RESUMING) {
            true => Some(continuation(reader)?),
            false => None,
        };
        Ok(Self { reader, begin, rest })
    }

    /// The stream's first record.
    #[must_use]
    pub const fn begin(&self) -> &Begin {
        &self.begin
    }

    /// The source of an incremental stream.
    #[must_use]
    pub fn source(&self) -> Option<Guid> {
        (self.begin.from_guid != Guid(0)).then_some(self.begin.from_guid)
    }

    /// Whether it resumes an interrupted stream.
    #[must_use]
    pub const fn is_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// Whether it is the stream of a clone: an increment to a snapshot of another dataset.
    #[must_use]
    pub const fn is_clone(&self) -> bool {
        self.begin.flags.contains(BeginFlags::CLONE)
    }

    /// The sender's name of the file system or volume, and the name of the snapshot after the `@`.
    ///
    /// # Errors
    /// These are not valid names.
    pub fn sent(&self) -> Result<(String, String), ReceiveError> {
        let name = self.begin.to_name.to_text();
        let parts = name.split_once('@').map(|(head, last)| (head.to_owned(), last.to_owned()));
        let invalid = || ChangeError::InvalidName { name: name.clone().into_owned() };
        Ok(parts.ok_or_else(invalid)?)
    }

    /// Receives the stream into the target. Its source is read to the end of the stream and no
    /// further.
    ///
    /// # Errors
    /// [`ReceiveError`]: the target is unchanged, except for [kept state](Remains::Kept).
    pub fn receive(self, pool: &LivePool, order: &ReceiveOrder) -> Result<Received, ReceiveError> {
        Ok(self.arrive(pool, order)?.end()?)
    }

    /// Receives the stream without making it visible. Its source is read to the end of the stream
    /// and no further.
    ///
    /// # Errors
    /// [`ReceiveError`]: the target is unchanged, except for [kept state](Remains::Kept).
    pub fn arrive<'p>(
        mut self,
        pool: &'p LivePool,
        order: &ReceiveOrder,
    ) -> Result<Arrived<'p>, ReceiveError> {
        let new = self.judge(pool, order)?;
        let receiving = match self.rest {
            Some(at) => pool.resume_receive(&new, at)?,
            None => pool.begin_receive(&new)?,
        };
        let snapshot = format!("{}@{}", new.target, new.snapshot);
        // They come first: received data must be within quotas, and are written accordingly.
        let refused = match &order.received {
            Some(brought) => pool.receive_properties(&new.target, brought),
            None => Ok(Vec::new()),
        };
        let applied = refused.map_err(ReceiveError::from);
        let applied =
            applied.and_then(|refused| Ok((self.apply(pool, &new, &receiving)?, refused)));
        match applied {
            Ok((bytes, refused)) => {
                let received = Received { snapshot, bytes };
                Ok(Arrived { pool, receiving: Some(receiving), received, refused })
            }
            Err(error) => {
                break_off(pool, receiving, &snapshot);
                Err(error)
            }
        }
    }

    /// The type of the sent dataset.
    #[must_use]
    pub const fn objset_type(&self) -> ObjsetType {
        match self.begin.objset_type {
            VOLUME => ObjsetType::Zvol,
            _ => ObjsetType::Zfs,
        }
    }

    /// The parameters of the receive for the pool.
    fn judge(&self, pool: &LivePool, order: &ReceiveOrder) -> Result<NewReceive, ReceiveError> {
        let (begin, source) = (&self.begin, self.source());
        let features = begin.version.features();
        let of = |table: &[(StreamFeatures, Feature)]| {
            let told = table.iter().filter(|(feature, _)| features.contains(*feature));
            told.map(|(_, feature)| *feature).collect()
        };
        let origin = match (&order.origin, source) {
            // Its origin is known already.
            _ if self.rest.is_some() => None,
            (Some(_), None) => return Err(Unsupported::FullClone.into()),
            (None, _) => self.origin(pool, &order.target)?,
            (origin, _) => origin.clone(),
        };
        Ok(NewReceive {
            target: order.target.clone(),
            snapshot: match &order.snapshot {
                Some(name) => name.clone(),
                None => self.sent()?.1,
            },
            guid: begin.to_guid,
            creation_time: begin.creation_time,
            source,
            origin,
            objset_type: self.objset_type(),
            names: match begin.flags.contains(BeginFlags::CI_DATA) {
                true => NameLookup::CaseInsensitive,
                false => NameLookup::CaseSensitive,
            },
            needs: of(&NEEDED),
            uses: of(&USED),
            properties: order.properties.clone(),
            changes: order.changes,
            interruption: match order.remains {
                Remains::Destroyed => Interruption::Destroyed,
                Remains::Kept => {
                    let sent = begin.to_name.as_bytes().map_err(Problem::from);
                    let sent = sent.and_then(|name| Ok(NvString::new(name)?));
                    let place = self.reader.place();
                    let sent = sent.map_err(|problem| StreamError { place, problem })?;
                    Interruption::Kept { sent, features }
                }
            },
        })
    }

    /// Applies all records; returns the number of bytes.
    fn apply(
        &mut self,
        pool: &LivePool,
        new: &NewReceive,
        receiving: &Receiving,
    ) -> Result<u64, ReceiveError> {
        let traits = StreamTraits {
            is_full: new.source.is_none(),
            marks_spills: self.begin.flags.contains(BeginFlags::SPILL_BLOCK),
        };
        let mut applier = Applier::new(pool, (&new.target, receiving), traits);
        let begun = self.reader.place().offset;
        let before = receiving.start().bytes;
        let mut payload = Vec::new();
        while let Some(record) = self.reader.next_record()? {
            let place = self.reader.place();
            if let Record::End(_) = record {
                // Only this record's own checksum follows it.
                if self.reader.nesting() == Nesting::Done {
                    self.reader.confirm()?;
                }
                return Ok(place.offset.saturating_sub(begun));
            }
            if self.reader.payload_length() > 0 {
                self.reader.read_payload_to(&mut payload)?;
                self.reader.confirm()?;
            } else {
                payload.clear();
            }
            applier.apply(place, &record, &payload)?;
            if let Some((object, offset)) = place_of(&record) {
                let end = place.offset.saturating_add(payload.len() as u64).saturating_sub(begun);
                let bytes = before.saturating_add(end);
                pool.note_received(receiving, ResumePoint { object, offset, bytes });
            }
        }
        Err(StreamError { place: self.reader.place(), problem: Problem::NoEnd }.into())
    }

    /// The snapshot in the pool from which a missing target is cloned, if the stream is a clone's.
    ///
    /// # Errors
    /// There is none, or something cannot be read.
    pub fn origin(&self, pool: &LivePool, target: &str) -> Result<Option<String>, ReceiveError> {
        match self.source().filter(|_| self.is_clone()) {
            Some(source) => self.find_origin(pool, target, source),
            None => Ok(None),
        }
    }

    fn find_origin(
        &self,
        pool: &LivePool,
        target: &str,
        source: Guid,
    ) -> Result<Option<String>, ReceiveError> {
        let unread = |error: DatasetError| ReceiveError::from(ChangeError::from(error));
        let tree = pool.dataset_tree().map_err(unread)?;
        match tree.open(target) {
            Ok(_) => return Ok(None),
            Err(DatasetError::NotFound { .. }) => {}
            Err(error) => return Err(unread(error)),
        }
        // Datasets near the target are preferred.
        let mut around = target;
        while let Some((above, _)) = around.rsplit_once('/') {
            around = above;
            let above = match tree.open(above) {
                Err(DatasetError::NotFound { .. }) => continue,
                above => above.map_err(unread)?,
            };
            for dataset in above.descendants().map_err(unread)? {
                for snapshot in dataset.snapshots().map_err(unread)? {
                    if snapshot.dsl_dataset().guid == source {
                        return Ok(Some(snapshot.name().to_owned()));
                    }
                }
            }
        }
        let (_, last) = self.sent()?;
        Err(ReceiveError::NoOrigin { snapshot: format!("{target}@{last}") })
    }
}

/// The starting point of a resumed stream, from its list.
fn continuation<R: Read>(reader: &mut StreamReader<R>) -> Result<Continuation, ReceiveError> {
    let list = reader.read_nvlist(&mut Vec::new())?;
    let number = |name| list.find_u64(name).ok().flatten();
    let object = number("resume_object").map(ObjectId);
    match (object, number("resume_offset")) {
        (Some(object), Some(offset)) => Ok(Continuation { object, offset }),
        _ => Err(ChangeError::from(ReceiveProblem::NotTheRest).into()),
    }
}

/// The point at which a stream interrupted after this record can resume.
fn place_of(record: &Record) -> Option<(ObjectId, u64)> {
    match record {
        Record::Object(object) => Some((object.object, 0)),
        Record::Write(write) => Some((write.object, write.offset)),
        // A spill block is not such a point: resuming there would omit the rest of its object.
        Record::WriteEmbedded(write)
            if write.offset != BlockId::SPILL.0.wrapping_mul(write.length) =>
        {
            Some((write.object, write.offset))
        }
        _ => None,
    }
}
