//! How commands end that cannot do what they are told, and what the guide says about that.

use crate::workshop::Workshop;
use std::collections::BTreeSet;
use std::fs;

/// The status of a few commands of OpenZFS.
const UNUSUAL: i32 = 255;

/// What cannot be done, once for each command.
const FAILING: &[&str] = &[
    "zfs bookmark tank@nosuch tank#mark",
    "zfs change-key -i tank",
    "zfs clone tank@nosuch tank/clone",
    "zfs create nosuch/new",
    "zfs destroy tank/nosuch",
    "zfs diff tank@nosuch",
    "zfs get all tank/nosuch",
    "zfs groupspace -t bogus tank",
    "zfs hold tag tank@nosuch",
    "zfs holds tank@nosuch",
    "zfs inherit compression tank/nosuch",
    "zfs list tank/nosuch",
    "zfs load-key tank",
    "zfs mount tank/nosuch",
    "zfs project nosuch",
    "zfs projectspace -o bogus tank",
    "zfs promote tank",
    "zfs receive tank/new",
    "zfs release tag tank@nosuch",
    "zfs rename tank/nosuch tank/new",
    "zfs rollback tank@nosuch",
    "zfs send tank@nosuch",
    "zfs set nothing=1 tank",
    "zfs snapshot tank/nosuch@new",
    "zfs unload-key tank",
    "zfs unmount tank/nosuch",
    "zfs upgrade tank/nosuch",
    "zfs userspace -o bogus tank",
    "zfs wait tank/nosuch",
    "zpool add nosuch A",
    "zpool clear nosuch",
    "zpool create tank A",
    "zpool ddtprune -p 10 nosuch",
    "zpool destroy nosuch",
    "zpool export nosuch",
    "zpool get all nosuch",
    "zpool history nosuch",
    "zpool import -d IMAGES nosuch",
    "zpool initialize tank nosuch",
    "zpool labelclear A",
    "zpool list nosuch",
    "zpool prefetch -t ddt nosuch",
    "zpool reguid nosuch",
    "zpool set nothing=1 tank",
    "zpool status nosuch",
    "zpool sync nosuch",
    "zpool trim tank nosuch",
    "zpool upgrade nosuch",
    "zpool wait nosuch",
];

/// The commands that the guide says it of.
fn told() -> BTreeSet<String> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/user-guide.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, told) = guide.split_once(&format!("tools exit with {UNUSUAL}, so do these: ")).unwrap();
    let (told, _) = told.split_once("\n\n").unwrap();
    told.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn statuses_are_those_of_the_guide() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let mut found = BTreeSet::new();
    for line in FAILING {
        let outcome = shop.run(line);
        assert!([1, 2, UNUSUAL].contains(&outcome.status), "{line}: {outcome:?}");
        if outcome.status == UNUSUAL {
            found.extend(
                line.split(' ').collect::<Vec<_>>().chunks(2).next().map(|two| two.join(" ")),
            );
        }
    }
    let token = shop.run("zfs send -t 1-bogus");
    assert_eq!(token.status, UNUSUAL, "{token:?}");
    found.insert("zfs send -t".to_owned());
    assert_eq!(found, told());
    shop.succeed("zpool export tank");
}

/// Whatever it is that cannot be done; but what is wrong with the line itself is another matter.
#[test]
fn a_resumed_send_has_one_status_for_all_that_goes_wrong() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    fs::write(shop.root().join("file"), vec![1; 1 << 20]).unwrap();
    shop.succeed("zpool create --size 96M -R ROOT -O compression=off other B");
    shop.succeed("zfs snapshot tank@one");
    let stream = crate::receiving::sent(&shop, "tank@one");
    let part = {
        let mut part = vec![0; 300_000];
        std::os::unix::fs::FileExt::read_exact_at(&stream, &mut part, 0).unwrap();
        crate::receiving::file_of(&part)
    };
    assert_eq!(crate::receiving::receive(&shop, "-s other/new", &part).status, 1);
    let token = shop.succeed("zfs get -Ho value receive_resume_token other/new");
    let token = token.trim();
    let resumed = crate::receiving::sent(&shop, &format!("-t {token}"));
    assert!(resumed.metadata().unwrap().len() > 0);
    shop.succeed("zfs destroy tank@one");
    let gone = shop.run(&format!("zfs send -t {token}"));
    assert_eq!(gone.status, UNUSUAL, "{gone:?}");
    shop.succeed("zpool export tank");
    let gone = shop.run(&format!("zfs send -t {token}"));
    assert_eq!(gone.status, UNUSUAL, "{gone:?}");
    assert_eq!(shop.run(&format!("zfs send -t {token} tank@one")).status, 2);
    assert_eq!(shop.run("zfs send -t").status, 2);
    shop.succeed("zpool export other");
}
