//! zdb on the golden pools, compared byte for byte with the zdb of OpenZFS 2.3.2.
//!
//! What that one printed is in `oracle/POOL/WORDS.txt` (long outputs condensed: see
//! [`rzfs_testkit::Transcript`]); `cargo xtask zdb-oracle` makes it again.

mod blocks;
mod checkpoint;
mod copies;
mod damage;
mod datasets;
mod dedup;
mod harness;
mod metaslabs;
mod raw_blocks;
