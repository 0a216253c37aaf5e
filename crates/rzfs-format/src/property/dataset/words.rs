//! Words of properties of datasets.

use super::super::values::{Values, only_shown, word, words};
use crate::features::Feature;

pub(super) const ON_OFF: Values = words![word(1, "on"), word(0, "off")];
pub(super) const CHECKSUMS: Values = words![
    word(1, "on"),
    word(2, "off"),
    word(6, "fletcher2"),
    word(7, "fletcher4"),
    word(8, "sha256"),
    only_shown(10, "noparity"),
    word(11, "sha512").needs(Feature::Sha512),
    word(12, "skein").needs(Feature::Skein),
    word(13, "edonr").needs(Feature::EdonR),
    word(14, "blake3").needs(Feature::Blake3),
];
/// Checksums by which blocks are known to be the same; with 0x100 they are compared as well.
pub(super) const DEDUP_CHECKSUMS: Values = words![
    word(1, "on"),
    word(2, "off"),
    word(0x101, "verify"),
    word(8, "sha256"),
    word(0x108, "sha256,verify"),
    word(11, "sha512").needs(Feature::Sha512),
    word(0x10b, "sha512,verify").needs(Feature::Sha512),
    word(12, "skein").needs(Feature::Skein),
    word(0x10c, "skein,verify").needs(Feature::Skein),
    word(0x10d, "edonr,verify").needs(Feature::EdonR),
    word(14, "blake3").needs(Feature::Blake3),
    word(0x10e, "blake3,verify").needs(Feature::Blake3),
];
pub(super) const CACHED: Values = words![word(2, "all"), word(0, "none"), word(1, "metadata")];
pub(super) const DNODE_SIZES: Values = words![
    word(0, "legacy"),
    word(1, "auto").needs(Feature::LargeDnode),
    word(1024, "1k").needs(Feature::LargeDnode),
    word(2048, "2k").needs(Feature::LargeDnode),
    word(4096, "4k").needs(Feature::LargeDnode),
    word(8192, "8k").needs(Feature::LargeDnode),
    word(16384, "16k").needs(Feature::LargeDnode),
];
pub(super) const ENCRYPTIONS: Values = words![
    word(1, "on"),
    word(2, "off"),
    word(3, "aes-128-ccm"),
    word(4, "aes-192-ccm"),
    word(5, "aes-256-ccm"),
    word(6, "aes-128-gcm"),
    word(7, "aes-192-gcm"),
    word(8, "aes-256-gcm"),
];
