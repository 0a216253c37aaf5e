//! Exactly what was sent is there.

use crate::{TARGET, golden, receive, receive_as, wrong_files};
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::live::{ChangeError, LivePool, LocalChanges, NewSnapshots, ReceiveProblem};
use rzfs_format::Guid;
use rzfs_proof::ImagePool;
use rzfs_receive::{ReceiveError, Streams, Unsupported};
use rzfs_zpl::live::{Caller, LiveFileSystem, LiveOptions, NewFile, NewKind, WriteAt};
use rzfs_zpl::{FileSystem, FileSystemOptions};
use std::sync::Arc;

const ESTALE: i32 = 116;

fn open(pool: &LivePool) -> Arc<LiveFileSystem> {
    let dataset = pool.dataset_tree().unwrap().open(TARGET).unwrap();
    let live = pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(pool, &live, options).unwrap()
}

fn change(pool: &LivePool) {
    let fs = open(pool);
    let caller = Caller::SUPERUSER;
    let new = NewFile { kind: NewKind::Regular, permissions: 0o644, umask: 0, caller };
    let file = fs.create(fs.root(), b"local change", &new).unwrap().object;
    fs.write(file, WriteAt::Offset(0), &[7; 300_000], caller).unwrap();
    pool.sync().unwrap();
}

fn snapshot(pool: &LivePool, name: &str) {
    let names = vec![format!("{TARGET}@{name}")];
    pool.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() }).unwrap();
}

#[test]
fn full_streams_give_the_files_that_were_sent() {
    for name in ["full", "full-c", "full-Lec", "props", "enc"] {
        let Some(stream) = golden(name) else { return };
        let world = ImagePool::new("A");
        let pool = world.create_pool();
        let bytes = stream.bytes().unwrap();
        let received = receive(&pool, bytes.as_slice()).unwrap();
        assert_eq!(received.snapshot, format!("{TARGET}@1"));
        if name != "props" {
            assert_eq!(received.bytes, bytes.len() as u64 - 312, "{name}");
        }
        if name != "enc" {
            for place in [TARGET, "made/got@1"] {
                let wrong = wrong_files(&pool, place, &stream, "g30/a@1");
                assert_eq!(wrong, Vec::<String>::new(), "{name}: {place}");
            }
            let tree = pool.dataset_tree().unwrap();
            let record = tree.open("made/got@1").unwrap().dsl_dataset().clone();
            assert_eq!(record.guid, Guid(0x3882_7b92_37a2_a103));
            let mut streams = Streams::open(bytes.as_slice()).unwrap();
            assert_eq!(streams.top(), (name == "props").then_some("g30/a"));
            let sent = streams.next_stream().unwrap().unwrap().begin().creation_time;
            assert_eq!(record.creation_time, sent);
        }
        // It can be used like any other file system.
        change(&pool);
        pool.export().unwrap();
        world.judge_chains();
    }
}

#[test]
fn increments_go_on_from_what_is_there_while_it_is_in_use() {
    for (name, changes, last) in [
        ("incr", LocalChanges::Kept, 2),
        ("frombook", LocalChanges::GivenUp, 2),
        ("incr-I", LocalChanges::Kept, 3),
    ] {
        let (Some(full), Some(increment)) = (golden("full"), golden(name)) else { return };
        let world = ImagePool::new("A");
        let pool = world.create_pool();
        receive(&pool, full.bytes().unwrap().as_slice()).unwrap();
        let mounted = open(&pool);
        let root = mounted.root();
        mounted.attributes(root).unwrap();
        receive_as(&pool, increment.bytes().unwrap().as_slice(), changes).unwrap();
        assert_eq!(mounted.attributes(root).unwrap_err().errno(), ESTALE);
        drop(mounted);
        open(&pool).attributes(root).unwrap();
        let snapshots = (1..=last).map(|number| (format!("{TARGET}@{number}"), number));
        for (place, number) in snapshots.chain([(TARGET.to_owned(), last)]) {
            let wrong = wrong_files(&pool, &place, &increment, &format!("g30/a@{number}"));
            assert_eq!(wrong, Vec::<String>::new(), "{name}: {place}");
        }
        assert!(
            pool.dataset_tree().unwrap().open(TARGET).unwrap().received_into().unwrap().is_none()
        );
        pool.export().unwrap();
        world.judge_chains();
        let pool = world.open_pool();
        change(&pool);
        pool.export().unwrap();
        world.judge_chains();
    }
}

#[test]
fn local_changes_are_kept_unless_they_are_to_be_given_up() {
    let (Some(full), Some(increment)) = (golden("full"), golden("incr")) else { return };
    let increment_bytes = increment.bytes().unwrap();
    let modified = |error: ReceiveError| {
        let ReceiveError::Change(ChangeError::Receive(problem)) = error else { panic!("{error}") };
        assert!(matches!(problem, ReceiveProblem::Modified { .. }), "{problem}");
    };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    receive(&pool, full.bytes().unwrap().as_slice()).unwrap();
    change(&pool);
    modified(receive(&pool, increment_bytes.as_slice()).unwrap_err());
    snapshot(&pool, "local");
    modified(receive(&pool, increment_bytes.as_slice()).unwrap_err());
    change_more(&pool);
    receive_as(&pool, increment_bytes.as_slice(), LocalChanges::GivenUp).unwrap();
    let snapshots = pool.dataset_tree().unwrap().open(TARGET).unwrap().snapshots().unwrap();
    let names: Vec<_> = snapshots.iter().map(|snapshot| snapshot.name().to_owned()).collect();
    assert_eq!(names, ["made/got@1", "made/got@2"]);
    assert_eq!(wrong_files(&pool, TARGET, &increment, "g30/a@2"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

fn change_more(pool: &LivePool) {
    let fs = open(pool);
    fs.unlink(fs.root(), b"text1m").unwrap();
    fs.unlink(fs.root(), b"local change").unwrap();
    pool.sync().unwrap();
}

#[test]
fn a_full_stream_takes_the_place_of_what_has_no_history_if_it_is_to() {
    let Some(full) = golden("full-c") else { return };
    let bytes = full.bytes().unwrap();
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    receive(&pool, bytes.as_slice()).unwrap();
    let errno = |changes| receive_as(&pool, bytes.as_slice(), changes).unwrap_err().errno();
    assert_eq!((errno(LocalChanges::Kept), errno(LocalChanges::GivenUp)), (17, 17));
    pool.destroy_snapshots(&["made/got@1".to_owned()], rzfs_dsl::live::Destruction::AtOnce)
        .unwrap();
    change(&pool);
    assert_eq!(errno(LocalChanges::Kept), 17);
    receive_as(&pool, bytes.as_slice(), LocalChanges::GivenUp).unwrap();
    assert_eq!(wrong_files(&pool, TARGET, &full, "g30/a@1"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn increments_of_something_else_are_refused() {
    let (Some(increment), Some(other)) = (golden("incr"), golden("enc")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let increment = increment.bytes().unwrap();
    assert_eq!(receive(&pool, increment.as_slice()).unwrap_err().errno(), 2);
    receive(&pool, other.bytes().unwrap().as_slice()).unwrap();
    let error = receive(&pool, increment.as_slice()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "most recent snapshot of made/got does not\nmatch incremental source"
    );
    assert_eq!(error.errno(), 19);
    pool.export().unwrap();
}

#[test]
fn kinds_of_streams_that_are_not_received_are_refused_at_once() {
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let Some(stream) = golden("enc-raw") else { return };
    let error = receive(&pool, stream.bytes().unwrap().as_slice()).unwrap_err();
    assert!(matches!(error, ReceiveError::Unsupported(Unsupported::Raw)), "{error}");
    assert!(pool.dataset_tree().unwrap().open(TARGET).is_err());
}

/// While a stream is being received, its data can be neither seen nor used.
#[test]
fn nobody_uses_what_has_not_come_to_its_end() {
    struct Looking<'a>(&'a [u8], &'a LivePool, bool);
    impl std::io::Read for Looking<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.len() < 1 << 20 && !self.2 {
                self.2 = true;
                self.1.sync().unwrap();
                let dataset = self.1.dataset_tree().unwrap().open(TARGET).unwrap();
                assert!(dataset.dsl_dataset().is_inconsistent());
                assert!(FileSystem::of_dataset(&dataset, 5000).is_err());
                let error = self.1.open_dataset(&dataset).unwrap_err();
                assert!(matches!(error, DatasetError::Inconsistent { .. }), "{error}");
                assert_eq!(self.1.destroy_dataset(TARGET).unwrap_err().errno(), 16);
            }
            self.0.read(buffer)
        }
    }
    let Some(full) = golden("full") else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let bytes = full.bytes().unwrap();
    receive(&pool, Looking(&bytes, &pool, false)).unwrap();
    assert_eq!(wrong_files(&pool, TARGET, &full, "g30/a@1"), Vec::<String>::new());
}
