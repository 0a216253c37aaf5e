//! Runs zdb on the golden pools and compares its output byte for byte with that of OpenZFS 2.3.2.
//!
//! That output is in `oracle/POOL/WORDS.txt` (if long, condensed: see
//! [`rzfs_testkit::Transcript`]); `cargo xtask zdb-oracle` creates it again.

mod blocks;
mod checkpoint;
mod copies;
mod damage;
mod datasets;
mod dedup;
mod harness;
mod metaslabs;
mod raw_blocks;
