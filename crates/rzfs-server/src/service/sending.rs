//! Sending snapshots.

use crate::protocol::{Answer, Portion, Refusal, SendRequest, Steps, StreamSize};
use rzfs_dmu::DmuError;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetTree};
use rzfs_format::Guid;
use rzfs_format::stream::StreamFeatures;
use rzfs_send::{Form, Send, SendError, Source};
use rzfs_stream::ResumeToken;
use std::fmt::Display;
use std::io::Write;

/// Snapshots that can be sent, and that nobody destroys meanwhile. Nothing else is held of the pool: if
/// that is let go of by force, the stream has no end.
#[derive(Debug)]
pub struct Sending {
    request: SendRequest,
    sends: Vec<Send>,
    /// From what to what each of them is.
    steps: Vec<(Option<String>, String)>,
}

impl Sending {
    /// Looks for what is asked for in a pool.
    pub(super) fn open(pool: &Pool, request: &SendRequest) -> Result<Self, Refusal> {
        match &request.portion {
            Portion::Complete => {}
            Portion::Rest { token } => return Self::resume(pool, request, token),
            Portion::Arrived => return Self::arrived(pool, request),
        }
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
        let mut source = source.transpose()?;
        let targets = match (request.steps, &source) {
            (Steps::One, _) | (Steps::Each, None) => vec![snapshot],
            (Steps::Each, Some(Source::Snapshot(from))) => {
                between(from, snapshot).map_err(|error| refused(request, &error))?
            }
            (Steps::Each, Some(Source::Bookmark { .. })) => {
                return Err(refused(request, &"multiple snapshots cannot be sent from a bookmark"));
            }
        };
        let form = form(request, StreamFeatures::NONE);
        let (mut sends, mut steps) = (Vec::new(), Vec::new());
        let mut from = request.from.clone();
        for target in targets {
            let send = Send::new(&target, source.as_ref(), form, pool.features());
            sends.push(send.map_err(|error| failed(request, &error))?);
            let name = target.name().to_owned();
            steps.push((from.replace(name.clone()), name));
            source = Some(Source::Snapshot(target));
        }
        Ok(Self { request: request.clone(), sends, steps })
    }

    /// Looks for what the rest of a stream is of (spec 08, section 8.3).
    fn resume(pool: &Pool, request: &SendRequest, token: &str) -> Result<Self, Refusal> {
        let token = ResumeToken::decode(token).map_err(not_resumed)?;
        let has = |feature| token.features.contains(feature);
        let is_redacted = token.redact_snaps.is_some() || token.bookmark_redact_snaps.is_some();
        if has(StreamFeatures::RAW) || is_redacted {
            return Err(not_resumed("raw and redacted streams are not sent"));
        }
        let snapshot = sent_before(pool.datasets(), &token)?;
        let source = match token.from_guid.filter(|guid| *guid != Guid(0)) {
            Some(guid) => Some(source_before(pool.datasets(), &snapshot, guid)?),
            None => None,
        };
        let form = form(request, token.features);
        let request = SendRequest { snapshot: snapshot.name().to_owned(), ..request.clone() };
        let failed = |error| failed(&request, &error);
        let send = Send::new(&snapshot, source.as_ref(), form, pool.features()).map_err(failed)?;
        let send = send.resumed_at(token.object, token.offset).map_err(failed)?;
        let from = source.as_ref().map(|source| source.name().to_owned());
        let steps = vec![(from, request.snapshot.clone())];
        Ok(Self { request, sends: vec![send], steps })
    }

    /// Looks for what has arrived of a stream that broke off (spec 08, section 8.5).
    fn arrived(pool: &Pool, request: &SendRequest) -> Result<Self, Refusal> {
        let name = &request.snapshot;
        let target = pool.datasets().open(name).map_err(|error| match error {
            DatasetError::NotFound { .. } => {
                Refusal::new(format!("cannot open '{name}': dataset does not exist"))
            }
            error => refused(request, &error),
        })?;
        let token = target.resume_token().map_err(|error| refused(request, &error))?;
        let nothing = || refused(request, &"nothing has arrived there that can be resumed");
        let token = token.ok_or_else(nothing)?;
        let received = target.received_into().map_err(|error| refused(request, &error))?;
        let received = received.unwrap_or(target);
        let form = form(request, token.features);
        let send = Send::saved(&received, &token, form, pool.features());
        let send = send.map_err(|error| failed(request, &error))?;
        let steps = vec![(None, token.to_name.to_text().into_owned())];
        Ok(Self { request: request.clone(), sends: vec![send], steps })
    }

    /// How long the streams are.
    pub(super) fn sizes(&self) -> Result<Vec<StreamSize>, Refusal> {
        let sizes = self.sends.iter().zip(&self.steps).map(|(send, (from, snapshot))| {
            let bytes = send.size().map_err(|error| failed(&self.request, &error))?;
            Ok(StreamSize { snapshot: snapshot.clone(), from: from.clone(), bytes })
        });
        sizes.collect()
    }

    /// Writes the stream, and answers whether it is whole.
    pub fn write_to(&self, to: &mut dyn Write) -> Answer {
        let written = match (self.request.steps, self.sends.as_slice()) {
            (Steps::One, [send]) => send.write_to(to),
            (_, sends) => Send::write_package(sends, to),
        };
        match written {
            Ok(_) => Answer::Done { complaints: Vec::new() },
            Err(error) => Answer::Failed(failed(&self.request, &error)),
        }
    }
}

/// The form that is asked for, and what such streams have besides.
const fn form(request: &SendRequest, features: StreamFeatures) -> Form {
    Form {
        large_blocks: request.large_blocks || features.contains(StreamFeatures::LARGE_BLOCKS),
        embedded: request.embedded || features.contains(StreamFeatures::EMBED_DATA),
        compressed: request.compressed || features.contains(StreamFeatures::COMPRESSED),
    }
}

/// The snapshots of a head behind one of its past, up to another one, the oldest first.
fn between(from: &Dataset, to: Dataset) -> Result<Vec<Dataset>, DatasetError> {
    let created = |one: &Dataset| one.dsl_dataset().creation_txg;
    let (after, until) = (created(from), created(&to));
    let mut between = to.head()?.snapshots()?;
    between.retain(|one| created(one) > after && created(one) < until);
    between.sort_by_key(created);
    between.push(to);
    Ok(between)
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

fn not_resumed(why: impl Display) -> Refusal {
    Refusal::new(format!("cannot resume send: {why}"))
}

/// The snapshot of which a stream broke off; it may have another name by now.
fn sent_before(tree: &DatasetTree, token: &ResumeToken) -> Result<Dataset, Refusal> {
    let name = token.to_name.to_text();
    let is_it = |snapshot: &Dataset| snapshot.dsl_dataset().guid == token.to_guid;
    let named = match tree.open(&name) {
        Ok(snapshot) if snapshot.is_snapshot() => Some(snapshot),
        Ok(_) | Err(DatasetError::NotFound { .. }) => None,
        Err(error) => return Err(not_resumed(error)),
    };
    let is_there = named.is_some();
    if let Some(snapshot) = named.filter(is_it) {
        return Ok(snapshot);
    }
    let found = in_any_head(tree, |head| Ok(head.snapshots()?.into_iter().find(is_it)));
    let reason = match is_there {
        true => "is no longer the same snapshot used in the initial send",
        false => "used in the initial send no longer exists",
    };
    found.map_err(not_resumed)?.ok_or_else(|| not_resumed(format_args!("'{name}' {reason}")))
}

/// The source of the increment of which a stream broke off.
fn source_before(tree: &DatasetTree, snapshot: &Dataset, guid: Guid) -> Result<Source, Refusal> {
    let in_head = |head: &Dataset| {
        let is_it = |snapshot: &Dataset| snapshot.dsl_dataset().guid == guid;
        if let Some(found) = head.snapshots()?.into_iter().find(is_it) {
            return Ok(Some(Source::Snapshot(found)));
        }
        let bookmark = head.bookmarks()?.into_iter().find(|mark| mark.record().guid == guid);
        Ok(bookmark.map(|bookmark| Source::Bookmark { bookmark, head: head.clone() }))
    };
    let near = snapshot.head().and_then(|head| in_head(&head)).map_err(not_resumed)?;
    let found = match near {
        Some(source) => Some(source),
        None => in_any_head(tree, in_head).map_err(not_resumed)?,
    };
    let missing = || format!("incremental source {:#x} no longer exists", guid.get());
    found.ok_or_else(|| not_resumed(missing()))
}

/// Looks for something that one of the file systems and volumes of a pool has.
fn in_any_head<T>(
    tree: &DatasetTree,
    look: impl Fn(&Dataset) -> Result<Option<T>, DatasetError>,
) -> Result<Option<T>, DatasetError> {
    for head in tree.root()?.descendants()? {
        if let Some(found) = look(&head)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
