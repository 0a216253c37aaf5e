//! The speed of OpenZFS's own kernels on this machine, from its user-space tools.

use std::path::Path;
use std::process::Command;
use xtask::process::{self, Failure, repository};

/// A kernel of OpenZFS.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Kernel {
    /// What it does: `fletcher4 native`, `gen_pq`, ...
    pub(crate) operation: String,
    /// Which implementation: `avx2`, ...
    pub(crate) name: String,
    /// Bytes that it is given; of RAID-Z the data of a stripe.
    pub(crate) size: u64,
    /// Bytes a second; of RAID-Z data without parity.
    pub(crate) speed: f64,
}

/// fletcher4 as the library libzpool has it.
pub(crate) fn fletcher4(work: &Path) -> Result<Vec<Kernel>, Failure> {
    let (source, program) =
        (repository().join("benches/openzfs/fletcher4.c"), work.join("openzfs-fletcher4"));
    process::run(Command::new("cc").arg("-O2").arg(source).arg("-o").arg(&program).arg("-ldl"))?;
    let lines = process::output(&mut Command::new(program))?;
    Ok(lines.lines().filter_map(fletcher4_line).collect())
}

fn fletcher4_line(line: &str) -> Option<Kernel> {
    let mut words = line.split_whitespace();
    let (name, order, size, speed) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Kernel {
        operation: format!("fletcher4 {order}"),
        name: name.to_owned(),
        size: size.parse().ok()?,
        speed: speed.parse().ok()?,
    })
}

/// RAID-Z as `raidz_test -B` measures it; this takes minutes.
pub(crate) fn raidz() -> Result<Vec<Kernel>, Failure> {
    let lines = process::output(Command::new("raidz_test").arg("-B"))?;
    Ok(lines.lines().filter_map(raidz_line).collect())
}

/// `impl, math, dcols, iosize, disk_bw, total_bw, iter`: the speed of one column in MiB/s.
fn raidz_line(line: &str) -> Option<Kernel> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [name, operation, columns, size, disk, ..] = fields.as_slice() else { return None };
    let (columns, disk) = (columns.parse::<f64>().ok()?, disk.parse::<f64>().ok()?);
    Some(Kernel {
        operation: (*operation).to_owned(),
        name: (*name).to_owned(),
        size: size.parse().ok()?,
        speed: columns * disk * f64::from(1 << 20),
    })
}

/// The fastest kernel of each operation and size.
pub(crate) fn fastest(mut kernels: Vec<Kernel>) -> Vec<Kernel> {
    kernels.sort_by(|a, b| {
        let key = |kernel: &Kernel| (kernel.operation.clone(), kernel.size);
        key(a).cmp(&key(b)).then(b.speed.total_cmp(&a.speed))
    });
    kernels.dedup_by(|next, best| next.operation == best.operation && next.size == best.size);
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tools_are_read_and_the_fastest_stays() {
        let lines = ["avx2 native 16384 100", "sse2 native 16384 70", "avx2 swapped 16384 90"];
        let best = fastest(lines.into_iter().filter_map(fletcher4_line).collect());
        assert_eq!(best.len(), 2);
        assert_eq!((best[0].name.as_str(), best[0].speed), ("avx2", 100.0));
        let raidz = raidz_line("  sse2,   gen_pq, 8,  8192, 2.5, 25.0, 524288").unwrap();
        assert_eq!((raidz.size, raidz.speed), (8192, 20.0 * f64::from(1 << 20)));
        assert_eq!(raidz_line("impl, math, dcols, iosize, disk_bw, total_bw, iter"), None);
    }
}
