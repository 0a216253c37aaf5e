//! Locks that outlive panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The contents of a mutex, even after a panic of its holder.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
