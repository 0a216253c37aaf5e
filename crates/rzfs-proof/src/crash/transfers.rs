//! Receiving snapshots of the root file system in another one of the same pool.

use crate::{OpenPool, ProofError, differences, read_dataset, record};
use rzfs_dmu::txg::TxgEngine;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_format::Guid;
use rzfs_format::stream::StreamFeatures;
use rzfs_receive::{ReceiveError, Remains};
use rzfs_send::{Form, Send, Source};
use std::io::Read;
use std::sync::Arc;

/// Number of groups that end while a stream is received.
const GROUPS: usize = 4;

/// How far a stream gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passage {
    /// To its end.
    Whole,
    /// It breaks off, and the partial data is kept, or not.
    BreaksOff(Remains),
}

/// A stream that waits from time to time until the received part is on disk.
struct Slow<'a> {
    stream: &'a [u8],
    engine: Arc<TxgEngine>,
    every: usize,
    read: usize,
}

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(buffer)?;
        if (self.read + read) / self.every > self.read / self.every {
            let synced = self.engine.wait_synced(self.engine.open_txg());
            synced.map_err(std::io::Error::other)?;
        }
        self.read += read;
        Ok(read)
    }
}

/// The next stream to send.
struct Next {
    snapshot: Dataset,
    /// All of it, or the remainder.
    stream: Vec<u8>,
}

/// Makes `target` receive the last snapshot of the root, or the remainder of a partial receive.
pub(super) fn transfer(
    open: &mut OpenPool,
    target: &str,
    passage: Passage,
    form: Form,
) -> Result<(), ProofError> {
    let view = open.pool.view()?;
    let Some(next) = next_stream(&view, target, form)? else { return Ok(()) };
    drop(view);
    let (length, remains) = match passage {
        Passage::Whole => (next.stream.len(), Remains::Destroyed),
        Passage::BreaksOff(remains) => (next.stream.len() * 2 / 3, remains),
    };
    let stream = next.stream.get(..length).unwrap_or_default();
    let engine = Arc::clone(open.pool.engine());
    let stream = Slow { stream, engine, every: length / GROUPS + 1, read: 0 };
    match (open.receive(target, stream, remains), passage) {
        (Ok(()), Passage::Whole) => is_received(open, &next, target),
        (Ok(()), Passage::BreaksOff(_)) => {
            Err(unlike(&next.snapshot, "half of a stream was received as a whole"))
        }
        (Err(ProofError::Receive(error)), Passage::BreaksOff(_))
            if matches!(*error, ReceiveError::Stream(_)) =>
        {
            Ok(())
        }
        (Err(error), _) => Err(error),
    }
}

/// The stream with what the target lacks.
fn next_stream(pool: &Pool, target: &str, form: Form) -> Result<Option<Next>, ProofError> {
    let snapshots = pool.datasets().root()?.snapshots()?;
    let with_guid = |guid: Guid| {
        let is_it = |one: &&Dataset| one.dsl_dataset().guid == guid;
        snapshots.iter().find(is_it).cloned()
    };
    let target = match pool.datasets().open(target) {
        Err(DatasetError::NotFound { .. }) => None,
        target => Some(target?),
    };
    let token = target.as_ref().map(Dataset::resume_token).transpose()?.flatten();
    let stream = |snapshot: &Dataset, source: Option<&Dataset>, form| {
        let source = source.cloned().map(Source::Snapshot);
        Send::new(snapshot, source.as_ref(), form, pool.features())
    };
    let mut bytes = Vec::new();
    if let Some(token) = token {
        let Some(snapshot) = with_guid(token.to_guid) else { return Ok(None) };
        let source = token.from_guid.and_then(with_guid);
        let compressed = token.features.contains(StreamFeatures::COMPRESSED);
        let send = stream(&snapshot, source.as_ref(), Form { compressed, ..Form::default() })?;
        send.resumed_at(token.object, token.offset)?.write_to(&mut bytes)?;
        return Ok(Some(Next { snapshot, stream: bytes }));
    }
    let Some(snapshot) = snapshots.last().cloned() else { return Ok(None) };
    let received = target.as_ref().map(Dataset::snapshots).transpose()?.unwrap_or_default();
    let mut common = received.iter().rev().map(|one| one.dsl_dataset().guid);
    let source = common.find_map(with_guid);
    if source.as_ref().is_some_and(|source| source.object() == snapshot.object()) {
        return Ok(None);
    }
    stream(&snapshot, source.as_ref(), form)?.write_to(&mut bytes)?;
    Ok(Some(Next { snapshot, stream: bytes }))
}

/// Whether the received data equals the sent data.
fn is_received(open: &OpenPool, next: &Next, target: &str) -> Result<(), ProofError> {
    let sent = next.snapshot.name();
    let (_, name) = sent.split_once('@').unwrap_or_default();
    let view = open.pool.view()?;
    let expected = record(&read_dataset(&view, sent)?)?;
    let found = record(&read_dataset(&view, &format!("{target}@{name}"))?)?;
    match differences(&expected, &found).first() {
        Some(difference) => Err(unlike(&next.snapshot, difference)),
        None => Ok(()),
    }
}

fn unlike(snapshot: &Dataset, difference: &str) -> ProofError {
    ProofError::Received { snapshot: snapshot.name().to_owned(), difference: difference.to_owned() }
}
