use super::*;
use crate::memory::MemoryStore;
use crate::store::SpaceMapStore;
use proptest::prelude::*;

const STAMP: Stamp = Stamp { txg: Txg(100), pass: 1 };
const AREA: Geometry = Geometry { start: 0, size: 16 << 20, shift: 12 };

fn tree(geometry: Geometry, ranges: impl IntoIterator<Item = std::ops::Range<u64>>) -> RangeTree {
    let Geometry { start, size, shift } = geometry;
    let mut tree = RangeTree::new(start..start.saturating_add(size), shift);
    for range in ranges {
        tree.add(range).unwrap();
    }
    tree
}

fn part(action: Action, segments: &RangeTree) -> Part<'_> {
    Part { action, segments }
}

fn histogram_count(store: &MemoryStore) -> u64 {
    store.feature_count(CountedFeature::SpaceMapHistogram)
}

#[test]
fn condensed_map_of_the_spec() {
    let mut store = MemoryStore::new();
    let mut map = SpaceMap::create(&mut store, AREA, 131_072, HeaderForm::Histogram).unwrap();
    let whole = tree(AREA, std::iter::once(0..16 << 20));
    let free = tree(AREA, [0x1000..0x3000, 0x8000..0x9000]);
    let parts = [part(Action::Allocate, &whole), part(Action::Free, &free)];
    let words = map.append(&mut store, STAMP, SpaceMapVersion::Two, None, &parts).unwrap();
    assert_eq!(words, 5);
    assert_eq!(
        store.words(map.object()),
        [0x8004_0000_0000_0064, 0xfff, 0x9004_0000_0000_0064, 0x1_8001, 0x8_8000]
    );
    let read = SpaceMap::open(&store, map.object(), AREA).unwrap();
    assert_eq!(read.header(), map.header());
    assert_eq!((read.header().length, read.header().allocated), (40, 0x100_0000 - 0x3000));
    assert_eq!(read.header().object, map.object());
    assert_eq!(read.load_allocated(&store).unwrap().space(), 0x100_0000 - 0x3000);
}

#[test]
fn nothing_to_append_changes_nothing() {
    let mut store = MemoryStore::new();
    let mut map = SpaceMap::create(&mut store, AREA, 4096, HeaderForm::V0).unwrap();
    let before = store.object(map.object()).unwrap().bonus;
    let empty = tree(AREA, []);
    let parts = [part(Action::Allocate, &empty), part(Action::Free, &empty)];
    assert_eq!(map.append(&mut store, STAMP, SpaceMapVersion::One, None, &parts).unwrap(), 0);
    assert!(store.words(map.object()).is_empty());
    assert_eq!(histogram_count(&store), 0);
    // Not even the header, which would make another sync pass necessary.
    assert_eq!(store.object(map.object()).unwrap().bonus, before);
}

#[test]
fn log_entries_name_the_vdev_and_count_sectors() {
    let mut store = MemoryStore::new();
    let mut log = SpaceMap::create(&mut store, Geometry::LOG, 131_072, HeaderForm::V0).unwrap();
    let freed = tree(AREA, std::iter::once(0x1000..0x2000));
    let stamp = Stamp { txg: Txg(21), pass: 1 };
    let parts = [part(Action::Free, &freed)];
    log.append(&mut store, stamp, SpaceMapVersion::Two, Some(VdevId(1)), &parts).unwrap();
    assert_eq!(
        store.words(log.object()),
        [0x9004_0000_0000_0015, 0xc000_0000_0700_0001, 0x8000_0000_0000_0008]
    );
    assert_eq!(log.header().allocated, -0x1000);
}

#[test]
fn truncation_keeps_the_object_only_if_it_is_up_to_date() {
    let mut store = MemoryStore::new();
    let mut map = SpaceMap::create(&mut store, AREA, 4096, HeaderForm::V0).unwrap();
    let some = tree(AREA, std::iter::once(0..0x1000));
    let parts = [part(Action::Allocate, &some)];
    map.append(&mut store, STAMP, SpaceMapVersion::One, None, &parts).unwrap();
    let old = map.object();
    map.truncate(&mut store, 4096, HeaderForm::V0).unwrap();
    assert_eq!((map.object(), map.header().length, map.header().allocated), (old, 0, 0));
    map.truncate(&mut store, 4096, HeaderForm::Histogram).unwrap();
    assert_ne!(map.object(), old);
    assert_eq!((store.objects().count(), histogram_count(&store)), (1, 1));
    let second = map.object();
    map.truncate(&mut store, 16384, HeaderForm::Histogram).unwrap();
    assert_ne!(map.object(), second);
    assert_eq!((store.objects().count(), histogram_count(&store)), (1, 1));
    map.destroy(&mut store).unwrap();
    assert_eq!((store.objects().count(), histogram_count(&store)), (0, 0));
}

#[test]
fn segments_beyond_the_map_are_refused() {
    let mut store = MemoryStore::new();
    let area = Geometry { start: 0x10_0000, size: 0x10_0000, shift: 12 };
    let mut map = SpaceMap::create(&mut store, area, 4096, HeaderForm::V0).unwrap();
    let wide = Geometry { start: 0, size: 1 << 30, shift: 9 };
    for range in [0..0x1000, 0x1f_f000..0x20_1000, 0x10_0200..0x10_0400] {
        let segments = tree(wide, [range.clone()]);
        let parts = [part(Action::Allocate, &segments)];
        let result = map.append(&mut store, STAMP, SpaceMapVersion::Two, None, &parts);
        assert!(matches!(result, Err(MetaslabError::Format { .. })), "{range:?}");
    }
    assert_eq!(map.header().length, 0);
}

#[test]
fn segments_above_the_last_bucket_count_as_several() {
    let mut sizes = [0; 64];
    sizes[12] = 3;
    sizes[8] = 99;
    sizes[45] = 2;
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    add_to_histogram(&mut histogram, &sizes, 12);
    assert_eq!((histogram[0], histogram[31]), (3, 2 << 2));
    assert_eq!(histogram.iter().sum::<u64>(), 3 + 8);
    sizes[63] = u64::MAX;
    add_to_histogram(&mut histogram, &sizes, 9);
    assert_eq!(histogram[31], u64::MAX);
}

proptest! {
    #[test]
    fn what_is_appended_is_read_back(
        rounds in prop::collection::vec(prop::collection::vec((0_u64..512, 1_u64..40), 0..30), 1..8),
        block_size in prop::sample::select(vec![16_u32, 24, 512, 4096]),
        version in prop::sample::select(vec![SpaceMapVersion::One, SpaceMapVersion::Two]),
        logged in any::<bool>(),
    ) {
        let mut store = MemoryStore::new();
        let geometry = if logged { Geometry::LOG } else { AREA };
        let (version, vdev) =
            if logged { (SpaceMapVersion::Two, Some(VdevId(3))) } else { (version, None) };
        let mut map = SpaceMap::create(&mut store, geometry, block_size, HeaderForm::V0).unwrap();
        let mut truth = tree(AREA, []);
        for round in rounds {
            let (mut allocated, mut freed) = (tree(AREA, []), tree(AREA, []));
            for (start, len) in round {
                let range = start << 12..(start + len) << 12;
                if truth.first_overlap(range.clone()).unwrap().is_none() {
                    truth.add(range.clone()).unwrap();
                    crate::range_tree::cancel_or_add(range, &mut freed, &mut allocated).unwrap();
                } else if truth.contains(range.clone()) {
                    truth.remove(range.clone()).unwrap();
                    crate::range_tree::cancel_or_add(range, &mut allocated, &mut freed).unwrap();
                }
            }
            let parts = [part(Action::Allocate, &allocated), part(Action::Free, &freed)];
            map.append(&mut store, STAMP, version, vdev, &parts).unwrap();
        }
        let read = SpaceMap::open(&store, map.object(), geometry).unwrap();
        let tree = read.load_allocated(&store).unwrap();
        prop_assert_eq!(tree.iter().collect::<Vec<_>>(), truth.iter().collect::<Vec<_>>());
    }
}
