//! Disks, partitions and regular files.

use crate::engine::transfer::{Progress, Step, Transfer};
use crate::open_file::OpenFile;
use crate::reply::Answer;
use crate::{
    Access, BlockDevice, Caching, CompletionQueue, DeviceError, DeviceGeometry, EngineOptions,
    IoBuffer, IoEngine, IoOperation, IoRequest, OpenError,
};
use parking_lot::Mutex;
use rustix::io::ReadWriteFlags;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

/// Maximum bytes of one batch copied from the kernel's page cache immediately; beyond that,
/// submitting would no longer be quick.
const MAX_INLINE: usize = 1 << 20;

/// How reads are handled that the kernel's page cache can satisfy without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachedReads {
    /// `submit` tries them immediately, up to 1 MiB in a batch: no thread has to wake up.
    #[default]
    Inline,
    /// They go to the engine like all others.
    Queued,
}

/// How devices are opened.
///
/// All devices opened with the same options, or with clones of them, share one [`IoEngine`]. It
/// starts with the first device, unless one was given.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    access: Access,
    caching: Caching,
    cached_reads: CachedReads,
    engine_options: EngineOptions,
    engine: Arc<Mutex<Option<IoEngine>>>,
}

impl OpenOptions {
    /// Read-only, with the caching and backend that suit the device and the kernel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The access rights of the devices.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Whether the kernel's page cache is used.
    #[must_use]
    pub fn caching(mut self, caching: Caching) -> Self {
        self.caching = caching;
        self
    }

    /// How reads are handled that the kernel's page cache can satisfy.
    #[must_use]
    pub fn cached_reads(mut self, cached_reads: CachedReads) -> Self {
        self.cached_reads = cached_reads;
        self
    }

    /// Uses a running engine.
    #[must_use]
    pub fn engine(mut self, engine: IoEngine) -> Self {
        self.engine = Arc::new(Mutex::new(Some(engine)));
        self
    }

    /// The options of the engine when the first device is opened.
    #[must_use]
    pub fn engine_options(mut self, options: EngineOptions) -> Self {
        self.engine_options = options;
        self.engine = Arc::default();
        self
    }

    fn shared_engine(&self) -> std::io::Result<IoEngine> {
        let mut engine = self.engine.lock();
        if let Some(engine) = &*engine {
            return Ok(engine.clone());
        }
        Ok(engine.insert(IoEngine::new(&self.engine_options)?).clone())
    }
}

/// A disk, partition or regular file.
pub struct FileDevice {
    file: Arc<OpenFile>,
    engine: IoEngine,
    cached_reads: CachedReads,
}

impl FileDevice {
    /// Opens a disk, partition or regular file.
    ///
    /// The size is that at the time of opening: a file that grows later does not. A device opened
    /// for writing cannot be written by others until it is dropped.
    ///
    /// # Errors
    /// The system's error; `ENOTBLK` for anything but a block device or regular file, `EBUSY` for
    /// one that already has a writer, `EROFS` for writing one that is read-only.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let fail = |source| OpenError::new(path, source);
        let engine = options.shared_engine().map_err(fail)?;
        let id = engine.next_file_id();
        let file = OpenFile::open(path, options.access, options.caching, id).map_err(fail)?;
        Ok(Self { file: Arc::new(file), engine, cached_reads: options.cached_reads })
    }

    /// Whether reads and writes bypass the kernel's page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// The access rights of the device.
    #[must_use]
    pub fn access(&self) -> Access {
        self.file.access()
    }

    /// The metadata of the opened file, whatever has its name by now.
    ///
    /// # Errors
    /// The error of the system.
    pub fn metadata(&self) -> std::io::Result<Metadata> {
        File::from(self.file.fd().try_clone_to_owned()?).metadata()
    }

    /// The engine that performs the I/O.
    #[must_use]
    pub fn engine(&self) -> &IoEngine {
        &self.engine
    }

    /// Completes reads that the page cache can satisfy; returns the others.
    fn read_cached(&self, transfers: Vec<Transfer>) -> Vec<Transfer> {
        let mut budget = MAX_INLINE;
        let mut rest = Vec::new();
        let mut answers = Vec::new();
        for transfer in transfers {
            match transfer.read_len().and_then(|len| budget.checked_sub(len)) {
                Some(left) => {
                    budget = left;
                    match self.try_read_cached(transfer) {
                        Progress::Unfinished(transfer) => rest.push(transfer),
                        Progress::Answered(answer) => answers.push(answer),
                    }
                }
                None => rest.push(transfer),
            }
        }
        Answer::deliver_all(&mut answers);
        rest
    }

    fn try_read_cached(&self, mut transfer: Transfer) -> Progress {
        let Step::Read { offset, buffer } = transfer.step() else {
            return Progress::Unfinished(transfer);
        };
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(self.file.fd(), &mut slices, offset, ReadWriteFlags::NOWAIT) {
            // An empty result may mean the end of the file or that the kernel would have to wait;
            // the engine finds out.
            Ok(0) | Err(_) => Progress::Unfinished(transfer),
            Ok(count) => transfer.advance(Ok(count)),
        }
    }
}

impl BlockDevice for FileDevice {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        *self.file.geometry()
    }

    fn buffer(&self, len: usize) -> std::io::Result<IoBuffer> {
        IoBuffer::for_reading(self.engine.pool(), len)
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        let mut transfers: Vec<Transfer> = requests
            .into_iter()
            .filter_map(|request| {
                Transfer::begin(self.engine.pool(), &self.file, request, completions)
            })
            .collect();
        if self.cached_reads == CachedReads::Inline && !self.file.is_direct() {
            transfers = self.read_cached(transfers);
        }
        if !transfers.is_empty() {
            self.engine.submit(transfers);
        }
    }

    fn perform(
        &self,
        offset: u64,
        operation: IoOperation,
    ) -> Result<Option<IoBuffer>, DeviceError> {
        let completions = CompletionQueue::new();
        let request = IoRequest { token: 0, offset, operation };
        if let Some(transfer) =
            Transfer::begin(self.engine.pool(), &self.file, request, &completions)
        {
            transfer.run();
        }
        completions.wait().result
    }

    fn is_reachable(&self) -> bool {
        self.file.is_reachable()
    }

    fn is_deleted(&self) -> bool {
        self.file.is_deleted()
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        self.file.retire();
        self.engine.forget(&self.file);
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("name", self.file.name())
            .field("access", &self.file.access())
            .field("direct", &self.file.is_direct())
            .field("engine", &self.engine)
            .finish()
    }
}
