//! Logs of every kind of record, written into the images of pools that were not exported.

use crate::{make, put};
use rzfs_codec::checksum::{self, EmbeddedVerifier, Salt, generate_embedded};
use rzfs_dsl::import::MissingLogs;
use rzfs_dsl::live::LiveOptions as PoolOptions;
use rzfs_format::block_pointer::StoredBlock;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::fuid::Fuid;
use rzfs_format::object_type::ObjectType;
use rzfs_format::zil::{
    BlockForm, Body, CHAIN_SIZE, Chain, Create, ExtendedAttributes, NewObject, RecordKind, Rename,
    SetAttr, SetXattr, Verifier, Whiteout, Write, XattrBits, ZilHeader, stamp,
};
use rzfs_format::znode::{DeviceNumber, FileFlags, Timestamp};
use rzfs_format::{BlockPointer, ByteOrder, Dva, Level, ObjectId, ObjsetId, Txg, VdevId};
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewKind, XattrMode, XattrStore};
use rzfs_zpl::{FileSystemOptions, NameTarget, ZplError};
use std::fs::File;
use std::os::unix::fs::FileExt;

const ORDER: ByteOrder = ByteOrder::NATIVE;
/// Start of the allocatable area of a leaf.
const DATA_START: u64 = 4 << 20;
/// Space never used by the pools of these tests.
const FREE: u64 = 70 << 20;
const LOG_BLOCK: u64 = 16 << 10;
/// Bytes before the body of a record.
const RECORD_HEADER: usize = 32;
const TIME: Timestamp = Timestamp { seconds: 1_234_567_890, nanoseconds: 123 };

/// A log under construction.
pub(crate) struct Log {
    objset: ObjsetId,
    /// The txg of all records and blocks, not on disk.
    txg: Txg,
    records: Vec<Vec<u8>>,
    /// Blocks of data, and their locations.
    data: Vec<(u64, Vec<u8>)>,
}

fn dva(place: u64, size: u64) -> Dva {
    Dva::new(VdevId(0), FREE + place, size, false)
}

impl Log {
    pub(crate) fn add(&mut self, kind: RecordKind, body: &Body<'_>) {
        let mut record = body.encode(kind, ORDER).unwrap();
        stamp(&mut record, self.txg, self.records.len() as u64 + 1, ORDER);
        self.records.push(record);
    }

    /// Adds a record of a kind not written by this implementation.
    pub(crate) fn add_bytes(&mut self, kind: RecordKind, body: &[u8]) {
        let len = (RECORD_HEADER + body.len()).next_multiple_of(8);
        let mut record = [kind as u64, len as u64, 0, 0].map(u64::to_ne_bytes).concat();
        record.extend(body);
        record.resize(len, 0);
        stamp(&mut record, self.txg, self.records.len() as u64 + 1, ORDER);
        self.records.push(record);
    }

    /// Stores data outside the log.
    fn place(&mut self, data: &[u8]) -> BlockPointer {
        let size = data.len() as u64;
        let place = (1 << 20) + self.data.iter().map(|(_, data)| data.len() as u64).sum::<u64>();
        let function = ChecksumFunction::Fletcher4;
        let pointer = BlockPointer::stored(&StoredBlock {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: Level::DATA,
            logical_size: size,
            physical_size: size,
            compression: CompressionFunction::Off,
            checksum_function: function,
            checksum: checksum::checksum(function, ORDER, data, &Salt::new([0; 32])),
            dvas: [dva(place, size), Dva::default(), Dva::default()],
            birth: self.txg,
        });
        self.data.push((place, data.to_vec()));
        pointer
    }

    fn verifier(&self, seq: u64) -> Verifier {
        Verifier { guid: [0xfeed, 0xbeef], objset: self.objset, seq }
    }

    fn pointer(&self, seq: u64) -> BlockPointer {
        let place = dva((seq - 1) * LOG_BLOCK, LOG_BLOCK);
        self.verifier(seq).pointer(BlockForm::Leader, place, LOG_BLOCK, self.txg)
    }

    /// Writes blocks of a few records each to the image; returns their number.
    pub(crate) fn write(&self, image: &File, records_of_block: usize) -> u64 {
        let mut seq = 0;
        for records in self.records.chunks(records_of_block) {
            seq += 1;
            let mut block = vec![0; LOG_BLOCK as usize];
            let bytes = records.concat();
            block[CHAIN_SIZE..CHAIN_SIZE + bytes.len()].copy_from_slice(&bytes);
            let form = BlockForm::Leader;
            Chain::encode(&mut block, form, &self.pointer(seq + 1), bytes.len(), ORDER);
            let verifier = EmbeddedVerifier::Zil(self.verifier(seq).words());
            generate_embedded(form.checksum_function(), &mut block, verifier, ORDER).unwrap();
            let offset = DATA_START + FREE + (seq - 1) * LOG_BLOCK;
            image.write_all_at(&block, offset).unwrap();
        }
        for (place, data) in &self.data {
            image.write_all_at(data, DATA_START + FREE + place).unwrap();
        }
        seq
    }
}

/// A pool whose root file system gets a log.
pub(crate) struct Logged {
    pub(crate) world: ImagePool,
    pub(crate) log: Log,
}

impl Logged {
    /// Creates a pool, and fills it with `prepare`.
    pub(crate) fn new(prepare: impl FnOnce(&LiveFileSystem)) -> Self {
        let world = ImagePool::new("A");
        let session = world.create();
        prepare(&session.fs);
        session.pool.sync().unwrap();
        let root = session.pool.dataset_tree().unwrap().root().unwrap();
        let dataset = session.pool.open_dataset(&root).unwrap();
        let txg = Txg(session.pool.synced_txg().get() + 6);
        let objset = dataset.objset().id();
        let log = Log { objset, txg, records: Vec::new(), data: Vec::new() };
        let header = ZilHeader { first: log.pointer(1), ..ZilHeader::default() };
        let tx = session.pool.engine().begin_unthrottled(&[]).unwrap();
        dataset.generation().change_log(&tx, header, &[]);
        drop(tx);
        session.pool.sync().unwrap();
        drop(dataset);
        session.abandon();
        Self { world, log }
    }

    /// The root directory.
    pub(crate) fn root(&self) -> ObjectId {
        self.world.read().root()
    }

    /// The number of a file in the root directory.
    pub(crate) fn number(&self, name: &str) -> ObjectId {
        let fs = self.world.read();
        match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(NameTarget::Object(object)) => object,
            found => panic!("{name}: {found:?}"),
        }
    }

    pub(crate) fn image(&self) -> File {
        File::options().read(true).write(true).open(self.world.image("A")).unwrap()
    }

    /// Opens the pool, replaying the log.
    pub(crate) fn replay(&self) -> Session {
        self.replay_with(MissingLogs::Refuse)
    }

    fn replay_with(&self, missing_logs: MissingLogs) -> Session {
        let mut options = LiveOptions::new(FileSystemOptions::default(), 42);
        options.xattr_store = XattrStore::SystemAttribute;
        let pool = PoolOptions { missing_logs, ..PoolOptions::default() };
        self.world.open_logged(options, &pool)
    }

    /// Writes the log, replays it, calls `check`, and checks the pool.
    fn finish(self, check: impl Fn(&LiveFileSystem)) {
        self.log.write(&self.image(), 5);
        let session = self.replay();
        check(&session.fs);
        make(&session.fs, session.fs.root(), "afterwards", NewKind::Regular);
        session.export();
        self.world.judge();
        let session = self.replay();
        check(&session.fs);
        session.export();
        self.world.judge();
    }
}

pub(crate) fn new_object(object: u64, mode: u64) -> NewObject {
    NewObject {
        object: ObjectId(object),
        slots: 1,
        mode,
        uid: Fuid::posix(501),
        gid: Fuid::posix(502),
        generation: 77,
        create_time: TIME,
        device: DeviceNumber::default(),
    }
}

pub(crate) fn create<'a>(directory: ObjectId, new: NewObject, name: &'a str) -> Body<'a> {
    let (attributes, domains, target) = (None, Vec::new(), &[][..]);
    Body::Create(Create { directory, new, attributes, domains, name: name.as_bytes(), target })
}

fn write(object: u64, offset: u64, data: &[u8]) -> Body<'_> {
    let (object, length) = (ObjectId(object), data.len() as u64);
    Body::Write(Write { object, offset, length, pointer: BlockPointer::HOLE, data })
}

fn rename<'a>(directory: ObjectId, from: &'a str, to: &'a str) -> Rename<'a> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    Rename { from_directory: directory, to_directory: directory, from, to, whiteout: None }
}

fn set_attr(object: u64, mask: u64) -> SetAttr<'static> {
    SetAttr {
        object: ObjectId(object),
        mask,
        mode: 0o100_640,
        uid: Fuid::posix(7),
        gid: Fuid::posix(8),
        size: 5,
        atime: TIME,
        mtime: Timestamp { seconds: 99, nanoseconds: 1 },
        attributes: None,
        domains: Vec::new(),
    }
}

pub(crate) fn find(fs: &LiveFileSystem, name: &str) -> Option<ObjectId> {
    match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(NameTarget::Object(object)) => Some(object),
        _ => None,
    }
}

pub(crate) fn contents(fs: &LiveFileSystem, name: &str) -> Vec<u8> {
    let object = find(fs, name).unwrap();
    let mut bytes = vec![0; fs.attributes(object).unwrap().size as usize];
    assert_eq!(fs.read(object, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn files_get_the_numbers_that_they_had() {
    let mut logged = Logged::new(|_| {});
    let root = logged.root();
    let log = &mut logged.log;
    log.add(RecordKind::Create, &create(root, new_object(200, 0o100_644), "file"));
    log.add(RecordKind::Mkdir, &create(root, new_object(201, 0o040_755), "dir"));
    let mut device = new_object(202, 0o060_600);
    device.device = DeviceNumber { major: 103, minor: 11170 };
    log.add(RecordKind::Create, &create(root, device, "device"));
    log.add(RecordKind::Create, &create(ObjectId(201), new_object(203, 0o100_600), "below"));
    let link = Create {
        directory: root,
        new: new_object(204, 0o120_777),
        attributes: None,
        domains: Vec::new(),
        name: b"link",
        target: b"target",
    };
    log.add(RecordKind::Symlink, &Body::Create(link));
    let large = NewObject { slots: 4, ..new_object(208, 0o100_644) };
    log.add(RecordKind::Create, &create(root, large, "large"));
    log.add(RecordKind::Write, &write(200, 0, b"contents"));
    logged.finish(|fs| {
        let file = fs.attributes(find(fs, "file").unwrap()).unwrap();
        assert_eq!((file.object, file.generation, file.size), (ObjectId(200), 77, 8));
        assert_eq!((file.uid, file.gid, file.permissions), (501, 502, 0o644));
        assert_eq!((file.crtime, file.atime), (TIME, TIME));
        assert_eq!(contents(fs, "file"), b"contents");
        let dir = fs.attributes(ObjectId(201)).unwrap();
        assert_eq!((dir.links, dir.size, find(fs, "dir")), (2, 3, Some(ObjectId(201))));
        assert_eq!(fs.attributes(ObjectId(202)).unwrap().device.minor, 11170);
        assert_eq!(fs.read_link(ObjectId(204)).unwrap(), b"target");
        assert_eq!(fs.lookup(ObjectId(201), b"below").unwrap(), NameTarget::Object(ObjectId(203)));
        assert_eq!(fs.objset().object(ObjectId(208)).unwrap().slots().unwrap(), 4);
        assert_eq!(fs.attributes(fs.root()).unwrap().links, 3);
    });
}

#[test]
fn names_change_as_they_did() {
    let mut logged = Logged::new(|fs| {
        for name in ["a", "b", "c", "d", "gone"] {
            let file = make(fs, fs.root(), name, NewKind::Regular);
            put(fs, file, 0, name.as_bytes());
        }
        make(fs, fs.root(), "empty", NewKind::Directory);
    });
    let root = logged.root();
    let (a, gone) = (logged.number("a"), logged.number("gone"));
    let log = &mut logged.log;
    log.add(RecordKind::Link, &Body::Link { directory: root, object: a, name: b"second" });
    log.add(RecordKind::Rename, &Body::Rename(rename(root, "a", "moved")));
    log.add(RecordKind::RenameExchange, &Body::Rename(rename(root, "b", "c")));
    let whiteout = Some(Whiteout(new_object(300, 0o020_000)));
    let covered = Rename { whiteout, ..rename(root, "d", "d2") };
    log.add(RecordKind::RenameWhiteout, &Body::Rename(covered));
    log.add(RecordKind::Remove, &Body::Remove { directory: root, name: b"gone" });
    log.add(RecordKind::Rmdir, &Body::Remove { directory: root, name: b"empty" });
    // Earlier changes of the file, logged after it was gone.
    log.add(RecordKind::Write, &write(gone.0, 0, b"too late"));
    log.add(RecordKind::SetAttr, &Body::SetAttr(set_attr(gone.0, SetAttr::MODE)));
    // Its number is free again.
    log.add(RecordKind::Create, &create(root, new_object(gone.0, 0o100_644), "again"));
    logged.finish(|fs| {
        assert_eq!((contents(fs, "second"), contents(fs, "moved")), (b"a".into(), b"a".into()));
        assert_eq!((contents(fs, "b"), contents(fs, "c")), (b"c".into(), b"b".into()));
        assert_eq!((contents(fs, "d2"), find(fs, "d")), (b"d".into(), Some(ObjectId(300))));
        assert_eq!(fs.attributes(a).unwrap().links, 2);
        for name in ["a", "gone", "empty"] {
            assert_eq!(find(fs, name), None, "{name}");
        }
        assert_eq!((find(fs, "again"), contents(fs, "again")), (Some(gone), Vec::new()));
        assert_eq!(fs.attributes(fs.root()).unwrap().links, 2);
    });
}

#[test]
fn contents_are_those_of_the_records() {
    let mut logged = Logged::new(|fs| {
        for name in ["inside", "outside", "short", "hole"] {
            let file = make(fs, fs.root(), name, NewKind::Regular);
            put(fs, file, 0, &[b'x'; 20_000]);
        }
    });
    let number = |name: &str| logged.number(name);
    let [inside, outside, short, hole] = ["inside", "outside", "short", "hole"].map(number);
    let log = &mut logged.log;
    log.add(RecordKind::Write, &write(inside.0, 19_998, b"beyond"));
    log.add(RecordKind::Write2, &write(inside.0, 30_000, b""));
    let block: Vec<u8> = (0..16_384_u32).map(|at| (at % 251) as u8).collect();
    let pointer = log.place(&block);
    // Ten bytes of a whole block stored outside.
    let indirect = |object, offset, length, pointer| {
        Body::Write(Write { object, offset, length, pointer, data: &[] })
    };
    log.add(RecordKind::Write, &indirect(outside, 16_384 + 10, 10, pointer));
    let pointer = log.place(&block);
    log.add(RecordKind::Write, &indirect(hole, 0, 16_384, pointer));
    log.add(RecordKind::Truncate, &Body::Truncate { object: short, offset: 100, length: 0 });
    log.add(RecordKind::Truncate, &Body::Truncate { object: hole, offset: 4096, length: 4096 });
    logged.finish(|fs| {
        let mut expected = vec![b'x'; 20_000];
        expected.splice(19_998.., *b"beyond");
        expected.resize(20_004, 0);
        let found = contents(fs, "inside");
        assert!(found.starts_with(&expected) && found.len() >= expected.len());
        let mut expected = vec![b'x'; 20_000];
        expected[16_384..].copy_from_slice(&block[..20_000 - 16_384]);
        assert!(contents(fs, "outside") == expected);
        assert_eq!(contents(fs, "short"), vec![b'x'; 100]);
        let mut expected = block.clone();
        expected[4096..8192].fill(0);
        expected.resize(20_000, b'x');
        assert!(contents(fs, "hole") == expected);
    });
}

#[test]
fn attributes_are_those_of_the_records() {
    let mut logged = Logged::new(|fs| {
        for name in ["owned", "plain", "flags", "old"] {
            let file = make(fs, fs.root(), name, NewKind::Regular);
            put(fs, file, 0, b"0123456789");
        }
        let old = find(fs, "old").unwrap();
        fs.set_xattr(old, b"user.old", b"value", XattrMode::Any).unwrap();
    });
    let number = |name: &str| logged.number(name);
    let [owned, plain, flags, old] = ["owned", "plain", "flags", "old"].map(number);
    let log = &mut logged.log;
    let mask = SetAttr::MODE | SetAttr::UID | SetAttr::GID | SetAttr::ATIME | SetAttr::MTIME;
    log.add(RecordKind::SetAttr, &Body::SetAttr(set_attr(owned.0, mask)));
    log.add(RecordKind::SetAttr, &Body::SetAttr(set_attr(plain.0, SetAttr::SIZE)));
    let mut change = set_attr(flags.0, SetAttr::LINUX_XVATTR);
    change.attributes = Some(ExtendedAttributes {
        requested: XattrBits(XattrBits::IMMUTABLE | XattrBits::NODUMP | XattrBits::PROJID),
        values: XattrBits(XattrBits::IMMUTABLE),
        create_time: Timestamp::default(),
        scanstamp: None,
        project: Some(9),
    });
    log.add(RecordKind::SetAttr, &Body::SetAttr(change));
    // A later record of an immutable file is of a permitted operation.
    log.add(RecordKind::Write, &write(flags.0, 0, b"A"));
    let set = |object, name, value| Body::SetXattr(SetXattr { object, name, value });
    log.add(RecordKind::SetXattr, &set(plain, b"user.new", Some(&b"worth"[..])));
    log.add(RecordKind::SetXattr, &set(old, b"user.old", None));
    log.add(RecordKind::MkXattr, &create(owned, new_object(400, 0o041_777), ""));
    log.add(RecordKind::Create, &create(ObjectId(400), new_object(401, 0o100_644), "user.file"));
    log.add(RecordKind::Write, &write(401, 0, b"in a file"));
    logged.finish(|fs| {
        let attributes = fs.attributes(owned).unwrap();
        assert_eq!((attributes.uid, attributes.gid, attributes.permissions), (7, 8, 0o640));
        assert_eq!((attributes.atime, attributes.mtime.seconds), (TIME, 99));
        assert_eq!(contents(fs, "plain"), b"01234");
        let attributes = fs.attributes(flags).unwrap();
        assert!(attributes.flags.contains(FileFlags::IMMUTABLE));
        assert!(!attributes.flags.contains(FileFlags::NODUMP));
        assert_eq!((attributes.project, contents(fs, "flags")), (9, b"A123456789".into()));
        assert_eq!(fs.xattr(plain, b"user.new").unwrap(), b"worth");
        assert!(matches!(fs.xattr(old, b"user.old"), Err(ZplError::NoXattr { .. })));
        assert_eq!(fs.xattr(owned, b"user.file").unwrap(), b"in a file");
        assert!(fs.attributes(ObjectId(401)).is_err(), "an attribute is no file");
    });
}

/// A failed record ends the log; earlier ones stay.
#[test]
fn a_record_that_fails_ends_the_log() {
    let mut logged = Logged::new(|_| {});
    let root = logged.root();
    let log = &mut logged.log;
    log.add(RecordKind::Create, &create(root, new_object(200, 0o100_644), "first"));
    log.add(RecordKind::Remove, &Body::Remove { directory: root, name: b"never there" });
    log.add(RecordKind::Create, &create(root, new_object(201, 0o100_644), "second"));
    logged.finish(|fs| {
        assert_eq!((find(fs, "first"), find(fs, "second")), (Some(ObjectId(200)), None));
    });
}

/// Whoever has the pool can tell people what is lost.
#[test]
fn what_is_lost_of_a_log_is_told() {
    let mut logged = Logged::new(|_| {});
    let root = logged.root();
    let log = &mut logged.log;
    log.add(RecordKind::Create, &create(root, new_object(200, 0o100_644), "first"));
    log.add(RecordKind::Remove, &Body::Remove { directory: root, name: b"never there" });
    log.add(RecordKind::Create, &create(root, new_object(201, 0o100_644), "second"));
    logged.log.write(&logged.image(), 5);
    let session = logged.replay();
    let told = |session: &Session| {
        let logs = session.pool.take_dropped_logs();
        logs.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
    };
    let first = told(&session);
    assert!(
        first.starts_with("'made': the rest of the intent log is given up: record 2"),
        "{first}"
    );
    assert_eq!(told(&session), "", "once");
    session.export();
    assert_eq!(told(&logged.replay()), "", "there is no log any more");
}

#[test]
fn records_without_sense_end_the_log() {
    const WRONG: usize = 8;
    let wrong = |root: ObjectId| -> [Body<'static>; WRONG] {
        let slots = NewObject { slots: 200, ..new_object(210, 0o100_644) };
        let across = NewObject { slots: 2, ..new_object(223, 0o100_644) };
        [
            create(root, new_object(0, 0o100_644), "zero"),
            create(root, new_object(1, 0o100_644), "master"),
            create(root, across, "across the end of its block"),
            create(root, slots, "slots"),
            create(root, new_object(210, 0o644), "no kind"),
            create(root, new_object(210, 0o100_644), "a/b"),
            create(root, new_object(210, 0o100_644), ".."),
            create(ObjectId(2000), new_object(210, 0o100_644), "nowhere"),
        ]
    };
    for index in 0..WRONG {
        let mut logged = Logged::new(|_| {});
        let root = logged.root();
        let log = &mut logged.log;
        log.add(RecordKind::Create, &create(root, new_object(200, 0o100_644), "first"));
        log.add(RecordKind::Create, &wrong(root)[index]);
        log.add(RecordKind::Create, &create(root, new_object(201, 0o100_644), "second"));
        logged.log.write(&logged.image(), 5);
        let session = logged.replay();
        let (first, second) = (find(&session.fs, "first"), find(&session.fs, "second"));
        assert_eq!((first, second), (Some(ObjectId(200)), None), "{:?}", wrong(root)[index]);
        session.export();
        logged.world.judge();
    }
}

/// A log damaged after it was claimed ends there, if allowed.
#[test]
fn a_damaged_block_ends_the_log() {
    let mut logged = Logged::new(|_| {});
    let root = logged.root();
    for number in 0..8 {
        let name = format!("file-{number}");
        let new = new_object(200 + number, 0o100_644);
        logged.log.add(RecordKind::Create, &create(root, new, &name));
    }
    let image = logged.image();
    assert_eq!(logged.log.write(&image, 4), 2);
    // Claimed but not replayed: the file system is not opened.
    logged.world.claim();
    logged.world.judge();
    image.write_all_at(&[0xdb; 64], DATA_START + FREE + LOG_BLOCK + 1000).unwrap();
    let session = logged.replay_with(MissingLogs::Ignore);
    let [given_up] = &session.pool.take_dropped_logs()[..] else { panic!("nobody is told") };
    assert!(given_up.to_string().contains("the rest of the intent log is given up"), "{given_up}");
    for number in 0..8 {
        let found = find(&session.fs, &format!("file-{number}"));
        assert_eq!(found.is_some(), number < 4, "file-{number}");
    }
    make(&session.fs, session.fs.root(), "afterwards", NewKind::Regular);
    session.export();
}

/// Before it is claimed, a log simply ends where it is damaged.
#[test]
fn a_damaged_block_ends_what_is_claimed() {
    let mut logged = Logged::new(|_| {});
    let root = logged.root();
    for number in 0..8 {
        let name = format!("file-{number}");
        let new = new_object(200 + number, 0o100_644);
        logged.log.add(RecordKind::Create, &create(root, new, &name));
    }
    let image = logged.image();
    logged.log.write(&image, 4);
    image.write_all_at(&[0xdb; 64], DATA_START + FREE + LOG_BLOCK + 1000).unwrap();
    let session = logged.replay();
    assert!(find(&session.fs, "file-3").is_some() && find(&session.fs, "file-4").is_none());
    session.export();
    logged.world.judge();
}
