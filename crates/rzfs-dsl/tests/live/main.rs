//! Pools that this crate makes and changes, as it and OpenZFS's own tools find them afterwards.

mod world;

use rzfs_dsl::import::ImportError;
use rzfs_dsl::live::Event;
use world::{Shape, World};

fn event(text: &str) -> Event {
    Event::Internal { operation: "note", text: text.to_owned(), dataset: None }
}

#[test]
fn a_new_pool_is_one_for_everybody() {
    for shape in [Shape::Single, Shape::Mirror, Shape::Raidz1, Shape::Stripe] {
        let world = World::new(shape);
        let pool = world.create();
        pool.log(event("first")).unwrap();
        pool.export().unwrap();
        world.check();
    }
}

#[test]
fn a_pool_goes_on_where_it_was_left() {
    let world = World::new(Shape::Single);
    let pool = world.create();
    let created = pool.uberblock();
    pool.export().unwrap();
    for round in 0..3 {
        let pool = world.open();
        assert!(pool.uberblock().txg > created.txg);
        pool.log(event(&format!("round {round}"))).unwrap();
        // Exported once, left alone once: a pool that nobody exported is as good.
        if round == 1 {
            drop(pool);
        } else {
            pool.export().unwrap();
        }
        world.check();
    }
    let history = world.import().history().unwrap().unwrap();
    let texts: Vec<String> = history.map(|record| format!("{record:?}")).collect();
    for round in 0..3 {
        let wanted = format!("round {round}");
        assert!(texts.iter().any(|text| text.contains(&wanted)), "{texts:#?}");
    }
}

#[test]
fn a_pool_with_multihost_shows_that_it_is_in_use() {
    let world = World::new(Shape::Mirror);
    let pool = world.create();
    assert_eq!(pool.uberblock().multihost.unwrap().delay, 0);
    let refused = pool.set_pool_property("multihost", 1.into());
    assert!(refused.is_err(), "this host has no id");
    pool.export().unwrap();
    let pool = world.open_as(7);
    pool.set_pool_property("multihost", 1.into()).unwrap();
    let committed = pool.uberblock();
    assert!(committed.multihost.unwrap().delay > 0);
    let watched = world.import_as(8).unwrap_err().error;
    assert!(matches!(*watched, ImportError::ActiveElsewhere { .. }), "{watched}");
    assert_eq!(pool.uberblock(), committed, "no txg was needed for that");
    // A txg without changes is told, too.
    pool.sync().unwrap();
    assert!(pool.uberblock().txg > committed.txg);
    pool.set_pool_property("multihost", 0.into()).unwrap();
    assert_eq!(pool.uberblock().multihost.unwrap().delay, 0);
    pool.export().unwrap();
    world.check();
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let world = World::new(Shape::Single);
    let pool = world.create();
    pool.sync().unwrap();
    let before = pool.uberblock();
    for _ in 0..5 {
        pool.sync().unwrap();
    }
    assert_eq!(pool.uberblock(), before);
    assert!(pool.synced_txg() > before.txg);
}
