//! Programs that wait until their writes are durable. A copy of the images, taken while the pool is
//! in use, is the state after a crash. The log in it is replayed.

use crate::mounted::Mounted;
use rzfs_zpl::NameTarget;
use rzfs_zpl::live::LiveFileSystem;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const THREADS: u8 = 4;
const ROUNDS: u64 = 25;
/// `O_DSYNC`.
const DURABLE: i32 = 0o10_000;

fn contents(files: &LiveFileSystem, name: &str) -> Vec<u8> {
    let Ok(NameTarget::Object(object)) = files.lookup(files.root(), name.as_bytes()) else {
        panic!("{name} is lost")
    };
    let mut bytes = vec![0; 1 << 16];
    let len = files.read(object, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn what_was_waited_for_survives_a_crash() {
    let mounted = Mounted::new();
    // The first fsync creates the log.
    File::create(mounted.path("first")).unwrap().sync_all().unwrap();
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let path = mounted.path(&format!("file-{number}"));
            scope.spawn(move || {
                let file = File::create(path).unwrap();
                for round in 0..ROUNDS {
                    file.write_all_at(&[number + 1; 1000], round * 1000).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
        let path = mounted.path("durable");
        scope.spawn(move || {
            let mut open = File::options();
            let mut file = open.create(true).append(true).custom_flags(DURABLE).open(path).unwrap();
            (0..ROUNDS).for_each(|_| file.write_all(b"a line\n").unwrap());
        });
    });
    fs::rename(mounted.path("file-0"), mounted.path("moved")).unwrap();
    fs::create_dir(mounted.path("directory")).unwrap();
    File::open(mounted.path("directory")).unwrap().sync_all().unwrap();

    let session = mounted.crashed();
    let files = &session.fs;
    for number in 1..THREADS {
        let expected = vec![number + 1; 1000 * ROUNDS as usize];
        assert!(contents(files, &format!("file-{number}")) == expected, "{number}");
    }
    assert_eq!(contents(files, "moved").len(), 1000 * ROUNDS as usize);
    assert_eq!(contents(files, "durable"), b"a line\n".repeat(ROUNDS as usize));
    assert!(files.lookup(files.root(), b"file-0").is_err());
    assert!(files.lookup(files.root(), b"directory").is_ok());
    session.export();
    mounted.finish();
}
