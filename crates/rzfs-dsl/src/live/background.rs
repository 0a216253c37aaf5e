//! Background work besides transactions and txgs: trimming, and sweeps of free space.

pub(crate) mod sweep;
pub(crate) mod trim;
