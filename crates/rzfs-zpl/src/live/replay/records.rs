//! Replaying single records.

use super::super::allocation::Allocation;
use super::super::attributes::AttributeChange;
use super::super::caller::Caller;
use super::super::contents::WriteAt;
use super::super::file_system::LiveFileSystem;
use super::super::node::NodeState;
use super::super::renaming::{Named, RenameMode};
use super::super::sharing::SharedRange;
use super::Outcome;
use crate::error::{Place, ZplError};
use bytes::Bytes;
use rzfs_dmu::BlockRequest;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{CloneSource, LiveObjset};
use rzfs_format::units::Bookmark;
use rzfs_format::zil::{Body, CloneRange, RecordKind, Rename, Write};
use rzfs_format::znode::Timestamp;
use rzfs_format::{BlockPointer, Level, ObjectId};

/// Whether replaying a record twice has the same effect as once. Then it may span several
/// transactions, and is recorded as done after the last of them.
pub(super) const fn is_repeatable(kind: RecordKind) -> bool {
    is_out_of_order(kind)
}

/// Whether a record can be logged after a later removal of its file: records are ordered per file,
/// but not between files.
const fn is_out_of_order(kind: RecordKind) -> bool {
    matches!(
        kind,
        RecordKind::Write
            | RecordKind::Write2
            | RecordKind::Truncate
            | RecordKind::SetAttr
            | RecordKind::AclV0
            | RecordKind::Acl
            | RecordKind::SetXattr
            | RecordKind::CloneRange
    )
}

/// The time of the operation, if recorded.
pub(super) fn time_of(body: &Body<'_>) -> Option<Timestamp> {
    match body {
        Body::Create(create) => Some(create.new.create_time),
        Body::CreateAcl(create) => Some(create.new.create_time),
        Body::Rename(Rename { whiteout: Some(whiteout), .. }) => Some(whiteout.0.create_time),
        _ => None,
    }
}

impl LiveFileSystem {
    /// Replays a record.
    pub(super) fn perform_record(
        &self,
        kind: RecordKind,
        body: &Body<'_>,
    ) -> Result<Outcome, ZplError> {
        if is_out_of_order(kind)
            && let Some(object) = object_of(body)
            && let Err(error) = self.node(object)
        {
            return if error.is_missing() { Ok(Outcome::Skipped) } else { Err(error) };
        }
        match body {
            Body::Create(create) => self.replay_create(kind, create)?,
            Body::CreateAcl(create) => self.replay_create_with_list(kind, create)?,
            Body::Acl { object, acl } => self.replay_list(*object, acl)?,
            Body::Remove { directory, name } => match kind {
                RecordKind::Rmdir => self.rmdir(*directory, name)?,
                _ => self.unlink(*directory, name)?,
            },
            Body::Link { directory, object, name } => {
                self.link(*object, *directory, name)?;
            }
            Body::Rename(rename) => self.replay_rename(kind, rename)?,
            Body::Write(write) => self.replay_write(kind, write)?,
            Body::Truncate { object, offset, length } => {
                self.replay_truncate(*object, *offset, *length)?;
            }
            Body::SetAttr(change) => self.replay_set_attributes(change)?,
            Body::SetXattr(change) => self.replay_set_xattr(change)?,
            Body::CloneRange(clone) => self.replay_sharing(clone)?,
        }
        Ok(Outcome::Done)
    }

    /// Shares blocks again; the log's own references protect them until it is dropped.
    fn replay_sharing(&self, clone: &CloneRange) -> Result<(), ZplError> {
        let node = self.node(clone.object)?;
        let mut state = node.write();
        state.require_regular()?;
        let invalid = |problem| ZplError::Invalid { place: state.place(), problem };
        let object = state.object();
        let own_size = u64::from(object.data_block_size()?);
        let is_single = object.max_block_id()?.0 == 0 && state.znode().size <= own_size;
        if own_size != clone.block_size && !(is_single && own_size < clone.block_size) {
            return Err(invalid("shared blocks of another size"));
        }
        let fits = |pointer: &BlockPointer| {
            pointer.is_hole()
                || (pointer.level() == Level::DATA && pointer.logical_size() == clone.block_size)
        };
        let sources: Vec<_> = clone.pointers.iter().copied().map(CloneSource::of_record).collect();
        if !clone.pointers.iter().all(fits) || sources.contains(&CloneSource::Dirty) {
            return Err(invalid("blocks that cannot be shared"));
        }
        if !clone.pointers.iter().all(|pointer| self.options().space.can_count(pointer)) {
            return self.replay_copy(&mut state, clone, &sources);
        }
        let shared = SharedRange {
            offset: clone.offset,
            len: clone.length,
            block_size: clone.block_size,
            sources: &sources,
        };
        // The log has owned them since it was written.
        self.share_locked(&mut state, &shared, Caller::SUPERUSER, || Ok(()))
    }

    /// Shares blocks one by one, and copies those whose references cannot be counted. Unreadable
    /// ones do not affect the others.
    fn replay_copy(
        &self,
        state: &mut NodeState,
        clone: &CloneRange,
        sources: &[CloneSource],
    ) -> Result<(), ZplError> {
        let CloneRange { object, block_size, .. } = *clone;
        let end = clone.offset.saturating_add(clone.length);
        let (mut offset, mut unread) = (clone.offset, None);
        for source in sources {
            let len = block_size.min(end.saturating_sub(offset));
            if len == 0 {
                break;
            }
            let sources = std::slice::from_ref(source);
            let one = SharedRange { offset, len, block_size, sources };
            let pointer = source.pointer();
            if self.options().space.can_count(&pointer) {
                self.share_locked(state, &one, Caller::SUPERUSER, || Ok(()))?;
            } else {
                match logged_block(self.objset(), object, &pointer, Level::DATA) {
                    Ok(data) => self.copy_locked(state, &one, &data, Caller::SUPERUSER)?,
                    Err(error) => _ = unread.get_or_insert(error),
                }
            }
            offset = offset.saturating_add(len);
        }
        unread.map_or(Ok(()), Err)
    }

    fn replay_rename(&self, kind: RecordKind, rename: &Rename<'_>) -> Result<(), ZplError> {
        let from = Named { directory: rename.from_directory, name: rename.from };
        let to = Named { directory: rename.to_directory, name: rename.to };
        let mut caller = Caller::SUPERUSER;
        let mode = match (kind, rename.whiteout) {
            (RecordKind::RenameExchange, _) => RenameMode::Exchange,
            (RecordKind::RenameWhiteout, Some(whiteout)) => {
                let new = whiteout.0;
                let place = self.place(rename.from_directory);
                caller = Caller {
                    uid: super::attributes::local_id(place, new.uid)?,
                    gid: super::attributes::local_id(place, new.gid)?,
                    ..caller
                };
                self.source.replay.set_whiteout(self.logged_object(&new)?);
                RenameMode::Whiteout
            }
            _ => RenameMode::Replace,
        };
        self.rename(from, to, mode, caller)
    }

    fn replay_write(&self, kind: RecordKind, write: &Write<'_>) -> Result<(), ZplError> {
        let end = write.offset.saturating_add(write.length);
        if kind == RecordKind::Write2 {
            return self.extend_to(write.object, end);
        }
        if !write.is_indirect() {
            return self.write_all(write.object, write.offset, write.data);
        }
        let size = self.attributes(write.object)?.size.max(end);
        let (start, data) = logged_data(self.objset(), write)?;
        // The block extends beyond the end of the file, with zeros there.
        let inside = usize::try_from(size.saturating_sub(start)).unwrap_or(usize::MAX);
        self.write_all(write.object, start, data.get(..inside).unwrap_or(&data))?;
        self.extend_to(write.object, end)
    }

    fn write_all(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), ZplError> {
        let (_, written) = self.write(object, WriteAt::Offset(offset), data, Caller::SUPERUSER)?;
        if written < data.len() {
            return Err(ZplError::NoSpace { objset: self.objset().id() });
        }
        Ok(())
    }

    /// Extends a file to at least this length.
    fn extend_to(&self, object: ObjectId, end: u64) -> Result<(), ZplError> {
        if self.attributes(object)?.size >= end {
            return Ok(());
        }
        let change = AttributeChange { size: Some(end), ..AttributeChange::default() };
        self.set_attributes(object, &change, Caller::SUPERUSER).map(drop)
    }

    fn replay_truncate(&self, object: ObjectId, offset: u64, length: u64) -> Result<(), ZplError> {
        if length == 0 {
            let change = AttributeChange { size: Some(offset), ..AttributeChange::default() };
            return self.set_attributes(object, &change, Caller::SUPERUSER).map(drop);
        }
        self.allocate(object, offset, length, Allocation::Punch, Caller::SUPERUSER)
    }
}

/// The data of a write stored outside the log, and its position in the object.
pub(in crate::live) fn logged_data(
    objset: &LiveObjset,
    write: &Write<'_>,
) -> Result<(u64, Bytes), ZplError> {
    let pointer = &write.pointer;
    let place = Place { objset: objset.id(), object: write.object };
    let invalid = ZplError::Invalid { place, problem: "a logged block that is too short" };
    let block_size = pointer.logical_size();
    if pointer.is_hole() {
        let len = usize::try_from(write.length).ok().filter(|len| *len <= MAX_HOLE);
        return Ok((write.offset, vec![0; len.ok_or(invalid)?].into()));
    }
    let data = logged_block(objset, write.object, pointer, Level::ZIL)?;
    if write.length >= block_size {
        let len = usize::try_from(write.length).ok().filter(|len| *len <= data.len());
        return Ok((write.offset, data.slice(..len.ok_or(invalid)?)));
    }
    Ok((write.offset - write.offset % block_size.max(1), data))
}

/// The contents of a block that a record refers to.
fn logged_block(
    objset: &LiveObjset,
    object: ObjectId,
    pointer: &BlockPointer,
    level: Level,
) -> Result<Bytes, ZplError> {
    let bookmark = Bookmark { objset: objset.id(), object, level, ..Bookmark::default() };
    let request = BlockRequest { pointer, bookmark, key: objset.key() };
    let read = objset.pipeline().read(request);
    Ok(read.map_err(|source| DmuError::Block { bookmark, source })?.data)
}

/// Maximum run of zeros in a record, which concerns a single block.
const MAX_HOLE: usize = 16 << 20;

/// The file of a record.
fn object_of(body: &Body<'_>) -> Option<ObjectId> {
    match body {
        Body::Write(write) => Some(write.object),
        Body::Truncate { object, .. } | Body::Acl { object, .. } => Some(*object),
        Body::SetAttr(change) => Some(change.object),
        Body::SetXattr(change) => Some(change.object),
        Body::CloneRange(clone) => Some(clone.object),
        _ => None,
    }
}
