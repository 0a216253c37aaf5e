//! Encrypted file systems: creating, writing, logging, sharing, loading, changing and unloading
//! keys; and those of OpenZFS.

use crate::golden::Copy;
use crate::{block, make, put};
use rzfs_blockdev::OpenOptions;
use rzfs_codec::crypto::{KeyFormat, Pbkdf2};
use rzfs_dmu::Objset;
use rzfs_dmu::live::LiveObjset;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{KeyStatus, RootKey};
use rzfs_dsl::live::{
    ChangeError, KeyChange, LiveOptions as PoolOptions, LivePool, NewDataset, NewEncryption,
    NewRoot, SuiteChoice,
};
use rzfs_format::ObjectId;
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::znode::Timestamp;
use rzfs_proof::{ImagePool, Session};
use rzfs_testkit::ReferencePool;
use rzfs_zap::ZapValue;
use rzfs_zpl::live::{
    Allocation, Caller, FilePlace, LiveFileSystem, LiveOptions, NewFileSystem, NewKind, WriteAt,
    XattrMode,
};
use rzfs_zpl::{FileSystem, FileSystemOptions, Files, NameTarget, ZplError};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

const PASSPHRASE: &[u8] = b"open sesame, please";
/// Text that must not be on the devices in the clear.
const SECRET: &[u8] = b"nobody may read these words on the device";

fn root_key(input: &[u8]) -> NewRoot {
    let (format, location) = match input.len() {
        32 => (KeyFormat::Raw, "file:///tmp/key"),
        _ => (KeyFormat::Passphrase, "prompt"),
    };
    let derivation = Pbkdf2 { salt: 7, iterations: 100_000 };
    let key = RootKey::from_input(format, input, derivation).unwrap();
    NewRoot { key, location: location.to_owned() }
}

fn with_key(suite: EncryptionSuite, input: &[u8]) -> NewEncryption {
    NewEncryption { suite: SuiteChoice::Suite(suite), root: Some(root_key(input)) }
}

fn create(
    pool: &LivePool,
    name: &str,
    properties: &[(&str, u64)],
    encryption: NewEncryption,
) -> Result<Arc<LiveFileSystem>, ChangeError> {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let stored =
        properties.iter().map(|(name, value)| ((*name).to_owned(), ZapValue::from(*value)));
    let new = NewDataset::new(Arc::new(NewFileSystem::new(now, 7)), stored.collect());
    let live = pool.create_dataset(name, new.encrypted(encryption))?;
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    Ok(LiveFileSystem::open_dataset(pool, &live, options).unwrap())
}

fn open(pool: &LivePool, name: &str) -> Arc<LiveFileSystem> {
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let live = pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(pool, &live, options).unwrap()
}

/// Writes files of several kinds, with attributes that need a spill block.
fn fill(fs: &LiveFileSystem, name: &str) {
    let file = make(fs, fs.root(), name, NewKind::Regular);
    put(fs, file, 0, SECRET);
    for number in 1..9 {
        put(fs, file, number * (128 << 10), &block(number));
    }
    let dir = make(fs, fs.root(), &format!("{name}-dir"), NewKind::Directory);
    for number in 0..150 {
        let kind = NewKind::Symlink(SECRET);
        make(fs, dir, &format!("a name that is long enough for a fat ZAP, {number}"), kind);
    }
    fs.set_xattr(file, b"user.large", &SECRET.repeat(30), XattrMode::Any).unwrap();
}

fn check(fs: &FileSystem, name: &str) {
    let Ok(NameTarget::Object(file)) = fs.lookup(fs.root(), name.as_bytes()) else {
        panic!("{name}")
    };
    let mut bytes = vec![0; SECRET.len()];
    fs.read(file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, SECRET);
    let mut bytes = vec![0; 128 << 10];
    fs.read(file, 3 * (128 << 10), &mut bytes).unwrap();
    assert!(bytes == block(3));
}

/// Reads every block of every object, so that all MACs are verified.
fn read_everything(objset: &Objset) {
    for entry in objset.objects() {
        let object = objset.object(entry.unwrap().id).unwrap();
        for block in object.read_blocks(0..object.dnode().max_block_id.0 + 1) {
            block.unwrap();
        }
        object.spill().unwrap();
    }
}

fn load(pool: &Pool, keys: &[&[u8]]) {
    for dataset in pool.datasets().root().unwrap().descendants().unwrap() {
        if dataset.key_status().unwrap() == KeyStatus::Unavailable {
            assert!(keys.iter().any(|key| dataset.load_key(key).is_ok()), "{}", dataset.name());
        }
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ChangeError>) -> String {
    result.unwrap_err().to_string()
}

/// Whether the text is on a device in the clear.
fn is_readable(world: &ImagePool, device: &str) -> bool {
    let image = std::fs::File::open(world.image(device)).unwrap();
    let (mut buffer, mut kept) = (vec![0; 1 << 20], Vec::new());
    for offset in (0..image.metadata().unwrap().len()).step_by(1 << 20) {
        let got = image.read_at(&mut buffer, offset).unwrap();
        kept.extend_from_slice(&buffer[..got]);
        if kept.windows(SECRET.len()).any(|window| window == SECRET) {
            return true;
        }
        kept.drain(..kept.len().saturating_sub(SECRET.len()));
    }
    false
}

#[test]
fn file_systems_of_every_suite_are_written_and_read() {
    let raw = [7; 32];
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    for suite in EncryptionSuite::ALL {
        let name = format!("made/{}", suite.name());
        fill(&create(&pool, &name, &[], with_key(suite, &raw)).unwrap(), "first");
        let below = create(&pool, &format!("{name}/below"), &[], NewEncryption::default());
        fill(&below.unwrap(), "first");
    }
    let open_one = NewEncryption { suite: SuiteChoice::Off, root: None };
    create(&pool, "made/aes-256-gcm/plain", &[], open_one).unwrap();
    pool.sync().unwrap();
    for suite in EncryptionSuite::ALL {
        let fs = open(&pool, &format!("made/{}", suite.name()));
        fill(&fs, "second");
        fs.unlink(fs.root(), b"first").unwrap();
    }
    pool.export().unwrap();
    world.judge();
    assert!(!is_readable(&world, "A"));
    let pool = world.import(&OpenOptions::new());
    load(&pool, &[&raw]);
    for suite in EncryptionSuite::ALL {
        for (name, file) in [("", "second"), ("/below", "first")] {
            let name = format!("made/{}{name}", suite.name());
            let dataset = pool.datasets().open(&name).unwrap();
            assert_eq!(dataset.text(DatasetProperty::Encryption).unwrap(), suite.name(), "{name}");
            let objset = dataset.open_objset().unwrap();
            read_everything(&objset);
            check(&FileSystem::open(objset, FileSystemOptions::default()).unwrap(), file);
        }
    }
    let plain = pool.datasets().open("made/aes-256-gcm/plain").unwrap();
    assert_eq!(plain.key_status().unwrap(), KeyStatus::None);
}

#[test]
fn keys_come_change_and_go() {
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    let suite = EncryptionSuite::Aes256Gcm;
    let no_format = NewEncryption { suite: SuiteChoice::Suite(suite), root: None };
    assert_eq!(
        refused(create(&pool, "made/x", &[], no_format)),
        "Keyformat required for new encryption root."
    );
    let off = NewEncryption { suite: SuiteChoice::Off, root: Some(root_key(PASSPHRASE)) };
    assert_eq!(
        refused(create(&pool, "made/x", &[], off)),
        "Encryption must be turned on to set encryption properties."
    );
    fill(&create(&pool, "made/root", &[], with_key(suite, PASSPHRASE)).unwrap(), "file");
    let below = create(&pool, "made/root/below", &[], NewEncryption::default()).unwrap();
    fill(&below, "file");
    let status = |name: &str| {
        let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
        let root = dataset.encryption_root().unwrap().unwrap().name().to_owned();
        (dataset.key_status().unwrap(), root)
    };
    let available = |root: &str| (KeyStatus::Available, root.to_owned());
    assert_eq!(status("made/root/below"), available("made/root"));
    assert!(matches!(pool.unload_key("made/root"), Err(ChangeError::KeyInUse { .. })));
    assert_eq!(
        refused(pool.rename_dataset("made/root/below", "made/away")),
        "cannot move encrypted child outside of its encryption root"
    );
    drop(below);
    pool.unload_key("made/root").unwrap();
    assert_eq!(status("made/root/below").0, KeyStatus::Unavailable);
    let dataset = pool.dataset_tree().unwrap().open("made/root/below").unwrap();
    assert_eq!(pool.open_dataset(&dataset).unwrap_err().errno(), 13);
    assert_eq!(
        refused(create(&pool, "made/root/new", &[], NewEncryption::default())),
        "encryption root's key is not loaded or provided"
    );
    assert!(dataset.load_key(b"not the right passphrase").is_err());
    dataset.load_key(PASSPHRASE).unwrap();
    // It keeps the devices of the pool open.
    drop(dataset);
    // The child gets its own key, then again that of its parent, which has a new one.
    pool.change_key("made/root/below", KeyChange::New(root_key(&[9; 32]))).unwrap();
    assert_eq!(status("made/root/below"), available("made/root/below"));
    pool.rename_dataset("made/root/below", "made/away").unwrap();
    assert_eq!(
        refused(pool.change_key("made/away", KeyChange::Inherit)),
        "Parent must be encrypted."
    );
    pool.rename_dataset("made/away", "made/root/below").unwrap();
    pool.change_key("made/root/below", KeyChange::Inherit).unwrap();
    pool.change_key("made/root", KeyChange::New(root_key(&[8; 32]))).unwrap();
    let location =
        pool.dataset_tree().unwrap().open("made/root").unwrap().text(DatasetProperty::KeyLocation);
    assert_eq!(location.unwrap(), "file:///tmp/key");
    fill(&open(&pool, "made/root/below"), "later");
    pool.export().unwrap();
    world.judge();
    let pool = world.import(&OpenOptions::new());
    let datasets = pool.datasets();
    let root = datasets.open("made/root").unwrap();
    assert!(root.load_key(PASSPHRASE).is_err() && root.load_key(&[9; 32]).is_err());
    root.load_key(&[8; 32]).unwrap();
    for (name, file) in [("made/root", "file"), ("made/root/below", "later")] {
        let objset = datasets.open(name).unwrap().open_objset().unwrap();
        check(&FileSystem::open(objset, FileSystemOptions::default()).unwrap(), file);
    }
    drop(pool);
    let Session { pool, fs } = world.open();
    drop(fs);
    pool.destroy_dataset("made/root/below").unwrap();
    pool.destroy_dataset("made/root").unwrap();
    pool.export().unwrap();
    world.judge();
}

#[test]
fn openzfs_decrypts_what_a_passphrase_unlocks() {
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    for suite in [EncryptionSuite::Aes192Ccm, EncryptionSuite::Aes256Gcm] {
        let name = format!("made/{}", suite.name());
        fill(&create(&pool, &name, &[], with_key(suite, PASSPHRASE)).unwrap(), "file");
        pool.sync().unwrap();
    }
    pool.export().unwrap();
    world.judge();
    let key = std::str::from_utf8(PASSPHRASE).unwrap();
    for suite in [EncryptionSuite::Aes192Ccm, EncryptionSuite::Aes256Gcm] {
        let name = format!("made/{}", suite.name());
        let dir = world.directory().to_str().unwrap();
        let options = ["-K", key, "-dddd", "-e", "-p", dir, &name];
        let Some(text) = rzfs_testkit::zdb(options) else { return };
        assert!(!text.contains("object encrypted"), "{text}");
        let target = format!("target\t{}", std::str::from_utf8(SECRET).unwrap());
        assert!(text.contains(&target), "{text}");
    }
}

/// The header of a gang is verified by the part of its checksum beside a MAC.
#[test]
fn openzfs_reads_encrypted_blocks_in_pieces() {
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    pool.export().unwrap();
    let mut options = PoolOptions::default();
    // Blocks of 128 KiB are cut twice.
    options.tunables.metaslab_force_ganging = 32 << 10;
    options.tunables.metaslab_force_ganging_pct = 100;
    let Session { pool, fs } = world.open_with(&options);
    drop(fs);
    let name = "made/in-pieces";
    let (uncompressed, suite) = (("compression", 2), EncryptionSuite::Aes256Gcm);
    let fs = create(&pool, name, &[uncompressed], with_key(suite, PASSPHRASE)).unwrap();
    fill(&fs, "file");
    drop(fs);
    pool.export().unwrap();
    world.judge();
    let pool = world.import(&OpenOptions::new());
    load(&pool, &[PASSPHRASE]);
    let objset = pool.datasets().open(name).unwrap().open_objset().unwrap();
    let file = objset.objects().find_map(|entry| {
        let object = objset.object(entry.unwrap().id).unwrap();
        (object.dnode().max_block_id.0 == 8).then_some(object)
    });
    let pointers = file.unwrap().pointers(0, 0..9);
    assert!(pointers.iter().filter(|it| it.as_ref().unwrap().is_gang()).count() > 5);
    read_everything(&objset);
    check(&FileSystem::open(objset, FileSystemOptions::default()).unwrap(), "file");
}

#[test]
fn blocks_of_one_key_are_shared() {
    const SHA256: u64 = 8;
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    let suite = EncryptionSuite::Aes128Gcm;
    let properties = [("dedup", SHA256)];
    let fs = create(&pool, "made/a", &properties, with_key(suite, &[5; 32])).unwrap();
    let other = create(&pool, "made/b", &properties, with_key(suite, &[5; 32])).unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let file = make(&fs, fs.root(), name, NewKind::Regular);
        (0..8).for_each(|number| put(&fs, file, number * (128 << 10), &block(number + 1)));
        file
    });
    let elsewhere = make(&other, other.root(), "elsewhere", NewKind::Regular);
    put(&other, elsewhere, 0, &block(1));
    pool.sync().unwrap();
    let counts = || {
        let tables = pool.view().unwrap().dedup_tables().unwrap();
        let totals = tables.iter().map(|table| table.histogram.total());
        totals.fold((0, 0), |(blocks, all), sum| (blocks + sum.blocks, all + sum.ref_blocks))
    };
    assert_eq!(counts(), (9, 17), "keys of datasets are their own");
    let cloned = make(&fs, fs.root(), "cloned", NewKind::Regular);
    let source = Files::Live(Arc::clone(&fs));
    let place = |object| FilePlace { object, offset: 0 };
    let len = 4 * (128 << 10);
    let copied = fs.copy_range(place(cloned), (&source, place(first)), len, Caller::SUPERUSER);
    assert_eq!(copied.unwrap(), len);
    // With another key, sharing falls back to a real copy.
    let copied =
        other.copy_range(place(elsewhere), (&source, place(first)), len, Caller::SUPERUSER);
    assert_eq!(copied.unwrap(), len);
    pool.sync().unwrap();
    assert_eq!(counts(), (12, 24));
    let mut bytes = vec![0; 128 << 10];
    for file in [first, second, cloned] {
        fs.read(file, 128 << 10, &mut bytes).unwrap();
        assert!(bytes == block(2));
    }
    fs.unlink(fs.root(), b"first").unwrap();
    drop((fs, other, source));
    (0..4).for_each(|_| pool.sync().unwrap());
    assert_eq!(counts(), (12, 16));
    pool.export().unwrap();
    world.judge();
    let pool = world.import(&OpenOptions::new());
    load(&pool, &[&[5; 32]]);
    for name in ["made/a", "made/b"] {
        read_everything(&pool.datasets().open(name).unwrap().open_objset().unwrap());
    }
}

/// Writes to a file bypassing the file system, in blocks of `block_size` bytes.
fn put_in_blocks(pool: &LivePool, live: &LiveObjset, file: ObjectId, block_size: u32, len: usize) {
    let object = live.object(file).unwrap();
    let tx = pool.engine().begin(&[&object]).unwrap();
    object.set_data_block_size(&tx, block_size).unwrap();
    object.write(&tx, 0, &vec![7; len]).unwrap();
    drop(tx);
    pool.sync().unwrap();
}

/// Incompressible contents.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// CCM takes no block of 16 MiB; one that compressed when it was written still exists.
#[test]
fn blocks_that_a_cipher_may_not_take_stay_what_they_are() {
    const EFBIG: i32 = 27;
    const LZ4: u64 = 15;
    const LARGE: u64 = 16 << 20;
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    for suite in [EncryptionSuite::Aes128Ccm, EncryptionSuite::Aes128Gcm] {
        let takes_all = suite == EncryptionSuite::Aes128Gcm;
        let name = format!("made/{}", suite.name());
        let properties = [("compression", LZ4)];
        let fs = create(&pool, &name, &properties, with_key(suite, &[7; 32])).unwrap();
        let dataset = pool.dataset_tree().unwrap().open(&name).unwrap();
        let live = pool.open_dataset(&dataset).unwrap();
        let caller = Caller::SUPERUSER;
        let answers = |result: Result<(), i32>| {
            assert_eq!(result, if takes_all { Ok(()) } else { Err(EFBIG) });
        };
        let errno = |error: ZplError| error.errno();
        let [file, single, copy] = ["file", "single", "copy"].map(|name| {
            let file = make(&fs, fs.root(), name, NewKind::Regular);
            fs.truncate(file, if name == "file" { 3 * LARGE } else { 10 << 20 }, caller).unwrap();
            file
        });
        put_in_blocks(&pool, &live.objset(), file, 16 << 20, 3 << 24);
        put_in_blocks(&pool, &live.objset(), single, 10 << 20, 10 << 20);
        let noise = noise(1 << 20);
        let write = |file, at| {
            let written = fs.write(file, WriteAt::Offset(at), &noise, caller);
            written.map(drop).map_err(errno)
        };
        answers(write(file, 0));
        answers(write(file, 3 * LARGE));
        answers(fs.allocate(file, 5, 10, Allocation::Punch, caller).map_err(errno));
        answers(fs.truncate(file, 3 * LARGE - 5, caller).map_err(errno));
        // A smaller block can be written, and can grow up to there.
        write(single, 9 << 20).unwrap();
        write(single, 10 << 20).unwrap();
        answers(write(single, LARGE));
        answers(fs.truncate(single, LARGE + 1, caller).map_err(errno));
        answers(fs.allocate(single, LARGE, 1, Allocation::Zero, caller).map_err(errno));
        // Blocks are freed whole, and shared where nothing has to be written.
        let source = Files::Live(Arc::clone(&fs));
        let place = |object, offset| FilePlace { object, offset };
        put(&fs, copy, 0, b"a block of its own");
        let from = (&source, place(file, LARGE));
        let copied = fs.copy_range(place(copy, 0), from, LARGE, caller).unwrap();
        assert!(copied == LARGE, "{copied}");
        fs.allocate(file, 0, LARGE, Allocation::Punch, caller).unwrap();
        fs.truncate(file, 2 * LARGE, caller).unwrap();
        pool.sync().unwrap();
        fs.truncate(file, 0, caller).unwrap();
        write(file, 0).unwrap();
        pool.sync().unwrap();
        let mut bytes = vec![0; noise.len()];
        for (file, at, contents) in [(file, 0, &noise), (copy, 5, &vec![7; noise.len()])] {
            fs.read(file, at, &mut bytes).unwrap();
            assert!(bytes == *contents, "{name}: {file}");
        }
    }
    pool.export().unwrap();
    world.judge();
}

/// A pool that syncs only on request.
fn quiet() -> PoolOptions {
    let mut options = PoolOptions::default();
    options.tunables.zfs_txg_timeout = Duration::from_secs(3600);
    options
}

#[test]
fn encrypted_logs_are_written_claimed_and_replayed() {
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    drop(fs);
    for suite in [EncryptionSuite::Aes256Ccm, EncryptionSuite::Aes256Gcm] {
        let name = format!("made/{}", suite.name());
        create(&pool, &name, &[], with_key(suite, &[3; 32])).unwrap();
    }
    pool.export().unwrap();
    let names = ["made/aes-256-ccm", "made/aes-256-gcm"];
    let Session { pool, fs } = world.open_with(&quiet());
    drop(fs);
    let tree = pool.dataset_tree().unwrap();
    names.iter().for_each(|name| tree.open(name).unwrap().load_key(&[3; 32]).unwrap());
    let open_ones = names.map(|name| open(&pool, name));
    for fs in &open_ones {
        // The first commit starts the log.
        let first = make(fs, fs.root(), "first", NewKind::Regular);
        fs.commit(&[first]).unwrap();
    }
    let synced = pool.synced_txg();
    for fs in &open_ones {
        let file = make(fs, fs.root(), "logged", NewKind::Regular);
        put(fs, file, 0, SECRET);
        put(fs, file, 200_000, &block(3)[..70_000]);
        fs.commit(&[file]).unwrap();
        put(fs, file, 100, SECRET);
        fs.commit(&[file]).unwrap();
    }
    assert_eq!(pool.synced_txg(), synced);
    let crashed = world.copy();
    drop((open_ones, pool));
    assert!(!is_readable(&crashed, "A"));
    if let Some(listing) = crashed.zdb(&["-iiii", "-e"]) {
        assert!(listing.contains("TX_WRITE"), "{listing}");
    }
    // Claimed without the keys, which are loaded later.
    crashed.claim();
    crashed.judge();
    let Session { pool, fs } = crashed.open_with(&quiet());
    drop(fs);
    for name in names {
        let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
        dataset.load_key(&[3; 32]).unwrap();
        let fs = open(&pool, name);
        let Ok(NameTarget::Object(file)) = fs.lookup(fs.root(), b"logged") else {
            panic!("{name}")
        };
        let mut bytes = vec![0; 141];
        fs.read(file, 0, &mut bytes).unwrap();
        assert_eq!((&bytes[..SECRET.len()], &bytes[100..]), (SECRET, SECRET), "{name}");
        let mut bytes = vec![0; 70_000];
        fs.read(file, 200_000, &mut bytes).unwrap();
        assert!(bytes == block(3)[..70_000], "{name}");
    }
    pool.export().unwrap();
    crashed.judge();
}

#[test]
fn encrypted_file_systems_of_openzfs_are_changed() {
    let Some(golden) = ReferencePool::golden("g10-encrypted") else { return };
    let Some(copy) = Copy::golden("g10-encrypted") else { return };
    let keys = [b"correct horse battery\n".to_vec(), golden.text("raw.key").unwrap()];
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let locked = |name: &str| name.starts_with("g10/hex");
    let load_all = |datasets: Vec<rzfs_dsl::dataset::Dataset>| {
        for dataset in datasets {
            let is_locked = dataset.key_status().unwrap() == KeyStatus::Unavailable;
            if is_locked && !locked(dataset.name()) {
                assert!(keys.iter().any(|key| dataset.load_key(key).is_ok()), "{}", dataset.name());
            }
        }
    };
    let pool = copy.open();
    let all = || pool.dataset_tree().unwrap().root().unwrap().descendants().unwrap();
    load_all(all());
    let names: Vec<String> = all().iter().map(|dataset| dataset.name().to_owned()).collect();
    for name in &names {
        let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
        if locked(name) {
            assert_eq!(pool.open_dataset(&dataset).unwrap_err().errno(), 13, "{name}");
            continue;
        }
        let fs = open(&pool, name);
        fill(&fs, "mine");
        if let Ok(NameTarget::Object(old)) = fs.lookup(fs.root(), b"text200k") {
            put(&fs, old, 1000, b"changed");
        }
        let _ = fs.unlink(fs.root(), b"text1m");
    }
    pool.export().unwrap();
    copy.judge();
    let pool = copy.import(&OpenOptions::new());
    load_all(pool.datasets().root().unwrap().descendants().unwrap());
    for name in names.iter().filter(|name| !locked(name)) {
        let dataset = pool.datasets().open(name).unwrap();
        let objset = dataset.open_objset().unwrap();
        read_everything(&objset);
        check(&FileSystem::open(objset, FileSystemOptions::default()).unwrap(), "mine");
    }
}
