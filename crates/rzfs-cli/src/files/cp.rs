//! `rzfs cp`: files and volumes out of a pool.
//!
//! Names and links in a pool may be hostile. Nothing is written outside of the destination: a name
//! that is not a single component is refused, directories are entered by descriptor without
//! following links, and an existing entry is replaced, never written through.

mod contents;
mod destination;
mod kept;
mod progress;
mod tree;

use super::arguments::CpArguments;
use super::cat::CopyError;
use super::complaints::Complaints;
use super::session::{Opened, Session};
use crate::console::{Failure, Outcome};
use contents::{Fidelity, contents};
use destination::{Directory, EntryName};
use progress::Progress;
use rzfs::format::dirent::FileKind;
use rzfs::{File, FileNode, FileTree};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tree::TreeCopy;

/// Copies for one command.
struct Copy<'a, 'c, 'w> {
    arguments: &'a CpArguments,
    fidelity: Fidelity,
    is_recursive: bool,
    progress: Progress,
    complaints: &'a mut Complaints<'c, 'w>,
}

/// The destination of a source.
enum Place {
    /// Into this directory, under this name.
    Entry(Directory, EntryName),
    /// Its contents into this directory.
    Contents(Directory),
    /// Into an existing file of the host, device or not.
    Existing(PathBuf),
}

pub(super) fn run(arguments: &CpArguments, complaints: &mut Complaints<'_, '_>) -> Outcome {
    let destination = &arguments.destination;
    let is_directory = fs::metadata(destination).is_ok_and(|metadata| metadata.is_dir());
    if arguments.sources.len() > 1 && !is_directory {
        let shown = destination.display();
        return Err(Failure::Failed(format!("target '{shown}' is not a directory")));
    }
    let mut session = Session::begin(&arguments.pool, complaints)?;
    let mut copy = Copy {
        arguments,
        fidelity: if arguments.archive { Fidelity::Archive } else { Fidelity::Contents },
        is_recursive: arguments.recursive || arguments.archive,
        progress: Progress::new(!arguments.quiet),
        complaints,
    };
    for source in &arguments.sources {
        match session.open(source, copy.complaints) {
            None => {}
            Some(Opened::Volume(name, file)) => copy.volume(&name, &file),
            Some(Opened::Path(tree, path)) => copy.path(&tree, &path),
        }
    }
    copy.progress.finish();
    Ok(())
}

impl Copy<'_, '_, '_> {
    /// The destination of a source with the name `name`: without a name (a root, or `..`) its
    /// contents are copied.
    fn place(&self, name: Option<EntryName>, is_directory: bool) -> io::Result<Place> {
        let destination = &*self.arguments.destination;
        match (fs::metadata(destination), name) {
            (Ok(metadata), name) if metadata.is_dir() => {
                let directory = Directory::open(destination)?;
                Ok(match name {
                    Some(name) => Place::Entry(directory, name),
                    None => Place::Contents(directory),
                })
            }
            (Ok(_), _) if !is_directory => Ok(Place::Existing(destination.to_owned())),
            (_, _) => {
                let parent = match destination.parent() {
                    Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                    parent => parent.unwrap_or(destination),
                };
                let name = destination.file_name().map(|name| name.as_encoded_bytes());
                let name = name.and_then(EntryName::new).ok_or(io::ErrorKind::InvalidInput)?;
                Ok(Place::Entry(Directory::open(parent)?, name))
            }
        }
    }

    fn volume(&mut self, dataset: &str, file: &File) {
        let name = dataset.rsplit('/').next().unwrap_or_default();
        let copied = (|| -> Result<(), CopyError> {
            self.progress.begin(1, file.len());
            let mut out = match self.place(EntryName::new(name.as_bytes()), false)? {
                Place::Entry(directory, name) => directory.create(&name, 0o666)?,
                Place::Existing(path) => open_existing(&path)?,
                Place::Contents(_) => {
                    return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
                }
            };
            contents(file, &mut out, &self.progress)
        })();
        let path = self.arguments.destination.clone();
        self.told(&path, copied);
    }

    fn path(&mut self, tree: &FileTree, path: &[u8]) {
        let node = match self.is_recursive {
            true => tree.link_node(path),
            false => tree.node(path),
        };
        let (node, kind) = match node.and_then(|node| Ok((node.kind()?, node))) {
            Ok((kind, node)) => (node, kind),
            Err(error) => return self.told(Path::new(""), Err(error.into())),
        };
        if kind == FileKind::Directory && !self.is_recursive {
            let shown = rzfs::ShownPath(path);
            let dataset = tree.dataset();
            return self
                .complaints
                .say(format_args!("-r not specified; omitting directory '{dataset}:{shown}'"));
        }
        // As typed, since the target of a followed link has another name.
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let typed = path.get(..end).unwrap_or_default();
        let name = typed.rsplit(|byte| *byte == b'/').next().and_then(EntryName::new);
        let destination = self.arguments.destination.clone();
        match self.place(name, kind == FileKind::Directory) {
            Err(error) => self.told(&destination, Err(error.into())),
            Ok(Place::Existing(existing)) if kind == FileKind::Regular => {
                let copied = self.overwrite(&node, &existing);
                self.told(&existing, copied);
            }
            Ok(Place::Existing(existing)) => {
                let problem = io::Error::from(io::ErrorKind::AlreadyExists);
                self.told(&existing, Err(problem.into()));
            }
            Ok(place) => self.tree(&node, place),
        }
    }

    fn overwrite(&mut self, node: &FileNode, path: &Path) -> Result<(), CopyError> {
        let file = node.open()?;
        self.progress.begin(1, file.len());
        contents(&file, &mut open_existing(path)?, &self.progress)
    }

    fn tree(&mut self, node: &FileNode, place: Place) {
        if self.progress.is_shown() {
            let (mut files, mut bytes) = (0_u64, 0_u64);
            for entry in node.walk().with_attributes().flatten() {
                files += 1;
                let size = entry.node.attributes().map_or(0, |attributes| attributes.size);
                bytes =
                    bytes.saturating_add(if entry.kind == FileKind::Regular { size } else { 0 });
            }
            self.progress.begin(files, bytes);
        }
        let (directory, name) = match place {
            Place::Entry(directory, name) => (directory, Some(name)),
            Place::Contents(directory) => (directory, None),
            Place::Existing(_) => return,
        };
        let is_root = rustix::process::geteuid().is_root();
        let tree = TreeCopy::new(directory, self.fidelity, is_root, &self.progress);
        let outcome = tree.and_then(|tree| tree.run(node, name, self.complaints));
        let path = self.arguments.destination.clone();
        self.told(&path, outcome.map_err(CopyError::Write));
    }

    fn told(&mut self, path: &Path, copied: Result<(), CopyError>) {
        let complaints = &mut *self.complaints;
        match copied {
            Ok(()) => {}
            Err(CopyError::Read(error)) => self.progress.suspend(|| complaints.file(&error)),
            Err(CopyError::Write(error)) => {
                self.progress.suspend(|| complaints.host(path, &error));
            }
        }
    }
}

/// Opens a file that the user named: its contents are replaced, the file stays.
fn open_existing(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).truncate(true).open(path)
}
