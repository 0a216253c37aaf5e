//! User operations on file systems: trees with files of every kind, and changes of any tree.

use crate::view::names;
use crate::{Files, ProofError};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::{DeviceNumber, Timestamp};
use rzfs_hostile::Random;
use rzfs_zpl::ZplError;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, LiveFileSystem, Named, NewKind, RenameMode, WriteAt,
    XattrMode,
};

const ROOT: Caller = Caller::SUPERUSER;
/// Prefix of names that fit in a microzap.
const SHORT: &str = "entry-number-";
/// Prefix of names that need a fat ZAP.
const LONG: &str = "entry-number-with-a-name-that-is-too-long-for-a-microzap-";
/// Maximum number of files visited by [`change`].
const MOST_FILES: usize = 400;

/// Incompressible bytes.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = std::iter::repeat_with(|| random.draw().to_le_bytes());
    words.flatten().take(len).collect()
}

/// Compressible bytes.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    let line = format!("the quick brown fox {seed} jumps over {} lazy dogs\n", seed % 31);
    line.bytes().cycle().take(len).collect()
}

/// A POSIX access control list as Linux stores it: version 2, then tag, permissions and id of
/// each entry.
fn posix_acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

/// Creates a directory with a small tree that contains every kind of file.
///
/// # Errors
/// Something cannot be made.
pub fn fill(fs: &LiveFileSystem, directory: &str, seed: u64) -> Result<(), ProofError> {
    let files = Files(fs);
    let path = |name: &str| format!("{directory}/{name}");
    for name in ["", "dir", "dir/sub", "dir/sub/deep", "empty"] {
        files.mkdir(path(name).trim_end_matches('/'))?;
    }
    sizes(&files, directory, seed)?;
    files.make(&path("sym"), NewKind::Symlink(b"one"))?;
    let long = format!("/{}", "a".repeat(300));
    files.make(&path("symlong"), NewKind::Symlink(long.as_bytes()))?;
    files.link(&path("b4096"), &path("dir/hardlink"))?;
    files.make(&path("fifo"), NewKind::Fifo)?;
    files.make(&path("socket"), NewKind::Socket)?;
    files.make(&path("chr"), NewKind::CharDevice(DeviceNumber { major: 1, minor: 3 }))?;
    files.make(&path("blk"), NewKind::BlockDevice(DeviceNumber { major: 259, minor: 70_000 }))?;
    files.put(&path("naïve ☃ name"), b"u")?;
    files.put(&path(&"L".repeat(255)), b"l")?;
    files.put(&path("dir/sub/deep/leaf"), b"d")?;
    files.chmod(&path("one"), 0o4755)?;
    files.chmod(&path("empty"), 0o1777)?;
    files.chown(&path("b513"), 1234, 4321)?;
    files.touch(&path("zero"), Timestamp { seconds: 981_173_106, nanoseconds: 7 })?;
    extended_attributes(&files, directory)?;
    crowd(&files, directory)
}

fn sizes(files: &Files<'_>, directory: &str, seed: u64) -> Result<(), ProofError> {
    let path = |name: &str| format!("{directory}/{name}");
    files.put(&path("zero"), b"")?;
    files.put(&path("one"), b"x")?;
    for size in [111, 511, 512, 513, 4096, 131_071, 131_072, 131_073] {
        files.put(&path(&format!("b{size}")), &noise(seed ^ size, size as usize))?;
    }
    files.put(&path("text200k"), &text(seed, 200_000))?;
    files.put(&path("text1m"), &text(seed + 1, 1 << 20))?;
    files.put(&path("dir/text300k"), &text(seed + 2, 300_000))?;
    files.put(&path("sparse"), b"")?;
    files.write(&path("sparse"), 250 * 4096, &noise(seed, 4096))?;
    files.put(&path("hole1m"), b"")?;
    files.write(&path("hole1m"), 700_000, b"end")?;
    files.truncate(&path("hole1m"), 1 << 20)?;
    files.put(&path("punched"), &text(seed + 3, 400_000))?;
    files.punch(&path("punched"), 131_072, 131_072)?;
    files.put(&path("zeros"), &vec![0; 300_000])
}

fn extended_attributes(files: &Files<'_>, directory: &str) -> Result<(), ProofError> {
    let path = |name: &str| format!("{directory}/{name}");
    files.set_xattr(&path("one"), "user.a", b"1")?;
    files.set_xattr(&path("one"), "user.big", &[b'B'; 3000])?;
    files.set_xattr(&path("b512"), "user.huge", &[b'H'; 40_000])?;
    files.set_xattr(&path("dir"), "security.test", b"s")?;
    files.set_xattr(&path("sym"), "trusted.t", b"t")?;
    let undefined = u32::MAX;
    let list = posix_acl(&[
        (0x01, 6, undefined),
        (0x02, 4, 99),
        (0x04, 4, undefined),
        (0x08, 7, 77),
        (0x10, 7, undefined),
        (0x20, 4, undefined),
    ]);
    match files.set_xattr(&path("b511"), "system.posix_acl_access", &list) {
        // The file system does not support such lists.
        Err(ProofError::File { source, .. }) if source.errno() == EOPNOTSUPP => Ok(()),
        result => result,
    }
}

/// Linux's EOPNOTSUPP.
const EOPNOTSUPP: i32 = 95;

/// A microzap, a fat ZAP, and one that was fat before most of its entries were removed.
fn crowd(files: &Files<'_>, directory: &str) -> Result<(), ProofError> {
    let crowds = [("micro", SHORT, 200, 10), ("fat", LONG, 400, 30), ("was-fat", LONG, 300, 280)];
    for (name, entry, entries, removed) in crowds {
        let crowd = format!("{directory}/{name}");
        files.mkdir(&crowd)?;
        for number in 0..entries {
            files.make(&format!("{crowd}/{entry}{number}"), NewKind::Regular)?;
        }
        for number in 0..removed {
            files.unlink(&format!("{crowd}/{entry}{number}"))?;
        }
    }
    Ok(())
}

/// Number of files affected by a change of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Files that were changed, renamed or removed.
    pub done: usize,
    /// Files that could not be changed: flags forbid it, quotas are exceeded.
    pub refused: usize,
}

/// Changes any file system: overwrites, extends, cuts, punches, renames, removes, and sets
/// attributes of some of its files.
///
/// # Errors
/// Something fails that should not.
pub fn change(fs: &LiveFileSystem, seed: u64) -> Result<Changes, ProofError> {
    let mut random = Random::new(seed);
    let mut changes = Changes::default();
    for NamedFile { path, directory, name, file } in some_files(fs)? {
        match change_file(fs, directory, &name, file, &mut random) {
            Ok(()) => changes.done += 1,
            Err(error) if REFUSALS.contains(&error.errno()) => {
                changes.refused += 1;
            }
            Err(source) => return Err(ProofError::at(&path, source)),
        }
    }
    Ok(changes)
}

/// Flags forbid it (EPERM), a rename has replaced the file (ENOENT) or would replace a directory by
/// a file or the other way round (ENOTDIR, EISDIR), a directory is not empty (ENOTEMPTY), a quota
/// is exceeded (EDQUOT).
const REFUSALS: [i32; 6] = [1, 2, 20, 21, 39, 122];

/// A file, and where it was found.
struct NamedFile {
    path: String,
    directory: ObjectId,
    name: Vec<u8>,
    file: ObjectId,
}

/// The files of a tree; a sample for large ones.
fn some_files(fs: &LiveFileSystem) -> Result<Vec<NamedFile>, ProofError> {
    let mut found = Vec::new();
    let mut directories = vec![(String::new(), fs.root())];
    while let Some((path, directory)) = directories.pop() {
        let names = names(fs, directory).map_err(|source| ProofError::at(&path, source))?;
        // Of a large directory every tenth or hundredth name is enough.
        let step = if names.len() > 100 { names.len() / 20 } else { 1 };
        for (name, file) in names.into_iter().step_by(step) {
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            let attributes = fs.attributes(file);
            let attributes = attributes.map_err(|source| ProofError::at(&path, source))?;
            if attributes.kind == FileKind::Directory {
                directories.push((path.clone(), file));
            }
            if found.len() < MOST_FILES {
                found.push(NamedFile { path, directory, name, file });
            }
        }
    }
    Ok(found)
}

fn change_file(
    fs: &LiveFileSystem,
    directory: ObjectId,
    name: &[u8],
    file: ObjectId,
    random: &mut Random,
) -> Result<(), ZplError> {
    let attributes = fs.attributes(file)?;
    let (size, seed) = (attributes.size, random.draw());
    let is_regular = attributes.kind == FileKind::Regular;
    let part = usize::try_from(size.clamp(1, 150_000)).unwrap_or(1);
    match random.below(12) {
        0 | 1 if is_regular => {
            fs.write(file, WriteAt::Offset(size / 3), &noise(seed, part), ROOT).map(drop)
        }
        2 if is_regular => fs.write(file, WriteAt::End, &text(seed, part), ROOT).map(drop),
        3 if is_regular => fs.truncate(file, size / 2, ROOT),
        4 if is_regular => fs.allocate(file, size / 4, size / 2 + 1, Allocation::Punch, ROOT),
        5 if is_regular => fs.write(file, WriteAt::Offset(0), &vec![0; part], ROOT).map(drop),
        6 => {
            let new = [&name[..name.len().min(200)], b"-moved"].concat();
            let from = Named { directory, name };
            fs.rename(from, Named { directory, name: &new }, RenameMode::Replace, ROOT)
        }
        7 if attributes.kind == FileKind::Directory => fs.rmdir(directory, name),
        7 | 8 if attributes.kind != FileKind::Directory => fs.unlink(directory, name),
        9 if attributes.kind != FileKind::Symlink => {
            let permissions = Some(0o640);
            let (uid, gid) = (Some(1000 + (seed % 3) as u32), Some(100));
            let change = AttributeChange { permissions, uid, gid, ..AttributeChange::default() };
            fs.set_attributes(file, &change, ROOT).map(drop)
        }
        10 => fs.set_xattr(file, b"trusted.changed", &noise(seed, 20), XattrMode::Any),
        _ => Ok(()),
    }
}
