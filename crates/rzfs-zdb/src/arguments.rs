//! The command line of zdb.

use super::error::ZdbError;
use super::text::NumberStyle;
use std::path::PathBuf;

/// What to show, and of what. Options are OpenZFS's; repeating one shows more.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Block statistics: walk all blocks and compare them with the space maps
    #[arg(short = 'b', long = "block-stats", action = clap::ArgAction::Count)]
    pub blocks: u8,
    /// Verify the checksums of metadata (twice: of all blocks) while walking them
    #[arg(short = 'c', long = "checksum", action = clap::ArgAction::Count)]
    pub checksum: u8,
    /// The configuration
    #[arg(short = 'C', long = "config", action = clap::ArgAction::Count)]
    pub config: u8,
    /// Datasets and objects
    #[arg(short = 'd', long = "datasets", action = clap::ArgAction::Count)]
    pub datasets: u8,
    /// Dedup tables
    #[arg(short = 'D', long = "dedup-stats", action = clap::ArgAction::Count)]
    pub dedup: u8,
    /// Decode an embedded block pointer: sixteen words in hex with colons between them
    #[arg(short = 'E', long = "embedded-block-pointer", action = clap::ArgAction::Count)]
    pub embedded: u8,
    /// The pool's history
    #[arg(short = 'h', long = "history", action = clap::ArgAction::Count)]
    pub history: u8,
    /// Intent logs
    #[arg(short = 'i', long = "intent-logs", action = clap::ArgAction::Count)]
    pub intent_logs: u8,
    /// The state of the pool at its checkpoint
    #[arg(short = 'k', long = "checkpointed-state", action = clap::ArgAction::Count)]
    pub checkpoint: u8,
    /// The labels of a device
    #[arg(short = 'l', long = "label", action = clap::ArgAction::Count)]
    pub label: u8,
    /// Do not load space maps nor look for leaks
    #[arg(short = 'L', long = "disable-leak-tracking", action = clap::ArgAction::Count)]
    pub no_leaks: u8,
    /// Metaslabs and their space maps
    #[arg(short = 'm', long = "metaslabs", action = clap::ArgAction::Count)]
    pub metaslabs: u8,
    /// Metaslab groups
    #[arg(short = 'M', long = "metaslab-groups", action = clap::ArgAction::Count)]
    pub metaslab_groups: u8,
    /// Take a numeric dataset name as an objset number
    #[arg(short = 'N', action = clap::ArgAction::Count)]
    pub numeric_dataset: u8,
    /// Look up a path in a dataset and show its object
    #[arg(short = 'O', long = "object-lookups", action = clap::ArgAction::Count)]
    pub object_lookup: u8,
    /// Copy a file out of a dataset
    #[arg(short = 'r', long = "copy-object", action = clap::ArgAction::Count)]
    pub copy_object: u8,
    /// Read a block: `VDEV:OFFSET:[LSIZE/]PSIZE[:FLAGS]`, in hex
    #[arg(short = 'R', long = "read-block", action = clap::ArgAction::Count)]
    pub read_block: u8,
    /// Statistics of the I/O that this command did
    #[arg(short = 's', long = "io-stats", action = clap::ArgAction::Count)]
    pub io_stats: u8,
    /// Simulate dedup of all data
    #[arg(short = 'S', long = "simulate-dedup", action = clap::ArgAction::Count)]
    pub simulate_dedup: u8,
    /// Block reference tables (block cloning)
    #[arg(short = 'T', long = "brt-stats", action = clap::ArgAction::Count)]
    pub block_references: u8,
    /// The uberblock
    #[arg(short = 'u', long = "uberblock", action = clap::ArgAction::Count)]
    pub uberblock: u8,
    /// Check livelists that are being deleted against the metaslabs
    #[arg(short = 'y', long = "livelist", action = clap::ArgAction::Count)]
    pub livelists: u8,
    /// Show more of everything
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Accepted and without effect: no check aborts this command
    #[arg(short = 'A', long = "ignore-assertions", action = clap::ArgAction::Count)]
    pub ignore_assertions: u8,
    /// The pool is exported: look for its devices
    #[arg(short = 'e', long = "exported", action = clap::ArgAction::Count)]
    pub exported: u8,
    /// Accepted and without effect: there is no debug log
    #[arg(short = 'G', long = "dump-debug-msg", action = clap::ArgAction::Count)]
    pub debug_log: u8,
    /// Go back to an older transaction group if the newest cannot be opened
    #[arg(short = 'F', long = "automatic-rewind", action = clap::ArgAction::Count)]
    pub rewind: u8,
    /// Like -F, as far back as there are uberblocks
    #[arg(short = 'X', long = "extreme-rewind", action = clap::ArgAction::Count)]
    pub extreme_rewind: u8,
    /// Accepted and without effect: reconstruction always tries all combinations
    #[arg(short = 'Y', long = "all-reconstruction", action = clap::ArgAction::Count)]
    pub all_reconstruction: u8,
    /// Show numbers with all digits
    #[arg(short = 'P', long = "parseable", action = clap::ArgAction::Count)]
    pub parseable: u8,
    /// With -l: show no label
    #[arg(short = 'q', long = "skip-label", action = clap::ArgAction::Count)]
    pub quiet: u8,
    /// Accepted and without effect: the configuration of the labels is always checked
    #[arg(short = 'V', long = "verbatim", action = clap::ArgAction::Count)]
    pub verbatim: u8,
    /// Show the headers of zstd blocks
    #[arg(short = 'Z', long = "zstd-headers", action = clap::ArgAction::Count)]
    pub zstd_headers: u8,
    /// With -e: where to look for devices; can be repeated
    #[arg(short = 'p', long = "path", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The newest transaction group to consider
    #[arg(short = 't', long = "txg", value_name = "TXG")]
    pub txg: Option<u64>,
    /// Another cache file than /etc/zfs/zpool.cache
    #[arg(short = 'U', long = "cachefile", value_name = "PATH")]
    pub cache_file: Option<PathBuf>,
    /// Most checksummed reads at a time
    #[arg(short = 'I', long = "inflight", value_name = "COUNT")]
    pub inflight: Option<u32>,
    /// Key of an encrypted dataset
    #[arg(short = 'K', long = "key", value_name = "KEY")]
    pub key: Option<String>,
    /// Set a tunable: NAME=VALUE
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    pub tunables: Vec<String>,
    /// Pool, dataset or device, then objects, ranges, vdevs, metaslabs or paths
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Print help
    #[arg(long = "help", action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

impl Arguments {
    /// Refuses unsupported options: silence would look like a clean report.
    pub(crate) fn check(&self) -> Result<(), ZdbError> {
        let absent = [(self.livelists, 'y'), (self.zstd_headers, 'Z')];
        if let Some((_, option)) = absent.iter().find(|(count, _)| *count > 0) {
            return Err(ZdbError::Usage(format!("option -{option} is not available")));
        }
        if self.copy_object > 0 {
            return Ok(());
        }
        let shows_objects = self.shows_objects();
        let is_dataset =
            |target: &String| self.label == 0 && !shows_objects && target.contains(['/', '@', '#']);
        match self.targets.as_slice() {
            [_, extra, ..] if self.metaslabs == 0 && self.read_block == 0 && !shows_objects => {
                Err(ZdbError::Usage(format!("'{extra}' is one word too many")))
            }
            [target] if is_dataset(target) => {
                Err(ZdbError::Usage(format!("'{target}': only whole pools can be examined")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the command line asks for datasets or objects, so that the words after the pool name
    /// them.
    pub(crate) fn shows_objects(&self) -> bool {
        self.datasets > 0
            || self.intent_logs > 0
            || self.object_lookup > 0
            || self.numeric_dataset > 0
    }

    /// The format of numbers.
    pub(crate) fn number_style(&self) -> NumberStyle {
        if self.parseable > 0 { NumberStyle::Plain } else { NumberStyle::Scaled }
    }

    /// The effective options: `-v` shows more of everything, and without an option that selects a
    /// report all are shown.
    pub(crate) fn with_verbosity(&self) -> Self {
        let mut effective = self.clone();
        effective.datasets = match (self.object_lookup, self.verbose) {
            (0, _) if self.numeric_dataset > 0 => self.datasets.max(self.numeric_dataset),
            (0, _) => self.datasets,
            // Looking up an object lists it; further output depends on -v alone.
            (_, 0) => 1,
            _ => 3,
        };
        let asked = self.label > 0 || effective.reports().iter().any(|count| **count > 0);
        let verbosity = if asked { self.verbose } else { self.verbose.max(1) };
        for report in effective.reports() {
            if !asked {
                *report = 1;
            }
            if *report > 0 {
                *report = report.saturating_add(verbosity);
            }
        }
        effective
    }

    /// The options that select reports.
    fn reports(&mut self) -> [&mut u8; 12] {
        [
            &mut self.blocks,
            &mut self.checksum,
            &mut self.config,
            &mut self.datasets,
            &mut self.dedup,
            &mut self.history,
            &mut self.intent_logs,
            &mut self.metaslabs,
            &mut self.metaslab_groups,
            &mut self.io_stats,
            &mut self.block_references,
            &mut self.uberblock,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_adds_to_what_is_asked_for() {
        let blocks = Arguments { blocks: 1, verbose: 2, ..Arguments::default() };
        assert_eq!((blocks.with_verbosity().blocks, blocks.with_verbosity().config), (3, 0));
        let all = Arguments::default().with_verbosity();
        assert_eq!((all.blocks, all.datasets, all.uberblock), (2, 2, 2));
        assert_eq!((all.label, all.read_block), (0, 0));
        let label = Arguments { label: 1, ..Arguments::default() }.with_verbosity();
        assert_eq!((label.label, label.uberblock), (1, 0));
    }

    #[test]
    fn what_is_not_shown_is_refused() {
        let refused = |arguments: Arguments| arguments.check().unwrap_err().to_string();
        assert_eq!(
            refused(Arguments { livelists: 1, ..Arguments::default() }),
            "option -y is not available"
        );
        let with = |targets: &[&str]| Arguments {
            blocks: 1,
            targets: targets.iter().map(|target| (*target).to_owned()).collect(),
            ..Arguments::default()
        };
        assert_eq!(refused(with(&["tank", "1"])), "'1' is one word too many");
        assert_eq!(refused(with(&["tank/fs"])), "'tank/fs': only whole pools can be examined");
        assert!(with(&["tank"]).check().is_ok());
        assert!(Arguments { label: 1, ..with(&["/dev/sda"]) }.check().is_ok());
    }
}
