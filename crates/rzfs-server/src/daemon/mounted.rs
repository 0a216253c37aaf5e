//! The interface of a served pool, its callers, and how it ends.

use super::line::Line;
use crate::protocol::{Answer, ReceiveRequest, Refusal, Request, SendRequest};
use std::io::{Read, Write};

/// A pool as served by a daemon.
pub(crate) trait Mounted: Send + Sync + 'static {
    /// Answers all requests without a method of their own; [`Request::Identify`] without blocking.
    /// `None` if the pool is gone.
    fn answer(&self, request: Request, caller: Caller) -> Option<Answer>;

    /// Sends a snapshot, and returns whether it was sent completely. A forced end of the pool
    /// breaks the line off.
    fn send(&self, request: &SendRequest, to: &mut dyn Write, line: &Line) -> Option<Answer>;

    /// Receives a snapshot: reports it on the line, and returns whether it has arrived. A forced
    /// end of the pool breaks the line off.
    fn receive(
        &self,
        request: &ReceiveRequest,
        caller: Caller,
        from: &mut dyn Read,
        line: &Line,
    ) -> Option<Answer>;

    /// Ends all mounts and closes the pool.
    fn end(&self, ending: Ending) -> Result<(), Refusal>;

    /// Reports whether its devices are active; `None` where that does not matter.
    fn activity(&self) -> Option<Activity>;

    /// Abandons the pool as a crash would, as its devices are unresponsive; returns the error. A
    /// thread that is ending it goes on waiting.
    fn give_up(&self, manner: Disposition) -> Refusal;

    /// Whether the pool is closed: no further requests are possible.
    fn is_over(&self) -> bool;

    /// Whether the pool waits for its devices.
    fn is_waiting(&self) -> bool;
}

/// A number that changes with every device operation; `None` when the devices are closed.
pub(crate) type Activity = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The origin of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) user: u32,
}

/// How to end a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ending {
    pub(crate) manner: Disposition,
    /// Whether to detach mounts in use.
    pub(crate) force: bool,
    /// The line for the pool's history, if there is one, and the user.
    pub(crate) command: Option<(String, u64)>,
}

/// The fate of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disposition {
    /// It is exported.
    Release,
    /// It is marked as destroyed.
    Destroy,
}

impl Disposition {
    /// The command that asks for it.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Release => "export",
            Self::Destroy => "destroy",
        }
    }

    /// The resulting state of the pool.
    pub(crate) const fn past_participle(self) -> &'static str {
        match self {
            Self::Release => "exported",
            Self::Destroy => "destroyed",
        }
    }
}

impl Ending {
    /// The pool is closed without a command.
    pub(crate) const FORCED: Self = Self::released(true);
    /// The same unless it is in use.
    pub(super) const UNFORCED: Self = Self::released(false);

    const fn released(force: bool) -> Self {
        Self { manner: Disposition::Release, force, command: None }
    }

    /// The end that a request asks for, if any.
    pub(super) fn of_request(request: &Request, caller: Caller) -> Option<Self> {
        let (manner, force, command) = match request {
            Request::Unmount { force, command } => (Disposition::Release, *force, command.clone()),
            Request::Destroy { force, command } => {
                (Disposition::Destroy, *force, Some(command.clone()))
            }
            _ => return None,
        };
        let command = command.map(|line| (line, caller.user.into()));
        Some(Self { manner, force, command })
    }
}
