//! Changes that are waited for, of all the kinds that intent logs record.

use crate::fill::noise;
use crate::{Files, ProofError, change};
use rzfs_format::ObjectId;
use rzfs_zpl::live::{LiveFileSystem, NewKind};

/// More than any file has.
const LONGEST: u64 = 1 << 30;

/// Makes a directory of files and changes others, and waits until all of it is durable: if no
/// transaction group is closed meanwhile, only the intent log has it. `source` is a file on disk,
/// which is copied.
///
/// # Errors
/// Something fails that should not.
pub fn change_durably(
    fs: &LiveFileSystem,
    directory: &str,
    source: &str,
    seed: u64,
) -> Result<(), ProofError> {
    let files = Files(fs);
    let path = |name: &str| format!("{directory}/{name}");
    let wait = || fs.commit_all().map_err(|source| ProofError::at(directory, source));
    files.mkdir(directory)?;
    files.put(&path("long"), &noise(seed, 700_000))?;
    let long: ObjectId = files.find(&path("long"))?;
    fs.commit(&[long]).map_err(|source| ProofError::at(directory, source))?;
    // Placed blocks are changed in part, and as a whole.
    files.write(&path("long"), 300_001, &noise(seed + 1, 200_000))?;
    files.write(&path("long"), 5, b"short")?;
    files.copy(source, &path("copied"), LONGEST)?;
    files.copy(source, &path("copied and changed"), LONGEST)?;
    files.put(&path("short"), b"a few words")?;
    wait()?;
    files.write(&path("copied and changed"), 140_000, b"changed")?;
    files.set_xattr(&path("short"), "user.long", &noise(seed + 2, 50_000))?;
    files.set_xattr(&path("short"), "user.short", b"1")?;
    files.set_xattr(&path("long"), "user.long", &noise(seed + 3, 40_000))?;
    files.set_xattr(&path("long"), "user.long", &noise(seed + 4, 35_000))?;
    files.make(&path("symbolic"), NewKind::Symlink(b"long"))?;
    files.link(&path("short"), &path("other name"))?;
    files.rename(&path("short"), &path("renamed"))?;
    files.chmod(&path("renamed"), 0o604)?;
    files.truncate(&path("copied"), 100_001)?;
    change(fs, seed)?;
    wait()
}
