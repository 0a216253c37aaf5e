//! The vdev tree of an OpenZFS pool: mirror, RAID-Z, dRAID, indirect; reconstruction.
#![forbid(unsafe_code)]
