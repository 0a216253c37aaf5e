//! Space accounting of an OpenZFS pool: range trees, space maps, metaslabs, log space maps.
#![forbid(unsafe_code)]
