//! Replaces the contents of a mounted file system.

use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{ControlTree, FileSystem};
use std::io;
use std::sync::Arc;

/// Replaces the contents of a mounted file system: a rollback, or the end of a receive. Its steps
/// run in this order, while no request is in the file system.
pub trait Exchange {
    /// The result of the change.
    type Changed;
    /// The reason for a failure.
    type Error;

    /// The current contents, all of it on disk, and the new contents.
    ///
    /// # Errors
    /// [`NotExchanged`]: they cannot be read.
    fn states(&mut self) -> Result<[FileSystem; 2], NotExchanged<Self::Error>>;

    /// Performs the change.
    ///
    /// # Errors
    /// Nothing changed, or its object set is superseded: changed, but not on disk yet.
    fn change(&mut self) -> Result<Self::Changed, Self::Error>;

    /// The file system with its new contents, and its `.zfs`.
    ///
    /// # Errors
    /// It cannot be opened.
    fn successor(&mut self) -> Result<Successor, Self::Error>;
}

/// A file system with its new contents, and its `.zfs`.
pub type Successor = (Arc<LiveFileSystem>, Option<ControlTree>);

/// The outcome of an exchange, or why nothing changed.
pub type ExchangeOutcome<X> = Result<
    Exchanged<<X as Exchange>::Changed, <X as Exchange>::Error>,
    NotExchanged<<X as Exchange>::Error>,
>;

/// The outcome of an exchange.
#[derive(Debug)]
pub struct Exchanged<T, E> {
    /// The result of the change; or why it is not known to be on disk.
    pub changed: Result<T, E>,
    /// Why the mount has no contents any more and must be ended.
    pub lost: Option<E>,
}

/// Why contents were not exchanged.
#[derive(Debug)]
pub enum NotExchanged<E> {
    /// It is impossible below the mount, which must be ended first.
    Unsuitable(io::Error),
    /// A request does not finish.
    Busy,
    /// It is refused.
    Refused(E),
}
