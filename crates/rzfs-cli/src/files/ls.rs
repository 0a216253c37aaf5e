//! `rzfs ls`: directories.

use super::arguments::LsArguments;
use super::complaints::Complaints;
use super::session::{Opened, Session};
use super::text::{self, Names};
use crate::console::{Console, Outcome};
use rzfs::format::dirent::FileKind;
use rzfs::zpl::Attributes;
use rzfs::{FileError, FileNode};
use std::io;

/// 512-byte blocks in the unit of the total, which is 1 KiB.
const BLOCKS_PER_UNIT: u64 = 2;

/// A listed file.
struct Row {
    name: Vec<u8>,
    /// `None` if they cannot be read.
    attributes: Option<Attributes>,
    /// The target of a symbolic link.
    target: Option<Vec<u8>>,
}

pub(super) fn run(arguments: &LsArguments, complaints: &mut Complaints<'_, '_>) -> Outcome {
    let mut session = Session::begin(&arguments.pool, complaints)?;
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for target in &arguments.targets {
        let shown = target.as_encoded_bytes();
        match session.open(target, complaints) {
            None => {}
            Some(Opened::Volume(name, _)) => {
                complaints.say(format_args!("{name}: is a volume, which has no files"));
            }
            Some(Opened::Path(tree, path)) => {
                // As in ls(1): a link is followed except in long listings.
                let node = match arguments.long {
                    true => tree.link_node(&path),
                    false => tree.node(&path).or_else(|_| tree.link_node(&path)),
                };
                match node.and_then(|node| Ok((node.kind()?, node))) {
                    Ok((FileKind::Directory, node)) => directories.push((shown, node)),
                    Ok((_, node)) => files.push(row(arguments, shown.to_vec(), &node, complaints)),
                    Err(error) => complaints.file(&error),
                }
            }
        }
    }
    let listing = Listing { is_long: arguments.long, names: Names::of_output() };
    listing.write(&files, complaints.console)?;
    for (index, (shown, node)) in directories.iter().enumerate() {
        if arguments.targets.len() > 1 {
            let out = &mut *complaints.console.out;
            if index > 0 || !files.is_empty() {
                writeln!(out)?;
            }
            listing.names.write(out, shown)?;
            out.write_all(b":\n")?;
        }
        let rows = rows(arguments, node, complaints);
        if listing.is_long {
            let blocks = rows.iter().filter_map(|row| Some(row.attributes.as_ref()?.blocks));
            let total = blocks.fold(0, u64::saturating_add) / BLOCKS_PER_UNIT;
            writeln!(complaints.console.out, "total {total}")?;
        }
        listing.write(&rows, complaints.console)?;
    }
    Ok(())
}

/// The entries of a directory, by name.
fn rows(
    arguments: &LsArguments,
    directory: &FileNode,
    complaints: &mut Complaints<'_, '_>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    if arguments.all {
        for name in [&b"."[..], b".."] {
            match directory.child(name) {
                Ok(node) => rows.push(row(arguments, name.to_vec(), &node, complaints)),
                Err(error) => complaints.file(&error),
            }
        }
    }
    let entries = match directory.entries() {
        Ok(entries) if arguments.long => entries.with_attributes(),
        Ok(entries) => entries,
        Err(error) => {
            complaints.file(&error);
            return rows;
        }
    };
    for entry in entries {
        match entry {
            Ok(entry) if arguments.all || !entry.name.starts_with(b".") => {
                rows.push(row(arguments, entry.name, &entry.node, complaints));
            }
            Ok(_) => {}
            Err(error) => complaints.file(&error),
        }
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

fn row(
    arguments: &LsArguments,
    name: Vec<u8>,
    node: &FileNode,
    complaints: &mut Complaints<'_, '_>,
) -> Row {
    let mut told = |result: Result<_, FileError>| match result {
        Ok(value) => Some(value),
        Err(error) => {
            complaints.file(&error);
            None
        }
    };
    if !arguments.long {
        return Row { name, attributes: None, target: None };
    }
    let attributes = told(node.attributes());
    let is_link = |attributes: &Attributes| attributes.kind == FileKind::Symlink;
    let target = match attributes.as_ref().is_some_and(is_link) {
        true => node.link_target().map_err(|error| complaints.file(&error)).ok(),
        false => None,
    };
    Row { name, attributes, target }
}

/// The format of rows.
struct Listing {
    is_long: bool,
    names: Names,
}

impl Listing {
    fn write(&self, rows: &[Row], console: &mut Console<'_>) -> io::Result<()> {
        let cells: Vec<[String; 6]> = match self.is_long {
            true => rows.iter().map(|row| cells(row, console)).collect(),
            false => Vec::new(),
        };
        let width = |column: usize| {
            cells.iter().filter_map(|cells| cells.get(column)).map(String::len).max().unwrap_or(0)
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        for (index, row) in rows.iter().enumerate() {
            if let Some([mode, links, uid, gid, size, time]) = cells.get(index) {
                let [_, links_width, uid_width, gid_width, size_width, time_width] = widths;
                write!(
                    console.out,
                    "{mode} {links:>links_width$} {uid:<uid_width$} {gid:<gid_width$} \
                     {size:>size_width$} {time:<time_width$} "
                )?;
            }
            self.names.write(console.out, &row.name)?;
            if let Some(target) = &row.target {
                console.out.write_all(b" -> ")?;
                self.names.write(console.out, target)?;
            }
            console.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Mode, links, owner, group, size or device, time.
fn cells(row: &Row, console: &Console<'_>) -> [String; 6] {
    let Some(attributes) = &row.attributes else {
        return ["??????????", "?", "?", "?", "?", "?"].map(str::to_owned);
    };
    let size = match attributes.kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            format!("{}, {}", attributes.device.major, attributes.device.minor)
        }
        _ => attributes.size.to_string(),
    };
    let time = attributes.mtime;
    [
        text::mode(attributes.kind, attributes.permissions),
        attributes.links.to_string(),
        attributes.uid.to_string(),
        attributes.gid.to_string(),
        size,
        console.calendar.file_time(time.seconds, time.nanoseconds),
    ]
}
