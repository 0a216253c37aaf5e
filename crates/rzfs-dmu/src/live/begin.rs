//! Beginning transactions that change objects.

use super::object::LiveObject;
use crate::txg::{BeginError, Gate, OpenTx, Patience, Stopped, TxgEngine};
use std::sync::Arc;

impl TxgEngine {
    /// Begins a transaction in the open group that changes these objects (and new ones); waits as
    /// long as too much is dirty or the pool is suspended, and for transactions of older groups
    /// that have the objects.
    ///
    /// # Errors
    /// [`BeginError::Stopped`].
    pub fn begin(self: &Arc<Self>, objects: &[&LiveObject]) -> Result<OpenTx, BeginError> {
        self.begin_with(objects, Patience::Wait)
    }

    /// As [`TxgEngine::begin`]; who does not wait for a suspended pool changes it in memory, for as
    /// long as there is room.
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

    /// Begins a transaction that frees space: it waits only while as much is dirty as may be. While
    /// the pool is suspended it changes it in memory, for as long as there is room.
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

    /// Begins a transaction that others wait for: it is never delayed.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn begin_unthrottled(self: &Arc<Self>, objects: &[&LiveObject]) -> Result<OpenTx, Stopped> {
        self.counted(self.enter(gates(objects)))
    }
}

/// What keeps transactions of one object in the order of their groups.
fn gates<'a>(objects: &'a [&LiveObject]) -> impl ExactSizeIterator<Item = &'a Arc<Gate>> + Clone {
    objects.iter().map(|object| object.gate())
}
