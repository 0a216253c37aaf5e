//! Checksums, compression, encryption and parity of OpenZFS as pure functions on byte slices.
