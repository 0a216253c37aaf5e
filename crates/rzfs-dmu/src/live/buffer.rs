//! Contents of blocks that are not on disk yet.

use crate::contents::Contents;
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// The contents of a dirty block: changed in place while unshared, copied otherwise.
#[derive(Clone, Debug)]
pub(super) struct DirtyBuffer(Arc<Contents>);

/// What readers hold.
struct Shared(Arc<Contents>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl DirtyBuffer {
    /// `len` bytes that begin with `start`; the rest is zeros.
    pub(super) fn new(len: usize, start: &[u8]) -> io::Result<Self> {
        Ok(Self(Arc::new(Contents::padded(start, len)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The current contents, shared.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes::from_owner(Shared(Arc::clone(&self.0)))
    }

    /// Whether both are the same memory, not only equal contents.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The contents, for changes.
    pub(super) fn make_mut(&mut self) -> io::Result<&mut [u8]> {
        if Arc::get_mut(&mut self.0).is_none() {
            *self = Self::new(self.0.len(), &self.0)?;
        }
        Ok(Arc::get_mut(&mut self.0).map(|buffer| &mut **buffer).unwrap_or_default())
    }
}
