//! Received property values are kept apart from local ones, and can be reverted.

use crate::{TARGET, golden};
use rzfs_dsl::dataset::property::{DatasetProperty, PropertySource};
use rzfs_dsl::live::{EarlierValues, LivePool, ReceivedProperties};
use rzfs_proof::ImagePool;
use rzfs_receive::{ReceiveOrder, Streams};

const MIB: u64 = 1 << 20;

fn brought(values: &[(&str, u64)]) -> ReceivedProperties {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
    ReceivedProperties {
        values: values.collect(),
        earlier: EarlierValues::Replaced,
        ..ReceivedProperties::default()
    }
}

fn number(pool: &LivePool, property: DatasetProperty) -> (u64, PropertySource) {
    let dataset = pool.dataset_tree().unwrap().open(TARGET).unwrap();
    let source = dataset.native_property(property).unwrap().unwrap().source;
    (dataset.number(property).unwrap(), source)
}

/// Reservations and limits follow the values in force, whichever way they are set and unset.
#[test]
fn space_that_received_properties_set_aside_is_accounted_for() {
    let Some(full) = golden("full-c") else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let bytes = full.bytes().unwrap();
    let values = [
        ("reservation", 20 * MIB),
        ("refreservation", 10 * MIB),
        ("quota", 30 * MIB),
        ("copies", 9),
    ];
    let order = ReceiveOrder {
        properties: vec![("quota".to_owned(), (25 * MIB).into())],
        received: Some(ReceivedProperties { earlier: EarlierValues::Absent, ..brought(&values) }),
        ..ReceiveOrder::for_target(TARGET)
    };
    let mut streams = Streams::open(bytes.as_slice()).unwrap();
    let arrived = streams.next_stream().unwrap().unwrap().arrive(&pool, &order).unwrap();
    let refused: Vec<_> = arrived.refused_properties().iter().map(|(name, _)| name).collect();
    assert_eq!(refused, ["copies"]);
    arrived.end().unwrap();
    let (local, received) = (PropertySource::Local, PropertySource::Received);
    assert_eq!(number(&pool, DatasetProperty::Quota), (25 * MIB, local.clone()));
    assert_eq!(number(&pool, DatasetProperty::Reservation), (20 * MIB, received.clone()));
    let space = |pool: &LivePool| {
        let tree = pool.dataset_tree().unwrap();
        let dir = tree.open(TARGET).unwrap().dsl_dir().clone();
        (dir.used, dir.quota, dir.reserved)
    };
    let before = space(&pool);
    let others = brought(&[("reservation", 5 * MIB), ("quota", u64::MAX), ("refquota", 1)]);
    let (refused, record) = pool.receive_properties_recorded(TARGET, &others).unwrap();
    // The first has no effect here, so it need not fit; the second would be below the used space.
    assert_eq!(refused.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["refquota"]);
    assert_eq!(number(&pool, DatasetProperty::Reservation), (5 * MIB, received));
    assert_eq!(number(&pool, DatasetProperty::RefReservation).0, 0);
    assert_eq!(number(&pool, DatasetProperty::Quota), (25 * MIB, local));
    assert_ne!(space(&pool), before);
    pool.revert_properties(&record).unwrap();
    assert_eq!(space(&pool), before);
    // The own values are applied first; if they cannot be, nothing is changed.
    let own = |values: &[(&str, u64)]| brought(values).values;
    let with = ReceivedProperties { own: own(&[("refreservation", 60 * MIB)]), ..brought(&[]) };
    assert!(pool.receive_properties(TARGET, &with).is_err(), "its own quota is less");
    assert_eq!(space(&pool), before);
    let with = ReceivedProperties {
        own: own(&[("reservation", 28 * MIB), ("quota", 50 * MIB)]),
        ..brought(&[("reservation", 9 * MIB), ("refreservation", 15 * MIB), ("quota", 20 * MIB)])
    };
    let (refused, record) = pool.receive_properties_recorded(TARGET, &with).unwrap();
    assert_eq!(refused.len(), 0, "{refused:?}");
    let dir = |pool: &LivePool| {
        let tree = pool.dataset_tree().unwrap();
        let dir = tree.open(TARGET).unwrap().dsl_dir().clone();
        (dir.quota, dir.reserved)
    };
    assert_eq!(dir(&pool), (50 * MIB, 28 * MIB));
    assert_eq!(number(&pool, DatasetProperty::RefReservation).0, 15 * MIB);
    pool.revert_properties(&record).unwrap();
    assert_eq!(space(&pool), before);
    pool.export().unwrap();
    world.judge_chains();
}
