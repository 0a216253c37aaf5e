//! A pool that OpenZFS made, with any number of patches behind their checksums, is read whole or
//! answers errors that say something.
//!
//! Input: patches of 16 bytes, see `rzfs_hostile::Patch`. The pool is the golden pool
//! `g24-zil`, or the one that `RZFS_FUZZ_POOL` names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_hostile::Subject;
use rzfs_testkit::ReferencePool;
use std::sync::LazyLock;

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| {
    let name = std::env::var("RZFS_FUZZ_POOL").unwrap_or_else(|_| "g24-zil".to_owned());
    let pool = ReferencePool::golden(&name).expect("the golden pools");
    Subject::open(&pool).expect("images of the pool")
});

fuzz_target!(|data: &[u8]| {
    let tally = SUBJECT.exercise_patched(data);
    assert_eq!(tally.speechless, 0, "errors without words");
});
