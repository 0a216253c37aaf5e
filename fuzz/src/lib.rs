//! What fuzz targets share.
#![forbid(unsafe_code)]

pub mod words;
