//! Properties of pools: set, imported with, and told again.

use crate::workshop::Workshop;

fn values(shop: &Workshop, properties: &str) -> String {
    shop.succeed(&format!("zpool get -Ho value,source {properties} tank"))
}

#[test]
fn properties_of_users_are_set_and_read() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    shop.succeed("zpool set our:note=text tank");
    assert_eq!(values(&shop, "our:note"), "text\tlocal\n");
    assert_eq!(values(&shop, "our:other"), "-\t-\n");
    let all = shop.succeed("zpool get -Ho property,value all tank");
    assert!(all.ends_with("\nour:note\ttext\n"), "{all}");
    assert_eq!(shop.succeed("zpool list -Ho name,our:note"), "tank\ttext\n");
    let json = shop.succeed("zpool get -j our:note tank");
    assert!(json.contains("\"our:note\"") && json.contains("\"text\""), "{json}");
    shop.succeed("zpool set our:note= tank");
    assert!(!shop.succeed("zpool get -Ho property all tank").contains("our:note"));
    shop.succeed("zpool export tank");
}
