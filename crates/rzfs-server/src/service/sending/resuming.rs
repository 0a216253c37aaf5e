//! The rest of an interrupted stream, and partially received ones (spec 08, sections 8.3 and 8.5).

use super::wording::{failed, refused};
use super::{Sending, form};
use crate::protocol::{Refusal, SendRequest};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetTree};
use rzfs_format::Guid;
use rzfs_format::stream::StreamFeatures;
use rzfs_send::{Send, Source};
use rzfs_stream::ResumeToken;
use std::fmt::Display;

impl Sending {
    /// Resolves the rest of a stream (spec 08, section 8.3).
    pub(super) fn rest(pool: &Pool, request: &SendRequest, token: &str) -> Result<Self, Refusal> {
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
        let sent = request.snapshot.clone();
        Ok(Self::of_one(request, send, (from, sent)))
    }

    /// Resolves the partial state of an interrupted receive (spec 08, section 8.5).
    pub(super) fn arrived(pool: &Pool, request: &SendRequest) -> Result<Self, Refusal> {
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
        let sent = token.to_name.to_text().into_owned();
        Ok(Self::of_one(request.clone(), send, (None, sent)))
    }

    fn of_one(request: SendRequest, send: Send, step: (Option<String>, String)) -> Self {
        let (sends, steps) = (vec![send], vec![step]);
        Self { request, sends, steps, contents: None, skipped: Vec::new() }
    }
}

fn not_resumed(why: impl Display) -> Refusal {
    Refusal::new(format!("cannot resume send: {why}"))
}

/// The snapshot of an interrupted stream; it may have been renamed.
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

/// The source of an interrupted incremental stream.
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

/// Searches the file systems and volumes of a pool.
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
