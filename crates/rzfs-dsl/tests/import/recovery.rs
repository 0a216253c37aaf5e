//! Pools with missing or damaged devices, and older states of pools.
