use super::*;

fn parse(words: &[u64]) -> Vec<Entry> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    entries(&bytes, ByteOrder::Little).map(|entry| entry.unwrap().1).collect()
}

fn run(action: Action, offset: u64, length: u64, form: Form) -> Entry {
    Entry::Run(Run { action, offset, length, form })
}

const fn wide(vdev: u32) -> Form {
    Form::TwoWords { vdev: VdevId(vdev) }
}

#[test]
fn encoding_vectors_of_the_spec() {
    use Action::{Allocate, Free};
    for (entry, words) in [
        (run(Allocate, 0, 1, Form::OneWord), vec![0]),
        (run(Free, (1 << 47) - 1, 32768, Form::OneWord), vec![0x7fff_ffff_ffff_ffff]),
        (run(Allocate, 0, 1 << 36, wide(0)), vec![0xcfff_ffff_ff00_0000, 0]),
        (run(Free, (1 << 63) - 1, 1, wide(0xff_ffff)), vec![0xc000_0000_00ff_ffff, u64::MAX]),
        (Entry::Debug { action: 0, pass: 1, txg: Txg(5) }, vec![0x8004_0000_0000_0005]),
        (Entry::Debug { action: 1, pass: 2, txg: Txg(31) }, vec![0x9008_0000_0000_001f]),
        (
            Entry::Debug { action: 1, pass: 1023, txg: Txg((1 << 50) - 1) },
            vec![0x9fff_ffff_ffff_ffff],
        ),
        (Entry::Padding, vec![0x8000_0000_0000_0000]),
    ] {
        assert_eq!(parse(&words), [entry]);
        let (first, second) = entry.to_words();
        assert_eq!(std::iter::once(first).chain(second).collect::<Vec<_>>(), words);
    }
}

#[test]
fn metaslab_map_of_the_spec_decodes() {
    let geometry = Geometry { start: 0, size: 1 << 24, shift: 12 };
    let entries = parse(&[0x8004_0000_0000_0005, 0xa, 0xc_0007, 0x15_000a, 0x4_8006, 0x46_00a3]);
    let ranges: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Run(run) => Some((run.action, geometry.range(run).unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(
        ranges,
        [
            (Action::Allocate, 0..0xb000),
            (Action::Allocate, 0xc000..0x14000),
            (Action::Allocate, 0x15000..0x20000),
            (Action::Free, 0x4000..0xb000),
            (Action::Allocate, 0x46000..0xea000),
        ]
    );
}

#[test]
fn log_map_of_the_spec_decodes() {
    let entries = parse(&[
        0x9004_0000_0000_0015,
        0xc000_0000_1700_0000,
        0x8000_0000_0001_0260,
        0xc000_0000_0700_0001,
        0x8000_0000_0000_8020,
    ]);
    let Entry::Run(first) = entries[1] else { panic!("not a run: {:?}", entries[1]) };
    assert_eq!((first.action, first.vdev()), (Action::Free, Some(VdevId(0))));
    assert_eq!(Geometry::LOG.range(&first).unwrap(), 0x204_c000..0x204_f000);
    let Entry::Run(second) = entries[2] else { panic!("not a run: {:?}", entries[2]) };
    assert_eq!(second.vdev(), Some(VdevId(1)));
    assert_eq!(Geometry::LOG.range(&second).unwrap(), 0x100_4000..0x100_5000);
}

#[test]
fn obsolete_map_of_the_spec_decodes() {
    let geometry = Geometry::obsolete(1 << 30);
    let entries = parse(&[0x2000_0fff, 0xc000_100f_ff00_0000, 0x2a_4000]);
    let ranges: Vec<_> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Run(run) => geometry.range(run).unwrap(),
            other => panic!("not a run: {other:?}"),
        })
        .collect();
    assert_eq!(ranges, [0x2000..0x3000, 0x2a_4000..0x2a_4000 + 0x10_1000]);
}

#[test]
fn condensed_map_of_the_spec_is_written_word_for_word() {
    let mut writer = EntryWriter::new(0, 128 << 10, SpaceMapVersion::Two);
    writer.debug(Action::Allocate, 1, Txg(100));
    writer.segment(Action::Allocate, 0, 4096, None);
    writer.debug(Action::Free, 1, Txg(100));
    writer.segment(Action::Free, 1, 2, None);
    writer.segment(Action::Free, 8, 1, None);
    assert_eq!(writer.length(), 40);
    assert_eq!(
        writer.into_words(),
        [0x8004_0000_0000_0064, 0xfff, 0x9004_0000_0000_0064, 0x1_8001, 0x8_8000]
    );
}

#[test]
fn entries_of_two_words_do_not_cross_a_block() {
    let mut writer = EntryWriter::new(24, 32, SpaceMapVersion::Two);
    writer.segment(Action::Allocate, 0, 5, Some(VdevId(3)));
    let words = writer.into_words();
    assert_eq!((words.len(), words[0]), (3, PADDING));
}

#[test]
fn segments_are_cut_at_the_longest_run() {
    let mut narrow = EntryWriter::new(0, 4096, SpaceMapVersion::One);
    narrow.segment(Action::Free, 7, 2 * ONE_WORD_MAX_RUN + 1, None);
    assert_eq!(
        parse(&narrow.into_words()),
        [
            run(Action::Free, 7, ONE_WORD_MAX_RUN, Form::OneWord),
            run(Action::Free, 7 + ONE_WORD_MAX_RUN, ONE_WORD_MAX_RUN, Form::OneWord),
            run(Action::Free, 7 + 2 * ONE_WORD_MAX_RUN, 1, Form::OneWord),
        ]
    );
    let mut two = EntryWriter::new(0, 4096, SpaceMapVersion::Two);
    two.segment(Action::Free, 7, TWO_WORD_MAX_RUN + 1, None);
    assert_eq!(parse(&two.into_words()).len(), 2);
}

#[test]
fn size_bound_vector_of_the_spec() {
    let mut segments = [0; 64];
    (segments[12], segments[20], segments[27]) = (1000, 10, 2);
    let geometry = Geometry { start: 0, size: 1 << 30, shift: 12 };
    assert_eq!(encoded_size_bound(&segments, geometry, 131_072, SpaceMapVersion::Two), 8120);
    assert_eq!(encoded_size_bound(&segments, geometry, 131_072, SpaceMapVersion::One), 8112);
    segments[63] = u64::MAX;
    assert_eq!(encoded_size_bound(&segments, geometry, 1, SpaceMapVersion::Two), u64::MAX);
}

#[test]
fn header_of_the_spec_round_trips_in_both_orders() {
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    histogram[..11].copy_from_slice(&[1, 2, 2, 2, 1, 0, 0, 0, 1, 1, 1]);
    for (histogram, size) in [(Some(histogram), HEADER_SIZE), (None, HEADER_SIZE_V0)] {
        let header = SpaceMapHeader {
            object: ObjectId(0x8a),
            length: 0x158,
            allocated: -0x3c6_000,
            histogram,
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let bytes = header.encode(order);
            assert_eq!(bytes.len(), size);
            assert_eq!(SpaceMapHeader::decode(&bytes, order).unwrap(), header);
        }
    }
}

#[test]
fn hostile_headers_and_entries_are_refused() {
    assert!(SpaceMapHeader::decode(&[0; 64], ByteOrder::Little).is_err());
    let mut bytes = [0; HEADER_SIZE_V0];
    bytes[8] = 7;
    assert!(SpaceMapHeader::decode(&bytes, ByteOrder::Little).is_err());

    let cut = 0xc000_0000_0000_0000_u64.to_le_bytes();
    let mut entries = entries(&cut, ByteOrder::Little);
    assert!(entries.next().unwrap().is_err());
    assert!(entries.next().is_none(), "nothing follows an entry that was cut");

    let geometry = Geometry { start: 1 << 24, size: 1 << 24, shift: 12 };
    for (offset, length) in [(4096, 1), (4095, 2), (1 << 60, 1), (u64::MAX >> 1, 1 << 36)] {
        let run = Run { action: Action::Free, offset, length, form: Form::OneWord };
        assert!(geometry.range(&run).is_err(), "{offset:#x}+{length:#x}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_word_decodes_and_encodes_to_itself(first: u64, second: u64) {
            // Bits 61..60 of an entry of two words are padding and not kept.
            let entry = Entry::from_words(first, Some(second)).unwrap();
            let (a, b) = entry.to_words();
            if entry.words() == 2 {
                prop_assert_eq!((a, b), (first & !(3 << 60), Some(second)));
            } else {
                prop_assert_eq!((a, b), (first, None));
            }
        }

        #[test]
        fn written_segments_are_read_back(
            segments in prop::collection::vec((0_u64..1 << 40, 1_u64..100_000), 1..200),
            start_words in 0_u64..64,
            with_vdev: bool,
        ) {
            let block_size = 256;
            let mut writer = EntryWriter::new(start_words * 8, block_size, SpaceMapVersion::Two);
            for &(offset, length) in &segments {
                writer.segment(Action::Free, offset, length, with_vdev.then_some(VdevId(9)));
            }
            let words = writer.into_words();
            let first_block = (block_size / 8 - start_words % (block_size / 8)) as usize;
            let (head, rest) = words.split_at(first_block.min(words.len()));
            let mut read = Vec::new();
            for block in std::iter::once(head).chain(rest.chunks(block_size as usize / 8)) {
                for entry in parse(block) {
                    if let Entry::Run(run) = entry {
                        read.push((run.offset, run.length));
                    }
                }
            }
            prop_assert_eq!(read, segments);
        }
    }
}
