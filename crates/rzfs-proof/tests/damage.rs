//! Damaged blocks that somebody wants to read are in the pool's error log from the next txg on.

use rzfs_dsl::Pool;
use rzfs_dsl::live::NewSnapshots;
use rzfs_dsl::pool::{ErrorLog, ErrorLogEntry};
use rzfs_format::features::Feature;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, ObjsetId};
use rzfs_proof::{
    FeatureSet, Files, OpenPool, PoolFiles, Settings, Shape, names, read_dataset, walk,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

/// Where the allocatable space of a device begins, behind two labels and the boot area.
const DATA_START: u64 = 4 << 20;
/// The file that is damaged, in its second block.
const FILE: &str = "damaged";
const DAMAGED: u64 = 1;

/// A pool in one image file.
struct World {
    directory: TempDir,
    shape: Shape,
    settings: Settings,
}

impl World {
    fn new(features: FeatureSet) -> Self {
        let shape = Shape { features, ..Shape::named("single").unwrap() };
        Self { directory: tempfile::tempdir().unwrap(), shape, settings: Settings::default() }
    }

    fn files(&self) -> PoolFiles {
        PoolFiles::new(self.directory.path(), self.shape.name)
    }

    fn read(&self) -> Pool {
        self.files().read(&self.settings).unwrap()
    }

    fn open(&self) -> OpenPool {
        self.files().open(&self.settings).unwrap()
    }

    /// Makes the pool with a file system that has a file, and damages that.
    fn damaged(&self) -> (Bookmark, BlockPointer) {
        let mut open = self.files().create(&self.shape, &self.settings).unwrap();
        open.create_file_system("single/fs").unwrap();
        let contents: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
        Files(&open.file_systems["single/fs"]).put(FILE, &contents).unwrap();
        open.export().unwrap();
        let pool = self.read();
        let fs = read_dataset(&pool, "single/fs").unwrap();
        let object = names(&fs, fs.root()).unwrap()[0].1;
        let file = fs.objset().object(object).unwrap();
        let pointer = file.pointers(0, DAMAGED..DAMAGED + 1).remove(0).unwrap();
        let offset = pointer.dvas().next().unwrap().offset() + DATA_START;
        let image = File::options().write(true).open(self.directory.path().join("A")).unwrap();
        image.write_all_at(b"damage", offset).unwrap();
        let (objset, block) = (fs.objset().id(), BlockId(DAMAGED));
        (Bookmark { objset, object, level: Level(0), block }, pointer)
    }

    /// Reads the file, which fails, and tells what is in the log afterwards.
    fn errors_after_reading(&self) -> Vec<ErrorLogEntry> {
        let open = self.open();
        let fs = &open.file_systems["single/fs"];
        let object = Files(fs).find(FILE).unwrap();
        for _ in 0..2 {
            assert!(fs.read_segments(object, 0, 1_000_000).is_err());
            open.sync().unwrap();
        }
        open.export().unwrap();
        self.read().errors().unwrap()
    }
}

fn entry(bookmark: Bookmark, pointer: Option<&BlockPointer>) -> ErrorLogEntry {
    let birth = pointer.map(BlockPointer::physical_birth);
    ErrorLogEntry { log: ErrorLog::Last, bookmark, birth }
}

#[test]
fn a_damaged_block_is_in_the_error_log_until_its_file_system_is_destroyed() {
    let world = World::new(FeatureSet::Default);
    let (bookmark, pointer) = world.damaged();
    assert_eq!(world.errors_after_reading(), [entry(bookmark, Some(&pointer))]);
    let mut open = world.open();
    open.destroy_file_system("single/fs").unwrap();
    open.export().unwrap();
    let pool = world.read();
    assert_eq!(pool.errors().unwrap(), []);
    // Nothing is left of the log of the file system, nor of its blocks.
    assert_eq!(walk(&pool).unwrap(), None);
}

#[test]
fn the_error_log_of_a_pool_without_features_names_blocks_by_place() {
    let world = World::new(FeatureSet::None);
    let (bookmark, pointer) = world.damaged();
    assert_eq!(world.errors_after_reading(), [entry(bookmark, None)]);
    let open = world.open();
    open.pool.enable_features(&[Feature::HeadErrorLog]).unwrap();
    open.export().unwrap();
    assert_eq!(world.read().errors().unwrap(), [entry(bookmark, Some(&pointer))]);
}

#[test]
fn what_is_whole_is_not_in_the_error_log() {
    let world = World::new(FeatureSet::Default);
    world.damaged();
    let open = world.open();
    let fs = &open.file_systems["single/fs"];
    let object = Files(fs).find(FILE).unwrap();
    fs.read_segments(object, 0, 100_000).unwrap();
    open.export().unwrap();
    assert_eq!(world.read().errors().unwrap(), []);
}

#[test]
fn errors_in_what_changes_hands_are_those_of_its_new_head() {
    let world = World::new(FeatureSet::Default);
    let (bookmark, pointer) = world.damaged();
    assert_eq!(world.errors_after_reading().len(), 1);
    let mut open = world.open();
    let names = vec!["single/fs@s".to_owned()];
    open.pool.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() }).unwrap();
    open.clone_snapshot("single/fs@s", "single/clone").unwrap();
    open.pool.promote("single/clone").unwrap();
    open.export().unwrap();
    let pool = world.read();
    let clone = pool.datasets().open("single/clone").unwrap();
    let bookmark = Bookmark { objset: ObjsetId(clone.object().get()), ..bookmark };
    assert_eq!(pool.errors().unwrap(), [entry(bookmark, Some(&pointer))]);
}
