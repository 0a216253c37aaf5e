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

/// Snapshots that can be sent, and that nobody destroys meanwhile. Nothing else is held of the pool: if
/// that is let go of by force, the stream has no end.
#[derive(Debug)]
pub struct Sending {
    request: SendRequest,
    sends: Vec<Send>,
    /// From what to what each of them is.
    steps: Vec<(Option<String>, String)>,
    /// What the package says that they are in; nothing if that is enough to be one, or there is none.
    contents: Option<Package>,
    /// What is left out.
    skipped: Vec<String>,
}

impl Sending {
    /// Looks for what is asked for in a pool.
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

    /// How long the streams are.
    pub(super) fn sizes(&self) -> Result<Vec<StreamSize>, Refusal> {
        let sizes = self.sends.iter().zip(&self.steps).map(|(send, (from, snapshot))| {
            let bytes = send.size().map_err(|error| failed(&self.request, &error))?;
            Ok(StreamSize { snapshot: snapshot.clone(), from: from.clone(), bytes })
        });
        sizes.collect()
    }

    /// What is left out, a line for each.
    pub(super) fn skipped(&self) -> Vec<String> {
        self.skipped.clone()
    }

    /// Writes the stream, and answers whether it is whole.
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

/// The form that is asked for, and what such streams have besides.
const fn form(request: &SendRequest, features: StreamFeatures) -> Form {
    Form {
        // The rest of a stream has blocks of the sizes that it had so far.
        large_blocks: match request.portion {
            Portion::Complete => request.large_blocks,
            Portion::Rest { .. } | Portion::Arrived => {
                features.contains(StreamFeatures::LARGE_BLOCKS)
            }
        },
        embedded: request.embedded || features.contains(StreamFeatures::EMBED_DATA),
        compressed: request.compressed || features.contains(StreamFeatures::COMPRESSED),
        // Nor is it raw if that was not.
        raw: request.raw && matches!(request.portion, Portion::Complete),
    }
}
