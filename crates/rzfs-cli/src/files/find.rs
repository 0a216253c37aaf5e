//! `rzfs find`: a tree of files.

use super::arguments::FindArguments;
use super::complaints::Complaints;
use super::pattern::Pattern;
use super::session::{Opened, Session};
use super::text::Names;
use crate::console::Outcome;
use rzfs::WalkEntry;
use rzfs::format::dirent::FileKind;

/// The criteria for a file.
struct Criteria {
    name: Option<Pattern>,
    kind: Option<FileKind>,
}

pub(super) fn run(arguments: &FindArguments, complaints: &mut Complaints<'_, '_>) -> Outcome {
    let name = arguments.name.as_ref();
    let criteria = Criteria {
        name: name.map(|name| Pattern::parse(name.as_encoded_bytes())),
        kind: arguments.kind.map(|kind| kind.file_kind()),
    };
    let (names, end) = match arguments.null {
        true => (Names::Raw, b"\0"),
        false => (Names::of_output(), b"\n"),
    };
    let mut session = Session::begin(&arguments.pool, complaints)?;
    for target in &arguments.targets {
        let (tree, path) = match session.open(target, complaints) {
            None => continue,
            Some(Opened::Path(tree, path)) => (tree, path),
            Some(Opened::Volume(name, _)) => {
                complaints.say(format_args!("{name}: is a volume, which has no files"));
                continue;
            }
        };
        let start = match tree.link_node(path) {
            Ok(start) => start,
            Err(error) => {
                complaints.file(&error);
                continue;
            }
        };
        for entry in start.walk() {
            match entry {
                Ok(entry) if criteria.admit(&entry) => {
                    let out = &mut *complaints.console.out;
                    write!(out, "{}:", tree.dataset())?;
                    names.write(out, entry.node.path())?;
                    out.write_all(end)?;
                }
                Ok(_) => {}
                Err(error) => complaints.file(&error),
            }
        }
    }
    Ok(())
}

impl Criteria {
    fn admit(&self, entry: &WalkEntry) -> bool {
        // The start of a walk has no name, except that in its path.
        let name = match &*entry.name {
            b"" => entry.node.path().rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
            name => name,
        };
        let name = if name.is_empty() { b"/" } else { name };
        self.kind.is_none_or(|kind| kind == entry.kind)
            && self.name.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}
