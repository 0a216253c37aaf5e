//! Streams made by OpenZFS are received into pools: complete, cut off, and changed by an attacker.
//! OpenZFS's zdb finds no errors in the pools afterwards.

mod broken;
mod golden;
mod hostile;
mod objects;
mod properties;
mod resumed;

use rzfs_dsl::dataset::DatasetTree;
use rzfs_dsl::live::{LivePool, LocalChanges};
use rzfs_format::ByteOrder;
use rzfs_format::stream::Record;
use rzfs_proof::FileSystemTree;
use rzfs_receive::{ReceiveError, ReceiveOrder, Received, Remains, Streams, Unsupported};
use rzfs_stream::{ReadOptions, StreamReader, StreamWriter};
use rzfs_testkit::{GoldenStream, differences};
use rzfs_zpl::FileSystem;
use std::io::Read;

const TARGET: &str = "made/got";

/// A golden stream by its name; `None` if golden streams are not available.
fn golden(name: &str) -> Option<GoldenStream> {
    GoldenStream::all().into_iter().find(|stream| stream.name() == name)
}

/// The order to receive into the target.
fn order(changes: LocalChanges, remains: Remains) -> ReceiveOrder {
    ReceiveOrder { changes, remains, ..ReceiveOrder::for_target(TARGET) }
}

fn receive_in_order(
    pool: &LivePool,
    stream: impl Read,
    order: &ReceiveOrder,
) -> Result<Received, ReceiveError> {
    let mut streams = Streams::open(stream)?;
    let mut received = Err(Unsupported::Raw.into());
    while let Some(incoming) = streams.next_stream()? {
        received = Ok(incoming.receive(pool, order)?);
    }
    received
}

fn receive_as(
    pool: &LivePool,
    stream: impl Read,
    changes: LocalChanges,
) -> Result<Received, ReceiveError> {
    receive_in_order(pool, stream, &order(changes, Remains::Destroyed))
}

fn receive(pool: &LivePool, stream: impl Read) -> Result<Received, ReceiveError> {
    receive_as(pool, stream, LocalChanges::Kept)
}

/// Every dataset and snapshot, including hidden ones, with values that show whether it has changed.
fn state(pool: &LivePool) -> Vec<String> {
    fn add(tree: &DatasetTree, name: &str, found: &mut Vec<String>) {
        let dataset = tree.open(name).unwrap();
        let record = dataset.dsl_dataset();
        found.push(format!("{name} {:x} {:?} {}", record.guid.0, record.root, record.flags));
        for snapshot in dataset.snapshots().unwrap() {
            let record = snapshot.dsl_dataset();
            found.push(format!("{} {:x} {:?}", snapshot.name(), record.guid.0, record.root));
        }
        if let Some(received) = dataset.received_into().unwrap() {
            found.push(received.name().to_owned());
        }
        for child in dataset.children().unwrap() {
            add(tree, child.name(), found);
        }
    }
    let mut found = Vec::new();
    add(&pool.dataset_tree().unwrap(), pool.name(), &mut found);
    found
}

/// Differences between a dataset or snapshot and a snapshot in the manifest of a stream.
fn wrong_files(pool: &LivePool, name: &str, stream: &GoldenStream, sent: &str) -> Vec<String> {
    let manifest = stream.manifest().unwrap();
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let fs = FileSystem::of_dataset(&dataset, 5000).unwrap();
    differences(manifest.get(sent).unwrap(), &FileSystemTree(&fs))
}

fn records(stream: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut reader = StreamReader::new(stream, ReadOptions::default());
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let mut payload = Vec::new();
        reader.read_payload_to(&mut payload).unwrap();
        records.push((record, payload));
    }
    records
}

/// A stream of these records with correct checksums.
fn stream(records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(&mut bytes, ByteOrder::NATIVE);
    for (record, payload) in records {
        match record {
            Record::End(end) => writer.end(end.to_guid).unwrap(),
            record => writer.write(record, payload).unwrap(),
        }
    }
    bytes
}
