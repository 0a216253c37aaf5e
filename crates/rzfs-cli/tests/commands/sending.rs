//! `zfs send` of pools that are in use, and of images.

use crate::harness::wait_until;
use crate::workshop::Workshop;
use rzfs_format::nvlist::{Encoding, NvList};
use rzfs_format::stream::{Begin, Record, StreamFeatures};
use rzfs_stream::{Package, PackagedBlocks, ReadOptions, StreamReader};
use rzfs_testkit::zstream_program;
use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

fn pool() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 256M -R ROOT -O compression=lz4 tank A");
    shop.succeed("zfs create tank/a");
    shop
}

/// The command for a line.
fn command(shop: &Workshop, line: &str) -> Command {
    let mut command = shop.rzfs.command();
    command.args(line.split(' ').map(|word| match word {
        "IMAGES" => shop.rzfs.path("images").to_str().unwrap().to_owned(),
        word => word.to_owned(),
    }));
    command
}

/// The standard output of a command.
fn stream(shop: &Workshop, line: &str) -> Vec<u8> {
    let output = command(shop, line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{line}: {said}");
    output.stdout
}

/// The records of a whole stream except BEGIN and END; and the size of their payloads in bytes.
fn records(stream: &[u8]) -> (Vec<Record>, usize) {
    let mut reader = StreamReader::new(stream, ReadOptions::default());
    let (mut records, mut payload, mut bytes) = (Vec::new(), Vec::new(), 0);
    while let Some(record) = reader.next_record().unwrap() {
        reader.read_payload_to(&mut payload).unwrap();
        bytes += payload.len();
        records.push(record);
    }
    assert!(matches!(records.first(), Some(Record::Begin(_))));
    assert!(matches!(records.pop(), Some(Record::End(_))));
    records.remove(0);
    (records, bytes)
}

#[test]
fn a_snapshot_is_sent_whole_or_what_is_new() {
    let shop = pool();
    let at = |name: &str| shop.root().join("a").join(name);
    fs::write(at("first"), "words and words ".repeat(100_000)).unwrap();
    shop.succeed("zfs snapshot tank/a@s1");
    shop.succeed("zfs bookmark tank/a@s1 tank/a#b1");
    fs::write(at("second"), "new words ".repeat(1000)).unwrap();
    shop.succeed("zfs snapshot tank/a@s2");
    let full = stream(&shop, "zfs send tank/a@s1");
    let (all, bytes) = records(&full);
    assert!(bytes > 1_600_000 && all.iter().any(|one| matches!(one, Record::Write(_))), "{bytes}");
    let small = stream(&shop, "zfs send -Lec tank/a@s1");
    assert!(records(&small).1 < bytes / 4, "as it is compressed");
    assert_eq!(small, stream(&shop, "zfs send --large-block --embed --compressed tank/a@s1"));
    let increment = stream(&shop, "zfs send -i @s1 tank/a@s2");
    let (_, new) = records(&increment);
    assert!((10_000..200_000).contains(&new), "{new}");
    for source in ["s1", "tank/a@s1", "#b1", "tank/a#b1"] {
        let same = stream(&shop, &format!("zfs send -i {source} tank/a@s2"));
        assert_eq!(same, increment, "{source}");
    }
    for (line, status, why) in [
        ("tank/a@none", 1, "cannot open 'tank/a@none': dataset does not exist\n"),
        ("nobody@none", 1, "cannot open 'nobody@none': dataset does not exist\n"),
        ("tank/a", 1, "cannot send 'tank/a': only snapshots are sent\n"),
        (
            "-i @s2 tank/a@s1",
            1,
            "warning: cannot send 'tank/a@s1': not an earlier snapshot from the same fs\n",
        ),
        (
            "-i @none tank/a@s2",
            1,
            "warning: cannot send 'tank/a@s2': incremental source (@none) does not exist\n",
        ),
    ] {
        assert_eq!(shop.refuse(&format!("zfs send {line}"), status), why, "{line}");
    }
    let len = full.len();
    assert_eq!(
        shop.succeed("zfs send -nvP tank/a@s1"),
        format!("full\ttank/a@s1\t{len}\nsize\t{len}\n")
    );
    let len = increment.len();
    assert_eq!(
        shop.succeed("zfs send -nP -i s1 tank/a@s2"),
        format!("incremental\ttank/a@s1\ttank/a@s2\t{len}\nsize\t{len}\n")
    );
    let told = shop.succeed("zfs send -nv -i #b1 tank/a@s2");
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("send from tank/a#b1 to tank/a@s2 estimated size is "), "{told}");
    assert!(lines.len() == 2 && lines[1].starts_with("total estimated size is "), "{told}");
    assert_eq!(shop.succeed("zfs send -n tank/a@s1"), "");
    let output = command(&shop, "zfs send -vL tank/a@s1").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("full send of tank/a@s1 estimated size is "), "{told}");
    assert_eq!(output.stdout, full);
    // With `-w`, unencrypted data is sent as stored, too.
    assert_eq!(stream(&shop, "zfs send -w tank/a@s1"), stream(&shop, "zfs send -Lec tank/a@s1"));
    shop.succeed("zpool export tank");
    assert_eq!(stream(&shop, "zfs send tank/a@s1 -d IMAGES"), full);
    assert_eq!(stream(&shop, "zfs send -i @s1 tank/a@s2 -d IMAGES"), increment);
    shop.judge();
}

/// BEGIN, and its payload unpacked.
fn list_of(stream: &[u8]) -> (Begin, NvList) {
    let mut reader = StreamReader::new(stream, ReadOptions::default());
    let Some(Record::Begin(begin)) = reader.next_record().unwrap() else { panic!("no BEGIN") };
    let mut packed = Vec::new();
    reader.read_payload_to(&mut packed).unwrap();
    (begin, NvList::decode(&packed).unwrap())
}

#[test]
fn encrypted_snapshots_are_sent_raw_without_a_key() {
    let shop = pool();
    fs::write(shop.rzfs.path("phrase"), "correct horse battery\n").unwrap();
    let phrase = format!("keylocation=file://{}", shop.rzfs.path("phrase").display());
    shop.succeed(&format!(
        "zfs create -o encryption=on -o keyformat=passphrase -o {phrase} tank/e"
    ));
    shop.succeed("zfs create tank/e/below");
    let secret = b"what nobody is to read ".repeat(4000);
    let at = |name: &str| shop.root().join("e").join(name);
    fs::write(at("first"), &secret).unwrap();
    shop.succeed("zfs snapshot -r tank/e@1");
    fs::write(at("second"), &secret).unwrap();
    shop.succeed("zfs snapshot -r tank/e@2");
    shop.succeed("zfs unmount tank/e");
    shop.succeed("zfs unload-key -r tank/e");
    assert!(shop.refuse("zfs send tank/e@1", 1).contains("key"), "plain ones need it");
    let full = stream(&shop, "zfs send -w tank/e@1");
    let (begin, list) = list_of(&full);
    assert!(begin.version.features().contains(StreamFeatures::RAW));
    let keys = list.list("crypt_keydata").unwrap();
    let iv_set = keys.u64("to_ivset_guid").unwrap();
    assert_eq!((keys.u64("from_ivset_guid").unwrap(), keys.u64("keyformat").unwrap()), (0, 3));
    let increment = stream(&shop, "zfs send -w -i @1 tank/e@2");
    let (_, list) = list_of(&increment);
    assert_eq!(list.list("crypt_keydata").unwrap().u64("from_ivset_guid").unwrap(), iv_set);
    for sent in [&full, &increment] {
        assert!(!sent.windows(22).any(|bytes| bytes == b"what nobody is to read"));
        let (records, _) = records(sent);
        assert!(matches!(records[0], Record::ObjectRange(_)), "{:?}", records[0]);
    }
    let tree = stream(&shop, "zfs send -wR tank/e@2");
    let package = Package::decode(&list_of(&tree).1.encode(Encoding::Xdr).unwrap()).unwrap();
    let roots: Vec<_> = package.datasets.iter().map(|one| one.is_encryption_root).collect();
    assert_eq!((package.blocks, roots), (PackagedBlocks::Raw, vec![true, false]));
    shop.refuse("zfs send -R tank/e@2", 1);
    let refused = "raw streams are not resumed by this software yet\n";
    assert_eq!(shop.refuse("zfs send -w -S tank/e", 1), refused);
    assert_eq!(shop.refuse("zfs send -w -t 1-0-0-0", 1), refused);
    fs::write(shop.rzfs.path("stream"), &full).unwrap();
    if let Some(zstream) = zstream_program() {
        let dump =
            Command::new(zstream).arg("dump").arg(shop.rzfs.path("stream")).output().unwrap();
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    }
    shop.succeed("zpool export tank");
    assert_eq!(stream(&shop, "zfs send -w tank/e@1 -d IMAGES"), full);
    shop.judge();
}

/// Incompressible bytes.
fn noise(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn a_snapshot_is_not_destroyed_while_it_is_sent() {
    let shop = pool();
    fs::write(shop.root().join("a/noise"), noise(80 << 20)).unwrap();
    shop.succeed("zfs snapshot tank/a@s");
    fs::remove_file(shop.root().join("a/noise")).unwrap();
    let mut command = command(&shop, "zfs send tank/a@s");
    let mut send = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut sent = vec![0; 1000];
    let mut stream = send.stdout.take().unwrap();
    stream.read_exact(&mut sent).unwrap();
    for line in ["zfs destroy tank/a@s", "zfs destroy -d tank/a@s", "zfs destroy -r tank/a"] {
        let said = shop.refuse(line, 1);
        assert_eq!(said, "cannot destroy snapshot tank/a@s: dataset is busy\n", "{line}");
    }
    let said = shop.refuse("zpool export tank", 1);
    let first = "cannot export 'tank': pool is busy\n";
    assert!(said.starts_with(first), "{said}");
    for name in ["a/new", "a/newer"] {
        fs::write(shop.root().join(name), vec![b'n'; 20 << 20]).unwrap();
        shop.succeed("zpool sync tank");
    }
    stream.read_to_end(&mut sent).unwrap();
    let output = send.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (_, bytes) = records(&sent);
    assert!(bytes >= 80 << 20, "{bytes}");
    shop.succeed("zfs destroy tank/a@s");
    shop.succeed("zpool export tank");
    shop.judge();
}

/// A receiver that stops reading blocks only the destruction of the snapshot and the export of the
/// pool, which need force.
#[test]
fn a_stream_that_nobody_reads_holds_nothing_up() {
    let shop = pool();
    fs::write(shop.root().join("a/noise"), noise(8 << 20)).unwrap();
    shop.succeed("zfs snapshot tank/a@s");
    let send = || {
        let mut command = command(&shop, "zfs send tank/a@s");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut gone = send();
    let mut start = [0; 1000];
    gone.stdout.take().unwrap().read_exact(&mut start).unwrap();
    assert!(!gone.wait().unwrap().success(), "nobody has read it");
    let mut killed = send();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut slow = send();
    slow.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    fs::write(shop.root().join("a/other"), "written meanwhile").unwrap();
    shop.succeed("zfs snapshot tank/a@later");
    assert!(shop.succeed("zfs list -Ht snapshot -o name").contains("tank/a@later"));
    shop.refuse("zpool export tank", 1);
    shop.succeed("zpool export -f tank");
    let mut rest = Vec::new();
    slow.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(!slow.wait().unwrap().success(), "a stream without an end is no success");
    shop.judge();
}

/// Each stream takes memory that is not limited otherwise.
#[test]
fn so_many_streams_pass_at_the_same_time() {
    let shop = pool();
    fs::write(shop.root().join("a/noise"), noise(8 << 20)).unwrap();
    shop.succeed("zfs snapshot tank/a@s");
    let mut senders = Vec::new();
    for _ in 0..48 {
        let mut command = command(&shop, "zfs send tank/a@s");
        let mut sender = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sender.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
        senders.push(sender);
    }
    let refused = shop.refuse("zfs send tank/a@s", 1);
    assert!(refused.contains("too many commands wait for the pool"), "{refused}");
    // Another stream can start as soon as one has ended.
    let mut gone = senders.pop().unwrap();
    gone.kill().unwrap();
    gone.wait().unwrap();
    wait_until("there is room", || {
        let sent = command(&shop, "zfs send tank/a@s").output().unwrap();
        sent.status.success() && sent.stdout.len() > 8 << 20
    });
    for mut sender in senders {
        sender.kill().unwrap();
        sender.wait().unwrap();
    }
    shop.succeed("zpool export -f tank");
    shop.judge();
}

#[test]
fn a_terminal_gets_no_stream() {
    let shop = pool();
    shop.succeed("zfs snapshot tank/a@s");
    let terminal = File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    let output = command(&shop, "zfs send tank/a@s").stdout(terminal).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "Error: Stream can not be written to a terminal.\nYou must redirect standard output.\n"
    );
}
