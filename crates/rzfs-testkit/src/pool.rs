//! Finding and unpacking reference pools.

use crate::Manifest;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Golden pools that have images.
const GOLDEN_POOLS: usize = 24;

/// How the images of a pool are packed.
#[derive(Clone, Debug)]
enum Packing {
    /// One tar of sparse files.
    TarZstd(PathBuf),
    /// One compressed file for each image.
    Bzip2(Vec<PathBuf>),
}

/// A pool that OpenZFS made, with what OpenZFS said about it.
#[derive(Clone, Debug)]
pub struct ReferencePool {
    name: String,
    texts: PathBuf,
    packing: Packing,
}

impl ReferencePool {
    /// The golden pool with this name; `None` when golden pools, or this one, are not there: the
    /// test that wants it has nothing to do then, and says so.
    ///
    /// # Panics
    /// When it is not there and `CI=true`: continuous integration has all pools.
    #[must_use]
    pub fn golden(name: &str) -> Option<Self> {
        let found = Self::find_golden(name);
        if found.is_none() {
            absent(&format!("{name}: not there"));
        }
        found
    }

    fn find_golden(name: &str) -> Option<Self> {
        let texts = golden_dir()?.join(name);
        let images = texts.join("images.tar.zst");
        images.is_file().then(|| Self {
            name: name.to_owned(),
            texts,
            packing: Packing::TarZstd(images),
        })
    }

    /// Every golden pool that has images, in the order of names.
    ///
    /// # Panics
    /// When some are missing and `CI=true`.
    #[must_use]
    pub fn all_golden() -> Vec<Self> {
        let names = golden_dir().map(|dir| names_in(&dir)).unwrap_or_default();
        let pools: Vec<_> = names.iter().filter_map(|name| Self::find_golden(name)).collect();
        if pools.len() < GOLDEN_POOLS {
            absent("some golden pools: not there");
        }
        pools
    }

    /// Every pool of OpenZFS's own test suite whose expected contents are known, in the order of
    /// names; none when they are not there.
    ///
    /// # Panics
    /// When they are not there and `CI=true`.
    #[must_use]
    pub fn all_openzfs() -> Vec<Self> {
        let Some(dir) = openzfs_dir() else {
            absent("OpenZFS's own test images: not there");
            return Vec::new();
        };
        let files = names_in(&dir);
        names_in(&dir.join("expected"))
            .into_iter()
            .filter_map(|name| {
                let images: Vec<_> = files
                    .iter()
                    .filter(|file| is_image_of(file, &name))
                    .map(|file| dir.join(file))
                    .collect();
                (!images.is_empty()).then(|| Self {
                    texts: dir.join("expected").join(&name),
                    name,
                    packing: Packing::Bzip2(images),
                })
            })
            .collect()
    }

    /// The name: of a golden pool its folder, of OpenZFS's own pools the pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that the pool has in its labels.
    #[must_use]
    pub fn pool_name(&self) -> &str {
        match &self.packing {
            Packing::TarZstd(_) => self.name.split('-').next().unwrap_or(&self.name),
            Packing::Bzip2(_) => &self.name,
        }
    }

    /// The directory with the image files, unpacked when they were not.
    ///
    /// # Errors
    /// As [`ReferencePool::images`].
    pub fn image_dir(&self) -> io::Result<PathBuf> {
        let images = self.images()?;
        let dir = images.first().and_then(|image| image.parent()).map(Path::to_owned);
        dir.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// The image files in the order of the pool's devices, unpacked when they were not. They are
    /// shared by all tests: open them read-only.
    ///
    /// # Errors
    /// Failure of `tar` or `bzip2`, or of the file system.
    pub fn images(&self) -> io::Result<Vec<PathBuf>> {
        if let Some(dir) = std::env::var_os("RZFS_GOLDEN_UNPACKED") {
            let dir = Path::new(&dir).join(&self.name);
            if dir.is_dir() {
                return files_of(&dir);
            }
        }
        let dir = unpacked_root().join(&self.name);
        if !dir.is_dir() {
            self.unpack(&dir)?;
        }
        files_of(&dir)
    }

    /// Unpacks beside `dir` and renames, so that tests that run at once never see a part.
    fn unpack(&self, dir: &Path) -> io::Result<()> {
        let mut partial = OsString::from(dir);
        partial.push(format!(".{}.{:?}", std::process::id(), std::thread::current().id()));
        let partial = PathBuf::from(partial);
        fs::create_dir_all(&partial)?;
        match &self.packing {
            Packing::TarZstd(archive) => run(Command::new("tar")
                .args(["--zstd", "--sparse", "-xf"])
                .arg(archive)
                .arg("-C")
                .arg(&partial))?,
            Packing::Bzip2(files) => {
                for file in files {
                    let image = file.file_stem().unwrap_or(file.as_os_str());
                    unpack_bzip2(file, &partial.join(image))?;
                }
            }
        }
        match fs::rename(&partial, dir) {
            // Another test was faster.
            Err(_) if dir.is_dir() => fs::remove_dir_all(&partial),
            result => result,
        }
    }

    /// The manifest.
    ///
    /// # Errors
    /// It is not there or cannot be parsed.
    pub fn manifest(&self) -> io::Result<Manifest> {
        Manifest::parse(&self.text("manifest")?)
            .map_err(|message| io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// What OpenZFS said, or a key: the file `name` or `name.gz` beside the images.
    ///
    /// # Errors
    /// It is not there or cannot be decompressed.
    pub fn text(&self, name: &str) -> io::Result<Vec<u8>> {
        let plain = self.texts.join(name);
        if plain.is_file() {
            return fs::read(plain);
        }
        gunzip(&fs::read(self.texts.join(format!("{name}.gz")))?)
    }

    /// The folder that the texts and keys are in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.texts
    }
}

/// What to do about what a test needs and does not have: it says what.
pub(crate) fn absent(what: &str) {
    match Absence::of(what, std::env::var_os("CI").as_deref()) {
        Absence::Skips(message) => eprintln!("{message}"),
        Absence::Fails(message) => panic!("{message}"),
    }
}

/// What it means that something is not there, and what is said about it.
#[derive(PartialEq, Eq, Debug)]
enum Absence {
    /// It may be missing on the machine that runs the tests.
    Skips(String),
    /// It must be there on the machine that tests everything: a skipped test tests nothing.
    Fails(String),
}

impl Absence {
    /// By the value of the variable `CI`.
    fn of(what: &str, ci: Option<&OsStr>) -> Self {
        match ci {
            Some(value) if value == "true" => Self::Fails(format!("{what}, and CI=true")),
            _ => Self::Skips(format!("SKIPPED: {what}")),
        }
    }
}

/// Whether the tests have the rights of root. If not, it is said why a test is skipped, which with
/// `CI=true` is a failure.
#[must_use]
pub fn has_root(why_only_root: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        absent(why_only_root);
    }
    is_root
}

/// Whether the kernel passes requests to FUSE that came with this version of Linux. If not, it is
/// said why a test is skipped.
#[must_use]
pub fn kernel_passes(what: &str, major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let passes = (numbers.next(), numbers.next()) >= (Some(major), Some(minor));
    if !passes {
        eprintln!("SKIPPED: Linux {release} passes no {what} to FUSE, {major}.{minor} does");
    }
    passes
}

/// The directory below which images are unpacked: `golden` in the build directory.
#[must_use]
pub fn unpacked_root() -> PathBuf {
    let build = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    build.join("golden")
}

/// Unpacks the sample pool `name` of the repository as `image`.
///
/// # Errors
/// There is no such sample, or failure of `zstd`.
pub fn unpack_sample(name: &str, image: &Path) -> io::Result<()> {
    let packed = repository().join("samples").join(name).with_extension("img.zst");
    run(Command::new("zstd").args(["-qdf", "--sparse"]).arg(packed).arg("-o").arg(image))
}

/// The repository's root.
fn repository() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).to_path_buf()
}

pub(crate) fn golden_dir() -> Option<PathBuf> {
    reference_dir("RZFS_GOLDEN", "golden", Some("tests/golden"))
}

fn openzfs_dir() -> Option<PathBuf> {
    reference_dir("RZFS_OPENZFS_IMAGES", "openzfs-images", None)
}

fn reference_dir(variable: &str, shared: &str, fallback: Option<&str>) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(variable) {
        return Some(PathBuf::from(dir));
    }
    let root = repository();
    let shared = root.join("../shared/reference").join(shared);
    [Some(shared), fallback.map(|path| root.join(path))]
        .into_iter()
        .flatten()
        .find(|dir| dir.is_dir())
}

/// Whether a file of OpenZFS's test suite is an image of the pool with this name.
fn is_image_of(file: &str, pool: &str) -> bool {
    let Some(image) = file.strip_suffix(".bz2") else { return false };
    let image = image.strip_suffix(".dat").unwrap_or(image);
    let member_of = |stem: &str| {
        image
            .strip_prefix(stem)
            .is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match pool {
        "v3-pool.dat" => image == "zfs-pool-vBROKEN",
        "testpool_13709" => image == "13709_reproducer",
        _ => {
            image == pool
                || member_of(pool)
                || pool.strip_suffix("-pool").is_some_and(|v| image == format!("zfs-pool-{v}"))
                || pool.starts_with("pool-") && member_of(&format!("zfs-{pool}"))
        }
    }
}

pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn files_of(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}

/// Decompresses a file; blocks of zeros become holes.
fn unpack_bzip2(from: &Path, to: &Path) -> io::Result<()> {
    let mut child = Command::new("bzip2").arg("-dc").arg(from).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let mut output = OpenOptions::new().write(true).create_new(true).open(to)?;
    let length = copy_sparse(&mut input, &mut output)?;
    output.set_len(length)?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("bzip2: {status}"))) }
}

fn copy_sparse(input: &mut impl Read, output: &mut File) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            return Ok(length);
        }
        length += read as u64;
        if buffer[..read].iter().all(|byte| *byte == 0) {
            output.seek(SeekFrom::Current(read as i64))?;
        } else {
            output.write_all(&buffer[..read])?;
        }
    }
}

pub(crate) fn gunzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a gzip file");
    let trailer = bytes.last_chunk::<4>().ok_or_else(bad)?;
    let mut out = vec![0; u32::from_le_bytes(*trailer) as usize];
    let written = libdeflater::Decompressor::new()
        .gzip_decompress(bytes, &mut out)
        .map_err(io::Error::other)?;
    out.truncate(written);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_belong_to_their_pools() {
        for (file, pool) in [
            ("zfs-pool-v1.dat.bz2", "v1-pool"),
            ("zfs-pool-v1mirror2.dat.bz2", "pool-v1mirror"),
            ("zfs-pool-v3raidz21.dat.bz2", "pool-v3raidz2"),
            ("zfs-pool-v3raidz2.dat.bz2", "pool-v3raidz"),
            ("zfs-broken-mirror1.dat.bz2", "zfs-broken-mirror"),
            ("zfs-pool-vBROKEN.dat.bz2", "v3-pool.dat"),
            ("cryptv0.dat.bz2", "cryptv0"),
            ("13709_reproducer.bz2", "testpool_13709"),
        ] {
            assert!(is_image_of(file, pool), "{file} is of {pool}");
        }
        for (file, pool) in [
            ("zfs-pool-v10.dat.bz2", "v1-pool"),
            ("zfs-pool-v1mirror1.dat.bz2", "v1-pool"),
            ("zfs-pool-v3raidz21.dat.bz2", "pool-v3raidz"),
            ("README.md", "v1-pool"),
        ] {
            assert!(!is_image_of(file, pool), "{file} is not of {pool}");
        }
    }

    #[test]
    fn what_is_not_there_is_a_failure_in_ci_and_a_skip_that_is_told_elsewhere() {
        let judged = |ci: Option<&str>| Absence::of("zdb: not there", ci.map(OsStr::new));
        let failure = Absence::Fails("zdb: not there, and CI=true".to_owned());
        assert_eq!(judged(Some("true")), failure);
        for elsewhere in [None, Some(""), Some("false"), Some("1"), Some("TRUE")] {
            let skip = Absence::Skips("SKIPPED: zdb: not there".to_owned());
            assert_eq!(judged(elsewhere), skip, "{elsewhere:?}");
        }
    }

    #[test]
    fn holes_survive_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = vec![0_u8; 200 << 10];
        data[150 << 10] = 7;
        let mut file = File::create(dir.path().join("image")).unwrap();
        let length = copy_sparse(&mut &data[..], &mut file).unwrap();
        file.set_len(length).unwrap();
        assert_eq!(fs::read(dir.path().join("image")).unwrap(), data);
    }
}
