//! The locks and atomics of this crate, in one place so that a schedule checker can replace them.

pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
pub(crate) use std::sync::Arc;
