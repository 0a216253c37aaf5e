//! The locks and atomics of this crate, in one place so that a checker of schedules can stand in
//! for them.

pub(crate) use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};
pub(crate) use std::sync::Arc;
