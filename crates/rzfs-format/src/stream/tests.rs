use super::*;
use crate::checksum::ChecksumValue;
use crate::endian::ByteOrder;
use crate::units::{Guid, ObjectId};
use proptest::prelude::*;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// A record with these bytes from the beginning on, and zeros after them.
fn record(hex: &str) -> [u8; RECORD_SIZE] {
    let digits: Vec<u8> =
        hex.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|d| d as u8).collect();
    let mut bytes = [0; RECORD_SIZE];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    bytes
}

#[test]
fn a_begin_of_the_spec_decodes() {
    let bytes = record(
        "00000000 00000000 accbbaf5 02000000 11000000 00000000 91fe006b 00000000
         02000000 0c000000 35ac0f74 5f40bfe6 00000000 00000000 74616e6b 2f737263 4061",
    );
    assert_eq!(byte_order(&bytes), Some(ByteOrder::Little));
    let Record::Begin(begin) = Record::decode(&bytes, ByteOrder::Little).unwrap() else {
        panic!("no BEGIN");
    };
    assert_eq!(begin.magic, MAGIC);
    assert_eq!(begin.version.kind(), Some(StreamKind::Substream));
    assert_eq!(begin.version.features(), StreamFeatures::SA_SPILL);
    assert_eq!(begin.flags, BeginFlags::FREERECORDS.with(BeginFlags::SPILL_BLOCK));
    assert_eq!(begin.to_guid, Guid(0xe6bf_405f_740f_ac35));
    assert_eq!(begin.to_name.as_bytes().unwrap(), b"tank/src@a");
    assert_eq!(Record::Begin(begin).encode(ByteOrder::Little), bytes);
    assert_eq!(stored_checksum(&bytes, ByteOrder::Little), None);
}

#[test]
fn a_begin_in_the_other_order_decodes() {
    let bytes = record("00000000 00000040 00000002 f5bacbac 00000000 018c0011");
    assert_eq!(byte_order(&bytes), Some(ByteOrder::Big));
    let Record::Begin(begin) = Record::decode(&bytes, ByteOrder::Big).unwrap() else {
        panic!("no BEGIN");
    };
    assert_eq!(begin.payload_length, 64);
    assert_eq!(begin.version.features(), StreamFeatures(0x63_0004));
    assert_eq!(begin.version, VersionInfo::new(StreamKind::Substream, StreamFeatures(0x63_0004)));
}

#[test]
fn records_of_the_spec_decode() {
    let decode = |hex: &str| Record::decode(&record(hex), ByteOrder::Little).unwrap();
    let Record::Object(object) = decode(
        "01000000 00000000 01000000 00000000 15000000 00000000 00020000 00000000
         00000100 00000000 35ac0f74 5f40bfe6",
    ) else {
        panic!("no OBJECT");
    };
    assert_eq!((object.object, object.object_type, object.block_size), (ObjectId(1), 21, 512));
    assert_eq!((object.slots, object.slot_count()), (1, 1));

    let write = decode(
        "03000000 00000000 01000000 00000000 13000000 00000000 00000000 00000000
         00000200 00000000 35ac0f74 5f40bfe6 07000f00 00000000 00000000 00000000
         00000000 00000000 00000000 00000000 9c19c886 2cc5d844 ff00bf00 0f000000
         00800100 00000000",
    );
    assert_eq!(write.payload_length(), 98304);
    let Record::Write(write) = write else { panic!("no WRITE") };
    assert_eq!((write.logical_size, write.compression, write.checksum), (131_072, 15, 7));
    assert_eq!(write.key_properties, 0xf_00bf_00ff);

    let embedded = decode(
        "08000000 00000000 04000000 00000000 00000000 00000000 00020000 00000000
         35ac0f74 5f40bfe6 0f000000 00000000 00020000 2c000000",
    );
    assert_eq!(embedded.payload_length(), 48);
    let Record::WriteEmbedded(embedded) = embedded else { panic!("no WRITE_EMBEDDED") };
    assert_eq!((embedded.logical_size, embedded.physical_size), (512, 44));

    let Record::ObjectRange(range) = decode(
        "09000000 00000000 00000000 00000000 20000000 00000000 c8643638 29bc562a
         ff00d8ce 49bd3c15 8eec7ecb 51ef2cb6 cca16c65 c7cd1a74 b927ba89 5ec3c523 bf14adef 00",
    ) else {
        panic!("no OBJECT_RANGE");
    };
    assert_eq!((range.slots, range.salt[0], range.iv[0], range.mac[15]), (32, 0xff, 0x8e, 0xef));
}

#[test]
fn the_length_of_a_payload_comes_from_the_field_that_rules() {
    let object = |bonus_length, raw_bonus_length| {
        Record::Object(Object { bonus_length, raw_bonus_length, ..Object::default() })
    };
    let write = |compression, compressed_size| {
        Record::Write(Write { logical_size: 512, compression, compressed_size, ..Write::default() })
    };
    let spill = |compressed_size| {
        Record::Spill(Spill { length: 1024, compressed_size, ..Spill::default() })
    };
    for (record, length) in [
        (object(0, 0), 0),
        (object(236, 0), 240),
        (object(236, 320), 320),
        (object(u32::MAX, 0), 1 << 32),
        (write(0, 77), 512),
        (write(2, 77), 77),
        (spill(0), 1024),
        (spill(512), 512),
        (Record::Free(FreeRange { length: 9, ..FreeRange::default() }), 0),
    ] {
        assert_eq!(record.payload_length(), length, "{record:?}");
    }
}

#[test]
fn types_beyond_the_last_are_refused() {
    for number in [11, 255, u32::MAX] {
        let mut bytes = [0; RECORD_SIZE];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        assert!(Record::decode(&bytes, ByteOrder::Little).is_err(), "{number}");
    }
}

#[test]
fn names_have_an_end() {
    assert!(StreamName::new(&[b'a'; 255]).is_ok());
    assert!(StreamName::new(&[b'a'; 256]).is_err());
    assert!(StreamName::new(b"a\0b").is_err());
    let Record::Begin(begin) = Record::decode(&record("00"), ByteOrder::Little).unwrap() else {
        panic!("no BEGIN");
    };
    assert_eq!(begin.to_name.as_bytes().unwrap(), b"");
    let mut endless = [b'a'; RECORD_SIZE];
    endless[..4].fill(0);
    let Record::Begin(begin) = Record::decode(&endless, ByteOrder::Little).unwrap() else {
        panic!("no BEGIN");
    };
    assert!(begin.to_name.as_bytes().is_err());
    assert_eq!(begin.to_name.to_text().len(), 256);
}

#[test]
fn checksums_of_zeros_are_none() {
    let mut bytes = Record::Free(FreeRange::default()).encode(ByteOrder::Big);
    assert_eq!(stored_checksum(&bytes, ByteOrder::Big), None);
    let checksum = ChecksumValue([0, 2, 3, 4]);
    stamp(&mut bytes, checksum, ByteOrder::Big);
    assert_eq!(stored_checksum(&bytes, ByteOrder::Big), Some(checksum));
    assert_eq!(bytes[RECORD_SIZE - 1], 4);
}

proptest! {
    /// Random bytes set every field of a record.
    #[test]
    fn records_survive_encoding(
        kind in 0..11_u32,
        noise in proptest::collection::vec(any::<u8>(), RECORD_SIZE),
    ) {
        for order in ORDERS {
            let mut bytes = [0; RECORD_SIZE];
            bytes.copy_from_slice(&noise);
            bytes[..4].copy_from_slice(&order.bytes32(kind));
            let record = Record::decode(&bytes, order).unwrap();
            prop_assert_eq!(record.kind() as u32, kind);
            let encoded = record.encode(order);
            prop_assert_eq!(Record::decode(&encoded, order).unwrap(), record);
            // What was not zero stays where it was.
            for (at, (new, old)) in encoded.iter().zip(&bytes).enumerate() {
                prop_assert!(*new == 0 || new == old, "byte {}", at);
            }
            let swapped = record.encode(order.swapped());
            prop_assert_eq!(Record::decode(&swapped, order.swapped()).unwrap(), record);
        }
    }
}
