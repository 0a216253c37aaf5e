//! Messages for sends that fail.

use crate::protocol::{Refusal, SendRequest};
use rzfs_dmu::DmuError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_send::SendError;
use std::fmt::Display;

/// The short name of an increment's source, without the sent file system.
pub(super) fn short<'f>(from: &'f str, snapshot: &str) -> &'f str {
    let head = snapshot.split('@').next().unwrap_or_default();
    from.strip_prefix(head).filter(|rest| rest.starts_with(['@', '#'])).unwrap_or(from)
}

pub(super) fn failed(request: &SendRequest, error: &SendError) -> Refusal {
    match error {
        SendError::NotEarlier { .. } => {
            refused(request, &"not an earlier snapshot from the same fs")
        }
        SendError::Dataset(DatasetError::KeyNotLoaded { .. }) => {
            refused(request, &"dataset key must be loaded")
        }
        SendError::Read(DmuError::Superseded { .. }) => {
            refused(request, &"it was destroyed meanwhile")
        }
        error => refused(request, error),
    }
}

pub(super) fn refused(request: &SendRequest, why: &dyn Display) -> Refusal {
    Refusal::new(format!("warning: cannot send '{}': {why}", request.snapshot))
}

/// A refusal of a package, preceded by the reason.
pub(super) fn no_package(request: &SendRequest, why: &dyn Display) -> Refusal {
    let Refusal { message, .. } = refused(request, &"backup failed");
    Refusal::new(format!("{why}\n{message}"))
}
