//! Runs `rzfs ls`, `cat`, `stat`, `find` and `cp` on pools made by OpenZFS.

mod copies;
mod damage;
mod host;

use host::{errors, garden, golden};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::Stdio;

#[test]
fn ls_sorts_names_and_hides_those_with_a_dot() {
    let images = garden();
    assert_eq!(images.text("ls", &["garden/notes@monday:/beds"]), "north\nsouth\n");
    assert_eq!(images.text("ls", &["garden/notes:"]), "beds\ndiary\ntoday\n");
    let all = images.text("ls", &["-a", "garden/notes@monday:/beds"]);
    assert_eq!(all, ".\n..\nnorth\nsouth\n");
    let both = images.text("ls", &["garden/notes:/beds/north", "garden/notes@tuesday:/beds"]);
    assert_eq!(both, "garden/notes:/beds/north\n\ngarden/notes@tuesday:/beds:\nnorth\n");
}

/// The contents of an image cannot make the process start programs, mount or trace others.
#[test]
fn who_reads_an_image_is_kept_from_what_he_never_does() {
    // More than a pipe takes: it waits for its reader.
    let targets = vec!["garden/notes@monday:/today"; 10_000];
    let images = garden();
    let mut reader = images.command("cat", &targets);
    let mut reader = reader.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    reader.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", reader.id())).unwrap();
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
}

#[test]
fn ls_shows_attributes_in_columns() {
    let text = garden().text("ls", &["-l", "garden/notes@monday"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("total "), "{text}");
    assert!(lines[1].starts_with("drwxr-xr-x 2 0 0 "), "{text}");
    assert!(lines[1].ends_with(" +0000 beds"), "{text}");
    assert!(lines[2].starts_with("-rw-r--r-- 1 0 0 "), "{text}");
    assert!(lines[3].starts_with("lrwxrwxrwx 1 0 0 "), "{text}");
    assert!(lines[3].ends_with(" today -> beds/north"), "{text}");
    let widths: BTreeSet<_> = lines[1..].iter().map(|line| line.find(" +0000 ")).collect();
    assert_eq!(widths.len(), 1, "{text}");
}

#[test]
fn links_are_followed_as_other_commands_do() {
    let images = garden();
    let north = "Sow peas, spinach and radishes under glass.\nThin the spinach.\n";
    assert_eq!(images.text("cat", &["garden/notes:/today"]), north);
    assert_eq!(images.text("cat", &["garden/notes:/beds/../beds/./north"]), north);
    assert!(images.text("stat", &["garden/notes:/today"]).contains("\ntarget      beds/north\n"));
    let wrong = images.run("cat", &["garden/notes:/beds/north/"]);
    assert_eq!(errors(&wrong), "rzfs cat: garden/notes:/beds/north: Not a directory\n");
}

#[test]
fn snapshots_are_reached_by_name_and_by_path() {
    let images = garden();
    let south = "Nothing before the last frost.\n";
    assert_eq!(images.text("cat", &["garden/notes@monday:/beds/south"]), south);
    let below = "garden/notes:/.zfs/snapshot/monday";
    assert_eq!(images.text("cat", &[format!("{below}/beds/south")]), south);
    assert_eq!(images.text("ls", &["garden/notes:/.zfs/snapshot"]), "monday\ntuesday\n");
    assert_eq!(
        images.text("ls", &[format!("{below}/../../snapshot/monday/..")]),
        "monday\ntuesday\n"
    );
    assert_eq!(
        images.text("find", &[format!("{below}/beds")]),
        format!("{below}/beds\n{below}/beds/north\n{below}/beds/south\n")
    );
    let missing = images.run("cat", &["garden/notes:/beds/south"]);
    assert_eq!(errors(&missing), "rzfs cat: garden/notes:/beds/south: No such file or directory\n");
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn what_is_missing_does_not_stop_the_rest() {
    let images = garden();
    let output = images.run("cat", &["garden/nix:/a", "garden:/a", "garden/notes:/today"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.ends_with(b"Thin the spinach.\n"));
    let told = errors(&output);
    assert!(told.contains("cannot open 'garden/nix:/a': dataset does not exist\n"), "{told}");
    assert!(told.contains("rzfs cat: garden:/a: No such file or directory\n"), "{told}");
    let usage = images.run("cat", &["--no-such-option"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(errors(&usage).contains("rzfs cat [OPTIONS] -d, --device <DEVICE> <TARGET>...\n"));
}

#[test]
fn what_is_no_place_is_told_what_places_are() {
    let images = garden();
    let place = "a place is POOL/FILESYSTEM[@SNAPSHOT]:/PATH";
    for (target, expected) in [
        ("/garden/notes/today", place.to_owned()),
        (":/today", place.to_owned()),
        ("", place.to_owned()),
        ("garden/notes:today", format!("dataset does not exist\n{place}")),
        ("garden/notes/today", format!("dataset does not exist\n{place}")),
        ("garden/nix:", "dataset does not exist".to_owned()),
    ] {
        let output = images.run("cat", &[target]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(errors(&output), format!("rzfs cat: cannot open '{target}': {expected}\n"));
    }
}

#[test]
fn an_encrypted_file_needs_its_key() {
    let images = garden();
    let locked = images.run("cat", &["garden/secret:/shed"]);
    assert_eq!(locked.status.code(), Some(1));
    assert!(errors(&locked).contains("cannot open 'garden/secret': its key is not loaded"));
    let key = images.paths[0].with_file_name("key");
    std::fs::write(&key, "open sesame").unwrap();
    let key = format!("garden/secret={}", key.display());
    let text = images.text("cat", &["-k", &key, "garden/secret:/shed"]);
    assert_eq!(text, "The key to the shed is under the third pot.\n");
}

#[test]
fn stat_tells_everything() {
    let images = garden();
    let text = images.text("stat", &["garden/notes@monday:/beds/north"]);
    for part in [
        "name        garden/notes@monday:/beds/north\n",
        "type        regular file\n",
        "mode        0644 -rw-r--r--\n",
        "size        44\n",
        "xattr       user.author=\"Vita\"\n",
        "acl         owner@:rw-p--aARWcCos:-------:allow\n",
        "flags       acl_trivial,archive",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let object = text.lines().find_map(|line| line.strip_prefix("object      ")).unwrap();
    assert!(object.parse::<u64>().unwrap() > 1);
    let volume = images.text("stat", &["garden/disk"]);
    assert_eq!(volume, "name        garden/disk\ntype        volume\nsize        4194304\n");
}

#[test]
fn find_lists_what_the_manifest_lists() {
    let (pool, images) = golden("g01-default");
    let manifest = pool.manifest().unwrap();
    for dataset in ["g01/sa@s1", "g01/xdir", "g01/ldn"] {
        let files = manifest.get(dataset).unwrap();
        let find = |words: &[&str]| -> BTreeSet<Vec<u8>> {
            let target = format!("{dataset}:/");
            let out = images.output("find", &[&["-0"], words, &[&target]].concat());
            let names = out.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let names = names.map(|name| name.strip_prefix(target.as_bytes()).unwrap().to_vec());
            names.filter(|name| !name.is_empty()).collect()
        };
        assert_eq!(find(&[]), files.entries.keys().cloned().collect(), "{dataset}");
        let is_directory = |kind| kind == rzfs_testkit::EntryKind::Directory;
        let directories = files.entries.iter().filter(|(_, entry)| is_directory(entry.kind));
        assert_eq!(find(&["--type", "d"]), directories.map(|(path, _)| path.clone()).collect());
        let named = files.entries.keys().filter(|path| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
            name.starts_with(b"text") && name.ends_with(b"k")
        });
        assert_eq!(find(&["--name", "text*k"]), named.cloned().collect());
    }
}

#[test]
fn names_match_as_the_file_system_says() {
    let (_, images) = golden("g14-names");
    let text = images.text("stat", &["g14/ci:/MAKEFILE"]);
    assert!(text.contains("type        regular file\n"), "{text}");
    assert_eq!(images.output("cat", &["g14/ci:/mAkEfIlE"]), b"1");
    let listed = images.text("ls", &["g14/ci:/d"]);
    let sorted: Vec<_> = listed.lines().collect();
    assert!(sorted.is_sorted() && sorted.len() > 1000);
}

#[test]
fn a_volume_is_written_out_with_its_holes_as_zeros() {
    let (pool, images) = golden("g01-default");
    let expected = pool.text("vol.sha256").unwrap();
    let digest = Sha256::digest(images.output("cat", &["g01/vol"]));
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(expected.starts_with(digest.as_bytes()), "{digest}");
}
