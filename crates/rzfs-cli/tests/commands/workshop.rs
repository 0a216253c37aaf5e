//! A directory with images, commands on them, and checks of the pools.

use crate::harness::{Outcome, Rzfs};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A directory for pools.
pub(crate) struct Workshop {
    pub(crate) rzfs: Rzfs,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        let rzfs = Rzfs::new();
        fs::create_dir(rzfs.path("images")).unwrap();
        Self { rzfs }
    }

    pub(crate) fn image(&self, name: &str) -> String {
        self.rzfs.path("images").join(name).to_str().unwrap().to_owned()
    }

    /// The mount point of the pool `tank`.
    pub(crate) fn root(&self) -> PathBuf {
        self.rzfs.path("root").join("tank")
    }

    /// Runs a line; upper-case words are images, `ROOT` is the alternate root.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        let word = |word: &str| match word {
            "ROOT" => self.rzfs.path("root").to_str().unwrap().to_owned(),
            "IMAGES" => self.rzfs.path("images").to_str().unwrap().to_owned(),
            _ if word.starts_with(|c: char| c.is_ascii_uppercase()) => self.image(word),
            _ => word.to_owned(),
        };
        self.rzfs.run(line.split(' ').map(word))
    }

    pub(crate) fn succeed(&self, line: &str) -> String {
        const PATIENCE: Duration = Duration::from_secs(5);
        let start = Instant::now();
        let mut outcome = self.run(line);
        // A program that another test is just starting has the files of this process for a moment.
        while line.starts_with("zpool export")
            && outcome.err.contains("pool is busy")
            && start.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(100));
            outcome = self.run(line);
        }
        assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
        outcome.out
    }

    pub(crate) fn refuse(&self, line: &str, status: i32) -> String {
        self.refuse_outcome(line, &self.run(line), status)
    }

    /// The same for words that a line cannot contain: empty ones.
    pub(crate) fn refuse_words(&self, words: &[&str], status: i32) -> String {
        self.refuse_outcome(&words.join(" "), &self.rzfs.run(words), status)
    }

    fn refuse_outcome(&self, line: &str, outcome: &Outcome, status: i32) -> String {
        assert_eq!((outcome.status, outcome.out.as_str()), (status, ""), "{line}: {outcome:?}");
        let images = format!("{}/", self.rzfs.path("images").display());
        outcome.err.replace(&images, "")
    }

    /// Checks the exported pool `tank`: by reading all of its blocks, and with OpenZFS's zdb.
    pub(crate) fn judge(&self) {
        let walked = self.run("zdb -bcc -e -p IMAGES tank");
        assert_eq!(walked.status, 0, "{walked:?}");
        assert!(walked.out.contains("No leaks"), "{walked:?}");
        if let Some(text) = self.zdb(&["-bcc"]) {
            assert!(text.contains("No leaks"), "{text}");
        }
    }

    /// The output of OpenZFS's zdb for the exported pool `tank`, which must succeed; `None` if it
    /// is not installed.
    pub(crate) fn zdb(&self, options: &[&str]) -> Option<String> {
        let images = self.rzfs.path("images");
        let pool = [OsStr::new("-e"), OsStr::new("-p"), images.as_os_str(), OsStr::new("tank")];
        rzfs_testkit::zdb(options.iter().map(OsStr::new).chain(pool))
    }
}
