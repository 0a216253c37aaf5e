//! The contents of bonus buffers in the MOS: directories, datasets, lists of blocks, the history.

use crate::error::ZdbError;
use crate::session::Session;
use crate::text::pointer::Full;
use rzfs_dmu::Object;
use rzfs_format::bpobj::BpobjHeader;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::endian::Fields;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ObjectId, Txg};
use std::fmt::Display;
use std::io;

/// Prints the bonus of an object, if it is of a type that has a view.
pub(super) fn print(session: &mut Session<'_>, object: &Object) -> Result<(), ZdbError> {
    let corrupt = ZdbError::corrupt(object.id());
    let (bonus, order) = (object.bonus(), object.order());
    match object.dnode().bonus_type {
        ObjectType::DSL_DIR => {
            directory(session, &DslDir::decode(bonus, order).map_err(corrupt)?)?;
        }
        ObjectType::DSL_DATASET => {
            dataset(session, &DslDataset::decode(bonus, order).map_err(corrupt)?)?;
        }
        ObjectType::BPOBJ_HDR => {
            pointer_list(session, &BpobjHeader::decode(bonus, order).map_err(corrupt)?)?;
        }
        ObjectType::SPA_HISTORY_OFFSETS => {
            let offsets = Fields::new("pool history", bonus, order).u64s::<5>(0);
            history(session, offsets.map_err(corrupt)?)?;
        }
        _ => {}
    }
    Ok(())
}

fn field(session: &mut Session<'_>, name: &str, value: impl Display) -> io::Result<()> {
    writeln!(session.out, "\t\t{name} = {value}")
}

fn size(session: &mut Session<'_>, name: &str, bytes: u64) -> io::Result<()> {
    let bytes = session.number(bytes);
    field(session, name, bytes)
}

fn reference(session: &mut Session<'_>, name: &str, id: Option<ObjectId>) -> io::Result<()> {
    field(session, name, id.unwrap_or_default())
}

fn directory(session: &mut Session<'_>, dir: &DslDir) -> io::Result<()> {
    let created = session.calendar.ctime(dir.creation_time);
    field(session, "creation_time", created)?;
    reference(session, "head_dataset_obj", dir.head_dataset)?;
    reference(session, "parent_dir_obj", dir.parent)?;
    reference(session, "origin_obj", dir.origin)?;
    reference(session, "child_dir_zapobj", dir.children)?;
    size(session, "used_bytes", dir.used)?;
    size(session, "compressed_bytes", dir.compressed)?;
    size(session, "uncompressed_bytes", dir.uncompressed)?;
    size(session, "quota", dir.quota)?;
    size(session, "reserved", dir.reserved)?;
    reference(session, "props_zapobj", dir.properties)?;
    reference(session, "deleg_zapobj", dir.delegations)?;
    field(session, "flags", format_args!("{:x}", dir.flags))?;
    let parts = dir.breakdown;
    for (name, bytes) in [
        ("HEAD", parts.head),
        ("SNAP", parts.snapshots),
        ("CHILD", parts.children),
        ("CHILD_RSRV", parts.child_reservations),
        ("REFRSRV", parts.refreservation),
    ] {
        size(session, &format!("used_breakdown[{name}]"), bytes)?;
    }
    reference(session, "clones", dir.clones)
}

fn txg(session: &mut Session<'_>, name: &str, txg: Txg) -> io::Result<()> {
    field(session, name, txg)
}

fn dataset(session: &mut Session<'_>, dataset: &DslDataset) -> io::Result<()> {
    field(session, "dir_obj", dataset.dir)?;
    reference(session, "prev_snap_obj", dataset.previous_snapshot)?;
    txg(session, "prev_snap_txg", dataset.previous_snapshot_txg)?;
    reference(session, "next_snap_obj", dataset.next_snapshot)?;
    reference(session, "snapnames_zapobj", dataset.snapshot_names)?;
    field(session, "num_children", dataset.child_count)?;
    reference(session, "userrefs_obj", dataset.user_references)?;
    let created = session.calendar.ctime(dataset.creation_time);
    field(session, "creation_time", created)?;
    txg(session, "creation_txg", dataset.creation_txg)?;
    reference(session, "deadlist_obj", dataset.deadlist)?;
    size(session, "used_bytes", dataset.referenced)?;
    size(session, "compressed_bytes", dataset.compressed)?;
    size(session, "uncompressed_bytes", dataset.uncompressed)?;
    size(session, "unique", dataset.unique)?;
    field(session, "fsid_guid", dataset.fsid)?;
    field(session, "guid", dataset.guid)?;
    field(session, "flags", format_args!("{:x}", dataset.flags))?;
    reference(session, "next_clones_obj", dataset.next_clones)?;
    reference(session, "props_obj", dataset.properties)?;
    field(session, "bp", Full(&dataset.root))
}

fn pointer_list(session: &mut Session<'_>, list: &BpobjHeader) -> io::Result<()> {
    field(session, "num_blkptrs", list.entries)?;
    size(session, "bytes", list.bytes)?;
    // Fields missing in the list's version are shown as 0.
    size(session, "comp", list.compressed)?;
    size(session, "uncomp", list.uncompressed)?;
    reference(session, "subobjs", list.subobjects)?;
    field(session, "num_subobjs", list.subobject_count)?;
    field(session, "num_freed", list.freed)
}

fn history(session: &mut Session<'_>, offsets: [u64; 5]) -> io::Result<()> {
    let names = ["pool_create_len", "phys_max_off", "bof", "eof", "records_lost"];
    for (name, offset) in names.into_iter().zip(offsets) {
        field(session, name, offset)?;
    }
    Ok(())
}
