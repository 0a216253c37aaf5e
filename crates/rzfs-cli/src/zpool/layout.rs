//! The projected vdevs of a pool, as `-n` shows them (spec 09, section 3.5).

use rzfs_server::protocol::Layout;
use std::io::{self, Write};

/// Prints a tree of names, each indented below its parent.
pub(super) fn print(layout: &Layout, out: &mut dyn Write) -> io::Result<()> {
    layout.lines.iter().try_for_each(|line| {
        let columns = usize::try_from(line.depth).unwrap_or_default() * 2;
        writeln!(out, "\t{:columns$}{}", "", line.name)
    })
}
