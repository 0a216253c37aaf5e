//! The process that has a pool open, for its mounts or until it is exported, and what others need
//! to talk to it.
//!
//! ```text
//! command                                        process in the background
//! ServeRequest ──── in_background ──────────────> Readiness::request ──> serve
//!                   Verdict <──────────────────── Readiness::ready        │ until the pool is
//! Request ───────── ControlClient ───────────────────────────> Answer     │ let go of
//! ```
//! [`protocol`] is what is asked and answered, [`control`] finds the processes and asks them,
//! [`service`] answers from an open pool, [`request`] is what is to be served. Nothing here knows
//! command lines or prints: whoever starts a process is its [`starter`], which hears what went
//! wrong and is asked for keys. [`sandbox`] keeps processes that read images from what they have no
//! use for.
#![forbid(unsafe_code)]

pub mod control;
mod daemon;
mod error;
pub mod keys;
mod mount;
mod privileges;
pub mod protocol;
pub mod request;
pub mod sandbox;
pub mod service;
pub mod starter;

pub use daemon::{Completeness, DaemonError, Readiness, SERVE, Verdict, restart_tuned};
pub use error::{KeyError, NotMounted, ServeError, Unmountable};
pub use mount::{in_background, serve};
pub use rzfs_fuse::clear_dead_mounts;
