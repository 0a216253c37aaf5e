//! Progress messages of `zfs send -v` (spec 08, section 7.6).

use crate::quantity::nicebytes;
use rzfs_server::protocol::StreamSize;
use rzfs_zdb::calendar::Calendar;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often progress is reported.
const INTERVAL: Duration = Duration::from_secs(1);

/// The audience of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// For people.
    Human,
    /// For programs.
    Parsable,
}

/// The format of sources of increments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sources {
    /// With its file system.
    Full,
    /// Without, if there are several.
    Short,
}

impl Style {
    /// The list of streams and their sizes.
    pub(super) fn announcement(self, sources: Sources, sizes: &[StreamSize]) -> String {
        let total: u64 = sizes.iter().map(|size| size.bytes).sum();
        let lines = sizes.iter().map(|size| self.announced(sources, size));
        let total = match self {
            Self::Parsable => format!("size\t{total}\n"),
            Self::Human => format!("total estimated size is {}\n", nicebytes(total)),
        };
        lines.chain([total]).collect()
    }

    fn announced(self, sources: Sources, size: &StreamSize) -> String {
        let StreamSize { snapshot, from, bytes } = size;
        let is_short = sources == Sources::Short;
        let at = |from: &'_ str| from.find('@').filter(|_| is_short).unwrap_or(0);
        match (self, from) {
            (Self::Parsable, None) => format!("full\t{snapshot}\t{bytes}\n"),
            (Self::Parsable, Some(from)) => {
                let from = from.get(at(from)..).unwrap_or(from).trim_start_matches('@');
                format!("incremental\t{from}\t{snapshot}\t{bytes}\n")
            }
            (Self::Human, from) => {
                let what = match from {
                    None => format!("full send of {snapshot}"),
                    Some(from) => {
                        format!("send from {} to {snapshot}", from.get(at(from)..).unwrap_or(from))
                    }
                };
                format!("{what} estimated size is {}\n", nicebytes(*bytes))
            }
        }
    }

    /// A progress line.
    fn line(self, time: &str, bytes: u64, snapshot: &str) -> String {
        match self {
            Self::Human => format!("{time}   {:>5}   {snapshot}", nicebytes(bytes)),
            Self::Parsable => format!("{time}\t{bytes}\t{snapshot}"),
        }
    }
}

/// A writer of a stream, with a thread that reports progress every second.
pub(super) struct Reported<W> {
    to: W,
    written: Arc<AtomicU64>,
    _until: Sender<()>,
}

impl<W: Write> Reported<W> {
    pub(super) fn new(to: W, style: Style, snapshot: &str, calendar: Calendar) -> Self {
        let (until, ended) = channel();
        let written = Arc::new(AtomicU64::new(0));
        let (count, snapshot) = (Arc::clone(&written), snapshot.to_owned());
        let report = move || {
            if style == Style::Human {
                eprintln!("TIME        SENT   SNAPSHOT {snapshot}");
            }
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let time = calendar.time_of_day(now.as_secs());
                eprintln!("{}", style.line(&time, count.load(Ordering::Relaxed), &snapshot));
            }
        };
        // Without a thread the stream is sent without reports.
        let _ = std::thread::Builder::new().name("progress".to_owned()).spawn(report);
        Self { to, written, _until: until }
    }
}

impl<W: Write> Write for Reported<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
