//! The `rzfs` binary as its users run it: on pools that OpenZFS made, compared with what OpenZFS
//! said about them.

mod accounts;
mod damage;
mod dedup;
mod diff;
mod directories;
mod encryption;
mod exchange;
mod failures;
mod golden;
mod harness;
mod imports;
mod kept;
mod left_behind;
mod mounts;
mod ordinary;
mod places;
mod pool_properties;
mod properties;
mod receiving;
mod sending;
mod several_pools;
mod snapshots;
mod special_files;
mod stats;
mod suspension;
mod sweeps;
mod system;
mod transcripts;
mod transitions;
mod tunables;
mod vdevs;
mod volumes;
mod workshop;
mod writers;
mod writing;
