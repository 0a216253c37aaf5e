//! The locations of an object's blocks: the pointers of all levels, and the segments with data.

use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_dmu::{DmuError, Object};
use rzfs_format::dnode::SLOT_SIZE;
use rzfs_format::{BlockPointer, ObjectId, Txg};
use std::io;
use std::ops::Range;

/// Prints the pointers in the order of the blocks, parents first, and then the segments with data.
pub(super) fn print(session: &mut Session<'_>, object: &Object) -> Result<Verdict, ZdbError> {
    writeln!(session.out, "Indirect blocks:")?;
    let mut printer = Pointers { session, object, verdict: Verdict::Clean };
    let top = object.dnode().levels.saturating_sub(1);
    let count = object.dnode().pointers.len() as u64;
    printer.print(top, 0..count)?;
    let verdict = printer.verdict;
    writeln!(session.out)?;
    match segments(object) {
        Ok(segments) => {
            for Range { start, end } in segments {
                let size = session.number(end - start);
                writeln!(session.out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}")?;
            }
            Ok(verdict)
        }
        Err(error) => {
            writeln!(session.notes, "zdb: {error}")?;
            Ok(Verdict::Damaged)
        }
    }
}

struct Pointers<'a, 's> {
    session: &'a mut Session<'s>,
    object: &'a Object,
    verdict: Verdict,
}

impl Pointers<'_, '_> {
    /// Prints a range of the pointers of a level with everything below. A dnode has few levels, so
    /// the recursion is shallow.
    fn print(&mut self, level: u8, range: Range<u64>) -> io::Result<()> {
        let pointers = self.object.pointers(level, range.clone());
        for (block, pointer) in range.zip(pointers) {
            match pointer {
                Ok(pointer) => self.print_one(level, block, &pointer)?,
                Err(error) => {
                    self.verdict = Verdict::Damaged;
                    writeln!(self.session.notes, "zdb: {error}")?;
                    // All pointers of the range come from the same block.
                    break;
                }
            }
        }
        Ok(())
    }

    fn print_one(&mut self, level: u8, block: u64, pointer: &BlockPointer) -> io::Result<()> {
        if pointer.logical_birth() == Txg(0) {
            return Ok(());
        }
        let dnode = self.object.dnode();
        let shift = u32::from(level) * dnode.pointers_shift();
        let first = block.checked_shl(shift).unwrap_or(u64::MAX);
        let offset = first.saturating_mul(u64::from(dnode.data_block_size));
        write!(self.session.out, "{offset:16x} ")?;
        for other in (0..dnode.levels).rev() {
            if other == level {
                write!(self.session.out, "L{level}")?;
            } else {
                write!(self.session.out, " ")?;
            }
        }
        writeln!(self.session.out, " {}", self.session.compact(pointer))?;
        if level == 0 || pointer.is_hole() || pointer.is_redacted() {
            return Ok(());
        }
        let shift = dnode.pointers_shift();
        let start = block.saturating_mul(1 << shift);
        self.print(level - 1, start..start.saturating_add(1 << shift))
    }
}

/// The segments of an object with data.
fn segments(object: &Object) -> Result<Vec<Range<u64>>, DmuError> {
    if object.id() == ObjectId::META_DNODE {
        return dnode_segments(object);
    }
    let mut segments: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while let Some(start) = object.next_data(at)? {
        let end = object.next_hole(start)?.unwrap_or(object.dnode().extent());
        if end <= start {
            break;
        }
        segments.push(start..end);
        at = end;
    }
    Ok(segments)
}

/// The segments of the meta-dnode with dnodes.
///
/// zdb looks for the end of a segment in blocks whose fill count is below their number of slots. If
/// such a block is full nevertheless, with dnodes of several slots, zdb gives up: its last segment
/// ends there.
fn dnode_segments(meta: &Object) -> Result<Vec<Range<u64>>, DmuError> {
    let block_size = u64::from(meta.block_size()).max(1);
    let slots_per_block = block_size / SLOT_SIZE as u64;
    let mut segments: Vec<Range<u64>> = Vec::new();
    let mut first_block = 0;
    let mut in_block = 0;
    for entry in meta.objset().objects() {
        let entry = entry?;
        let start = entry.id.0.saturating_mul(SLOT_SIZE as u64);
        let end = start.saturating_add(u64::from(entry.dnode.slots.max(1)) * SLOT_SIZE as u64);
        let Some(last) = segments.last_mut().filter(|last| last.end == start) else {
            first_block = start / block_size;
            segments.push(start..end);
            continue;
        };
        last.end = end;
        in_block = if start.is_multiple_of(block_size) { 1 } else { in_block + 1 };
        let fills_block = end.is_multiple_of(block_size) && start / block_size != first_block;
        if fills_block && in_block < slots_per_block {
            break;
        }
    }
    Ok(segments)
}
