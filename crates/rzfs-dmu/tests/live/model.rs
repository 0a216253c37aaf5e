//! The naive model: objects as byte vectors.

use crate::world::World;
use proptest::prelude::*;
use rzfs_dmu::live::{Extent, NewObject};
use rzfs_dmu::{DmuError, Traversal, Visit, Visitor};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Maximum size of objects in bytes.
const MOST: u64 = 300_000;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create { block_shift: u8, indirect_shift: u8, slots: u8, bonus: u8 },
    Destroy { object: usize },
    Write { object: usize, offset: u64, len: usize, fill: Fill },
    Free { object: usize, offset: u64, len: Option<u64> },
    Bonus { object: usize, len: u8 },
    Spill { object: usize, len: Option<u16> },
    BlockSize { object: usize, sectors: u8 },
    Sync,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    Zeros,
    Text,
    Noise(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let object = 0_usize..8;
    let fill = prop_oneof![Just(Fill::Zeros), Just(Fill::Text), any::<u32>().prop_map(Fill::Noise)];
    prop_oneof![
        3 => (9_u8..13, 10_u8..13, 1_u8..4, 0_u8..100).prop_map(
            |(block_shift, indirect_shift, slots, bonus)| Step::Create {
                block_shift, indirect_shift, slots, bonus
            }
        ),
        1 => object.clone().prop_map(|object| Step::Destroy { object }),
        12 => (object.clone(), 0..MOST, 1_usize..20_000, fill).prop_map(
            |(object, offset, len, fill)| Step::Write { object, offset, len, fill }
        ),
        5 => (object.clone(), 0..MOST, prop::option::of(1..MOST)).prop_map(
            |(object, offset, len)| Step::Free { object, offset, len }
        ),
        2 => (object.clone(), 0_u8..100).prop_map(|(object, len)| Step::Bonus { object, len }),
        2 => (object.clone(), prop::option::of(1_u16..3000)).prop_map(
            |(object, len)| Step::Spill { object, len }
        ),
        1 => (object, 1_u8..20).prop_map(|(object, sectors)| Step::BlockSize { object, sectors }),
        6 => Just(Step::Sync),
    ]
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

fn bytes(fill: Fill, len: usize) -> Vec<u8> {
    match fill {
        Fill::Zeros => vec![0; len],
        Fill::Text => b"the quick brown fox ".iter().copied().cycle().take(len).collect(),
        Fill::Noise(seed) => {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..len).map(|_| next()).collect()
        }
    }
}

#[derive(Debug, Default)]
struct ModelObject {
    contents: Vec<u8>,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    objects: BTreeMap<ObjectId, ModelObject>,
}

impl Model {
    fn nth(&self, index: usize) -> Option<ObjectId> {
        self.objects.keys().nth(index % self.objects.len().max(1)).copied()
    }

    pub(crate) fn perform(&mut self, world: &mut World, step: &Step) {
        match step {
            Step::Create { block_shift, indirect_shift, slots, bonus } => {
                let bonus = vec![0xb0; usize::from(*bonus)];
                let tx = world.engine.begin(&[]).unwrap();
                let new = NewObject {
                    object_type: ObjectType::PLAIN_FILE_CONTENTS,
                    data_block_size: 1 << block_shift,
                    indirect_shift: *indirect_shift,
                    bonus_type: ObjectType::SA,
                    bonus: &bonus,
                    slots: *slots,
                };
                let object = world.objset.allocate(&tx, new).unwrap();
                let new = ModelObject { bonus, ..ModelObject::default() };
                assert!(self.objects.insert(object.id(), new).is_none());
            }
            Step::Sync => {
                world.sync(1, |_, _| {});
                self.check_on_disk(world);
            }
            Step::Destroy { object }
            | Step::Write { object, .. }
            | Step::Free { object, .. }
            | Step::Bonus { object, .. }
            | Step::Spill { object, .. }
            | Step::BlockSize { object, .. } => {
                if let Some(id) = self.nth(*object) {
                    self.change(world, id, step);
                }
            }
        }
    }

    fn change(&mut self, world: &World, id: ObjectId, step: &Step) {
        let object = world.objset.object(id).unwrap();
        let tx = world.engine.begin(&[&object]).unwrap();
        let model = self.objects.get_mut(&id).unwrap();
        match step {
            Step::Write { offset, len, fill, .. } => {
                let data = bytes(*fill, *len);
                object.write(&tx, *offset, &data).unwrap();
                let start = *offset as usize;
                model.contents.resize(model.contents.len().max(start + len), 0);
                model.contents[start..start + len].copy_from_slice(&data);
            }
            Step::Free { offset, len, .. } => {
                object.free(&tx, *offset, len.map_or(Extent::ToEnd, Extent::Bytes)).unwrap();
                let have = model.contents.len();
                let start = (*offset as usize).min(have);
                let end = len.map_or(have, |len| start.saturating_add(len as usize).min(have));
                model.contents[start..end].fill(0);
            }
            Step::Bonus { len, .. } => {
                model.bonus = vec![*len; usize::from(*len)];
                object.set_bonus(&tx, ObjectType::SA, &model.bonus).unwrap();
            }
            Step::Spill { len: Some(len), .. } => {
                let data = bytes(Fill::Noise(u32::from(*len)), usize::from(*len));
                object.set_spill(&tx, &data).unwrap();
                model.spill = Some(data);
            }
            Step::Spill { len: None, .. } => {
                object.remove_spill(&tx).unwrap();
                model.spill = None;
            }
            Step::BlockSize { sectors, .. } => {
                let size = u32::from(*sectors) * 512;
                let result = object.set_data_block_size(&tx, size);
                match result {
                    // What was beyond the only block is gone.
                    Ok(()) => model.contents.truncate(size as usize),
                    Err(error) => assert!(matches!(error, DmuError::SeveralBlocks { .. })),
                }
                // Only objects with a power-of-two block size can have several blocks.
                if object.max_block_id().unwrap().0 == 0 && !size.is_power_of_two() {
                    let size = size.next_power_of_two();
                    object.set_data_block_size(&tx, size).unwrap();
                }
            }
            Step::Destroy { .. } => {
                object.destroy(&tx).unwrap();
                self.objects.remove(&id);
                return;
            }
            Step::Create { .. } | Step::Sync => {}
        }
        drop(tx);
        let model = &self.objects[&id];
        let mut contents = vec![0xff; model.contents.len()];
        object.read_at(0, &mut contents).unwrap();
        assert!(contents == model.contents, "object {id} after {step:?}");
    }

    fn check_on_disk(&self, world: &World) {
        if world.objset.synced().root().is_hole() {
            assert!(self.objects.is_empty());
            return;
        }
        let objset = world.reopened();
        let ids: Vec<ObjectId> = objset.objects().map(|entry| entry.unwrap().id).collect();
        assert!(ids.iter().eq(self.objects.keys()), "{ids:?} are on disk");
        for (id, model) in &self.objects {
            let object = objset.object(*id).unwrap();
            let contents = object.read_bytes(0, model.contents.len()).unwrap();
            assert!(contents == model.contents, "object {id} on disk");
            assert_eq!(object.bonus(), model.bonus);
            let spill = object.spill().unwrap().map(|block| block.data);
            assert_eq!(spill.is_some(), model.spill.is_some());
            if let (Some(spill), Some(model)) = (spill, &model.spill) {
                assert!(spill.starts_with(model));
            }
        }
    }

    /// Checks the structure of the set on disk, as `zdb` would, and the contents.
    pub(crate) fn check_everything(&self, world: &mut World) {
        self.check_on_disk(world);
        check_structure(world);
    }
}

/// Checks the structure of the set on disk, as `zdb` would.
pub(crate) fn check_structure(world: &World) {
    let root = *world.objset.synced().root();
    let mut seen = Seen::default();
    Traversal::parents_first(&world.pipeline, world.objset.id()).run(&root, &mut seen);
    assert!(seen.damage.is_empty(), "{:?}", seen.damage);
    assert_eq!(world.accounts.lost, 0);
    let live: Vec<_> = world.accounts.live.values().copied().collect();
    let mut found = seen.pointers;
    found.sort_by_key(|pointer| pointer.dvas().next().unwrap().0);
    assert_eq!(found, live, "what is reachable and what the accounts say");
    for (object, (used, dnode_used)) in seen.used {
        assert_eq!(used, dnode_used, "space of object {object}");
    }
    for (object, (shown, blocks)) in seen.shown {
        assert_eq!(shown, blocks, "blocks and holes of object {object}");
    }
}

#[derive(Default)]
struct Seen {
    pointers: Vec<BlockPointer>,
    /// By object: the sum over its pointers, and its dnode's value.
    used: BTreeMap<ObjectId, (u64, u64)>,
    /// By object: blocks shown, holes included, and how many it has.
    shown: BTreeMap<ObjectId, (u64, u64)>,
    damage: Vec<DmuError>,
}

impl Seen {
    /// Checks a data block, or a hole of several blocks: all must come in order.
    fn show(&mut self, visit: &Visit<'_>) {
        let Some(dnode) = visit.dnode else { return };
        let level = u32::from(visit.bookmark.level.0.unsigned_abs());
        let [first, after] =
            [0, 1].map(|next| (visit.bookmark.block.0 + next) << (level * dnode.pointers_shift()));
        let blocks = dnode.max_block_id.0 + 1;
        let (shown, _) = self.shown.entry(visit.bookmark.object).or_insert((0, blocks));
        assert_eq!(*shown, first, "{}", visit.bookmark);
        *shown = after.min(blocks);
    }
}

impl Visitor for Seen {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        if visit.pointer.dvas().next().is_some() {
            self.pointers.push(*visit.pointer);
        }
        if let Some(dnode) = visit.dnode {
            let used = self.used.entry(visit.bookmark.object).or_default();
            used.0 += visit.pointer.allocated_size();
            used.1 = dnode.used;
        }
        if visit.bookmark.level == Level::DATA && visit.bookmark.block != BlockId::SPILL {
            self.show(visit);
        }
        ControlFlow::Continue(())
    }

    fn hole(&mut self, hole: &Visit<'_>) -> ControlFlow<()> {
        self.show(hole);
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        self.damage.push(error);
        ControlFlow::Continue(())
    }
}
