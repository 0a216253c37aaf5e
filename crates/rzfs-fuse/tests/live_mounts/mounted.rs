//! A new pool mounted for writing.

use rustix::process::{getegid, geteuid};
use rzfs_dsl::live::{LiveOptions as PoolOptions, LivePool};
use rzfs_fuse::{Access, InUse, Mount, MountOptions, Opens, Restrictions};
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::live::{LiveFileSystem, LiveOptions};
use rzfs_zpl::{AclType, ControlTree, FileSystemOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a mount may stay in use by a child process that has not called exec yet.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mount, its pool, and the directories of both.
pub(crate) struct Mounted {
    world: ImagePool,
    session: Session,
    mount: Mount,
    directory: tempfile::TempDir,
}

/// Value of the property `acltype`.
const POSIX: u64 = 1;

pub(crate) fn options() -> LiveOptions {
    let reading = FileSystemOptions { acl_type: AclType::Posix, ..FileSystemOptions::default() };
    LiveOptions::new(reading, 4711)
}

/// Mounts a file system, accessible to all users if root mounts it.
pub(crate) fn serve(
    file_system: &Arc<LiveFileSystem>,
    control: Option<ControlTree>,
    directory: &Path,
    opens: Opens,
) -> Mount {
    let is_root = geteuid().is_root();
    let options = MountOptions {
        access: if is_root { Access::Everyone } else { Access::Owner },
        restrictions: Restrictions {
            no_devices: !is_root,
            no_set_id: !is_root,
            ..Restrictions::default()
        },
        opens,
        ..MountOptions::new("made")
    };
    Mount::new(Arc::clone(file_system), control, directory, &options).unwrap()
}

/// The file system with the properties and the intent log of its dataset.
fn logged(session: Session) -> Session {
    let Session { pool, fs } = session;
    drop(fs);
    let root = pool.dataset_tree().unwrap().root().unwrap();
    let dataset = pool.open_dataset(&root).unwrap();
    let fs = LiveFileSystem::open_dataset(&pool, &dataset, options()).unwrap();
    Session { pool, fs }
}

impl Mounted {
    /// A new pool in one image.
    pub(crate) fn new() -> Self {
        Self::with_opens(Opens::Unasked)
    }

    /// A new pool for whose files each open is checked by the file system.
    pub(crate) fn with_checked_opens() -> Self {
        Self::with_opens(Opens::Checked)
    }

    fn with_opens(opens: Opens) -> Self {
        let world = ImagePool::new("A").with_property("acltype", POSIX);
        let world = world.owned_by(geteuid().as_raw(), getegid().as_raw());
        let session = world.create_files(options());
        Self::of(world, session, opens)
    }

    fn of(world: ImagePool, session: Session, opens: Opens) -> Self {
        let session = logged(session);
        let directory = tempfile::tempdir().unwrap();
        let mount = serve(&session.fs, None, directory.path(), opens);
        Self { world, session, mount, directory }
    }

    /// The mounted pool.
    pub(crate) fn pool(&self) -> &LivePool {
        &self.session.pool
    }

    /// The mounted file system.
    pub(crate) fn files(&self) -> &LiveFileSystem {
        &self.session.fs
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// The pool as it would be after a crash at this moment.
    pub(crate) fn crashed(&self) -> Session {
        self.world.copy().open_logged(options(), &PoolOptions::default())
    }

    /// Unmounts and exports the pool, checks it with zdb, and mounts it again.
    pub(crate) fn again(self) -> Self {
        let world = self.end();
        let session = world.open_files(options(), &PoolOptions::default());
        Self::of(world, session, Opens::Unasked)
    }

    /// Unmounts and exports the pool, and checks it with zdb.
    pub(crate) fn finish(self) {
        self.end();
    }

    /// Unmounts and leaves everything else as it is.
    pub(crate) fn unmount(&self) {
        unmount(&self.mount);
    }

    fn end(self) -> ImagePool {
        self.unmount();
        let Self { world, session, mount, directory } = self;
        drop(mount);
        assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
        session.export();
        world.judge();
        world
    }
}

/// Unmounts. Other tests start programs: a child of this process that has not called exec yet has
/// all files of this process open.
pub(crate) fn unmount(mount: &Mount) {
    let begun = Instant::now();
    while let Err(error) = mount.request_unmount(InUse::Refuse) {
        assert!(error.is_in_use() && begun.elapsed() < PATIENCE, "{error}");
        sleep(Duration::from_millis(10));
    }
    while !mount.is_finished() {
        sleep(Duration::from_millis(1));
    }
}
