//! The POSIX layer on an object set, free of FUSE types.
#![forbid(unsafe_code)]
