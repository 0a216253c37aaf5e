//! A stream from its beginning to its end.

use crate::applier::{Applier, StreamTraits};
use crate::error::{ReceiveError, Unsupported};
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::live::{ChangeError, LivePool, LocalChanges, NameLookup, NewReceive, Receiving};
use rzfs_format::features::Feature;
use rzfs_format::objset::ObjsetType;
use rzfs_format::stream::{Begin, BeginFlags, Record, StreamFeatures, StreamKind};
use rzfs_format::{ByteOrder, Guid};
use rzfs_stream::{Problem, ReadOptions, StreamError, StreamReader};
use std::io::Read;

/// The objset type of volumes, as streams number it.
const VOLUME: u32 = 3;

/// Features of streams, with those that a pool needs for them.
const NEEDED: [(StreamFeatures, Feature); 4] = [
    (StreamFeatures::EMBED_DATA, Feature::EmbeddedData),
    (StreamFeatures::LZ4, Feature::Lz4Compress),
    (StreamFeatures::LARGE_DNODE, Feature::LargeDnode),
    (StreamFeatures::ZSTD, Feature::ZstdCompress),
];

/// The same of those that a dataset uses then, whatever blocks follow.
const USED: [(StreamFeatures, Feature); 3] = [
    (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
    (StreamFeatures::LONGNAME, Feature::LongName),
    (StreamFeatures::LARGE_MICROZAP, Feature::LargeMicroZap),
];

/// Where a stream goes to.
#[derive(Clone, Debug)]
pub struct ReceiveOrder {
    /// The file system or volume that gets the snapshot.
    pub target: String,
    /// The name of the snapshot; `None`: the one that the stream says.
    pub snapshot: Option<String>,
    /// The snapshot of which a target that is not there becomes a clone; `None`: the one that the
    /// stream says, if it says so.
    pub origin: Option<String>,
    /// What becomes of the target's own changes.
    pub changes: LocalChanges,
}

/// What was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The full name of the snapshot.
    pub snapshot: String,
    /// Bytes of the stream behind its first record.
    pub bytes: u64,
}

/// A stream whose beginning was read.
#[derive(Debug)]
pub struct Incoming<R> {
    reader: StreamReader<R>,
    begin: Begin,
}

impl<R: Read> Incoming<R> {
    /// Reads the beginning of a stream.
    ///
    /// # Errors
    /// It is no stream, or one of a kind that is not received.
    pub fn open(source: R) -> Result<Self, ReceiveError> {
        let mut reader = StreamReader::new(source, ReadOptions::default());
        let empty = |place| StreamError { place, problem: Problem::Empty };
        let Some(Record::Begin(begin)) = reader.next_record()? else {
            return Err(empty(reader.place()).into());
        };
        if begin.version.kind() != Some(StreamKind::Substream) {
            return Err(Unsupported::Package.into());
        }
        let features = begin.version.features();
        for (feature, unsupported) in [
            (StreamFeatures::RAW, Unsupported::Raw),
            (StreamFeatures::RESUMING, Unsupported::Resumed),
            (StreamFeatures::REDACTED, Unsupported::Redacted),
        ] {
            if features.contains(feature) {
                return Err(unsupported.into());
            }
        }
        if reader.order() != Some(ByteOrder::NATIVE) {
            return Err(Unsupported::ByteOrder.into());
        }
        Ok(Self { reader, begin })
    }

    /// The stream's first record.
    #[must_use]
    pub const fn begin(&self) -> &Begin {
        &self.begin
    }

    /// The snapshot that the stream says the changes of, if it does.
    #[must_use]
    pub fn source(&self) -> Option<Guid> {
        (self.begin.from_guid != Guid(0)).then_some(self.begin.from_guid)
    }

    /// The name of the sent snapshot, behind the `@`.
    ///
    /// # Errors
    /// It is no name.
    pub fn snapshot_name(&self) -> Result<String, ReceiveError> {
        let name = self.begin.to_name.to_text();
        let name = name.split_once('@').map(|(_, snapshot)| snapshot.to_owned());
        let invalid =
            || ChangeError::InvalidName { name: self.begin.to_name.to_text().into_owned() };
        Ok(name.ok_or_else(invalid)?)
    }

    /// Receives the stream. Its source is read to the end of the stream and no further.
    ///
    /// # Errors
    /// [`ReceiveError`]: the target is as it was before.
    pub fn receive(
        mut self,
        pool: &LivePool,
        order: &ReceiveOrder,
    ) -> Result<Received, ReceiveError> {
        let new = self.judge(pool, order)?;
        let snapshot = format!("{}@{}", new.target, new.snapshot);
        let receiving = pool.begin_receive(&new)?;
        match self.apply(pool, &new, &receiving) {
            Ok(bytes) => {
                pool.end_receive(receiving)?;
                Ok(Received { snapshot, bytes })
            }
            Err(error) => {
                pool.abandon_receive(receiving).unwrap_or_else(|error| {
                    tracing::warn!(%error, target = new.target, "what was received is left behind");
                });
                Err(error)
            }
        }
    }

    /// What the stream is for the pool.
    fn judge(&self, pool: &LivePool, order: &ReceiveOrder) -> Result<NewReceive, ReceiveError> {
        let (begin, source) = (&self.begin, self.source());
        let features = begin.version.features();
        let of = |table: &[(StreamFeatures, Feature)]| {
            let told = table.iter().filter(|(feature, _)| features.contains(*feature));
            told.map(|(_, feature)| *feature).collect()
        };
        let origin = match (&order.origin, source) {
            (Some(_), None) => return Err(Unsupported::FullClone.into()),
            (None, Some(source)) if begin.flags.contains(BeginFlags::CLONE) => {
                find_origin(pool, &order.target, source).map_err(ChangeError::from)?
            }
            (origin, _) => origin.clone(),
        };
        Ok(NewReceive {
            target: order.target.clone(),
            snapshot: match &order.snapshot {
                Some(name) => name.clone(),
                None => self.snapshot_name()?,
            },
            guid: begin.to_guid,
            creation_time: begin.creation_time,
            source,
            origin,
            objset_type: match begin.objset_type {
                VOLUME => ObjsetType::Zvol,
                _ => ObjsetType::Zfs,
            },
            names: match begin.flags.contains(BeginFlags::CI_DATA) {
                true => NameLookup::CaseInsensitive,
                false => NameLookup::CaseSensitive,
            },
            needs: of(&NEEDED),
            uses: of(&USED),
            changes: order.changes,
        })
    }

    /// Applies all records; tells how many bytes there were.
    fn apply(
        &mut self,
        pool: &LivePool,
        new: &NewReceive,
        receiving: &Receiving,
    ) -> Result<u64, ReceiveError> {
        let traits = StreamTraits {
            is_full: new.source.is_none(),
            tells_spills: self.begin.flags.contains(BeginFlags::SPILL_BLOCK),
        };
        let mut applier = Applier::new(pool, receiving, traits);
        let mut payload = Vec::new();
        while let Some(record) = self.reader.next_record()? {
            let place = self.reader.place();
            if let Record::End(_) = record {
                // Nothing but this record's own checksum is behind it.
                self.reader.confirm()?;
                return Ok(place.offset);
            }
            if self.reader.payload_length() > 0 {
                self.reader.read_payload_to(&mut payload)?;
                self.reader.confirm()?;
            } else {
                payload.clear();
            }
            applier.apply(place, &record, &payload)?;
        }
        Err(StreamError { place: self.reader.place(), problem: Problem::NoEnd }.into())
    }
}

/// The snapshot in the pool that has this identity, of which a target that is not there becomes a
/// clone.
fn find_origin(
    pool: &LivePool,
    target: &str,
    source: Guid,
) -> Result<Option<String>, DatasetError> {
    let tree = pool.dataset_tree()?;
    match tree.open(target) {
        Ok(_) => return Ok(None),
        Err(DatasetError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    for dataset in tree.root()?.descendants()? {
        for snapshot in dataset.snapshots()? {
            if snapshot.dsl_dataset().guid == source {
                return Ok(Some(snapshot.name().to_owned()));
            }
        }
    }
    Ok(None)
}
