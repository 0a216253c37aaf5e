//! Runs every command in the documentation, and looks whether what is cited is there.
//!
//! Comments cite the specification of the format in `docs/format`, and documents link to each
//! other; see `citations` and `links`.
//!
//! Each `sh` block of a Markdown file is a script. The blocks of a file run one after the other in
//! a scratch directory that has the sample pool as `garden.img`, with `rzfs`, `zpool`, `zfs` and
//! `zdb` on the search path. A block has to end with status 0. Chores of the repository (`cargo
//! xtask ...`) are only asked for their help: they exist, and would take long.

use crate::process::{self, Failure};
use crate::rzfs::Rzfs;
use crate::{citations, links, markdown};
use rzfs_testkit::unpack_sample;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// A script in a document.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Block {
    /// The line that it begins in.
    line: usize,
    script: String,
}

/// Checks the documents of the repository.
pub(crate) fn run() -> Result<(), Failure> {
    let documents = markdown::documents()?;
    let mut failed = Vec::new();
    let mut faults = citations::faults()?;
    faults.extend(links::faults(&documents)?);
    if !faults.is_empty() {
        println!("{}", faults.join("\n"));
        failed.push("what is cited".to_owned());
    }
    let rzfs = Rzfs::build()?;
    let mut count = 0;
    for document in documents {
        let text = fs::read_to_string(&document).map_err(Failure::file(&document))?;
        let blocks = blocks(&text);
        count += blocks.len();
        if !blocks.is_empty() && check(&rzfs, &document, &blocks).is_err() {
            failed.push(document.display().to_string());
        }
    }
    println!("{count} blocks of commands were run");
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(", "))) }
}

/// The blocks of a document that are marked as `sh`.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.trim_end()) {
            (None, "```sh") => open = Some(Block { line: index + 1, script: String::new() }),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => {
                block.script.push_str(line);
                block.script.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

/// Runs the blocks of one document.
fn check(rzfs: &Rzfs, document: &Path, blocks: &[Block]) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(Failure::file(Path::new("temporary directory")))?;
    let programs = programs(rzfs, scratch.path())?;
    let image = scratch.path().join("garden.img");
    unpack_sample("garden", &image).map_err(Failure::file(&image))?;
    let mut result = Ok(());
    for block in blocks {
        let mut command = Command::new("sh");
        command.args(["-e", "-u", "-c", &block.script]).current_dir(scratch.path());
        command.env("PATH", &programs).env("RZFS_RUNTIME_DIR", scratch.path().join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = process::outcome(&mut command)?;
        if !output.status.success() {
            println!("{}:{}: {}", document.display(), block.line, output.status);
            print!("{}", String::from_utf8_lossy(&output.stdout));
            print!("{}", String::from_utf8_lossy(&output.stderr));
            result = Err(Failure::Checks(document.display().to_string()));
            break;
        }
    }
    if result.is_err() {
        // What a block has left mounted would keep the scratch directory.
        let mut umount = Command::new(&rzfs.binary);
        umount.env("RZFS_RUNTIME_DIR", scratch.path().join("run"));
        process::outcome(umount.args(["umount", "--force", "garden"])).map(drop)?;
    }
    result
}

/// A search path that begins with the programs that the documentation is about.
fn programs(rzfs: &Rzfs, scratch: &Path) -> Result<std::ffi::OsString, Failure> {
    let directory = scratch.join("bin");
    fs::create_dir(&directory).map_err(Failure::file(&directory))?;
    for name in ["rzfs", "zpool", "zfs", "zdb"] {
        let link = directory.join(name);
        symlink(&rzfs.binary, &link).map_err(Failure::file(&link))?;
    }
    let cargo = directory.join("cargo");
    let xtask = std::env::current_exe().map_err(Failure::file(&cargo))?;
    let script = format!(
        "#!/bin/sh\ntest \"$1\" = xtask\nshift\nexec '{}' \"$@\" --help\n",
        xtask.display()
    );
    fs::write(&cargo, script).map_err(Failure::file(&cargo))?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&cargo, executable).map_err(Failure::file(&cargo))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [directory].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(all).map_err(|_| Failure::Output("PATH".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_commands_count() {
        let text = "a\n```sh\none\ntwo\n```\n```text\nthree\n```\n```sh\nfour\n```\n";
        let expected = [
            Block { line: 2, script: "one\ntwo\n".into() },
            Block { line: 9, script: "four\n".into() },
        ];
        assert_eq!(blocks(text), expected);
    }
}
