//! Ways to fill a pool.

use crate::fill::noise;
use crate::shape::FeatureSet;
use crate::{Encrypted, Files, Habit, OpenPool, PoolFiles, ProofError, Settings, Shape};
use rzfs_hostile::Random;
use rzfs_testkit::ReferencePool;
use rzfs_zpl::live::{LiveFileSystem, NewKind};
use std::sync::Arc;

/// Linux's ENOSPC and EDQUOT.
const FULL: [i32; 2] = [28, 122];
/// Bytes of each device.
const DEVICE_SIZE: u64 = 96 << 20;
/// A pool that OpenZFS made, of which one file system has a snapshot.
const GOLDEN: (&str, &str, &str) = ("g05-raidz1", "g05", "g05/fs");
/// Quotas and reservations.
const LIMIT: u64 = 24 << 20;
/// The number of the property's value: SHA-256.
const SHA256: u64 = 8;

/// A way to fill a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// Many files of at most a few sectors.
    SmallFiles,
    /// One file.
    LargeFile,
    /// Files of all sizes, over a snapshot that OpenZFS has made.
    Snapshots,
    /// Two file systems, one with a quota and one with a `refquota`.
    Quotas,
    /// Records of one sector on RAID-Z with two parities, which takes most for them.
    Raidz,
    /// One file system beside another for which room is reserved.
    Reservations,
    /// Extended attributes of all sizes.
    Xattrs,
    /// Directories, symbolic links and long names.
    Directories,
    /// Blocks that files share: equal ones with `dedup=on`, and copies.
    Shared,
    /// A sparse file that is overwritten, cut and punched.
    Sparse,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::SmallFiles,
        Self::LargeFile,
        Self::Snapshots,
        Self::Quotas,
        Self::Raidz,
        Self::Reservations,
        Self::Xattrs,
        Self::Directories,
        Self::Shared,
        Self::Sparse,
    ];

    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmallFiles => "small-files",
            Self::LargeFile => "large-file",
            Self::Snapshots => "snapshots",
            Self::Quotas => "quotas",
            Self::Raidz => "raidz",
            Self::Reservations => "reservations",
            Self::Xattrs => "xattrs",
            Self::Directories => "directories",
            Self::Shared => "shared",
            Self::Sparse => "sparse",
        }
    }

    /// Its pool.
    #[must_use]
    pub const fn pool(self) -> &'static str {
        match self {
            Self::Snapshots => GOLDEN.1,
            _ => "full",
        }
    }

    /// Makes its pool with the file systems it needs.
    pub(super) fn open(
        self,
        files: &PoolFiles,
        settings: &Settings,
    ) -> Result<OpenPool, ProofError> {
        if self == Self::Snapshots {
            copy_golden(files)?;
            return files.open(settings);
        }
        let vdevs = if self == Self::Raidz { "raidz2 A B C D" } else { "A" };
        let shape = Shape {
            name: self.pool(),
            vdevs,
            ashift: 12,
            features: FeatureSet::Default,
            device_size: DEVICE_SIZE,
            habit: Habit::Plain,
            encrypted: Encrypted::Nothing,
        };
        let mut open = files.create(&shape, settings)?;
        let mut make = |name: &str, properties: &[(&str, u64)]| {
            open.create_file_system(name)?;
            properties.iter().try_for_each(|(property, value)| {
                Ok::<_, ProofError>(open.pool.set_property(name, property, (*value).into())?)
            })
        };
        match self {
            Self::Quotas => {
                make("full/a", &[("quota", LIMIT)])?;
                make("full/b", &[("refquota", LIMIT)])?;
            }
            Self::Reservations => {
                make("full/a", &[])?;
                make("full/b", &[("refreservation", LIMIT)])?;
            }
            Self::Raidz => make("full/a", &[("recordsize", 4096)])?,
            Self::Shared => make("full/a", &[("dedup", SHA256), ("recordsize", 16 << 10)])?,
            _ => make("full/a", &[])?,
        }
        Ok(open)
    }

    /// The file systems that are filled.
    pub(super) fn file_systems(self, open: &OpenPool) -> Vec<Arc<LiveFileSystem>> {
        let is_wanted = |name: &str| match self {
            Self::Snapshots => name == GOLDEN.2,
            _ => name.contains('/'),
        };
        let all = open.file_systems.iter().filter(|(name, _)| is_wanted(name));
        all.map(|(_, fs)| Arc::clone(fs)).collect()
    }

    /// Fills a file system until something does not fit.
    pub(super) fn fill(self, files: &Files<'_>, random: &mut Random) -> Result<(), ProofError> {
        match self {
            Self::SmallFiles => crowds(files, |path, number| {
                files.put(path, &noise(number, random.below(9000) as usize))
            }),
            Self::Snapshots | Self::Reservations => crowds(files, |path, number| {
                let largest = if number % 3 == 0 { 900_000 } else { 20_000 };
                files.put(path, &noise(number, random.below(largest) as usize))
            }),
            Self::LargeFile | Self::Quotas | Self::Raidz => large(files),
            Self::Xattrs => crowds(files, |path, number| xattrs(files, path, number, random)),
            Self::Directories => crowds(files, |path, _| tree(files, path)),
            Self::Shared => crowds(files, |path, number| shared(files, path, number, random)),
            Self::Sparse => sparse(files, random),
        }
    }
}

/// Copies the pool that OpenZFS made.
fn copy_golden(files: &PoolFiles) -> Result<(), ProofError> {
    let golden = ReferencePool::golden(GOLDEN.0);
    let golden = golden.ok_or_else(|| ProofError::NoPool(GOLDEN.0.to_owned()))?;
    for image in golden.images().map_err(ProofError::Image)? {
        let copy = files.dir().join(image.file_name().unwrap_or_default());
        // Without its mode: the originals are read-only.
        let contents = std::fs::read(&image).map_err(ProofError::Image)?;
        std::fs::write(&copy, contents).map_err(ProofError::Image)?;
    }
    Ok(())
}

/// Creates one object after the other, in directories of two hundred, until one does not fit.
fn crowds(
    files: &Files<'_>,
    mut make: impl FnMut(&str, u64) -> Result<(), ProofError>,
) -> Result<(), ProofError> {
    for number in 0.. {
        let directory = format!("crowd{}", number / 200);
        if number % 200 == 0 && is_full(files.mkdir(&directory).map(drop))? {
            break;
        }
        if is_full(make(&format!("{directory}/{number}"), number))? {
            break;
        }
    }
    Ok(())
}

fn large(files: &Files<'_>) -> Result<(), ProofError> {
    const PIECE: u64 = 300_000;
    if is_full(files.make("large", NewKind::Regular).map(drop))? {
        return Ok(());
    }
    for number in 0.. {
        let piece = noise(number, PIECE as usize);
        if is_full(files.write("large", number * PIECE, &piece))? {
            break;
        }
    }
    Ok(())
}

fn xattrs(
    files: &Files<'_>,
    path: &str,
    number: u64,
    random: &mut Random,
) -> Result<(), ProofError> {
    files.make(path, NewKind::Regular)?;
    for attribute in 0..8 {
        let largest = [100, 900, 12_000, 60_000][random.index(4)];
        let value = noise(number ^ attribute, 1 + random.below(largest) as usize);
        files.set_xattr(path, &format!("user.{attribute}"), &value)?;
    }
    Ok(())
}

/// A chain of directories with a few symbolic links and names in each.
fn tree(files: &Files<'_>, path: &str) -> Result<(), ProofError> {
    let mut path = path.to_owned();
    for depth in 0..6 {
        files.mkdir(&path)?;
        for number in 0..12 {
            let name = format!("{path}/{number} {}", "a long name ".repeat(12));
            match number % 3 {
                0 => files.make(&name, NewKind::Symlink(&[b'x'; 900])).map(drop)?,
                1 => files.mkdir(&name).map(drop)?,
                _ => files.make(&name, NewKind::Regular).map(drop)?,
            }
        }
        path = format!("{path}/{depth}");
    }
    Ok(())
}

fn shared(
    files: &Files<'_>,
    path: &str,
    number: u64,
    random: &mut Random,
) -> Result<(), ProofError> {
    match number % 4 {
        // Equal to what other files have, and unlike anything.
        0 => files.put(path, &noise(random.below(8), 200_000)),
        1 | 2 => files.put(path, &noise(1000 + number, 250_000)),
        _ => {
            let before = number - 1;
            let source = format!("crowd{}/{before}", before / 200);
            files.copy(&source, path, 250_000)
        }
    }
}

/// Writes to random places of a file far longer than the pool, then overwrites, truncates and
/// punches it. Freeing room must always work.
fn sparse(files: &Files<'_>, random: &mut Random) -> Result<(), ProofError> {
    const LENGTH: u64 = 1 << 36;
    const PATH: &str = "sparse";
    if is_full(files.make(PATH, NewKind::Regular).map(drop))? {
        return Ok(());
    }
    for number in 0.. {
        // Close together, so that indirect blocks do not take everything.
        let offset = random.below(64) * (LENGTH / 64) + random.below(1 << 24);
        if is_full(files.write(PATH, offset, &noise(number, 100_000)))? {
            break;
        }
    }
    for number in 0..200 {
        let offset = random.below(64) * (LENGTH / 64) + random.below(1 << 24);
        is_full(files.write(PATH, offset, &noise(number, 5000)))?;
    }
    files.punch(PATH, LENGTH / 64, 1 << 24)?;
    files.punch(PATH, 1000, LENGTH / 128)?;
    files.truncate(PATH, LENGTH / 2)
}

/// Whether an operation failed because the pool, or its quota, is full.
pub(super) fn is_full(result: Result<(), ProofError>) -> Result<bool, ProofError> {
    match result {
        Ok(()) => Ok(false),
        Err(ProofError::File { source, .. }) if FULL.contains(&source.errno()) => Ok(true),
        Err(error) => Err(error),
    }
}
