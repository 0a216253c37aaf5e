//! What the process that serves a pool keeps of its parent, and of secrets.

use crate::workshop::Workshop;
use rzfs_testkit::has_root;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// Scripts that hold a lock while they create a pool must be able to release it.
#[test]
fn nothing_stays_open_of_whoever_starts_the_process() {
    let shop = Workshop::new();
    let lock = shop.rzfs.path("lock");
    let script = "exec 9> $LOCK && flock -n 9 && $RZFS zpool create -m none --size 96M tank $IMAGE";
    let mut shell = shop.rzfs.prepared(Command::new("sh"));
    shell.args(["-c", script]).env("LOCK", &lock).env("IMAGE", shop.image("A"));
    shell.env("RZFS", env!("CARGO_BIN_EXE_rzfs"));
    assert!(shell.status().unwrap().success());
    let free = Command::new("flock").arg("-n").arg(&lock).arg("true").status().unwrap();
    shop.succeed("zpool export tank");
    assert!(free.success());
}

/// What a process has in memory that it may write to: runs of pages that are there.
fn memory(process: u32) -> Vec<Vec<u8>> {
    /// Of an entry of `pagemap`, which has eight bytes: the page is there.
    const PRESENT: u64 = 1 << 63;
    let page = rustix::param::page_size() as u64;
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let open = |name: &str| File::open(format!("/proc/{process}/{name}")).unwrap();
    let (memory, pages) = (open("mem"), open("pagemap"));
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut entries = vec![0; usize::try_from((end - start) / page * 8).unwrap()];
        pages.read_exact_at(&mut entries, start / page * 8).unwrap();
        let entries: Vec<_> = entries.chunks_exact(8).collect();
        let is_present =
            |entry: &&[u8]| u64::from_le_bytes((*entry).try_into().unwrap()) & PRESENT != 0;
        let mut at = start;
        for run in entries.chunk_by(|one, next| is_present(one) == is_present(next)) {
            if is_present(&run[0]) {
                let mut bytes = vec![0; run.len() * page as usize];
                // What is not there any more has nothing.
                let read = memory.read_at(&mut bytes, at).unwrap_or(0);
                bytes.truncate(read);
                found.push(bytes);
            }
            at += run.len() as u64 * page;
        }
    }
    found
}

fn count_in(memory: &[Vec<u8>], wanted: &[u8]) -> usize {
    let of = |bytes: &Vec<u8>| bytes.windows(wanted.len()).filter(|part| *part == wanted).count();
    memory.iter().map(of).sum()
}

/// As bytes travel in text.
fn digits(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// A key as it is given, and what could be left of it.
struct Key {
    place: PathBuf,
    traces: Vec<Vec<u8>>,
    /// What is in memory while it is loaded; of a passphrase something else.
    loaded: Option<Vec<u8>>,
}

impl Key {
    fn new(shop: &Workshop, format: &str, name: &str) -> Self {
        let mut random = [0; 32];
        File::open("/dev/urandom").unwrap().read_exact_at(&mut random, 0).unwrap();
        let given = match format {
            "raw" => random.to_vec(),
            _ => digits(&random),
        };
        let place = shop.rzfs.path(&format!("{format}-{name}"));
        fs::write(&place, &given).unwrap();
        let traces = vec![random.to_vec(), digits(&random), digits(&digits(&random))];
        let loaded = (format != "passphrase").then(|| random.to_vec());
        Self { place, traces, loaded }
    }

    fn location(&self) -> String {
        format!("keylocation=file://{}", self.place.display())
    }

    /// How often something of it is in the memory of a process.
    fn count(&self, process: u32) -> usize {
        let memory = memory(process);
        self.traces.iter().map(|trace| count_in(&memory, trace)).sum()
    }

    fn assert_loaded(&self, process: u32) {
        if let Some(loaded) = &self.loaded {
            assert_ne!(count_in(&memory(process), loaded), 0, "it is loaded");
        }
    }
}

#[test]
fn keys_that_are_unloaded_are_in_memory_no_more() {
    if !has_root("only root may look into the memory of processes that are not its own children") {
        return;
    }
    for format in ["raw", "hex", "passphrase"] {
        let shop = Workshop::new();
        let [first, second, wrong] =
            ["first", "second", "wrong"].map(|name| Key::new(&shop, format, name));
        shop.succeed("zpool create -R ROOT --size 96M tank A");
        let process = shop.rzfs.daemon("tank");
        let create = format!("zfs create -o encryption=on -o keyformat={format}");
        shop.succeed(&format!("{create} -o {} tank/secret", first.location()));
        first.assert_loaded(process);
        shop.succeed("zfs unmount tank/secret");
        shop.succeed(&format!("zfs change-key -o {} tank/secret", second.location()));
        shop.succeed("zfs unload-key tank/secret");
        let changed = [&first, &second].map(|key| key.count(process));
        shop.succeed("zfs load-key -n tank/secret");
        shop.succeed("zfs load-key tank/secret");
        second.assert_loaded(process);
        shop.succeed("zfs unload-key tank/secret");
        let load = format!("zfs load-key -L file://{} tank/secret", wrong.place.display());
        shop.refuse(&load, 255);
        let left = [&second, &wrong].map(|key| key.count(process));
        shop.succeed("zpool export tank");
        // Another process has asked for the key then.
        shop.succeed("zpool import -l -d IMAGES -R ROOT tank");
        let process = shop.rzfs.daemon("tank");
        second.assert_loaded(process);
        shop.succeed("zfs unmount tank/secret");
        shop.succeed("zfs unload-key tank/secret");
        let imported = second.count(process);
        shop.succeed("zpool export tank");
        assert_eq!((changed, left, imported), ([0, 0], [0, 0], 0), "{format}");
    }
}

/// The directories that a process has open, but for those of the kernel's own file systems.
fn open_directories(process: u32) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let directories = files.filter(|file| fs::metadata(file).is_ok_and(|one| one.is_dir()));
    let named = directories.map(|file| fs::read_link(file).unwrap());
    named.filter(|name| !name.starts_with("/proc")).collect()
}

/// Nobody could unmount where they are, or remove them.
#[test]
fn no_directory_is_open_in_the_process_of_a_pool() {
    if !has_root("an ordinary user's process keeps the directory of its one mount") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let process = shop.rzfs.daemon("tank");
    assert_eq!(open_directories(process), [""; 0].map(PathBuf::from));
    let cwd = fs::read_link(format!("/proc/{process}/cwd")).unwrap();
    assert_eq!(cwd, PathBuf::from("/"));
    shop.succeed("zfs create tank/a");
    shop.succeed("zfs snapshot tank/a@s");
    fs::read_dir(shop.root().join("a/.zfs/snapshot/s")).unwrap();
    shop.succeed("zfs rename tank/a tank/b");
    shop.succeed("zfs unmount tank/b");
    shop.succeed("zfs mount tank/b");
    assert_eq!(open_directories(process), [""; 0].map(PathBuf::from));
    shop.succeed("zpool export tank");
}
