//! ZAPs: statistics and entries.

use crate::error::ZdbError;
use crate::session::Session;
use crate::text::histogram;
use rzfs_dmu::Object;
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::object_type::ObjectType;
use rzfs_format::zap::fat::{self, PointerTable};
use rzfs_zap::{FatStatistics, IntegerSize, ZapEntry, ZapKey, ZapStatistics, ZapValue};
use std::io::{self, Write};

/// The format of the values of a ZAP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Plain,
    Directory,
    AttributeRegistration,
    AttributeLayouts,
}

impl View {
    const fn of(object_type: ObjectType) -> Self {
        match object_type {
            ObjectType::DIRECTORY_CONTENTS => Self::Directory,
            ObjectType::SA_ATTR_REGISTRATION => Self::AttributeRegistration,
            ObjectType::SA_ATTR_LAYOUTS => Self::AttributeLayouts,
            _ => Self::Plain,
        }
    }
}

/// Prints the ZAP in an object.
pub(super) fn print(session: &mut Session<'_>, object: &Object) -> Result<(), ZdbError> {
    let zap = object.zap()?;
    match zap.statistics().map_err(|source| object.zap_error(source))? {
        ZapStatistics::Micro(micro) => writeln!(
            session.out,
            "\tmicrozap: {} bytes, {} entries",
            micro.block_size, micro.entries
        )?,
        ZapStatistics::Fat(fat) => print_fat(session.out, &fat)?,
    }
    if object.object_type() == ObjectType::DDT_ZAP {
        // `zdb -D` shows the entries, decoded.
        return Ok(());
    }
    writeln!(session.out)?;
    let view = View::of(object.object_type());
    for entry in zap.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        print_entry(session.out, &entry, view)?;
    }
    Ok(())
}

fn print_fat(out: &mut dyn Write, statistics: &FatStatistics) -> io::Result<()> {
    /// Type of the header block of a fat ZAP.
    const HEADER_TYPE: u64 = 1 << 63 | 1;
    let header = &statistics.header;
    let blocks = match header.table {
        PointerTable::Embedded => 0,
        PointerTable::External { blocks, .. } => blocks,
    };
    writeln!(out, "\tFat ZAP stats:\n\t\tPointer table:")?;
    writeln!(out, "\t\t\t{} elements", 1_u64 << header.table_shift.min(63))?;
    writeln!(out, "\t\t\tzt_blk: {}", statistics.table_block())?;
    writeln!(out, "\t\t\tzt_numblks: {blocks}")?;
    writeln!(out, "\t\t\tzt_shift: {}", header.table_shift)?;
    writeln!(out, "\t\t\tzt_blks_copied: {}", header.blocks_copied)?;
    writeln!(out, "\t\t\tzt_nextblk: {}", header.next_table)?;
    writeln!(out, "\t\tZAP entries: {}", header.entries)?;
    writeln!(out, "\t\tLeaf blocks: {}", header.leaves)?;
    writeln!(out, "\t\tTotal blocks: {}", statistics.blocks)?;
    writeln!(out, "\t\tzap_block_type: {HEADER_TYPE:#x}")?;
    writeln!(out, "\t\tzap_magic: {:#x}", fat::MAGIC)?;
    writeln!(out, "\t\tzap_salt: {:#x}", header.salt)?;
    for (title, counts) in [
        ("Leafs with 2^n pointers:", &statistics.leaves_with_pointers),
        ("Blocks with n*5 entries:", &statistics.leaves_with_fives),
        ("Blocks n/10 full:", &statistics.leaves_with_tenths),
        ("Entries with n chunks:", &statistics.entries_with_chunks),
        ("Buckets with n entries:", &statistics.buckets_with_entries),
    ] {
        writeln!(out, "\t\t{title}")?;
        histogram::print(out, counts, 0)?;
    }
    Ok(())
}

fn print_entry(out: &mut dyn Write, entry: &ZapEntry, view: View) -> io::Result<()> {
    write!(out, "\t\t")?;
    match &entry.key {
        ZapKey::Name(name) => out.write_all(name)?,
        ZapKey::Words(words) => {
            // Decimal digits between a hex prefix and suffix, as in zdb.
            for word in words {
                write!(out, "0x{word:010}x")?;
            }
        }
    }
    write!(out, " = ")?;
    let value = &entry.value;
    match view {
        View::Directory => print_directory_entry(out, value)?,
        View::AttributeRegistration => {
            let word = value.first_u64().unwrap_or(0);
            let (length, swap, number) = (word >> 24 & 0xffff, word >> 16 & 0xff, word & 0xffff);
            write!(out, " {word:x} : [{length}:{swap}:{number}]")?;
        }
        View::AttributeLayouts => {
            write!(out, "[")?;
            for number in value.integers() {
                write!(out, " {number} ")?;
            }
            write!(out, "]")?;
        }
        View::Plain if entry.key.as_words().is_some() => print_bytes(out, value)?,
        View::Plain => print_value(out, entry.name(), value)?,
    }
    writeln!(out)
}

fn print_directory_entry(out: &mut dyn Write, value: &ZapValue) -> io::Result<()> {
    let entry = DirectoryEntry::decode(value.first_u64().unwrap_or(0));
    let kind = match entry.kind {
        None => "not specified",
        Some(FileKind::Fifo) => "FIFO",
        Some(FileKind::CharDevice) => "Character Device",
        Some(FileKind::Directory) => "Directory",
        Some(FileKind::BlockDevice) => "Block Device",
        Some(FileKind::Regular) => "Regular File",
        Some(FileKind::Symlink) => "Symbolic Link",
        Some(FileKind::Socket) => "Socket",
    };
    write!(out, "{} (type: {kind})", entry.object)
}

/// Whether the value of a name is binary.
fn is_binary(name: &[u8]) -> bool {
    name.starts_with(b"DSL_CRYPTO_") || name == b"org.illumos:checksum_salt"
}

/// Prints the values of entries with numeric keys: bytes are numbers as well.
fn print_bytes(out: &mut dyn Write, value: &ZapValue) -> io::Result<()> {
    match value.as_bytes() {
        Some(bytes) if value.integer_size() == IntegerSize::One => {
            bytes.iter().try_for_each(|byte| write!(out, "{byte} "))
        }
        _ => value.integers().try_for_each(|number| write!(out, "{number} ")),
    }
}

fn print_value(out: &mut dyn Write, name: &[u8], value: &ZapValue) -> io::Result<()> {
    match value.as_bytes() {
        Some(bytes) if value.integer_size() == IntegerSize::One && is_binary(name) => {
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Some(bytes) if value.integer_size() == IntegerSize::One => {
            out.write_all(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
        }
        _ => value.integers().try_for_each(|number| write!(out, "{} ", number.cast_signed())),
    }
}
