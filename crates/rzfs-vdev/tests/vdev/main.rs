//! The vdev layer against pools written by these tests themselves: every layout, every kind of
//! damage, on sparse devices in memory.

mod create;
mod damage;
mod debts;
mod dirty_times;
mod fields;
mod growth;
mod hostile;
mod indirect;
mod labels;
mod mirror;
mod pool;
mod spares;
mod trim;
mod write;
