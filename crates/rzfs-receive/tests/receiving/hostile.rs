//! Streams with correct checksums and wrong records.

use crate::{golden, receive, receive_as, records, state, stream};
use rzfs_dsl::live::{Destruction, LocalChanges};
use rzfs_format::ByteOrder;
use rzfs_format::stream::{RECORD_SIZE, Record};
use rzfs_proof::ImagePool;

/// Reproducible numbers from a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// The record with a few bytes changed at random; `None` if the result is not a record.
fn wild(record: &Record, numbers: &mut Numbers) -> Option<Record> {
    let mut bytes = record.encode(ByteOrder::NATIVE);
    for _ in 0..=numbers.next(3) {
        let at = 8 + numbers.next(96);
        bytes[at] = match numbers.next(4) {
            0 => 0,
            1 => 0xff,
            2 => bytes[at].wrapping_add(1),
            _ => numbers.next(256) as u8,
        };
    }
    let bytes: &[u8; RECORD_SIZE] = &bytes;
    Record::decode(bytes, ByteOrder::NATIVE).ok()
}

/// A stream with one or more randomly changed records and payloads.
fn spoil(sent: &[(Record, Vec<u8>)], numbers: &mut Numbers) -> Vec<u8> {
    let mut spoiled = sent.to_vec();
    for _ in 0..=numbers.next(3) {
        let at = 1 + numbers.next(spoiled.len() - 2);
        match numbers.next(5) {
            0 => {
                spoiled.remove(at);
            }
            1 => {
                let again = spoiled[1 + numbers.next(spoiled.len() - 2)].clone();
                spoiled.insert(at, again);
            }
            2 if !spoiled[at].1.is_empty() => {
                let byte = numbers.next(spoiled[at].1.len());
                spoiled[at].1[byte] ^= 1 << numbers.next(8);
            }
            _ => {
                let Some(record) = wild(&spoiled[at].0, numbers) else { continue };
                let length = record.payload_length();
                if length <= 2 << 20 && length % 4 == 0 {
                    spoiled[at].1.resize(length as usize, 0x5a);
                    spoiled[at].0 = record;
                }
            }
        }
    }
    stream(&spoiled)
}

#[test]
fn wild_records_with_right_checksums_harm_nothing() {
    let (Some(full), Some(increment)) = (golden("full-Lec"), golden("incr")) else { return };
    let rounds = 60;
    let (full, increment) = (full.bytes().unwrap(), increment.bytes().unwrap());
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut received, mut refused) = (0, 0);
    let empty = state(&pool);
    let sent = records(&full);
    for round in 0..rounds {
        let spoiled = spoil(&sent, &mut numbers);
        match receive(&pool, spoiled.as_slice()) {
            Ok(_) => {
                received += 1;
                let snapshots = pool.dataset_tree().unwrap().open("made/got").unwrap();
                let names = snapshots.snapshots().unwrap();
                let names: Vec<_> = names.iter().map(|one| one.name().to_owned()).collect();
                pool.destroy_snapshots(&names, Destruction::AtOnce).unwrap();
                pool.destroy_dataset("made/got").unwrap();
            }
            Err(_) => refused += 1,
        }
        assert_eq!(state(&pool), empty, "round {round}");
    }
    receive(&pool, golden("full").unwrap().bytes().unwrap().as_slice()).unwrap();
    let sent = records(&increment);
    for round in 0..rounds {
        let spoiled = spoil(&sent, &mut numbers);
        let before = state(&pool);
        match receive_as(&pool, spoiled.as_slice(), LocalChanges::GivenUp) {
            Ok(done) => {
                received += 1;
                pool.destroy_snapshots(&[done.snapshot], Destruction::AtOnce).unwrap();
            }
            Err(_) => {
                refused += 1;
                assert_eq!(state(&pool), before, "round {round}");
            }
        }
    }
    assert!(received > 5 && refused > 5, "{received} received, {refused} refused");
    pool.export().unwrap();
    world.judge_chains();
}
