//! The vdev layer against pools made by OpenZFS.
//!
//! `*.blocks` are blocks as zdb listed them: `vdev:offset:asize:psize birth checksum`, numbers but
//! the vdev and the txg in hex, the checksum fletcher4. Every one must be read from the images,
//! with all devices and with as many damaged ones as the redundancy allows.

mod create;
#[allow(dead_code, reason = "the other tests use more of it")]
mod images;
mod labels;

use images::{Health, ImagePool};
use rzfs_codec::checksum::{Salt, checksum};
use rzfs_codec::compress::decompress;
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::indirect::{MappingEntry, MappingHeader};
use rzfs_format::{ByteOrder, Dva, Guid, Txg, VdevId};
use rzfs_vdev::{BlockRead, IndirectMapping, VdevConfig, VdevKind, VdevTree};

/// A line of a list.
struct Listed {
    dva: Dva,
    size: u64,
    birth: Txg,
    checksum: ChecksumValue,
}

fn parse(list: &str) -> Vec<Listed> {
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split([':', ' ']).collect();
        let vdev = VdevId(fields[0].parse().unwrap());
        Listed {
            dva: Dva::new(vdev, hex(fields[1]), hex(fields[2]), false),
            size: hex(fields[3]),
            birth: Txg(fields[4].parse().unwrap()),
            checksum: ChecksumValue(std::array::from_fn(|word| hex(fields[5 + word]))),
        }
    };
    let blocks: Vec<Listed> = list.lines().map(line).collect();
    assert!(blocks.len() > 10);
    blocks
}

fn has_checksum(data: &[u8], expected: ChecksumValue) -> bool {
    let salt = Salt::new([0; 32]);
    let found = checksum(ChecksumFunction::Fletcher4, ByteOrder::Little, data, &salt);
    found == expected
}

#[track_caller]
fn assert_all_readable(tree: &VdevTree, blocks: &[Listed]) {
    let verifiers: Vec<_> =
        blocks.iter().map(|block| |data: &[u8]| has_checksum(data, block.checksum)).collect();
    let reads = blocks.iter().zip(&verifiers).map(|(block, verify)| BlockRead {
        dva: block.dva,
        size: block.size,
        birth: block.birth,
        verify,
    });
    for (block, result) in blocks.iter().zip(tree.read(reads.collect())) {
        match result {
            Ok(data) => assert!(has_checksum(&data, block.checksum)),
            Err(error) => panic!("{}: {error}", block.dva),
        }
    }
}

/// Reads all blocks of a pool whole, and with each of the combinations of damaged images.
fn check(name: &str, list: &str, combinations: &[&[(usize, Health)]]) {
    let Some(pool) = ImagePool::find(name) else { return };
    let blocks = parse(list);
    let tree = pool.open(&[]);
    assert_eq!(tree.health().to_string(), "ONLINE");
    for Listed { dva, size, birth, .. } in &blocks {
        assert!(tree.contains(*dva), "{dva}");
        assert_eq!(tree.allocated_size(dva.vdev(), *size, *birth), Some(dva.asize()), "{dva}");
    }
    assert_all_readable(&tree, &blocks);
    assert_nothing_is_wrong(&tree, &blocks);
    for damaged in combinations {
        let tree = pool.open(damaged);
        assert_all_readable(&tree, &blocks);
        for leaf in tree.leaves() {
            let garbage = damaged
                .iter()
                .any(|(image, kind)| *kind == Health::Garbage && pool.guid(*image) == leaf.guid());
            assert!(garbage || leaf.errors().checksum == 0, "{}", leaf.name());
        }
    }
}

/// Scrubs: all copies, parity and filler are as the vdev layer expects.
fn assert_nothing_is_wrong(tree: &VdevTree, blocks: &[Listed]) {
    for block in blocks {
        let Listed { dva, size, birth, checksum } = *block;
        let verify = |data: &[u8]| has_checksum(data, checksum);
        let scrubbed = tree.scrub(vec![BlockRead { dva, size, birth, verify: &verify }]).remove(0);
        assert!(scrubbed.data.is_ok());
        assert!(scrubbed.findings.is_empty(), "{dva}: {:?}", scrubbed.findings);
    }
}

const MISSING: Health = Health::Missing;
const GARBAGE: Health = Health::Garbage;

#[test]
fn stripe() {
    check("g09-stripe", include_str!("g09-stripe.blocks"), &[]);
}

#[test]
fn mirror() {
    let list = include_str!("g04-mirror3.blocks");
    check(
        "g04-mirror3",
        list,
        &[
            &[(0, GARBAGE), (1, GARBAGE)],
            &[(1, GARBAGE), (2, MISSING)],
            &[(2, GARBAGE), (0, GARBAGE)],
        ],
    );
}

#[test]
fn raidz1() {
    let list = include_str!("g05-raidz1.blocks");
    check("g05-raidz1", list, &[&[(0, GARBAGE)], &[(1, MISSING)], &[(2, GARBAGE)]]);
}

#[test]
fn raidz2() {
    let list = include_str!("g06-raidz2.blocks");
    check(
        "g06-raidz2",
        list,
        &[
            &[(0, GARBAGE), (1, GARBAGE)],
            &[(2, MISSING), (4, GARBAGE)],
            &[(3, MISSING), (1, MISSING)],
        ],
    );
}

#[test]
fn raidz3() {
    let list = include_str!("g07-raidz3.blocks");
    check(
        "g07-raidz3",
        list,
        &[
            &[(0, GARBAGE), (3, GARBAGE), (6, GARBAGE)],
            &[(1, MISSING), (2, GARBAGE), (5, MISSING)],
            &[(4, MISSING), (5, MISSING), (6, MISSING)],
        ],
    );
}

#[test]
fn draid2() {
    let list = include_str!("g08-draid2.blocks");
    check(
        "g08-draid2",
        list,
        &[
            &[(3, GARBAGE), (7, GARBAGE)],
            &[(0, MISSING), (5, GARBAGE)],
            &[(6, MISSING), (2, MISSING)],
        ],
    );
}

#[test]
fn expanded_raidz() {
    let list = include_str!("g16-expanded.blocks");
    check("g16-expanded", list, &[&[(0, GARBAGE)], &[(2, MISSING)], &[(3, GARBAGE)]]);
}

#[test]
fn removed_vdev() {
    let Some(pool) = ImagePool::find("g15-removed") else { return };
    let mut removed = VdevConfig::new(VdevKind::Indirect, Guid(2_755_956_363_743_706_225));
    removed.top.ashift = Some(12);
    removed.top.asize = Some(263_716_864);
    let tree = pool.open_with(vec![removed], &[]);
    let blocks = parse(include_str!("g15-removed.blocks"));
    let (before, after): (Vec<_>, Vec<_>) =
        blocks.into_iter().partition(|block| block.dva.vdev() == VdevId(0));
    assert!(before.len() > 5);
    assert_all_readable(&tree, &after);

    // The bonus of the mapping object, and its only block.
    let header =
        MappingHeader { max_offset: 0x224_4000, bytes_mapped: 0xfd_e000, entries: 9, counts: None };
    let dva = Dva::new(VdevId(1), 0x470_8000, 0x1000, false);
    let stored = tree.read_unverified(dva, 0x1000, Txg(36)).unwrap();
    let mut entries = vec![0; 0x2_0000];
    decompress(CompressionFunction::Lz4, &stored, &mut entries).unwrap();
    let entries: Vec<MappingEntry> = entries
        .chunks_exact(MappingEntry::SIZE)
        .take(header.entries as usize)
        .map(|bytes| MappingEntry::decode(bytes, ByteOrder::Little).unwrap())
        .collect();
    assert_eq!(entries.iter().map(MappingEntry::length).sum::<u64>(), header.bytes_mapped);
    let mapping = IndirectMapping::new(entries, Vec::new()).unwrap();
    tree.set_mapping(VdevId(0), mapping).unwrap();
    assert_all_readable(&tree, &before);
}
