//! `zpool ddtprune`, `prefetch` and `dedup_table_quota`.

use crate::workshop::Workshop;
use std::fs;

#[test]
fn dedup_tables_are_pruned_and_read_ahead_by_commands() {
    let shop = Workshop::new();
    let create = "zpool create --size 128M -R ROOT -O dedup=sha256 -O recordsize=4K";
    shop.succeed(&format!("{create} -O compression=off tank A"));
    let quota = "zpool get -Ho value,source dedup_table_quota tank";
    assert_eq!(shop.succeed(quota), "auto\tdefault\n");
    shop.succeed("zpool set dedup_table_quota=10M tank");
    assert_eq!(shop.succeed(quota), "10M\tlocal\n");
    shop.succeed("zpool set dedup_table_quota=auto tank");
    assert!(shop.succeed("zpool history -i tank").contains("set dedup_table_quota=-1\n"));
    let blocks: Vec<u8> = (0..64_u32 << 10).flat_map(u32::to_le_bytes).collect();
    fs::write(shop.root().join("file"), &blocks).unwrap();
    // From the logs to the tables.
    (0..40).for_each(|_| drop(shop.succeed("zpool sync")));
    shop.succeed("zpool prefetch -t ddt tank");
    let entries = || {
        let status = shop.succeed("zpool status -D tank");
        let line = status.lines().find(|line| line.starts_with(" dedup: DDT entries"));
        let count = line.and_then(|line| line.split([' ', ',']).nth(4)?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{status}"))
    };
    assert_eq!(entries(), 64);
    shop.succeed("zpool ddtprune -d 1 tank");
    assert_eq!(entries(), 64);
    shop.succeed("zpool ddtprune -p 25 tank");
    assert_eq!(entries(), 48);
    assert!(shop.succeed("zpool history tank").contains("zpool ddtprune -p 25 tank\n"));
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    for (line, status, text) in [
        ("zpool ddtprune", 2, "missing amount option (-d|-p <value>)"),
        ("zpool ddtprune -p 0 tank", 2, "invalid percentage value"),
        ("zpool ddtprune -p 101 tank", 2, "invalid percentage value"),
        ("zpool ddtprune -d 0 tank", 2, "invalid days value"),
        ("zpool ddtprune -d 1 -p 10 tank", 2, "-p cannot be combined with -d option"),
        ("zpool ddtprune -p 10 tank other", 2, "too many arguments"),
        ("zpool ddtprune -p 10 nopool", 255, "cannot open 'nopool': no such pool"),
        ("zpool prefetch -t x tank", 2, "unsupported prefetch type"),
        ("zpool prefetch -t ddt", 2, "missing pool name argument"),
        ("zpool prefetch -t ddt nopool", 1, "cannot open 'nopool': no such pool"),
    ] {
        assert_eq!(first(shop.refuse(line, status)), text, "{line}");
    }
    assert_eq!(fs::read(shop.root().join("file")).unwrap(), blocks);
    shop.succeed("zpool export tank");
    shop.judge();
}
