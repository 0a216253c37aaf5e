//! `cargo xtask fuzz`: every fuzz target for some time, from seeds that real pools give.
//!
//! Directories below the target directory: `corpus/TARGET` is what fuzzing found worth keeping,
//! `seeds/TARGET` comes from the golden pools, `artifacts/TARGET` has the inputs of findings.

use rzfs_hostile::{Seeds, Subject};
use rzfs_testkit::{GoldenStream, ReferencePool};
use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use xtask::process::{self, Failure, repository};

/// What `cargo xtask fuzz` is asked.
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// Only these targets.
    targets: Vec<String>,
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many targets run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Write the seeds, and run nothing.
    #[arg(long)]
    seeds: bool,
    /// Where to build, and where corpora are kept; `fuzz/target` when it is not said.
    #[arg(long)]
    target_dir: Option<PathBuf>,
}

/// Megabytes that one allocation may have.
const MALLOC_LIMIT: u32 = 64;
/// Megabytes that a process may have; the sanitizer needs most of them.
const RSS_LIMIT: u32 = 2048;
/// Seconds that one input may take on a busy machine.
const TIMEOUT: u32 = 60;
/// The one target that reads pools from a disk, and is slow.
const WHOLE_IMAGE: &str = "whole_image";
/// How often running targets are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A target that runs.
struct Run {
    target: String,
    process: Child,
    log: PathBuf,
}

/// What came of a target.
struct Figures {
    target: String,
    executions: u64,
    edges: u64,
    features: u64,
    corpus: u64,
    peak_rss: u64,
    ok: bool,
}

/// Builds the targets and runs them; a finding is a failure.
pub(crate) fn run(arguments: &Fuzz) -> Result<(), Failure> {
    let dir = arguments.target_dir.clone().unwrap_or_else(|| repository().join("fuzz/target"));
    write_seeds(&dir)?;
    if arguments.seeds {
        return Ok(());
    }
    let known = targets()?;
    let wanted = match arguments.targets.as_slice() {
        [] => known,
        some => some.to_vec(),
    };
    let build = ["+nightly", "fuzz", "build", "--target-dir", &dir.to_string_lossy()];
    // By name: the cargo that runs this is of another toolchain.
    let mut cargo = Command::new("cargo");
    cargo.args(build).current_dir(repository()).env_remove("RUSTUP_TOOLCHAIN");
    process::run(&mut cargo)?;
    let mut waiting = VecDeque::from(wanted);
    let (mut running, mut figures): (Vec<Run>, Vec<Figures>) = (Vec::new(), Vec::new());
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < arguments.jobs.max(1) {
            let Some(target) = waiting.pop_front() else { break };
            running.push(start(&dir, target, arguments.seconds)?);
        }
        std::thread::sleep(LOOK);
        let mut still = Vec::new();
        for mut run in running {
            let ended = run.process.try_wait().map_err(Failure::file(&run.log))?;
            match ended {
                Some(status) => figures.push(Figures::read(run, status.success())?),
                None => still.push(run),
            }
        }
        running = still;
    }
    figures.sort_by(|a, b| a.target.cmp(&b.target));
    print(&figures);
    let failed: Vec<&str> =
        figures.iter().filter(|run| !run.ok).map(|run| run.target.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(", "))) }
}

/// The names of the targets.
fn targets() -> Result<Vec<String>, Failure> {
    let dir = repository().join("fuzz/fuzz_targets");
    let files = fs::read_dir(&dir).map_err(Failure::file(&dir))?;
    let mut names: Vec<String> = files
        .flatten()
        .filter_map(|file| Some(file.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Writes what the golden pools and streams give; files are named for their contents.
fn write_seeds(dir: &Path) -> Result<(), Failure> {
    let dir = dir.join("seeds");
    let (mut count, mut bytes) = (0, 0);
    let mut write = |seeds: &Seeds| {
        write_files(&dir, seeds).map(|(more, longer)| {
            (count, bytes) = (count + more, bytes + longer);
        })
    };
    for pool in ReferencePool::all_golden() {
        let subject = Subject::open(&pool).map_err(Failure::file(pool.dir()))?;
        write(&Seeds::of(&subject))?;
    }
    for stream in GoldenStream::all() {
        let stream = stream.bytes().map_err(Failure::file(Path::new(stream.name())))?;
        write(&Seeds::of_stream(&stream))?;
    }
    println!("{count} seeds, {bytes} bytes, in {}", dir.display());
    Ok(())
}

/// Writes seeds, and answers how many files and bytes there were.
fn write_files(dir: &Path, seeds: &Seeds) -> Result<(usize, usize), Failure> {
    let (mut count, mut bytes) = (0, 0);
    for (target, seeds) in seeds.iter() {
        let dir = dir.join(target);
        fs::create_dir_all(&dir).map_err(Failure::file(&dir))?;
        for seed in seeds {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            let file = dir.join(format!("{:016x}", hasher.finish()));
            fs::write(&file, seed).map_err(Failure::file(&file))?;
            (count, bytes) = (count + 1, bytes + seed.len());
        }
    }
    Ok((count, bytes))
}

fn start(dir: &Path, target: String, seconds: u64) -> Result<Run, Failure> {
    let place = |kind: &str| dir.join(kind).join(&target);
    let (corpus, seeds, artifacts) = (place("corpus"), place("seeds"), place("artifacts"));
    for dir in [&corpus, &seeds, &artifacts] {
        fs::create_dir_all(dir).map_err(Failure::file(dir))?;
    }
    let log = artifacts.join("log");
    let output = fs::File::create(&log).map_err(Failure::file(&log))?;
    let mut command = Command::new(dir.join("x86_64-unknown-linux-gnu/release").join(&target));
    command
        .args([&corpus, &seeds])
        .args([
            format!("-max_total_time={seconds}"),
            format!("-timeout={TIMEOUT}"),
            format!("-malloc_limit_mb={MALLOC_LIMIT}"),
            format!("-rss_limit_mb={RSS_LIMIT}"),
            format!("-artifact_prefix={}/", artifacts.display()),
            "-print_final_stats=1".to_owned(),
            "-use_value_profile=1".to_owned(),
        ])
        .current_dir(repository())
        // libdeflate's kernels have tables of the same name.
        .env("ASAN_OPTIONS", "detect_odr_violation=0")
        .stdout(Stdio::null())
        .stderr(output);
    if target == WHOLE_IMAGE {
        // A list of patches is short.
        command.arg("-max_len=512");
    }
    let program = process::words(&command);
    let process = command.spawn().map_err(|source| Failure::Start { program, source })?;
    Ok(Run { target, process, log })
}

impl Figures {
    /// What libFuzzer says at the end of its log.
    fn read(run: Run, ok: bool) -> Result<Self, Failure> {
        let log = fs::read(&run.log).map_err(Failure::file(&run.log))?;
        let log = String::from_utf8_lossy(&log);
        let final_stat = |name: &str| {
            let line = log.lines().rev().find(|line| line.contains(name));
            let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
            number.unwrap_or(0)
        };
        // "#123 NEW cov: 45 ft: 67 corp: 8/90b ..."
        let status = log.lines().rev().find(|line| line.contains(" cov: ")).unwrap_or_default();
        let words: Vec<&str> = status.split_whitespace().collect();
        let after = |name: &str| {
            let pair = words.windows(2).find(|pair| pair[0] == name);
            let number = pair.and_then(|pair| pair[1].split('/').next()?.parse().ok());
            number.unwrap_or(0)
        };
        if !ok {
            let end: Vec<&str> = log.lines().rev().take(40).collect();
            println!("== {}", run.target);
            end.iter().rev().for_each(|line| println!("{line}"));
        }
        Ok(Self {
            executions: final_stat("stat::number_of_executed_units"),
            peak_rss: final_stat("stat::peak_rss_mb"),
            edges: after("cov:"),
            features: after("ft:"),
            corpus: after("corp:"),
            target: run.target,
            ok,
        })
    }
}

fn print(figures: &[Figures]) {
    println!(
        "{:<18} {:>12} {:>8} {:>9} {:>7} {:>8}  result",
        "target", "executions", "edges", "features", "corpus", "peak MB"
    );
    for run in figures {
        println!(
            "{:<18} {:>12} {:>8} {:>9} {:>7} {:>8}  {}",
            run.target,
            run.executions,
            run.edges,
            run.features,
            run.corpus,
            run.peak_rss,
            if run.ok { "ok" } else { "FINDING" }
        );
    }
}
