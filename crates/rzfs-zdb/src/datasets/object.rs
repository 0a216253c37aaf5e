//! One object: its line, its bonus, its contents and the locations of its blocks.

use super::znode::FileView;
use super::{bonus, lists, tree, words, zap};
use crate::config;
use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::pool::Pool;
use rzfs_format::block_pointer::Protection;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::dnode::{Dnode, DnodeFlags, SLOT_SIZE};
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_format::{BlockPointer, ObjectId, ObjsetId};
use std::io;

/// The line above objects.
const HEADING: &str = "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type\n";

/// Minimum verbosity for the contents of objects.
const CONTENTS: u8 = 4;
/// Minimum verbosity for the blocks of objects.
const BLOCKS: u8 = 5;

/// Verbosity from which checksum and compression functions are always shown.
const FUNCTIONS: u8 = 6;

/// Shows objects of one object set.
pub(super) struct ObjectView<'a> {
    pool: &'a Pool,
    objset: &'a Objset,
    /// Opened with the first file whose contents are shown.
    files: Option<FileView>,
    is_encrypted: bool,
    /// The default compression of objects.
    compression: String,
    /// Whether the next object needs a heading.
    heading_due: bool,
}

impl<'a> ObjectView<'a> {
    /// A view of an object set.
    pub(super) fn new(pool: &'a Pool, objset: &'a Objset, compression: String) -> Self {
        let protection = objset.root().protection();
        let is_encrypted = !matches!(protection, Protection::None);
        Self { pool, objset, files: None, is_encrypted, compression, heading_due: true }
    }

    /// The object set.
    pub(super) const fn objset(&self) -> &'a Objset {
        self.objset
    }

    /// The number of shown files that are not reachable in the directory tree.
    pub(super) fn lost_files(&self) -> u64 {
        self.files.as_ref().map_or(0, FileView::lost)
    }

    /// Prints the heading of the following objects, once; with contents shown, for each object.
    pub(super) fn print_heading(&mut self, session: &mut Session<'_>) -> io::Result<()> {
        if self.heading_due {
            self.heading_due = false;
            write!(session.out, "{HEADING}")?;
        }
        Ok(())
    }

    /// Shows an object. Unreadable parts are reported, and the rest is shown.
    pub(super) fn print(
        &mut self,
        session: &mut Session<'_>,
        object: &Object,
    ) -> Result<Verdict, ZdbError> {
        let verbosity = session.arguments.datasets;
        self.print_heading(session)?;
        print_line(session, object, &self.compression)?;
        if verbosity < CONTENTS {
            return Ok(Verdict::Clean);
        }
        self.heading_due = true;
        let dnode = object.dnode();
        print_bonus_line(session, dnode)?;
        print_flags(session, dnode)?;
        let mut verdict = Verdict::Clean;
        if let Err(error) = self.print_contents(session, object) {
            if let ZdbError::Output(_) = error {
                return Err(error);
            }
            writeln!(session.notes, "zdb: {error}")?;
            verdict = Verdict::Damaged;
        }
        if verbosity >= BLOCKS {
            if let Some(spill) = &dnode.spill {
                writeln!(session.out, "\nSpill block: {}", session.compact(spill))?;
            }
            verdict = verdict.max(tree::print(session, object)?);
        }
        Ok(verdict)
    }

    fn print_contents(
        &mut self,
        session: &mut Session<'_>,
        object: &Object,
    ) -> Result<(), ZdbError> {
        let dnode = object.dnode();
        if dnode.bonus_type.is_encrypted() && self.is_encrypted && !dnode.bonus.is_empty() {
            writeln!(session.out, "\t\t(bonus encrypted)")?;
        } else {
            self.print_bonus(session, object)?;
        }
        let meta = object.id() == ObjectId::META_DNODE;
        if self.is_encrypted && (dnode.object_type.is_encrypted() || meta) {
            writeln!(session.out, "\t\t(object encrypted)")?;
            return Ok(());
        }
        match dnode.object_type {
            ObjectType::PACKED_NVLIST if self.objset.id() == ObjsetId::MOS => {
                let list = config::stored(self.pool, object.id())?;
                write!(session.out, "{}", list.indented(8))?;
            }
            kind if kind.is_zap() => zap::print(session, object)?,
            kind if words::are_in(kind) => words::print(session, object)?,
            kind if kind.is_self_described() => {
                writeln!(session.out, "\tUNKNOWN OBJECT TYPE")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn print_bonus(&mut self, session: &mut Session<'_>, object: &Object) -> Result<(), ZdbError> {
        match object.dnode().bonus_type {
            ObjectType::SA | ObjectType::ZNODE => {
                let (pool, objset, is_encrypted) = (self.pool, self.objset, self.is_encrypted);
                let open = || FileView::new(pool, objset, is_encrypted);
                self.files.get_or_insert_with(open).print(session, object)
            }
            ObjectType::BPOBJ_HDR => {
                bonus::print(session, object)?;
                lists::print_stored(session, object)
            }
            kind if words::are_in(kind) => words::print_bonus(session, object),
            _ => bonus::print(session, object),
        }
    }
}

/// The total fill of an object's pointers: dnodes for the meta-dnode, blocks for others.
fn fill(dnode: &Dnode) -> u64 {
    dnode.pointers.iter().map(BlockPointer::fill).fold(0, u64::saturating_add)
}

fn print_line(session: &mut Session<'_>, object: &Object, compression: &str) -> io::Result<()> {
    let dnode = object.dnode();
    let block_size = u64::from(dnode.data_block_size);
    let extent = dnode.extent();
    let meta = object.id() == ObjectId::META_DNODE;
    let unit = if meta { SLOT_SIZE as u64 } else { block_size };
    let filled = fill(dnode) as f64 * unit as f64;
    let percent = if extent == 0 { 0.0 } else { 100.0 * filled / extent as f64 };
    let [indirect, block, used, slots, size] = [
        u64::from(dnode.indirect_size()),
        block_size,
        // Counted in sectors to the nearest, as by stat(2).
        dnode.used.saturating_add(SECTOR_SIZE / 2) / SECTOR_SIZE * SECTOR_SIZE,
        u64::from(dnode.slots) * SLOT_SIZE as u64,
        extent,
    ]
    .map(|number| session.number(number));
    writeln!(
        session.out,
        "{:10}  {:3}  {indirect:>5}  {block:>5}  {used:>5}  {slots:>6}  {size:>5}  {percent:6.2}  \
         {}{}",
        object.id().0.cast_signed(),
        dnode.levels,
        dnode.object_type.name(),
        functions(dnode, session.arguments.datasets, compression),
    )
}

/// Functions set for this object alone; from six `d` on those of all objects.
fn functions(dnode: &Dnode, verbosity: u8, compression: &str) -> String {
    let mut text = String::new();
    if dnode.checksum != 0 || verbosity >= FUNCTIONS {
        let name = ChecksumFunction::from_number(dnode.checksum).map_or("unknown", |f| f.name());
        text.push_str(&format!(" (K={name})"));
    }
    if dnode.compress != 0 {
        let name = CompressionFunction::from_number(dnode.compress).map_or("unknown", |f| f.name());
        text.push_str(&format!(" (Z={name})"));
    } else if verbosity >= FUNCTIONS {
        text.push_str(&format!(" (Z=inherit={compression})"));
    }
    text
}

fn print_bonus_line(session: &mut Session<'_>, dnode: &Dnode) -> io::Result<()> {
    if dnode.bonus.is_empty() {
        return Ok(());
    }
    let size = session.number(dnode.bonus.len() as u64);
    writeln!(session.out, "{size:>50}  {:>6}  {}", "bonus", dnode.bonus_type.name())
}

fn print_flags(session: &mut Session<'_>, dnode: &Dnode) -> io::Result<()> {
    write!(session.out, "\tdnode flags: ")?;
    for (flag, name) in [
        (DnodeFlags::USED_BYTES, "USED_BYTES "),
        (DnodeFlags::USER_USED_ACCOUNTED, "USERUSED_ACCOUNTED "),
        (DnodeFlags::USER_OBJ_USED_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
        (DnodeFlags::SPILL_POINTER, "SPILL_BLKPTR"),
    ] {
        if dnode.flags.has(flag) {
            write!(session.out, "{name}")?;
        }
    }
    writeln!(session.out, "\n\tdnode maxblkid: {}", dnode.max_block_id)
}
