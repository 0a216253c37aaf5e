//! `zdb -s`: the I/O of this command, by vdev.

use super::error::ZdbError;
use super::session::Session;
use rzfs_dsl::pool::Pool;
use rzfs_format::VdevId;
use rzfs_metaslab::{Metaslab, VdevMetaslabs};
use rzfs_vdev::Vdev;
use std::io;

/// Width of the column of names.
const NAME_WIDTH: usize = 25;

/// Shows the pool and its vdevs.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    let space = Space::of(pool)?;
    writeln!(
        session.out,
        "{:28}capacity   operations   bandwidth  ---- errors ----\n\
         {:<NAME_WIDTH$}  used avail  read write  read write  read write cksum",
        "", "description"
    )?;
    print_line(session, pool.vdevs().root(), pool.name(), Some(space.whole()))?;
    for top in pool.vdevs().top_levels() {
        let name = format!("  {}", name(top));
        print_line(session, top, &name, top.vdev_id().and_then(|id| space.of_vdev(id)))?;
        print_below(session, top, 4)?;
    }
    Ok(())
}

/// Allocated and free space of each vdev, according to the metaslabs' own maps.
struct Space(Vec<(VdevId, u64, u64)>);

impl Space {
    fn of(pool: &Pool) -> Result<Self, ZdbError> {
        let of_vdev = |vdev: &VdevMetaslabs| {
            let allocated = vdev.metaslabs().iter().map(Metaslab::own_allocated);
            let allocated = allocated.fold(0, i64::saturating_add).max(0).cast_unsigned();
            (vdev.geometry().vdev, allocated, vdev.space().saturating_sub(allocated))
        };
        Ok(Self(pool.metaslabs()?.vdevs().map(of_vdev).collect()))
    }

    fn of_vdev(&self, vdev: VdevId) -> Option<(u64, u64)> {
        let own = self.0.iter().find(|(id, ..)| *id == vdev);
        own.map(|(_, allocated, free)| (*allocated, *free))
    }

    fn whole(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(used, rest): (u64, u64), (_, allocated, free)| {
            (used.saturating_add(*allocated), rest.saturating_add(*free))
        })
    }
}

fn name(vdev: Vdev<'_>) -> &str {
    if vdev.kind().is_leaf() { vdev.name() } else { vdev.kind().name() }
}

/// Shows the descendants of a vdev; a tree of vdevs has a few levels.
fn print_below(session: &mut Session<'_>, vdev: Vdev<'_>, indent: usize) -> io::Result<()> {
    for child in vdev.children() {
        print_line(session, child, &format!("{:indent$}{}", "", name(child)), None)?;
        print_below(session, child, indent + 2)?;
    }
    Ok(())
}

/// Shows one vdev; capacity is shown for whole top-level vdevs.
fn print_line(
    session: &mut Session<'_>,
    vdev: Vdev<'_>,
    name: &str,
    capacity: Option<(u64, u64)>,
) -> io::Result<()> {
    write!(session.out, "{name:<NAME_WIDTH$}")?;
    match capacity {
        Some((used, free)) => {
            let [used, free] = [used, free].map(|bytes| session.number(bytes));
            write!(session.out, " {used:>5} {free:>5}")?;
        }
        None => write!(session.out, "{:12}", "")?,
    }
    let (io, errors) = (vdev.io(), vdev.errors());
    for number in [
        io.reads,
        io.writes,
        io.bytes_read,
        io.bytes_written,
        errors.read,
        errors.write,
        errors.checksum,
    ] {
        let number = session.number(number);
        write!(session.out, " {number:>5}")?;
    }
    writeln!(session.out)
}
