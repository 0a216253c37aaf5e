//! The ZFS attribute processor: micro and fat ZAP over any array of blocks.
#![forbid(unsafe_code)]
