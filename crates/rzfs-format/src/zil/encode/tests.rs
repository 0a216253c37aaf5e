//! The worked records of the specification, and what the decoders make of encoded ones.

use super::super::attributes::XattrBits;
use super::super::body::Whiteout;
use super::super::record::Record;
use super::*;
use crate::fuid::Fuid;
use crate::znode::{DeviceNumber, Timestamp};
use proptest::prelude::*;

const LITTLE: ByteOrder = ByteOrder::Little;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn stamped(body: &Body<'_>, kind: RecordKind, txg: u64, seq: u64) -> Vec<u8> {
    let mut bytes = body.encode(kind, LITTLE).unwrap();
    stamp(&mut bytes, Txg(txg), seq, LITTLE);
    bytes
}

fn new_object(object: u64, mode: u64, generation: u64) -> NewObject {
    NewObject {
        object: ObjectId(object),
        slots: 1,
        mode,
        uid: Fuid(0),
        gid: Fuid(0),
        generation,
        create_time: Timestamp { seconds: 7, nanoseconds: 8 },
        device: DeviceNumber::default(),
    }
}

#[test]
fn set_xattr_is_that_of_the_spec() {
    let body =
        Body::SetXattr(SetXattr { object: ObjectId(0x81), name: b"user.foo", value: Some(b"bar") });
    let mut expected = words(&[0x15, 0x40, 0x1e, 9, 0x81, 3]);
    expected.extend(b"user.foo\0bar\0\0\0\0");
    assert_eq!(stamped(&body, RecordKind::SetXattr, 0x1e, 9), expected);
}

#[test]
fn renames_are_those_of_the_spec() {
    let rename = Rename {
        from_directory: ObjectId(0x22),
        to_directory: ObjectId(0x22),
        from: b"f0",
        to: b"f1",
        whiteout: None,
    };
    let mut expected = words(&[0x16, 0x38, 0x54, 8, 0x22, 0x22]);
    expected.extend(b"f0\0f1\0\0\0");
    let body = Body::Rename(rename);
    assert_eq!(stamped(&body, RecordKind::RenameExchange, 0x54, 8), expected);

    let whiteout = Some(Whiteout(new_object(0x85, 0o020_000, 0x54)));
    let body = Body::Rename(Rename { from: b"f2", to: b"f2new", whiteout, ..rename });
    let head = [0x17, 0x80, 0x54, 8, 0x22, 0x22, 0x85, 0o020_000, 0, 0, 0x54, 7, 8, 0];
    let mut expected = words(&head);
    expected.extend(b"f2\0f2new\0\0\0\0\0\0\0\0");
    assert_eq!(stamped(&body, RecordKind::RenameWhiteout, 0x54, 8), expected);
    assert!(body.encode(RecordKind::Rename, LITTLE).is_err());
}

#[test]
fn truncate_is_that_of_the_spec() {
    let body = Body::Truncate { object: ObjectId(0x84), offset: 2, length: 4 };
    let expected = words(&[0xa, 0x38, 0x54, 0xb, 0x84, 2, 4]);
    assert_eq!(stamped(&body, RecordKind::Truncate, 0x54, 0xb), expected);
}

#[test]
fn creations_have_the_lengths_of_the_spec() {
    let create = |name, target| {
        Body::Create(Create {
            directory: ObjectId(34),
            new: new_object(0x87, 0o041_777, 0x56),
            attributes: None,
            domains: Vec::new(),
            name,
            target,
        })
    };
    let mut expected = words(&[3, 0x70, 0x56, 15, 34, 0x87, 0o041_777, 0, 0, 0x56, 7, 8, 0]);
    expected.extend([0; 8]);
    assert_eq!(stamped(&create(b"", b""), RecordKind::MkXattr, 0x56, 15), expected);
    for (kind, name, target, length) in [
        (RecordKind::Create, &b"f1"[..], &b""[..], 112),
        (RecordKind::Create, b"a-name-of-23-characters", b"", 128),
        (RecordKind::Symlink, b"s1", b"target", 0x78),
    ] {
        assert_eq!(create(name, target).encode(kind, LITTLE).unwrap().len(), length);
    }
    assert!(create(b"a\0b", b"").encode(RecordKind::Create, LITTLE).is_err());
    assert!(create(b"a", b"").encode(RecordKind::CreateAttr, LITTLE).is_err());
    assert!(create(b"a", b"").encode(RecordKind::Link, LITTLE).is_err());
}

#[test]
fn set_project_is_that_of_the_spec() {
    let both = XattrBits::PROJINHERIT | XattrBits::PROJID;
    let time = Timestamp::default();
    let body = Body::SetAttr(SetAttr {
        object: ObjectId(128),
        mask: SetAttr::LINUX_XVATTR,
        mode: 0,
        uid: Fuid(0),
        gid: Fuid(0),
        size: 0,
        atime: time,
        mtime: time,
        attributes: Some(ExtendedAttributes {
            requested: XattrBits(both),
            values: XattrBits(XattrBits::PROJINHERIT),
            create_time: time,
            scanstamp: None,
            project: Some(9),
        }),
        domains: Vec::new(),
    });
    let mut expected = [0; 23];
    expected[..6].copy_from_slice(&[11, 0xb8, 0x54, 3, 128, 0x8000_0000]);
    expected[14] = 3 | 0x6_0000 << 32;
    expected[16] = 0x2_0000;
    expected[19] = 9;
    assert_eq!(stamped(&body, RecordKind::SetAttr, 0x54, 3), words(&expected));
}

#[test]
fn writes_have_the_lengths_of_the_spec() {
    for (length, size) in [(10, 208), (7000, 7192), (8000, 8192)] {
        let data = vec![7; length];
        let header = WriteHeader { object: ObjectId(5), offset: 100, length: length as u64 };
        let mut in_place = vec![0; WriteHeader::record_size(length)];
        header.encode(&mut in_place, LITTLE);
        in_place[WRITE_HEADER_SIZE..][..length].copy_from_slice(&data);
        let write = Write {
            object: ObjectId(5),
            offset: 100,
            length: length as u64,
            pointer: BlockPointer::HOLE,
            data: &data,
        };
        let encoded = Body::Write(write).encode(RecordKind::Write, LITTLE).unwrap();
        assert_eq!(encoded.len(), size);
        assert_eq!(in_place, encoded);
        let other = Write { length: length as u64 + 1, ..write };
        assert!(Body::Write(other).encode(RecordKind::Write, LITTLE).is_err());
    }
}

#[test]
fn clone_of_four_blocks_is_that_of_the_spec() {
    let clone = CloneRange {
        object: ObjectId(0x84),
        offset: 0x20000,
        length: 0x7_0001,
        block_size: 0x20000,
        pointers: vec![BlockPointer::HOLE; 4],
    };
    let bytes = Body::CloneRange(clone).encode(RecordKind::CloneRange, LITTLE).unwrap();
    assert_eq!(bytes.len(), 584);
}

#[test]
fn an_attribute_that_goes_has_no_value() {
    let body = SetXattr { object: ObjectId(5), name: b"", value: None };
    let bytes = Body::SetXattr(body).encode(RecordKind::SetXattr, LITTLE).unwrap();
    let record = Record::decode(&bytes, LITTLE).unwrap();
    assert!(matches!(record.body().unwrap(), Body::SetXattr(SetXattr { value: None, .. })));
}

/// What is stored, as far as it can be compared: everything.
fn text(body: &Body<'_>) -> String {
    format!("{body:?}")
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1_u8..=255, 1..40)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0_u32..1_000_000_000)
        .prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

fn object_id() -> impl Strategy<Value = ObjectId> {
    (0_u64..1 << 48).prop_map(ObjectId)
}

prop_compose! {
    fn any_new_object()(
        object in object_id(),
        slots in 1_u16..=32,
        mode in any::<u64>(),
        ids in (any::<u32>(), any::<u32>()),
        generation in any::<u64>(),
        create_time in time(),
        device in (0_u32..1 << 12, 0_u32..1 << 20),
    ) -> NewObject {
        NewObject {
            object,
            slots,
            mode,
            uid: Fuid::posix(ids.0),
            gid: Fuid::posix(ids.1),
            generation,
            create_time,
            device: DeviceNumber { major: device.0, minor: device.1 },
        }
    }
}

proptest! {
    #[test]
    fn records_come_back(
        new in any_new_object(),
        directories in (object_id(), object_id()),
        names in (name(), name()),
        range in (0_u64..1 << 62, 1_u64..1 << 62),
        data in proptest::collection::vec(any::<u8>(), 1..300),
        times in (time(), time()),
        project in any::<u64>(),
        values in any::<u32>(),
        is_big in any::<bool>(),
    ) {
        let order = if is_big { ByteOrder::Big } else { ByteOrder::Little };
        let attributes = ExtendedAttributes {
            requested: XattrBits(XattrBits::PROJID | XattrBits::HIDDEN),
            values: XattrBits(values),
            create_time: times.0,
            scanstamp: None,
            project: Some(project),
        };
        let create = |attributes, target| Body::Create(Create {
            directory: directories.0, new, attributes, domains: Vec::new(), name: &names.0, target,
        });
        let rename = |whiteout| Body::Rename(Rename {
            from_directory: directories.0, to_directory: directories.1,
            from: &names.0, to: &names.1, whiteout,
        });
        let set = |mask, attributes| Body::SetAttr(SetAttr {
            object: new.object, mask, mode: new.mode, uid: new.uid, gid: new.gid, size: range.0,
            atime: times.0, mtime: times.1, attributes, domains: Vec::new(),
        });
        let remove = Body::Remove { directory: directories.0, name: &names.0 };
        let write = Body::Write(Write {
            object: new.object, offset: range.0, length: data.len() as u64,
            pointer: BlockPointer::HOLE, data: &data,
        });
        let bodies = [
            (RecordKind::Create, create(None, &[])),
            (RecordKind::Mkdir, create(None, &[])),
            (RecordKind::MkXattr, create(None, &[])),
            (RecordKind::Symlink, create(None, &names.1)),
            (RecordKind::CreateAttr, create(Some(attributes), &[])),
            (RecordKind::MkdirAttr, create(Some(attributes), &[])),
            (RecordKind::Remove, remove.clone()),
            (RecordKind::Rmdir, remove),
            (RecordKind::Link,
             Body::Link { directory: directories.0, object: new.object, name: &names.0 }),
            (RecordKind::Rename, rename(None)),
            (RecordKind::RenameExchange, rename(None)),
            (RecordKind::RenameWhiteout, rename(Some(Whiteout(new)))),
            (RecordKind::Write, write),
            (RecordKind::Truncate,
             Body::Truncate { object: new.object, offset: range.0, length: range.1 }),
            (RecordKind::SetAttr, set(SetAttr::MODE | SetAttr::SIZE, None)),
            (RecordKind::SetAttr, set(SetAttr::LINUX_XVATTR, Some(attributes))),
            (RecordKind::SetXattr, Body::SetXattr(SetXattr {
                object: new.object, name: &names.0, value: Some(&data) })),
        ];
        for (kind, body) in bodies {
            let mut bytes = body.encode(kind, order).unwrap();
            stamp(&mut bytes, Txg(77), 88, order);
            prop_assert!(bytes.len() >= kind.minimum_length());
            let record = Record::decode(&bytes, order).unwrap();
            prop_assert_eq!(record.bytes().len(), bytes.len());
            prop_assert_eq!((record.kind, record.txg, record.seq), (Some(kind), Txg(77), 88));
            prop_assert_eq!(text(&record.body().unwrap()), text(&body));
        }
    }
}
