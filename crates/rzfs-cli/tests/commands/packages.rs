//! Packages: trees, properties and holds, sent and received.

use crate::harness::Outcome;
use crate::receiving::{
    command, exported_and_judged, file_of, pools, receive, receives, sent, tree,
};
use crate::workshop::Workshop;
use rzfs_format::nvlist::NvString;
use rzfs_format::stream::{
    Begin, MAGIC, Record, StreamFeatures, StreamKind, StreamName, VersionInfo,
};
use rzfs_format::{ByteOrder, Guid};
use rzfs_stream::{
    Package, PackageExtent, PackagedBlocks, PackagedDataset, PackagedSnapshot, ReadOptions,
    SentValue, StreamReader, StreamWriter,
};
use rzfs_testkit::GoldenStream;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::process::Stdio;

/// The head of a package.
fn head(stream: &File) -> Package {
    let mut stream = stream.try_clone().unwrap();
    stream.rewind().unwrap();
    let mut reader = StreamReader::new(stream, ReadOptions::default());
    let mut packed = Vec::new();
    reader.next_record().unwrap();
    reader.read_payload_to(&mut packed).unwrap();
    Package::decode(&packed).unwrap()
}

/// Whether a package is marked as containing holds.
fn has_holds(stream: &File) -> bool {
    let mut stream = stream.try_clone().unwrap();
    stream.rewind().unwrap();
    let mut reader = StreamReader::new(stream, ReadOptions::default());
    let Some(Record::Begin(begin)) = reader.next_record().unwrap() else { panic!("no package") };
    begin.version.features().contains(StreamFeatures::HOLDS)
}

/// The BEGIN records in a package: from which snapshot to which.
fn streams(stream: &File) -> Vec<(Guid, Guid, String)> {
    let mut stream = stream.try_clone().unwrap();
    stream.rewind().unwrap();
    let mut reader = StreamReader::new(stream, ReadOptions::default());
    let mut begins = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        if let Record::Begin(begin) = record {
            begins.push((begin.from_guid, begin.to_guid, begin.to_name.to_text().into_owned()));
        }
    }
    begins.remove(0);
    begins
}

/// Properties: name, value, received value, source.
fn properties(shop: &Workshop, names: &str, of: &str) -> Vec<String> {
    let line = format!("zfs get -Hpo property,value,received,source {names} {of}");
    shop.succeed(&line).lines().map(|line| line.replace('\t', " ")).collect()
}

fn names(shop: &Workshop, of: &str) -> Vec<String> {
    let listed = shop.succeed(&format!("zfs list -Hro name,origin -t all {of}"));
    listed.lines().map(|line| line.replace('\t', " ").replace(" -", "")).collect()
}

/// `from/a` with two snapshots, children and a clone of the first snapshot.
fn grown() -> Workshop {
    let shop = pools();
    let at = |name: &str| shop.rzfs.path("root").join("from/a").join(name);
    shop.succeed("zfs set compression=gzip from/a");
    shop.succeed("zfs create -o quota=100M -o com.x:y=z from/a/kid");
    fs::write(at("file"), "words ".repeat(20_000)).unwrap();
    fs::write(at("kid/file"), "other words ".repeat(20_000)).unwrap();
    shop.succeed("zfs snapshot -r -o a:b=c from/a@1");
    shop.succeed("zfs hold tag from/a@1");
    shop.succeed("zfs clone -o readonly=on from/a@1 from/a/clone");
    fs::write(at("more"), "more words ".repeat(20_000)).unwrap();
    shop.succeed("zfs snapshot -r from/a@2");
    shop
}

#[test]
fn a_package_says_what_is_in_it() {
    let shop = grown();
    let number = |name: &str, number| (name.to_owned(), SentValue::Number(number));
    let text =
        |name: &str, text: &str| (name.to_owned(), SentValue::Text(NvString::new(text).unwrap()));
    let one = head(&sent(&shop, "-p from/a/kid@2"));
    assert_eq!((one.from.as_deref(), one.to.as_str(), one.extent), (None, "2", PackageExtent::One));
    let [kid] = one.datasets.as_slice() else { panic!("{one:?}") };
    assert_eq!((kid.name.as_str(), kid.parent_snapshot, kid.origin), ("from/a/kid", None, None));
    let mut properties = kid.properties.clone().unwrap();
    properties.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(properties, [text("com.x:y", "z"), number("quota", 100 << 20)]);
    let [snapshot] = kid.snapshots.as_slice() else { panic!("{kid:?}") };
    assert_eq!((snapshot.properties.as_deref(), &snapshot.holds), (Some(&[][..]), &None));

    let steps = head(&sent(&shop, "-p -I @1 from/a@2"));
    assert_eq!(steps.from.as_deref(), Some("1"));
    let [first, second] = steps.datasets[0].snapshots.as_slice() else { panic!("{steps:?}") };
    assert_eq!((&first.properties, second.properties.as_deref()), (&None, Some(&[][..])));
    assert_eq!(head(&sent(&shop, "-p -i @1 from/a@2")).from, None);

    // Receivers look for holds only if the package is marked.
    let [with, without] = ["-h from/a@1", "-p from/a@1"].map(|line| sent(&shop, line));
    assert_eq!([has_holds(&with), has_holds(&without)], [true, false]);
    let held = head(&with);
    assert_eq!(held.datasets[0].properties, None);
    let [snapshot] = held.datasets[0].snapshots.as_slice() else { panic!("{held:?}") };
    assert_eq!(snapshot.properties, Some(vec![text("a:b", "c")]));
    assert_eq!(snapshot.holds.as_ref().unwrap()[0].0, "tag");
    // Nothing was received here.
    let backup = head(&sent(&shop, "-b from/a@1"));
    assert_eq!(backup.datasets[0].properties, Some(Vec::new()));
    assert_eq!(backup.datasets[0].snapshots[0].properties, Some(Vec::new()));

    let whole = sent(&shop, "-R from/a@2");
    let tree = head(&whole);
    assert_eq!((tree.from.as_deref(), tree.extent), (None, PackageExtent::Tree));
    let guid = |name: &str| {
        let guid = shop.succeed(&format!("zfs get -Hpo value guid {name}"));
        Guid(guid.trim().parse().unwrap())
    };
    let clone = tree.datasets.iter().find(|one| one.name == "from/a/clone").unwrap();
    assert_eq!(clone.origin, Some(guid("from/a@1")));
    assert_eq!(clone.parent_snapshot, Some(guid("from/a@2")));
    assert_eq!(tree.datasets.len(), 4);
    let of = |from: &str, to: &str| {
        let from = if from.is_empty() { Guid(0) } else { guid(from) };
        (from, guid(to), to.to_owned())
    };
    assert_eq!(
        streams(&whole),
        [
            of("", "from/a@1"),
            of("from/a@1", "from/a@2"),
            of("", "from/a/b@1"),
            of("from/a/b@1", "from/a/b@2"),
            of("from/a@1", "from/a/clone@2"),
            of("", "from/a/kid@1"),
            of("from/a/kid@1", "from/a/kid@2"),
        ]
    );
    let news = sent(&shop, "-R -X from/a/b -i @1 from/a@2");
    assert_eq!(
        streams(&news),
        [
            of("from/a@1", "from/a@2"),
            of("from/a@1", "from/a/clone@2"),
            of("from/a/kid@1", "from/a/kid@2"),
        ]
    );
    let clone = head(&news).datasets.into_iter().find(|one| one.name == "from/a/clone").unwrap();
    assert_eq!(clone.parent_snapshot, Some(guid("from/a@1")));
    let told = shop.succeed("zfs send -nPR -X from/a/b,from/a/kid -i @1 from/a@2");
    let words: Vec<Vec<&str>> = told.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(words[0][..3], ["incremental", "1", "from/a@2"]);
    assert_eq!(words[1][..2], ["full", "from/a/clone@2"]);
    shop.succeed("zfs snapshot from/a@only");
    assert_eq!(
        shop.refuse("zfs send -nR from/a@only", 1),
        "cannot send from/a@only recursively: snapshot from/a/b@only does not exist\n\
         warning: cannot send 'from/a@only': backup failed\n"
    );
    let outcome = shop.run("zfs send -nsRP -X from/a/b from/a@only");
    assert_eq!(
        outcome.err,
        "WARNING: skipping dataset from/a/clone and its children: snapshot only does not exist\n\
         WARNING: skipping dataset from/a/kid and its children: snapshot only does not exist\n"
    );
    assert_eq!((outcome.status, outcome.out.lines().count()), (0, 4), "{outcome:?}");
    for (line, status, why) in [
        ("-R -i from/a/b@1 from/a@2", 2, "incremental source must be in same filesystem\n"),
        ("-s from/a@2", 2, "skip-missing flag can only be used in conjunction with replicate\n"),
        (
            "-X from/a/b from/a@2",
            1,
            "Cannot specify dataset exclusion (-X) on a non-recursive send.\n",
        ),
        ("-R -i @none from/a@2", 1, "cannot open 'from/a@none': dataset does not exist\n"),
    ] {
        let said = shop.refuse(&format!("zfs send -n {line}"), status);
        assert!(said.starts_with(why), "{line}: {said}");
    }
    exported_and_judged(&shop);
}

#[test]
fn trees_are_received_with_all_that_belongs_to_them() {
    let shop = grown();
    let whole = sent(&shop, "-Rh from/a@2");
    shop.succeed("zfs create tank/in");
    let said = receives(&shop, "-v -d tank/in", &whole);
    assert!(said.contains("found clone origin tank/in/a@1\n"), "{said}");
    let all = [
        "tank/in",
        "tank/in/a",
        "tank/in/a@1",
        "tank/in/a@2",
        "tank/in/a/b",
        "tank/in/a/b@1",
        "tank/in/a/b@2",
        "tank/in/a/clone tank/in/a@1",
        "tank/in/a/clone@2",
        "tank/in/a/kid",
        "tank/in/a/kid@1",
        "tank/in/a/kid@2",
    ];
    assert_eq!(names(&shop, "tank/in"), all);
    let root = |name: &str| shop.rzfs.path("root").join(name);
    let files = |name: &str| {
        let mut files = tree(&root(name));
        files.retain(|_, (_, _, contents)| !contents.is_empty());
        files
    };
    assert_eq!(files("tank/in/a"), files("from/a"));
    assert_eq!(
        properties(&shop, "compression,quota,com.x:y", "tank/in/a/kid"),
        [
            "compression gzip - inherited from tank/in/a",
            "quota 104857600 104857600 received",
            "com.x:y z z received"
        ]
    );
    assert_eq!(properties(&shop, "a:b", "tank/in/a@1"), ["a:b c c received"]);
    assert_eq!(properties(&shop, "readonly", "tank/in/a/clone"), ["readonly on on received"]);
    assert!(shop.succeed("zfs holds -H tank/in/a@1").starts_with("tank/in/a@1\ttag\t"));
    // A second time it is skipped; elsewhere it gets other names and no holds.
    let again = receives(&shop, "-v -d tank/in", &whole);
    assert!(again.lines().all(|line| line.ends_with(" already exists; ignoring")), "{again}");
    receives(&shop, "-u -h -e tank/in/a/b", &whole);
    assert_eq!(names(&shop, "tank/in/a/b/a").len(), 11);
    assert_eq!(shop.succeed("zfs holds -H tank/in/a/b/a@1"), "");
    assert_eq!(shop.succeed("zfs get -Ho value mounted tank/in/a/b/a"), "no\n");
    exported_and_judged(&shop);
}

#[test]
fn news_of_a_tree_rename_what_is_here_and_destroy_it_if_they_are_to() {
    let shop = grown();
    receives(&shop, "tank/r", &sent(&shop, "-R from/a@1"));
    receives(&shop, "tank/r", &sent(&shop, "-R -i @1 from/a@2"));
    // At the sender, and here.
    for line in [
        "zfs rename from/a/kid from/a/kod",
        "zfs destroy -r from/a/b",
        "zfs rename from/a@2 from/a@two",
        "zfs snapshot -r from/a@3",
        "zfs create from/a/new",
        "zfs snapshot -r from/a@4",
        "zfs create tank/r/local",
        "zfs snapshot -r tank/r@local",
    ] {
        shop.succeed(line);
    }
    let news = sent(&shop, "-R -I @1 from/a@4");
    let refused = receive(&shop, "-v tank/r", &news);
    let leave = "local fs tank/r/clone does not have fromsnap (1 in stream); must have been \
                 deleted locally; ignoring\n";
    assert_eq!(
        refused.out,
        format!(
            "attempting rename tank/r@2 to tank/r@two\nsuccess\n{leave}\
             attempting rename tank/r/kid to tank/r/kod\nsuccess\n\
             snap tank/r@two already exists; ignoring\n\
             receiving incremental stream of from/a@3 into tank/r@3\n{leave}"
        )
    );
    let modified = "cannot receive incremental stream: destination tank/r has been modified\n\
                    since most recent snapshot\n";
    assert_eq!((refused.status, refused.err.as_str()), (1, modified));
    assert!(names(&shop, "tank/r").contains(&"tank/r/local@local".to_owned()), "all is there");
    let would = receives(&shop, "-n -F tank/r", &news);
    assert!(would.lines().all(|line| !line.starts_with("attempting")), "{would}");
    let said = receives(&shop, "-v -F tank/r", &news);
    for line in [
        "attempting destroy tank/r/local@local\nsuccess\nattempting destroy tank/r/local\nsuccess\n",
        "attempting destroy tank/r/b@1\n",
        "attempting destroy tank/r/b\nsuccess\n",
        "attempting destroy tank/r@local\nsuccess\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(
        names(&shop, "tank/r"),
        [
            "tank/r",
            "tank/r@1",
            "tank/r@two",
            "tank/r@3",
            "tank/r@4",
            "tank/r/clone tank/r@1",
            "tank/r/clone@2",
            "tank/r/clone@3",
            "tank/r/clone@4",
            "tank/r/kod",
            "tank/r/kod@1",
            "tank/r/kod@2",
            "tank/r/kod@3",
            "tank/r/kod@4",
            "tank/r/new",
            "tank/r/new@4",
        ]
    );
    let kod = shop.rzfs.path("root").join("tank/r/kod/file");
    assert_eq!(fs::read(kod).unwrap(), "other words ".repeat(20_000).as_bytes());
    // Two names are swapped.
    for line in [
        "zfs rename from/a/kod from/a/x",
        "zfs rename from/a/new from/a/kod",
        "zfs rename from/a/x from/a/new",
        "zfs snapshot -r from/a@5",
    ] {
        shop.succeed(line);
    }
    receives(&shop, "-F tank/r", &sent(&shop, "-R -i @4 from/a@5"));
    let new = shop.rzfs.path("root").join("tank/r/new/file");
    assert_eq!(fs::read(new).unwrap(), "other words ".repeat(20_000).as_bytes());
    assert_eq!(
        shop.succeed("zfs list -Hro name -t snapshot tank/r/kod"),
        "tank/r/kod@4\ntank/r/kod@5\n"
    );
    exported_and_judged(&shop);
}

/// What cannot be destroyed or renamed stays, and the other changes are still made.
#[test]
fn a_change_of_a_tree_that_is_refused_keeps_none_of_the_others_from_being_made() {
    let shop = pools();
    for line in [
        "zfs create -p from/a/one",
        "zfs create from/a/two",
        "zfs create from/a/three",
        "zfs snapshot -r from/a@1",
    ] {
        shop.succeed(line);
    }
    receives(&shop, "tank/r", &sent(&shop, "-R from/a@1"));
    for line in [
        "zfs rename from/a/one from/a/uno",
        "zfs rename from/a/two from/a/zwei",
        "zfs rename from/a/three from/a/tres",
        "zfs snapshot -r from/a@2",
        "zfs rename -r from/a@1 from/a@old",
        "zfs create tank/r/local",
        "zfs snapshot tank/r/local@held",
        "zfs hold tag tank/r/local@held",
    ] {
        shop.succeed(line);
    }
    let used = File::create(shop.rzfs.path("root").join("tank/r/three/used")).unwrap();
    let news = receive(&shop, "-v -F tank/r", &sent(&shop, "-R -i @old from/a@2"));
    let said = format!("{}{}", news.out, news.err);
    assert_eq!(news.status, 1, "{said}");
    assert!(said.contains("attempting destroy tank/r/local@held\n"), "{said}");
    let listed = names(&shop, "tank/r");
    for name in ["tank/r@old", "tank/r/local@held", "tank/r/uno@old", "tank/r/zwei@2"] {
        assert!(listed.iter().any(|one| one == name), "{name}: {listed:?} {said}");
    }
    drop(used);
    exported_and_judged(&shop);
}

/// A promoted clone is no longer a clone, here as well; a new receiver gets it first.
#[test]
fn a_clone_that_was_promoted_there_is_promoted_here() {
    let shop = pools();
    let at = |name: &str| shop.rzfs.path("root").join(name);
    shop.succeed("zfs set atime=off tank");
    shop.succeed("zfs create -p from/t/a");
    fs::write(at("from/t/a/one"), "1").unwrap();
    shop.succeed("zfs snapshot from/t/a@1");
    shop.succeed("zfs clone from/t/a@1 from/t/b");
    shop.succeed("zfs snapshot -r from/t@2");
    receives(&shop, "tank/t", &sent(&shop, "-R from/t@2"));
    shop.succeed("zfs promote from/t/b");
    fs::write(at("from/t/b/two"), "2").unwrap();
    shop.succeed("zfs snapshot -r from/t@3");
    let said = receives(&shop, "-v tank/t", &sent(&shop, "-R -i @2 from/t@3"));
    assert!(said.starts_with("promoting tank/t/b\nsuccess\n"), "{said}");
    let said = receives(&shop, "-v tank/new", &sent(&shop, "-R from/t@3"));
    assert!(said.contains("found clone origin tank/new/b@1\n"), "{said}");
    for name in ["tank/t", "tank/new"] {
        let all = [
            name.to_owned(),
            format!("{name}@2"),
            format!("{name}@3"),
            format!("{name}/a {name}/b@1"),
            format!("{name}/a@2"),
            format!("{name}/a@3"),
            format!("{name}/b"),
            format!("{name}/b@1"),
            format!("{name}/b@2"),
            format!("{name}/b@3"),
        ];
        assert_eq!(names(&shop, name), all);
        assert_eq!(fs::read(at(name).join("b/two")).unwrap(), b"2");
        assert_eq!(fs::read(at(name).join("a/one")).unwrap(), b"1");
    }
    // A dataset cannot be received before itself.
    shop.succeed("zfs clone from/t/b@3 from/t/b/below");
    shop.succeed("zfs promote from/t/b/below");
    shop.succeed("zfs snapshot -r from/t/b@4");
    assert_eq!(
        shop.refuse("zfs send -nR from/t/b@4", 1),
        "warning: cannot send 'from/t/b@4': a file system is a clone of what is below it\n"
    );
    exported_and_judged(&shop);
}

#[test]
fn what_a_stream_says_of_properties_gives_way_to_what_is_set_here() {
    let shop = pools();
    shop.succeed("zfs set compression=gzip from/a");
    shop.succeed("zfs set a:b=there from/a");
    let send = |number: u32| {
        shop.succeed(&format!("zfs snapshot from/a@{number}"));
        let source = format!("-i @{} ", number - 1);
        let source = if number == 1 { "" } else { source.as_str() };
        sent(&shop, &format!("-p {source}from/a@{number}"))
    };
    receives(&shop, "-u -o exec=off tank/c", &send(1));
    let of_interest = "compression,exec,a:b";
    assert_eq!(
        properties(&shop, of_interest, "tank/c"),
        ["compression gzip gzip received", "exec off - local", "a:b there there received"]
    );
    shop.succeed("zfs set compression=lz4 tank/c");
    assert_eq!(properties(&shop, "compression", "tank/c"), ["compression lz4 gzip local"]);
    shop.succeed("zfs inherit compression tank/c");
    assert_eq!(properties(&shop, "compression", "tank/c"), ["compression on gzip default"]);
    shop.succeed("zfs inherit -S compression tank/c");
    assert_eq!(properties(&shop, "compression", "tank/c"), ["compression gzip gzip received"]);
    // A received value missing in the stream is removed; a local one stays.
    shop.succeed("zfs set compression=lz4 tank/c");
    shop.succeed("zfs inherit a:b from/a");
    shop.succeed("zfs set compression=zle from/a");
    receives(&shop, "-u -x exec tank/c", &send(2));
    assert_eq!(
        properties(&shop, of_interest, "tank/c"),
        ["compression lz4 zle local", "exec off - local", "a:b - - -"]
    );
    shop.succeed("zfs inherit -S compression tank/c");
    receives(&shop, "-u -x compression tank/c", &send(3));
    assert_eq!(properties(&shop, "compression", "tank/c"), ["compression on zle default"]);
    // A stream without properties leaves them alone.
    shop.succeed("zfs snapshot from/a@4");
    receives(&shop, "-u tank/c", &sent(&shop, "-i @3 from/a@4"));
    assert_eq!(properties(&shop, "compression", "tank/c"), ["compression on zle default"]);
    // An incomplete receive leaves them unchanged.
    shop.succeed("zfs set quota=50M from/a");
    let whole = send(5);
    let mut bytes = Vec::new();
    whole.try_clone().unwrap().read_to_end(&mut bytes).unwrap();
    let cut = file_of(&bytes[..bytes.len() - 700]);
    assert_eq!(receive(&shop, "-u -o atime=off tank/c", &cut).status, 1);
    assert_eq!(
        properties(&shop, "quota,atime,compression", "tank/c"),
        ["quota 0 - default", "atime on - default", "compression on zle default"]
    );
    receives(&shop, "-u tank/c", &whole);
    assert_eq!(properties(&shop, "quota", "tank/c"), ["quota 52428800 52428800 received"]);
    // The first received properties replace all values set before.
    receives(&shop, "-u tank/d", &sent(&shop, "from/a@4"));
    shop.succeed("zfs set compression=gzip tank/d");
    shop.succeed("zfs set my:own=word tank/d");
    receives(&shop, "-u tank/d", &whole);
    assert_eq!(
        properties(&shop, "compression,my:own,quota", "tank/d"),
        ["compression zle zle received", "my:own - - -", "quota 52428800 52428800 received"]
    );
    // They are sent as they were received, whichever values are in force.
    shop.succeed("zfs set compression=lz4 tank/d");
    let number = |name: &str, number| (name.to_owned(), SentValue::Number(number));
    let mut backup = head(&sent(&shop, "-b tank/d@5")).datasets.remove(0).properties.unwrap();
    backup.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(backup, [number("compression", 14), number("quota", 50 << 20)]);
    exported_and_judged(&shop);
}

/// Also below a mounted file system: the mount follows.
#[test]
fn mounts_follow_properties_that_are_received() {
    let shop = pools();
    shop.succeed("zfs snapshot from/a@1");
    receives(&shop, "tank/c", &sent(&shop, "-p from/a@1"));
    shop.succeed("zfs set mountpoint=/elsewhere from/a");
    shop.succeed("zfs snapshot from/a@2");
    let news = sent(&shop, "-p -i @1 from/a@2");
    shop.succeed("zfs set mountpoint=/aside from/a");
    receives(&shop, "tank/c", &news);
    let root = shop.rzfs.path("root");
    let mounted = shop.succeed("zfs get -Hpo value mountpoint tank/c");
    assert_eq!(mounted.trim(), root.join("elsewhere").to_str().unwrap());
    assert_eq!(shop.succeed("zfs get -Hpo value mounted tank/c"), "yes\n");
    exported_and_judged(&shop);
}

/// Properties that a dataset cannot have are reported, and everything else succeeds.
#[test]
fn properties_that_a_target_cannot_have_are_told() {
    let shop = pools();
    shop.succeed("zfs create -o reservation=100M -o a:b=c from/large");
    shop.succeed("zfs snapshot from/large@1");
    shop.succeed("zfs create -o quota=20M tank/small");
    let outcome = receive(&shop, "tank/small/c", &sent(&shop, "-p from/large@1"));
    assert_eq!((outcome.status, outcome.out.as_str()), (0, ""), "{outcome:?}");
    assert_eq!(
        outcome.err,
        "cannot receive reservation property on tank/small/c: size is greater than available \
         space\n"
    );
    assert_eq!(
        properties(&shop, "reservation,a:b", "tank/small/c"),
        ["reservation 0 - default", "a:b c c received"]
    );
    exported_and_judged(&shop);
}

#[test]
fn names_of_properties_that_nobody_can_have_are_told() {
    let shop = pools();
    shop.succeed("zfs set a:b=c from/a");
    shop.succeed("zfs snapshot from/a@1");
    receives(&shop, "tank/a", &sent(&shop, "-p from/a@1"));
    shop.succeed("zfs snapshot from/a@2");
    let long = format!("a:{}", "x".repeat(1100));
    let outcome = receive(&shop, &format!("-x {long} tank/a"), &sent(&shop, "-p -i @1 from/a@2"));
    assert!(outcome.err.contains("its name is too long"), "{outcome:?}");
    // The pool is still usable.
    fs::write(shop.root().join("a/file"), "contents").unwrap();
    shop.succeed("zpool sync tank");
    exported_and_judged(&shop);
}

/// Properties are also restored if a mount is in use.
#[test]
fn what_is_set_here_stays_if_nothing_is_received() {
    let shop = pools();
    shop.succeed("zfs set a:b=theirs from/a");
    shop.succeed("zfs snapshot from/a@1");
    receives(&shop, "tank/a", &sent(&shop, "from/a@1"));
    let mountpoint = shop.root().join("elsewhere");
    let below = mountpoint.strip_prefix(shop.rzfs.path("root")).unwrap().display();
    shop.succeed(&format!("zfs set mountpoint=/{below} quota=50M a:b=ours tank/a"));
    let before = properties(&shop, "mountpoint,quota,a:b", "tank/a");
    let used = File::create(mountpoint.join("used")).unwrap();
    shop.succeed("zfs snapshot from/a@2");
    // The stream is not an increment for this file system.
    let refused = receive(&shop, "tank/a", &sent(&shop, "-p -i @1 from/a@2"));
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(properties(&shop, "mountpoint,quota,a:b", "tank/a"), before);
    drop(used);
    exported_and_judged(&shop);
}

/// Properties are restored on the dataset that had them, not on one that has its name now; values
/// set by others since then stay.
#[test]
fn what_others_set_while_something_is_received_stays_if_it_breaks_off() {
    let shop = pools();
    shop.succeed("zfs set a:a=theirs a:b=theirs from/a");
    shop.succeed("zfs snapshot from/a@1");
    receives(&shop, "tank/a", &sent(&shop, "from/a@1"));
    shop.succeed("zfs set compression=gzip a:a=ours a:b=ours quota=50M tank/a");
    let large = "words and words ".repeat(200_000);
    fs::write(shop.rzfs.path("root").join("from/a/large"), large).unwrap();
    shop.succeed("zfs snapshot from/a@2");
    let mut stream = sent(&shop, "-p -i @1 from/a@2");
    let mut half = vec![0; 1 << 20];
    stream.read_exact(&mut half).unwrap();
    let mut receive = command(&shop, "zfs receive -o a:o=wanted tank/a");
    receive.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut receive = receive.spawn().unwrap();
    receive.stdin.as_mut().unwrap().write_all(&half).unwrap();
    let get = |names: &str, of: &str| {
        let line = format!("zfs get -Hpo property,value,source {names} {of}");
        shop.succeed(&line).lines().map(|line| line.replace('\t', " ")).collect::<Vec<_>>()
    };
    while get("a:o", "tank/a") != ["a:o wanted local"] {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(get("a:a", "tank/a"), ["a:a theirs received"]);
    shop.succeed("zfs set a:b=later a:n=new quota=70M tank/a");
    shop.succeed("zfs rename tank/a tank/b");
    shop.succeed("zfs create -o a:a=another tank/a");
    drop(receive.stdin.take());
    let output = receive.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let all = "compression,a:a,a:b,a:n,a:o,quota";
    assert_eq!(
        get(all, "tank/a"),
        [
            "compression on default",
            "a:a another local",
            "a:b - -",
            "a:n - -",
            "a:o - -",
            "quota 0 default",
        ]
    );
    assert_eq!(
        get(all, "tank/b"),
        [
            "compression gzip local",
            "a:a ours local",
            "a:b later local",
            "a:n new local",
            "a:o - -",
            "quota 73400320 local",
        ]
    );
    exported_and_judged(&shop);
}

/// Properties of a snapshot are applied to the snapshot that was received, whatever its file system
/// is called by then.
#[test]
fn a_target_that_is_renamed_while_it_receives_gets_all_of_it() {
    let shop = pools();
    let large = "words and words ".repeat(200_000);
    fs::write(shop.rzfs.path("root").join("from/a/large"), large).unwrap();
    shop.succeed("zfs set refquota=80M from/a");
    shop.succeed("zfs snapshot -o a:b=theirs from/a@1");
    shop.succeed("zfs hold kept from/a@1");
    let mut stream = sent(&shop, "-h -p from/a@1");
    let mut whole = Vec::new();
    stream.read_to_end(&mut whole).unwrap();
    let (half, rest) = whole.split_at(whole.len() / 2);
    let mut receive = command(&shop, "zfs receive -v tank/a");
    receive.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut receive = receive.spawn().unwrap();
    receive.stdin.as_mut().unwrap().write_all(half).unwrap();
    receive.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    while shop.run("zfs rename tank/a tank/b").status != 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    shop.succeed("zfs create tank/a");
    shop.succeed("zfs snapshot tank/a@1");
    receive.stdin.take().unwrap().write_all(rest).unwrap();
    let output = receive.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let values = |of: &str| shop.succeed(&format!("zfs get -Hpo value a:b,userrefs {of}"));
    assert_eq!([values("tank/a@1"), values("tank/b@1")], ["-\n0\n", "theirs\n1\n"]);
    let quotas = shop.succeed("zfs get -Hpo value refquota tank/a tank/b");
    assert_eq!(quotas, "0\n83886080\n");
    shop.succeed("zfs release kept tank/b@1");
    exported_and_judged(&shop);
}

/// A received OpenZFS tree is sent as the same package that it came in.
#[test]
fn a_golden_tree_is_sent_again_as_it_came() {
    let golden = |name: &str| GoldenStream::all().into_iter().find(|one| one.name() == name);
    let (Some(whole), Some(news)) = (golden("R"), golden("Ri")) else { return };
    let shop = Workshop::new();
    shop.succeed("zpool create --size 256M -R ROOT g30 B");
    shop.succeed("zpool create --size 256M -R ROOT tank A");
    receives(&shop, "-u g30/a", &file_of(&whole.bytes().unwrap()));
    for (golden, line) in [(&whole, "-R g30/a@3"), (&news, "-R -i @1 g30/a@3")] {
        let (ours, theirs) = (sent(&shop, line), file_of(&golden.bytes().unwrap()));
        let (mut said, mut expected) = (head(&ours), head(&theirs));
        for (ours, theirs) in said.datasets.iter_mut().zip(&mut expected.datasets) {
            // The guid of a head is local, and received values are in another order.
            ours.guid = theirs.guid;
            for properties in [&mut ours.properties, &mut theirs.properties] {
                properties.as_mut().unwrap().sort_by(|a, b| a.0.cmp(&b.0));
            }
        }
        assert_eq!(said, expected, "{line}");
        // Blocks differ from those of the first sender, whose blocks were larger.
        assert_eq!(streams(&ours), streams(&theirs), "{line}");
        receives(&shop, "tank/copy", &ours);
    }
    shop.succeed("zpool export g30");
    shop.succeed("zpool export tank");
    shop.judge();
}

/// A copy beside its original.
#[test]
fn trees_whose_members_have_snapshots_in_common_are_received() {
    let shop = pools();
    shop.succeed("zfs create from/t");
    shop.succeed("zfs create from/t/a");
    fs::write(shop.rzfs.path("root").join("from/t/a/file"), "in both").unwrap();
    shop.succeed("zfs snapshot from/t/a@0");
    receives(&shop, "from/t/b", &sent(&shop, "from/t/a@0"));
    shop.succeed("zfs snapshot -r from/t@1");
    receives(&shop, "tank/t", &sent(&shop, "-R from/t@1"));
    fs::write(shop.rzfs.path("root").join("from/t/a/more"), "in one").unwrap();
    shop.succeed("zfs rename from/t/b from/t/c");
    shop.succeed("zfs snapshot -r from/t@2");
    receives(&shop, "-F tank/t", &sent(&shop, "-R -I @1 from/t@2"));
    for one in ["a", "c"] {
        let (here, there) = (format!("tank/t/{one}"), format!("from/t/{one}"));
        assert_eq!(
            tree(&shop.rzfs.path("root").join(here)),
            tree(&shop.rzfs.path("root").join(there)),
            "{one}"
        );
    }
    assert_eq!(
        names(&shop, "tank/t").len(),
        names(&shop, "from/t").len(),
        "{:?}",
        names(&shop, "tank/t")
    );
    exported_and_judged(&shop);
}

/// Nor is one of them mistaken for another that is not here yet.
#[test]
fn what_is_new_in_a_tree_is_not_received_into_another_member() {
    let shop = pools();
    let at = |name: &str| shop.rzfs.path("root").join(name);
    shop.succeed("zfs create from/t");
    shop.succeed("zfs create from/t/z");
    fs::write(at("from/t/z/file"), "of z").unwrap();
    shop.succeed("zfs snapshot -r from/t@0");
    receives(&shop, "tank/t", &sent(&shop, "-R from/t@0"));
    receives(&shop, "from/t/b", &sent(&shop, "from/t/z@0"));
    fs::write(at("from/t/b/file"), "of b").unwrap();
    fs::write(at("from/t/z/file"), "of z again").unwrap();
    shop.succeed("zfs snapshot -r from/t@1");
    let news = receive(&shop, "-F tank/t", &sent(&shop, "-R -I @0 from/t@1"));
    let of_z = fs::read_to_string(at("tank/t/z/file")).unwrap();
    assert_ne!(of_z, "of b", "{news:?}");
    exported_and_judged(&shop);
}

/// A dataset moves below another one that takes its name.
#[test]
fn news_of_a_tree_turn_it_inside_out() {
    let shop = pools();
    for name in ["from/t", "from/t/a", "from/t/b"] {
        shop.succeed(&format!("zfs create {name}"));
    }
    fs::write(shop.rzfs.path("root").join("from/t/a/file"), "of a").unwrap();
    fs::write(shop.rzfs.path("root").join("from/t/b/file"), "of b").unwrap();
    shop.succeed("zfs snapshot -r from/t@1");
    receives(&shop, "tank/t", &sent(&shop, "-R from/t@1"));
    shop.succeed("zfs rename from/t/a from/t/x");
    shop.succeed("zfs rename from/t/b from/t/a");
    shop.succeed("zfs rename from/t/x from/t/a/x");
    shop.succeed("zfs snapshot -r from/t@2");
    receives(&shop, "-F tank/t", &sent(&shop, "-R -I @1 from/t@2"));
    let of = |name: &str| fs::read_to_string(shop.rzfs.path("root").join(name)).unwrap();
    assert_eq!((of("tank/t/a/file"), of("tank/t/a/x/file")), ("of b".into(), "of a".into()));
    exported_and_judged(&shop);
}

/// Where each is mounted is found under its own name, also with `-u`.
#[test]
fn mounts_follow_names_that_are_exchanged() {
    for options in ["-F", "-F -u"] {
        let shop = pools();
        let at = |name: &str| shop.rzfs.path("root").join(name);
        for name in ["a", "b"] {
            shop.succeed(&format!("zfs create -p from/t/{name}"));
            fs::write(at(&format!("from/t/{name}/file")), name).unwrap();
        }
        shop.succeed("zfs snapshot -r from/t@1");
        receives(&shop, "tank/t", &sent(&shop, "-R from/t@1"));
        for (from, to) in [("a", "x"), ("b", "a"), ("x", "b")] {
            shop.succeed(&format!("zfs rename from/t/{from} from/t/{to}"));
        }
        shop.succeed("zfs snapshot -r from/t@2");
        receives(&shop, &format!("{options} tank/t"), &sent(&shop, "-R -I @1 from/t@2"));
        let of = |name: &str| fs::read_to_string(at(&format!("tank/t/{name}/file"))).unwrap();
        assert_eq!((of("a"), of("b")), ("b".into(), "a".into()), "{options}");
        exported_and_judged(&shop);
    }
}

/// Malicious streams with correct checksums.
#[test]
fn packages_of_somebody_hostile_are_refused_and_change_nothing() {
    let shop = pools();
    shop.succeed("zfs create tank/in");
    let dataset = |name: &str, snapshot: &str| PackagedDataset {
        guid: Guid(1),
        name: name.to_owned(),
        parent_snapshot: None,
        origin: None,
        is_encryption_root: false,
        properties: None,
        snapshots: vec![PackagedSnapshot {
            name: snapshot.to_owned(),
            guid: Guid(7),
            properties: None,
            holds: None,
        }],
    };
    let package = |name: &str, datasets: Vec<PackagedDataset>, inner: &[&str]| {
        let (from, to, extent) = (None, "s".to_owned(), PackageExtent::Tree);
        let payload =
            Package { from, to, extent, blocks: PackagedBlocks::Plain, datasets }.encode().unwrap();
        let begin = |kind, name: &str, payload_length| Begin {
            magic: MAGIC,
            version: VersionInfo::new(kind, StreamFeatures::NONE),
            objset_type: 2,
            to_guid: Guid(7),
            to_name: StreamName::new(name.as_bytes()).unwrap(),
            payload_length,
            ..Begin::default()
        };
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::new(&mut bytes, ByteOrder::NATIVE);
        let outer = Begin {
            to_guid: Guid(0),
            objset_type: 0,
            ..begin(StreamKind::Package, name, payload.len() as u32)
        };
        writer.write(&Record::Begin(outer), &payload).unwrap();
        writer.end(Guid(0)).unwrap();
        for name in inner {
            let begin = begin(StreamKind::Substream, name, 0);
            writer.write(&Record::Begin(begin), &[]).unwrap();
            writer.end(Guid(7)).unwrap();
        }
        writer.end(Guid(0)).unwrap();
        file_of(&bytes)
    };
    let before = names(&shop, "tank");
    for (what, stream) in [
        ("a name that climbs", package("p/a@s", vec![dataset("p/a/..", "s")], &[])),
        ("a dataset elsewhere", package("p/a@s", vec![dataset("p/other", "s")], &[])),
        ("a snapshot's name", package("p/a@s", vec![dataset("p/a", "../s")], &[])),
        ("no snapshot", package("p/a", vec![dataset("p/a", "s")], &[])),
        ("a stream elsewhere", package("p/a@s", vec![dataset("p/a", "s")], &["q/etc@s"])),
        ("a stream beside", package("p/a@s", vec![dataset("p/a", "s")], &["p/ab@s"])),
        ("a stream that climbs", package("p/a@s", vec![dataset("p/a", "s")], &["p/a/../b@s"])),
        ("a stream of the engine's", package("p/a@s", vec![], &["p/a/%recv@s"])),
        ("escapes", package("p/a@s", vec![], &["p/a/\u{1b}[2J@s"])),
    ] {
        for target in ["tank/in/x", "-F tank/in", "-d tank/in", "-F -e tank/in"] {
            let Outcome { status, out, err } = receive(&shop, &format!("-v {target}"), &stream);
            assert_eq!((status, out.as_str()), (1, ""), "{what}: {target}: {err}");
            let is_plain = !err.contains('\u{1b}') && err.lines().count() < 4;
            assert!(err.starts_with("cannot receive: ") && is_plain, "{what}: {err}");
            assert_eq!(names(&shop, "tank"), before, "{what}: {target}");
        }
    }
    exported_and_judged(&shop);
}
