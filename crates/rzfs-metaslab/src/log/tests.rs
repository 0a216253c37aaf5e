use super::*;
use crate::RangeError;
use crate::metaslab::VdevGeometry;
use crate::{StoreError, StoredObject};
use rzfs_format::ByteOrder;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::{Action, EntryWriter, SpaceMapHeader, SpaceMapVersion};

const BLOCK_SIZE: u32 = 256;
const ASHIFT: u32 = 9;
const METASLAB_SHIFT: u32 = 15;
const METASLABS: u64 = 4;
const ARRAY: ObjectId = ObjectId(10);
const UNFLUSHED: ObjectId = ObjectId(11);
const FIRST_MAP: u64 = 20;
const FIRST_LOG: u64 = 1000;

struct Stored {
    object_type: u8,
    words: Vec<u64>,
    header: Option<SpaceMapHeader>,
}

/// A store in memory, with what a writer of space maps does to it.
#[derive(Default)]
struct MemoryStore(BTreeMap<ObjectId, Stored>);

impl SpaceMapStore for MemoryStore {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        let stored = self.0.get(&object).ok_or("no such object")?;
        let blocks = (stored.words.len() as u64 * 8).div_ceil(u64::from(BLOCK_SIZE)).max(1);
        Ok(StoredObject {
            object_type: ObjectType::from_number(stored.object_type)?,
            block_size: BLOCK_SIZE,
            extent: blocks * u64::from(BLOCK_SIZE),
            bonus: stored
                .header
                .as_ref()
                .map(|header| header.encode(ByteOrder::Big).into())
                .unwrap_or_default(),
            order: ByteOrder::Big,
        })
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let stored = self.0.get(&object).ok_or("no such object")?;
        let words = stored.words.iter().skip(first as usize).chain(std::iter::repeat(&0));
        Ok(words.take(count).copied().collect())
    }
}

impl MemoryStore {
    fn array(&mut self, object: ObjectId, object_type: u8, words: Vec<u64>) {
        self.0.insert(object, Stored { object_type, words, header: None });
    }

    fn append(&mut self, object: ObjectId, fill: impl FnOnce(&mut EntryWriter)) {
        let stored = self.0.entry(object).or_insert_with(|| Stored {
            object_type: 8,
            words: Vec::new(),
            header: Some(SpaceMapHeader { object, length: 0, allocated: 0, histogram: None }),
        });
        let mut writer = EntryWriter::new(
            stored.words.len() as u64 * 8,
            u64::from(BLOCK_SIZE),
            SpaceMapVersion::Two,
        );
        fill(&mut writer);
        stored.words.extend(writer.into_words());
        let header = stored.header.as_mut().unwrap();
        header.length = stored.words.len() as u64 * 8;
    }

    fn account(&mut self, object: ObjectId, bytes: i64) {
        self.0.get_mut(&object).unwrap().header.as_mut().unwrap().allocated += bytes;
    }

    /// Appends a change to a metaslab's own map.
    fn own(&mut self, metaslab: u64, action: Action, range: &Range<u64>) {
        let start = metaslab << METASLAB_SHIFT;
        let (offset, length) = (range.start - start, range.end - range.start);
        let object = ObjectId(FIRST_MAP + metaslab);
        self.append(object, |writer| {
            writer.segment(action, offset >> ASHIFT, length >> ASHIFT, None);
        });
        self.account(object, signed(action, length));
    }

    /// Appends a change to the log of a txg.
    fn log(&mut self, txg: u64, vdev: u32, action: Action, range: &Range<u64>) {
        self.append(ObjectId(FIRST_LOG + txg), |writer| {
            writer.debug(action, 1, Txg(txg));
            let length = range.end - range.start;
            writer.segment(action, range.start >> 9, length >> 9, Some(VdevId(vdev)));
        });
        self.account(ObjectId(FIRST_LOG + txg), signed(action, range.end - range.start));
    }

    fn logs(&self) -> Vec<LogMap> {
        let logs = self.0.keys().filter(|object| object.0 >= FIRST_LOG);
        logs.map(|&object| LogMap { txg: Txg(object.0 - FIRST_LOG), object }).collect()
    }

    fn open(&self) -> Result<PoolMetaslabs, MetaslabError> {
        let vdev = VdevMetaslabs::open(self, geometry(), Some(ARRAY), Some(UNFLUSHED))?;
        let vdevs = [(VdevId(0), LoggedVdev::Concrete(vdev)), (VdevId(1), LoggedVdev::Gone)];
        let mut pool = PoolMetaslabs::new(vdevs.into());
        pool.replay(self, &self.logs())?;
        Ok(pool)
    }
}

const fn signed(action: Action, bytes: u64) -> i64 {
    match action {
        Action::Allocate => bytes.cast_signed(),
        Action::Free => -bytes.cast_signed(),
    }
}

const fn geometry() -> VdevGeometry {
    VdevGeometry {
        vdev: VdevId(0),
        asize: (METASLABS << METASLAB_SHIFT) + 512,
        ashift: ASHIFT,
        metaslab_shift: METASLAB_SHIFT,
        row_size: None,
    }
}

/// A vdev whose metaslabs 0 and 1 have maps, with the given unflushed txgs.
fn store(unflushed: [u64; 2]) -> MemoryStore {
    let mut store = MemoryStore::default();
    store.array(ARRAY, 2, vec![FIRST_MAP, FIRST_MAP + 1]);
    store.array(UNFLUSHED, 0xc3, unflushed.to_vec());
    store.append(ObjectId(FIRST_MAP), |_| {});
    store.append(ObjectId(FIRST_MAP + 1), |_| {});
    store
}

fn allocated(pool: &PoolMetaslabs, store: &MemoryStore, metaslab: usize) -> Vec<(u64, u64)> {
    let metaslab = &pool.vdev(VdevId(0)).unwrap().metaslabs()[metaslab];
    let tree = metaslab.load_allocated(store).unwrap();
    assert_eq!(tree.space().cast_signed(), metaslab.allocated());
    let free = metaslab.load_free(store).unwrap();
    assert_eq!(free.space() + tree.space(), metaslab.size());
    tree.iter().map(|range| (range.start, range.end)).collect()
}

#[test]
fn entries_before_the_unflushed_txg_are_obsolete() {
    let mut store = store([7, 5]);
    store.own(0, Action::Allocate, &(0x1000..0x2000));
    // Already in the own map of metaslab 0, because that was flushed in txg 7.
    store.log(5, 0, Action::Allocate, &(0x1000..0x2000));
    store.log(5, 0, Action::Allocate, &(0x8000..0x8200));
    store.log(7, 0, Action::Free, &(0x1800..0x2000));
    store.log(7, 1, Action::Free, &(0..0x4000));
    let pool = store.open().unwrap();
    assert_eq!(allocated(&pool, &store, 0), [(0x1000, 0x1800)]);
    assert_eq!(allocated(&pool, &store, 1), [(0x8000, 0x8200)]);
    assert_eq!(allocated(&pool, &store, 3), []);
    let statistics: Vec<_> = pool.logs().iter().map(|log| (log.valid, log.entries)).collect();
    assert_eq!(statistics, [(1, 2), (1, 2)]);
    assert_eq!(pool.unflushed_net(), 0x200 - 0x800);
    assert_eq!(pool.vdev(VdevId(0)).unwrap().allocated(), 0x800 + 0x200);
}

#[test]
fn contradictions_are_errors_with_their_place() {
    let mut twice = store([5, 5]);
    twice.log(5, 0, Action::Allocate, &(0x1000..0x2000));
    twice.log(5, 0, Action::Allocate, &(0x1800..0x2200));
    assert!(matches!(
        twice.open(),
        Err(MetaslabError::Conflict {
            object: ObjectId(1005),
            word: 4,
            source: RangeError::Overlap { .. }
        })
    ));
    let mut across = store([5, 5]);
    across.log(5, 0, Action::Allocate, &(0x7000..0x9000));
    assert!(matches!(across.open(), Err(MetaslabError::LogEntry { word: 1, .. })));
    let mut beyond = store([5, 5]);
    beyond.log(
        5,
        0,
        Action::Allocate,
        &(METASLABS << METASLAB_SHIFT..(METASLABS << METASLAB_SHIFT) + 512),
    );
    assert!(matches!(beyond.open(), Err(MetaslabError::LogEntry { .. })));
    let mut stranger = store([5, 5]);
    stranger.log(5, 9, Action::Allocate, &(0..512));
    assert!(matches!(stranger.open(), Err(MetaslabError::LogEntry { .. })));
    let missing = store([5, 0]);
    assert!(matches!(missing.open(), Err(MetaslabError::NoLog { metaslab: 0, txg: Txg(5), .. })));
}

#[test]
fn own_maps_must_be_consistent() {
    let load = |store: &MemoryStore| {
        let pool = store.open()?;
        pool.vdev(VdevId(0)).unwrap().metaslabs()[0].load_allocated(store).map(|_| ())
    };
    let mut twice = store([0, 0]);
    twice.own(0, Action::Allocate, &(0x1000..0x2000));
    twice.own(0, Action::Free, &(0x2000..0x2200));
    assert!(matches!(load(&twice), Err(MetaslabError::Conflict { .. })));

    let mut sum = store([0, 0]);
    sum.own(0, Action::Allocate, &(0x1000..0x2000));
    sum.account(ObjectId(FIRST_MAP), 512);
    assert!(matches!(load(&sum), Err(MetaslabError::Format { .. })));

    let mut zeros = store([0, 0]);
    zeros.0.get_mut(&ObjectId(FIRST_MAP)).unwrap().words = vec![0; 64];
    zeros.0.get_mut(&ObjectId(FIRST_MAP)).unwrap().header.as_mut().unwrap().length = 512;
    assert!(matches!(load(&zeros), Err(MetaslabError::Format { .. })));

    let mut long = store([0, 0]);
    long.0.get_mut(&ObjectId(FIRST_MAP)).unwrap().header.as_mut().unwrap().length = 1 << 60;
    assert!(matches!(long.open(), Err(MetaslabError::Format { .. })), "longer than the object");

    let mut kind = store([0, 0]);
    kind.0.get_mut(&ObjectId(FIRST_MAP)).unwrap().object_type = 2;
    assert!(matches!(kind.open(), Err(MetaslabError::Format { .. })));
}

#[test]
fn impossible_geometry_is_refused() {
    for broken in [
        VdevGeometry { metaslab_shift: 63, ..geometry() },
        VdevGeometry { metaslab_shift: 8, ..geometry() },
        VdevGeometry { ashift: 16, ..geometry() },
        VdevGeometry { asize: 1 << 14, ..geometry() },
        VdevGeometry { asize: u64::MAX, ..geometry() },
        // Metaslabs that take more memory than their vdev is worth.
        VdevGeometry { asize: 256 << 20, metaslab_shift: 9, ..geometry() },
        VdevGeometry { asize: 1 << 38, metaslab_shift: 17, ..geometry() },
    ] {
        let opened = VdevMetaslabs::open(&store([0, 0]), broken, Some(ARRAY), None);
        assert!(matches!(opened, Err(MetaslabError::Geometry { .. })), "{broken:?}");
    }
}

#[test]
fn draid_metaslabs_are_whole_rows() {
    let geometry = VdevGeometry {
        vdev: VdevId(0),
        asize: 1 << 32,
        ashift: 12,
        metaslab_shift: 28,
        row_size: Some(5 << 12),
    };
    assert_eq!(geometry.metaslab_range(1), 0x1000_4000..0x1000_4000 + 0xfff_c000 / 0x5000 * 0x5000);
    assert_eq!(geometry.metaslab_range(0).start, 0);
}

#[test]
fn keys_of_logs_are_canonical_hex() {
    assert_eq!(txg_of_key(b"1e"), Some(Txg(30)));
    assert_eq!(txg_of_key(b"ffffffffffffffff"), Some(Txg(u64::MAX)));
    for key in [&b""[..], b"1E", b"01", b"0x1", b"10000000000000000", b"-1", b"+1", b" 1"] {
        assert_eq!(txg_of_key(key), None, "{key:?}");
    }
}

mod model {
    use super::*;
    use proptest::prelude::*;

    const UNITS: usize = (METASLABS << (METASLAB_SHIFT - ASHIFT)) as usize;

    /// What happens in one txg.
    #[derive(Clone, Debug)]
    struct TxgChanges {
        ranges: Vec<(usize, usize)>,
        flush: u64,
    }

    fn txgs() -> impl Strategy<Value = Vec<TxgChanges>> {
        let change = (prop::collection::vec((0..UNITS, 1..20_usize), 0..12), 0..METASLABS)
            .prop_map(|(ranges, flush)| TxgChanges { ranges, flush });
        prop::collection::vec(change, 1..30)
    }

    /// A writer with log space maps: it keeps the truth, the unflushed changes and the txgs.
    struct Writer {
        store: MemoryStore,
        truth: [bool; UNITS],
        unflushed: [u64; METASLABS as usize],
    }

    impl Writer {
        fn new() -> Self {
            let mut store = MemoryStore::default();
            store.array(ARRAY, 2, (FIRST_MAP..FIRST_MAP + METASLABS).collect());
            for metaslab in 0..METASLABS {
                store.append(ObjectId(FIRST_MAP + metaslab), |_| {});
            }
            Self { store, truth: [false; UNITS], unflushed: [0; METASLABS as usize] }
        }

        /// Brings a metaslab's own map up to date with the truth before this txg.
        fn flush(&mut self, metaslab: u64, txg: u64) {
            self.store.array(UNFLUSHED, 0xc3, self.unflushed.to_vec());
            let pool = self.store.open().unwrap();
            let vdev = pool.vdev(VdevId(0)).unwrap();
            let metaslab = &vdev.metaslabs()[metaslab as usize];
            for range in metaslab.unflushed_allocated().iter() {
                self.store.own(metaslab.id(), Action::Allocate, &range);
            }
            for range in metaslab.unflushed_freed().iter() {
                self.store.own(metaslab.id(), Action::Free, &range);
            }
            self.unflushed[metaslab.id() as usize] = txg;
            let oldest = self.unflushed.iter().filter(|txg| **txg > 0).min().copied();
            self.store.0.retain(|object, _| {
                object.0 < FIRST_LOG || object.0 - FIRST_LOG >= oldest.unwrap_or(0)
            });
        }

        fn change(&mut self, txg: u64, at: usize, len: usize) {
            let per_metaslab = UNITS / METASLABS as usize;
            let metaslab = at / per_metaslab;
            let units = at..(at + len).min((metaslab + 1) * per_metaslab);
            let range = (units.start << ASHIFT) as u64..(units.end << ASHIFT) as u64;
            let bits = &mut self.truth[units];
            let action = match (bits.contains(&true), bits.contains(&false)) {
                (false, _) => Action::Allocate,
                (_, false) => Action::Free,
                _ => return,
            };
            bits.fill(action == Action::Allocate);
            self.store.log(txg, 0, action, &range);
            if self.unflushed[metaslab] == 0 {
                self.unflushed[metaslab] = txg;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn own_maps_and_logs_together_are_the_truth(txgs in txgs()) {
            let mut writer = Writer::new();
            for (txg, changes) in (30_u64..).zip(txgs) {
                // The log of a txg exists before anything refers to it.
                writer.store.append(ObjectId(FIRST_LOG + txg), |_| {});
                writer.flush(changes.flush, txg);
                for (at, len) in changes.ranges {
                    writer.change(txg, at, len);
                }
                writer.store.array(UNFLUSHED, 0xc3, writer.unflushed.to_vec());
                let pool = writer.store.open().unwrap();
                let mut read = [false; UNITS];
                for metaslab in pool.vdev(VdevId(0)).unwrap().metaslabs() {
                    let tree = metaslab.load_allocated(&writer.store).unwrap();
                    prop_assert_eq!(tree.space().cast_signed(), metaslab.allocated());
                    for range in tree.iter() {
                        read[(range.start >> ASHIFT) as usize..(range.end >> ASHIFT) as usize]
                            .fill(true);
                    }
                }
                prop_assert!(read == writer.truth);
            }
        }
    }
}
