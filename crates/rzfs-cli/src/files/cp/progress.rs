//! How far a copy is, for somebody at a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};

const TEMPLATE: &str = "{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}  {msg}";

/// A bar on standard error, unless nobody looks at it.
pub(super) struct Progress {
    bar: ProgressBar,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Self {
        let is_shown = is_wanted && io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar, is_shown }
    }

    /// Whether it is worth while to find out how much there is to do.
    pub(super) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// So much more is going to be copied.
    pub(super) fn begin(&self, files: u64, bytes: u64) {
        self.bar.inc_length(bytes);
        self.bar.set_message(match files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        });
    }

    /// So many bytes are done.
    pub(super) fn bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Keeps the bar out of the way of something that is told.
    pub(super) fn suspend<T>(&self, tell: impl FnOnce() -> T) -> T {
        self.bar.suspend(tell)
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
