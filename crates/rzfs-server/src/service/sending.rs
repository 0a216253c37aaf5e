//! Sending snapshots.

mod contents;
mod plan;
mod resuming;
mod wording;

use crate::protocol::{Answer, Portion, Refusal, SendRequest, Steps, StreamSize};
use plan::Plan;
use rzfs_dsl::Pool;
use rzfs_format::stream::StreamFeatures;
use rzfs_send::{Form, Send};
use rzfs_stream::Package;
use std::io::Write;
use wording::failed;

/// Snapshots ready to be sent, which cannot be destroyed meanwhile. Nothing else of the pool is
/// held: after a forced end the stream breaks off.
#[derive(Debug)]
pub struct Sending {
    request: SendRequest,
    sends: Vec<Send>,
    /// The source and the snapshot of each.
    steps: Vec<(Option<String>, String)>,
    /// The contents described by the package; `None` without a description or a package.
    contents: Option<Package>,
    /// Omissions.
    skipped: Vec<String>,
}

impl Sending {
    /// Resolves a request in a pool.
    pub(super) fn open(pool: &Pool, request: &SendRequest) -> Result<Self, Refusal> {
        match &request.portion {
            Portion::Complete => {}
            Portion::Rest { token } => return Self::rest(pool, request, token),
            Portion::Arrived => return Self::arrived(pool, request),
        }
        let plan = Plan::of(pool, request)?;
        let contents = contents::of(&plan, request)?;
        let form = form(request, StreamFeatures::NONE);
        let (mut sends, mut steps) = (Vec::new(), Vec::new());
        for step in &plan.steps {
            let send = Send::new(&step.snapshot, step.source.as_ref(), form, pool.features());
            sends.push(send.map_err(|error| failed(request, &error))?);
            steps.push((step.from.clone(), step.snapshot.name().to_owned()));
        }
        Ok(Self { request: request.clone(), sends, steps, contents, skipped: plan.skipped })
    }

    /// The sizes of the streams.
    pub(super) fn sizes(&self) -> Result<Vec<StreamSize>, Refusal> {
        let sizes = self.sends.iter().zip(&self.steps).map(|(send, (from, snapshot))| {
            let bytes = send.size().map_err(|error| failed(&self.request, &error))?;
            Ok(StreamSize { snapshot: snapshot.clone(), from: from.clone(), bytes })
        });
        sizes.collect()
    }

    /// Omissions, a line for each.
    pub(super) fn skipped(&self) -> Vec<String> {
        self.skipped.clone()
    }

    /// Writes the stream, and returns whether it is complete.
    pub fn write_to(&self, to: &mut dyn Write) -> Answer {
        let is_package = self.contents.is_some() || self.request.steps == Steps::Each;
        let written = match self.sends.as_slice() {
            [send] if !is_package => send.write_to(to),
            sends => {
                let head = (self.request.snapshot.as_str(), self.contents.as_ref());
                Send::write_package(sends, head, to)
            }
        };
        match written {
            Ok(_) => Answer::Done { complaints: self.skipped() },
            Err(error) => Answer::Failed(failed(&self.request, &error)),
        }
    }
}

/// The requested form, combined with the features of such streams.
const fn form(request: &SendRequest, features: StreamFeatures) -> Form {
    Form {
        // The rest of a stream keeps the block sizes of its beginning.
        large_blocks: match request.portion {
            Portion::Complete => request.large_blocks,
            Portion::Rest { .. } | Portion::Arrived => {
                features.contains(StreamFeatures::LARGE_BLOCKS)
            }
        },
        embedded: request.embedded || features.contains(StreamFeatures::EMBED_DATA),
        compressed: request.compressed || features.contains(StreamFeatures::COMPRESSED),
        // Nor is it raw unless its beginning was.
        raw: request.raw && matches!(request.portion, Portion::Complete),
    }
}
