//! Requests that change something: their dispatch to a file system, and the refusals due to grafts.

use super::Session;
use super::told::RevocableReply;
use super::waiting::Shortening;
use crate::adapter::Creation;
use crate::answer::{Answer, is_suspended};
use crate::attributes::{Entry, time_change};
use crate::credentials::Asking;
use crate::durability::{Durability, Promise};
use crate::file_flags::Command;
use fuser::{
    Errno, FileAttr, INodeNo, OpenFlags, RenameFlags, ReplyAttr, ReplyEmpty, ReplyEntry,
    ReplyWrite, TimeOrNow,
};
use rzfs_format::ObjectId;
use rzfs_zpl::SnapshotChange;
use rzfs_zpl::live::{Allocation, AttributeChange, Caller, LiveFileSystem, Privilege, WriteAt};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Whether a file was opened for durable writes: `O_SYNC` includes `O_DSYNC`. (Rustix's `DSYNC` is
/// `O_SYNC` too.)
const fn is_durable(flags: OpenFlags) -> bool {
    flags.0 & libc::O_DSYNC != 0
}

/// Replies when changes are durable.
fn promise_durable(
    durability: Option<&Durability>,
    live: &Arc<LiveFileSystem>,
    object: ObjectId,
    promise: Promise,
) {
    match durability {
        Some(durability) => durability.answer_when_durable(live, object, promise),
        None => promise(Err(Errno::EIO)),
    }
}

/// Replies to a request that has no result.
pub(super) fn done(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// How a read or write uses the kernel's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pages {
    /// They hold the data afterwards.
    Kept,
    /// It bypasses them (`O_DIRECT`).
    Passed,
}

impl Pages {
    /// The mode for a file that was opened with these flags.
    pub(super) const fn of(flags: OpenFlags) -> Self {
        if flags.0 & libc::O_DIRECT != 0 { Self::Passed } else { Self::Kept }
    }
}

/// The parameters of a write without its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    pub(super) inode: INodeNo,
    pub(super) offset: u64,
    pub(super) caller: Caller,
    pub(super) flags: OpenFlags,
    pub(super) pages: Pages,
    pub(super) shortening: Shortening,
}

impl Writing {
    /// Whether it must go to the end of the file, whatever offset the kernel assumes.
    const fn appends(&self) -> bool {
        self.flags.0 & libc::O_APPEND != 0 && !matches!(self.shortening, Shortening::Never)
    }
}

/// The progress of a write.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Progress {
    /// Bytes written so far.
    pub(super) written: usize,
    /// Whether they went to an end of file other than the kernel assumed.
    is_elsewhere: bool,
}

/// Means "to the end of the file" as the length of a range of pages.
const TO_THE_END: u64 = 0;

/// Attribute changes as FUSE passes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetAttributes {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
}

impl Session {
    /// Replies with a file that the kernel knows from now on.
    pub(super) fn named(reply: ReplyEntry, answer: Answer<Entry>) {
        match answer {
            Ok(Entry { attributes, generation, lifetime }) => {
                reply.entry_with_ttls(&lifetime.attributes, &lifetime.name, &attributes, generation)
            }
            Err(error) => reply.error(error),
        }
    }

    /// Replies with attributes.
    pub(super) fn shown(reply: ReplyAttr, answer: Answer<(FileAttr, Duration)>) {
        match answer {
            Ok((attributes, lifetime)) => reply.attr(&lifetime, &attributes),
            Err(error) => reply.error(error),
        }
    }

    pub(super) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        creation: Creation<'_>,
        asking: Asking,
    ) -> Answer<Entry> {
        let (index, adapter, directory) = self.inner(parent)?;
        let _kept = self.keep_shape();
        let entry = adapter.create(directory, name.as_bytes(), creation, asking)?;
        self.entry(index, entry)
    }

    /// Whether the names in a directory are those of snapshots.
    pub(super) fn shows_snapshots(&self, directory: INodeNo) -> bool {
        let inner = self.inner(directory);
        inner.is_ok_and(|(_, adapter, directory)| adapter.shows_snapshots(directory))
    }

    pub(super) fn take_snapshot(
        &self,
        parent: INodeNo,
        name: &OsStr,
        caller: Caller,
    ) -> Answer<Entry> {
        let (_, adapter, _) = self.inner(parent)?;
        adapter.change_snapshots(SnapshotChange::Take { name: name.as_bytes() }, caller)?;
        // This runs on another thread.
        let _pass = self.enter();
        self.look_up(parent, name)
    }

    pub(super) fn destroy_snapshot(
        &self,
        parent: INodeNo,
        name: &OsStr,
        caller: Caller,
    ) -> Answer<()> {
        let (_, adapter, _) = self.inner(parent)?;
        adapter.change_snapshots(SnapshotChange::Destroy { name: name.as_bytes() }, caller)
    }

    pub(super) fn rename_snapshot(
        &self,
        (from, name): (INodeNo, &OsStr),
        (to, new_name): (INodeNo, &OsStr),
        flags: RenameFlags,
        caller: Caller,
    ) -> Answer<()> {
        let ((index, adapter, source), (other, _, target)) = (self.inner(from)?, self.inner(to)?);
        // A snapshot stays where it is.
        if index != other || source != target {
            return Err(Errno::EPERM);
        }
        // Replacing one is not possible either.
        if !flags.difference(RenameFlags::RENAME_NOREPLACE).is_empty() {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (name.as_bytes(), new_name.as_bytes());
        adapter.change_snapshots(SnapshotChange::Rename { from, to }, caller)
    }

    pub(super) fn make_unnamed(
        &self,
        parent: INodeNo,
        creation: Creation<'_>,
        asking: Asking,
    ) -> Answer<Entry> {
        let (index, adapter, directory) = self.inner(parent)?;
        self.entry(index, adapter.create_unnamed(directory, creation, asking)?)
    }

    pub(super) fn link_file(&self, file: INodeNo, parent: INodeNo, name: &OsStr) -> Answer<Entry> {
        let ((index, adapter, directory), (of_file, _, file)) =
            (self.inner(parent)?, self.inner(file)?);
        if index != of_file {
            return Err(Errno::EXDEV);
        }
        let _kept = self.keep_shape();
        self.entry(index, adapter.link(file, directory, name.as_bytes())?)
    }

    /// Refuses to remove or move a directory at which a file system is grafted.
    fn refuse_graft(&self, parent: INodeNo, name: &OsStr) -> Answer<()> {
        if self.grafts.is_empty() {
            return Ok(());
        }
        let (index, adapter, directory) = self.inner(parent)?;
        match adapter.number_of(directory, name.as_bytes()) {
            Ok(number) if self.grafts.is_place(index, number) => Err(Errno::EBUSY),
            Err(error) if error.code() != Errno::ENOENT.code() => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn remove_file(&self, parent: INodeNo, name: &OsStr) -> Answer<()> {
        let (_, adapter, directory) = self.inner(parent)?;
        adapter.unlink(directory, name.as_bytes())
    }

    pub(super) fn remove_directory(&self, parent: INodeNo, name: &OsStr) -> Answer<()> {
        let _kept = self.keep_shape();
        self.refuse_graft(parent, name)?;
        let (_, adapter, directory) = self.inner(parent)?;
        adapter.rmdir(directory, name.as_bytes())
    }

    pub(super) fn move_name(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
        caller: Caller,
    ) -> Answer<()> {
        let ((index, adapter, source), (other, _, target)) =
            (self.inner(from.0)?, self.inner(to.0)?);
        if index != other {
            return Err(Errno::EXDEV);
        }
        let _kept = self.keep_shape();
        self.refuse_graft(from.0, from.1)?;
        self.refuse_graft(to.0, to.1)?;
        let (from, to) = ((source, from.1.as_bytes()), (target, to.1.as_bytes()));
        adapter.rename(from, to, flags, caller)
    }

    pub(super) fn set_attributes(
        &self,
        inode: INodeNo,
        wanted: SetAttributes,
        caller: Caller,
    ) -> Answer<(FileAttr, Duration)> {
        let (_, adapter, inner) = self.inner(inode)?;
        let change = AttributeChange {
            permissions: wanted.mode,
            uid: wanted.uid,
            gid: wanted.gid,
            size: wanted.size,
            atime: wanted.atime.map(time_change),
            mtime: wanted.mtime.map(time_change),
            ..AttributeChange::default()
        };
        adapter.set_attributes(inner, &change, caller)?;
        self.attributes(inode)
    }

    /// The file system and object of a file that can be changed.
    fn changing(&self, inode: INodeNo) -> Answer<(Arc<LiveFileSystem>, ObjectId)> {
        let (_, adapter, inner) = self.inner(inode)?;
        let (live, object) = adapter.changing(inner)?;
        Ok((Arc::clone(live), object))
    }

    /// Whether freeing these bytes of a file takes many transaction groups.
    pub(super) fn takes_many_groups(&self, inode: INodeNo, bytes: Range<u64>) -> bool {
        let changing = self.changing(inode);
        changing.is_ok_and(|(live, object)| live.takes_many_groups(object, bytes))
    }

    /// Whether reserving or freeing a range of a file must wait for transaction groups.
    pub(super) fn waits_for_groups(
        &self,
        inode: INodeNo,
        range: Range<u64>,
        allocation: Allocation,
    ) -> bool {
        match allocation {
            Allocation::Punch | Allocation::Zero => self.takes_many_groups(inode, range),
            Allocation::Reserve | Allocation::ReserveKeepSize => {
                let changing = self.changing(inode);
                changing.is_ok_and(|(live, _)| live.waits_for_accounts(range.end - range.start))
            }
        }
    }

    /// Replies when changes to a file and to all names are durable.
    pub(super) fn make_durable(&self, inode: INodeNo, reply: ReplyEmpty) {
        if let Err(error) = self.inner(inode) {
            return reply.error(error);
        }
        match self.changing(inode) {
            // An unchanging file has no pending changes.
            Err(_) => reply.ok(),
            Ok((live, object)) => {
                let promise = Box::new(move |durable| done(reply, durable));
                promise_durable(self.durability.as_deref(), &live, object, promise);
            }
        }
    }

    /// Replies with the result of a change to a file; if all changes of its file system must be
    /// durable, once this one is.
    pub(super) fn answer_change<T: RevocableReply>(
        self: &Arc<Self>,
        inode: INodeNo,
        answer: Answer<T>,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let changed = self.changing(inode);
        match (answer, changed) {
            (Ok(told), Ok((live, object))) if live.callers_must_commit() => {
                let session = Arc::downgrade(self);
                let promise = move |durable: Answer<()>| match (durable, session.upgrade()) {
                    (Ok(()), _) => reply(Ok(told)),
                    (Err(error), session) => {
                        if let Some(session) = session {
                            told.take_back(&session);
                        }
                        reply(Err(error));
                    }
                };
                promise_durable(self.durability.as_deref(), &live, object, Box::new(promise));
            }
            (answer, _) => reply(answer),
        }
    }

    /// Continues a write, as far as possible.
    ///
    /// # Errors
    /// Nothing was written at all, or the pool is suspended.
    pub(super) fn write_rest(
        &self,
        writing: &Writing,
        data: &[u8],
        progress: &mut Progress,
    ) -> Answer<()> {
        let (_, adapter, inode) = self.inner(writing.inode)?;
        if writing.shortening == Shortening::Never && adapter.discards_stores(inode) {
            // It was stored into replaced contents.
            progress.written = data.len();
            return Ok(());
        }
        if writing.pages == Pages::Kept {
            adapter.note_pages(inode);
        }
        loop {
            let rest = data.get(progress.written..).unwrap_or_default();
            let offset = writing.offset.saturating_add(progress.written as u64);
            let goes_to_end = writing.appends() && adapter.is_resized(inode);
            let at = if goes_to_end { WriteAt::End } else { WriteAt::Offset(offset) };
            match adapter.write(inode, at, rest, writing.caller) {
                Ok((place, written)) => {
                    progress.written += written;
                    match place == offset {
                        // The kernel serialises appends: it knows the length, and no write sent
                        // earlier is in flight.
                        true if goes_to_end => adapter.clear_resized(inode),
                        true => {}
                        false => progress.is_elsewhere = true,
                    }
                }
                Err(error) if progress.written == 0 || is_suspended(error) => return Err(error),
                Err(_) if writing.shortening == Shortening::Possible => return Ok(()),
                // No writer would repeat the rest of a kernel page.
                Err(error) => return Err(error),
            }
            if progress.written >= data.len() {
                return Ok(());
            }
        }
    }

    /// Replies with the number of bytes written; for durable writes once they are durable. A write
    /// that bypasses the kernel's pages is answered when the kernel has no stale ones.
    pub(super) fn answer_write(
        &self,
        writing: &Writing,
        written: Answer<Progress>,
        reply: ReplyWrite,
    ) {
        let Writing { inode, offset, caller, flags, pages, .. } = *writing;
        let written = self.inner(inode).and_then(|(_, adapter, inode)| {
            let Progress { written, is_elsewhere } = written?;
            let written = u32::try_from(written).unwrap_or(u32::MAX);
            let is_stale = pages == Pages::Passed && adapter.has_pages(inode);
            let (live, object) = adapter.changing(inode)?;
            Ok((written, (is_stale, is_elsewhere), (Arc::clone(live), object)))
        });
        self.invalidate_mode_if_setid_cleared(inode, caller);
        let (written, (is_stale, is_elsewhere), (live, object)) = match written {
            Ok(written) => written,
            Err(error) => {
                reply.error(error);
                let is_refused = [Errno::EPERM, Errno::EROFS].contains(&error);
                if let Some(pages) = self.pages.as_ref().filter(|_| is_refused) {
                    // Readers must not see the refused change of a mapping in pages.
                    pages.drop_pages(inode, (offset, TO_THE_END), || ());
                }
                return;
            }
        };
        let is_promised = is_durable(flags) || live.callers_must_commit();
        let promised = is_promised.then(|| (self.durability.clone(), Arc::clone(&live)));
        let answer = move || match promised {
            Some((durability, live)) => {
                let promise = move |durable| match durable {
                    Ok(()) => reply.written(written),
                    Err(error) => reply.error(error),
                };
                promise_durable(durability.as_deref(), &live, object, Box::new(promise));
            }
            None => reply.written(written),
        };
        match &self.pages {
            Some(pages) if is_stale => {
                pages.drop_pages(inode, (offset, u64::from(written)), answer);
            }
            Some(pages) if is_elsewhere => {
                // The kernel has the data in pages at the wrong offset, held until the reply.
                answer();
                pages.drop_pages(inode, (0, TO_THE_END), || ());
            }
            _ => answer(),
        }
    }

    pub(super) fn copy(
        &self,
        from: (INodeNo, u64),
        to: (INodeNo, u64),
        len: u64,
        caller: Caller,
    ) -> Answer<u64> {
        let (_, of_source, source) = self.inner(from.0)?;
        let (_, adapter, target) = self.inner(to.0)?;
        let copied = adapter.copy((&of_source, source, from.1), (target, to.1), len, caller);
        self.invalidate_mode_if_setid_cleared(to.0, caller);
        copied
    }

    /// Reserves or frees a range of a file.
    pub(super) fn allocate(
        &self,
        inode: INodeNo,
        (offset, len): (u64, u64),
        allocation: Allocation,
        caller: Caller,
    ) -> Answer<()> {
        let (_, adapter, inner) = self.inner(inode)?;
        let allocated = adapter.allocate(inner, offset, len, allocation, caller);
        self.invalidate_mode_if_setid_cleared(inode, caller);
        allocated
    }

    /// Handles an ioctl that reads or changes flags and projects.
    pub(super) fn control_flags(
        &self,
        inode: INodeNo,
        command: Command,
        data: &[u8],
        caller: Caller,
    ) -> Answer<Vec<u8>> {
        let (_, adapter, inner) = self.inner(inode)?;
        let answer = adapter.control_flags(inner, command, data, caller);
        if command.is_change() {
            // The kernel does not know that this changes a time.
            self.cache.forget_attributes(inode);
        }
        answer
    }

    /// Makes the kernel ask for the mode of a file if this write has changed it: by itself it asks
    /// only for times and lengths.
    fn invalidate_mode_if_setid_cleared(&self, inode: INodeNo, caller: Caller) {
        if caller.privilege == Privilege::Superuser {
            return;
        }
        let lost =
            self.inner(inode).and_then(|(_, adapter, inode)| adapter.take_setid_cleared(inode));
        if lost == Ok(true) {
            self.cache.forget_attributes(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_ask_for_durable_writes_are_understood() {
        let appended = libc::O_WRONLY | libc::O_APPEND;
        assert!(!is_durable(OpenFlags(appended)));
        assert!(is_durable(OpenFlags(appended | libc::O_DSYNC)));
        assert!(is_durable(OpenFlags(appended | libc::O_SYNC)));
    }
}
