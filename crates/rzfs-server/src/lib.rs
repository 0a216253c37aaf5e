//! The process that has a pool open, for its mounts or until it is exported, and the client side to
//! talk to it.
//!
//! ```text
//! command                                        process in the background
//! ServeRequest ──── in_background ──────────────> Readiness::request ──> serve
//!                   Verdict <──────────────────── Readiness::ready        │ until the pool is
//! Request ───────── ControlClient ───────────────────────────> Answer     │ closed
//! ```
//! [`protocol`] defines requests and answers, [`control`] finds the processes and queries them,
//! [`service`] answers from an open pool, [`request`] describes what to serve. Nothing here knows
//! command lines or prints: the [`starter`] of a process receives error reports and is asked for
//! keys. [`sandbox`] restricts processes that read images to the operations they need.
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
