//! Rounds of trouble below the real `rzfs`: its devices are images served by a process that fails
//! as disks and hosts do.
//!
//! ```text
//! Writer, Writer, ...   programs: write, rename, truncate, append, fsync; a Journal of each
//!      │ a mount of rzfs
//! Served                the process `rzfs mount`: started, cleared, killed
//!      │ images in a directory
//! ImageServer           FUSE; nothing between it and rzfs but requests
//!      │
//! Shelf                 media, what is in caches, what is wrong with them, and every write and
//!                       flush in order
//! ```
//! A round has several lives. In each the writers work while trouble strikes; a suspended pool is
//! repaired and cleared until all of them continue; then the process is killed. The power was cut
//! at that moment, and at some before: unflushed data is there, lost or torn, write by write. The
//! pool is imported from copies of the remains, must match the journals, is exported, and must pass
//! rzfs' walk and OpenZFS's `zdb`. The next life continues with the state of the last cut.
//!
//! A seed determines what happens, but not when: these are processes and threads.

mod error;
mod journal;
mod medium;
mod round;
mod served;
mod server;
mod shelf;
mod trouble;
mod writer;

pub use error::RoundError;
pub use round::{Figures, ImageRound, ImageShape, Programs};
pub use shelf::Honesty;
