//! What a record of an intent log says.

use crate::zdb::session::Session;
use crate::zdb::text::pointer::Full;
use rzfs_format::ObjectId;
use rzfs_format::zil::{Body, Create, NewObject, Rename, SetAttr, SetXattr, Write as LogWrite};
use std::io::{self, Write};

/// Verbosity from which on data is shown.
const DATA: u8 = 5;
/// Bytes of data that are shown at that verbosity; at higher ones all are.
const FIRST_BYTES: usize = 20;

/// Prints a record's body.
pub(super) fn print(session: &mut Session<'_>, body: &Body<'_>, verbosity: u8) -> io::Result<()> {
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
        Body::Rename(rename) => print_rename(out, rename),
        Body::Write(write) => print_write(out, write, verbosity),
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
            if verbosity < DATA {
                return Ok(());
            }
            for (index, pointer) in clone.pointers.iter().enumerate() {
                writeln!(out, "\t\t\t[{index}/{}] {}", clone.pointers.len(), Full(pointer))?;
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

fn print_rename(out: &mut dyn Write, rename: &Rename<'_>) -> io::Result<()> {
    writeln!(out, "\t\t\tsdoid {}, tdoid {}", rename.from_directory, rename.to_directory)?;
    out.write_all(b"\t\t\tsrc ")?;
    out.write_all(rename.from)?;
    out.write_all(b" tgt ")?;
    out.write_all(rename.to)?;
    writeln!(out)
}

fn print_write(out: &mut dyn Write, write: &LogWrite<'_>, verbosity: u8) -> io::Result<()> {
    let LogWrite { object, offset, length, .. } = write;
    writeln!(out, "\t\t\tfoid {object}, offset {offset:x}, length {length:x}")?;
    if verbosity < DATA || write.is_indirect() {
        return Ok(());
    }
    let shown = if verbosity > DATA { write.data.len() } else { FIRST_BYTES };
    out.write_all(b"\t\t\t")?;
    for byte in write.data.iter().take(shown) {
        if byte.is_ascii_graphic() || *byte == b' ' {
            write!(out, "{} ", char::from(*byte))?;
        } else {
            // As a signed number, which is what zdb prints.
            write!(out, "{:2X}", i32::from(byte.cast_signed()))?;
        }
    }
    writeln!(out)
}

/// Prints which attributes are set; the bits of the mask are read as illumos has them.
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
        writeln!(out, "\t\t\tAT_ATIME {atime}")?;
    }
    if has(0x200) {
        writeln!(out, "\t\t\tAT_MTIME {mtime}")?;
    }
    Ok(())
}

/// Prints an extended attribute; as in zdb, no line ends after its value.
fn print_xattr(out: &mut dyn Write, set: &SetXattr<'_>) -> io::Result<()> {
    writeln!(out, "\t\t\tfoid {}", set.object)?;
    out.write_all(b"\t\t\tXAT_NAME  ")?;
    out.write_all(set.name)?;
    writeln!(out)?;
    match set.value {
        None => writeln!(out, "\t\t\tXAT_NULL"),
        Some(value) => {
            out.write_all(b"\t\t\tXAT_VALUE  ")?;
            out.write_all(value)
        }
    }
}
