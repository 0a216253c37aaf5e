//! A live file system: the state shared by its operations.

use super::node::LiveNode;
use super::options::LiveOptions;
use super::reclaimer::Reclaimer;
use super::salts::Salts;
use super::seed::keeps_projects;
use super::source::Live;
use super::unlinked_set::UnlinkedSet;
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::master::MasterNode;
use crate::source::Source;
use crate::sync::{Arc, Mutex};
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::txg::{Patience, TxgEngine};
use rzfs_dsl::live::HeadLog;
use rzfs_format::znode::ZplVersion;
use rzfs_format::{ByteOrder, FormatError, ObjectId};
use std::ops::Deref;
use std::sync::OnceLock;

/// A live file system.
///
/// Its current state is read as in any [`FileSystem`]. All methods take `&self`, may be called from
/// any number of threads and return when they are done in memory; changes are on disk when the
/// transaction group is. Callers check permissions: modes and access control lists are stored here,
/// not enforced. Flags such as `immutable` are.
#[derive(Debug)]
pub struct LiveFileSystem {
    files: FileSystem<Live>,
    pub(super) engine: Arc<TxgEngine>,
    /// Unlinked files, by number.
    pub(super) unlinked: Mutex<UnlinkedSet>,
    pub(super) reclaimer: Arc<Reclaimer>,
    /// Held while a directory moves, so that no directory's ancestors change.
    pub(super) renaming: Mutex<()>,
    salts: Mutex<Salts>,
    /// The intent log of the dataset.
    pub(super) log: OnceLock<HeadLog>,
    /// Callers wait for a suspended pool, instead of operations.
    callers_wait: OnceLock<()>,
}

impl LiveFileSystem {
    /// Opens the file system on a live set. Files unlinked but not freed before it was last closed
    /// wait for [`LiveFileSystem::drain_unlinked`].
    ///
    /// # Errors
    /// The set is not a file system of version 5, its byte order is not that of this machine, or
    /// its master node, attribute schema or root directory is damaged.
    pub fn open(
        objset: LiveObjset,
        engine: Arc<TxgEngine>,
        options: LiveOptions,
    ) -> Result<Arc<Self>, ZplError> {
        let master = MasterNode::read(&objset, options.reading.pool_version)?;
        if master.version < ZplVersion::SA {
            let version = master.version.number();
            return Err(ZplError::OldVersion { objset: objset.id(), version });
        }
        let mut salts = Salts::new(options.seed);
        let unlinked = UnlinkedSet::open(&objset, master.delete_queue)?;
        let source = Live::open(objset, options, &master, salts.next())?;
        let this = Self {
            files: FileSystem::new(source, master),
            unlinked: Mutex::new(unlinked),
            reclaimer: Arc::default(),
            renaming: Mutex::new(()),
            salts: Mutex::new(salts),
            log: OnceLock::new(),
            callers_wait: OnceLock::new(),
            engine,
        };
        this.source.with_file(this.root(), |root| {
            root.require_directory()?;
            if root.object().bonus_order() == ByteOrder::NATIVE {
                return Ok(());
            }
            let problem = "it has the byte order of another machine";
            Err(root.corrupt(FormatError::invalid("dnode", problem)))
        })?;
        let this = Arc::new(this);
        let files = Arc::downgrade(&this);
        this.reclaimer.attach(move |object| Some(files.upgrade()?.reclaim_or_leave_rest(object)));
        Ok(this)
    }

    /// The current options.
    #[must_use]
    pub fn options(&self) -> Arc<LiveOptions> {
        Arc::clone(&self.source.options.read())
    }

    /// Changes the options; caches stay as they are.
    pub fn change_options(&self, change: impl FnOnce(&mut LiveOptions)) {
        let mut options = self.source.options.write();
        change(Arc::make_mut(&mut options));
    }

    /// Makes operations that would wait for a suspended pool, with files locked, return
    /// [`ZplError::Suspended`] instead: their callers [wait](Self::wait_while_suspended) and retry.
    /// Operations do not wait to be durable either: see
    /// [`LiveFileSystem::callers_must_commit`]. Permanent.
    pub fn set_callers_wait(&self) {
        let _ = self.callers_wait.set(());
    }

    /// Whether callers wait instead of operations.
    pub(super) fn callers_wait_for_pool(&self) -> bool {
        self.callers_wait.get().is_some()
    }

    /// What operations do that would wait for a suspended pool.
    pub(super) fn patience(&self) -> Patience {
        match self.callers_wait_for_pool() {
            true => Patience::Leave,
            false => Patience::Wait,
        }
    }

    /// Whether the pool is suspended.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.engine.is_suspended()
    }

    /// Waits while the pool is suspended, unless changes are refused meanwhile.
    pub fn wait_while_suspended(&self) {
        self.engine.wait_while_suspended();
    }

    /// A random number for a new ZAP.
    pub(super) fn salt(&self) -> u64 {
        self.salts.lock().next()
    }

    /// Whether files have project ids.
    pub(super) fn keeps_projects(&self) -> bool {
        keeps_projects(self.objset())
    }

    /// The file with this number, even if it is unlinked.
    pub(super) fn node(&self, id: ObjectId) -> Result<Arc<LiveNode>, ZplError> {
        self.source.node(id)
    }
}

impl Deref for LiveFileSystem {
    type Target = FileSystem<Live>;

    fn deref(&self) -> &FileSystem<Live> {
        &self.files
    }
}
