//! Manifests: every file of a pool as OpenZFS showed it.
//!
//! ```text
//! # dataset POOL/FS                     what follows is this file system or snapshot
//! F <path> <type mode links uid gid size mtime> <link target>     fields parted by tabs
//! S <sha-256>  ./<path>
//! R ./<path> <major:minor in hex>
//! X # file: <path>, then X <name>=0x<hex>
//! ```
//! What is mounted below a file system is in its part too, and again in a part of its own.

use rzfs_format::dirent::FileKind;
use std::collections::BTreeMap;

/// What kind of file an entry is, as `find -printf %y` says it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl From<FileKind> for EntryKind {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Fifo => Self::Fifo,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::Directory => Self::Directory,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::Regular => Self::Regular,
            FileKind::Symlink => Self::Symlink,
            FileKind::Socket => Self::Socket,
        }
    }
}

impl EntryKind {
    fn from_letter(letter: &str) -> Option<Self> {
        Some(match letter {
            "f" => Self::Regular,
            "d" => Self::Directory,
            "l" => Self::Symlink,
            "p" => Self::Fifo,
            "s" => Self::Socket,
            "c" => Self::CharDevice,
            "b" => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// One file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// The twelve permission bits.
    pub mode: u32,
    /// Link count.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime: i128,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// SHA-256 of a regular file's contents.
    pub sha256: Option<[u8; 32]>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The files of one file system or snapshot, by path relative to its root.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FileSystemManifest {
    /// The files.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// Extended attributes of the root directory.
    pub root_xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Directories on which another file system was mounted: what is in them is not known, and
    /// they are not in `entries`.
    pub covered: Vec<Vec<u8>>,
}

impl FileSystemManifest {
    /// The same but for the times of changes, which intent logs do not tell.
    #[must_use]
    pub fn timeless(mut self) -> Self {
        self.entries.values_mut().for_each(|entry| entry.mtime = 0);
        self
    }
}

/// The manifest of a pool.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Manifest {
    datasets: BTreeMap<String, FileSystemManifest>,
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// The first line that is none of a manifest's.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut parser = Parser::default();
        for line in text.split(|byte| *byte == b'\n') {
            parser
                .line(line)
                .ok_or_else(|| format!("manifest: bad line: {}", String::from_utf8_lossy(line)))?;
        }
        Ok(parser.finish())
    }

    /// The file systems (`pool/fs`) and snapshots (`pool/fs@snap`), each with its own files only:
    /// without what was mounted below, and without `.zfs`.
    pub fn datasets(&self) -> impl Iterator<Item = (&str, &FileSystemManifest)> {
        self.datasets.iter().map(|(name, files)| (name.as_str(), files))
    }

    /// The files of one dataset.
    #[must_use]
    pub fn get(&self, dataset: &str) -> Option<&FileSystemManifest> {
        self.datasets.get(dataset)
    }
}

#[derive(Default)]
struct Parser {
    datasets: BTreeMap<String, FileSystemManifest>,
    dataset: Option<String>,
    xattr_file: Option<Vec<u8>>,
}

impl Parser {
    fn line(&mut self, line: &[u8]) -> Option<()> {
        if let Some(title) = line.strip_prefix(b"# ") {
            self.xattr_file = None;
            let title = std::str::from_utf8(title).ok()?;
            // "# notmounted" and the like describe nothing.
            self.dataset = title.split_once(' ').map(|(_, name)| name.to_owned());
            if let Some(name) = &self.dataset {
                self.datasets.entry(name.clone()).or_default();
            }
            return Some(());
        }
        let Some(files) = self.dataset.as_ref().and_then(|name| self.datasets.get_mut(name)) else {
            return Some(());
        };
        if line.is_empty() {
            return Some(());
        }
        let (kind, rest) = split_once(line, b'\t')?;
        match kind {
            b"F" => {
                let (path, rest) = split_once(rest, b'\t')?;
                let (attributes, target) = split_once(rest, b'\t')?;
                let entry = parse_entry(std::str::from_utf8(attributes).ok()?, target)?;
                files.entries.insert(path.to_vec(), entry);
            }
            b"S" => {
                let (path, digest) = parse_digest(rest)?;
                if let Some(entry) = files.entries.get_mut(&path) {
                    entry.sha256 = Some(digest);
                }
            }
            b"R" => {
                let tab = rest.iter().rposition(|byte| *byte == b'\t')?;
                let (path, device) = rest.split_at(tab);
                let device = std::str::from_utf8(device.get(1..)?).ok()?;
                let (major, minor) = device.split_once(':')?;
                if let Some(entry) = files.entries.get_mut(path.strip_prefix(b"./")?) {
                    entry.device = Some((
                        u32::from_str_radix(major, 16).ok()?,
                        u32::from_str_radix(minor, 16).ok()?,
                    ));
                }
            }
            b"X" => self.xattr_line(rest)?,
            _ => return None,
        }
        Some(())
    }

    fn xattr_line(&mut self, line: &[u8]) -> Option<()> {
        if let Some(path) = line.strip_prefix(b"# file: ") {
            self.xattr_file = Some(unescape(path));
            return Some(());
        }
        let Some((name, value)) = split_once(line, b'=') else { return Some(()) };
        let files = self.dataset.as_ref().and_then(|name| self.datasets.get_mut(name))?;
        let value = match value.strip_prefix(b"0x") {
            Some(digits) => parse_hex(digits)?,
            None if value == b"0s" => Vec::new(),
            None => return None,
        };
        let path = self.xattr_file.as_ref()?;
        let xattrs = if path == b"." {
            Some(&mut files.root_xattrs)
        } else {
            files.entries.get_mut(path).map(|entry| &mut entry.xattrs)
        };
        if let Some(xattrs) = xattrs {
            xattrs.insert(name.to_vec(), value);
        }
        Some(())
    }

    /// Takes out of every file system what was mounted below it.
    fn finish(mut self) -> Manifest {
        let names: Vec<String> = self.datasets.keys().cloned().collect();
        for (name, files) in &mut self.datasets {
            let prefix = format!("{name}/");
            files.covered = names
                .iter()
                .filter(|other| !other.contains('@'))
                .filter_map(|other| other.strip_prefix(&prefix))
                .map(|path| path.as_bytes().to_vec())
                .collect();
            let covered = &files.covered;
            files.entries.retain(|path, _| {
                !covered.iter().any(|mount| {
                    path.strip_prefix(&mount[..])
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
                })
            });
        }
        Manifest { datasets: self.datasets }
    }
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn parse_entry(attributes: &str, target: &[u8]) -> Option<Entry> {
    let mut fields = attributes.split(' ');
    let kind = EntryKind::from_letter(fields.next()?)?;
    let mode = u32::from_str_radix(fields.next()?, 8).ok()?;
    let links = fields.next()?.parse().ok()?;
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let size = fields.next()?.parse().ok()?;
    let mtime = parse_time(fields.next()?)?;
    let target = target.to_vec();
    let xattrs = BTreeMap::new();
    Some(Entry {
        kind,
        mode,
        links,
        uid,
        gid,
        size,
        mtime,
        target,
        sha256: None,
        device: None,
        xattrs,
    })
}

/// Seconds and a fraction of ten digits.
fn parse_time(text: &str) -> Option<i128> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some(seconds.parse::<i128>().ok()? * 1_000_000_000 + digits.parse::<i128>().ok()?)
}

/// A line of `sha256sum`: a name with a newline or backslash is escaped and marked.
fn parse_digest(line: &[u8]) -> Option<(Vec<u8>, [u8; 32])> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let digest = parse_hex(line.get(..64)?)?.try_into().ok()?;
    let path = line.get(64..)?.strip_prefix(b"  ./")?;
    if !escaped {
        return Some((path.to_vec(), digest));
    }
    let mut out = Vec::new();
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => out.push(if bytes.next()? == &b'n' { b'\n' } else { b'\\' }),
            byte => out.push(*byte),
        }
    }
    Some((out, digest))
}

/// Names as `getfattr` prints them: `\ooo` for bytes that are not printable.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| *byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    out
}

/// Bytes from pairs of hex digits.
#[must_use]
pub fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"# dataset p
F\tfile\tf 4755 2 1 2 3 1795230543.1920000000\t
F\tlink\tl 777 1 0 0 3 -1.5000000000\tone
F\tchr\tc 644 1 0 0 0 0.0000000000\t
F\tfs\td 755 2 0 0 2 1.0000000000\t
F\tfs/.zfs\td 777 2 0 0 2 1.0000000000\t
F\tfs2\td 755 2 0 0 2 1.0000000000\t
S\te3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  ./file
R\t./chr\t103:11170
X\t# file: file
X\tuser.a=0x3100
X\tuser.empty=0s
X\t
# dataset p/fs
# snapshot p@s
F\tna\xc3\xafve\tf 644 1 0 0 0 0.0000000000\t
X\t# file: na\\303\\257ve
X\tuser.b=0x
";

    #[test]
    fn manifests_parse() {
        let manifest = Manifest::parse(TEXT).unwrap();
        let names: Vec<_> = manifest.datasets().map(|(name, _)| name).collect();
        assert_eq!(names, ["p", "p/fs", "p@s"]);
        let files = manifest.get("p").unwrap();
        let paths: Vec<_> = files.entries.keys().map(|path| &path[..]).collect();
        assert_eq!(paths, [&b"chr"[..], b"file", b"fs2", b"link"]);
        assert_eq!(files.covered, [b"fs"]);
        let file = &files.entries[&b"file"[..]];
        assert_eq!((file.mode, file.links, file.uid, file.gid, file.size), (0o4755, 2, 1, 2, 3));
        assert_eq!(file.mtime, 1_795_230_543_192_000_000);
        assert_eq!(file.sha256.unwrap()[0], 0xe3);
        assert_eq!(file.xattrs[&b"user.a"[..]], b"1\0");
        assert_eq!(file.xattrs[&b"user.empty"[..]], b"");
        assert_eq!(files.entries[&b"link"[..]].target, b"one");
        assert_eq!(files.entries[&b"chr"[..]].device, Some((259, 70000)));
        let snapshot = manifest.get("p@s").unwrap();
        assert_eq!(snapshot.entries["naïve".as_bytes()].xattrs.len(), 1);
    }

    #[test]
    fn broken_manifests_are_refused() {
        assert!(Manifest::parse(b"# dataset p\nF\tfile\tf 644\t\n").is_err());
        assert!(Manifest::parse(b"# dataset p\nZ\tfile\n").is_err());
    }
}
