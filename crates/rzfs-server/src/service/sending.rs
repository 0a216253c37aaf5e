//! Sending snapshots.

use crate::protocol::{Answer, Refusal, SendRequest};
use rzfs_dmu::DmuError;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_send::{Form, Send, SendError, Source};
use std::fmt::Display;
use std::io::Write;

/// A snapshot that can be sent, and that nobody destroys meanwhile. It holds nothing else of the pool:
/// if that is let go of by force, the stream has no end.
#[derive(Debug)]
pub struct Sending {
    request: SendRequest,
    send: Send,
}

impl Sending {
    /// Looks for what is asked for in a pool.
    pub(super) fn open(pool: &Pool, request: &SendRequest) -> Result<Self, Refusal> {
        let tree = pool.datasets();
        let to = &request.snapshot;
        let snapshot = tree.open(to).map_err(|error| match error {
            DatasetError::NotFound { .. } => {
                Refusal::new(format!("cannot open '{to}': dataset does not exist"))
            }
            error => refused(request, &error),
        })?;
        let source = request.from.as_deref().map(|from| {
            let found = match from.split_once('#') {
                Some((head, _)) => tree.open(head).and_then(|head| {
                    Ok(Source::Bookmark { bookmark: tree.open_bookmark(from)?, head })
                }),
                None => tree.open(from).map(Source::Snapshot),
            };
            found.map_err(|error| match error {
                DatasetError::NotFound { .. } => refused(
                    request,
                    &format_args!("incremental source ({}) does not exist", short(from, &snapshot)),
                ),
                error => refused(request, &error),
            })
        });
        let source = source.transpose()?;
        let form = Form {
            large_blocks: request.large_blocks,
            embedded: request.embedded,
            compressed: request.compressed,
        };
        let send = Send::new(&snapshot, source.as_ref(), form, pool.features());
        Ok(Self { request: request.clone(), send: send.map_err(|error| failed(request, &error))? })
    }

    /// Bytes of the stream.
    pub(super) fn size(&self) -> Result<u64, Refusal> {
        self.send.size().map_err(|error| failed(&self.request, &error))
    }

    /// Writes the stream, and answers whether it is whole.
    pub fn write_to(&self, to: &mut dyn Write) -> Answer {
        match self.send.write_to(to) {
            Ok(_) => Answer::Done { complaints: Vec::new() },
            Err(error) => Answer::Failed(failed(&self.request, &error)),
        }
    }
}

/// The source of an increment, as people say it: without the file system that is sent.
fn short<'f>(from: &'f str, snapshot: &Dataset) -> &'f str {
    let head = snapshot.name().split('@').next().unwrap_or_default();
    from.strip_prefix(head).filter(|rest| rest.starts_with(['@', '#'])).unwrap_or(from)
}

fn failed(request: &SendRequest, error: &SendError) -> Refusal {
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

fn refused(request: &SendRequest, why: &dyn Display) -> Refusal {
    Refusal::new(format!("warning: cannot send '{}': {why}", request.snapshot))
}
