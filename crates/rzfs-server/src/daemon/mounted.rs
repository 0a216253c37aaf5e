//! What a daemon serves, who asks for it, and how it ends.

use super::line::Line;
use crate::protocol::{Answer, ReceiveRequest, Refusal, Request, SendRequest};
use std::io::{Read, Write};

/// What a daemon serves.
pub(crate) trait Mounted: Send + Sync + 'static {
    /// Answers everything but what the others are for; [`Request::Identify`]
    /// without waiting for anything. Nothing when there is no pool any more to be asked about.
    fn answer(&self, request: Request, caller: Caller) -> Option<Answer>;

    /// Sends a snapshot, and answers whether it was sent to its end. Whoever takes the pool away by
    /// force breaks the line off.
    fn send(&self, request: &SendRequest, to: &mut dyn Write, line: &Line) -> Option<Answer>;

    /// Receives a snapshot: says on the line what it is, and answers whether it is there. Whoever takes
    /// the pool away by force breaks the line off.
    fn receive(
        &self,
        request: &ReceiveRequest,
        caller: Caller,
        from: &mut dyn Read,
        line: &Line,
    ) -> Option<Answer>;

    /// Ends all mounts, and lets go of the pool.
    fn end(&self, ending: Ending) -> Result<(), Refusal>;

    /// What tells whether its devices do something; nothing where that does not matter.
    fn activity(&self) -> Option<Activity>;

    /// Has the pool let go of as a crash would leave it, as its devices neither answer nor fail; says
    /// so. Whoever is ending it goes on waiting.
    fn give_up(&self, manner: Disposition) -> Refusal;

    /// Whether the pool is let go of: nothing is to be asked any more.
    fn is_over(&self) -> bool;

    /// Whether the pool waits for its devices.
    fn is_waiting(&self) -> bool;
}

/// A number that changes whenever a device has done something; nothing when they are let go of.
pub(crate) type Activity = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) user: u32,
}

/// How a daemon ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ending {
    pub(crate) manner: Disposition,
    /// Mounts that are in use are detached.
    pub(crate) force: bool,
    /// The line for the pool's history, if somebody asked for it, and the user.
    pub(crate) command: Option<(String, u64)>,
}

/// What becomes of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disposition {
    /// Others may have it.
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

    /// What the pool is then.
    pub(crate) const fn past_participle(self) -> &'static str {
        match self {
            Self::Release => "exported",
            Self::Destroy => "destroyed",
        }
    }
}

impl Ending {
    /// The pool is let go of, though no command has asked for it.
    pub(crate) const FORCED: Self = Self::released(true);
    /// The same if nothing is in use.
    pub(super) const UNFORCED: Self = Self::released(false);

    const fn released(force: bool) -> Self {
        Self { manner: Disposition::Release, force, command: None }
    }

    /// What a request asks for, if it asks for the end.
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
