//! Writing the pool's history (spec 01, section 7.2).

use crate::live::LiveError;
use crate::live::mos::{BonusRecord, MosTx};
use crate::pool::OBJECT_DIRECTORY as DIRECTORY;
use crate::pool::history::{Header, LENGTH_SIZE};
use rzfs_dmu::live::LiveObject;
use rzfs_format::nvlist::{Encoding, NvList, NvString, NvValue};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, FormatError, ObjectId, Txg};

/// Bytes of a block of the history.
const BLOCK: u32 = 128 << 10;
/// The history of a pool takes a thousandth of it, within these bounds.
const POOL_SHARE: u64 = 1000;
const MIN_LOG: u64 = 128 << 10;
const MAX_LOG: u64 = 1 << 30;

impl BonusRecord for Header {
    const BONUS_TYPE: ObjectType = ObjectType::SPA_HISTORY_OFFSETS;

    fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        Self::decode(bonus, order)
    }

    fn encode(&self) -> Vec<u8> {
        Self::encode(self, ByteOrder::NATIVE).to_vec()
    }
}

/// Something that is remembered of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A command that somebody gave.
    Command {
        /// Its words.
        line: String,
        /// The user.
        user: u64,
    },
    /// Something that was done to the pool, or to one of its datasets.
    Internal {
        /// The operation: `create`, `set`, `open`, ...
        operation: &'static str,
        /// What about it.
        text: String,
        /// The dataset: its name and object.
        dataset: Option<(String, ObjectId)>,
    },
}

/// When and where something happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion<'a> {
    pub(crate) txg: Txg,
    pub(crate) time: u64,
    pub(crate) host: &'a str,
}

impl Event {
    fn record(&self, occasion: Occasion<'_>) -> Result<NvList, FormatError> {
        let text = |text: &str| NvString::new(text).map(NvValue::String);
        let mut list = NvList::new();
        match self {
            Self::Command { line, user } => {
                list.insert("history command", text(line)?)?;
                list.insert("history zone", text("linux")?)?;
                list.insert("history who", NvValue::UInt64(*user))?;
            }
            Self::Internal { operation, text: about, dataset } => {
                if let Some((name, object)) = dataset {
                    list.insert("dsname", text(name)?)?;
                    list.insert("dsid", NvValue::UInt64(object.get()))?;
                }
                list.insert("history internal str", text(about)?)?;
                list.insert("internal_name", text(operation)?)?;
                list.insert("history txg", NvValue::UInt64(occasion.txg.get()))?;
            }
        }
        list.insert("history time", NvValue::UInt64(occasion.time))?;
        list.insert("history hostname", text(occasion.host)?)?;
        Ok(list)
    }
}

/// Makes the history of a pool whose normal class has `space` bytes.
pub(crate) fn create(mos: &MosTx<'_>, space: u64) -> Result<ObjectId, LiveError> {
    let max_offset = (space / POOL_SHARE).clamp(MIN_LOG, MAX_LOG);
    let header = Header { create_len: 0, max_offset, begin: 0, end: 0, lost: 0 };
    let id = mos.create_record(ObjectType::SPA_HISTORY, BLOCK, &header)?;
    mos.insert(DIRECTORY, "history", id.get())?;
    Ok(id)
}

/// Appends a record, over the oldest ones if there is no room. The records up to the first
/// command stay for ever.
pub(crate) fn append(
    mos: &MosTx<'_>,
    id: ObjectId,
    event: &Event,
    occasion: Occasion<'_>,
) -> Result<(), LiveError> {
    let record =
        event.record(occasion).and_then(|list| list.encode(Encoding::Native(ByteOrder::NATIVE)));
    let record = record.map_err(LiveError::corrupt(id))?;
    let object = mos.object(id)?;
    let mut header: Header = mos.record(id)?;
    let mut bytes = (record.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&record);
    let ring = header.max_offset - header.create_len;
    if bytes.len() as u64 >= ring {
        return Ok(());
    }
    while ring - (header.end - header.begin) <= bytes.len() as u64 {
        let mut length = [0; LENGTH_SIZE as usize];
        read(&object, &header, header.begin, &mut length)?;
        let next = u64::from_le_bytes(length).saturating_add(LENGTH_SIZE);
        header.begin = header.begin.saturating_add(next).min(header.end);
        header.lost += 1;
    }
    write(mos, &object, &header, &bytes)?;
    header.end += bytes.len() as u64;
    if header.create_len == 0 && matches!(event, Event::Command { .. }) {
        header.create_len = header.end;
        header.begin = header.end;
    }
    mos.set_record(id, &header)
}

fn read(
    object: &LiveObject,
    header: &Header,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), LiveError> {
    let (mut rest, mut offset) = (buffer, offset);
    while !rest.is_empty() {
        let (at, room) = header.place(offset);
        let len = (rest.len() as u64).min(room);
        let (now, later) = rest.split_at_mut(len as usize);
        object.read_at(at, now)?;
        (rest, offset) = (later, offset.saturating_add(len));
    }
    Ok(())
}

fn write(
    mos: &MosTx<'_>,
    object: &LiveObject,
    header: &Header,
    bytes: &[u8],
) -> Result<(), LiveError> {
    let (mut rest, mut offset) = (bytes, header.end);
    while !rest.is_empty() {
        let (at, room) = header.place(offset);
        let len = (rest.len() as u64).min(room);
        let (now, later) = rest.split_at(len as usize);
        object.write(mos.tx(), at, now)?;
        (rest, offset) = (later, offset.saturating_add(len));
    }
    Ok(())
}
