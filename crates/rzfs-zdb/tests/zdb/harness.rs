//! Runs zdb and compares its output with the recorded output of the oracle.

use rzfs_testkit::{ReferencePool, Transcript};
use rzfs_zdb::calendar::Calendar;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};

/// The output and exit status of zdb with these arguments.
pub(crate) fn zdb<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = match rzfs_zdb::parse(words.into_iter().map(|word| word.as_ref().to_owned())) {
        Ok(words) => rzfs_zdb::run(&words, Calendar::utc(), &mut stdout, &mut stderr),
        Err(error) if error.use_stderr() => {
            stderr.extend(error.to_string().bytes());
            1
        }
        Err(help) => {
            stdout.extend(help.to_string().bytes());
            0
        }
    };
    Output { status: ExitStatus::from_raw(i32::from(status) << 8), stdout, stderr }
}

/// Runs every recorded command whose first argument is `options`, at least `least` of them, and
/// compares exit status and output. Prints a message for each missing pool that it skips.
pub(crate) fn agrees(options: &str, least: usize) {
    let asked: Vec<_> =
        transcripts().into_iter().filter(|(_, one)| one.words[0] == options).collect();
    assert!(asked.len() >= least, "the oracle was asked {options} {} times", asked.len());
    let mut wrong = Vec::new();
    for (name, expected) in asked {
        let Some(pool) = ReferencePool::golden(&name) else { continue };
        let found = run(&pool, &expected);
        wrong.extend(
            expected.difference(&found).map(|difference| {
                format!("{name}: zdb {}: {difference}", expected.words.join(" "))
            }),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The output of zdb with these arguments on a golden pool; `None` if the pool is missing.
pub(crate) fn zdb_of<W: Into<String>>(
    pool: &str,
    words: impl IntoIterator<Item = W>,
) -> Option<Output> {
    let place = place(&ReferencePool::golden(pool)?);
    Some(zdb(place.into_iter().chain(words.into_iter().map(Into::into))))
}

/// The arguments that give the location of a pool.
fn place(pool: &ReferencePool) -> [String; 3] {
    let directory = pool.image_dir().unwrap();
    ["-e".to_owned(), "-p".to_owned(), directory.to_str().unwrap().to_owned()]
}

/// The output of zdb for the arguments of a transcript.
fn run(pool: &ReferencePool, asked: &Transcript) -> Transcript {
    let output = zdb(place(pool).into_iter().chain(asked.words_for(pool.pool_name())));
    let status = output.status.code().unwrap_or(-1);
    Transcript::new(asked.words.clone(), status, &output.stdout, &pool.image_dir().unwrap())
}

/// All recorded transcripts, with the names of their pools.
fn transcripts() -> Vec<(String, Transcript)> {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zdb/oracle");
    let mut all = Vec::new();
    for pool in sorted(&oracle) {
        let name = pool.file_name().unwrap().to_str().unwrap();
        for file in sorted(&pool) {
            let text = fs::read_to_string(&file).unwrap();
            let transcript = Transcript::parse(&text).unwrap_or_else(|| panic!("{file:?}"));
            all.push((name.to_owned(), transcript));
        }
    }
    all
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
