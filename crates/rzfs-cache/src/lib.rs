//! The adaptive replacement cache and dbuf caches.
#![forbid(unsafe_code)]
