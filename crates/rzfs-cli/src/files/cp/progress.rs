//! The progress of a copy, for a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};

const TEMPLATE: &str = "{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}  {msg}";

/// A bar on standard error if that is a terminal.
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

    /// Whether it is worthwhile to determine the total.
    pub(super) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Adds to the total.
    pub(super) fn begin(&self, files: u64, bytes: u64) {
        self.bar.inc_length(bytes);
        self.bar.set_message(match files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        });
    }

    /// Adds bytes that are done.
    pub(super) fn bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Hides the bar while a message is printed.
    pub(super) fn suspend<T>(&self, tell: impl FnOnce() -> T) -> T {
        self.bar.suspend(tell)
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
