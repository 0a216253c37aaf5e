//! Gang blocks whose headers contradict them.

use super::forged::Forger;
use super::read_dataset;
use rzfs_dsl::live::LivePool;
use rzfs_proof::{Files, OpenPool, Rig};
use std::sync::Arc;

#[test]
fn a_gang_that_leads_to_itself_is_leaked() {
    let Some(rig) = Rig::golden("g18-gang", "g18").unwrap() else { return };
    let fs = read_dataset(&rig.read().unwrap(), "g18").unwrap();
    let names = rzfs_proof::names(&fs, fs.root()).unwrap();
    let pool = Forger::default().circular_gangs().read(&rig).unwrap();
    let environment = Arc::clone(&rig.settings.environment);
    let live = LivePool::open(&pool, environment, &rig.settings.pool).unwrap();
    let open = OpenPool::of_live(live, &rig.settings).unwrap();
    let files = Files(open.root().unwrap().1);
    for (name, _) in names {
        let _ = files.unlink(&String::from_utf8(name).unwrap());
        open.sync().unwrap();
    }
    assert!(open.pool.view().unwrap().leaked().unwrap() > 0);
    assert!(open.pool.failure().is_none());
    open.export().unwrap();
}
