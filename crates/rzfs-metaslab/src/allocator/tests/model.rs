//! Random histories, compared with a list of blocks.

use super::*;
use crate::log::book::LogLimits;
use proptest::prelude::*;

/// log2 of the bytes of a metaslab.
const SHIFT: u32 = 16;

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    /// A block of these sectors, with copies, in the txg that is open.
    Allocate { sectors: u64, copies: u8 },
    /// An allocation that is taken back at once.
    Retract { sectors: u64 },
    /// A block dies in the next sync.
    Free { which: usize },
    /// The txg is synced; meanwhile blocks are allocated for its second pass and the next txg.
    /// Metaslabs may be unloaded and loaded between the passes.
    Sync { in_pass: u64, ahead: u64, reload: bool },
    /// A txg in which nothing happens.
    Idle,
    /// The pool is exported and imported.
    Export,
    /// The process dies and the pool is imported again.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (1_u64..60, 1_u8..4).prop_map(|(sectors, copies)| Step::Allocate { sectors, copies }),
        1 => (1_u64..60).prop_map(|sectors| Step::Retract { sectors }),
        8 => any::<usize>().prop_map(|which| Step::Free { which }),
        6 => (0_u64..4, 0_u64..4, any::<bool>())
            .prop_map(|(in_pass, ahead, reload)| Step::Sync { in_pass, ahead, reload }),
        1 => Just(Step::Idle),
        1 => Just(Step::Export),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..200)
}

fn features() -> impl Strategy<Value = SpaceFeatures> {
    let without_logs = SpaceFeatures { logs: LogFeature::Disabled, ..SpaceFeatures::NEW_POOL };
    prop::sample::select(vec![SpaceFeatures::NEW_POOL, without_logs, SpaceFeatures::NONE])
}

#[derive(Clone, Debug)]
struct Block {
    dvas: Vec<Dva>,
    txg: Txg,
}

/// The pool and its model.
struct Run {
    world: World,
    blocks: Vec<Block>,
    /// Freed in these txgs.
    waiting: Vec<(Txg, Dva)>,
    /// To be freed by the next sync.
    dying: Vec<Dva>,
    /// What is on disk, and the blocks it has.
    durable: (MemoryStore, Vec<Block>),
}

impl Run {
    fn new(features: SpaceFeatures) -> Self {
        let logs = LogLimits { block_min: 3, txg_max: 6, flush_min: 1, ..LogLimits::default() };
        let tunables = SpaceTunables {
            logs,
            num_allocators: 2,
            unload_delay: 1,
            aliquot: 1 << 13,
            condense_block_threshold: 0,
            embedded_slog_min_ms: 6,
            ..SpaceTunables::default()
        };
        let vdevs = [vdev(0, 7, SHIFT, 9), TestVdev { parity: 1, ..vdev(1, 5, SHIFT, 10) }];
        let world = World::create(&vdevs, tunables, features);
        let (blocks, waiting, dying) = (Vec::new(), Vec::new(), Vec::new());
        let durable = (MemoryStore::new(), Vec::new());
        Self { world, blocks, waiting, dying, durable }
    }

    fn is_taken(&self, dva: Dva) -> bool {
        let end = dva.offset() + dva.asize();
        let live = self.blocks.iter().flat_map(|block| &block.dvas);
        live.chain(self.waiting.iter().map(|(_, dva)| dva)).chain(&self.dying).any(|other| {
            other.vdev() == dva.vdev()
                && other.offset() < end
                && dva.offset() < other.offset() + other.asize()
        })
    }

    fn allocate(&mut self, sectors: u64, copies: u8, txg: Txg) {
        let request = AllocationRequest {
            size: sectors * 512,
            copies,
            content: Content::Data { special_up_to: 0 },
            placement: Placement::Block,
            locality: sectors,
        };
        let Ok(dvas) = self.world.allocator.allocate(&request, txg) else { return };
        let mut block = Block { dvas: Vec::new(), txg };
        for dva in dvas.into_iter().filter(|dva| dva.is_valid()) {
            assert!(!self.is_taken(dva), "{dva} is taken");
            assert!(!block.dvas.contains(&dva));
            block.dvas.push(dva);
        }
        assert_eq!(block.dvas.len(), usize::from(copies));
        self.blocks.push(block);
    }

    fn retract(&mut self, sectors: u64) {
        let before = self.world.allocator.usage();
        if let Ok(dvas) = self.world.allocate(sectors * 512, 2) {
            self.world.allocator.unallocate(&dvas, self.world.txg);
        }
        assert_eq!(self.world.allocator.usage(), before);
    }

    fn sync(&mut self, in_pass: u64, ahead: u64, activity: Activity, reload: bool) {
        let txg = self.world.txg;
        let mut store = self.world.store.clone();
        let allocator = std::mem::replace(&mut self.world.allocator, idle_allocator(&store));
        let pass = allocator.begin_sync(txg).unwrap();
        let dying = std::mem::take(&mut self.dying);
        let (first, second) = dying.split_at(dying.len() / 2);
        for dva in first {
            pass.free(*dva, Txg(1)).unwrap();
            assert!(matches!(pass.free(*dva, Txg(1)), Err(MetaslabError::Range { .. })));
        }
        let pass = pass.sync(&mut store, activity).unwrap();
        if reload {
            unload_all(&allocator);
            allocator.preload();
        }
        self.waiting.extend(dying.iter().map(|dva| (txg, *dva)));
        for dva in second {
            pass.free(*dva, Txg(1)).unwrap();
        }
        drop(dying);
        let mut given = Vec::new();
        for (sectors, txg) in
            (0..in_pass).map(|n| (n + 1, txg)).chain((0..ahead).map(|n| (n + 2, txg.next())))
        {
            given.push((sectors, txg));
        }
        let request = |sectors| AllocationRequest {
            size: sectors * 512,
            copies: 1,
            content: Content::Metadata,
            placement: Placement::Block,
            locality: sectors,
        };
        for (sectors, txg) in given {
            let Ok([dva, ..]) = allocator.allocate(&request(sectors), txg) else { continue };
            assert!(!self.is_taken(dva), "{dva} is taken");
            self.blocks.push(Block { dvas: vec![dva], txg });
        }
        let finished = pass.sync(&mut store, activity).unwrap().finish().unwrap();
        let on_disk = self.blocks.iter().filter(|block| block.txg <= txg).cloned().collect();
        self.durable = (store.snapshot(), on_disk);
        finished.committed().unwrap();
        self.world.allocator = allocator;
        self.world.txg = txg.next();
        self.forget_waiting(txg);
        self.check();
    }

    /// Space freed two txgs ago is usable; also space freed while space was short.
    fn forget_waiting(&mut self, txg: Txg) {
        self.waiting.retain(|(freed, _)| freed.0 + 2 > txg.0);
        let topology = self.world.allocator.topology();
        self.waiting.retain(|(_, dva)| {
            let range = dva.offset()..dva.offset() + dva.asize();
            let metaslab = topology.vdevs[&dva.vdev()].metaslab_of(&range).unwrap();
            let state = metaslab.state.lock();
            state.transient.as_ref().is_some_and(|transient| {
                transient.deferred.iter().any(|old| old.segments.contains(range.clone()))
            })
        });
    }

    fn check(&self) {
        check_metaslabs(&self.world);
        let (store, blocks) = &self.durable;
        assert_eq!(stored(store, &self.world.devices), segments(blocks));
        let status = self.world.allocator.log_status();
        let limits = self.world.allocator.context.tunables.logs;
        assert!(status.logs <= limits.txg_max + 2, "{status:?}");
    }

    fn reopen(&mut self) {
        let (store, blocks) = self.durable.clone();
        let txg = self.world.txg;
        self.world = self.world.open(store, txg);
        (self.blocks, self.waiting) = (blocks, Vec::new());
        self.dying.clear();
        check_metaslabs(&self.world);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate { sectors, copies } => self.allocate(sectors, copies, self.world.txg),
            Step::Retract { sectors } => self.retract(sectors),
            Step::Free { which } => {
                let txg = self.world.txg;
                let old: Vec<usize> =
                    (0..self.blocks.len()).filter(|index| self.blocks[*index].txg <= txg).collect();
                if !old.is_empty() {
                    let block = self.blocks.swap_remove(old[which % old.len()]);
                    self.dying.extend(block.dvas);
                }
            }
            Step::Sync { in_pass, ahead, reload } => {
                self.sync(in_pass, ahead, Activity::Busy, reload);
            }
            Step::Idle => {
                let before = self.world.store.lock().take_activity();
                if self.dying.is_empty() && self.blocks.iter().all(|b| b.txg < self.world.txg) {
                    self.sync(0, 0, Activity::Idle, false);
                    let after = self.world.store.lock().take_activity();
                    assert_eq!(after, Default::default(), "after {before:?}");
                }
            }
            Step::Export => {
                self.world.allocator.flush_for_export();
                self.sync(0, 0, Activity::Busy, false);
                assert!(self.world.store.lock().logs().len() <= 1);
                self.reopen();
            }
            Step::Crash => self.reopen(),
        }
    }
}

/// Unloads all possible metaslabs, even those in use.
fn unload_all(allocator: &Allocator) {
    for metaslab in allocator.topology().vdevs.values().flat_map(|vdev| &vdev.metaslabs) {
        metaslab.passivate(&mut metaslab.state.lock(), &allocator.context);
        metaslab.unload(&allocator.context);
    }
}

/// A substitute for an allocator that is lent out.
fn idle_allocator(store: &SharedStore) -> Allocator {
    Allocator::new(AllocatorOptions {
        tunables: SpaceTunables::default(),
        features: SpaceFeatures::NONE,
        devices: Arc::new(TestDevices::default()),
        reader: Arc::new(store.clone()),
    })
}

/// The blocks as segments of metaslabs.
fn segments(blocks: &[Block]) -> BTreeMap<(VdevId, u64), u64> {
    let mut dvas: Vec<Dva> = blocks.iter().flat_map(|block| &block.dvas).copied().collect();
    dvas.sort_by_key(|dva| (dva.vdev(), dva.offset()));
    let mut segments: BTreeMap<(VdevId, u64), u64> = BTreeMap::new();
    for dva in dvas {
        let (vdev, start) = (dva.vdev(), dva.offset());
        let end = start + dva.asize();
        match segments.last_entry() {
            Some(mut last)
                if last.key().0 == vdev && *last.get() == start && start % (1 << SHIFT) != 0 =>
            {
                *last.get_mut() = end;
            }
            _ => {
                segments.insert((vdev, start), end);
            }
        }
    }
    segments
}

proptest! {
    #[test]
    fn books_are_the_truth_at_every_txg(features in features(), steps in steps()) {
        let mut run = Run::new(features);
        for step in &steps {
            run.step(step);
        }
        run.sync(0, 0, Activity::Busy, false);
        run.reopen();
        run.sync(1, 1, Activity::Busy, true);
    }
}
