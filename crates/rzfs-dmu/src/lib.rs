//! Block pipeline, object sets, dnodes and objects.
#![forbid(unsafe_code)]
