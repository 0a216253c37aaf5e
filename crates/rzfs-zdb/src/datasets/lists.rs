//! Lists of block pointers: pending frees, dead lists and live lists.
//!
//! Three `d` show their lengths, four the parts of a dead list, and five their entries.

use crate::error::ZdbError;
use crate::session::Session;
use crate::text::pointer::Compact;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::pool::{PointerList, Pool};
use rzfs_format::bpobj::{BpobjVersion, ListMark, list_mark};
use rzfs_format::deadlist::{DeadlistHeader, parse_key};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, FormatError, ObjectId, Txg};
use std::collections::HashSet;
use std::io;

/// Minimum verbosity for the parts of a dead list.
const PARTS: u8 = 4;
/// Minimum verbosity for entries.
const ENTRIES: u8 = 5;
/// Maximum depth to which nested lists are shown.
const MAX_DEPTH: usize = 8;

/// Prints the lists of blocks that the pool has yet to free.
pub(super) fn print_frees(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    for (key, title) in [
        ("sync_bplist", "Deferred frees"),
        ("free_bpobj", "Pool snapshot frees"),
        ("com.delphix:obsolete_bpobj", "Pool obsolete blocks"),
    ] {
        if let Some(id) = pool.directory().object(key)? {
            print_list(session, pool.mos(), title, id)?;
        }
    }
    Ok(())
}

/// Prints the dead list of a dataset.
pub(super) fn print_deadlist(
    session: &mut Session<'_>,
    pool: &Pool,
    id: ObjectId,
) -> Result<(), ZdbError> {
    let object = pool.mos().object(id)?;
    if object.dnode().bonus_type == ObjectType::BPOBJ_HDR {
        return print_list(session, pool.mos(), "old-format deadlist", id);
    }
    print_parts(session, pool, "Deadlist", id)
}

/// Prints the live list of a clone.
pub(super) fn print_livelist(
    session: &mut Session<'_>,
    pool: &Pool,
    id: ObjectId,
) -> Result<(), ZdbError> {
    print_parts(session, pool, "Livelist", id)
}

/// Prints the entries of an object that is a list, in stored order.
pub(super) fn print_stored(session: &mut Session<'_>, object: &Object) -> Result<(), ZdbError> {
    if session.arguments.datasets < ENTRIES {
        return Ok(());
    }
    for entry in PointerList::of(object.clone())?.entries_from(0) {
        writeln!(session.out, "\t{}", entry_text(session, &entry?))?;
    }
    Ok(())
}

/// An entry, with its mark.
fn entry_text<'a>(session: &Session<'_>, entry: &'a BlockPointer) -> Compact<'a> {
    Compact { is_freed: list_mark(entry) == ListMark::Freed, ..session.compact(entry) }
}

/// Prints a list of lists by txg.
fn print_parts(
    session: &mut Session<'_>,
    pool: &Pool,
    title: &str,
    id: ObjectId,
) -> Result<(), ZdbError> {
    let corrupt = ZdbError::corrupt(id);
    let object = pool.mos().object(id)?;
    let header = DeadlistHeader::decode(object.bonus(), object.order()).map_err(&corrupt)?;
    let mut parts: Vec<(Txg, ObjectId)> = Vec::new();
    for entry in object.zap()?.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        let txg = parse_key(entry.name()).map_err(&corrupt)?;
        parts.push((txg, ObjectId(entry.value.first_u64().unwrap_or(0))));
    }
    parts.sort_unstable();
    let [used, compressed, uncompressed] =
        [header.used, header.compressed, header.uncompressed].map(|size| session.number(size));
    let count = parts.len();
    writeln!(
        session.out,
        "\n    {title}: {used} ({compressed}/{uncompressed} comp), {count} entries"
    )?;
    let verbosity = session.arguments.datasets;
    if verbosity < PARTS {
        return Ok(());
    }
    writeln!(session.out)?;
    for (txg, part) in parts {
        if verbosity >= ENTRIES {
            print_list(session, pool.mos(), &format!("mintxg {txg} -> obj {part}"), part)?;
        } else {
            writeln!(session.out, "mintxg {txg} -> obj {part}")?;
        }
    }
    Ok(())
}

/// Prints a list and, below it, the lists that it includes.
fn print_list(
    session: &mut Session<'_>,
    mos: &Objset,
    title: &str,
    id: ObjectId,
) -> Result<(), ZdbError> {
    let mut seen = HashSet::from([id]);
    print_titles(session, mos, title, id, &mut seen, 0)?;
    if session.arguments.datasets >= ENTRIES {
        print_entries(session, mos, id)?;
        writeln!(session.out)?;
    }
    Ok(())
}

fn print_titles(
    session: &mut Session<'_>,
    mos: &Objset,
    title: &str,
    id: ObjectId,
    seen: &mut HashSet<ObjectId>,
    depth: usize,
) -> Result<(), ZdbError> {
    let list = PointerList::of(mos.object(id)?)?;
    let header = list.header();
    let bytes = session.number(header.bytes);
    let indent = 4 + 2 * depth;
    write!(session.out, "{:indent$}{title}: object {id}, {} ", "", header.entries)?;
    let Some(array) = header.subobjects.filter(|_| header.subobject_count > 0) else {
        write!(session.out, "blkptrs, ")?;
        print_freed(session, &list)?;
        writeln!(session.out, "{bytes}")?;
        return Ok(());
    };
    let [compressed, uncompressed] =
        [header.compressed, header.uncompressed].map(|size| session.number(size));
    write!(session.out, "local blkptrs, ")?;
    print_freed(session, &list)?;
    writeln!(
        session.out,
        "{} subobjs in object {array}, {bytes} ({compressed}/{uncompressed} comp)",
        header.subobject_count
    )?;
    for sublist in list.sublists()? {
        if depth >= MAX_DEPTH || !seen.insert(sublist) {
            let problem = FormatError::invalid("bpobj", "lists that include each other");
            return Err(ZdbError::corrupt(sublist)(problem));
        }
        print_titles(session, mos, "subobj", sublist, seen, depth + 1)?;
    }
    Ok(())
}

/// Prints the number of entries marked as freed, for lists that count them.
fn print_freed(session: &mut Session<'_>, list: &PointerList) -> io::Result<()> {
    if list.header().version >= BpobjVersion::V3 {
        write!(session.out, "{} freed, ", list.header().freed)?;
    }
    Ok(())
}

/// Prints all entries, the newest first.
fn print_entries(session: &mut Session<'_>, mos: &Objset, id: ObjectId) -> Result<(), ZdbError> {
    for list in PointerList::with_sublists(mos.object(id)?) {
        for entry in list?.entries_backwards() {
            writeln!(session.out, "\t{}", entry_text(session, &entry?))?;
        }
    }
    Ok(())
}
