//! What a process has used, as `/proc` tells.

use std::path::Path;
use std::time::Duration;

/// Processor time and memory of a process.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ProcessUse {
    /// Time on processors, in user and system mode.
    pub(crate) processor: Duration,
    /// The most memory that was resident, in bytes.
    pub(crate) peak_memory: u64,
    /// The memory that is resident, in bytes.
    pub(crate) resident: u64,
}

impl ProcessUse {
    /// What a process has used up to now; nothing of one that has gone.
    pub(crate) fn of(process: u32) -> Self {
        let at = Path::new("/proc").join(process.to_string());
        let read = |name| std::fs::read_to_string(at.join(name)).unwrap_or_default();
        let status = read("status");
        Self {
            processor: processor(&read("stat")),
            peak_memory: memory(&status, "VmHWM:"),
            resident: memory(&status, "VmRSS:"),
        }
    }
}

/// Fields 14 and 15, in hundredths of a second; the command's name before may have blanks.
fn processor(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn memory(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let kilobytes = line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_proc_are_found() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 0 1 2 3 4 150 25 0 0 20 0 1 0 9 8 7";
        assert_eq!(processor(stat), Duration::from_millis(1750));
        assert_eq!(memory("VmPeak:\t 9 kB\nVmHWM:\t    2048 kB\n", "VmHWM:"), 2 << 20);
        assert!(ProcessUse::of(std::process::id()).peak_memory > 0);
    }
}
