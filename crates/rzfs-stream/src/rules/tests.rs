use super::*;
use rzfs_format::stream::{End, MAGIC, StreamName, VersionInfo, WriteByRef, WriteFlags};

const ALL: StreamFeatures = StreamFeatures::KNOWN
    .without(StreamFeatures::RAW)
    .with(StreamFeatures::LARGE_BLOCKS)
    .with(StreamFeatures::COMPRESSED);
const RAW: StreamFeatures = StreamFeatures::RAW.with(StreamFeatures::LARGE_BLOCKS);

fn begin(features: StreamFeatures) -> Begin {
    Begin {
        magic: MAGIC,
        version: VersionInfo::new(StreamKind::Substream, features),
        objset_type: FILE_SYSTEM,
        flags: BeginFlags::SPILL_BLOCK,
        to_name: StreamName::new(b"tank/fs@a").unwrap(),
        ..Begin::default()
    }
}

fn object() -> Object {
    Object {
        object: ObjectId(3),
        object_type: 19,
        bonus_type: 44,
        block_size: 4096,
        bonus_length: 168,
        ..Object::default()
    }
}

fn raw_object() -> Object {
    Object { raw_bonus_length: 320, levels: 1, indirect_shift: 17, pointers: 1, ..object() }
}

fn write() -> Write {
    Write { object: ObjectId(3), object_type: 19, logical_size: 4096, ..Write::default() }
}

fn raw_write() -> Write {
    Write { compression: 2, compressed_size: 4096, ..write() }
}

fn compressed(compression: u8) -> Write {
    Write { compression, compressed_size: 512, ..write() }
}

fn embedded() -> WriteEmbedded {
    WriteEmbedded {
        object: ObjectId(3),
        length: 512,
        compression: 15,
        logical_size: 512,
        physical_size: 44,
        ..WriteEmbedded::default()
    }
}

fn spill() -> Spill {
    Spill { object: ObjectId(3), length: 512, ..Spill::default() }
}

fn range() -> ObjectRange {
    ObjectRange { slots: 32, ..ObjectRange::default() }
}

/// Whether the last record may follow the others in a stream with these features.
fn judge(features: StreamFeatures, records: &[Record]) -> Result<(), Problem> {
    let mut substream = Substream::new(&begin(features));
    let mut last = Ok(());
    for record in records {
        last = Rules::default().check(record, &mut substream);
    }
    last
}

#[test]
fn what_senders_write_is_right() {
    for (features, record) in [
        (ALL, Record::Begin(begin(ALL))),
        (ALL, Record::Object(object())),
        (ALL, Record::Object(Object { slots: 2, flags: ObjectFlags::SPILL, ..object() })),
        (ALL, Record::Object(Object { bonus_type: 0, bonus_length: 0, ..object() })),
        (ALL, Record::Object(Object { block_size: 16 << 20, ..object() })),
        (ALL, Record::Write(write())),
        (ALL, Record::Write(compressed(15))),
        (ALL, Record::Write(compressed(16))),
        (StreamFeatures::COMPRESSED, Record::Write(compressed(14))),
        (ALL, Record::Write(Write { flags: WriteFlags::CHECKSUM_DEDUP, ..write() })),
        (ALL, Record::WriteEmbedded(embedded())),
        (ALL, Record::Spill(spill())),
        (ALL, Record::FreeObjects(FreeObjects { count: u64::MAX, ..FreeObjects::default() })),
        (
            ALL,
            Record::Free(FreeRange {
                object: ObjectId(1),
                offset: 512,
                length: FreeRange::TO_THE_END,
                ..FreeRange::default()
            }),
        ),
        (RAW, Record::ObjectRange(range())),
        (RAW, Record::Write(raw_write())),
        (RAW, Record::Spill(Spill { compression: 2, compressed_size: 512, ..spill() })),
        (ALL, Record::End(End::default())),
    ] {
        assert!(judge(features, &[record]).is_ok(), "{record:?}");
    }
    let in_range = [Record::ObjectRange(range()), Record::Object(raw_object())];
    assert!(judge(RAW, &in_range).is_ok());
}

#[test]
fn heads_that_promise_what_nobody_can_receive_are_refused() {
    let features = |features| begin(StreamFeatures(features));
    let named = |name: &[u8]| Begin { to_name: StreamName::new(name).unwrap(), ..begin(ALL) };
    for begin in [
        features(0x4_c000),
        features(1 << 30),
        features(1 << 55),
        Begin { objset_type: 1, ..begin(ALL) },
        Begin { objset_type: 4, ..begin(ALL) },
        Begin { flags: BeginFlags::FREERECORDS, ..begin(RAW) },
        begin(RAW.with(StreamFeatures::EMBED_DATA)),
        named(b""),
        named(b"tank/fs"),
        named(b"@a"),
        named(b"tank@"),
        named(b"tank@a@b"),
    ] {
        assert!(judge(ALL, &[Record::Begin(begin)]).is_err(), "{begin:?}");
    }
    let dedup = judge(ALL, &[Record::Begin(begin(StreamFeatures::DEDUP))]).unwrap_err();
    assert_eq!(dedup.to_string(), "stream has deprecated feature: dedup");
    let unknown = judge(ALL, &[Record::Begin(features(0x3fff_c004))]).unwrap_err();
    assert_eq!(unknown.to_string(), "unsupported features 0x4c000 of 0x3fffc004");
}

#[test]
fn fields_out_of_range_are_refused() {
    let none = StreamFeatures::NONE;
    let end = ObjectId::END;
    for (features, record) in [
        (ALL, Record::Object(Object { object: ObjectId(0), ..object() })),
        (ALL, Record::Object(Object { object: end, ..object() })),
        (ALL, Record::Object(Object { object: ObjectId(end.0 - 1), slots: 2, ..object() })),
        (ALL, Record::Object(Object { object_type: 0, ..object() })),
        (ALL, Record::Object(Object { object_type: 54, ..object() })),
        (ALL, Record::Object(Object { object_type: 256 + 19, ..object() })),
        (ALL, Record::Object(Object { bonus_type: 99, ..object() })),
        (ALL, Record::Object(Object { bonus_type: 0, ..object() })),
        (ALL, Record::Object(Object { bonus_type: 17, bonus_length: 0, ..object() })),
        (ALL, Record::Object(Object { bonus_length: 321, ..object() })),
        (ALL, Record::Object(Object { bonus_length: u32::MAX, ..object() })),
        (ALL, Record::Object(Object { block_size: 0, ..object() })),
        (ALL, Record::Object(Object { block_size: 513, ..object() })),
        (ALL, Record::Object(Object { block_size: (16 << 20) + 512, ..object() })),
        (none, Record::Object(Object { block_size: 256 << 10, ..object() })),
        (none, Record::Object(Object { slots: 2, ..object() })),
        (ALL, Record::Object(Object { slots: 33, ..object() })),
        (ALL, Record::Object(Object { checksum: 15, ..object() })),
        (ALL, Record::Object(Object { compression: 17, ..object() })),
        (ALL, Record::Object(Object { flags: ObjectFlags::RAW_BYTESWAP, ..object() })),
        (ALL, Record::Object(Object { flags: ObjectFlags(0x80), ..object() })),
        (ALL, Record::Object(raw_object())),
        (RAW, Record::Object(raw_object())),
        (
            ALL,
            Record::FreeObjects(FreeObjects {
                first: ObjectId(2),
                count: u64::MAX - 1,
                ..FreeObjects::default()
            }),
        ),
        (ALL, Record::Write(Write { object: ObjectId(0), ..write() })),
        (ALL, Record::Write(Write { object_type: 77, ..write() })),
        (ALL, Record::Write(Write { logical_size: 511, ..write() })),
        (ALL, Record::Write(Write { logical_size: u64::MAX, ..write() })),
        (none, Record::Write(Write { logical_size: 256 << 10, ..write() })),
        (ALL, Record::Write(Write { offset: u64::MAX - 4095, ..write() })),
        (ALL, Record::Write(Write { compressed_size: 8, ..write() })),
        (ALL, Record::Write(Write { compressed_size: 0, ..compressed(15) })),
        (ALL, Record::Write(Write { compressed_size: 4100, ..compressed(15) })),
        (ALL, Record::Write(compressed(17))),
        (none, Record::Write(compressed(14))),
        (StreamFeatures::COMPRESSED, Record::Write(compressed(15))),
        (StreamFeatures::COMPRESSED, Record::Write(compressed(16))),
        (RAW, Record::Write(write())),
        (RAW, Record::Write(Write { compressed_size: 32 << 20, ..raw_write() })),
        (none, Record::WriteEmbedded(embedded())),
        (RAW.with(StreamFeatures::EMBED_DATA), Record::WriteEmbedded(embedded())),
        (ALL, Record::WriteEmbedded(WriteEmbedded { physical_size: 113, ..embedded() })),
        (ALL, Record::WriteEmbedded(WriteEmbedded { logical_size: 513, ..embedded() })),
        (ALL, Record::WriteEmbedded(WriteEmbedded { logical_size: 43, ..embedded() })),
        (ALL, Record::WriteEmbedded(WriteEmbedded { compression: 2, ..embedded() })),
        (ALL, Record::WriteEmbedded(WriteEmbedded { embedded_type: 1, ..embedded() })),
        (ALL, Record::WriteEmbedded(WriteEmbedded { length: 32 << 20, ..embedded() })),
        (ALL, Record::WriteEmbedded(WriteEmbedded { offset: u64::MAX, ..embedded() })),
        (ALL, Record::Spill(Spill { length: 8, ..spill() })),
        (ALL, Record::Spill(Spill { length: 32 << 20, ..spill() })),
        (ALL, Record::Spill(Spill { compressed_size: 512, ..spill() })),
        (ALL, Record::Spill(Spill { compression: 15, ..spill() })),
        (RAW, Record::Spill(spill())),
        (RAW, Record::Spill(Spill { compressed_size: 1024, ..spill() })),
        (ALL, Record::Free(FreeRange::default())),
        (
            ALL,
            Record::Free(FreeRange {
                object: ObjectId(1),
                offset: 512,
                length: u64::MAX - 1,
                ..FreeRange::default()
            }),
        ),
        (ALL, Record::ObjectRange(range())),
        (RAW, Record::ObjectRange(ObjectRange { slots: 33, ..range() })),
        (RAW, Record::ObjectRange(ObjectRange { first: ObjectId(16), ..range() })),
        (RAW, Record::ObjectRange(ObjectRange { first: end, ..range() })),
        (ALL, Record::WriteByRef(WriteByRef::default())),
    ] {
        assert!(judge(features, &[record]).is_err(), "{record:?}");
    }
}

#[test]
fn raw_dnodes_are_those_of_the_last_range() {
    let judged = |first, object| {
        let range = ObjectRange { first: ObjectId(first), ..range() };
        judge(RAW, &[Record::ObjectRange(range), Record::Object(object)])
    };
    assert!(judged(0, raw_object()).is_ok());
    assert!(judged(32, raw_object()).is_err());
    for wrong in [
        Object { object: ObjectId(32), ..raw_object() },
        Object { pointers: 0, ..raw_object() },
        Object { pointers: 2, ..raw_object() },
        Object { levels: 0, ..raw_object() },
        Object { levels: 13, ..raw_object() },
        Object { indirect_shift: 11, ..raw_object() },
        Object { indirect_shift: 18, ..raw_object() },
        Object { raw_bonus_length: 321, ..raw_object() },
        Object { raw_bonus_length: 167, ..raw_object() },
        Object { flags: ObjectFlags::SPILL, ..raw_object() },
    ] {
        assert!(judged(0, wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn blocks_come_in_order() {
    let at = |object, offset| Record::Write(Write { object: ObjectId(object), offset, ..write() });
    assert!(judge(ALL, &[at(3, 4096), at(3, 4096), at(3, 8192), at(4, 0)]).is_ok());
    assert!(judge(ALL, &[at(3, 4096), at(3, 0)]).is_err());
    assert!(judge(ALL, &[at(3, 0), at(2, 4096)]).is_err());
}

#[test]
fn a_pool_may_have_smaller_blocks() {
    let small = Rules::Receive(Limits { max_block: 4096 });
    let mut substream = Substream::new(&begin(ALL));
    let large = Write { logical_size: 8192, ..write() };
    assert!(small.check(&Record::Write(write()), &mut substream).is_ok());
    let error = small.check(&Record::Write(large), &mut substream).unwrap_err();
    assert_eq!(error.to_string(), "DRR_WRITE: logical size is 8192, the limit is 4096");
}

#[test]
fn payloads_are_bounded_under_any_rules() {
    for (record, right) in [
        (Record::Write(Write { logical_size: MAX_PAYLOAD, ..write() }), true),
        (Record::Write(Write { logical_size: MAX_PAYLOAD + 4, ..write() }), false),
        (Record::Write(Write { logical_size: u64::MAX - 3, ..write() }), false),
        (Record::Write(Write { compressed_size: 511, ..compressed(15) }), false),
        (Record::Object(Object { bonus_length: u32::MAX, ..object() }), false),
        (Record::Begin(Begin { payload_length: 1028, ..begin(ALL) }), true),
        (Record::Begin(Begin { payload_length: 1027, ..begin(ALL) }), false),
        (Record::Begin(Begin { payload_length: u32::MAX - 3, ..begin(ALL) }), false),
    ] {
        assert_eq!(payload_length(&record).is_ok(), right, "{record:?}");
    }
}
