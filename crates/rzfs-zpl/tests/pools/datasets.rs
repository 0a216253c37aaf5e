//! Creating, changing and destroying datasets in a live pool.

use crate::{block, make, put};
use rzfs_blockdev::OpenOptions;
use rzfs_dsl::dataset::property::{DatasetProperty, PropertySource, PropertyValue};
use rzfs_dsl::dataset::{Dataset, DatasetTree};
use rzfs_dsl::live::{ChangeError, Inherit, LiveDataset, LiveOptions as PoolOptions, NewDataset};
use rzfs_format::bpobj::{BptreeEntry, BptreeHeader};
use rzfs_format::features::Feature;
use rzfs_format::units::Bookmark;
use rzfs_format::znode::Timestamp;
use rzfs_format::{ByteOrder, Level, ObjectId};
use rzfs_proof::{ImagePool, Session};
use rzfs_zap::ZapValue;
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewFileSystem, NewKind};
use rzfs_zpl::{FileSystem, FileSystemOptions, NameTarget};
use std::collections::BTreeSet;
use std::sync::Arc;

fn new(properties: &[(&str, ZapValue)]) -> NewDataset {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let properties =
        properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    NewDataset::new(Arc::new(NewFileSystem::new(now, 7)), properties)
}

fn mount(session: &Session, dataset: &LiveDataset) -> Arc<LiveFileSystem> {
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let engine = Arc::clone(session.pool.engine());
    LiveFileSystem::open(dataset.objset(), engine, options).unwrap()
}

/// Writes a file of `blocks` blocks into a dataset.
fn fill(session: &Session, name: &str, file: &str, blocks: u64) {
    let dataset = session.pool.dataset_tree().unwrap().open(name).unwrap();
    let live = session.pool.open_dataset(&dataset).unwrap();
    let fs = mount(session, &live);
    let file = make(&fs, fs.root(), file, NewKind::Regular);
    for number in 0..blocks {
        put(&fs, file, number * (128 << 10), &block(number + 1));
    }
    session.pool.sync().unwrap();
}

fn create(session: &Session, name: &str, properties: &[(&str, ZapValue)]) {
    session.pool.create_dataset(name, new(properties)).unwrap();
}

/// Checks the space sums of all directories (spec 04, section 12.2).
fn check_sums(tree: &DatasetTree) {
    for dataset in tree.root().unwrap().descendants().unwrap() {
        let dir = dataset.dsl_dir();
        let parts = dir.breakdown;
        let sum = parts.head
            + parts.snapshots
            + parts.children
            + parts.child_reservations
            + parts.refreservation;
        assert_eq!(sum, dir.used, "{}: {parts:?}", dataset.name());
        let children = dataset.children().unwrap();
        let used: u64 = children.iter().map(|child| child.dsl_dir().used).sum();
        let excess = |child: &Dataset| {
            let dir = child.dsl_dir();
            dir.reserved.saturating_sub(dir.used)
        };
        let reserved: u64 = children.iter().map(excess).sum();
        assert_eq!(parts.child_reservations, reserved, "{}", dataset.name());
        if dataset.name().contains('/') {
            assert_eq!(parts.children, used, "{}", dataset.name());
        }
    }
}

fn used(session: &Session, name: &str) -> u64 {
    let dataset = session.pool.dataset_tree().unwrap().open(name).unwrap();
    dataset.dsl_dir().used
}

fn freeing(session: &Session) -> bool {
    let tree = session.pool.dataset_tree().unwrap();
    let directory = tree.mos().object(ObjectId(1)).unwrap();
    directory.zap().unwrap().lookup_u64("bptree_obj").unwrap().is_some()
}

/// Where the destruction of the first dataset on the list resumes.
fn resume_place(session: &Session) -> Option<Bookmark> {
    let tree = session.pool.dataset_tree().unwrap();
    let directory = tree.mos().object(ObjectId(1)).unwrap();
    let list = directory.zap().unwrap().lookup_u64("bptree_obj").unwrap()?;
    let list = tree.mos().object(ObjectId(list)).unwrap();
    let header = BptreeHeader::decode(list.bonus(), ByteOrder::NATIVE).unwrap();
    let mut entry = [0; BptreeEntry::SIZE];
    list.read_at(header.begin * BptreeEntry::SIZE as u64, &mut entry).unwrap();
    Some(BptreeEntry::decode(&entry, ByteOrder::NATIVE).unwrap().resume)
}

/// Waits until background freeing is done.
fn wait_freed(session: &Session) {
    while freeing(session) {
        session.pool.sync().unwrap();
    }
    session.pool.sync().unwrap();
}

fn number(world: &ImagePool, name: &str, property: &str) -> (u64, PropertySource) {
    let pool = world.import(&OpenOptions::new());
    let dataset = pool.datasets().open(name).unwrap();
    let source = dataset.property(property).unwrap().unwrap().source;
    let property = DatasetProperty::from_name(property).unwrap();
    (dataset.stored_number(property).unwrap().unwrap(), source)
}

#[test]
fn datasets_are_made_and_hold_files() {
    let world = ImagePool::new("mirror A B");
    let session = world.create();
    create(&session, "made/a", &[("compression", 16.into()), ("org.example:x", "y".into())]);
    create(&session, "made/a/b", &[("quota", (64_u64 << 20).into())]);
    create(&session, "made/c", &[("recordsize", (1_u64 << 20).into())]);
    fill(&session, "made/a", "file", 10);
    fill(&session, "made/a/b", "file", 5);
    check_sums(&session.pool.dataset_tree().unwrap());
    session.export();
    world.judge();
    let inherited = PropertySource::Inherited("made/a".to_owned());
    assert_eq!(number(&world, "made/a/b", "compression"), (16, inherited));
    let pool = world.import(&OpenOptions::new());
    for (name, blocks) in [("made/a", 10), ("made/a/b", 5)] {
        let objset = pool.datasets().open(name).unwrap().open_objset().unwrap();
        let fs = FileSystem::open(objset, FileSystemOptions::default()).unwrap();
        let Ok(NameTarget::Object(file)) = fs.lookup(fs.root(), b"file") else { panic!("{name}") };
        assert_eq!(fs.attributes(file).unwrap().size, blocks * (128 << 10));
    }
    let x = pool.datasets().open("made/a/b").unwrap().property("org.example:x").unwrap().unwrap();
    assert_eq!(x.value, Some(PropertyValue::Text("y".to_owned())));
    let history = pool.history().unwrap().unwrap();
    let texts: Vec<String> = history.map(|record| format!("{record:?}")).collect();
    assert!(texts.iter().any(|text| text.contains("made/a/b") && text.contains("create")));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let world = ImagePool::new("A");
    let session = world.create();
    create(&session, "made/a", &[]);
    create(&session, "made/a/b", &[]);
    let pool = &session.pool;
    let before = pool.uberblock().mos;
    let creation = |name: &str| pool.create_dataset(name, new(&[])).unwrap_err();
    assert!(matches!(creation("made/a"), ChangeError::Exists { .. }));
    assert!(matches!(creation("made/x/y"), ChangeError::NoParent { .. }));
    assert!(matches!(creation("other/x"), ChangeError::NoParent { .. }));
    assert!(matches!(creation("made/b*d"), ChangeError::InvalidName { .. }));
    let long = format!("made/{}", "x".repeat(251));
    assert!(matches!(creation(&long), ChangeError::NameTooLong { .. }));
    let bad = pool.create_dataset("made/q", new(&[("copies", 9.into())])).unwrap_err();
    assert!(matches!(bad, ChangeError::InvalidValue { .. }));
    let rename = |from, to| pool.rename_dataset(from, to).unwrap_err();
    assert!(matches!(rename("made/a", "made/a/b/c"), ChangeError::BelowItself { .. }));
    assert!(matches!(rename("made/a/b", "made/a"), ChangeError::Exists { .. }));
    assert!(matches!(rename("made/z", "made/y"), ChangeError::NotFound { .. }));
    assert!(matches!(rename("made/a", "tank/a"), ChangeError::CrossesPools { .. }));
    let destroy = |name| pool.destroy_dataset(name).unwrap_err();
    assert!(matches!(destroy("made/a"), ChangeError::HasChildren { .. }));
    assert!(matches!(destroy("made/none"), ChangeError::NotFound { .. }));
    assert!(matches!(destroy("made"), ChangeError::Busy { .. }));
    let b = pool.open_dataset(&pool.dataset_tree().unwrap().open("made/a/b").unwrap()).unwrap();
    assert!(matches!(destroy("made/a/b"), ChangeError::Busy { .. }));
    drop(b);
    let set = |name, value: u64| pool.set_property("made/a", name, value.into()).unwrap_err();
    assert!(matches!(set("quota", 1), ChangeError::QuotaTooSmall { .. }));
    assert!(matches!(set("refquota", 1), ChangeError::QuotaTooSmall { .. }));
    assert!(matches!(set("reservation", 1 << 40), ChangeError::ReservationTooLarge { .. }));
    assert!(matches!(set("refreservation", 1 << 40), ChangeError::ReservationTooLarge { .. }));
    assert!(matches!(set("used", 1), ChangeError::UnknownProperty { .. }));
    assert!(matches!(set("volsize", 1 << 20), ChangeError::UnknownProperty { .. }));
    let inherit = pool.inherit_property("made/a", "quota", Inherit::Parent).unwrap_err();
    assert!(matches!(inherit, ChangeError::NotInheritable { .. }));
    assert_eq!(pool.uberblock().mos, before, "something was written");
    pool.set_property("made/a", "refquota", (8_u64 << 20).into()).unwrap();
    assert!(matches!(set("refreservation", 9 << 20), ChangeError::ReservationTooLarge { .. }));
    pool.set_property("made/a", "refreservation", (7_u64 << 20).into()).unwrap();
    assert!(matches!(set("refquota", 6 << 20), ChangeError::QuotaTooSmall { .. }));
    pool.destroy_dataset("made/a/b").unwrap();
    session.export();
    world.judge();
}

#[test]
fn destroyed_datasets_give_their_space_back() {
    let world = ImagePool::new("raidz1 A B C");
    let session = world.create();
    let before = used(&session, "made");
    create(&session, "made/a", &[("refreservation", (8_u64 << 20).into())]);
    create(&session, "made/a/b", &[("reservation", (4_u64 << 20).into())]);
    fill(&session, "made/a", "file", 100);
    fill(&session, "made/a/b", "file", 20);
    check_sums(&session.pool.dataset_tree().unwrap());
    session.export();
    // Nothing is freed in the background, however many txgs pass.
    let session = world.open_with(&freeing_slowly(0));
    session.pool.destroy_dataset("made/a/b").unwrap();
    session.pool.destroy_dataset("made/a").unwrap();
    check_sums(&session.pool.dataset_tree().unwrap());
    assert!(freeing(&session));
    session.abandon();
    world.judge();
    // A few blocks in each txg, so that the walk resumes again and again, also in another process.
    let options = freeing_slowly(7);
    for _ in 0..3 {
        let session = world.open_with(&options);
        session.pool.sync().unwrap();
        session.abandon();
        world.judge();
    }
    let session = world.open_with(&options);
    wait_freed(&session);
    let tree = session.pool.dataset_tree().unwrap();
    check_sums(&tree);
    let after = used(&session, "made");
    assert!(after < before + (2 << 20), "{before} {after}");
    session.export();
    world.judge();
}

/// A pool that frees this many blocks of destroyed datasets in one txg.
fn freeing_slowly(blocks: usize) -> PoolOptions {
    let mut options = PoolOptions::default();
    options.tunables.zfs_async_block_max_blocks = blocks;
    options
}

/// OpenZFS resumes at data blocks, and `zdb` aborts at any other position.
#[test]
fn destructions_rest_at_data_blocks() {
    let world = ImagePool::new("A");
    let session = world.create();
    create(&session, "made/a", &[]);
    fill(&session, "made/a", "large", 3);
    fill(&session, "made/a", "small", 1);
    session.export();
    let session = world.open_with(&freeing_slowly(1));
    session.pool.destroy_dataset("made/a").unwrap();
    let mut places = Vec::new();
    while freeing(&session) {
        places.extend(resume_place(&session));
        session.pool.sync().unwrap();
    }
    assert!(places.iter().all(|place| place.level == Level::DATA), "{places:?}");
    let objects: BTreeSet<ObjectId> = places.iter().map(|place| place.object).collect();
    assert!(objects.len() > 3, "{places:?}");
    session.export();
    world.judge();
}

#[test]
fn renamed_datasets_take_everything_along() {
    let world = ImagePool::new("A");
    let session = world.create();
    for name in ["made/a", "made/a/b", "made/c", "made/c/d"] {
        create(&session, name, &[]);
    }
    fill(&session, "made/a/b", "file", 30);
    let pool = &session.pool;
    pool.set_property("made/a/b", "reservation", (16_u64 << 20).into()).unwrap();
    pool.set_property("made/c", "filesystem_limit", 10.into()).unwrap();
    let open = pool.open_dataset(&pool.dataset_tree().unwrap().open("made/a/b").unwrap()).unwrap();
    pool.rename_dataset("made/a", "made/c/e").unwrap();
    assert_eq!(open.name(), "made/c/e/b");
    check_sums(&pool.dataset_tree().unwrap());
    let c = pool.dataset_tree().unwrap().open("made/c").unwrap();
    assert_eq!(c.directory_field("com.joyent:filesystem_count").unwrap(), Some(3));
    drop(open);
    pool.rename_dataset("made/c/e/b", "made/b").unwrap();
    check_sums(&pool.dataset_tree().unwrap());
    let c = pool.dataset_tree().unwrap().open("made/c").unwrap();
    assert_eq!(c.directory_field("com.joyent:filesystem_count").unwrap(), Some(2));
    session.export();
    world.judge();
}

#[test]
fn properties_act_on_open_datasets_at_once() {
    let world = ImagePool::new("A");
    let session = world.create();
    create(&session, "made/a", &[]);
    create(&session, "made/a/b", &[]);
    let pool = &session.pool;
    let open = pool.open_dataset(&pool.dataset_tree().unwrap().open("made/a/b").unwrap()).unwrap();
    let before = open.policy();
    pool.set_property("made/a", "compression", 2.into()).unwrap();
    pool.set_property("made/a/b", "copies", 2.into()).unwrap();
    assert_ne!(open.policy(), before);
    assert_eq!(open.policy().copies, 2);
    assert_eq!(open.settings().number(DatasetProperty::Compression), Some(2));
    pool.set_property("made/a/b", "redundant_metadata", 2.into()).unwrap();
    assert_eq!(open.settings().number(DatasetProperty::RedundantMetadata), Some(2));
    pool.inherit_property("made/a/b", "copies", Inherit::Parent).unwrap();
    pool.inherit_property("made/a", "compression", Inherit::Parent).unwrap();
    assert_eq!(open.policy().compression, before.compression);
    pool.set_property("made/a", "reservation", (5_u64 << 20).into()).unwrap();
    pool.set_property("made/a", "quota", (50_u64 << 20).into()).unwrap();
    pool.set_property("made/a/b", "refreservation", (9_u64 << 20).into()).unwrap();
    check_sums(&pool.dataset_tree().unwrap());
    pool.set_property("made/a/b", "refreservation", 0.into()).unwrap();
    pool.set_property("made/a", "reservation", 0.into()).unwrap();
    check_sums(&pool.dataset_tree().unwrap());
    drop(open);
    session.export();
    world.judge();
    assert_eq!(number(&world, "made/a", "quota"), (50 << 20, PropertySource::Local));
    assert_eq!(number(&world, "made/a/b", "redundant_metadata"), (2, PropertySource::Local));
    assert_eq!(number(&world, "made/a/b", "copies"), (1, PropertySource::Default));
}

#[test]
fn pools_change_their_properties_features_and_guid() {
    let world = ImagePool::new("mirror A B");
    let session = world.create();
    let pool = &session.pool;
    create(&session, "made/a", &[]);
    pool.set_pool_property("comment", "hello".into()).unwrap();
    pool.set_pool_property("autotrim", 1.into()).unwrap();
    pool.set_pool_property("bootfs", "made/a".into()).unwrap();
    pool.set_pool_property("org.example:a", "b".into()).unwrap();
    pool.set_pool_property("org.example:c", "d".into()).unwrap();
    pool.set_pool_property("org.example:c", "".into()).unwrap();
    assert!(pool.set_pool_property("size", 1.into()).is_err());
    assert!(pool.set_pool_property("failmode", 3.into()).is_err());
    pool.enable_features(&[Feature::Skein, Feature::LargeBlocks]).unwrap();
    let guid = pool.change_guid().unwrap();
    session.export();
    world.judge();
    let pool = world.import(&OpenOptions::new());
    assert_eq!(pool.guid(), guid);
    let properties = pool.properties().unwrap();
    assert_eq!(properties.comment.value.as_deref(), Some("hello"));
    assert!(properties.autotrim.value);
    let head = pool.datasets().open("made/a").unwrap().object();
    assert_eq!(properties.bootfs.value, Some(head));
    assert_eq!(properties.user, [("org.example:a".to_owned(), "b".to_owned())]);
    let session = world.open();
    session.pool.destroy_dataset("made/a").unwrap();
    wait_freed(&session);
    session.export();
    world.judge();
    let properties = world.import(&OpenOptions::new()).properties().unwrap();
    assert_eq!(properties.bootfs.value, None);
}
