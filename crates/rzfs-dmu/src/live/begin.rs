//! Beginning transactions that change objects.

use super::object::LiveObject;
use crate::txg::{BeginError, Gate, OpenTx, Patience, Stopped, TxgEngine};
use std::sync::Arc;

impl TxgEngine {
    /// Begins a transaction in the open group that changes these objects (and new ones); waits
    /// while too much is dirty or the pool is suspended, and for transactions of older groups on
    /// the objects.
    ///
    /// # Errors
    /// [`BeginError::Stopped`].
    pub fn begin(self: &Arc<Self>, objects: &[&LiveObject]) -> Result<OpenTx, BeginError> {
        self.begin_with(objects, Patience::Wait)
    }

    /// As [`TxgEngine::begin`]; a caller that does not wait for a suspended pool changes it in
    /// memory as long as there is room.
    ///
    /// # Errors
    /// [`BeginError`].
    pub fn begin_with(
        self: &Arc<Self>,
        objects: &[&LiveObject],
        patience: Patience,
    ) -> Result<OpenTx, BeginError> {
        self.counted(self.throttle(patience))?;
        Ok(self.counted(self.enter(gates(objects)))?)
    }

    /// Begins a transaction that frees space: it waits only while the dirty limit is reached. While
    /// the pool is suspended it changes it in memory, as long as there is room.
    ///
    /// # Errors
    /// [`BeginError`].
    pub fn begin_freeing(
        self: &Arc<Self>,
        objects: &[&LiveObject],
        patience: Patience,
    ) -> Result<OpenTx, BeginError> {
        self.counted(self.wait_to_free(patience))?;
        Ok(self.counted(self.enter(gates(objects)))?)
    }

    /// Begins a transaction that others depend on: it is never delayed.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn begin_unthrottled(self: &Arc<Self>, objects: &[&LiveObject]) -> Result<OpenTx, Stopped> {
        self.counted(self.enter(gates(objects)))
    }
}

/// The gates that order transactions of one object by group.
fn gates<'a>(objects: &'a [&LiveObject]) -> impl ExactSizeIterator<Item = &'a Arc<Gate>> + Clone {
    objects.iter().map(|object| object.gate())
}
