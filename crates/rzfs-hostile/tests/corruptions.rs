//! A few hundred corruptions of small pools, the same ones every time.

use rzfs_hostile::{CountingAllocator, Finding, Limits, Subject, run_case};
use rzfs_testkit::ReferencePool;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Pools with different structures, and how many cases of each.
const POOLS: [(&str, u64); 6] = [
    ("g01-default", 60),
    ("g05-raidz1", 40),
    ("g11-dedup", 40),
    ("g18-gang", 40),
    ("g19-logspacemap", 40),
    ("g22-v8", 40),
];

/// Where seeds start, so that pools have different ones.
const STRIDE: u64 = 1_000_000;

#[test]
fn corrupted_pools_do_no_harm() {
    let mut findings = Vec::new();
    let (mut subjects, mut imported, mut errors) = (0, 0, 0);
    for (number, (name, cases)) in (1..).zip(POOLS) {
        let Some(pool) = ReferencePool::golden(name) else { continue };
        subjects += 1;
        let subject = Arc::new(Subject::open(&pool).expect("images of the pool"));
        for seed in (number * STRIDE..).take(cases as usize) {
            let outcome = run_case(&subject, seed, &Limits::STATED);
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
    // Damage that nobody meets, or that leaves nothing to read, would show nothing.
    eprintln!("{subjects} pools, {imported} imports, {errors} errors");
    assert!(imported >= 10 * subjects && errors >= 50 * subjects);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
