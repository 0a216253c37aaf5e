//! Messages for streams that are not received (spec 08, section 10).

use crate::mount::refusal::refusal;
use crate::protocol::Refusal;
use rzfs::WritablePool;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::live::{ChangeError, ReceiveProblem};
use rzfs_receive::{Incoming, ReceiveError, ReceiveOrder, Remains};
use rzfs_stream::Problem;
use std::fmt::Display;
use std::io::{self, Read};

/// The contents of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Brings {
    /// A whole snapshot.
    Everything,
    /// The changes since another snapshot.
    Changes,
    /// The rest of an interrupted stream.
    Rest,
}

impl Brings {
    pub(super) fn of<R: Read>(incoming: &Incoming<'_, R>) -> Self {
        match incoming.source() {
            _ if incoming.is_rest() => Self::Rest,
            Some(_) => Self::Changes,
            None => Self::Everything,
        }
    }

    /// The beginning of its error message.
    const fn cannot(self) -> &'static str {
        match self {
            Self::Everything => "cannot receive new filesystem stream",
            Self::Changes => "cannot receive incremental stream",
            Self::Rest => "cannot receive resume stream",
        }
    }
}

/// The refusal of a stream.
pub(super) fn refused_stream(brings: Brings, target: &str, error: &ReceiveError) -> Refusal {
    let what = brings.cannot();
    match error {
        ReceiveError::Change(ChangeError::Exists { name }) if name.contains('@') => {
            let reason = "destination already exists";
            refusal(format_args!("cannot restore to {name}"), reason)
        }
        ReceiveError::Change(ChangeError::Exists { name }) => {
            let reason = "must specify -F to overwrite it";
            refusal(what, format_args!("destination '{name}' exists\n{reason}"))
        }
        ReceiveError::Change(ChangeError::NotFound { name }) if name == target => {
            refusal(what, format_args!("destination '{target}' does not exist"))
        }
        ReceiveError::Change(error @ ChangeError::Receive(ReceiveProblem::NotForced { .. })) => {
            refusal(format_args!("cannot resume recv {target}"), error)
        }
        ReceiveError::Change(error) => refusal(what, error),
        error => refusal(what, words(error)),
    }
}

/// The refusal of an interrupted stream; if its partial state is kept, it says how to get the rest.
pub(super) fn broken_off(
    pool: &WritablePool,
    (brings, order): (Brings, &ReceiveOrder),
    error: &ReceiveError,
) -> Refusal {
    let is_cut = |problem: &Problem| {
        matches!(
            problem,
            Problem::Checksum { .. }
                | Problem::EndChecksum { .. }
                | Problem::NoEnd
                | Problem::Truncated { .. }
        ) || matches!(problem, Problem::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    };
    let token = || {
        let tree = pool.live().dataset_tree()?;
        let token = tree.open(&order.target)?.resume_token()?;
        Ok::<_, DatasetError>(token.and_then(|token| token.encode().ok()))
    };
    match error {
        ReceiveError::Stream(cut) if order.remains == Remains::Kept && is_cut(&cut.problem) => {
            let Ok(Some(token)) = token() else {
                return refused_stream(brings, &order.target, error);
            };
            let reason = format!(
                "checksum mismatch or incomplete stream.\n\
                 Partially received snapshot is saved.\n\
                 A resuming stream can be generated on the sending system by running:\n    \
                 zfs send -t {token}"
            );
            refusal(brings.cannot(), reason)
        }
        error => refused_stream(brings, &order.target, error),
    }
}

/// The problem of a stream: first in OpenZFS's words, which scripts match.
pub(super) fn words(error: &ReceiveError) -> String {
    let known = match error {
        ReceiveError::Stream(error) => match &error.problem {
            Problem::Checksum { .. } | Problem::EndChecksum { .. } => "checksum mismatch",
            Problem::NoEnd | Problem::Truncated { .. } => "incomplete stream",
            Problem::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "incomplete stream"
            }
            Problem::Empty => return "failed to read from stream".to_owned(),
            Problem::Magic => return "invalid stream (bad magic number)".to_owned(),
            Problem::Deprecated { .. } | Problem::UnknownFeatures { .. } => {
                return error.to_string();
            }
            _ => "invalid backup stream",
        },
        ReceiveError::Record { .. } | ReceiveError::Package(_) => "invalid backup stream",
        error => return error.to_string(),
    };
    format!("{known}\n{error}")
}

pub(super) fn cannot(reason: impl Display) -> Refusal {
    refusal("cannot receive", reason)
}

pub(super) fn refusal_of_name(sent: &str) -> Refusal {
    let sent = sent.escape_debug();
    cannot(format_args!("invalid stream (bad snapshot name)\n'{sent}' is not part of it"))
}
