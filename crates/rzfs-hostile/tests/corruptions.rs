//! Some two hundred corruptions of small pools, the same ones every time.

use rzfs_hostile::{
    Aim, CountingAllocator, DamageKind, Finding, HostileInjector, Limits, Subject, run_case,
    run_watched,
};
use rzfs_testkit::ReferencePool;
use std::collections::HashSet;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Pools with different structures, and how many cases of each.
const POOLS: [(&str, u64); 8] = [
    ("g01-default", 40),
    ("g05-raidz1", 25),
    ("g11-dedup", 25),
    ("g12-fdt-clone", 20),
    ("g18-gang", 30),
    ("g19-logspacemap", 25),
    ("g22-v8", 25),
    ("g24-zil", 20),
];

/// Cases that have shown something: labels that promise thousands of vdevs, and damage in more
/// blocks than a report can keep.
const FOUND: [(&str, u64); 4] =
    [("g24-zil", 1872), ("g06-raidz2", 5118), ("g13-classes", 5893), ("g23-many", 599)];

/// Where seeds start, so that pools have different ones.
const STRIDE: u64 = 1_000_000;

/// What is measured belongs to the process, so that one test has to follow the other.
#[test]
fn corrupted_pools_do_no_harm() {
    seeded_cases();
    found_cases();
    trees_without_end_end();
}

/// A block that is its own child on every level would be a tree of 2^70 blocks.
fn trees_without_end_end() {
    let Some(pool) = ReferencePool::golden("g24-zil") else { return };
    let subject = Arc::new(Subject::open(&pool).expect("images of the pool"));
    let mut changed = 0;
    for seed in 0..4 {
        let injector = Arc::new(HostileInjector::new(Aim::Endless, seed));
        let (subject, shared) = (Arc::clone(&subject), Arc::clone(&injector));
        let outcome = run_watched(move || subject.exercise_fault(shared), &Limits::STATED);
        changed += injector.changed();
        let found = outcome.finding.filter(|found| !matches!(found, Finding::WrongData(_)));
        assert_eq!(found, None, "seed {seed}: {:?} of {:?}", outcome.memory, outcome.cpu);
    }
    assert!(changed > 10, "{changed} blocks");
}

fn found_cases() {
    for (name, seed) in FOUND {
        let Some(pool) = ReferencePool::golden(name) else { continue };
        let subject = Arc::new(Subject::open(&pool).expect("images of the pool"));
        let outcome = run_case(&subject, seed, &Limits::STATED);
        assert_eq!(outcome.finding, None, "{name} {seed}");
    }
}

fn seeded_cases() {
    let mut findings = Vec::new();
    let mut kinds = HashSet::new();
    let (mut subjects, mut imported, mut errors) = (0, 0, 0);
    for (number, (name, cases)) in (1..).zip(POOLS) {
        let Some(pool) = ReferencePool::golden(name) else { continue };
        subjects += 1;
        let subject = Arc::new(Subject::open(&pool).expect("images of the pool"));
        for seed in (number * STRIDE..).take(cases as usize) {
            let outcome = run_case(&subject, seed, &Limits::STATED);
            kinds.insert(Subject::kind(seed));
            imported += u64::from(outcome.tally.imported);
            errors += outcome.tally.errors;
            if let Some(finding) = outcome.finding {
                findings.push(format!("{name} {seed}: {finding}"));
                if finding == Finding::Hang {
                    break;
                }
            }
        }
    }
    // Damage that is never read, or that leaves nothing to read, would show nothing.
    eprintln!("{subjects} pools, {imported} imports, {errors} errors");
    assert!(imported >= 5 * subjects && errors >= 50 * subjects);
    assert!(subjects == 0 || kinds.len() == DamageKind::ALL.len(), "{kinds:?}");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
