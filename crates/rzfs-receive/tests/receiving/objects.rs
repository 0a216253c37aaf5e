//! Objects that are recreated, change their shape, and are freed.

use crate::{TARGET, golden, receive, receive_as, state};
use rzfs_dmu::Objset;
use rzfs_dsl::live::{LivePool, LocalChanges};
use rzfs_format::object_type::ObjectType;
use rzfs_format::stream::{
    Begin, BeginFlags, FreeObjects, FreeRange, MAGIC, Object, ObjectFlags, Record, Spill,
    StreamFeatures, StreamKind, StreamName, VersionInfo, Write,
};
use rzfs_format::{BlockId, ByteOrder, Guid, ObjectId};
use rzfs_proof::ImagePool;
use rzfs_receive::{ReceiveError, RecordProblem};
use rzfs_stream::StreamWriter;

/// Uninterpreted bytes, as an object type and bonus type.
const BYTES: u32 = 0x80;
/// System attributes, as a bonus type.
const ATTRIBUTES: u32 = 44;
/// A file of the golden stream that has a spill block.
const SPILLING: u64 = 129;
const BLOCK: u64 = 128 << 10;

/// A stream of the changes since a snapshot.
struct Stream {
    records: Vec<(Record, Vec<u8>)>,
    guid: Guid,
}

impl Stream {
    fn new(name: &str, from: Guid, guid: u64) -> Self {
        let features = StreamFeatures::SA_SPILL.with(StreamFeatures::LARGE_DNODE);
        let begin = Begin {
            magic: MAGIC,
            version: VersionInfo::new(StreamKind::Substream, features),
            creation_time: 1,
            objset_type: 2,
            flags: BeginFlags::FREERECORDS.with(BeginFlags::SPILL_BLOCK),
            to_guid: Guid(guid),
            from_guid: from,
            to_name: StreamName::new(format!("sent/from@{name}").as_bytes()).unwrap(),
            ..Begin::default()
        };
        Self { records: vec![(Record::Begin(begin), Vec::new())], guid: Guid(guid) }
    }

    fn object(mut self, object: u64, block_size: u64, slots: u8, bonus: &[u8]) -> Self {
        let record = Object {
            object: ObjectId(object),
            object_type: BYTES,
            bonus_type: if bonus.is_empty() { 0 } else { BYTES },
            block_size: block_size as u32,
            bonus_length: bonus.len() as u32,
            slots,
            ..Object::default()
        };
        let mut payload = bonus.to_vec();
        payload.resize(bonus.len().next_multiple_of(8), 0);
        self.records.push((Record::Object(record), payload));
        self
    }

    /// Changes the type of the last object.
    fn of_type(mut self, kind: ObjectType) -> Self {
        if let Some((Record::Object(object), _)) = self.records.last_mut() {
            object.object_type = kind.number() as u32;
        }
        self
    }

    /// Gives the last object a spill block, which only objects with system attributes can have.
    fn spilling(mut self) -> Self {
        if let Some((Record::Object(object), _)) = self.records.last_mut() {
            object.flags = ObjectFlags::SPILL;
            object.bonus_type = ATTRIBUTES;
        }
        self
    }

    fn write(mut self, object: u64, offset: u64, contents: &[u8]) -> Self {
        let record = Write {
            object: ObjectId(object),
            object_type: BYTES,
            offset,
            logical_size: contents.len() as u64,
            ..Write::default()
        };
        self.records.push((Record::Write(record), contents.to_vec()));
        self
    }

    fn spill(mut self, object: u64, contents: &[u8]) -> Self {
        let length = contents.len() as u64;
        let record = Spill { object: ObjectId(object), length, ..Spill::default() };
        self.records.push((Record::Spill(record), contents.to_vec()));
        self
    }

    fn free(mut self, object: u64, offset: u64, length: u64) -> Self {
        let record = FreeRange { object: ObjectId(object), offset, length, ..FreeRange::default() };
        self.records.push((Record::Free(record), Vec::new()));
        self
    }

    fn free_objects(mut self, first: u64, count: u64) -> Self {
        let record = FreeObjects { first: ObjectId(first), count, ..FreeObjects::default() };
        self.records.push((Record::FreeObjects(record), Vec::new()));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::new(&mut bytes, ByteOrder::NATIVE);
        for (record, payload) in &self.records {
            writer.write(record, payload).unwrap();
        }
        writer.end(self.guid).unwrap();
        bytes
    }
}

fn contents(pool: &LivePool, name: &str) -> Objset {
    pool.dataset_tree().unwrap().open(name).unwrap().open_objset().unwrap()
}

fn block(objset: &Objset, object: u64, block: u64) -> Vec<u8> {
    objset.object(ObjectId(object)).unwrap().read_block(BlockId(block)).unwrap().data.to_vec()
}

/// A pool with the contents of the golden stream, and the guid of its snapshot.
fn base() -> Option<(ImagePool, LivePool, Guid)> {
    let full = golden("full")?;
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    receive(&pool, full.bytes().unwrap().as_slice()).unwrap();
    let tree = pool.dataset_tree().unwrap();
    let guid = tree.open("made/got@1").unwrap().dsl_dataset().guid;
    Some((world, pool, guid))
}

/// The table that holds the size of a volume, as a micro ZAP.
fn size_of_volume(bytes: u64) -> Vec<u8> {
    const MICRO: u64 = 0x8000_0000_0000_0003;
    let mut block = vec![0; 512];
    block[..8].copy_from_slice(&MICRO.to_ne_bytes());
    block[8..16].copy_from_slice(&77_u64.to_ne_bytes());
    block[64..72].copy_from_slice(&bytes.to_ne_bytes());
    block[78..82].copy_from_slice(b"size");
    block
}

/// While a volume is being received into, the new data is kept below it, where nothing else can be.
#[test]
fn volumes_go_on_with_increments() {
    const DATA: u32 = 23;
    const PROPERTIES: u32 = 24;
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let volume = |name, from, guid| {
        let mut stream = Stream::new(name, Guid(from), guid);
        if let Some((Record::Begin(begin), _)) = stream.records.first_mut() {
            begin.objset_type = 3;
        }
        stream.object(1, BLOCK, 1, &[])
    };
    let full = volume("one", 0, 81)
        .write(1, 0, &vec![1; BLOCK as usize])
        .write(1, BLOCK, &vec![2; BLOCK as usize])
        .object(2, 512, 1, &[])
        .write(2, 0, &size_of_volume(2 * BLOCK));
    let increment = volume("two", 81, 82).write(1, BLOCK, &vec![3; BLOCK as usize]);
    for mut stream in [full, increment] {
        for (record, _) in &mut stream.records {
            let kind = |object: ObjectId| if object == ObjectId(1) { DATA } else { PROPERTIES };
            match record {
                Record::Object(object) => object.object_type = kind(object.object),
                Record::Write(write) => write.object_type = kind(write.object),
                _ => {}
            }
        }
        receive(&pool, stream.bytes().as_slice()).unwrap();
    }
    let objset = contents(&pool, "made/got@two");
    assert_eq!((block(&objset, 1, 0)[0], block(&objset, 1, 1)[0]), (1, 3));
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn objects_are_made_anew_change_their_shape_and_are_freed() {
    let Some((world, pool, guid)) = base() else { return };
    let (attributes, spill) = {
        let spilling = contents(&pool, "made/got@1").object(ObjectId(SPILLING)).unwrap();
        (spilling.bonus().to_vec(), spilling.spill().unwrap().unwrap().data.to_vec())
    };
    let large = |number: u8| vec![number; BLOCK as usize];
    let mut first = Stream::new("x", guid, 77).object(1000, BLOCK, 1, &[]);
    for number in 0..9 {
        first = first.write(1000, u64::from(number) * BLOCK, &large(number + 1));
    }
    let first = first
        .object(1001, 512, 1, &[1; 64])
        .write(1001, 0, &[21; 512])
        .object(1002, 1536, 2, &[2; 300])
        .write(1002, 0, &[22; 1536])
        .object(1004, 512, 1, &attributes)
        .spilling()
        .spill(1004, &spill)
        .object(1005, BLOCK, 1, &[])
        .write(1005, 0, &large(55))
        .write(1005, 3 * BLOCK, &large(56));
    receive(&pool, first.bytes().as_slice()).unwrap();
    let second = Stream::new("y", Guid(77), 78)
        // A different block size means a different file.
        .object(1000, 4096, 1, &[])
        .write(1000, 0, &[61; 4096])
        .write(1000, 40_960, &[62; 4096])
        // A dnode that also occupies the slot of the next one.
        .object(1001, 512, 2, &[3; 400])
        .write(1001, 0, &[63; 512])
        // Without the spill block.
        .object(1004, 512, 1, &[5; 192])
        .object(1005, BLOCK, 1, &[])
        .free(1005, BLOCK - 512, 3 * BLOCK)
        .free_objects(1006, u64::MAX - 1006);
    receive(&pool, second.bytes().as_slice()).unwrap();
    for (place, is_later) in [("made/got@x", false), ("made/got@y", true), (TARGET, true)] {
        let objset = contents(&pool, place);
        let object = |id| objset.object(ObjectId(id));
        if is_later {
            assert_eq!(object(1000).unwrap().dnode().data_block_size, 4096);
            assert_eq!(block(&objset, 1000, 0), [61; 4096]);
            assert_eq!(block(&objset, 1000, 1), [0; 4096]);
            assert_eq!(block(&objset, 1000, 10), [62; 4096]);
            assert_eq!(object(1001).unwrap().dnode().slots, 2);
            assert_eq!(object(1001).unwrap().bonus(), [3; 400]);
            assert_eq!(block(&objset, 1001, 0), [63; 512]);
            assert!(object(1002).is_err());
            assert!(object(1004).unwrap().spill().unwrap().is_none());
            assert_eq!(object(1004).unwrap().bonus(), [5; 192]);
            let cut = block(&objset, 1005, 0);
            assert!(cut[..cut.len() - 512].iter().all(|byte| *byte == 55));
            assert!(cut[cut.len() - 512..].iter().all(|byte| *byte == 0));
            let cut = block(&objset, 1005, 3);
            assert!(cut[..cut.len() - 512].iter().all(|byte| *byte == 0));
            assert!(cut[cut.len() - 512..].iter().all(|byte| *byte == 56));
        } else {
            assert_eq!(block(&objset, 1000, 8), large(9));
            assert_eq!(object(1001).unwrap().bonus(), [1; 64]);
            assert_eq!(block(&objset, 1002, 0), [22; 1536]);
            assert_eq!(object(1004).unwrap().spill().unwrap().unwrap().data[..], spill);
            assert_eq!(block(&objset, 1005, 3), large(56));
        }
    }
    // A number is reused in the stream that frees it.
    let third = Stream::new("z", Guid(78), 79)
        .free_objects(1000, 2)
        .object(1000, 512, 1, &[])
        .write(1000, 0, &[71; 512])
        .object(1002, 512, 1, &[])
        .free_objects(1002, 1);
    receive(&pool, third.bytes().as_slice()).unwrap();
    let objset = contents(&pool, TARGET);
    assert_eq!(block(&objset, 1000, 0), [71; 512]);
    assert!(objset.object(ObjectId(1001)).is_err() && objset.object(ObjectId(1002)).is_err());
    pool.export().unwrap();
    world.judge_chains();
}

/// Otherwise its blocks would have the other type and could not be freed.
#[test]
fn an_object_of_another_type_has_nothing_of_what_it_had() {
    let Some((world, pool, guid)) = base() else { return };
    let first = Stream::new("x", guid, 77).object(1000, BLOCK, 1, &[]);
    let first =
        first.write(1000, 0, &vec![1; BLOCK as usize]).write(1000, 5 * BLOCK, &[2; 128 << 10]);
    receive(&pool, first.bytes().as_slice()).unwrap();
    let second = Stream::new("y", Guid(77), 78)
        .object(1000, BLOCK, 1, &[])
        .of_type(ObjectType::PLAIN_FILE_CONTENTS);
    receive(&pool, second.bytes().as_slice()).unwrap();
    let objset = contents(&pool, TARGET);
    let object = objset.object(ObjectId(1000)).unwrap();
    assert_eq!(object.object_type(), ObjectType::PLAIN_FILE_CONTENTS);
    assert_eq!(block(&objset, 1000, 0), vec![0; BLOCK as usize]);
    assert_eq!(block(&contents(&pool, "made/got@x"), 1000, 0), vec![1; BLOCK as usize]);
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn records_that_do_not_fit_what_is_there_are_refused() {
    let Some((_world, pool, guid)) = base() else { return };
    let before = state(&pool);
    let new = || Stream::new("x", guid, 77);
    let id = ObjectId;
    for (stream, problem) in [
        (new().write(1000, 0, &[1; 512]), RecordProblem::NoObject { object: id(1000) }),
        (new().free(1000, 0, 512), RecordProblem::NoObject { object: id(1000) }),
        (
            new().object(1000, 512, 2, &[]).object(1001, 512, 1, &[]),
            RecordProblem::Taken { object: id(1001) },
        ),
        (
            new().object(1000, 1536, 1, &[]).write(1000, 1536, &[1; 1536]),
            RecordProblem::OddBlocks { object: id(1000) },
        ),
        (
            new().object(1000, 512, 1, &[0; 300]).spilling().spill(1000, &[1; 512]),
            RecordProblem::NoRoom { object: id(1000) },
        ),
    ] {
        let received = receive_as(&pool, stream.bytes().as_slice(), LocalChanges::GivenUp);
        let ReceiveError::Record { problem: found, .. } = received.unwrap_err() else {
            panic!("not {problem}")
        };
        assert_eq!(found, problem);
        assert_eq!(state(&pool), before);
    }
}
