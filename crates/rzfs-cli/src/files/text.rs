//! Text forms of files.

use rzfs::ShownPath;
use rzfs::format::dirent::FileKind;
use std::io::{self, IsTerminal, Write};

/// The letter of a kind before permissions.
pub(super) const fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
        FileKind::Regular => '-',
    }
}

/// The word for a kind, as in stat(1).
pub(super) const fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "character special file",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block special file",
        FileKind::Symlink => "symbolic link",
        FileKind::Socket => "socket",
        FileKind::Regular => "regular file",
    }
}

/// Kind and permissions as ten letters: `-rwxr-sr-t`.
pub(super) fn mode(kind: FileKind, permissions: u16) -> String {
    let special = |bit: u16, execute: bool, with: char, without: char| match (bit, execute) {
        (0, true) => 'x',
        (0, false) => '-',
        (_, true) => with,
        (_, false) => without,
    };
    let has = |bit: u16| permissions & bit != 0;
    let mut text = String::from(letter(kind));
    for (shift, set_bit, with, without) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        text.push(if has(4 << shift) { 'r' } else { '-' });
        text.push(if has(2 << shift) { 'w' } else { '-' });
        text.push(special(permissions & set_bit, has(1 << shift), with, without));
    }
    text
}

/// The format of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Names {
    /// Unchanged, for programs.
    Raw,
    /// Without control characters for a terminal.
    Escaped,
}

impl Names {
    /// The format for standard output.
    pub(super) fn of_output() -> Self {
        if io::stdout().is_terminal() { Self::Escaped } else { Self::Raw }
    }

    pub(super) fn write(self, out: &mut dyn Write, name: &[u8]) -> io::Result<()> {
        match self {
            Self::Raw => out.write_all(name),
            Self::Escaped => write!(out, "{}", ShownPath(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_in_letters() {
        assert_eq!(mode(FileKind::Regular, 0o644), "-rw-r--r--");
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::Fifo, 0o7000), "p--S--S--T");
        assert_eq!(mode(FileKind::CharDevice, 0o6751), "crwsr-s--x");
    }
}
