//! Checksums, compression, encryption and parity of OpenZFS as pure functions on byte slices.
//!
//! * [`checksum`]: what verifies a block, in its pointer or embedded in the block;
//! * [`compress`]: every compression function in both directions;
//! * [`crypto`]: keys of datasets, encryption and authentication of blocks;
//! * [`parity`]: what RAID-Z and dRAID store to survive lost columns, and how they come back.
//!
//! Nothing here does I/O, decides which algorithm applies or keeps state between calls that a
//! caller could observe. Kernels are chosen at run time from what the processor can do; each has
//! a portable twin with the same result bit for bit.
#![deny(unsafe_code)]

pub mod checksum;
pub mod compress;
pub mod crypto;
pub mod parity;
