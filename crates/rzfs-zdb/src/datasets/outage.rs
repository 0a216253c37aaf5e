//! The dirty time logs of all vdevs: their missing txgs, and whether the pool needs them.

use crate::session::Session;
use rzfs_dsl::pool::Pool;
use rzfs_format::{Guid, Txg};
use rzfs_vdev::{TxgSet, Vdev, VdevKind};
use std::io;

/// Columns by which each level is indented.
const INDENT: usize = 4;

/// Prints the logs of a pool.
pub(super) fn print(session: &mut Session<'_>, pool: &Pool) -> io::Result<()> {
    writeln!(session.out, "\nDirty time logs:\n")?;
    print_vdev(session, pool.name(), pool.vdevs().root(), 0)
}

/// Prints a vdev and those below it; the depth is limited by the configuration.
fn print_vdev(
    session: &mut Session<'_>,
    pool: &str,
    vdev: Vdev<'_>,
    indent: usize,
) -> io::Result<()> {
    let name = match vdev.kind() {
        VdevKind::Root => pool,
        kind if kind.is_device() || kind == VdevKind::DistributedSpare => vdev.name(),
        kind => kind.name(),
    };
    let needed = if is_required(vdev) { "required" } else { "expendable" };
    writeln!(session.out, "\t{:indent$}{name} [DTL-{needed}]", "")?;
    if vdev.children().len() == 0 {
        let stored = vdev.missing_txgs().unwrap_or_default();
        for (title, set) in
            [("missing", stored.clone()), ("partial", stored), ("outage", lacking(vdev, None))]
        {
            for (Txg(start), Txg(end)) in set.ranges() {
                let length = end.saturating_sub(start);
                writeln!(session.out, "\t{:indent$}  {title} [{start},{end}) length {length}", "")?;
            }
        }
    }
    for child in vdev.children() {
        print_vdev(session, pool, child, indent + INDENT)?;
    }
    Ok(())
}

/// Whether the pool needs a vdev: a top-level vdev always, others if the top-level vdev would lack
/// data without them.
fn is_required(vdev: Vdev<'_>) -> bool {
    match vdev.top_level() {
        Some(top) if top.guid() != vdev.guid() => !lacking(top, Some(vdev.guid())).is_empty(),
        _ => true,
    }
}

/// The txgs that a vdev lacks if the one called `without` were missing.
fn lacking(vdev: Vdev<'_>, without: Option<Guid>) -> TxgSet {
    if without == Some(vdev.guid()) {
        return TxgSet::all();
    }
    match vdev.kind() {
        VdevKind::Indirect | VdevKind::Hole => TxgSet::new(),
        VdevKind::Missing => TxgSet::all(),
        VdevKind::Disk | VdevKind::File | VdevKind::DistributedSpare => {
            let readable = vdev.health().is_usable();
            if readable { vdev.missing_txgs().unwrap_or_default() } else { TxgSet::all() }
        }
        kind => {
            let children: Vec<TxgSet> =
                vdev.children().map(|child| lacking(child, without)).collect();
            let spared = match vdev.parity() {
                Some(parity) => parity,
                None if kind.is_mirrored() => children.len().saturating_sub(1),
                None => 0,
            };
            in_more_than(spared, &children)
        }
    }
}

/// The txgs that are in more than `count` of the sets.
fn in_more_than(count: usize, sets: &[TxgSet]) -> TxgSet {
    let mut borders: Vec<(Txg, bool)> = Vec::new();
    for set in sets {
        borders.extend(set.ranges().flat_map(|(start, end)| [(start, true), (end, false)]));
    }
    borders.sort_unstable();
    let mut depth = 0_usize;
    let mut ranges = Vec::new();
    for (index, (txg, opens)) in borders.iter().enumerate() {
        depth = if *opens { depth + 1 } else { depth.saturating_sub(1) };
        if let Some((next, _)) = borders.get(index + 1).filter(|_| depth > count) {
            ranges.push((*txg, *next));
        }
    }
    TxgSet::from_ranges(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_too_many_children_lack_is_lacking() {
        let set = |ranges: &[(u64, u64)]| {
            TxgSet::from_ranges(ranges.iter().map(|(start, end)| (Txg(*start), Txg(*end))))
        };
        let children = [set(&[(5, 10)]), set(&[(7, 12), (20, 30)]), TxgSet::all()];
        assert_eq!(in_more_than(0, &children), TxgSet::all());
        assert_eq!(in_more_than(1, &children), set(&[(5, 12), (20, 30)]));
        assert_eq!(in_more_than(2, &children), set(&[(7, 10)]));
        assert_eq!(in_more_than(3, &children), TxgSet::new());
    }
}
