//! rzfs and zfs-fuse reading the same image in turn.
//!
//! Everything is cold in every figure: for each the file system is mounted afresh, so that its
//! daemon has cached nothing, and the kernel's caches are dropped. Contestants take turns for each
//! row, so that whatever else the machine does hits all alike; medians of the rounds are printed.

use super::contestant::{Contestant, Field};
use super::median::median;
use super::process_use::ProcessUse;
use super::work::{FILES, Work, drop_kernel_caches, fio_command, small_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::process::{self, Failure, cargo, repository};

/// Arguments of `cargo xtask bench zfs-fuse`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often each contestant does each work.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The folder with the image `zf.img`, which is made and filled where there is none; by
    /// default `bench` in the target directory.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Where the Debian package zfs-fuse is unpacked.
    #[arg(long, value_name = "DIR")]
    zfs_fuse: Option<PathBuf>,
    /// Only work whose name has this in it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Leave the host's own file system out.
    #[arg(long)]
    without_host: bool,
}

/// What one contestant has shown in one work, round by round.
#[derive(Default)]
struct Series {
    figures: Vec<f64>,
    processor: Vec<f64>,
    peak_memory: u64,
}

type Results = BTreeMap<(Work, Contestant), Series>;

/// Measures and reports.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    process::run(&mut cargo(&["build", "--release", "--package", "rzfs-cli", "--locked"]))?;
    let field = Field { folder: folder(arguments), zfs_fuse: zfs_fuse(arguments) };
    std::fs::create_dir_all(&field.folder)
        .map_err(|source| Failure::Start { program: field.folder.display().to_string(), source })?;
    prepare(&field)?;
    let works: Vec<Work> =
        Work::ALL.into_iter().filter(|work| work.name().contains(&arguments.only)).collect();
    let mut contestants: Vec<Contestant> = Contestant::ALL
        .into_iter()
        .filter(|contestant| !arguments.without_host || *contestant != Contestant::Host)
        .collect();
    let mut results = Results::new();
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}, load {}", arguments.rounds, load());
        for work in &works {
            for contestant in &contestants {
                measure(&field, *work, *contestant, &mut results)?;
            }
        }
        contestants.reverse();
    }
    report(&works, &results);
    Ok(())
}

fn folder(arguments: &Arguments) -> PathBuf {
    arguments.folder.clone().unwrap_or_else(|| {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        target.unwrap_or_else(|| repository().join("target")).join("bench")
    })
}

fn zfs_fuse(arguments: &Arguments) -> PathBuf {
    arguments.zfs_fuse.clone().unwrap_or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        home.join(".cache/rzfs-reference/zfs-fuse")
    })
}

fn measure(
    field: &Field,
    work: Work,
    contestant: Contestant,
    results: &mut Results,
) -> Result<(), Failure> {
    let mounted = field.open(contestant)?;
    drop_kernel_caches()?;
    let before = mounted.process_use();
    let figure = work.run(&mounted.files)?;
    let after = mounted.process_use();
    mounted.close()?;
    let ProcessUse { processor, peak_memory, .. } = after;
    let series = results.entry((work, contestant)).or_default();
    series.figures.push(figure);
    series.processor.push(processor.saturating_sub(before.processor).as_secs_f64());
    series.peak_memory = series.peak_memory.max(peak_memory);
    Ok(())
}

/// The three numbers of the load.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Makes the image with zfs-fuse and the host's copy of its files, where they are not there.
fn prepare(field: &Field) -> Result<(), Failure> {
    if !field.image().exists() {
        eprintln!("making {}", field.image().display());
        let mounted = field.create()?;
        fill(&mounted.files)?;
        mounted.close()?;
    }
    let copy = field.host_copy();
    if !copy.exists() {
        let mounted = field.open(Contestant::ZfsFuse)?;
        make_folder(&copy)?;
        process::run(
            Command::new("cp").args(["-aT", "--sparse=never"]).arg(&mounted.files).arg(&copy),
        )?;
        mounted.close()?;
    }
    Ok(())
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|source| Failure::Start { program: folder.display().to_string(), source })
}

/// Writes what the work reads.
fn fill(folder: &Path) -> Result<(), Failure> {
    make_folder(&folder.join("many"))?;
    process::run(fio_command(folder, "write", "1m").args(["--end_fsync=1", "--output=/dev/null"]))?;
    for number in 0..FILES {
        let file = small_file(folder, number);
        std::fs::write(&file, [b'x'; 100])
            .map_err(|source| Failure::Start { program: file.display().to_string(), source })?;
    }
    process::run(Command::new("cp").args(["-a", "/usr/include"]).arg(folder.join("tree")))
}

fn report(works: &[Work], results: &Results) {
    let shown = |work: Work, contestant, of: fn(&Series) -> Option<f64>| {
        results.get(&(work, contestant)).and_then(of)
    };
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), number);
    let figure: fn(&Series) -> Option<f64> = |series| median(series.figures.clone());
    let processor: fn(&Series) -> Option<f64> = |series| median(series.processor.clone());
    let memory: fn(&Series) -> Option<f64> =
        |series| Some(series.peak_memory as f64 / f64::from(1 << 20));
    println!("| cold | host | zfs-fuse | rzfs | rzfs is faster by |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for work in works {
        let of = |contestant| shown(*work, contestant, figure);
        let (theirs, ours) = (of(Contestant::ZfsFuse), of(Contestant::Rzfs));
        let ratio = match (theirs, ours) {
            (Some(theirs), Some(ours)) if work.is_rate() => ours / theirs,
            (Some(theirs), Some(ours)) => theirs / ours,
            _ => f64::NAN,
        };
        let host = cell(of(Contestant::Host));
        println!("| {} | {host} | {} | {} | {ratio:.2} |", work.name(), cell(theirs), cell(ours));
    }
    println!();
    println!("| daemon | zfs-fuse CPU s | rzfs CPU s | zfs-fuse peak MiB | rzfs peak MiB |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for work in works {
        let (zfs_fuse, rzfs) = (Contestant::ZfsFuse, Contestant::Rzfs);
        println!(
            "| {} | {} | {} | {} | {} |",
            work.name(),
            cell(shown(*work, zfs_fuse, processor)),
            cell(shown(*work, rzfs, processor)),
            cell(shown(*work, zfs_fuse, memory)),
            cell(shown(*work, rzfs, memory)),
        );
    }
}

/// Three digits or more.
fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
