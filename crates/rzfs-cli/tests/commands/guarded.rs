//! What `zfs receive` guarantees for packages of untrusted senders: nothing outside the target
//! changes, and the options `-o`, `-x` and `-u` take effect.

use crate::receiving::{exported_and_judged, file_of, pools, receive, receives, sent};
use crate::workshop::Workshop;
use rzfs_format::ByteOrder;
use rzfs_format::stream::Record;
use rzfs_stream::{ReadOptions, StreamReader, StreamWriter};
use std::fs::{self, File};
use std::io::{Read, Seek};

/// A stream that is cut off before its end.
fn cut(stream: &File) -> File {
    let mut bytes = Vec::new();
    stream.try_clone().unwrap().read_to_end(&mut bytes).unwrap();
    file_of(&bytes[..bytes.len() - 1100])
}

/// A package without the streams of a dataset that its list still contains.
fn without(package: &File, dataset: &str) -> File {
    let mut package = package.try_clone().unwrap();
    package.rewind().unwrap();
    let mut reader = StreamReader::new(package, ReadOptions::default());
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(&mut bytes, ByteOrder::NATIVE);
    let (mut begins, mut is_left_out) = (0, false);
    let mut payload = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        payload.clear();
        if reader.payload_length() > 0 {
            reader.read_payload_to(&mut payload).unwrap();
        }
        if let Record::Begin(begin) = &record {
            let name = begin.to_name.to_text();
            is_left_out = begins > 0 && name.split('@').next() == Some(dataset);
            begins += 1;
        }
        match record {
            Record::End(_) if is_left_out => is_left_out = false,
            _ if is_left_out => {}
            Record::End(end) => writer.end(end.to_guid).unwrap(),
            record => writer.write(&record, &payload).unwrap(),
        }
    }
    file_of(&bytes)
}

/// The value and source of one property.
fn value(shop: &Workshop, name: &str, of: &str) -> String {
    let got = shop.succeed(&format!("zfs get -Hpo value,source {name} {of}"));
    got.trim_end().replace('\t', " ")
}

fn names(shop: &Workshop, of: &str) -> Vec<String> {
    shop.succeed(&format!("zfs list -Hro name -t all {of}")).lines().map(str::to_owned).collect()
}

/// The clone was promoted at the sender; here its origin belongs to another user.
#[test]
fn no_package_promotes_what_is_a_clone_of_something_outside_of_the_target() {
    let shop = pools();
    for line in ["zfs create from/snd", "zfs snapshot from/snd@base", "zfs snapshot from/snd@old"] {
        shop.succeed(line);
    }
    receives(&shop, "tank/out", &sent(&shop, "-R from/snd@old"));
    for line in [
        "zfs snapshot tank/out@mine",
        "zfs create tank/tgt",
        "zfs clone from/snd@old from/cl",
        "zfs snapshot from/cl@1",
    ] {
        shop.succeed(line);
    }
    receives(&shop, "tank/tgt/cl", &sent(&shop, "-i from/snd@old from/cl@1"));
    for line in [
        "zfs promote from/cl",
        "zfs destroy -r from/snd",
        "zfs destroy from/cl@base",
        "zfs snapshot from/cl@2",
    ] {
        shop.succeed(line);
    }
    let before = names(&shop, "tank/out");
    receive(&shop, "-F -d tank/tgt", &sent(&shop, "-R -I @1 from/cl@2"));
    assert_eq!(names(&shop, "tank/out"), before);
    assert_eq!(
        names(&shop, "tank/tgt"),
        ["tank/tgt", "tank/tgt/cl", "tank/tgt/cl@1", "tank/tgt/cl@2"]
    );
    exported_and_judged(&shop);
}

/// Sends `from/s` and its descendants to `tank/t/s`; then creates the dataset `new`.
fn with_something_new(between: &[&str], new: &str) -> Workshop {
    let shop = pools();
    for line in ["zfs create from/s", "zfs create tank/t"].iter().chain(between) {
        shop.succeed(line);
    }
    shop.succeed("zfs snapshot -r from/s@1");
    receives(&shop, "-d tank/t", &sent(&shop, "-R from/s@1"));
    shop.succeed(&format!("zfs create -o setuid=on {new}"));
    let file = shop.rzfs.path("root").join(new).join("file");
    fs::write(file, "words ".repeat(20_000)).unwrap();
    shop.succeed(&format!("zfs snapshot {new}@1"));
    shop
}

#[test]
fn what_is_asked_for_holds_though_the_top_is_there_already() {
    let shop = with_something_new(&[], "from/s/kid");
    let package = sent(&shop, "-R from/s@1");
    // If nothing is received, nothing is changed.
    assert_eq!(receive(&shop, "-d -o setuid=off -o quota=99M tank/t", &cut(&package)).status, 1);
    assert_eq!(value(&shop, "setuid", "tank/t/s"), "on default");
    assert_eq!(names(&shop, "tank/t"), ["tank/t", "tank/t/s", "tank/t/s@1"]);
    let said = receives(&shop, "-v -d -o setuid=off -o quota=99M tank/t", &package);
    assert!(said.contains("snap tank/t/s@1 already exists; ignoring\n"), "{said}");
    assert_eq!(value(&shop, "setuid", "tank/t/s"), "off local");
    assert_eq!(value(&shop, "quota", "tank/t/s"), "103809024 local");
    assert_eq!(value(&shop, "setuid", "tank/t/s/kid"), "off inherited from tank/t/s");
    assert_eq!(value(&shop, "quota", "tank/t/s/kid"), "0 default");
    receives(&shop, "-d -o exec=off tank/t", &package);
    assert_eq!(value(&shop, "exec", "tank/t/s"), "on default");
    exported_and_judged(&shop);
}

#[test]
fn what_is_asked_for_goes_before_what_was_received_between() {
    let between = ["zfs create -o setuid=on from/s/mid", "zfs create from/s/beside"];
    let shop = with_something_new(&between, "from/s/mid/kid");
    assert_eq!(value(&shop, "setuid", "tank/t/s/mid"), "on received");
    receives(&shop, "-d -o setuid=off tank/t", &sent(&shop, "-R from/s@1"));
    assert_eq!(value(&shop, "setuid", "tank/t/s"), "off local");
    assert_eq!(value(&shop, "setuid", "tank/t/s/mid"), "off inherited from tank/t/s");
    assert_eq!(value(&shop, "setuid", "tank/t/s/mid/kid"), "off inherited from tank/t/s");
    exported_and_judged(&shop);
}

#[test]
fn what_is_asked_for_holds_though_the_top_never_comes() {
    let shop = pools();
    shop.succeed("zfs create -p -o setuid=on from/x/s/mid/kid");
    shop.succeed("zfs create tank/t");
    shop.succeed("zfs snapshot -r from/x/s@1");
    let package = without(&sent(&shop, "-R from/x/s@1"), "from/x/s");
    let package = without(&package, "from/x/s/mid");
    receives(&shop, "-d -o setuid=off -o mountpoint=/taken tank/t", &package);
    assert_eq!(value(&shop, "setuid", "tank/t/x/s"), "off local");
    assert_eq!(value(&shop, "setuid", "tank/t/x/s/mid/kid"), "off inherited from tank/t/x/s");
    let taken = shop.rzfs.path("root").join("taken/mid/kid");
    let expected = format!("{} inherited from tank/t/x/s", taken.display());
    assert_eq!(value(&shop, "mountpoint", "tank/t/x/s/mid/kid"), expected);
    exported_and_judged(&shop);
}

#[test]
fn what_is_asked_for_holds_where_something_was_renamed_out_of_the_tree() {
    let shop = pools();
    shop.succeed("zfs create -p from/s/kid");
    shop.succeed("zfs create tank/t");
    shop.succeed("zfs snapshot -r from/s@1");
    receives(&shop, "-d tank/t", &sent(&shop, "-R from/s@1"));
    shop.succeed("zfs rename tank/t/s/kid tank/t/kid");
    shop.succeed("zfs set setuid=on from/s/kid");
    shop.succeed("zfs snapshot -r from/s@2");
    let news = sent(&shop, "-R -i @1 from/s@2");
    receives(&shop, "-d -o setuid=off -o quota=99M -o mountpoint=/taken tank/t", &news);
    assert_eq!(value(&shop, "setuid", "tank/t/s"), "off local");
    assert_eq!(value(&shop, "setuid", "tank/t/kid"), "off local");
    assert_eq!(value(&shop, "quota", "tank/t/kid"), "0 default");
    let place = shop.root().join("t/kid");
    assert_eq!(value(&shop, "mountpoint", "tank/t/kid"), format!("{} default", place.display()));
    exported_and_judged(&shop);
}

/// A received value marks a dataset as a target of packages, even if the package had no properties.
#[test]
fn what_was_asked_for_of_the_first_package_stays_when_the_next_one_comes() {
    let shop = pools();
    shop.succeed("zfs create from/a/b/c");
    shop.succeed("zfs snapshot -r from/a@1");
    receives(&shop, "-u -o setuid=off -o my:own=word -x exec tank/r", &sent(&shop, "-R from/a@1"));
    // Also with a package of a single file system, and one received into an existing target.
    receives(&shop, "-u -o setuid=off -x exec tank/one", &sent(&shop, "-p from/a@1"));
    receives(&shop, "-u tank/there", &sent(&shop, "from/a@1"));
    // And with a stream without properties.
    receives(&shop, "-u -o setuid=off -x exec tank/bare", &sent(&shop, "from/a@1"));
    shop.succeed("zfs snapshot -r from/a@2");
    receives(&shop, "-u -o setuid=off -x exec tank/there", &sent(&shop, "-p -i @1 from/a@2"));
    shop.succeed("zfs set setuid=on exec=off from/a");
    shop.succeed("zfs set setuid=on from/a/b");
    shop.succeed("zfs snapshot -r from/a@3");
    shop.succeed("zfs snapshot from@4");
    receives(&shop, "-u tank/r", &sent(&shop, "-R -I @1 from/a@3"));
    receives(&shop, "-u tank/one", &sent(&shop, "-p -I @1 from/a@3"));
    receives(&shop, "-u tank/bare", &sent(&shop, "-p -I @1 from/a@3"));
    receives(&shop, "-u tank/there", &sent(&shop, "-p -i @2 from/a@3"));
    for name in ["tank/r", "tank/one", "tank/there", "tank/bare"] {
        assert_eq!(value(&shop, "setuid", name), "off local", "{name}");
        assert_eq!(value(&shop, "exec", name), "on default", "{name}");
    }
    assert_eq!(value(&shop, "my:own", "tank/r"), "word local");
    assert_eq!(value(&shop, "setuid", "tank/r/b"), "off inherited from tank/r");
    // Also by the column's name.
    receives(&shop, "-u -x compress tank/alias", &sent(&shop, "-p from@4"));
    assert_eq!(value(&shop, "compression", "tank/alias"), "on default");
    exported_and_judged(&shop);
}

/// Values in the package are never in force, even briefly: it would be mounted there.
#[test]
fn what_is_asked_for_and_what_is_brought_are_one_change() {
    let shop = pools();
    let root = shop.rzfs.path("root");
    shop.succeed("zfs snapshot from/a@1");
    receives(&shop, "tank/c", &sent(&shop, "-p from/a@1"));
    shop.succeed("zfs set mountpoint=/there quota=20M from/a");
    shop.succeed("zfs snapshot from/a@2");
    let news = sent(&shop, "-p -i @1 from/a@2");
    shop.succeed("zfs set mountpoint=/aside from/a");
    fs::remove_dir(root.join("there")).ok();
    // Nothing can be mounted there.
    fs::write(root.join("there"), "").unwrap();
    let asked = "-o mountpoint=/mine -o reservation=30M -o quota=none";
    receives(&shop, &format!("{asked} tank/c"), &news);
    let mine = root.join("mine");
    assert_eq!(value(&shop, "mountpoint", "tank/c"), format!("{} local", mine.display()));
    assert_eq!(value(&shop, "quota", "tank/c"), "0 local");
    assert_eq!(value(&shop, "reservation", "tank/c"), "31457280 local");
    assert_eq!(value(&shop, "mounted", "tank/c"), "yes -");
    // If a value cannot be set, nothing is received and nothing is changed.
    shop.succeed("zfs snapshot from/a@3");
    let more = sent(&shop, "-p -i @2 from/a@3");
    let refused = receive(&shop, "-o a:b=c -o reservation=9G tank/c", &more);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(value(&shop, "a:b", "tank/c"), "- -");
    assert_eq!(value(&shop, "reservation", "tank/c"), "31457280 local");
    assert!(!names(&shop, "tank/c").contains(&"tank/c@3".to_owned()));
    exported_and_judged(&shop);
}

#[test]
fn nothing_is_mounted_where_nothing_is_to_be() {
    let shop = pools();
    let root = shop.rzfs.path("root");
    let mounted = |name: &str| value(&shop, "mounted", name);
    shop.succeed("zfs set mountpoint=none from/a");
    shop.succeed("zfs snapshot -r from/a@1");
    receives(&shop, "-u tank/c", &sent(&shop, "-R from/a@1"));
    receives(&shop, "tank/m", &sent(&shop, "from/a@1"));
    let number = |number: u32| {
        shop.succeed(&format!("zfs snapshot -r from/a@{number}"));
        sent(&shop, &format!("-R -i @{} from/a@{number}", number - 1))
    };
    shop.succeed("zfs set mountpoint=/there from/a");
    let second = number(2);
    receives(&shop, "-u tank/c", &second);
    assert_eq!([mounted("tank/c"), mounted("tank/c/b")], ["no -", "no -"]);
    assert_eq!(
        value(&shop, "mountpoint", "tank/c"),
        format!("{} received", root.join("there").display())
    );
    // A mounted file system stays where it is.
    receives(&shop, "-u -o atime=off tank/m", &sent(&shop, "-p -i @1 from/a@2"));
    assert_eq!(mounted("tank/m"), "yes -");
    fs::write(shop.root().join("m/file"), "is here").unwrap();
    // Nothing is mounted either when properties are restored.
    shop.succeed("zfs set mountpoint=none from/a");
    let third = number(3);
    let broken = cut(&sent(&shop, "-p -i @2 from/a@3"));
    assert_eq!(receive(&shop, "-u tank/c", &broken).status, 1);
    assert!(value(&shop, "mountpoint", "tank/c").ends_with("there received"));
    assert_eq!([mounted("tank/c"), mounted("tank/c/b")], ["no -", "no -"]);
    // Nor when something is renamed.
    receives(&shop, "-u tank/c", &third);
    for line in ["zfs create -o mountpoint=/here from/a/up", "zfs rename from/a/b from/a/up/b"] {
        shop.succeed(line);
    }
    assert_eq!(mounted("tank/c/b"), "no -");
    let fourth = number(4);
    receives(&shop, "-u tank/c", &fourth);
    assert_eq!([mounted("tank/c/up"), mounted("tank/c/up/b")], ["no -", "no -"]);
    exported_and_judged(&shop);
}
