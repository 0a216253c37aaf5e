//! What OpenZFS's zdb says about the golden pools, as test data for `rzfs zdb`.

use rzfs_testkit::{ReferencePool, Transcript};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::process::{self, Failure, repository};

/// Questions to OpenZFS's zdb.
#[derive(clap::Args)]
pub(crate) struct ZdbOracle {
    /// Only pools with this in their names.
    #[arg(long, default_value = "")]
    pool: String,
    /// A new question; the word POOL stands for the pool. Without one, all that were asked before
    /// are asked again.
    #[arg(last = true)]
    words: Vec<String>,
}

/// Asks, and keeps the answers.
pub(crate) fn run(arguments: &ZdbOracle) -> Result<(), Failure> {
    if !process::is_installed("zdb") {
        return Err(Failure::MissingPackages("zfsutils-linux".to_owned()));
    }
    let pools = ReferencePool::all_golden();
    for pool in pools.iter().filter(|pool| pool.name().contains(&arguments.pool)) {
        let directory = repository().join("crates/rzfs-zdb/tests/zdb/oracle").join(pool.name());
        fs::create_dir_all(&directory).map_err(Failure::file(&directory))?;
        if arguments.words.is_empty() {
            for file in files_of(&directory)? {
                let text = fs::read_to_string(&file).map_err(Failure::file(&file))?;
                let asked = Transcript::parse(&text)
                    .ok_or_else(|| Failure::Output(file.display().to_string()))?;
                fs::remove_file(&file).map_err(Failure::file(&file))?;
                ask(pool, &asked.words, &directory)?;
            }
        } else {
            ask(pool, &arguments.words, &directory)?;
        }
    }
    Ok(())
}

/// Asks one question about one pool.
fn ask(pool: &ReferencePool, words: &[String], directory: &Path) -> Result<(), Failure> {
    let images = pool.image_dir().map_err(Failure::file(pool.dir()))?;
    let question = Transcript::new(words.to_vec(), 0, &[], &images);
    let mut zdb = Command::new("zdb");
    zdb.env("TZ", "UTC").args(["-e", "-p"]).arg(&images);
    let output = process::outcome(zdb.args(question.words_for(pool.pool_name())))?;
    let status = output.status.code().unwrap_or(-1);
    let answer = Transcript::new(question.words, status, &output.stdout, &images);
    let file = directory.join(answer.file_name());
    fs::write(&file, answer.to_text()).map_err(Failure::file(&file))
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(directory).map_err(Failure::file(directory))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(Failure::file(directory))?.path());
    }
    Ok(files)
}
