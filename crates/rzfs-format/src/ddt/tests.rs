use super::log::{LogHeader, LogRecord, LogRole, records};
use super::*;
use crate::units::VdevId;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

const KEY: DdtKey = DdtKey([
    0x9450_7193_86e7_1464,
    0x6c78_f6e4_c9f8_80c0,
    0x2562_723b_4711_b004,
    0xf4b4_297f_382e_e807,
    0x0000_000f_0007_000f,
]);

fn flat() -> DdtValue {
    let mut slot = DdtSlot { references: 3, birth: Txg(8), ..DdtSlot::default() };
    slot.dvas[0] = Dva::new(VdevId(0), 0x2e000, 0x1000, false);
    DdtValue::Flat { slot, class_start: 0x6b01_0021 }
}

#[test]
fn flat_value_of_the_spec_round_trips() {
    let text = "82 0800000000000000 7001000000000000 0000000000000000 0000000000000000
        0000000000000000 0000000000000000 0300000000000000 0800000000000000 2100016b00000000";
    let value = hex(text);
    let envelope = DdtEnvelope::decode(&value).unwrap();
    assert_eq!(envelope.compression, CompressionFunction::Off);
    let entry = DdtValue::decode(envelope.payload, envelope.order, DdtLayout::Flat).unwrap();
    assert_eq!(entry, flat());
    assert_eq!(entry.references(), 3);
    assert_eq!(entry.encode(ByteOrder::Little), envelope.payload);
    assert_eq!(envelope.encode(), value);
}

#[test]
fn traditional_values_round_trip_in_both_orders() {
    let mut slots = [DdtSlot::default(); 4];
    slots[1] = DdtSlot {
        dvas: [Dva::new(VdevId(0), 0xee00, 0x400, false), Dva::default(), Dva::default()],
        references: 3,
        birth: Txg(8),
    };
    slots[0].references = 100;
    let value = DdtValue::Traditional(slots);
    assert_eq!((value.references(), value.used_slots().count()), (3, 1));
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = value.encode(order);
        assert_eq!(DdtValue::decode(&bytes, order, DdtLayout::Traditional).unwrap(), value);
        assert!(DdtValue::decode(&bytes[1..], order, DdtLayout::Traditional).is_err());
        assert!(DdtValue::decode(&bytes, order, DdtLayout::Flat).is_err());
    }
}

#[test]
fn key_of_the_spec_describes_its_block() {
    assert_eq!((KEY.logical_size(), KEY.physical_size()), (8192, 4096));
    assert_eq!(KEY.compression().unwrap(), CompressionFunction::Lz4);
    assert!(!KEY.is_encrypted());
    assert!(KEY < DdtKey([KEY.0[0], KEY.0[1] + 1, 0, 0, 0]));
}

#[test]
fn pointer_of_a_slot_leads_back_to_it() {
    let value = flat();
    let slot = value.slots()[0];
    let pointer = slot.pointer(ChecksumFunction::Sha256, &KEY);
    pointer.validate().unwrap();
    assert!(pointer.is_dedup() && slot.matches(&pointer));
    assert_eq!(DdtKey::of_pointer(&pointer), KEY);
    assert_eq!(pointer.physical_size(), 4096);

    let other = DdtSlot { birth: Txg(9), ..slot };
    assert!(!other.matches(&pointer), "another birth is another block");
    assert!(!DdtSlot::default().matches(&BlockPointer::HOLE), "an empty slot matches nothing");
}

#[test]
fn log_record_of_the_spec_round_trips() {
    let record = LogRecord { stored: None, key: KEY, value: flat() };
    let bytes = record.encode(ByteOrder::Little);
    assert_eq!(bytes[..8], hex("0178000000000103"));
    assert_eq!(bytes.len(), LogRecord::size(DdtLayout::Flat));

    let stored = LogRecord { stored: Some(DdtClass::Unique), ..record };
    let mut block = bytes;
    block.extend(stored.encode(ByteOrder::Little));
    block.resize(1024, 0);
    let read: Result<Vec<_>, _> = records(&block, ByteOrder::Little, DdtLayout::Flat).collect();
    assert_eq!(read.unwrap(), [record, stored]);
}

#[test]
fn hostile_log_records_end_the_block() {
    let good = LogRecord { stored: None, key: KEY, value: flat() }.encode(ByteOrder::Little);
    for (offset, value) in [(0, 2), (1, 0), (1, 0x79), (2, 0xff)] {
        let mut block = good.clone();
        block[offset] = value;
        block.resize(4096, 0);
        let read: Vec<_> = records(&block, ByteOrder::Little, DdtLayout::Flat).collect();
        assert!(matches!(read[..], [Err(_)]), "byte {offset} = {value}: {read:?}");
    }
}

#[test]
fn log_headers_round_trip() {
    for (role, checkpoint) in [(LogRole::Active, None), (LogRole::Flushing, Some(KEY))] {
        let header = LogHeader { role, length: 131_072, first_txg: Txg(40), checkpoint };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(LogHeader::decode(&header.encode(order), order).unwrap(), header);
        }
    }
    assert!(LogHeader::decode(&[0; LogHeader::SIZE], ByteOrder::Little).is_err(), "version 0");
}

#[test]
fn unknown_tables_are_refused() {
    assert_eq!(DdtLayout::from_version_and_flags(0, 0).unwrap(), DdtLayout::Traditional);
    assert_eq!(DdtLayout::from_version_and_flags(1, 3).unwrap(), DdtLayout::Flat);
    assert!(DdtLayout::from_version_and_flags(1, 4).is_err());
    assert!(DdtLayout::from_version_and_flags(2, 3).is_err());
}

#[test]
fn names_of_objects_are_those_of_the_spec() {
    let sha256 = ChecksumFunction::Sha256;
    assert_eq!(directory_name(sha256), "DDT-sha256");
    assert_eq!(object_name(sha256, DdtClass::Duplicate), "DDT-sha256-zap-duplicate");
    assert_eq!(log_name(sha256, 1), "DDT-log-sha256-1");
}

#[test]
fn histograms_sort_by_references_and_round_trip() {
    let mut histogram = DdtHistogram::default();
    let stats = DdtStats { blocks: 1, lsize: 512, ref_blocks: 5, ..DdtStats::default() };
    histogram.record(5, &stats);
    histogram.record(4, &stats);
    histogram.record(u64::MAX, &stats);
    assert_eq!(histogram.buckets[2].blocks, 2);
    assert_eq!(histogram.buckets[63].blocks, 1);
    assert_eq!((histogram.total().blocks, histogram.total().ref_blocks), (3, 15));
    let mut doubled = histogram.clone();
    doubled.add(&histogram);
    assert_eq!(doubled.total().lsize, 6 * 512);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = histogram.encode(order);
        assert_eq!(bytes.len(), DdtHistogram::SIZE);
        assert_eq!(DdtHistogram::decode(&bytes, order).unwrap(), histogram);
    }
    assert!(DdtHistogram::decode(&[0; 4095], ByteOrder::Little).is_err());
}
