//! OpenZFS pools with clones, bookmarks, checkpoints and removed vdevs, changed by this
//! implementation; OpenZFS's zdb finds them intact afterwards.

use crate::{block, make, put};
use rzfs_blockdev::{Access, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{
    DeviceSource, Discovery, HostCheck, HostIdentity, ImportFailure, ImportOptions, MissingLogs,
};
use rzfs_dsl::live::{LiveOptions as PoolOptions, LivePool, SystemEnvironment};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_testkit::ReferencePool;
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewKind};
use rzfs_zpl::{DirCookie, FileSystemOptions, NameTarget};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;

/// A copy of a pool made by OpenZFS.
pub(crate) struct Copy {
    dir: tempfile::TempDir,
    name: String,
}

impl Copy {
    pub(crate) fn golden(name: &str) -> Option<Self> {
        let reference = ReferencePool::golden(name)?;
        let dir = tempfile::tempdir().unwrap();
        for image in reference.images().unwrap() {
            let copied = Command::new("cp")
                .arg("--sparse=always")
                .arg(&image)
                .arg(dir.path())
                .status()
                .unwrap();
            assert!(copied.success(), "{}", image.display());
        }
        Some(Self::in_directory(dir))
    }

    /// A copy of a sample of the repository.
    pub(crate) fn sample(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        rzfs_testkit::unpack_sample(name, &dir.path().join(name)).unwrap();
        Self::in_directory(dir)
    }

    fn in_directory(dir: tempfile::TempDir) -> Self {
        let copy = Self { dir, name: String::new() };
        let name = copy.import(&OpenOptions::new()).name().to_owned();
        Self { name, ..copy }
    }

    pub(crate) fn import(&self, options: &OpenOptions) -> Pool {
        self.try_import(options, MissingLogs::Refuse).unwrap()
    }

    fn try_import(
        &self,
        options: &OpenOptions,
        missing_logs: MissingLogs,
    ) -> Result<Pool, ImportFailure> {
        let sources = [DeviceSource::Path(self.dir.path().to_owned())];
        let discovery = Discovery::search(&sources, options);
        let [found] = discovery.pools() else { panic!("not one pool") };
        let host_check = HostCheck::Override;
        let options = ImportOptions { host_check, missing_logs, ..Default::default() };
        Pool::import(found, &options)
    }

    /// Removes a device.
    pub(crate) fn lose(&self, image: &str) {
        std::fs::remove_file(self.dir.path().join(image)).unwrap();
    }

    pub(crate) fn open(&self) -> LivePool {
        self.open_anyway(MissingLogs::Refuse).unwrap()
    }

    pub(crate) fn open_anyway(&self, missing_logs: MissingLogs) -> Result<LivePool, ImportFailure> {
        let pool = self.try_import(&OpenOptions::new().access(Access::ReadWrite), missing_logs)?;
        let host = HostIdentity { id: 0, name: Some("here".to_owned()) };
        let environment = Arc::new(SystemEnvironment::new(host));
        Ok(LivePool::open(&pool, environment, &PoolOptions::default()).unwrap())
    }

    /// Checks the pool: by a walk over all of its blocks, and by OpenZFS's zdb.
    pub(crate) fn judge(&self) {
        assert_eq!(rzfs_proof::walk(&self.import(&OpenOptions::new())).unwrap(), None);
        for options in [&["-bcc", "-e"][..], &["-dddd", "-e"], &["-y", "-e"]] {
            let Some(text) = self.zdb(options) else { return };
            assert!(options[0] != "-bcc" || text.contains("No leaks"), "{text}");
        }
    }

    /// The same by our own walk, where the log device `vdev` is missing: what intent logs had there is
    /// leaked, and nothing else is wrong.
    pub(crate) fn judge_without_log(&self, vdev: u32) {
        let pool = self.try_import(&OpenOptions::new(), MissingLogs::Ignore).unwrap();
        let findings = rzfs_proof::walk_in_full(&pool).unwrap();
        let text = findings.join("\n");
        for wrong in ["claim error", "Got error", "unreachable"] {
            assert!(!text.contains(wrong), "{text}");
        }
        let there = format!("leaked space: vdev {vdev},");
        let mut leaks = findings.iter().filter(|line| line.starts_with("leaked space:"));
        assert!(leaks.all(|line| line.starts_with(&there)), "{text}");
    }

    fn zdb(&self, options: &[&str]) -> Option<String> {
        let options = options.iter().map(OsStr::new);
        let pool = [OsStr::new("-p"), self.dir.path().as_os_str(), self.name.as_ref()];
        rzfs_testkit::zdb(options.chain(pool))
    }
}

/// Writes, overwrites and removes files of a dataset, over several txgs.
fn change(pool: &LivePool, name: &str, file: &str) {
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let live = pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let fs = LiveFileSystem::open_dataset(pool, &live, options).unwrap();
    let new = make(&fs, fs.root(), file, NewKind::Regular);
    for round in 0..3 {
        for number in 0..8 {
            put(&fs, new, number * (128 << 10), &block(number + round + 1));
        }
        for old in [&b"text200k"[..], b"b131073", b"b4096"] {
            if let Ok(NameTarget::Object(old)) = fs.lookup(fs.root(), old) {
                put(&fs, old, round * 1000, b"changed");
            }
        }
        pool.sync().unwrap();
    }
    for old in [&b"text1m"[..], b"b131072", b"sparse"] {
        let _ = fs.unlink(fs.root(), old);
    }
    pool.sync().unwrap();
}

fn wait_freed(pool: &LivePool) {
    for _ in 0..6 {
        pool.sync().unwrap();
    }
}

#[test]
fn clones_keep_their_livelists_and_bookmarks_their_sums() {
    let Some(copy) = Copy::golden("g01-default") else { return };
    let pool = copy.open();
    let names = ["g01/clone", "g01/sa", "g01/xdir", "g01"];
    names.iter().for_each(|name| change(&pool, name, "first"));
    pool.export().unwrap();
    copy.judge();
    let pool = copy.open();
    change(&pool, "g01/clone", "second");
    assert!(pool.destroy_dataset("g01/sa").is_err());
    pool.destroy_dataset("g01/clone").unwrap();
    wait_freed(&pool);
    pool.export().unwrap();
    copy.judge();
}

#[test]
fn what_a_checkpoint_has_stays() {
    let Some(copy) = Copy::golden("g17-checkpoint") else { return };
    let pool = copy.open();
    let root = pool.dataset_tree().unwrap().root().unwrap();
    let names: Vec<String> =
        root.descendants().unwrap().iter().map(|dataset| dataset.name().to_owned()).collect();
    names.iter().for_each(|name| change(&pool, name, "first"));
    assert!(pool.change_guid().is_err());
    pool.export().unwrap();
    copy.judge();
    if let Some(text) = copy.zdb(&["-k", "-bcc", "-e"]) {
        assert!(!text.contains("leaked space"), "{text}");
    }
}

#[test]
fn blocks_of_removed_vdevs_are_freed_where_they_are() {
    let Some(copy) = Copy::golden("g15-removed") else { return };
    let pool = copy.open();
    let root = pool.dataset_tree().unwrap().root().unwrap();
    let names: Vec<String> =
        root.descendants().unwrap().iter().map(|dataset| dataset.name().to_owned()).collect();
    names.iter().for_each(|name| change(&pool, name, "first"));
    pool.export().unwrap();
    copy.judge();
}

/// The datasets below the root of a pool, deepest first.
fn datasets(pool: &LivePool) -> Vec<String> {
    let root = pool.dataset_tree().unwrap().root().unwrap();
    let mut names: Vec<String> =
        root.descendants().unwrap().iter().map(|dataset| dataset.name().to_owned()).collect();
    names.retain(|name| name.contains('/'));
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

/// Removes all files of a dataset.
fn remove_all(pool: &LivePool, name: &str) {
    fn below(fs: &LiveFileSystem, directory: ObjectId) {
        let mut names = Vec::new();
        fs.read_dir(directory, DirCookie::START, |entry| {
            names.push((entry.name.to_vec(), entry.kind, entry.object));
            ControlFlow::Continue(())
        })
        .unwrap();
        for (name, kind, object) in names {
            match kind {
                _ if matches!(&name[..], b"." | b"..") => {}
                FileKind::Directory => {
                    below(fs, object);
                    fs.rmdir(directory, &name).unwrap();
                }
                _ => fs.unlink(directory, &name).unwrap(),
            }
        }
    }
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let live = pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let fs = LiveFileSystem::open_dataset(pool, &live, options).unwrap();
    below(&fs, fs.root());
}

#[test]
fn shared_blocks_are_freed_with_their_last_owner() {
    for golden in ["g11-dedup", "g12-fdt-clone", "g13-classes"] {
        let Some(copy) = Copy::golden(golden) else { continue };
        let pool = copy.open();
        let names = datasets(&pool);
        names.iter().for_each(|name| change(&pool, name, "first"));
        pool.export().unwrap();
        copy.judge();
        let pool = copy.open();
        for name in &names {
            remove_all(&pool, name);
            wait_freed(&pool);
        }
        let view = pool.view().unwrap();
        assert!(view.dedup_tables().unwrap().is_empty(), "{golden}");
        assert_eq!(view.clone_savings().unwrap().saved, 0, "{golden}");
        drop(view);
        pool.export().unwrap();
        copy.judge();
        if let Some(text) = copy.zdb(&["-TTT", "-e"]) {
            assert!(!text.contains("refcnt "), "{text}");
        }
    }
}
