//! Byte for byte, what OpenZFS makes of the same changes.
//!
//! `tests/openzfs/oracle.c` makes the changes of a script with OpenZFS's own library, in a pool in
//! a file, and writes down the blocks of the ZAP. What came out with OpenZFS 2.3.2 is recorded
//! below: the salt that it chose, and the checksum of the blocks. With `RZFS_ZAP_ORACLE` set to
//! the compiled program, the scripts are run again, all blocks are compared, and what is to be
//! recorded is printed:
//!
//! ```text
//! cc -o oracle oracle.c -l:libzpool.so.6 -l:libnvpair.so.3
//! ```

mod script;

use std::process::Command;

use rzfs_codec::checksum::{Salt, checksum};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_zap::{MemoryBlocks, Zap, ZapBlocks, ZapError, verify};
use script::{Change, Script, Shape};

/// What OpenZFS made of a script.
struct Recorded {
    salt: u64,
    block_size: usize,
    blocks: u64,
    sha256: u64,
}

/// Makes the changes and returns the blocks with the errno of each change.
fn replay(script: &Script, salt: u64) -> (MemoryBlocks, Vec<i32>) {
    let mut zap = Zap::create(MemoryBlocks::empty(), &script.new_zap(salt)).unwrap();
    let mut results = Vec::new();
    for change in script.changes() {
        let mut writer = zap.edit();
        let result = match change {
            Change::Insert(key, value) => writer.insert(&key, value).map(|()| true),
            Change::Update(key, value) => writer.update(&key, value).map(|()| true),
            Change::Remove(key) => writer.remove(&key),
            Change::Add(key, delta) => writer.add_u64(&key, delta).map(|_| true),
        };
        results.push(match result {
            Ok(true) => 0,
            Ok(false) => 2,
            Err(error) => ZapError::errno(&error, |_| 5),
        });
    }
    (zap.into_blocks(), results)
}

fn digest(blocks: &MemoryBlocks) -> u64 {
    let all = blocks.blocks().concat();
    let sha256 = checksum(ChecksumFunction::Sha256, ByteOrder::Big, &all, &Salt::new([0; 32]));
    sha256.0[0]
}

/// Runs the script with OpenZFS's library: its blocks, their size, and its results.
fn ask(oracle: &str, script: &Script) -> (Vec<u8>, usize, Vec<i32>) {
    let directory = tempfile::tempdir().unwrap();
    let place = |name| directory.path().join(name);
    let lines = script.changes().iter().map(|change| format!("{change}\n")).collect::<String>();
    std::fs::write(place("script"), format!("{}\n{lines}", script.creation())).unwrap();
    let paths = ["script", "blocks", "image"].map(place);
    let output = Command::new(oracle).args(&paths).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let results = text.lines().map(|line| line[2..].parse().unwrap()).collect();
    let dump = std::fs::read(&paths[1]).unwrap();
    let (size, blocks) = dump.split_first_chunk::<4>().unwrap();
    (blocks.to_vec(), u32::from_ne_bytes(*size) as usize, results)
}

/// Compares with what the library makes now, and prints what is to be recorded.
fn compare(oracle: &str, script: &Script) {
    let (theirs, size, their_results) = ask(oracle, script);
    let word = |offset: usize| u64::from_ne_bytes(*theirs[offset..].first_chunk().unwrap());
    let salt = if word(0) == (1 << 63) + 3 { word(8) } else { word(80) };
    let (ours, our_results) = replay(script, salt);
    assert_eq!((ours.block_size(), our_results), (size, their_results));
    let mut rest = theirs.chunks(size);
    for (id, (ours, theirs)) in ours.blocks().iter().zip(rest.by_ref()).enumerate() {
        assert!(ours == theirs, "block {id} differs");
    }
    // The library counts blocks that were freed at the end until the object is opened anew.
    assert!(rest.flatten().all(|&byte| byte == 0));
    println!(
        "Recorded {{ salt: {salt:#x}, block_size: {size}, blocks: {}, sha256: {:#x} }}",
        ours.blocks().len(),
        digest(&ours)
    );
}

fn check(script: &Script, recorded: &Recorded) {
    if let Ok(oracle) = std::env::var("RZFS_ZAP_ORACLE") {
        return compare(&oracle, script);
    }
    let (blocks, _) = replay(script, recorded.salt);
    assert_eq!(verify(&blocks).unwrap(), []);
    assert_eq!(
        (blocks.block_size(), blocks.block_count().unwrap(), digest(&blocks)),
        (recorded.block_size, recorded.blocks, recorded.sha256)
    );
}

/// Two of four blocks of the pointer table are copied to the next when the script ends.
#[test]
fn a_table_that_is_half_copied() {
    check(
        &Script { shape: Shape::Hashes, seed: 12, grow: 77_660, shrink: 0, empty: false },
        &Recorded { salt: 0x2053, block_size: 4096, blocks: 1181, sha256: 0x59d2_4987_c4e4_a7fc },
    );
}

#[test]
fn tables_that_grew_in_steps() {
    check(
        &Script { shape: Shape::Hashes, seed: 12, grow: 78_000, shrink: 9000, empty: false },
        &Recorded { salt: 0x2_9513, block_size: 4096, blocks: 1195, sha256: 0xd4c7_5594_5f00_fb4e },
    );
}

#[test]
fn a_microzap_that_grows_and_shrinks() {
    check(
        &Script { shape: Shape::Numbers(0), seed: 1, grow: 1500, shrink: 900, empty: false },
        &Recorded { salt: 0x2573, block_size: 48640, blocks: 1, sha256: 0x7ccd_1206_4128_43e2 },
    );
}

#[test]
fn a_microzap_that_folds_case() {
    check(
        &Script { shape: Shape::Numbers(0x02), seed: 2, grow: 1500, shrink: 300, empty: false },
        &Recorded { salt: 0x2_7f43, block_size: 48128, blocks: 1, sha256: 0xbbbe_4ef7_288e_9f53 },
    );
}

#[test]
fn a_microzap_that_becomes_fat() {
    check(
        &Script { shape: Shape::Numbers(0), seed: 3, grow: 9000, shrink: 0, empty: false },
        &Recorded { salt: 0x75_7193, block_size: 16384, blocks: 33, sha256: 0xc814_c865_48a2_d924 },
    );
}

#[test]
fn a_normalising_directory_that_becomes_fat() {
    check(
        &Script { shape: Shape::Numbers(0x12), seed: 4, grow: 9000, shrink: 4000, empty: false },
        &Recorded { salt: 0x53c3, block_size: 16384, blocks: 33, sha256: 0x5ef3_1801_4766_22d4 },
    );
}

#[test]
fn a_directory_that_is_emptied() {
    check(
        &Script { shape: Shape::Numbers(0), seed: 5, grow: 9000, shrink: 0, empty: true },
        &Recorded { salt: 0x3c_4603, block_size: 16384, blocks: 2, sha256: 0x43e9_e7de_8b8c_c913 },
    );
}

#[test]
fn names_and_values_of_every_kind() {
    check(
        &Script { shape: Shape::Names, seed: 6, grow: 4000, shrink: 2000, empty: false },
        &Recorded { salt: 0x1_a113, block_size: 16384, blocks: 53, sha256: 0x2648_cac5_b721_ccec },
    );
}

#[test]
fn names_and_values_that_all_go() {
    check(
        &Script { shape: Shape::Names, seed: 7, grow: 4000, shrink: 0, empty: true },
        &Recorded { salt: 0x5_22c3, block_size: 16384, blocks: 2, sha256: 0xc8db_c49c_3de3_ffab },
    );
}

#[test]
fn words_whose_table_is_external() {
    check(
        &Script { shape: Shape::Words(3), seed: 8, grow: 12000, shrink: 0, empty: false },
        &Recorded { salt: 0x4_7503, block_size: 4096, blocks: 2977, sha256: 0x59c8_c496_dc79_85c5 },
    );
}

#[test]
fn words_that_come_and_go() {
    check(
        &Script { shape: Shape::Words(3), seed: 9, grow: 6000, shrink: 5000, empty: false },
        &Recorded { salt: 0xc_b593, block_size: 4096, blocks: 765, sha256: 0x9b30_6343_e927_b655 },
    );
}

#[test]
fn words_that_are_their_own_hashes() {
    check(
        &Script { shape: Shape::Words(7), seed: 10, grow: 12000, shrink: 0, empty: false },
        &Recorded { salt: 0x9_3e53, block_size: 4096, blocks: 1426, sha256: 0x5b64_38b5_8cf2_0bcf },
    );
}

#[test]
fn words_that_all_go() {
    check(
        &Script { shape: Shape::Words(7), seed: 11, grow: 9000, shrink: 0, empty: true },
        &Recorded { salt: 0x4_46d3, block_size: 4096, blocks: 1621, sha256: 0x9fe_507b_7910_47c0 },
    );
}
