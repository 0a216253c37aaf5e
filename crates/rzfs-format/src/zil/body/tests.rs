//! The worked records of the specification, and hostile ones.

use super::super::attributes::XattrBits;
use super::super::record::Record;
use super::*;
use proptest::prelude::*;

/// A record of 64-bit words followed by bytes.
fn record(words: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(tail);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let length = (bytes.len() as u64).to_le_bytes();
    bytes[8..16].copy_from_slice(&length);
    bytes
}

fn body(bytes: &[u8]) -> Result<Body<'_>, FormatError> {
    Record::decode(bytes, ByteOrder::Little)?.body()
}

#[test]
fn set_xattr_of_the_spec() {
    let bytes = record(&[0x15, 0, 0x1e, 9, 0x81, 3], b"user.foo\0bar");
    assert_eq!(bytes.len(), 0x40);
    let Body::SetXattr(xattr) = body(&bytes).unwrap() else { panic!() };
    assert_eq!(xattr.object, ObjectId(0x81));
    assert_eq!((xattr.name, xattr.value), (&b"user.foo"[..], Some(&b"bar"[..])));
}

#[test]
fn renames_of_the_spec() {
    let bytes = record(&[0x16, 0, 0x54, 8, 0x22, 0x22], b"f0\0f1\0");
    assert_eq!(bytes.len(), 0x38);
    let Body::Rename(rename) = body(&bytes).unwrap() else { panic!() };
    assert_eq!((rename.from, rename.to), (&b"f0"[..], &b"f1"[..]));
    assert!(rename.whiteout.is_none());

    let words = [0x17, 0, 0x54, 8, 0x22, 0x22, 0x85, 0o020_000, 0, 0, 0x54, 1, 2, 0];
    let bytes = record(&words, b"f2\0f2new\0");
    assert_eq!(bytes.len(), 0x80);
    let Body::Rename(rename) = body(&bytes).unwrap() else { panic!() };
    let Whiteout(new) = rename.whiteout.unwrap();
    assert_eq!((new.object, new.mode, new.generation), (ObjectId(0x85), 0o020_000, 0x54));
    assert_eq!((rename.from, rename.to), (&b"f2"[..], &b"f2new"[..]));
}

#[test]
fn truncate_of_the_spec() {
    let bytes = record(&[10, 0, 0x54, 11, 0x84, 2, 4], &[]);
    assert_eq!(bytes.len(), 0x38);
    let Body::Truncate { object, offset, length } = body(&bytes).unwrap() else { panic!() };
    assert_eq!((object, offset, length), (ObjectId(0x84), 2, 4));
}

#[test]
fn creations_of_the_spec() {
    let words = [3, 0, 0x56, 15, 3, 0x87, 0o041_777, 0, 0, 0x56, 7, 8, 0];
    let bytes = record(&words, b"\0");
    assert_eq!(bytes.len(), 0x70);
    let Body::Create(create) = body(&bytes).unwrap() else { panic!() };
    assert_eq!((create.directory, create.new.object), (ObjectId(3), ObjectId(0x87)));
    assert_eq!((create.new.slots, create.new.mode), (1, 0o041_777));
    assert_eq!(create.name, b"");

    let words = [4, 0, 0x56, 15, 34, 1 << 56 | 0x88, 0o120_777, 0, 0, 0x56, 7, 8, 0];
    let bytes = record(&words, b"s1\0target\0");
    assert_eq!(bytes.len(), 0x78);
    let Body::Create(create) = body(&bytes).unwrap() else { panic!() };
    assert_eq!((create.name, create.target), (&b"s1"[..], &b"target"[..]));
    assert_eq!((create.new.object, create.new.slots), (ObjectId(0x88), 2));
}

#[test]
fn set_project_of_the_spec() {
    let mut words = [0; 23];
    words[0] = 11;
    words[4] = 128;
    words[5] = 0x8000_0000;
    words[14] = 3 | 0x6_0000 << 32;
    words[16] = 0x2_0000;
    words[19] = 9;
    let bytes = record(&words, &[]);
    assert_eq!(bytes.len(), 0xb8);
    let Body::SetAttr(set) = body(&bytes).unwrap() else { panic!() };
    let attributes = set.attributes.unwrap();
    assert_eq!(attributes.requested.0, XattrBits::PROJINHERIT | XattrBits::PROJID);
    assert!(attributes.values.has(XattrBits::PROJINHERIT));
    assert_eq!((attributes.project, attributes.scanstamp), (Some(9), None));

    words[14] = 2;
    assert!(body(&record(&words, &[])).is_err(), "two bitmap words");
}

#[test]
fn writes_carry_data_or_a_pointer() {
    let mut words = vec![9, 0, 0x54, 11, 0x84, 100, 10];
    words.resize(24, 0);
    let bytes = record(&words, b"0123456789");
    assert_eq!(bytes.len(), 208);
    let Body::Write(write) = body(&bytes).unwrap() else { panic!() };
    assert_eq!((write.offset, write.data), (100, &b"0123456789"[..]));

    let bytes = record(&words, &[]);
    assert_eq!(bytes.len(), 192);
    let Body::Write(write) = body(&bytes).unwrap() else { panic!() };
    assert!(write.is_indirect());

    words[6] = 17;
    assert!(body(&record(&words, b"0123456789")).is_err(), "longer than its data");
    words[5] = u64::MAX;
    assert!(body(&record(&words, &[])).is_err(), "beyond the end of files");
}

#[test]
fn clone_of_four_blocks_of_the_spec() {
    let words = [24, 0, 0x54, 11, 0x84, 0x20000, 0x7_0001, 0x20000, 4];
    let bytes = record(&words, &[0; 512]);
    assert_eq!(bytes.len(), 584);
    let Body::CloneRange(clone) = body(&bytes).unwrap() else { panic!() };
    assert_eq!(clone.pointers.len(), 4);
    for (word, value) in [(8, 1 << 57), (8, 5), (8, 3), (7, 0), (5, 1), (6, 0x6_0000)] {
        let mut words = words;
        words[word] = value;
        assert!(body(&record(&words, &[0; 512])).is_err(), "word {word} = {value:#x}");
    }
}

#[test]
fn acls_are_bounded_by_their_record() {
    let mut ace = Vec::new();
    ace.extend(1000_u32.to_le_bytes());
    ace.extend(0x1f_u32.to_le_bytes());
    ace.extend([0, 0, 0, 0]);
    ace.extend([0; 4]);
    ace.extend((1_u64 << 32 | 7).to_le_bytes());
    ace.extend(b"S-1-5\0");
    let words = [13, 0, 0x54, 11, 0x84, 1, 1, 1, 12, 0];
    let bytes = record(&words, &ace);
    let Body::Acl { acl, .. } = body(&bytes).unwrap() else { panic!() };
    assert_eq!(acl.entries[0].who, 1000);
    assert_eq!((acl.fuids[0].domain(), acl.domains[0]), (1, &b"S-1-5"[..]));
    for (word, value) in [(5, 2), (5, u64::MAX), (6, 9), (7, 3), (7, u64::MAX), (8, u64::MAX)] {
        let mut words = words;
        words[word] = value;
        assert!(body(&record(&words, &ace)).is_err(), "word {word} = {value:#x}");
    }
}

proptest! {
    #[test]
    fn any_record_is_survived(
        kind in 0_u64..26,
        words in proptest::collection::vec(prop_oneof![0_u64..300, any::<u64>()], 3..40),
    ) {
        let mut all = vec![kind, 0];
        all.extend(words);
        let _ = body(&record(&all, &[]));
    }
}
