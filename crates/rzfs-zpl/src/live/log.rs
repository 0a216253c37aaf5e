//! The records of operations in the dataset's intent log (spec 05, section 10.6).
//!
//! An operation adds its records in its own transaction, after it has changed everything. Name
//! records are ordered with all other names; the rest belongs to one file. Nothing is logged for
//! unlinked files: they are gone after a crash anyway.

use super::caller::Caller;
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::options::SyncMode;
use super::renaming::{Named, RenameMode};
use super::seed::NodeSeed;
use super::sharing::SharedRange;
use crate::error::ZplError;
use rzfs_dmu::live::{CloneSource, LiveObject, Transaction};
use rzfs_dsl::live::{
    CommitScope, HeadLog, LogOrder, LogRecord, LoggedContents, LoggedPart, LoggedWrite,
    UnreadableWrite,
};
use rzfs_format::dirent::FileKind;
use rzfs_format::fuid::Fuid;
use rzfs_format::zil::{
    Body, CloneRange, Create, ExtendedAttributes, NewObject, RecordKind, Rename, SetAttr, SetXattr,
    Whiteout, Write, XattrBits,
};
use rzfs_format::znode::{DeviceNumber, FileFlags, Timestamp};
use rzfs_format::{BlockId, BlockPointer, ByteOrder, ObjectId, Txg};

/// Maximum blocks in a sharing record: as many as fit in a log block.
const POINTERS_PER_RECORD: usize = 1000;

/// A change of attributes, in the bits of a record.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LoggedAttributes {
    /// Bits of [`SetAttr`].
    pub(super) mask: u64,
    /// Flags that were set, and flags that were cleared.
    pub(super) flags: Option<(FileFlags, FileFlags)>,
    pub(super) project: Option<u64>,
}

/// Flags that records support, with their bits.
pub(super) const FLAG_BITS: [(FileFlags, u32); 14] = [
    (FileFlags::READONLY, XattrBits::READONLY),
    (FileFlags::HIDDEN, XattrBits::HIDDEN),
    (FileFlags::SYSTEM, XattrBits::SYSTEM),
    (FileFlags::ARCHIVE, XattrBits::ARCHIVE),
    (FileFlags::IMMUTABLE, XattrBits::IMMUTABLE),
    (FileFlags::NOUNLINK, XattrBits::NOUNLINK),
    (FileFlags::APPENDONLY, XattrBits::APPENDONLY),
    (FileFlags::NODUMP, XattrBits::NODUMP),
    (FileFlags::AV_QUARANTINED, XattrBits::AV_QUARANTINED),
    (FileFlags::AV_MODIFIED, XattrBits::AV_MODIFIED),
    (FileFlags::REPARSE, XattrBits::REPARSE),
    (FileFlags::OFFLINE, XattrBits::OFFLINE),
    (FileFlags::SPARSE, XattrBits::SPARSE),
    (FileFlags::PROJINHERIT, XattrBits::PROJINHERIT),
];

impl LoggedAttributes {
    fn section(&self) -> Option<ExtendedAttributes> {
        if self.flags.is_none() && self.project.is_none() {
            return None;
        }
        let (set, cleared) = self.flags.unwrap_or_default();
        let (mut requested, mut values) = (0, 0);
        for (flag, bit) in FLAG_BITS {
            if set.contains(flag) {
                values |= bit;
            }
            if set.with(cleared).contains(flag) {
                requested |= bit;
            }
        }
        if self.project.is_some() {
            requested |= XattrBits::PROJID;
        }
        Some(ExtendedAttributes {
            requested: XattrBits(requested),
            values: XattrBits(values),
            create_time: Timestamp::default(),
            scanstamp: None,
            project: self.project,
        })
    }

    /// Whether a record can represent all of it.
    fn can_be_logged(&self) -> bool {
        let (set, cleared) = self.flags.unwrap_or_default();
        // OpenZFS writes the bit of this flag wrong, and so does not trust it.
        !set.with(cleared).contains(FileFlags::OPAQUE)
    }
}

impl LiveFileSystem {
    /// The log, if there is one and logging is on.
    pub(super) fn log(&self) -> Option<&HeadLog> {
        let log = self.log.get()?;
        (self.options().sync_mode != SyncMode::Disabled).then_some(log)
    }

    /// Attaches the log for future operations.
    pub(super) fn attach_log(&self, log: HeadLog) {
        // A file system is opened with one log.
        let _ = self.log.set(log);
    }

    /// Notes that operations up to `txg` may lack records.
    pub(super) fn mark_unlogged_until(&self, txg: Txg) {
        if let Some(log) = self.log.get() {
            log.add_unlogged(txg);
        }
    }

    fn add(&self, tx: &dyn Transaction, order: LogOrder, kind: RecordKind, body: &Body<'_>) {
        let Some(log) = self.log() else { return };
        match body.encode(kind, ByteOrder::NATIVE) {
            Ok(bytes) if kind == RecordKind::SetXattr => {
                log.add(tx, order, LogRecord::Xattr(bytes));
            }
            Ok(bytes) => log.add(tx, order, LogRecord::Encoded(bytes)),
            Err(_) => log.add_unlogged(tx.txg()),
        }
    }

    /// Notes that a transaction makes a change without a record.
    pub(super) fn log_nothing(&self, tx: &dyn Transaction) {
        if let Some(log) = self.log() {
            log.add_unlogged(tx.txg());
        }
    }

    /// Logs the creation of a linked file, with its extended attributes in the system attributes.
    pub(super) fn log_creation(
        &self,
        tx: &dyn Transaction,
        name: &[u8],
        seed: &NodeSeed<'_>,
        object: &LiveObject,
        xattrs: &[(&'static [u8], Vec<u8>)],
    ) -> Result<(), ZplError> {
        if self.log().is_none() {
            return Ok(());
        }
        let kind = match seed.kind {
            FileKind::Directory => RecordKind::Mkdir,
            FileKind::Symlink => RecordKind::Symlink,
            _ => RecordKind::Create,
        };
        let create = Create {
            directory: seed.parent,
            new: NewObject {
                object: object.id(),
                slots: object.slots()?.into(),
                mode: u64::from(seed.kind.mode_bits() | seed.permissions),
                uid: seed.uid,
                gid: seed.gid,
                generation: tx.txg().get(),
                create_time: seed.now,
                device: seed.device.unwrap_or_default(),
            },
            attributes: None,
            domains: Vec::new(),
            name,
            target: seed.target.unwrap_or_default(),
        };
        self.add(tx, LogOrder::Names, kind, &Body::Create(create));
        for (name, value) in xattrs {
            self.log_xattr(tx, LogOrder::Names, object.id(), name, Some(value));
        }
        Ok(())
    }

    /// Logs the creation of an extended attribute directory, or of a file in it with this name.
    pub(super) fn log_attribute_node(
        &self,
        tx: &dyn Transaction,
        parent: ObjectId,
        name: &[u8],
        made: &NodeState,
    ) -> Result<(), ZplError> {
        if self.log().is_none() {
            return Ok(());
        }
        let (znode, object) = (made.znode(), made.object());
        let kind = if znode.is_directory() { RecordKind::MkXattr } else { RecordKind::Create };
        let create = Create {
            directory: parent,
            new: NewObject {
                object: object.id(),
                slots: object.slots()?.into(),
                mode: znode.mode.into(),
                uid: znode.uid,
                gid: znode.gid,
                generation: znode.generation,
                create_time: znode.crtime,
                device: DeviceNumber::default(),
            },
            attributes: None,
            domains: Vec::new(),
            name,
            target: b"",
        };
        self.add(tx, LogOrder::Names, kind, &Body::Create(create));
        Ok(())
    }

    /// Logs the new value of an extended attribute's file, replacing any earlier one.
    pub(super) fn log_attribute_value(&self, tx: &dyn Transaction, object: ObjectId, value: &[u8]) {
        let body = Body::Truncate { object, offset: 0, length: 0 };
        self.add(tx, LogOrder::Names, RecordKind::Truncate, &body);
        if !value.is_empty() {
            let (length, pointer) = (value.len() as u64, BlockPointer::HOLE);
            let write = Write { object, offset: 0, length, pointer, data: value };
            self.add(tx, LogOrder::Names, RecordKind::Write, &Body::Write(write));
        }
    }

    /// Logs a new link to a file.
    pub(super) fn log_link(
        &self,
        tx: &dyn Transaction,
        directory: ObjectId,
        object: ObjectId,
        name: &[u8],
    ) {
        let body = Body::Link { directory, object, name };
        self.add(tx, LogOrder::Names, RecordKind::Link, &body);
    }

    /// Logs the removal of a name of a file of this kind.
    pub(super) fn log_removal(
        &self,
        tx: &dyn Transaction,
        directory: ObjectId,
        name: &[u8],
        kind: FileKind,
    ) {
        let record = match kind {
            FileKind::Directory => RecordKind::Rmdir,
            _ => RecordKind::Remove,
        };
        self.add(tx, LogOrder::Names, record, &Body::Remove { directory, name });
    }

    /// Drops the records of an unlinked file.
    pub(super) fn forget_records(&self, object: ObjectId) {
        if let Some(log) = self.log() {
            log.forget(object);
        }
    }

    /// Orders the earlier records of a file with its names, as it gets another name.
    pub(super) fn promote_records(&self, object: ObjectId) {
        if let Some(log) = self.log() {
            log.promote(object);
        }
    }

    /// Logs a rename; `whiteout` is the device left in its place, and its creator.
    pub(super) fn log_rename(
        &self,
        tx: &dyn Transaction,
        (from, to): (Named<'_>, Named<'_>),
        mode: RenameMode,
        whiteout: Option<(&LiveObject, Caller)>,
    ) -> Result<(), ZplError> {
        let whiteout = match whiteout {
            Some((object, caller)) => Some(Whiteout(NewObject {
                object: object.id(),
                slots: object.slots()?.into(),
                mode: FileKind::CharDevice.mode_bits().into(),
                uid: Fuid::posix(caller.uid),
                gid: Fuid::posix(caller.gid),
                generation: tx.txg().get(),
                create_time: self.options().clock.now(),
                device: DeviceNumber::default(),
            })),
            None => None,
        };
        let kind = match mode {
            _ if whiteout.is_some() => RecordKind::RenameWhiteout,
            RenameMode::Exchange => RecordKind::RenameExchange,
            _ => RecordKind::Rename,
        };
        let rename = Rename {
            from_directory: from.directory,
            to_directory: to.directory,
            from: from.name,
            to: to.name,
            whiteout,
        };
        self.add(tx, LogOrder::Names, kind, &Body::Rename(rename));
        Ok(())
    }

    /// Logs a write to a file. The data is read when it is committed.
    pub(super) fn log_write(
        &self,
        tx: &dyn Transaction,
        state: &NodeState,
        offset: u64,
        length: u64,
    ) {
        let Some(log) = self.log().filter(|_| state.znode().links > 0) else { return };
        let object = state.object().id();
        let generation = state.znode().generation;
        let write = LoggedWrite { object, generation, offset, length };
        log.add(tx, LogOrder::File(object), LogRecord::Write(write));
    }

    /// Logs the sharing of blocks into a file.
    pub(super) fn log_sharing(
        &self,
        tx: &dyn Transaction,
        state: &NodeState,
        shared: &SharedRange<'_>,
    ) {
        let Some(log) = self.log().filter(|_| state.znode().links > 0) else { return };
        let mut births = shared.sources.iter().map(|it| it.pointer().physical_birth());
        if !births.all(|birth| log.may_share(birth)) {
            return log.add_unlogged(tx.txg());
        }
        let object = state.object().id();
        let (mut offset, mut rest) = (shared.offset, shared.len);
        for sources in shared.sources.chunks(POINTERS_PER_RECORD) {
            let pointers: Vec<_> = sources.iter().map(CloneSource::pointer).collect();
            let length = rest.min(shared.block_size.saturating_mul(pointers.len() as u64));
            let block_size = shared.block_size;
            let body =
                Body::CloneRange(CloneRange { object, offset, length, block_size, pointers });
            self.add(tx, LogOrder::File(object), RecordKind::CloneRange, &body);
            offset = offset.saturating_add(length);
            rest = rest.saturating_sub(length);
        }
    }

    /// Logs a hole punched in a file.
    pub(super) fn log_hole(
        &self,
        tx: &dyn Transaction,
        state: &NodeState,
        offset: u64,
        length: u64,
    ) {
        // No length means to the end.
        if state.znode().links > 0 && length > 0 {
            let object = state.object().id();
            let body = Body::Truncate { object, offset, length };
            self.add(tx, LogOrder::File(object), RecordKind::Truncate, &body);
        }
    }

    /// Logs a change of attributes to those in `state`.
    pub(super) fn log_attributes(
        &self,
        tx: &dyn Transaction,
        state: &NodeState,
        change: &LoggedAttributes,
    ) {
        let znode = state.znode();
        if znode.links == 0 || self.log().is_none() {
            return;
        }
        if !change.can_be_logged() {
            return self.log_nothing(tx);
        }
        let attributes = change.section();
        let marker = if attributes.is_some() { SetAttr::LINUX_XVATTR } else { 0 };
        let given = |bit: u64, value: u64| if change.mask & bit != 0 { value } else { 0 };
        let object = state.object().id();
        let body = Body::SetAttr(SetAttr {
            object,
            mask: change.mask | SetAttr::CTIME | marker,
            mode: given(SetAttr::MODE, znode.mode.into()),
            uid: Fuid(given(SetAttr::UID, znode.uid.0)),
            gid: Fuid(given(SetAttr::GID, znode.gid.0)),
            size: given(SetAttr::SIZE, znode.size),
            atime: znode.atime,
            mtime: znode.mtime,
            attributes,
            domains: Vec::new(),
        });
        self.add(tx, LogOrder::File(object), RecordKind::SetAttr, &body);
    }

    /// Logs a change of a file's mode as a side effect of another operation.
    pub(super) fn log_mode(&self, tx: &dyn Transaction, state: &NodeState) {
        let change = LoggedAttributes { mask: SetAttr::MODE, ..LoggedAttributes::default() };
        self.log_attributes(tx, state, &change);
    }

    /// Logs an extended attribute in the system attributes that was set or removed.
    pub(super) fn log_xattr(
        &self,
        tx: &dyn Transaction,
        order: LogOrder,
        object: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
    ) {
        let Some(log) = self.log() else { return };
        // An empty value would be read as none.
        if !log.knows_xattrs() || value.is_some_and(<[u8]>::is_empty) {
            return log.add_unlogged(tx.txg());
        }
        let body = Body::SetXattr(SetXattr { object, name, value });
        self.add(tx, order, RecordKind::SetXattr, &body);
    }

    /// Waits until all operations on these files, and on all names, are durable. Concurrent waits
    /// share the work.
    ///
    /// # Errors
    /// The pool no longer accepts changes, so they never will be.
    pub fn commit(&self, objects: &[ObjectId]) -> Result<(), ZplError> {
        let scopes: Vec<_> = objects.iter().map(|object| CommitScope::File(*object)).collect();
        self.commit_scopes(&scopes)
    }

    /// Waits until everything that was done is durable.
    ///
    /// # Errors
    /// As [`LiveFileSystem::commit`].
    pub fn commit_all(&self) -> Result<(), ZplError> {
        self.commit_scopes(&[CommitScope::All])
    }

    fn commit_scopes(&self, scopes: &[CommitScope]) -> Result<(), ZplError> {
        if self.options().sync_mode == SyncMode::Disabled {
            return Ok(());
        }
        match self.log.get() {
            Some(log) => log.commit(scopes, self)?,
            None => self.sync()?,
        }
        // The committed data may belong to contents that were replaced.
        Ok(self.objset().require_current()?)
    }

    /// Makes an operation durable before it ends with `sync=always`, unless callers do.
    pub(super) fn commit_always(&self, object: ObjectId) -> Result<(), ZplError> {
        match self.options().sync_mode {
            SyncMode::Always if !self.source.replay.is_on() && !self.callers_wait_for_pool() => {
                self.commit(&[object])
            }
            _ => Ok(()),
        }
    }

    /// Whether callers must [commit](Self::commit) changes before they report them as done: all
    /// changes are to be durable (`sync=always`), and waiting
    /// [is left to callers](Self::set_callers_wait).
    #[must_use]
    pub fn callers_must_commit(&self) -> bool {
        self.callers_wait_for_pool() && self.options().sync_mode == SyncMode::Always
    }
}

impl LoggedContents for LiveFileSystem {
    fn read(&self, write: &LoggedWrite) -> Result<Vec<LoggedPart>, UnreadableWrite> {
        let node = match self.node(write.object) {
            Ok(node) => node,
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            Err(_) => return Err(UnreadableWrite),
        };
        let state = node.state().read();
        let znode = state.znode();
        if znode.generation != write.generation || znode.links == 0 || node.is_gone() {
            return Ok(Vec::new());
        }
        let length = znode.size.saturating_sub(write.offset).min(write.length);
        logged_parts(state.object(), write.offset, length).map_err(|_| UnreadableWrite)
    }
}

/// Parts of blocks: dirty ones by reference.
fn logged_parts(object: &LiveObject, offset: u64, len: u64) -> Result<Vec<LoggedPart>, ZplError> {
    let block_size = u64::from(object.data_block_size()?).max(1);
    let end = offset.saturating_add(len);
    let (mut parts, mut at) = (Vec::new(), offset);
    while at < end {
        let from = at % block_size;
        let to = block_size.min(from + (end - at));
        let range = from as usize..to as usize;
        let block = BlockId(at / block_size);
        parts.push(match object.dirty_block(block) {
            Some(block) => LoggedPart::Block { block, range },
            None => LoggedPart::Bytes(object.read_block(block)?.data.slice(range)),
        });
        at += to - from;
    }
    Ok(parts)
}
