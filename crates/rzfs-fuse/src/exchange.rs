//! Giving a mounted file system other contents.

use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{ControlTree, FileSystem};
use std::io;
use std::sync::Arc;

/// What gives a file system other contents while it is mounted: a rollback, or the end of a receive.
/// Its steps are taken in this order, while nobody else is in the file system.
pub trait Exchange {
    /// What is said of the change.
    type Changed;
    /// Why something cannot be done.
    type Error;

    /// What the file system has, all of it on disk, and what it is to have.
    ///
    /// # Errors
    /// [`NotExchanged`]: that cannot be read.
    fn states(&mut self) -> Result<[FileSystem; 2], NotExchanged<Self::Error>>;

    /// Changes it.
    ///
    /// # Errors
    /// It is as it was, or its object set is superseded: then it is changed, but not on disk yet.
    fn change(&mut self) -> Result<Self::Changed, Self::Error>;

    /// The file system with its new contents, and its `.zfs`.
    ///
    /// # Errors
    /// It cannot be opened.
    fn successor(&mut self) -> Result<Successor, Self::Error>;
}

/// A file system with its new contents, and its `.zfs`.
pub type Successor = (Arc<LiveFileSystem>, Option<ControlTree>);

/// What came of an exchange, or why everything is as it was.
pub type ExchangeOutcome<X> = Result<
    Exchanged<<X as Exchange>::Changed, <X as Exchange>::Error>,
    NotExchanged<<X as Exchange>::Error>,
>;

/// What came of an exchange.
#[derive(Debug)]
pub struct Exchanged<T, E> {
    /// What was said of the change; or why nobody can say yet that it is on disk.
    pub changed: Result<T, E>,
    /// Why the mount has nothing any more: it is to be ended.
    pub lost: Option<E>,
}

/// Why contents were not exchanged.
#[derive(Debug)]
pub enum NotExchanged<E> {
    /// It cannot be done below the mount, which has to be ended before.
    Unsuitable(io::Error),
    /// Somebody does not come to an end with a request.
    Busy,
    /// It is refused.
    Refused(E),
}
