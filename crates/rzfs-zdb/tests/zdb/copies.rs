//! Copying files out of datasets.

use crate::harness::zdb_of;
use rzfs_testkit::ReferencePool;
use sha2::{Digest, Sha256};
use std::fs;

#[test]
fn files_come_out_of_encrypted_datasets_with_their_key() {
    let Some(pool) = ReferencePool::golden("g10-encrypted") else { return };
    let manifest = pool.manifest().unwrap();
    let hex = String::from_utf8(pool.text("hex.key").unwrap()).unwrap();
    let raw: String =
        pool.text("raw.key").unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let scratch = tempfile::tempdir().unwrap();
    let copy = scratch.path().join("copy");
    let mut copied = 0;
    for (dataset, key) in
        [("g10/hex", hex.trim()), ("g10/raw", &raw), ("g10/aes-256-gcm", "correct horse battery")]
    {
        let (_, files) = manifest.datasets().find(|(name, _)| *name == dataset).unwrap();
        let regular = files.entries.iter().filter(|(_, entry)| entry.size > 0);
        let (path, sha256) = regular
            .filter_map(|(path, entry)| Some((std::str::from_utf8(path).ok()?, entry.sha256?)))
            .next()
            .unwrap();
        let words = ["-K", key, "-r", dataset, path, copy.to_str().unwrap()];
        let output = zdb_of("g10-encrypted", words).unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(Sha256::digest(fs::read(&copy).unwrap())[..], sha256[..], "{path}");
        copied += 1;
    }
    assert_eq!(copied, 3);
}

#[test]
fn what_cannot_be_copied_is_said() {
    for (words, told) in [
        (&["-r", "g10/hex", "/a", "x"][..], "key"),
        (&["-K", "wrong", "-r", "g10/hex", "/a", "x"], "the key fits no dataset of 'g10'"),
        (&["-r", "g10", "/nothing", "x"], "nothing"),
        (&["-r", "g10"], "-r needs DATASET PATH DESTINATION"),
    ] {
        let Some(output) = zdb_of("g10-encrypted", words.iter().copied()) else { return };
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("zdb: ") && text.contains(told), "{words:?}: {text}");
    }
}
