//! A sparse device in memory that can be damaged.

use parking_lot::Mutex;
use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceError, DeviceGeometry, IoBuffer, IoCompletion, IoOperation,
    IoRequest,
};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: u64 = 512;

/// What is wrong with a range of a [`SparseDevice`].
#[derive(Clone, Debug)]
pub enum Defect {
    /// Reading and writing it fails with this errno.
    Errno(i32),
    /// Reading it fails once with this errno.
    Once(i32),
    /// It reads as other bytes.
    Garbage,
}

/// A device in memory that takes room only for what is written to it, and that can be damaged.
#[derive(Debug)]
pub struct SparseDevice {
    size: u64,
    pages: Mutex<HashMap<u64, [u8; PAGE as usize]>>,
    damage: Mutex<Vec<(Range<u64>, Defect)>>,
    reads: Mutex<Vec<Range<u64>>>,
    discards: AtomicBool,
}

impl SparseDevice {
    /// A device of so many bytes, all of which are zero.
    #[must_use]
    pub fn new(size: u64) -> Arc<Self> {
        Arc::new(Self {
            size,
            pages: Mutex::default(),
            damage: Mutex::default(),
            reads: Mutex::default(),
            discards: AtomicBool::new(false),
        })
    }

    /// Writes whole sectors.
    ///
    /// # Panics
    /// They are not whole, or not within the device.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset.is_multiple_of(PAGE) && bytes.len().is_multiple_of(PAGE as usize));
        assert!(offset + bytes.len() as u64 <= self.size);
        let mut pages = self.pages.lock();
        for (index, sector) in (0..).zip(bytes.chunks_exact(PAGE as usize)) {
            pages.insert(offset / PAGE + index, sector.try_into().expect("a whole sector"));
        }
    }

    /// Damages a range of bytes.
    pub fn damage(&self, range: Range<u64>, damage: Defect) {
        self.damage.lock().push((range, damage));
    }

    /// Damages all of it.
    pub fn damage_all(&self, damage: Defect) {
        self.damage(0..self.size, damage);
    }

    /// From now on it can discard.
    pub fn allow_discards(&self) {
        self.discards.store(true, Ordering::Relaxed);
    }

    /// Takes all that is wrong away.
    pub fn take_damage(&self) -> Vec<(Range<u64>, Defect)> {
        std::mem::take(&mut self.damage.lock())
    }

    /// Puts it back.
    pub fn put_damage(&self, damage: Vec<(Range<u64>, Defect)>) {
        *self.damage.lock() = damage;
    }

    /// The ranges that were read since the last call.
    pub fn take_reads(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.reads.lock())
    }

    /// All sectors that were ever written.
    #[must_use]
    pub fn pages(&self) -> BTreeMap<u64, [u8; PAGE as usize]> {
        self.pages.lock().iter().map(|(index, page)| (*index, *page)).collect()
    }

    fn try_write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_damage(offset, bytes.len() as u64)?;
        self.write(offset, bytes);
        Ok(())
    }

    fn check_damage(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset + len;
        for (range, kind) in self.damage.lock().iter() {
            if let Defect::Errno(errno) = kind
                && range.start.max(offset) < range.end.min(end)
            {
                return Err(io::Error::from_raw_os_error(*errno));
            }
        }
        Ok(())
    }

    fn perform(&self, offset: u64, operation: IoOperation) -> io::Result<Option<IoBuffer>> {
        match operation {
            IoOperation::Read(mut buffer) => self.read(offset, &mut buffer).map(|()| Some(buffer)),
            IoOperation::Write(bytes) => self.try_write(offset, &bytes).map(|()| None),
            IoOperation::Gather(pieces) => self.try_write(offset, &pieces.concat()).map(|()| None),
            IoOperation::Flush => Ok(None),
            IoOperation::Discard { len } if self.discards.load(Ordering::Relaxed) => {
                self.check_damage(offset, len)?;
                assert!(offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE));
                let sectors = offset / PAGE..(offset + len) / PAGE;
                self.pages.lock().retain(|index, _| !sectors.contains(index));
                Ok(None)
            }
            IoOperation::Discard { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.reads.lock().push(offset..end);
        let pages = self.pages.lock();
        assert!(offset.is_multiple_of(PAGE) && buffer.len().is_multiple_of(PAGE as usize));
        for (index, sector) in (offset / PAGE..).zip(buffer.chunks_exact_mut(PAGE as usize)) {
            match pages.get(&index) {
                Some(page) => sector.copy_from_slice(page),
                None => sector.fill(0),
            }
        }
        let mut damage = self.damage.lock();
        let mut healed = None;
        for (index, (range, kind)) in damage.iter().enumerate() {
            let hit = range.start.max(offset)..range.end.min(end);
            match kind {
                _ if hit.is_empty() => {}
                Defect::Errno(errno) => return Err(io::Error::from_raw_os_error(*errno)),
                Defect::Once(_) => healed = Some(index),
                Defect::Garbage => {
                    for at in hit {
                        let noise = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1;
                        buffer[(at - offset) as usize] ^= noise;
                    }
                }
            }
        }
        if let Some((_, Defect::Once(errno))) = healed.map(|index| damage.remove(index)) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(())
    }
}

impl BlockDevice for SparseDevice {
    fn name(&self) -> &str {
        "sparse"
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry { size: self.size, logical_sector: 512, physical_sector: 512 }
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for request in requests {
            let (operation, len) = (request.operation.name(), request.operation.len());
            let result = self.perform(request.offset, request.operation);
            let result = result.map_err(|source| DeviceError {
                device: "sparse".into(),
                operation,
                offset: request.offset,
                len,
                source: Arc::new(source),
            });
            completions.push(IoCompletion { token: request.token, result });
        }
    }
}
