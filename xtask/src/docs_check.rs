//! Runs every command in the documentation, and looks whether what is cited is there.
//!
//! Comments cite the specification of the format in `docs/format`, and documents link to each
//! other; see `citations` and `links`.
//!
//! Each `sh` block of a Markdown file is a script. The blocks of a file run one after the other in
//! a scratch directory that has the sample pool as `garden.img`, with `rzfs`, `zpool`, `zfs` and
//! `zdb` on the search path. A block has to end with status 0. Chores of the repository (`cargo
//! xtask ...`) are only asked for their help: they exist, and would take long.

use crate::workplace::Workplace;
use crate::{citations, links, markdown};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use xtask::process::{self, Failure};
use xtask::rzfs::Rzfs;

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
    let workplace = Workplace::new(rzfs)?;
    for block in blocks {
        let mut shell = workplace.shell(&block.script);
        let output = process::outcome(shell.stdin(Stdio::null()))?;
        if !output.status.success() {
            println!("{}:{}: {}", document.display(), block.line, output.status);
            print!("{}", String::from_utf8_lossy(&output.stdout));
            print!("{}", String::from_utf8_lossy(&output.stderr));
            workplace.unmount("garden");
            return Err(Failure::Checks(document.display().to_string()));
        }
    }
    Ok(())
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
