//! Streams sent from pools made by OpenZFS equal those that OpenZFS sends.
//!
//! Full streams are compared with `zdb -B`, which writes the same stream as `zfs send`. An
//! increment must contain the newer part of a full stream.

use rzfs_blockdev::OpenOptions;
use rzfs_cache::BlockKey;
use rzfs_dmu::{DmuError, Visit, Visitor};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions, LoadVerification};
use rzfs_format::nvlist::NvList;
use rzfs_format::stream::{Begin, FreeRange, ObjectFlags, Record, SpillFlags, StreamFeatures};
use rzfs_format::{BlockId, ObjectId};
use rzfs_send::{Form, Send, SendError, Source};
use rzfs_stream::{Problem, ReadOptions, StreamError, StreamReader};
use rzfs_testkit::{ReferencePool, zdb_program};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The pools with snapshots: many kinds of files, dnodes and names; two topologies; old versions.
const POOLS: [&str; 5] = ["g01-default", "g08-draid2", "g09-stripe", "g21-v28", "g22-v8"];

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
        raw: letters.contains('w'),
    }
}

/// The stream that zdb writes for a snapshot.
fn zdb_backup(golden: &ReferencePool, snapshot: &Dataset, letters: &str) -> Option<Vec<u8>> {
    let objset = format!("{}/{}", golden.pool_name(), snapshot.object().0);
    let mut zdb = Command::new(zdb_program()?);
    zdb.arg("-e").arg("-p").arg(golden.image_dir().unwrap()).args(["-B", &objset, letters]);
    let output = zdb.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", snapshot.name());
    Some(output.stdout)
}

/// OpenZFS sends an embedded spill block as data at an impossible offset (spec 08, section 7.2). In
/// everything else only the checksum differs.
fn is_embedded_spill(ours: &Record, theirs: &Record) -> bool {
    let (Record::Spill(ours), Record::WriteEmbedded(theirs)) = (ours, theirs) else {
        return false;
    };
    let offset = BlockId::SPILL.0.wrapping_mul(theirs.length);
    (ours.object, offset) == (theirs.object, theirs.offset)
        && ours.length == u64::from(theirs.logical_size)
}

/// OpenZFS 2.3 packs the key data in the nvlist after BEGIN in native encoding; we do it portably.
fn is_packed_otherwise(ours: (&Record, &[u8]), theirs: (&Record, &[u8])) -> bool {
    let (Record::Begin(our_begin), Record::Begin(their_begin)) = (ours.0, theirs.0) else {
        return false;
    };
    let is_same =
        Begin { payload_length: 0, ..*our_begin } == Begin { payload_length: 0, ..*their_begin };
    let list = |packed| NvList::decode(packed).unwrap();
    is_same && !ours.1.is_empty() && list(ours.1) == list(theirs.1)
}

/// Where two streams first differ.
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
        let is_said_otherwise =
            is_packed_otherwise((&our_record, &our_payload), (&their_record, &their_payload));
        if is_said_otherwise || is_embedded_spill(&our_record, &their_record) {
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

/// One stream to compare.
struct Job<'a> {
    golden: &'a ReferencePool,
    pool: &'a Pool,
    snapshot: Dataset,
    letters: &'static str,
}

impl Job<'_> {
    /// How our stream differs; `None` if there is no zdb.
    fn difference(&self) -> Option<String> {
        let theirs = zdb_backup(self.golden, &self.snapshot, self.letters)?;
        let ours = sent(self.pool, &self.snapshot, None, self.letters);
        let difference = difference(&ours, &theirs)?;
        Some(format!("{} -{}: {difference}", self.snapshot.name(), self.letters))
    }
}

fn sent(pool: &Pool, snapshot: &Dataset, source: Option<&Source>, letters: &str) -> Vec<u8> {
    let mut stream = Vec::new();
    let send = Send::new(snapshot, source, form(letters), pool.features()).unwrap();
    let sent = send.write_to(&mut stream).unwrap();
    assert_eq!(sent.bytes, stream.len() as u64);
    assert_eq!(send.size().unwrap(), sent.bytes, "it is known before");
    stream
}

/// Each run of zdb waits for some seconds, so many run in parallel.
#[test]
fn full_streams_are_those_of_openzfs_byte_for_byte() {
    let goldens: Vec<_> = POOLS.into_iter().filter_map(ReferencePool::golden).collect();
    let pools: Vec<_> = goldens.iter().map(|golden| (golden, import(golden))).collect();
    let mut jobs = Vec::new();
    for (golden, pool) in &pools {
        let is_first = golden.name() == POOLS[0];
        let (count, forms): (_, &[&str]) =
            if is_first { (6, &["", "e", "c", "L", "eLc"]) } else { (2, &["", "eLc"]) };
        for snapshot in snapshots(pool).into_iter().take(count) {
            jobs.extend(forms.iter().map(|letters| Job {
                golden,
                pool,
                snapshot: snapshot.clone(),
                letters,
            }));
        }
    }
    let next = AtomicUsize::new(0);
    let differences: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let next = || jobs.get(next.fetch_add(1, Ordering::Relaxed));
            std::iter::from_fn(next).filter_map(Job::difference).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Without loading any key.
#[test]
fn raw_streams_are_those_of_openzfs_byte_for_byte() {
    let Some(golden) = ReferencePool::golden("g10-encrypted") else { return };
    let pool = import(&golden);
    let snapshots = snapshots(&pool);
    assert!(snapshots.len() > 2, "{snapshots:?}");
    let job = |snapshot| Job { golden: &golden, pool: &pool, snapshot, letters: "w" };
    let differences: Vec<_> =
        snapshots.into_iter().filter_map(|snapshot| job(snapshot).difference()).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// An object at the receiver.
#[derive(Clone, PartialEq, Debug)]
struct Received {
    shape: (u32, u32, u32, u8),
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
    /// The data of blocks by their offsets; missing blocks are zeros.
    blocks: BTreeMap<u64, Vec<u8>>,
}

/// The state of a receiver of streams sent without options.
#[derive(Clone, Default, PartialEq, Debug)]
struct Receiver(BTreeMap<u64, Received>);

impl Receiver {
    fn receive(&mut self, stream: &[u8]) {
        let mut reader = StreamReader::new(stream, ReadOptions::default());
        let mut payload = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            reader.read_payload_to(&mut payload).unwrap();
            self.apply(&record, &payload);
        }
    }

    fn apply(&mut self, record: &Record, payload: &[u8]) {
        match record {
            Record::Begin(_) | Record::End(_) => {}
            Record::Object(it) => {
                let shape = (it.object_type, it.bonus_type, it.block_size, it.slots);
                let old = self.0.remove(&it.object.0).filter(|old| old.shape == shape);
                let has_spill = it.flags.contains(ObjectFlags::SPILL);
                let (spill, blocks) = old.map(|old| (old.spill, old.blocks)).unwrap_or_default();
                let spill = spill.filter(|_| has_spill);
                let bonus = payload.to_vec();
                self.0.insert(it.object.0, Received { shape, bonus, spill, blocks });
            }
            Record::FreeObjects(it) => {
                self.0.retain(|id, _| *id < it.first.0 || *id - it.first.0 >= it.count);
            }
            Record::Free(it) => {
                let blocks = &mut self.0.get_mut(&it.object.0).unwrap().blocks;
                blocks.retain(|offset, _| *offset < it.offset || *offset - it.offset >= it.length);
            }
            Record::Write(it) => {
                let blocks = &mut self.0.get_mut(&it.object.0).unwrap().blocks;
                blocks.insert(it.offset, payload.to_vec());
            }
            Record::Spill(it) => {
                self.0.get_mut(&it.object.0).unwrap().spill = Some(payload.to_vec());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Consecutive snapshots of the same head, some from each pool.
fn pairs(pool: &Pool, count: usize) -> Vec<(Dataset, Dataset)> {
    let heads = pool.datasets().root().unwrap().descendants().unwrap();
    let mut pairs = Vec::new();
    for head in heads {
        let all = head.snapshots().unwrap();
        pairs.extend(all.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())));
    }
    pairs.truncate(count);
    pairs
}

#[test]
fn a_full_stream_and_an_increment_are_the_later_snapshot() {
    let mut compared = 0;
    for golden in ["g01-default", "g23-many"] {
        let Some(golden) = ReferencePool::golden(golden) else { continue };
        let pool = import(&golden);
        for (from, to) in pairs(&pool, 12) {
            let source = Source::Snapshot(from.clone());
            let increment = sent(&pool, &to, Some(&source), "");
            let (mut stepwise, mut at_once) = (Receiver::default(), Receiver::default());
            stepwise.receive(&sent(&pool, &from, None, ""));
            at_once.receive(&sent(&pool, &to, None, ""));
            let is_changed = stepwise != at_once;
            stepwise.receive(&increment);
            assert!(stepwise == at_once, "{} to {}", from.name(), to.name());
            compared += usize::from(is_changed);
        }
        assert!(compared > 0, "{}: nothing has changed", golden.name());
    }
}

#[test]
fn an_increment_has_only_what_is_new() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let open = |name: &str| pool.datasets().open(name).unwrap();
    let (from, to) = (open("g01/sa@s1"), open("g01/sa@s2"));
    let full = sent(&pool, &to, None, "");
    let increment = sent(&pool, &to, Some(&Source::Snapshot(from)), "");
    assert!(increment.len() * 4 < full.len(), "{} of {}", increment.len(), full.len());
}

#[test]
fn an_increment_from_a_bookmark_is_that_from_its_snapshot() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let open = |name: &str| pool.datasets().open(name).unwrap();
    let bookmark = pool.datasets().open_bookmark("g01/sa#b1").unwrap();
    let bookmark = Source::Bookmark { bookmark, head: open("g01/sa") };
    let snapshot = Source::Snapshot(open("g01/sa@s1"));
    let to = open("g01/sa@s2");
    assert!(sent(&pool, &to, Some(&bookmark), "") == sent(&pool, &to, Some(&snapshot), ""));
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

/// Whether a record describes an object; a resumed stream starts with it again.
fn introduces(record: &Record) -> bool {
    match record {
        Record::Object(_) => true,
        Record::Free(range) => range.length == FreeRange::TO_THE_END,
        Record::Spill(spill) => spill.flags.contains(SpillFlags::UNMODIFIED),
        _ => false,
    }
}

#[test]
fn the_rest_of_a_stream_is_its_end_from_the_object_on_that_it_was_in() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let mut compared = 0;
    let mut all: Vec<_> = snapshots(&pool).into_iter().take(4).map(|one| (one, None)).collect();
    let increments = pairs(&pool, 2).into_iter();
    all.extend(increments.map(|(from, to)| (to, Some(Source::Snapshot(from)))));
    for (snapshot, source) in all {
        for letters in ["", "eLc"] {
            let whole = records(&sent(&pool, &snapshot, source.as_ref(), letters));
            let (mut object, mut after) = (0, 0);
            for (index, (record, _)) in whole.iter().enumerate() {
                let (id, offset) = match record {
                    Record::Object(one) => {
                        object = index;
                        let is_of_it = |(record, _): &&(Record, Vec<u8>)| introduces(record);
                        let behind = whole.iter().skip(index + 1);
                        after = index
                            + 1
                            + behind
                                .take_while(|one| {
                                    is_of_it(one) && !matches!(one.0, Record::Object(_))
                                })
                                .count();
                        (one.object, 0)
                    }
                    Record::Write(write) => (write.object, write.offset),
                    Record::WriteEmbedded(write) => (write.object, write.offset),
                    _ => continue,
                };
                // Objects that begin with a hole are all compared.
                let next = whole.get(after).map(|(record, _)| record);
                let has_hole = offset == 0 && matches!(next, Some(Record::Free(_)));
                compared += 1;
                if compared % 7 != 1 && !has_hole {
                    continue;
                }
                let send = Send::new(&snapshot, source.as_ref(), form(letters), pool.features());
                let send = send.unwrap().resumed_at(id, offset).unwrap();
                let mut rest = Vec::new();
                let written = send.write_to(&mut rest).unwrap();
                assert_eq!(send.size().unwrap(), written.bytes);
                let rest = records(&rest);
                let Record::Begin(begin) = rest[0].0 else { panic!("{:?}", rest[0]) };
                assert!(begin.version.features().contains(StreamFeatures::RESUMING));
                let list = NvList::decode(&rest[0].1).unwrap();
                assert_eq!(list.u64("resume_object").unwrap(), id.get());
                assert_eq!(list.u64("resume_offset").unwrap(), offset);
                let from = if offset == 0 { after } else { index };
                let expected = whole[object..after].iter().chain(&whole[from..]);
                let ended = rest.len() - 1;
                let differs = expected.zip(&rest[1..ended]).find(|(one, other)| one != other);
                assert!(differs.is_none(), "{} {id} {offset}: {differs:?}", snapshot.name());
                assert_eq!(ended - 1 + from - after, whole.len() - 1 - object, "{id} {offset}");
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn a_stream_does_not_begin_at_what_is_not_there() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let snapshot = pool.datasets().open("g01/sa@s1").unwrap();
    for object in [0, 1 << 40, 1 << 48, u64::MAX] {
        let send = Send::new(&snapshot, None, Form::default(), pool.features()).unwrap();
        let error = send.resumed_at(ObjectId(object), 0).unwrap_err();
        assert_eq!(error.errno(), 2, "{object}: {error}");
    }
    // A block number that no object has is past the end of every object.
    let send = Send::new(&snapshot, None, Form::default(), pool.features()).unwrap();
    let send = send.resumed_at(ObjectId(2), u64::MAX).unwrap();
    let mut rest = Vec::new();
    send.write_to(&mut rest).unwrap();
    assert!(matches!(records(&rest)[1].0, Record::Object(one) if one.object == ObjectId(2)));
}

#[test]
fn what_is_not_earlier_is_no_source() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let open = |name: &str| pool.datasets().open(name).unwrap();
    let bookmark = pool.datasets().open_bookmark("g01/sa#b1").unwrap();
    let bookmark = Source::Bookmark { bookmark, head: open("g01/sa") };
    let refused = [
        ("g01/sa@s1", Source::Snapshot(open("g01/sa@s2"))),
        ("g01/sa@s1", Source::Snapshot(open("g01/sa@s1"))),
        ("g01/sa@s2", Source::Snapshot(open("g01/xdir@s1"))),
        ("g01/sa@s1", bookmark.clone()),
        ("g01/ldn@s1", bookmark),
    ];
    for (to, from) in refused {
        let error = Send::new(&open(to), Some(&from), Form::default(), pool.features());
        let error = error.unwrap_err();
        assert!(matches!(error, SendError::NotEarlier { .. }), "{to}: {error}");
        assert_eq!(error.errno(), 18);
    }
    let head = Send::new(&open("g01/sa"), None, Form::default(), pool.features()).unwrap_err();
    assert!(matches!(head, SendError::NotASnapshot { .. }), "{head}");
}

/// A sink that fails after a number of bytes.
struct Short(usize);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_sink_that_goes_away_ends_the_stream_wherever_it_is() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let snapshot = pool.datasets().open("g01/sa@s1").unwrap();
    let send = Send::new(&snapshot, None, Form::default(), pool.features()).unwrap();
    let whole = sent(&pool, &snapshot, None, "").len();
    for room in [0, 311, 312, 5000, whole / 2, whole - 1] {
        let error = send.write_to(Short(room)).unwrap_err();
        let SendError::Stream(StreamError { problem: Problem::Io(error), .. }) = error else {
            panic!("{error}");
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn blocks_of_files_do_not_come_into_the_cache() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let pool = import(&golden);
    let snapshot = pool.datasets().open("g01/sa@s1").unwrap();
    let objset = snapshot.open_objset().unwrap();
    let stream = sent(&pool, &snapshot, None, "");
    let mut blocks = Blocks::default();
    let _ = objset.traversal().run(objset.root(), &mut blocks);
    assert!(!blocks.0.is_empty() && stream.len() > 1 << 20);
    for key in blocks.0 {
        assert!(!pool.pipeline().cache().contains(&key), "{key:?}");
    }
}

/// The keys of all data blocks of files.
#[derive(Default)]
struct Blocks(Vec<BlockKey>);

impl Visitor for Blocks {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        let is_data = visit.pointer.object_type().is_ok_and(|kind| !kind.is_metadata());
        if let (true, 0, Some(dva)) = (is_data, visit.bookmark.level.0, visit.pointer.dvas().next())
        {
            self.0.push(BlockKey {
                vdev: dva.vdev().get(),
                offset: dva.offset(),
                birth: visit.pointer.physical_birth().get(),
            });
        }
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        panic!("{error}");
    }
}
