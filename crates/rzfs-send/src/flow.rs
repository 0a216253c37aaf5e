//! Concurrent walking, reading and writing.
//!
//! The queues between threads are bounded, so a slow sink stops the reader, which stops the walk.
//! The end of one thread ends the others: a sender finds its receiver gone, a receiver its sender.

use crate::SendError;
use crate::batch::{Batch, Payload, Piece, ReadBatch};
use crate::records::{Records, SMALL_BLOCK, Terms};
use rzfs_dmu::Objset;
use rzfs_format::stream::{RECORD_SIZE, Record, Write as WriteRecord};
use rzfs_stream::StreamWriter;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Batches queued between two threads.
const AHEAD: usize = 1;

/// Writes all records of an object set.
pub(crate) fn write<W: Write>(
    objset: &Objset,
    terms: Terms,
    writer: &mut StreamWriter<W>,
) -> Result<(), SendError> {
    let (found, to_read) = sync_channel(AHEAD);
    let (read, to_write) = sync_channel(AHEAD);
    thread::scope(|scope| {
        let send = move |batch| match found.send(batch) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let walk = scope.spawn(move || walk(objset, terms, send));
        scope.spawn(move || read_all(objset, &to_read, &read));
        let written = write_all(&terms, to_write, writer);
        let walked = walk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(walked)
    })
}

/// Size of all records of an object set, determined by a walk that reads no contents.
pub(crate) fn measure(objset: &Objset, terms: Terms) -> Result<u64, SendError> {
    let mut bytes = 0_u64;
    walk(objset, terms, |batch| {
        bytes = bytes.saturating_add(size_of(&terms, &batch));
        ControlFlow::Continue(())
    })?;
    Ok(bytes)
}

/// Size of a batch in the stream.
fn size_of(terms: &Terms, batch: &Batch) -> u64 {
    let stored: u64 = batch.stored.iter().map(|(pointer, _)| pointer.physical_size()).sum();
    let contents: u64 = batch.contents.iter().map(|(pointer, _)| pointer.logical_size()).sum();
    let parts = |piece: &Piece| match (&piece.payload, &piece.record) {
        (Payload::Contents(_), Record::Write(whole)) if !terms.is_whole(whole.logical_size) => {
            whole.logical_size.div_ceil(SMALL_BLOCK)
        }
        _ => 1,
    };
    let records: u64 = batch.pieces.iter().map(parts).sum();
    records * RECORD_SIZE as u64 + batch.inline.len() as u64 + stored + contents
}

/// Walks over the blocks to be sent, as long as they are wanted.
fn walk(
    objset: &Objset,
    terms: Terms,
    found: impl FnMut(Batch) -> ControlFlow<()>,
) -> Result<(), SendError> {
    let mut records = Records::new(terms, found);
    let traversal = objset.traversal().born_after(terms.after).with_holes_past_the_end();
    let traversal = traversal.resumed_at(terms.start);
    let _ = traversal.run(objset.root(), &mut records);
    records.finish()?;
    // The walk itself does not check this.
    Ok(objset.require_current()?)
}

/// Reads the blocks of batches.
fn read_all(objset: &Objset, to_read: &Receiver<Batch>, read: &SyncSender<ReadBatch>) {
    for batch in to_read {
        let contents = objset.read_past_cache(&batch.contents);
        let stored = objset.read_stored(&batch.stored);
        if read.send(ReadBatch { batch, contents, stored }).is_err() {
            return;
        }
    }
}

/// Writes batches. Its end of the queue is dropped on return, which ends the other threads.
fn write_all<W: Write>(
    terms: &Terms,
    to_write: Receiver<ReadBatch>,
    writer: &mut StreamWriter<W>,
) -> Result<(), SendError> {
    to_write.into_iter().try_for_each(|batch| write_batch(terms, batch, writer))
}

fn write_batch<W: Write>(
    terms: &Terms,
    read: ReadBatch,
    writer: &mut StreamWriter<W>,
) -> Result<(), SendError> {
    let ReadBatch { batch, contents, stored } = read;
    for Piece { record, payload } in batch.pieces {
        match payload {
            Payload::Inline(range) => {
                writer.write(&record, batch.inline.get(range).unwrap_or_default())?;
            }
            Payload::Stored(index) => match stored.get(index) {
                Some(Ok(stored)) => writer.write(&record, stored)?,
                Some(Err(error)) => return Err(error.clone().into()),
                None => {}
            },
            Payload::Contents(index) => match contents.get(index) {
                Some(Ok(block)) => write_contents(terms, record, &block.data, writer)?,
                Some(Err(error)) => return Err(error.clone().into()),
                None => {}
            },
        }
    }
    Ok(())
}

/// Writes a block, as several if it is too large for the stream.
fn write_contents<W: Write>(
    terms: &Terms,
    record: Record,
    contents: &[u8],
    writer: &mut StreamWriter<W>,
) -> Result<(), SendError> {
    let Record::Write(whole) = record else { return Ok(writer.write(&record, contents)?) };
    if terms.is_whole(whole.logical_size) {
        return Ok(writer.write(&record, contents)?);
    }
    let mut offset = whole.offset;
    for part in contents.chunks(SMALL_BLOCK as usize) {
        let part_of_it = WriteRecord { offset, logical_size: part.len() as u64, ..whole };
        writer.write(&Record::Write(part_of_it), part)?;
        offset = offset.saturating_add(part.len() as u64);
    }
    Ok(())
}
