//! `zdb -l`: the four labels of a device and the uberblocks in them.

mod statistics;

use super::ZdbError;
use super::session::{Session, Verdict};
use super::uberblock;
use rzfs::plain_file::{self, Accepted};
use rzfs_blockdev::without_number;
use rzfs_codec::checksum::{EmbeddedVerifier, verify_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::label::{self, LABEL_SIZE, LABELS, LabelIndex, LeafSize, UberblockRing};
use rzfs_format::nvlist::NvList;
use rzfs_format::uberblock::Uberblock;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One of a device's labels.
struct Label {
    /// The configuration area; `None` if it cannot be read.
    config: Option<Config>,
    /// The ring of uberblocks.
    ring: Vec<u8>,
}

struct Config {
    bytes: Vec<u8>,
    list: Option<NvList>,
    checksum: Verification,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verification {
    Good,
    Bad,
}

/// Shows the labels of a device.
pub(crate) fn run(session: &mut Session<'_>, device: &str) -> Result<Verdict, ZdbError> {
    let (file, _) = open(device)?;
    let labels = read_labels(&file)?;
    let verbosity = session.arguments.label;
    let show_configs = session.arguments.quiet == 0;
    let mut found = 0;
    let mut shown: Vec<Uberblock> = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        let Some(config) = &label.config else {
            if show_configs {
                writeln!(session.out, "failed to read label {index}")?;
            }
            continue;
        };
        let Some(list) = &config.list else {
            if show_configs {
                writeln!(session.out, "failed to unpack label {index}")?;
            }
            continue;
        };
        found += 1;
        let is_first = first_with(&labels, &config.bytes) == Some(index);
        let mut header = Header { index, checksum: config.checksum, printed: false };
        if show_configs && (is_first || verbosity >= 3) {
            header.print(session)?;
            write!(session.out, "{}", list.indented(4))?;
            let same = |other: &Label| matches!(&other.config, Some(o) if o.bytes == config.bytes);
            print_labels(session, "    ", &labels, same)?;
            if verbosity >= 2 {
                statistics::print(session.out, list)?;
            }
        }
        if session.arguments.uberblock > 0 {
            let ring = UberblockRing::of_ashift(ashift_of(list));
            print_ring(session, &labels, ring, &mut header, &mut shown)?;
        }
    }
    Ok(if found == 0 { Verdict::Damaged } else { Verdict::Clean })
}

/// Opens a device by its path, or by its name below `/dev`.
fn open(device: &str) -> Result<(File, PathBuf), ZdbError> {
    let mut path = PathBuf::from(device);
    if !device.starts_with('/') && !path.exists() {
        path = Path::new("/dev").join(device);
    }
    match plain_file::open(&path, Accepted::FilesAndBlockDevices) {
        Ok(file) => Ok((file, path)),
        Err(error) => Err(ZdbError::Open { path, reason: without_number(&error) }),
    }
}

fn read_labels(file: &File) -> Result<Vec<Label>, ZdbError> {
    let mut end = file;
    let size = end.seek(SeekFrom::End(0))?;
    let offset_of = |label: LabelIndex| {
        Some(LeafSize::of_device(size)?.label_offset(label)).filter(|_| size >= LABEL_SIZE * 4)
    };
    let labels = LabelIndex::ALL.map(|index| match offset_of(index) {
        None => Label { config: None, ring: Vec::new() },
        Some(offset) => read_label(file, offset),
    });
    Ok(labels.into())
}

fn read_label(file: &File, offset: u64) -> Label {
    let read = |at: u64, size: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, offset + at)?;
        Ok(bytes)
    };
    let config = read(label::CONFIG_OFFSET, label::CONFIG_SIZE).ok().map(|bytes| {
        let verifier = EmbeddedVerifier::Label { offset: offset + label::CONFIG_OFFSET };
        let verified = verify_embedded(ChecksumFunction::Label, &bytes, verifier);
        Config {
            // Zeros are an empty list.
            list: label::decode_config(&bytes).ok().filter(|list| !list.is_empty()),
            checksum: if verified.is_ok() { Verification::Good } else { Verification::Bad },
            bytes: bytes
                .get(..label::CONFIG_SIZE - label::TRAILER_SIZE)
                .map(<[u8]>::to_vec)
                .unwrap_or_default(),
        }
    });
    Label { config, ring: read(label::RING_OFFSET, label::RING_SIZE).unwrap_or_default() }
}

/// The first label with this configuration.
fn first_with(labels: &[Label], config: &[u8]) -> Option<usize> {
    labels.iter().position(|label| {
        label.config.as_ref().is_some_and(|other| other.list.is_some() && other.bytes == config)
    })
}

/// The title of a label, printed before its first output.
struct Header {
    index: usize,
    checksum: Verification,
    printed: bool,
}

impl Header {
    fn print(&mut self, session: &mut Session<'_>) -> io::Result<()> {
        const RULE: &str = "------------------------------------";
        if self.printed {
            return Ok(());
        }
        self.printed = true;
        let remark = if self.checksum == Verification::Good { "" } else { "(Bad label cksum)" };
        writeln!(session.out, "{RULE}\nLABEL {} {remark}\n{RULE}", self.index)
    }
}

/// Prints the numbers of equal labels.
fn print_labels(
    session: &mut Session<'_>,
    indent: &str,
    labels: &[Label],
    same: impl Fn(&Label) -> bool,
) -> io::Result<()> {
    write!(session.out, "{indent}labels = ")?;
    for (index, label) in labels.iter().enumerate().take(LABELS) {
        if same(label) {
            write!(session.out, "{index} ")?;
        }
    }
    writeln!(session.out)
}

/// The uberblock in a slot, if there is one.
fn uberblock_at(label: &Label, ring: UberblockRing, slot: usize) -> Option<Uberblock> {
    let start = slot * ring.slot_size();
    let bytes = label.ring.get(start..start + Uberblock::SIZE)?;
    Uberblock::decode(bytes).ok().map(|(uberblock, _)| uberblock)
}

/// The ashift in a label's configuration.
fn ashift_of(config: &NvList) -> u64 {
    let tree = config.list("vdev_tree").and_then(|tree| tree.u64("ashift"));
    tree.or_else(|_| config.u64("ashift")).unwrap_or(0)
}

/// Prints a label's uberblocks: those not in an earlier label, or all of them.
fn print_ring(
    session: &mut Session<'_>,
    labels: &[Label],
    ring: UberblockRing,
    header: &mut Header,
    shown: &mut Vec<Uberblock>,
) -> io::Result<()> {
    let verbosity = session.arguments.uberblock;
    let Some(label) = labels.get(header.index) else { return Ok(()) };
    for slot in 0..ring.slots() {
        let Some(found) = uberblock_at(label, ring, slot) else {
            if verbosity >= 2 {
                header.print(session)?;
                writeln!(session.out, "    Uberblock[{slot}] invalid")?;
            }
            continue;
        };
        if shown.contains(&found) && verbosity < 3 {
            continue;
        }
        header.print(session)?;
        writeln!(session.out, "    Uberblock[{slot}]")?;
        uberblock::print_fields(session, &found)?;
        print_labels(session, "        ", labels, |other| {
            uberblock_at(other, ring, slot).as_ref() == Some(&found)
        })?;
        shown.push(found);
    }
    Ok(())
}
