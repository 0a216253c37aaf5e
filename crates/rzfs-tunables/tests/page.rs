//! `docs/tunables.md` says what the table says.

use rzfs_tunables::TABLE;
use std::fmt::Write;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tunables.md");

const HEAD: &str = "\
# Tunables

<!-- Made of the table in crates/rzfs-tunables/src/table.rs by
     RZFS_WRITE_DOCS=1 cargo test -p rzfs-tunables --test page -->

What OpenZFS has as module parameters is set for a pool when it is mounted, imported or made, and holds
until it is exported:

```text
rzfs mount -o zfs_txg_timeout=1,zfs_dirty_data_max=256M tank.img /mnt
rzfs zpool import -o zfs_txg_timeout=1 tank
RZFS_TUNABLES=zfs_txg_timeout=1 rzfs zpool import tank
```

The variable holds for all pools that these commands open; options come after it. `rzfs tunables` lists
all tunables, with the values that the variable gives; `rzfs tunables -j` as JSON. Names are OpenZFS's;
those that begin with `rzfs_` have no counterpart there. Nobody should need any of them for ordinary
use.

Numbers of bytes may have a suffix: `K`, `M`, `G`, `T`, `P`, `E`. Flags are 0 or 1.
";

#[test]
fn the_page_says_what_the_table_says() {
    let page = page();
    if env::var_os("RZFS_WRITE_DOCS").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    let found = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        found == page,
        "docs/tunables.md is not of this table: \
         RZFS_WRITE_DOCS=1 cargo test -p rzfs-tunables --test page"
    );
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut section = "";
    for tunable in TABLE {
        if tunable.section != section {
            section = tunable.section;
            write!(page, "\n## {section}\n\n").unwrap();
            page += "| name | default | range | what it is |\n| --- | --- | --- | --- |\n";
        }
        let (default, allowed) = (tunable.shown(tunable.default), tunable.allowed());
        writeln!(page, "| `{}` | {default} | {allowed} | {} |", tunable.name, tunable.about())
            .unwrap();
    }
    page
}
