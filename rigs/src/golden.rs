//! Mounts reference pools with the `rzfs` binary and compares every file of every file system and
//! snapshot with what OpenZFS had in it.

use rzfs_testkit::{Manifest, MountedTree, ReferencePool, differences, differences_but_times};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::process::{self, Failure};
use xtask::rzfs::{Mount, Rzfs};

/// How a reference pool is treated.
#[derive(Clone, Copy, Debug)]
struct Peculiarity {
    pool: &'static str,
    /// Files that `-k` gets; written from these texts, or taken from beside the images.
    keys: &'static [Key],
    /// The manifest describes a state that only a replay of the intent log brings about: a copy
    /// of the images is mounted for writing.
    unreplayed: bool,
    /// How many of the first images can be lost.
    redundancy: usize,
}

#[derive(Clone, Copy, Debug)]
enum Key {
    Text(&'static str),
    Beside(&'static str),
}

const ORDINARY: Peculiarity = Peculiarity { pool: "", keys: &[], unreplayed: false, redundancy: 0 };

/// What is not ordinary about reference pools.
const PECULIARITIES: [Peculiarity; 9] = [
    Peculiarity { pool: "g04-mirror3", redundancy: 2, ..ORDINARY },
    Peculiarity { pool: "g05-raidz1", redundancy: 1, ..ORDINARY },
    Peculiarity { pool: "g06-raidz2", redundancy: 2, ..ORDINARY },
    Peculiarity { pool: "g07-raidz3", redundancy: 3, ..ORDINARY },
    Peculiarity { pool: "g08-draid2", redundancy: 2, ..ORDINARY },
    Peculiarity {
        pool: "g10-encrypted",
        keys: &[Key::Text("correct horse battery"), Key::Beside("raw.key"), Key::Beside("hex.key")],
        ..ORDINARY
    },
    Peculiarity { pool: "g13-classes", redundancy: 1, ..ORDINARY },
    Peculiarity { pool: "g16-expanded", redundancy: 1, ..ORDINARY },
    Peculiarity { pool: "g24-zil", unreplayed: true, ..ORDINARY },
];

/// What happens to members of a redundant pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Damage {
    /// Nothing.
    None,
    /// As many as the redundancy allows are not there.
    Missing,
    /// As many as the redundancy allows are overwritten with noise, labels and all.
    Garbage,
}

/// Mounts and compares all reference pools whose name contains `filter`.
pub(crate) fn run(filter: &str, damage: Damage) -> Result<(), Failure> {
    let rzfs = Rzfs::build()?;
    let pools: Vec<_> = ReferencePool::all_golden()
        .into_iter()
        .filter(|pool| pool.name().contains(filter))
        .map(|pool| (peculiarity(pool.name()), pool))
        .filter(|(peculiarity, _)| damage == Damage::None || peculiarity.redundancy > 0)
        .collect();
    if pools.is_empty() {
        return Err(Failure::Checks(format!("finding reference pools like '{filter}'")));
    }
    let mut failed = Vec::new();
    for (peculiarity, pool) in &pools {
        match check_pool(&rzfs, pool, *peculiarity, damage) {
            Ok(()) => {}
            Err(failure) => {
                println!("{}: {failure}", pool.name());
                failed.push(pool.name());
            }
        }
    }
    println!("golden pools: {} agree, {} do not", pools.len() - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(", "))) }
}

fn peculiarity(pool: &str) -> Peculiarity {
    PECULIARITIES.into_iter().find(|peculiarity| peculiarity.pool == pool).unwrap_or(ORDINARY)
}

fn check_pool(
    rzfs: &Rzfs,
    pool: &ReferencePool,
    peculiarity: Peculiarity,
    damage: Damage,
) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(Failure::file(Path::new("temporary directory")))?;
    let images = pool.images().map_err(Failure::file(pool.dir()))?;
    let images = damaged(images, peculiarity.redundancy, damage, scratch.path())?;
    let mut arguments: Vec<OsString> = Vec::new();
    for key in key_files(pool, peculiarity.keys, scratch.path())? {
        arguments.extend(["-k".into(), key.into()]);
    }
    let directory = scratch.path().join("mnt");
    fs::create_dir(&directory).map_err(Failure::file(&directory))?;
    let mount = if peculiarity.unreplayed {
        // The host that had it never exported it.
        arguments.push("--force".into());
        for image in images {
            arguments.push(process::copy_image(&image, scratch.path())?.into());
        }
        rzfs.mount_for_writing(&arguments, &directory)?
    } else {
        arguments.extend(images.into_iter().map(OsString::from));
        rzfs.mount(&arguments, &directory)?
    };
    let result = compare(pool, peculiarity, &mount);
    mount.end()?;
    result
}

fn key_files(pool: &ReferencePool, keys: &[Key], scratch: &Path) -> Result<Vec<PathBuf>, Failure> {
    let file = |(index, key): (usize, &Key)| match key {
        Key::Beside(name) => Ok(pool.dir().join(name)),
        Key::Text(text) => {
            let path = scratch.join(format!("key{index}"));
            fs::write(&path, text).map_err(Failure::file(&path))?;
            Ok(path)
        }
    };
    keys.iter().enumerate().map(file).collect()
}

/// The images with the first `count` of them damaged.
fn damaged(
    images: Vec<PathBuf>,
    count: usize,
    damage: Damage,
    scratch: &Path,
) -> Result<Vec<PathBuf>, Failure> {
    match damage {
        Damage::None => Ok(images),
        Damage::Missing => Ok(images.into_iter().skip(count).collect()),
        Damage::Garbage => {
            let spoil = |(index, image): (usize, PathBuf)| {
                if index >= count {
                    return Ok(image);
                }
                let spoilt = scratch.join(format!("garbage{index}.img"));
                let length = fs::metadata(&image).map_err(Failure::file(&image))?.len();
                write_noise(&spoilt, length).map_err(Failure::file(&spoilt))?;
                Ok(spoilt)
            };
            images.into_iter().enumerate().map(spoil).collect()
        }
    }
}

/// Noise that is the same every time.
fn write_noise(path: &Path, length: u64) -> std::io::Result<()> {
    use std::io::Write;
    let mut state = length | 1;
    let mut block = vec![0u8; 1 << 20];
    for word in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let mut file = fs::File::create(path)?;
    for _ in 0..length >> 20 {
        file.write_all(&block)?;
    }
    file.set_len(length)
}

/// Compares every dataset of the manifest.
fn compare(pool: &ReferencePool, peculiarity: Peculiarity, mount: &Mount) -> Result<(), Failure> {
    let manifest = pool.manifest().map_err(Failure::file(pool.dir()))?;
    let differing = differing(&manifest, peculiarity, mount);
    println!("{}: {} datasets agree", pool.name(), manifest.datasets().count() - differing);
    if differing == 0 { Ok(()) } else { Err(Failure::Checks(format!("{differing} datasets"))) }
}

/// How many datasets differ; says in what.
fn differing(manifest: &Manifest, peculiarity: Peculiarity, mount: &Mount) -> usize {
    let mut differing = 0;
    for (name, files) in manifest.datasets() {
        let tree = MountedTree(mount.path_of(name));
        let found = match peculiarity.unreplayed {
            true => differences_but_times(files, tree),
            false => differences(files, &tree),
        };
        found.iter().take(20).for_each(|line| println!("  {name}: {line}"));
        differing += usize::from(!found.is_empty());
    }
    differing
}
