//! Encrypted file systems: creating, locking, unlocking and changing keys with commands.

use crate::harness::{is_mounted, mounts_on_mounts, outcome};
use crate::workshop::Workshop;
use std::fs;
use std::process::Command;

const SECRET: &str = "nobody may read these words";

/// A workshop with key files, and a function that returns their URLs.
fn with_keys() -> (Workshop, impl Fn(&str) -> String) {
    let shop = Workshop::new();
    let dir = shop.rzfs.path("keys");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("phrase"), "open sesame, please\n").unwrap();
    fs::write(dir.join("lines"), "open sesame, please\n# for the cave\n").unwrap();
    fs::write(dir.join("other"), "a different passphrase\n").unwrap();
    fs::write(dir.join("short"), "short\n").unwrap();
    fs::write(dir.join("raw"), [7; 32]).unwrap();
    fs::write(dir.join("hex"), "0123456789abcdef".repeat(4)).unwrap();
    let dir = dir.display().to_string();
    (shop, move |key: &str| format!("file://{dir}/{key}"))
}

#[test]
fn file_systems_are_locked_and_unlocked() {
    if !mounts_on_mounts() {
        eprintln!("SKIPPED: this user cannot mount on a mount");
        return;
    }
    let (shop, at) = with_keys();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    let phrase =
        format!("-o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation={}", at("phrase"));
    shop.succeed(&format!("zfs create -o encryption=on {phrase} tank/secret"));
    shop.succeed("zfs create tank/secret/below");
    let place = shop.root().join("secret");
    assert!(is_mounted(&place.join("below")));
    fs::write(place.join("file"), SECRET).unwrap();
    fs::write(place.join("below/file"), SECRET).unwrap();
    let properties = "encryption,keyformat,pbkdf2iters,encryptionroot,keystatus";
    assert_eq!(
        shop.succeed(&format!("zfs get -Ho value {properties} tank/secret/below")),
        "aes-256-gcm\npassphrase\n100000\ntank/secret\navailable\n"
    );
    assert_eq!(
        shop.refuse("zfs load-key tank/secret", 255),
        "Key load error: Key already loaded for 'tank/secret'.\n"
    );
    assert_eq!(
        shop.refuse("zfs unload-key tank/secret", 255),
        "Key unload error: 'tank/secret' is busy.\n"
    );
    assert_eq!(shop.refuse("zfs load-key tank", 255), "Key load error: 'tank' is not encrypted.\n");
    shop.succeed("zfs unmount tank/secret/below");
    shop.succeed("zfs unmount tank/secret");
    shop.succeed("zfs unload-key tank/secret");
    assert_eq!(shop.succeed("zfs get -Ho value keystatus tank/secret"), "unavailable\n");
    assert_eq!(
        shop.refuse("zfs unload-key tank/secret", 255),
        "Key unload error: Key already unloaded for 'tank/secret'.\n"
    );
    assert_eq!(
        shop.refuse("zfs mount tank/secret", 1),
        "cannot mount 'tank/secret': encryption key not loaded\n"
    );
    assert_eq!(
        shop.refuse("zfs create tank/secret/new", 1),
        "cannot create 'tank/secret/new': encryption root's key is not loaded or provided\n"
    );
    assert_eq!(
        shop.refuse(&format!("zfs load-key -L {} tank/secret", at("other")), 255),
        "Key load error: Incorrect key provided for 'tank/secret'.\n"
    );
    // Of text, only the first line is used.
    let verified = shop.succeed(&format!("zfs load-key -n -L {} tank/secret", at("lines")));
    assert_eq!(verified, "1 / 1 key(s) successfully verified\n");
    assert_eq!(
        shop.refuse("zfs load-key tank/secret/below", 255),
        "Key load error: Keys must be loaded for encryption root of 'tank/secret/below' \
         (tank/secret).\n"
    );
    assert_eq!(shop.succeed("zfs load-key -n tank/secret"), "1 / 1 key(s) successfully verified\n");
    assert_eq!(shop.succeed("zfs load-key -a"), "1 / 1 key(s) successfully loaded\n");
    shop.succeed("zfs mount -a");
    assert_eq!(fs::read_to_string(place.join("below/file")).unwrap(), SECRET);
    let history = shop.succeed("zpool history tank");
    let commands = history.lines().filter_map(|line| line.split_once(" zfs "));
    let of_keys: Vec<&str> =
        commands.map(|(_, command)| command).filter(|command| command.contains("-key")).collect();
    assert_eq!(of_keys, ["unload-key tank/secret", "load-key -a"]);
    shop.succeed("zpool export tank");
    shop.judge();
    let image = fs::read(shop.image("A")).unwrap();
    assert!(!image.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
}

#[test]
fn keys_are_changed_and_inherited() {
    let (shop, at) = with_keys();
    let root = format!("-O encryption=aes-128-ccm -O keyformat=raw -O keylocation={}", at("raw"));
    shop.succeed(&format!("zpool create --size 128M -R ROOT {root} tank A"));
    fs::write(shop.root().join("file"), SECRET).unwrap();
    assert_eq!(
        shop.succeed("zfs get -Ho value encryption,encryptionroot tank"),
        "aes-128-ccm\ntank\n"
    );
    let hex = format!("-o keyformat=hex -o keylocation={}", at("hex"));
    shop.succeed(&format!("zfs create {hex} tank/own"));
    shop.succeed("zfs create -o encryption=off tank/plain");
    assert_eq!(
        shop.succeed("zfs get -rHo value encryption,keyformat,keylocation tank/plain"),
        "off\nnone\nnone\n"
    );
    assert_eq!(
        shop.refuse("zfs change-key tank/plain", 255),
        "Key change error: Dataset not encrypted.\n"
    );
    assert_eq!(
        shop.refuse("zfs change-key -i tank", 255),
        "Key change error: Parent must be encrypted.\n"
    );
    shop.succeed("zfs change-key -i tank/own");
    assert_eq!(
        shop.succeed("zfs get -Ho value encryptionroot,keyformat,keylocation tank/own"),
        "tank\nraw\nnone\n"
    );
    assert_eq!(
        shop.refuse("zfs change-key -i tank/own", 255),
        "Key change error: Key inheriting can only be performed on encryption roots.\n"
    );
    let phrase = format!("-o keyformat=passphrase -o keylocation={}", at("phrase"));
    shop.succeed(&format!("zfs change-key {phrase} -o pbkdf2iters=100000 tank"));
    assert_eq!(
        shop.succeed("zfs get -Ho value,source keylocation tank"),
        format!("{}\tlocal\n", at("phrase"))
    );
    assert_eq!(
        shop.refuse("zfs set keylocation=prompt tank/own", 255),
        "cannot set property for 'tank/own': keylocation may only be set on encryption roots\n"
    );
    shop.succeed("zfs set keylocation=prompt tank");
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool import -N -d IMAGES -R ROOT tank");
    assert_eq!(shop.succeed("zfs get -Ho value keystatus tank/own"), "unavailable\n");
    shop.succeed(&format!("zfs load-key -L {} tank", at("phrase")));
    shop.succeed("zfs mount -a");
    assert_eq!(fs::read_to_string(shop.root().join("file")).unwrap(), SECRET);
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn what_cannot_be_encrypted_is_told() {
    let (shop, at) = with_keys();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    let cannot = |options: &str| shop.refuse(&format!("zfs create {options} tank/x"), 1);
    let said = |reason: &str| format!("cannot create 'tank/x': {reason}\n");
    assert_eq!(cannot("-o encryption=on"), said("Keyformat required for new encryption root."));
    let off = "Encryption must be turned on to set encryption properties.";
    assert_eq!(cannot(&format!("-o keyformat=raw -o keylocation={}", at("raw"))), said(off));
    assert_eq!(
        cannot("-o encryption=on -o keyformat=raw -o keylocation=file:///nowhere/at/all"),
        said("Failed to open key material file: No such file or directory")
    );
    assert_eq!(
        cannot(&format!("-o encryption=on -o keyformat=passphrase -o keylocation={}", at("short"))),
        said("Passphrase too short (min 8).")
    );
    assert_eq!(
        cannot(&format!("-o encryption=on -o keyformat=hex -o keylocation={}", at("raw"))),
        said("Hex key too short (expected 64).")
    );
    assert_eq!(
        cannot("-o encryption=on -o keyformat=passphrase -o pbkdf2iters=1000"),
        said("minimum pbkdf2 iterations is 100000")
    );
    assert_eq!(cannot("-o encryption=on -o keylocation=nowhere"), said("invalid keylocation"));
    assert_eq!(shop.succeed("zfs list -Ho name"), "tank\n");
    shop.succeed("zpool export tank");
}

/// A pool specifies where its keys are, and that value may be malicious.
#[test]
fn a_key_that_is_no_file_keeps_nobody_waiting() {
    let (shop, at) = with_keys();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    let encryption = "-o encryption=on -o keyformat=passphrase";
    shop.succeed(&format!("zfs create {encryption} -o keylocation={} tank/secret", at("phrase")));
    let pipe = shop.rzfs.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for location in [pipe.to_str().unwrap(), "/dev/ptmx"] {
        shop.succeed(&format!("zfs set keylocation=file://{location} tank/secret"));
        shop.succeed("zpool export tank");
        // Without `-l` no key is loaded.
        shop.succeed("zpool import -d IMAGES -R ROOT tank");
        assert_eq!(shop.succeed("zfs get -Ho value keystatus tank/secret"), "unavailable\n");
        shop.succeed("zpool export tank");
        let asked = shop.run("zpool import -l -d IMAGES -R ROOT tank");
        assert!(asked.status == 1 && asked.err.contains("not a regular file"), "{asked:?}");
        assert_eq!(shop.succeed("zfs get -Ho value mounted tank"), "yes\n");
    }
    shop.succeed(&format!("zfs set keylocation={} tank/secret", at("phrase")));
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -l -d IMAGES -R ROOT tank");
    assert_eq!(shop.succeed("zfs get -Ho value mounted tank/secret"), "yes\n");
    shop.succeed("zpool export tank");
}

#[test]
fn an_import_takes_passphrases_from_a_pipe_as_load_key_does() {
    let (shop, at) = with_keys();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    for (name, key) in [("one", "phrase"), ("two", "other")] {
        let how =
            format!("-o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation={}", at(key));
        shop.succeed(&format!("zfs create -o encryption=on {how} tank/{name}"));
        shop.succeed(&format!("zfs set keylocation=prompt tank/{name}"));
    }
    shop.succeed("zpool export tank");
    let import = |input: &str| {
        let mut shell = shop.rzfs.prepared(Command::new("timeout"));
        let script = format!("{input} | \"$0\" zpool import -l -d \"$1\" -R \"$2\" tank");
        shell.args(["-s", "KILL", "60", "sh", "-c", &script, env!("CARGO_BIN_EXE_rzfs")]);
        outcome(shell.arg(shop.rzfs.path("images")).arg(shop.rzfs.path("root")))
    };
    let state = "zfs get -Ho value keystatus,mounted tank/one tank/two";
    let both = import("printf 'open sesame, please\\na different passphrase\\n'");
    assert_eq!((both.status, both.err.as_str()), (0, ""));
    assert_eq!(shop.succeed(state), "available\nyes\navailable\nyes\n");
    shop.succeed("zpool export tank");
    let first = import("echo 'open sesame, please'");
    let left_out = "Key load error: Passphrase too short (min 8).\n\
        'tank/two' is left out: its key is not loaded\n";
    assert_eq!((first.status, first.err.as_str()), (1, left_out));
    assert_eq!(shop.succeed(state), "available\nyes\nunavailable\nno\n");
    shop.succeed("zpool export tank");
    // A program that keeps writing to the pipe is not held open by the background process.
    let wrong = import("yes 'not the passphrase'");
    assert_eq!(wrong.status, 1, "{wrong:?}");
    for name in ["tank/one", "tank/two"] {
        let told = format!("Key load error: Incorrect key provided for '{name}'.\n");
        assert!(wrong.err.contains(&told), "{wrong:?}");
    }
    assert_eq!(shop.succeed(state), "unavailable\nno\nunavailable\nno\n");
    shop.succeed("zpool export tank");
}
