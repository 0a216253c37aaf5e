//! Unreadable intent logs: the device is an image in a file system of another pool, and returns EIO
//! for damaged records.

use crate::harness::{kill_server, mounts_on_mounts};
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Number of parts of the file; each was synced.
const PARTS: usize = 40;
/// The unreadable part; several log blocks precede it.
const LOST: usize = 12;
/// The unit in bytes that the device reads as a whole.
const RECORD: usize = 4096;

fn words(number: usize) -> String {
    format!("this is in the log, part {number:02}. ")
}

fn part(number: usize) -> Vec<u8> {
    words(number).repeat(40).into_bytes()
}

fn parts() -> Vec<u8> {
    (0..PARTS).flat_map(part).collect()
}

/// Replaces `old` by `new` wherever it occurs within a record of a file; returns whether it did.
fn replace(file: &Path, old: &str, new: &str) -> bool {
    let bytes = fs::read(file).unwrap();
    let open = File::options().write(true).open(file).unwrap();
    let records = bytes.chunks(RECORD).enumerate().filter(|(_, record)| **record != [0; RECORD]);
    let mut is_there = false;
    for (number, record) in records {
        for (at, _) in record.windows(old.len()).enumerate().filter(|(_, it)| *it == old.as_bytes())
        {
            open.write_all_at(new.as_bytes(), (number * RECORD + at) as u64).unwrap();
            is_there = true;
        }
    }
    is_there
}

/// A pool `tank` on an image in the pool `host`, which is exported. Its process was killed while
/// the file `logged` of `tank/a` was in the intent log.
struct Logged {
    shop: Workshop,
    host: PathBuf,
}

impl Logged {
    fn new() -> Self {
        // A txg may have been written before the kill.
        (0..10).find_map(|_| Self::try_new()).expect("the file is in the log")
    }

    fn try_new() -> Option<Self> {
        let shop = Workshop::new();
        let host = shop.rzfs.path("root").join("host");
        // Every write to the image replaces whole records, also damaged ones.
        let properties = "-O compression=off -O recordsize=4K";
        shop.succeed(&format!("zpool create --size 192M -R ROOT {properties} host A"));
        let image = host.join("image").display().to_string();
        let properties = "-o ashift=12 -O compression=off";
        shop.succeed(&format!("zpool create --size 96M -R ROOT {properties} tank {image}"));
        shop.succeed("zfs create tank/a");
        fs::write(shop.root().join("a/kept"), "kept").unwrap();
        shop.succeed("zpool sync tank");
        let mut file = File::create_new(shop.root().join("a/logged")).unwrap();
        for number in 0..PARTS {
            file.write_all(&part(number)).unwrap();
            file.sync_all().unwrap();
        }
        kill_server(&shop.rzfs, "tank");
        drop(file);
        let synced = shop.run(&format!("cat -d {image} tank/a:/logged")).out;
        shop.succeed("zpool export host");
        (synced.len() < part(0).len() * LOST).then_some(Self { shop, host })
    }

    fn device(&self) -> PathBuf {
        self.shop.image("A").into()
    }

    /// Makes the image unreadable, or readable again. The host is exported.
    fn fail(&self) {
        let damaged = words(LOST).replacen('t', "X", 1);
        assert!(replace(&self.device(), &words(LOST), &damaged));
    }

    fn mend(&self) {
        let damaged = words(LOST).replacen('t', "X", 1);
        assert!(replace(&self.device(), &damaged, &words(LOST)));
    }

    /// Imports the host while `act` runs.
    fn with_host<T>(&self, act: impl FnOnce(&Workshop) -> T) -> T {
        self.shop.succeed("zpool import -d A -R ROOT host");
        let done = act(&self.shop);
        self.shop.succeed("zpool export host");
        done
    }

    /// A command line in which `HOST` is replaced by the directory of the image.
    fn line(&self, line: &str) -> String {
        line.replace("HOST", &self.host.display().to_string())
    }

    /// The contents of the file, which must end between two parts; checks the other file.
    fn contents(&self) -> Vec<u8> {
        let directory = self.shop.root().join("a");
        assert_eq!(fs::read_to_string(directory.join("kept")).unwrap(), "kept");
        let contents = fs::read(directory.join("logged")).unwrap();
        assert!(parts().starts_with(&contents) && contents.len().is_multiple_of(part(0).len()));
        contents
    }

    /// The device is readable again: all synced data is there.
    fn recover(&self, force: &str) {
        self.mend();
        self.with_host(|shop| {
            shop.succeed(&self.line(&format!("zpool import {force}-d HOST -R ROOT tank")));
            assert!(self.contents() == parts());
            shop.succeed("zpool export tank");
            let walked = shop.run(&self.line("zdb -bcc -e -p HOST tank"));
            assert!(walked.status == 0 && walked.out.contains("No leaks"), "{walked:?}");
        });
    }
}

const ADVICE: &str = "The last changes that were synced to disk are in it. Import the pool again \
    when its devices can be read,\nor with 'zpool import -m', which discards what follows.\n";

#[test]
fn a_pool_whose_log_cannot_be_read_waits_for_its_device() {
    let logged = Logged::new();
    logged.fail();
    logged.with_host(|shop| {
        let written = || fs::metadata(logged.host.join("image")).unwrap().modified().unwrap();
        let before = written();
        for _ in 0..2 {
            let refused = shop.refuse(&logged.line("zpool import -f -d HOST -R ROOT tank"), 1);
            let why = "cannot import 'tank': the intent log of tank/a cannot be read: block ";
            assert!(refused.starts_with(why), "{refused}");
            assert!(refused.contains("Input/output error\n"), "{refused}");
            let advice = format!("{ADVICE}The pool can be imported using '-o readonly=on'.\n");
            assert!(refused.ends_with(&advice), "{refused}");
        }
        assert_eq!(written(), before, "nothing is changed");
        let line = logged.line("zpool import -f -o readonly=on -d HOST -R ROOT tank");
        let read = shop.run(&line);
        assert!(read.status == 0 && read.err.contains("intent log was not replayed"), "{read:?}");
        assert!(logged.contents().len() < parts().len());
        shop.succeed("zpool export tank");
        assert_eq!(written(), before, "nothing is changed");
    });
    logged.recover("-f ");
}

#[test]
fn what_cannot_be_read_of_a_log_is_given_up_on_request() {
    let logged = Logged::new();
    logged.fail();
    logged.with_host(|shop| {
        let imported = shop.run(&logged.line("zpool import -f -m -d HOST -R ROOT tank"));
        assert_eq!(imported.status, 0, "{imported:?}");
        assert!(imported.err.contains("the rest of the intent log is given up"), "{imported:?}");
        let contents = logged.contents();
        // The log was replayed up to the block, which may hold some more parts.
        assert!(!contents.is_empty() && contents.len() <= LOST * part(0).len());
        shop.succeed("zpool export tank");
        let walked = shop.run(&logged.line("zdb -bcc -e -p HOST tank"));
        assert!(walked.status == 0 && walked.out.contains("No leaks"), "{walked:?}");
        shop.succeed(&logged.line("zpool import -d HOST -R ROOT tank"));
        assert!(logged.contents() == contents);
        shop.succeed("zpool export tank");
    });
}

#[test]
fn a_file_system_whose_claimed_log_cannot_be_read_waits_for_its_device() {
    if !mounts_on_mounts() {
        return;
    }
    let logged = Logged::new();
    logged.with_host(|shop| {
        shop.succeed(&logged.line("zpool import -f -N -d HOST -R ROOT tank"));
        shop.succeed("zpool export tank");
    });
    logged.fail();
    logged.with_host(|shop| {
        for _ in 0..2 {
            let imported = shop.run(&logged.line("zpool import -d HOST -R ROOT tank"));
            assert_eq!(imported.status, 1, "{imported:?}");
            let why = "cannot mount 'tank/a': ";
            let is_told = imported.err.contains(why) && imported.err.ends_with(ADVICE);
            assert!(is_told, "{imported:?}");
            // The rest of the pool is usable.
            fs::write(shop.root().join("more"), "more").unwrap();
            let mounted = shop.succeed("zfs mount");
            assert!(mounted.contains("tank ") && !mounted.contains("tank/a "), "{mounted}");
            let refused = shop.refuse("zfs mount tank/a", 1);
            assert!(refused.starts_with(why) && refused.ends_with(ADVICE), "{refused}");
            shop.succeed("zpool export tank");
        }
    });
    let kept = logged.shop.rzfs.path("kept");
    fs::copy(logged.device(), &kept).unwrap();
    logged.with_host(|shop| {
        let imported = shop.run(&logged.line("zpool import -m -d HOST -R ROOT tank"));
        assert_eq!(imported.status, 0, "{imported:?}");
        let contents = logged.contents();
        assert!(!contents.is_empty() && contents.len() <= LOST * part(0).len());
        shop.succeed("zpool export tank");
    });
    fs::copy(kept, logged.device()).unwrap();
    logged.recover("");
}
