//! Locks that outlive panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a mutex protects, whatever became of who had it before.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
