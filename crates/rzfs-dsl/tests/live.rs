//! Pools made and changed by this crate, checked by it and by OpenZFS's own tools.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::import::ImportError;
use rzfs_dsl::live::{Event, LiveOptions};
use rzfs_proof::ImagePool;
use rzfs_vdev::Health;

fn event(text: &str) -> Event {
    Event::Internal { operation: "note", text: text.to_owned(), dataset: None }
}

/// Images for a pool with all features.
fn images(shape: &str) -> ImagePool {
    ImagePool::new(shape).with_newest_features()
}

/// Checks a complete pool.
fn check(images: &ImagePool) {
    assert_eq!(images.import(&OpenOptions::new()).health(), Health::HEALTHY);
    images.judge();
}

#[test]
fn a_new_pool_is_one_for_everybody() {
    for shape in ["A", "mirror A B C", "raidz1 A B C", "A B C"] {
        let images = images(shape);
        let pool = images.create_pool();
        pool.log(event("first")).unwrap();
        pool.export().unwrap();
        check(&images);
    }
}

#[test]
fn a_pool_goes_on_where_it_was_left() {
    let images = images("A");
    let pool = images.create_pool();
    let created = pool.uberblock();
    pool.export().unwrap();
    for round in 0..3 {
        let pool = images.open_pool();
        assert!(pool.uberblock().txg > created.txg);
        pool.log(event(&format!("round {round}"))).unwrap();
        // Exported once, abandoned once: a pool without an export must be as good.
        if round == 1 {
            drop(pool);
        } else {
            pool.export().unwrap();
        }
        check(&images);
    }
    let history = images.import(&OpenOptions::new()).history().unwrap().unwrap();
    let texts: Vec<String> = history.map(|record| format!("{record:?}")).collect();
    for round in 0..3 {
        let wanted = format!("round {round}");
        assert!(texts.iter().any(|text| text.contains(&wanted)), "{texts:#?}");
    }
}

#[test]
fn a_pool_with_multihost_shows_that_it_is_in_use() {
    let images = images("mirror A B C");
    let pool = images.create_pool();
    assert_eq!(pool.uberblock().multihost.unwrap().delay, 0);
    let refused = pool.set_pool_property("multihost", 1.into());
    assert!(refused.is_err(), "this host has no id");
    pool.export().unwrap();
    let pool = images.open_pool_as(7, &LiveOptions::default());
    pool.set_pool_property("multihost", 1.into()).unwrap();
    let committed = pool.uberblock();
    assert!(committed.multihost.unwrap().delay > 0);
    let watched = images.import_as(8, &OpenOptions::new()).unwrap_err().error;
    assert!(matches!(*watched, ImportError::ActiveElsewhere { .. }), "{watched}");
    assert_eq!(pool.uberblock(), committed, "no txg was needed for that");
    // A txg without changes is reported, too.
    pool.sync().unwrap();
    assert!(pool.uberblock().txg > committed.txg);
    pool.set_pool_property("multihost", 0.into()).unwrap();
    assert_eq!(pool.uberblock().multihost.unwrap().delay, 0);
    pool.export().unwrap();
    check(&images);
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let images = images("A");
    let pool = images.create_pool();
    pool.sync().unwrap();
    let before = pool.uberblock();
    for _ in 0..5 {
        pool.sync().unwrap();
    }
    assert_eq!(pool.uberblock(), before);
    assert!(pool.synced_txg() > before.txg);
}
