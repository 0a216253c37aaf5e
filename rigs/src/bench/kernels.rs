//! The speed of kernels as a table, out of what criterion leaves behind.
//!
//! The fastest sample counts: kernels do the same work each time, so that whatever makes one slower
//! is the rest of the machine.

use super::openzfs;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::process::{self, Failure, cargo, repository};

/// The benches of kernels.
const BENCHES: [&str; 4] = ["checksum", "parity", "compression", "encryption"];

/// Arguments of `cargo xtask bench kernels`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only kernels whose name has this in it, as criterion filters.
    #[arg(value_name = "TEXT", default_value = "")]
    only: String,
    /// Measure OpenZFS's kernels too; needs its packages (zfs-test) and takes minutes.
    #[arg(long)]
    openzfs: bool,
    /// Print what the last run has measured, without measuring.
    #[arg(long)]
    again: bool,
}

/// A measured kernel.
#[derive(PartialEq, Debug)]
struct Measured {
    name: String,
    size: String,
    /// Bytes a second.
    speed: f64,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| repository().join("target"));
    if !arguments.again {
        let mut command = cargo(&["bench", "--package", "rzfs-benches", "--locked"]);
        for bench in BENCHES {
            command.args(["--bench", bench]);
        }
        process::run(command.args(["--", "--noplot"]).arg(filter(&arguments.only)))?;
    }
    let mut measured = Vec::new();
    collect(&target.join("criterion"), &mut measured)
        .map_err(|source| Failure::Start { program: target.display().to_string(), source })?;
    measured.sort_by(|a, b| (&a.name, size_of(a)).cmp(&(&b.name, size_of(b))));
    report(&measured, &arguments.only);
    if arguments.openzfs {
        let mut kernels = openzfs::fletcher4(&target)?;
        kernels.extend(openzfs::raidz()?);
        println!("\n| OpenZFS | fastest kernel | bytes | GB/s |\n| --- | --- | ---: | ---: |");
        for kernel in openzfs::fastest(kernels) {
            let openzfs::Kernel { operation, name, size, speed } = kernel;
            println!("| {operation} | {name} | {size} | {:.2} |", speed / 1e9);
        }
    }
    Ok(())
}

/// Memory is always measured: it is what the others are compared with.
fn filter(only: &str) -> String {
    if only.is_empty() { String::new() } else { format!("memory|{only}") }
}

fn size_of(measured: &Measured) -> u64 {
    measured.size.parse().unwrap_or(0)
}

fn report(measured: &[Measured], only: &str) {
    let memory =
        measured.iter().filter(|kernel| kernel.name == "memory read").max_by_key(|k| size_of(k));
    let memory = memory.map_or(f64::NAN, |kernel| kernel.speed);
    println!("| kernel | of | GB/s | of memory reads |\n| --- | ---: | ---: | ---: |");
    for Measured { name, size, speed } in measured {
        if name.contains(only) || name.starts_with("memory") {
            println!("| {name} | {size} | {:.2} | {:.2} |", speed / 1e9, speed / memory);
        }
    }
}

/// Gathers all measurements below a directory that have a throughput.
fn collect(directory: &Path, found: &mut Vec<Measured>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.ends_with("new/benchmark.json") {
            let of = |path: &Path| -> std::io::Result<serde_json::Value> {
                Ok(serde_json::from_slice(&fs::read(path)?)?)
            };
            found.extend(measurement(&of(&path)?, &of(&path.with_file_name("sample.json"))?));
        }
    }
    Ok(())
}

fn measurement(bench: &serde_json::Value, samples: &serde_json::Value) -> Option<Measured> {
    let text = |name: &str| bench[name].as_str().unwrap_or_default();
    let bytes = bench["throughput"]["Bytes"].as_f64()?;
    let numbers = |name: &str| samples[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let nanoseconds = numbers("times").iter().zip(numbers("iters"));
    let fastest = nanoseconds
        .filter_map(|(time, iterations)| Some(time.as_f64()? / iterations.as_f64()?))
        .min_by(f64::total_cmp)?;
    Some(Measured {
        name: format!("{} {}", text("group_id"), text("function_id")),
        size: text("value_str").to_owned(),
        speed: bytes / fastest * 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_criterion_writes_is_read() {
        let bench = serde_json::json!({
            "group_id": "memory", "function_id": "read", "value_str": "1024",
            "throughput": {"Bytes": 1024}
        });
        let samples = serde_json::json!({"iters": [1.0, 2.0], "times": [600.0, 1024.0]});
        let expected =
            Measured { name: "memory read".to_owned(), size: "1024".to_owned(), speed: 2e9 };
        assert_eq!(measurement(&bench, &samples), Some(expected));
    }
}
