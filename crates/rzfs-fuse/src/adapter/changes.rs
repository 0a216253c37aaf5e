//! Changing a file system.

use super::{Adapter, Answer, errno};
use crate::attributes::{Entry, device_number};
use crate::credentials::Asking;
use crate::file_flags::Command;
use crate::inode::Target;
use crate::mount_points::Place;
use crate::xattr;
use fuser::{Errno, INodeNo, OpenFlags, RenameFlags};
use rzfs_format::ObjectId;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, FilePlace, LiveFileSystem, Named, NewFile, NewKind,
    RenameMode, SetGroupId, WriteAt, Writing, XattrMode,
};
use rzfs_zpl::{ControlNode, NameTarget, SnapshotChange, ZplError};
use std::sync::{Arc, PoisonError};

/// Type bits of a mode.
const KIND_BITS: u32 = 0o170_000;
const PERMISSION_BITS: u32 = 0o7777;
const SET_GROUP_ID: u32 = 0o2000;
pub(super) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// The last byte of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) offset: u64,
    pub(crate) byte: u8,
}

/// The parameters of a new file, as FUSE passes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creation<'a> {
    pub(crate) kind: NewKind<'a>,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl<'a> Creation<'a> {
    /// A file made by mknod(2).
    ///
    /// # Errors
    /// There is no such kind of file, or another call makes it.
    pub(crate) fn of_mode(mode: u32, umask: u32, device: u32) -> Answer<Self> {
        let kind = match mode & KIND_BITS {
            0 | 0o100_000 => NewKind::Regular,
            0o010_000 => NewKind::Fifo,
            0o140_000 => NewKind::Socket,
            0o020_000 => NewKind::CharDevice(device_number(device)),
            0o060_000 => NewKind::BlockDevice(device_number(device)),
            _ => return Err(Errno::EINVAL),
        };
        Ok(Self { kind, mode, umask })
    }

    fn new_file(self, caller: Caller) -> NewFile<'a> {
        let Self { kind, mode, umask } = self;
        NewFile { kind, permissions: mode & PERMISSION_BITS, umask, caller }
    }
}

/// The creator of a file, as a member of the inherited group where that decides about set-group-id:
/// a request names only one group.
fn maker(
    live: &LiveFileSystem,
    directory: ObjectId,
    creation: &Creation<'_>,
    asking: Asking,
) -> Answer<Caller> {
    let caller = asking.caller();
    if creation.mode & SET_GROUP_ID == 0 {
        return Ok(caller);
    }
    let parent = answer(live.attributes(directory))?;
    let is_inherited = u32::from(parent.permissions) & SET_GROUP_ID != 0;
    let is_member = is_inherited && asking.is_root_or_in(parent.gid);
    Ok(if is_member { Caller { gid: parent.gid, ..caller } } else { caller })
}

fn answer<T>(result: Result<T, ZplError>) -> Answer<T> {
    result.map_err(|error| errno(&error))
}

impl Adapter {
    /// The file system and object of a file that can be changed.
    pub(crate) fn changing(&self, inode: INodeNo) -> Answer<(&Arc<LiveFileSystem>, ObjectId)> {
        match (self.target(inode)?, self.head.live()) {
            (Target::Live(object), Some(live)) => Ok((live, object)),
            (Target::Control(_) | Target::MountPoint(_), Some(_)) => Err(Errno::EPERM),
            _ => Err(Errno::EROFS),
        }
    }

    /// Checks that a file's flags permit this open mode.
    pub(crate) fn open(&self, inode: INodeNo, flags: OpenFlags) -> Answer<()> {
        let mode = flags.0 & libc::O_ACCMODE;
        if mode != libc::O_WRONLY {
            let (files, object) = self.file(inode)?;
            answer(files.open_for_reading(object))?;
        }
        if mode == libc::O_RDONLY {
            return Ok(());
        }
        let (live, object) = self.changing(inode)?;
        let where_to = match flags.0 & libc::O_APPEND {
            0 => Writing::Anywhere,
            _ => Writing::AtEnd,
        };
        answer(live.open_for_writing(object, where_to))
    }

    /// Refuses to reuse the name of a directory that exists only in the mount.
    fn refuse_mount_point(&self, directory: ObjectId, name: &[u8], why: Errno) -> Answer<()> {
        match self.mount_points().lookup(Place::Object(directory), name) {
            Some(_) => Err(why),
            None => Ok(()),
        }
    }

    /// Refuses to remove a directory that contains directories of the mount alone.
    fn refuse_reserved(
        &self,
        live: &LiveFileSystem,
        directory: ObjectId,
        name: &[u8],
    ) -> Answer<()> {
        let mount_points = self.mount_points();
        if mount_points.is_empty() {
            return Ok(());
        }
        match live.lookup(directory, name) {
            Ok(NameTarget::Object(object)) if mount_points.are_in(Place::Object(object)) => {
                Err(Errno::ENOTEMPTY)
            }
            _ => Ok(()),
        }
    }

    /// The inode number that a name leads to: a file or a directory of the mount alone.
    pub(crate) fn number_of(&self, directory: INodeNo, name: &[u8]) -> Answer<INodeNo> {
        let (live, directory) = self.changing(directory)?;
        if let Some(covering) = self.mount_points().lookup(Place::Object(directory), name) {
            return self.number(Target::MountPoint(covering));
        }
        match answer(live.lookup(directory, name))? {
            NameTarget::Object(object) => self.number(Target::Live(object)),
            NameTarget::Control => Err(Errno::EPERM),
        }
    }

    /// Whether a directory is the one that lists the snapshots.
    pub(crate) fn shows_snapshots(&self, directory: INodeNo) -> bool {
        matches!(self.target(directory), Ok(Target::Control(ControlNode::Snapshots)))
    }

    /// Creates, destroys or renames a snapshot.
    pub(crate) fn change_snapshots(
        &self,
        change: SnapshotChange<'_>,
        caller: Caller,
    ) -> Answer<()> {
        answer(self.control()?.change(change, caller.uid))
    }

    /// Removes a directory that only stands in for one of replaced contents; returns whether it was
    /// such a directory.
    fn uncover(&self, directory: ObjectId, name: &[u8]) -> Answer<bool> {
        let mut all = self.mount_points.write().unwrap_or_else(PoisonError::into_inner);
        let Some(covering) = all.lookup(Place::Object(directory), name) else { return Ok(false) };
        if self.inodes.adopted_by(covering).is_none() {
            return Ok(false);
        }
        if all.are_in(Place::MountPoint(covering)) {
            return Err(Errno::ENOTEMPTY);
        }
        Arc::make_mut(&mut all).uncover(covering);
        Ok(true)
    }

    /// Makes a file.
    pub(crate) fn create(
        &self,
        directory: INodeNo,
        name: &[u8],
        creation: Creation<'_>,
        asking: Asking,
    ) -> Answer<Entry> {
        let (live, directory) = self.changing(directory)?;
        self.refuse_mount_point(directory, name, Errno::EEXIST)?;
        let caller = maker(live, directory, &creation, asking)?;
        let attributes = answer(live.create(directory, name, &creation.new_file(caller)))?;
        self.entry(Target::Live(attributes.object))
    }

    /// Makes an unnamed file, which is freed when the kernel has forgotten it.
    pub(crate) fn create_unnamed(
        &self,
        directory: INodeNo,
        creation: Creation<'_>,
        asking: Asking,
    ) -> Answer<Entry> {
        let (live, directory) = self.changing(directory)?;
        let caller = maker(live, directory, &creation, asking)?;
        // Held until the kernel knows the file.
        let hold = answer(live.create_unnamed(directory, &creation.new_file(caller)))?;
        self.entry(Target::Live(hold.object()))
    }

    /// Adds a name to a file.
    pub(crate) fn link(&self, file: INodeNo, directory: INodeNo, name: &[u8]) -> Answer<Entry> {
        let ((live, directory), (_, file)) = (self.changing(directory)?, self.changing(file)?);
        self.refuse_mount_point(directory, name, Errno::EEXIST)?;
        answer(live.link(file, directory, name))?;
        self.entry(Target::Live(file))
    }

    /// Removes a name of a file other than a directory.
    pub(crate) fn unlink(&self, directory: INodeNo, name: &[u8]) -> Answer<()> {
        let (live, directory) = self.changing(directory)?;
        self.refuse_mount_point(directory, name, Errno::EISDIR)?;
        answer(live.unlink(directory, name))
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, directory: INodeNo, name: &[u8]) -> Answer<()> {
        let (live, directory) = self.changing(directory)?;
        if self.uncover(directory, name)? {
            return Ok(());
        }
        self.refuse_mount_point(directory, name, Errno::EBUSY)?;
        self.refuse_reserved(live, directory, name)?;
        answer(live.rmdir(directory, name))
    }

    /// Moves a name.
    pub(crate) fn rename(
        &self,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
        caller: Caller,
    ) -> Answer<()> {
        let ((live, source), (_, target)) = (self.changing(from.0)?, self.changing(to.0)?);
        self.refuse_mount_point(source, from.1, Errno::EBUSY)?;
        self.refuse_mount_point(target, to.1, Errno::EBUSY)?;
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            RenameFlags::RENAME_WHITEOUT => RenameMode::Whiteout,
            _ => return Err(Errno::EINVAL),
        };
        if mode == RenameMode::Replace {
            self.refuse_reserved(live, target, to.1)?;
        }
        let (from, to) =
            (Named { directory: source, name: from.1 }, Named { directory: target, name: to.1 });
        answer(live.rename(from, to, mode, caller))
    }

    /// Writes to a file; returns the offset and the length written.
    pub(crate) fn write(
        &self,
        inode: INodeNo,
        at: WriteAt,
        data: &[u8],
        caller: Caller,
    ) -> Answer<(u64, usize)> {
        let (live, object) = self.changing(inode)?;
        answer(live.write(object, at, data, caller))
    }

    /// The last byte of a file, and where it is.
    pub(crate) fn end(&self, inode: INodeNo) -> Answer<Option<End>> {
        let (live, object) = self.changing(inode)?;
        let len = answer(live.attributes(object))?.size;
        let Some(offset) = len.checked_sub(1) else { return Ok(None) };
        let segments = answer(self.head.read_segments(object, offset, 1))?;
        Ok(segments.iter().flatten().next().map(|byte| End { offset, byte: *byte }))
    }

    /// Whether a file has lost set-user-id or set-group-id since the last call.
    pub(crate) fn take_setid_cleared(&self, inode: INodeNo) -> Answer<bool> {
        let (live, object) = self.changing(inode)?;
        answer(live.take_setid_cleared(object))
    }

    /// Changes attributes; returns those that users see.
    pub(crate) fn set_attributes(
        &self,
        inode: INodeNo,
        change: &AttributeChange,
        caller: Caller,
    ) -> Answer<()> {
        let (live, object) = self.changing(inode)?;
        answer(live.set_attributes(object, change, caller)).map(|_| ())
    }

    /// Sets an extended attribute. `keeps_group` says whether setting an ACL may leave set-group-id
    /// on a file of a group.
    pub(crate) fn set_xattr(
        &self,
        inode: INodeNo,
        (name, value): (&[u8], &[u8]),
        flags: i32,
        keeps_group: impl Fn(u32) -> bool,
    ) -> Answer<()> {
        xattr::check_name(name)?;
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        let mode = match flags {
            0 => XattrMode::Any,
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let (live, object) = self.changing(inode)?;
        if name != ACCESS_LIST {
            return answer(live.set_xattr(object, name, value, mode));
        }
        let set_group_id = match keeps_group(answer(live.attributes(object))?.gid) {
            true => SetGroupId::Kept,
            false => SetGroupId::Dropped,
        };
        answer(live.set_access_list(object, value, mode, set_group_id))
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&self, inode: INodeNo, name: &[u8]) -> Answer<()> {
        xattr::check_name(name)?;
        let (live, object) = self.changing(inode)?;
        answer(live.remove_xattr(object, name))
    }

    /// Reserves or frees a range of a file.
    pub(crate) fn allocate(
        &self,
        inode: INodeNo,
        offset: u64,
        len: u64,
        allocation: Allocation,
        caller: Caller,
    ) -> Answer<()> {
        let (live, object) = self.changing(inode)?;
        answer(live.allocate(object, offset, len, allocation, caller))
    }

    /// Copies a range of a file of any file system of the mount to a file of this one, as much as
    /// one request allows; returns how much.
    ///
    /// On the reply the kernel drops the pages of the range, and with them stores through mappings
    /// into the same pages but outside the range. Where that is possible `EXDEV` makes the kernel
    /// copy through its own pages.
    pub(crate) fn copy(
        &self,
        (adapter, from, from_offset): (&Self, INodeNo, u64),
        (to, to_offset): (INodeNo, u64),
        len: u64,
        caller: Caller,
    ) -> Answer<u64> {
        let (source, object) = adapter.file(from)?;
        let from = FilePlace { object, offset: from_offset };
        let (live, object) = self.changing(to)?;
        let rest = answer(source.attributes(from.object))?.size.saturating_sub(from_offset);
        let size = answer(live.attributes(object))?.size;
        let len = whole_pages(to_offset, len.min(rest), size);
        if len == 0 && rest > 0 {
            return Err(Errno::EXDEV);
        }
        let copy = |done: u64, len| {
            let from = FilePlace { offset: from.offset.saturating_add(done), ..from };
            let to = FilePlace { object, offset: to_offset.saturating_add(done) };
            answer(live.copy_range(to, (&source, from), len, caller))
        };
        let mut done = copy(0, len)?;
        // A partly copied page is completed.
        while done < len {
            let page = page_size();
            let rest = (page - to_offset.saturating_add(done) % page) % page;
            match copy(done, rest.min(len - done)) {
                Ok(more) if more > 0 => done += more,
                Ok(_) | Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Handles an ioctl that reads or changes flags and projects.
    pub(crate) fn control_flags(
        &self,
        inode: INodeNo,
        command: Command,
        data: &[u8],
        caller: Caller,
    ) -> Answer<Vec<u8>> {
        if command.is_change() {
            self.set_attributes(inode, &command.change(data)?, caller)?;
            return Ok(Vec::new());
        }
        let (files, object) = self.file(inode).map_err(|_| Errno::ENOTTY)?;
        Ok(command.answer(&answer(files.attributes(object))?))
    }
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// A copy into the middle of a file that ends within a page is left to the kernel as one piece up
/// to this length: programs that ignore short copies are more common than shareable blocks are
/// worth.
const RAGGED: u64 = 1 << 20;

/// How much of a copy to a file of this size leaves no partly written page: nothing if it begins
/// within a page, less if it ends within a page that continues beyond it.
fn whole_pages(offset: u64, len: u64, size: u64) -> u64 {
    let (page, end) = (page_size(), offset.saturating_add(len));
    match () {
        () if !offset.is_multiple_of(page) => 0,
        () if end >= size || end.is_multiple_of(page) => len,
        () if len <= RAGGED => 0,
        () => (end - end % page).saturating_sub(offset),
    }
}

/// The operation that `mode` of fallocate(2) requests.
pub(crate) const fn allocation_of(mode: i32) -> Answer<Allocation> {
    const KEEP_SIZE: i32 = 0x1;
    const PUNCH_HOLE: i32 = 0x2;
    const ZERO_RANGE: i32 = 0x10;
    const PUNCH: i32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_KEEPING_SIZE: i32 = ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Ok(Allocation::Reserve),
        KEEP_SIZE => Ok(Allocation::ReserveKeepSize),
        PUNCH | ZERO_KEEPING_SIZE => Ok(Allocation::Punch),
        ZERO_RANGE => Ok(Allocation::Zero),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_leave_no_page_in_part() {
        let page = page_size();
        assert_eq!(whole_pages(0, 3 * page, 10 * page), 3 * page);
        assert_eq!(whole_pages(page, RAGGED, 2 * RAGGED), RAGGED);
        assert_eq!(whole_pages(page, RAGGED + 1, 2 * RAGGED), RAGGED);
        // The kernel copies all of it.
        assert_eq!(whole_pages(page, 3 * page + 1, 10 * page), 0);
        assert_eq!(whole_pages(page, page - 1, 10 * page), 0);
        assert_eq!(whole_pages(512, 3 * page, 10 * page), 0);
        // There is nothing beyond the end of the file.
        assert_eq!(whole_pages(0, page + 7, page + 7), page + 7);
        assert_eq!(whole_pages(0, page + 8, page + 7), page + 8);
        assert_eq!(whole_pages(0, 7, 0), 7);
        assert_eq!(whole_pages(0, page + 7, page + 8), 0);
    }
}
