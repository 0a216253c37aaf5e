//! One writer of a pool on a host.
//!
//! Two processes that write one pool destroy it. Who writes a pool holds a socket with a name that
//! is made of the pool's guid, in the namespace of names that are no files: the system takes it
//! away when the process ends, however that happens.

use rzfs_format::Guid;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The right to write a pool, for as long as it lives.
#[derive(Debug)]
pub(crate) struct PoolLock {
    /// None where the system has no such names: then nobody is kept out.
    _socket: Option<UnixListener>,
}

impl PoolLock {
    /// Takes the right; none if another process or another part of this one has it.
    pub(crate) fn take(pool: Guid) -> Option<Self> {
        let name = format!("rzfs/writer/{:016x}", pool.get());
        let bound = SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixListener::bind_addr(&address));
        match bound {
            Ok(socket) => Some(Self { _socket: Some(socket) }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            Err(error) => {
                tracing::warn!(%error, "other writers cannot be kept out");
                Some(Self { _socket: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_one_writer() {
        let (pool, other) = (Guid(0x1234_5678_9abc_def0), Guid(0x1234_5678_9abc_def1));
        let first = PoolLock::take(pool).unwrap();
        assert!(PoolLock::take(pool).is_none());
        assert!(PoolLock::take(other).is_some());
        drop(first);
        assert!(PoolLock::take(pool).is_some());
    }
}
