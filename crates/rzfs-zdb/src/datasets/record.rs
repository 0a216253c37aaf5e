//! The bodies of intent log records.

use crate::session::Session;
use crate::text::pointer::Full;
use rzfs_dmu::{BlockRequest, Objset};
use rzfs_format::units::Bookmark;
use rzfs_format::zil::{
    Body, Create, NewObject, RecordKind, Rename, SetAttr, SetXattr, Write as LogWrite,
};
use rzfs_format::znode::Timestamp;
use rzfs_format::{BlockId, Level, ObjectId, Txg};
use std::io::{self, Write};

/// Minimum verbosity for pointers.
const POINTERS: u8 = 4;
/// Minimum verbosity for data.
const DATA: u8 = 5;
/// Bytes of data shown at that verbosity; higher ones show all.
const FIRST_BYTES: usize = 20;

/// The log of a record.
pub(super) struct Log<'a> {
    pub(super) objset: &'a Objset,
    /// The txg in which the log was claimed.
    pub(super) claim_txg: Option<Txg>,
    /// The last txg of the pool.
    pub(super) last_txg: Txg,
    pub(super) verbosity: u8,
}

/// Prints a record's body.
pub(super) fn print(
    session: &mut Session<'_>,
    log: &Log<'_>,
    kind: RecordKind,
    body: &Body<'_>,
) -> io::Result<()> {
    let out = &mut *session.out;
    match body {
        Body::Create(create) => print_create(session, create),
        Body::CreateAcl(create) => {
            print_name(out, create.name)?;
            print_new(session, create.directory, &create.new)
        }
        Body::Remove { directory, name } => {
            write!(out, "\t\t\tdoid {directory}, name ")?;
            out.write_all(name)?;
            writeln!(out)
        }
        Body::Link { directory, object, name } => {
            write!(out, "\t\t\tdoid {directory}, link_obj {object}, name ")?;
            out.write_all(name)?;
            writeln!(out)
        }
        Body::Rename(rename) => print_rename(out, kind, rename),
        Body::Write(write) => print_write(out, log, kind, write),
        Body::Truncate { object, offset, length } => {
            writeln!(out, "\t\t\tfoid {object}, offset {offset:#x}, length {length:#x}")
        }
        Body::SetAttr(set) => print_attributes(session, set),
        Body::Acl { object, acl } => {
            writeln!(out, "\t\t\tfoid {object}, aclcnt {}", acl.entries.len())
        }
        Body::SetXattr(set) => print_xattr(out, set),
        Body::CloneRange(clone) => {
            writeln!(
                out,
                "\t\t\tfoid {}, offset {:x}, length {:x}, blksize {:x}",
                clone.object, clone.offset, clone.length, clone.block_size
            )?;
            if log.verbosity < POINTERS {
                return Ok(());
            }
            for (number, pointer) in (1..).zip(&clone.pointers) {
                let pointer = Full(pointer);
                writeln!(out, "\t\t\t[{number}/{}] {pointer}", clone.pointers.len())?;
            }
            Ok(())
        }
    }
}

fn print_name(out: &mut dyn Write, name: &[u8]) -> io::Result<()> {
    out.write_all(b"\t\t\t")?;
    out.write_all(name)?;
    writeln!(out)
}

fn print_create(session: &mut Session<'_>, create: &Create<'_>) -> io::Result<()> {
    if !create.target.is_empty() {
        print_name(session.out, &[create.name, create.target].join(&b" -> "[..]))?;
    } else if !create.name.is_empty() {
        print_name(session.out, create.name)?;
    }
    print_new(session, create.directory, &create.new)
}

fn print_new(session: &mut Session<'_>, directory: ObjectId, new: &NewObject) -> io::Result<()> {
    let time = session.calendar.ctime(new.create_time.seconds.max(0).cast_unsigned());
    let out = &mut *session.out;
    writeln!(out, "\t\t\t{time}")?;
    writeln!(
        out,
        "\t\t\tdoid {directory}, foid {}, slots {}, mode {:o}",
        new.object, new.slots, new.mode
    )?;
    writeln!(
        out,
        "\t\t\tuid {}, gid {}, gen {}, rdev {:#x}",
        new.uid.0,
        new.gid.0,
        new.generation,
        new.device.encode()
    )
}

fn print_rename(out: &mut dyn Write, kind: RecordKind, rename: &Rename<'_>) -> io::Result<()> {
    writeln!(out, "\t\t\tsdoid {}, tdoid {}", rename.from_directory, rename.to_directory)?;
    out.write_all(b"\t\t\tsrc ")?;
    out.write_all(rename.from)?;
    out.write_all(b" tgt ")?;
    out.write_all(rename.to)?;
    writeln!(out)?;
    match kind {
        RecordKind::RenameExchange => writeln!(out, "\t\t\tflags RENAME_EXCHANGE"),
        RecordKind::RenameWhiteout => writeln!(out, "\t\t\tflags RENAME_WHITEOUT"),
        _ => Ok(()),
    }
}

fn print_write(
    out: &mut dyn Write,
    log: &Log<'_>,
    kind: RecordKind,
    write: &LogWrite<'_>,
) -> io::Result<()> {
    let LogWrite { object, offset, length, pointer, data } = write;
    writeln!(out, "\t\t\tfoid {object}, offset {offset:x}, length {length:x}")?;
    if kind == RecordKind::Write2 {
        return Ok(());
    }
    if !write.is_indirect() {
        return if log.verbosity < DATA { Ok(()) } else { print_data(out, data, log.verbosity) };
    }
    if log.verbosity < POINTERS {
        return Ok(());
    }
    let birth = pointer.logical_birth();
    let will = !pointer.is_hole() && birth > log.last_txg;
    let claim = if will { "will claim" } else { "won't claim" };
    writeln!(out, "\t\t\thas blkptr, {claim}")?;
    writeln!(out, "\t\t\t{}", Full(pointer))?;
    if log.verbosity < DATA {
        return Ok(());
    }
    if pointer.is_hole() {
        writeln!(out, "\t\t\tLSIZE {:#x}", pointer.logical_size())?;
        return writeln!(out, "\t\t\t<hole>");
    }
    if log.claim_txg.is_some_and(|claimed| birth < claimed) {
        return writeln!(out, "\t\t\t<block already committed>");
    }
    let block = offset.checked_div(pointer.logical_size()).unwrap_or(0);
    let bookmark = Bookmark {
        objset: log.objset.id(),
        object: *object,
        level: Level::DATA,
        block: BlockId(block),
    };
    let request = BlockRequest { pointer, bookmark, key: None };
    match log.objset.pipeline().read(request) {
        Ok(block) => print_data(out, &block.data, log.verbosity),
        Err(_) => Ok(()),
    }
}

/// Prints bytes: printable ones as characters, others in hex.
fn print_data(out: &mut dyn Write, data: &[u8], verbosity: u8) -> io::Result<()> {
    let shown = if verbosity > DATA { data.len() } else { FIRST_BYTES };
    out.write_all(b"\t\t\t")?;
    for byte in data.iter().take(shown) {
        if byte.is_ascii_graphic() || *byte == b' ' {
            write!(out, "{} ", char::from(*byte))?;
        } else {
            // As a signed number, like zdb.
            write!(out, "{:2X}", i32::from(byte.cast_signed()))?;
        }
    }
    writeln!(out)
}

/// Prints the attributes that are set; the bits of the mask have illumos's meaning.
fn print_attributes(session: &mut Session<'_>, set: &SetAttr<'_>) -> io::Result<()> {
    let time = |seconds: i64| session.calendar.ctime(seconds.max(0).cast_unsigned());
    let (atime, mtime) = (time(set.atime.seconds), time(set.mtime.seconds));
    let out = &mut *session.out;
    writeln!(out, "\t\t\tfoid {}, mask {:#x}", set.object, set.mask)?;
    let has = |bit: u64| set.mask & bit != 0;
    if has(0x2) {
        writeln!(out, "\t\t\tAT_MODE  {:o}", set.mode)?;
    }
    if has(0x4) {
        writeln!(out, "\t\t\tAT_UID   {}", set.uid.0)?;
    }
    if has(0x8) {
        writeln!(out, "\t\t\tAT_GID   {}", set.gid.0)?;
    }
    if has(0x80) {
        writeln!(out, "\t\t\tAT_SIZE  {}", set.size)?;
    }
    if has(0x100) {
        let Timestamp { seconds, nanoseconds } = set.atime;
        writeln!(out, "\t\t\tAT_ATIME {seconds}.{nanoseconds:09} {atime}")?;
    }
    if has(0x200) {
        let Timestamp { seconds, nanoseconds } = set.mtime;
        writeln!(out, "\t\t\tAT_MTIME {seconds}.{nanoseconds:09} {mtime}")?;
    }
    Ok(())
}

/// Prints an extended attribute; as in zdb, no newline follows its value.
fn print_xattr(out: &mut dyn Write, set: &SetXattr<'_>) -> io::Result<()> {
    writeln!(out, "\t\t\tfoid {}", set.object)?;
    out.write_all(b"\t\t\tXAT_NAME  ")?;
    out.write_all(set.name)?;
    writeln!(out)?;
    match set.value {
        None => writeln!(out, "\t\t\tXAT_VALUE  NULL"),
        Some(value) => {
            out.write_all(b"\t\t\tXAT_VALUE  ")?;
            out.write_all(value)
        }
    }
}
