//! Judges of pools that were damaged: leaks are all that may be wrong with their space.

use rzfs_dmu::{DmuError, Visit, Visitor};
use rzfs_dsl::Pool;
use rzfs_dsl::pool::{MosStore, PoolError};
use rzfs_dsl::walk::{Part, PoolVisitor, PoolWalk};
use rzfs_format::{BlockPointer, Dva, Level};
use rzfs_metaslab::{Metaslab, RangeTree};
use rzfs_proof::{Rig, walk_in_full};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Nothing but leaks is found in a pool; whether there are any.
pub(crate) fn only_leaks(rig: &Rig) -> bool {
    let pool = rig.read().unwrap();
    assert_eq!(misplaced(&pool), [""; 0]);
    are_leaks(&walk_in_full(&pool).unwrap())
}

/// As [`only_leaks`], where the tables may be damaged that say how many files have a block: without
/// them nobody can tell what is leaked.
pub(crate) fn leaks_at_most(rig: &Rig) {
    let pool = rig.read().unwrap();
    assert_eq!(misplaced(&pool), [""; 0]);
    match walk_in_full(&pool) {
        Ok(findings) => _ = are_leaks(&findings),
        Err(error) => println!("the tables cannot be read: {error}"),
    }
}

/// What is found is leaks and blocks that cannot be read; whether there are leaks.
fn are_leaks(findings: &[String]) -> bool {
    let text = findings.join("\n");
    assert!(!text.contains("claim error") && !text.contains("unreachable"), "{text}");
    let leaks = text.contains("leaked space:") || text.contains("(leaked ");
    assert!(leaks || findings.is_empty() || text.contains("Got error"), "{text}");
    leaks
}

/// The places of all blocks that can be found.
#[derive(Default)]
struct Places(Vec<(u32, u64, u64, BlockPointer)>);

impl Visitor for Places {
    fn block(&mut self, &Visit { bookmark, pointer, .. }: &Visit<'_>) -> ControlFlow<()> {
        if pointer.is_embedded() || pointer.is_gang() || bookmark.level == Level::ZIL {
            return ControlFlow::Continue(());
        }
        let end = |dva: Dva| dva.offset() + dva.asize();
        let places = pointer.dvas().map(|dva| (dva.vdev().0, dva.offset(), end(dva), *pointer));
        self.0.extend(places);
        ControlFlow::Continue(())
    }

    /// What is damaged is not judged.
    fn damage(&mut self, _: DmuError) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl PoolVisitor for Places {
    fn broken(&mut self, error: PoolError) -> ControlFlow<()> {
        panic!("{error}");
    }
}

/// Blocks that lie on others, and those whose space is free. It takes no table to tell these: a
/// block that several files have is the same for all of them.
fn misplaced(pool: &Pool) -> Vec<String> {
    let mut places = Places::default();
    PoolWalk::new(pool).only(&[Part::Mos, Part::Datasets]).run(&mut places);
    let Places(mut places) = places;
    assert!(places.len() > 20, "hardly anything was found");
    places.sort_by_key(|(vdev, start, end, _)| (*vdev, *start, *end));
    let mut problems = Vec::new();
    for pair in places.windows(2) {
        let [(vdev, start, end, pointer), (next_vdev, next_start, next_end, next)] = pair else {
            continue;
        };
        let is_same = (start, end) == (next_start, next_end)
            && pointer.physical_birth() == next.physical_birth()
            && pointer.checksum() == next.checksum();
        if vdev == next_vdev && next_start < end && !is_same {
            problems.push(format!("{pointer:?} and {next:?} lie on each other"));
        }
    }
    let metaslabs = pool.metaslabs().unwrap();
    let store = MosStore::new(pool.mos().clone());
    for vdev in metaslabs.vdevs() {
        let id = vdev.geometry().vdev.0;
        let load = |metaslab: &Metaslab| metaslab.load_allocated(&store).unwrap();
        let allocated: Vec<RangeTree> = vdev.metaslabs().iter().map(load).collect();
        for (_, start, end, pointer) in places.iter().filter(|(vdev, ..)| *vdev == id) {
            let index = (start >> vdev.geometry().metaslab_shift) as usize;
            if !allocated[index].contains(*start..*end) {
                problems.push(format!("the space of {pointer:?} is free"));
            }
        }
    }
    problems
}

/// What OpenZFS's zdb says about a pool with these options. It may find leaks, but neither stop
/// over what it finds nor count features otherwise.
pub(crate) fn openzfs_says(rig: &Rig, options: &[&str]) -> Option<String> {
    const CHUNK: usize = 1 << 20;
    let program = rzfs_testkit::zdb_program()?;
    let directory = tempfile::tempdir().unwrap();
    for (letter, device) in &rig.devices {
        let image = File::create_new(directory.path().join(letter)).unwrap();
        let content = device.content();
        image.set_len(content.len() as u64).unwrap();
        for (index, chunk) in content.chunks(CHUNK).enumerate() {
            if chunk.iter().any(|byte| *byte != 0) {
                image.write_all_at(chunk, (index * CHUNK) as u64).unwrap();
            }
        }
    }
    let mut zdb = Command::new(program);
    zdb.args(options).args(["-e", "-p"]).arg(directory.path()).arg(rig.name());
    let output = zdb.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.code().is_some(), "{}\n{text}", output.status);
    for problem in ["ASSERT", "PANIC", "mismatch", "unreachable", "can't open"] {
        assert!(!text.contains(problem), "{text}");
    }
    Some(text)
}
