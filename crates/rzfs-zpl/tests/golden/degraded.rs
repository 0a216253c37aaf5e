//! Pools with missing or overwritten members: within the redundancy nothing is lost, beyond it
//! exactly the files with blocks on them.

use crate::{check, open_dataset};
use rzfs_blockdev::{BlockDevice, FileDevice, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions};
use rzfs_format::{BlockPointer, ObjectId};
use rzfs_proof::FileSystemTree;
use rzfs_testkit::{Damage, OverlayDevice, ReferencePool, differences};
use rzfs_vdev::BlockRead;
use rzfs_zpl::FileSystem;
use std::sync::Arc;

/// Size of the labels at the start of a device.
const LABELS: u64 = 512 << 10;
/// Maximum number of member sets of one size that are lost in turn.
const MOST_SETS: usize = 5;

/// A pool whose members can be damaged.
struct DamagedPool {
    reference: ReferencePool,
    members: Vec<Arc<OverlayDevice>>,
}

/// What happens to a member.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Removed,
    /// All of it is overwritten.
    Overwritten,
    /// All of it but the labels is overwritten.
    OverwrittenContents,
}

impl DamagedPool {
    fn golden(name: &str) -> Option<Self> {
        let reference = ReferencePool::golden(name)?;
        let open = |image| -> Arc<dyn BlockDevice> {
            Arc::new(FileDevice::open(image, &OpenOptions::new()).unwrap())
        };
        let images = reference.images().unwrap();
        let members = images.iter().map(|image| OverlayDevice::new(open(image))).collect();
        Some(Self { reference, members })
    }

    fn import(&self, without: &[usize]) -> Pool {
        let kept = self.members.iter().enumerate().filter(|(index, _)| !without.contains(index));
        let devices = kept.map(|(_, member)| Arc::clone(member) as Arc<dyn BlockDevice>);
        let sources: Vec<_> = devices.map(DeviceSource::Device).collect();
        let found = Discovery::search(&sources, &OpenOptions::new());
        let [discovered] = found.pools() else { panic!("{}", self.reference.name()) };
        let options = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
        Pool::import(discovered, &options)
            .unwrap_or_else(|failure| panic!("{}: {failure}", self.reference.name()))
    }

    /// Imports the pool with these members lost, and compares all files.
    fn check_without(&self, lost: &[usize], loss: Loss) {
        for (seed, member) in lost.iter().enumerate() {
            let (member, seed) = (&self.members[*member], seed as u64 + 1);
            let size = member.geometry().size;
            match loss {
                Loss::Removed => {}
                Loss::Overwritten => member.damage(0..size, Damage::Garbage { seed }),
                Loss::OverwrittenContents => {
                    member.damage(LABELS..size - LABELS, Damage::Garbage { seed });
                }
            }
        }
        let without = if matches!(loss, Loss::Removed) { lost } else { &[] };
        let pool = self.import(without);
        eprintln!("{} without {lost:?}, {loss:?}", self.reference.name());
        check(&pool, &self.reference.manifest().unwrap());
        self.members.iter().for_each(|member| member.heal());
    }
}

/// Sets of `count` of `members`, spread over all there are.
fn sets(members: &[usize], count: usize) -> Vec<Vec<usize>> {
    let all: Vec<Vec<usize>> = (0_u32..1 << members.len())
        .filter(|bits| bits.count_ones() as usize == count)
        .map(|bits| {
            let chosen = members.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            chosen.map(|(_, member)| *member).collect()
        })
        .collect();
    let step = all.len().div_ceil(MOST_SETS).max(1);
    all.into_iter().step_by(step).collect()
}

/// Loses every number of members up to `parity`.
fn check_losses(name: &str, members: &[usize], parity: usize) {
    let Some(pool) = DamagedPool::golden(name) else { return };
    let mut losses = [Loss::OverwrittenContents, Loss::Removed, Loss::Overwritten].iter().cycle();
    for count in 1..=parity {
        for set in sets(members, count) {
            pool.check_without(&set, *losses.next().unwrap());
        }
    }
}

#[test]
fn mirror_of_three_with_one_left() {
    check_losses("g04-mirror3", &[0, 1, 2], 2);
}

#[test]
fn raidz1_without_any_one() {
    check_losses("g05-raidz1", &[0, 1, 2], 1);
}

#[test]
fn raidz2_without_two() {
    check_losses("g06-raidz2", &[0, 1, 2, 3, 4], 2);
}

#[test]
fn raidz3_without_three() {
    check_losses("g07-raidz3", &[0, 1, 2, 3, 4, 5, 6], 3);
}

#[test]
fn draid2_without_two() {
    check_losses("g08-draid2", &[0, 1, 2, 3, 4, 5, 6, 7, 8], 2);
}

#[test]
fn mirrors_of_classes_with_one_half_each() {
    let Some(pool) = DamagedPool::golden("g13-classes") else { return };
    for (lost, loss) in [
        ([0, 2, 4], Loss::Removed),
        ([1, 3, 5], Loss::Overwritten),
        ([0, 3, 4], Loss::OverwrittenContents),
    ] {
        pool.check_without(&lost, loss);
    }
}

#[test]
fn expanded_raidz1_without_any_one() {
    check_losses("g16-expanded", &[0, 1, 2, 3], 1);
}

/// The pointers to the data blocks of a file, without holes, with their numbers.
fn data_blocks(file_system: &FileSystem, id: ObjectId) -> Vec<(u64, BlockPointer)> {
    let object = file_system.objset().object(id).unwrap();
    let end = object.dnode().max_block_id.0 + 1;
    let pointers = object.pointers(0, 0..end).into_iter().map(Result::unwrap);
    let stored = |(_, pointer): &(u64, BlockPointer)| pointer.dvas().next().is_some();
    (0..).zip(pointers).filter(stored).collect()
}

/// The ranges on all members of the first `copies` copies of a block.
fn places(
    members: &[Arc<OverlayDevice>],
    pool: &Pool,
    pointer: &BlockPointer,
    copies: usize,
) -> Vec<(usize, std::ops::Range<u64>)> {
    members.iter().for_each(|member| drop(member.take_reads()));
    let read = |dva| BlockRead {
        dva,
        size: pointer.physical_size(),
        birth: pointer.physical_birth(),
        verify: &|_: &[u8]| true,
    };
    drop(pool.vdevs().scrub(pointer.dvas().take(copies).map(read).collect()));
    let reads = members.iter().enumerate().flat_map(|(index, member)| {
        member.take_reads().into_iter().map(move |range| (index, range))
    });
    reads.collect()
}

/// A regular file with several unshared blocks in the pool's root file system.
fn victim(file_system: &FileSystem) -> (ObjectId, Vec<(u64, BlockPointer)>) {
    let ids = file_system.objset().objects().map(|entry| entry.unwrap().id);
    let mut best = None;
    for id in ids {
        let object = file_system.objset().object(id).unwrap();
        if object.object_type() != rzfs_format::object_type::ObjectType::PLAIN_FILE_CONTENTS {
            continue;
        }
        let blocks = data_blocks(file_system, id);
        let plain = blocks.iter().all(|(_, pointer)| !pointer.is_gang() && !pointer.is_dedup());
        if plain && (2..40).contains(&blocks.len()) {
            best = Some((id, blocks));
        }
    }
    best.expect("a file with several blocks")
}

/// Damages one file beyond redundancy: reading the damaged blocks fails with EIO, everything else
/// is unchanged.
fn check_beyond(name: &str, dataset: &str) {
    const EIO: i32 = 5;
    let Some(damaged) = DamagedPool::golden(name) else { return };
    let pool = damaged.import(&[]);
    let handle = pool.datasets().open(dataset).unwrap();
    let (id, blocks) = victim(&open_dataset(&pool, &handle));
    let (lost, kept): (Vec<_>, Vec<_>) = blocks.iter().partition(|(number, _)| number % 2 == 1);
    for (_, pointer) in &lost {
        for (member, range) in places(&damaged.members, &pool, pointer, usize::MAX) {
            damaged.members[member].damage(range, Damage::Garbage { seed: 9 });
        }
    }
    let pool = damaged.import(&[]);
    let handle = pool.datasets().open(dataset).unwrap();
    let file_system = open_dataset(&pool, &handle);
    let size = u64::from(file_system.objset().object(id).unwrap().block_size());
    for (number, _) in &lost {
        let error = file_system.read_segments(id, number * size, 512).unwrap_err();
        assert_eq!(error.errno(), EIO, "block {number}: {error}");
        let text = error.to_string();
        assert!(text.contains("checksum") || text.contains(&id.to_string()), "{text}");
    }
    for (number, _) in &kept {
        file_system.read_segments(id, number * size, 512).unwrap();
    }
    let manifest = damaged.reference.manifest().unwrap();
    let wrong = differences(manifest.get(dataset).unwrap(), &FileSystemTree(&file_system));
    let links = file_system.attributes(id).unwrap().links as usize;
    assert!((1..=links).contains(&wrong.len()), "only object {id} is lost: {wrong:?}");
}

#[test]
fn a_file_that_no_side_of_a_mirror_has_is_lost_alone() {
    check_beyond("g04-mirror3", "g04");
}

#[test]
fn a_file_with_more_columns_lost_than_parity_is_lost_alone() {
    check_beyond("g05-raidz1", "g05");
    check_beyond("g06-raidz2", "g06");
    check_beyond("g07-raidz3", "g07");
    check_beyond("g08-draid2", "g08");
}

#[test]
fn a_file_on_a_stripe_is_lost_alone() {
    check_beyond("g09-stripe", "g09");
}

#[test]
fn another_copy_stands_in_for_a_lost_one() {
    let Some(damaged) = DamagedPool::golden("g03-checksum") else { return };
    let pool = damaged.import(&[]);
    let mut spoiled = 0;
    for dataset in pool.datasets().root().unwrap().descendants().unwrap() {
        if dataset.text(DatasetProperty::Copies).unwrap() == "1" {
            continue;
        }
        let file_system = open_dataset(&pool, &dataset);
        for entry in file_system.objset().objects() {
            for (_, pointer) in data_blocks(&file_system, entry.unwrap().id) {
                for (member, range) in places(&damaged.members, &pool, &pointer, 1) {
                    damaged.members[member].damage(range, Damage::Garbage { seed: 3 });
                    spoiled += 1;
                }
            }
        }
    }
    assert!(spoiled > 10, "{spoiled} blocks with copies");
    check(&damaged.import(&[]), &damaged.reference.manifest().unwrap());
}
