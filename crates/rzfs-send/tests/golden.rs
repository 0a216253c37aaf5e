//! What we send of pools that OpenZFS made is what OpenZFS sends of them.
//!
//! The judge of full streams is `zdb -B`, which writes what `zfs send` does. Increments have to be
//! what a full stream has of what is younger.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions, LoadVerification};
use rzfs_format::BlockId;
use rzfs_format::stream::Record;
use rzfs_send::{Form, Send};
use rzfs_stream::{ReadOptions, StreamReader};
use rzfs_testkit::{ReferencePool, zdb_program};
use std::process::Command;

/// Many shapes of files, dnodes, names, versions; one whose logs were not replayed.
const POOLS: [&str; 12] = [
    "g01-default",
    "g02-compress",
    "g03-checksum",
    "g08-draid2",
    "g09-stripe",
    "g12-fdt-clone",
    "g14-names",
    "g15-removed",
    "g18-gang",
    "g20-nofeatures",
    "g21-v28",
    "g22-v8",
];

fn import(golden: &ReferencePool) -> Pool {
    let images = golden.images().unwrap();
    let sources: Vec<_> = images.into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let options = ImportOptions {
        host_check: HostCheck::Override,
        verification: LoadVerification::None,
        ..ImportOptions::default()
    };
    Pool::import(&found.pools()[0], &options).unwrap()
}

fn snapshots(pool: &Pool) -> Vec<Dataset> {
    let heads = pool.datasets().root().unwrap().descendants().unwrap();
    heads.iter().flat_map(|head| head.snapshots().unwrap()).collect()
}

fn form(letters: &str) -> Form {
    Form {
        large_blocks: letters.contains('L'),
        embedded: letters.contains('e'),
        compressed: letters.contains('c'),
    }
}

/// What zdb makes of a snapshot.
fn zdb_backup(golden: &ReferencePool, snapshot: &Dataset, letters: &str) -> Option<Vec<u8>> {
    let objset = format!("{}/{}", golden.pool_name(), snapshot.object().0);
    let mut zdb = Command::new(zdb_program()?);
    zdb.arg("-e").arg("-p").arg(golden.image_dir().unwrap()).args(["-B", &objset, letters]);
    let output = zdb.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", snapshot.name());
    Some(output.stdout)
}

/// OpenZFS sends a spill block that lies in its pointer as data at an impossible offset (spec 08,
/// section 7.2); of the rest only the checksum differs.
fn is_embedded_spill(ours: &Record, theirs: &Record) -> bool {
    let (Record::Spill(ours), Record::WriteEmbedded(theirs)) = (ours, theirs) else {
        return false;
    };
    let offset = BlockId::SPILL.0.wrapping_mul(theirs.length);
    (ours.object, offset) == (theirs.object, theirs.offset)
        && ours.length == u64::from(theirs.logical_size)
}

/// Where two streams begin to differ.
fn difference(ours: &[u8], theirs: &[u8]) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let reader = |stream| StreamReader::new(stream, ReadOptions::default());
    let (mut ours, mut theirs) = (reader(ours), reader(theirs));
    let (mut our_payload, mut their_payload) = (Vec::new(), Vec::new());
    let mut is_corrected = false;
    loop {
        let pair = (ours.next_record().unwrap(), theirs.next_record().unwrap());
        let (our_record, their_record) = match pair {
            (Some(ours), Some(theirs)) => (ours, theirs),
            (None, None) if is_corrected => return None,
            pair => return Some(format!("ours ends, or theirs: {pair:?}")),
        };
        ours.read_payload_to(&mut our_payload).unwrap();
        theirs.read_payload_to(&mut their_payload).unwrap();
        if is_embedded_spill(&our_record, &their_record) {
            is_corrected = true;
            continue;
        }
        if is_corrected && matches!((our_record, their_record), (Record::End(_), Record::End(_))) {
            continue;
        }
        if our_record != their_record || our_payload != their_payload {
            return Some(format!("ours {our_record:?}\nzdb's {their_record:?}"));
        }
    }
}

#[test]
fn full_streams_are_those_of_openzfs_byte_for_byte() {
    for name in POOLS {
        let Some(golden) = ReferencePool::golden(name) else { continue };
        let pool = import(&golden);
        for snapshot in snapshots(&pool).into_iter().take(6) {
            for letters in ["", "e", "c", "L", "eLc"] {
                let Some(theirs) = zdb_backup(&golden, &snapshot, letters) else { return };
                let mut ours = Vec::new();
                let send = Send::new(&snapshot, None, form(letters), pool.features()).unwrap();
                let sent = send.write_to(&mut ours).unwrap();
                assert_eq!(sent.bytes, ours.len() as u64);
                let difference = difference(&ours, &theirs);
                assert!(
                    difference.is_none(),
                    "{} -{letters}: {}",
                    snapshot.name(),
                    difference.unwrap()
                );
            }
        }
    }
}
