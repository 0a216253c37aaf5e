//! FUSE adapter for rzfs-zpl.
#![forbid(unsafe_code)]
