//! `rzfs stat`: shows everything known about a file.

use super::arguments::TargetsArguments;
use super::complaints::Complaints;
use super::session::{Opened, Session};
use super::text;
use crate::console::Outcome;
use rzfs::format::acl::{Ace, AceFlags, AceKind, Who};
use rzfs::format::dirent::FileKind;
use rzfs::format::znode::{FileFlags, Timestamp};
use rzfs::{FileError, FileNode, ShownPath};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Number of bytes of a value that are shown.
const SHOWN_VALUE: usize = 256;

pub(super) fn run(arguments: &TargetsArguments, complaints: &mut Complaints<'_, '_>) -> Outcome {
    let mut session = Session::begin(&arguments.pool, complaints)?;
    let mut is_first = true;
    for target in &arguments.targets {
        let opened = session.open(target, complaints);
        let fields = match opened {
            None => continue,
            Some(Opened::Volume(name, file)) => vec![
                ("name", name),
                ("type", "volume".to_owned()),
                ("size", file.len().to_string()),
            ],
            Some(Opened::Path(tree, path)) => {
                match tree.link_node(path).and_then(|node| fields(&node, complaints)) {
                    Ok(fields) => fields,
                    Err(error) => {
                        complaints.file(&error);
                        continue;
                    }
                }
            }
        };
        let out = &mut *complaints.console.out;
        if !std::mem::take(&mut is_first) {
            writeln!(out)?;
        }
        write_fields(out, &fields)?;
    }
    Ok(())
}

type Field = (&'static str, String);

fn write_fields(out: &mut dyn Write, fields: &[Field]) -> io::Result<()> {
    for (name, value) in fields {
        writeln!(out, "{name:<12}{value}")?;
    }
    Ok(())
}

/// The fields of a file. Damage that affects only some of them is reported.
fn fields(node: &FileNode, complaints: &mut Complaints<'_, '_>) -> Result<Vec<Field>, FileError> {
    let attributes = node.attributes()?;
    let calendar = &complaints.console.calendar;
    let time = |time: Timestamp| calendar.file_time(time.seconds, time.nanoseconds);
    let (kind, permissions) = (attributes.kind, attributes.permissions);
    let mut fields = vec![
        ("name", format!("{}:{}", node.tree().dataset(), ShownPath(node.path()))),
        ("type", text::word(kind).to_owned()),
        ("object", attributes.object.to_string()),
        ("generation", attributes.generation.to_string()),
        ("mode", format!("{permissions:04o} {}", text::mode(kind, permissions))),
        ("links", attributes.links.to_string()),
        ("uid", attributes.uid.to_string()),
        ("gid", attributes.gid.to_string()),
        ("project", attributes.project.to_string()),
        ("size", attributes.size.to_string()),
        ("blocks", format!("{} of 512", attributes.blocks)),
        ("block size", attributes.block_size.to_string()),
        ("access", time(attributes.atime)),
        ("modify", time(attributes.mtime)),
        ("change", time(attributes.ctime)),
        ("birth", time(attributes.crtime)),
        ("flags", flags(attributes.flags)),
    ];
    if matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) {
        let device = attributes.device;
        fields.push(("device", format!("{}, {}", device.major, device.minor)));
    }
    let mut add = |name, values: Result<Vec<String>, FileError>| match values {
        Ok(values) => fields.extend(values.into_iter().map(|value| (name, value))),
        Err(error) => complaints.file(&error),
    };
    if kind == FileKind::Symlink {
        add("target", node.link_target().map(|target| vec![ShownPath(&target).to_string()]));
    }
    add("xattr", xattrs(node));
    add("acl", node.acl().map(|entries| entries.iter().map(ace).collect()));
    Ok(fields)
}

fn xattrs(node: &FileNode) -> Result<Vec<String>, FileError> {
    let names = node.xattr_names()?.into_iter();
    names.map(|name| Ok(format!("{}={}", ShownPath(&name), value(&node.xattr(&name)?)))).collect()
}

/// Text in quotes, other bytes in hexadecimal, and long values truncated with their length.
fn value(bytes: &[u8]) -> String {
    let shown = bytes.get(..SHOWN_VALUE).unwrap_or(bytes);
    let mut text = match std::str::from_utf8(shown) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => shown.iter().fold(String::from("0x"), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    if shown.len() < bytes.len() {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

fn flags(flags: FileFlags) -> String {
    let named = FileFlags::NAMED.iter().filter(|(flag, _)| flags.contains(*flag));
    let mut names: Vec<_> = named.map(|(_, name)| name.to_lowercase()).collect();
    let known = FileFlags::NAMED.iter().fold(0, |known, (flag, _)| known | flag.0);
    if flags.0 & !known != 0 {
        names.push(format!("{:#x}", flags.0 & !known));
    }
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

/// An ACL entry as FreeBSD and illumos write it: `owner@:rw-p--aARWcCos:-------:allow`.
fn ace(entry: &Ace) -> String {
    // The letters of the permissions, with their bits.
    const MASK: [(u32, char); 14] = [
        (0x1, 'r'),
        (0x2, 'w'),
        (0x20, 'x'),
        (0x4, 'p'),
        (0x1_0000, 'd'),
        (0x40, 'D'),
        (0x80, 'a'),
        (0x100, 'A'),
        (0x8, 'R'),
        (0x10, 'W'),
        (0x2_0000, 'c'),
        (0x4_0000, 'C'),
        (0x8_0000, 'o'),
        (0x10_0000, 's'),
    ];
    const FLAGS: [(u16, char); 7] = [
        (AceFlags::FILE_INHERIT, 'f'),
        (AceFlags::DIRECTORY_INHERIT, 'd'),
        (AceFlags::INHERIT_ONLY, 'i'),
        (AceFlags::NO_PROPAGATE, 'n'),
        (AceFlags::SUCCESSFUL_ACCESS, 'S'),
        (AceFlags::FAILED_ACCESS, 'F'),
        (AceFlags::INHERITED, 'I'),
    ];
    let who = match entry.who {
        Who::Owner => "owner@".to_owned(),
        Who::OwningGroup => "group@".to_owned(),
        Who::Everyone => "everyone@".to_owned(),
        Who::Id(id) if entry.flags.0 & AceFlags::IDENTIFIER_GROUP != 0 => {
            format!("group:{}", id.to_posix())
        }
        Who::Id(id) => format!("user:{}", id.to_posix()),
    };
    let letters = |bit: bool, letter: char| if bit { letter } else { '-' };
    let mask: String =
        MASK.iter().map(|(bit, letter)| letters(entry.mask.0 & bit != 0, *letter)).collect();
    let flags: String =
        FLAGS.iter().map(|(bit, letter)| letters(entry.flags.0 & bit != 0, *letter)).collect();
    let kind = match entry.kind {
        AceKind::Allow | AceKind::AllowObject => "allow",
        AceKind::Deny | AceKind::DenyObject => "deny",
        AceKind::Audit | AceKind::AuditObject => "audit",
        AceKind::Alarm | AceKind::AlarmObject => "alarm",
    };
    format!("{who}:{mask}:{flags}:{kind}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs::format::acl::AccessMask;

    #[test]
    fn values_are_text_or_digits() {
        assert_eq!(value(b"Vita"), "\"Vita\"");
        assert_eq!(value(b"a\0"), "0x6100");
        assert_eq!(value(b""), "\"\"");
        assert!(value(&[b'a'; 300]).ends_with("aaa\"... (300 bytes)"));
    }

    #[test]
    fn flags_have_names() {
        assert_eq!(flags(FileFlags(0)), "-");
        assert_eq!(
            flags(FileFlags(0x104 | 1 << 60)),
            "acl_trivial,no_execs_denied,0x1000000000000000"
        );
    }

    #[test]
    fn entries_are_written_as_other_systems_do() {
        let mask = AccessMask(0x1 | 0x2 | 0x4 | 0x80 | 0x2_0000 | 0x10_0000);
        let flags = AceFlags(AceFlags::OWNER);
        let entry = Ace { kind: AceKind::Allow, flags, mask, who: Who::Owner, object: None };
        assert_eq!(ace(&entry), "owner@:rw-p--a---c--s:-------:allow");
    }
}
