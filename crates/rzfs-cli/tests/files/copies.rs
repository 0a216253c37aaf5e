//! Copies of whole file systems made by `rzfs cp`.

use crate::host::{errors, garden, golden, golden_elsewhere, scratch};
use rzfs_proof::{Lie, Outside, PoolFiles, Shape, make_lying_pool};
use rzfs_testkit::{
    EntryKind, FileSystemManifest, Listing, MountedTree, Observed, Tree, differences, has_root,
};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A copy. The sizes and link counts of directories depend on the host.
struct Copied(MountedTree);

impl Tree for Copied {
    type Node = PathBuf;

    fn root(&self) -> Result<PathBuf, String> {
        self.0.root()
    }

    fn list(&self, directory: &PathBuf) -> Result<Listing<PathBuf>, String> {
        self.0.list(directory)
    }

    fn observe(&self, node: &PathBuf) -> Result<Observed, String> {
        let observed = self.0.observe(node)?;
        Ok(match observed.kind {
            EntryKind::Directory => Observed { size: 0, links: 0, ..observed },
            _ => observed,
        })
    }

    fn target(&self, node: &PathBuf) -> Result<Vec<u8>, String> {
        self.0.target(node)
    }

    fn contents(&self, node: &PathBuf, sink: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        self.0.contents(node, sink)
    }

    fn xattr(&self, node: &PathBuf, name: &[u8]) -> Result<Vec<u8>, String> {
        self.0.xattr(node, name)
    }
}

/// The expected copy of a file system.
fn expected(manifest: &FileSystemManifest) -> FileSystemManifest {
    let mut manifest = manifest.clone();
    for entry in manifest.entries.values_mut() {
        if entry.kind == EntryKind::Directory {
            (entry.size, entry.links) = (0, 0);
        }
        // Longer than the host's file systems allow.
        entry.xattrs.retain(|_, value| value.len() < 4096);
    }
    manifest
}

/// Copies file systems and snapshots, and compares every file.
fn check(name: &str, wanted: impl Fn(&str) -> bool) {
    if !has_root("only root makes owners and devices") {
        return;
    }
    let Some((pool, images)) = golden_elsewhere(name) else { return };
    let manifest = pool.manifest().unwrap();
    let mut problems = Vec::new();
    let mut copied = 0;
    for (dataset, files) in manifest.datasets().filter(|(dataset, _)| wanted(dataset)) {
        let out = scratch();
        let copy = out.path().join("copy");
        let source = format!("{dataset}:/");
        let output = images.run("cp", &["-r", "-a", &source, copy.to_str().unwrap()]);
        // Values that the host cannot store are reported.
        let told = errors(&output);
        let others: Vec<_> = told.lines().filter(|line| !line.contains("user.huge")).collect();
        problems.extend(others.iter().map(|line| (*line).to_owned()));
        let found = differences(&expected(files), &Copied(MountedTree(copy)));
        problems.extend(found.into_iter().take(5).map(|problem| format!("{dataset}: {problem}")));
        copied += 1;
    }
    assert!(copied > 0);
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}

#[test]
fn copies_of_every_file_shape_are_the_same() {
    check("g01-default", |_| true);
}

#[test]
fn copies_of_encrypted_file_systems_are_the_same() {
    check("g10-encrypted", |dataset| !dataset.contains('@') || dataset.ends_with("aes-256-gcm@s"));
}

#[test]
fn copies_keep_every_name() {
    check("g14-names", |_| true);
}

#[test]
fn copies_of_old_file_systems_are_the_same() {
    check("g22-v8", |_| true);
}

#[test]
fn holes_stay_holes() {
    let (_, images) = golden("g01-default");
    let out = scratch();
    for name in ["sparse", "hole40m", "punched"] {
        images.output("cp", &[format!("g01/xdir:/{name}"), out.path().display().to_string()]);
        let metadata = fs::metadata(out.path().join(name)).unwrap();
        assert!(metadata.blocks() * 512 < metadata.size() * 3 / 4, "{name}: {metadata:?}");
    }
}

#[test]
fn a_volume_becomes_a_file() {
    let (pool, images) = golden("g01-default");
    let out = scratch();
    images.output("cp", &["g01/vol", out.path().to_str().unwrap()]);
    let file = out.path().join("vol");
    let digest = Sha256::digest(fs::read(&file).unwrap());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(pool.text("vol.sha256").unwrap().starts_with(digest.as_bytes()));
    let metadata = fs::metadata(file).unwrap();
    assert!(metadata.blocks() * 512 < metadata.size() / 2);
}

#[test]
fn names_with_several_links_stay_one_file() {
    let (_, images) = golden("g01-default");
    let out = scratch();
    images.run("cp", &["-r", "g01/xdir:/", out.path().to_str().unwrap()]);
    let (a, b) = (out.path().join("b4096"), out.path().join("dir/hardlink"));
    assert_eq!(fs::metadata(a).unwrap().ino(), fs::metadata(b).unwrap().ino());
}

#[test]
fn destinations_are_chosen_as_by_cp() {
    let images = garden();
    let out = scratch();
    let path = |name: &str| out.path().join(name);
    let cp = |words: &[&str], to: &Path| {
        let words: Vec<_> = words.iter().copied().chain([to.to_str().unwrap()]).collect();
        images.run("cp", &words)
    };
    // A file to a name, over a file, and into a directory; links are followed.
    assert!(cp(&["garden/notes@monday:/today"], &path("a")).status.success());
    assert_eq!(fs::metadata(path("a")).unwrap().len(), 44);
    assert!(cp(&["garden/notes:/today"], &path("a")).status.success());
    assert_eq!(fs::metadata(path("a")).unwrap().len(), 62);
    fs::create_dir(path("d")).unwrap();
    assert!(cp(&["garden/notes:/today", "garden/disk"], &path("d")).status.success());
    assert_eq!(fs::metadata(path("d/today")).unwrap().len(), 62);
    assert_eq!(fs::metadata(path("d/disk")).unwrap().len(), 4 << 20);
    // A directory to a new name, into a directory, and again.
    for _ in 0..2 {
        assert!(cp(&["-r", "garden/notes@monday:/beds"], &path("d")).status.success());
        assert_eq!(fs::read_dir(path("d/beds")).unwrap().count(), 2);
    }
    assert!(cp(&["-r", "garden/notes@monday:/beds"], &path("new")).status.success());
    assert!(path("new/south").exists());
    // The contents of a root directory go into an existing directory.
    fs::create_dir(path("root")).unwrap();
    assert!(cp(&["-r", "garden/notes@monday:/"], &path("root")).status.success());
    assert_eq!(fs::read_link(path("root/today")).unwrap(), Path::new("beds/north"));
    // Errors.
    let omitted = cp(&["garden/notes:/beds"], &path("d"));
    assert_eq!(omitted.status.code(), Some(1));
    assert!(errors(&omitted).contains("omitting directory 'garden/notes:/beds'"));
    let two = cp(&["garden/notes:/diary", "garden/notes:/today"], &path("a"));
    assert!(errors(&two).contains("is not a directory"), "{}", errors(&two));
}

#[test]
fn permissions_are_kept_or_left_to_the_umask() {
    let (_, images) = golden("g01-default");
    let out = scratch();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let one = out.path().join("one");
    images.output("cp", &["g01/xdir:/one", one.to_str().unwrap()]);
    assert_eq!(mode(&one), 0o755);
    if has_root("only root makes owners and devices") {
        let kept = out.path().join("kept");
        images.output("cp", &["-a", "g01/xdir:/one", kept.to_str().unwrap()]);
        assert_eq!(mode(&kept), 0o4755);
    }
}

#[test]
fn links_at_the_destination_lead_nowhere() {
    let images = garden();
    let (out, outside) = (scratch(), scratch());
    fs::write(outside.path().join("victim"), "safe").unwrap();
    std::os::unix::fs::symlink(outside.path(), out.path().join("beds")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("victim"), out.path().join("diary")).unwrap();
    let copied = images.run("cp", &["-r", "garden/notes@monday:/", out.path().to_str().unwrap()]);
    assert_eq!(copied.status.code(), Some(1));
    assert!(errors(&copied).contains("beds: Not a directory"), "{}", errors(&copied));
    assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"safe");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(fs::symlink_metadata(out.path().join("diary")).unwrap().is_file());
}

#[test]
fn names_that_lead_elsewhere_are_left_out_and_told_of() {
    let images = scratch();
    let shape = Shape::named("single").unwrap();
    let files = PoolFiles::new(images.path(), shape.name);
    let outside = Outside { directory: "/outside", program: b"" };
    make_lying_pool(&files, &shape, Lie::Words, 1, outside).unwrap();
    let out = scratch();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rzfs"));
    command.args(["cp", "-r", "-f", "-d"]).arg(files.dir());
    command.arg(format!("{}:/", files.name())).arg(out.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = errors(&output);
    for name in [".", "..", "../outside/forged", "/outside/absolute"] {
        let expected = format!("rzfs cp: '{name}' is no name for a file: left out\n");
        assert!(told.contains(&expected), "{name}: {told}");
    }
    assert!(out.path().join("d/e/f/7").exists());
}
