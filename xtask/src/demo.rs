//! A story on real images: a pool is made, its process is killed, nothing is lost, a file that was
//! removed comes back, a second pool gets a copy, and a pool made by OpenZFS is mounted.

use crate::setup;
use crate::workplace::Workplace;
use std::process::Stdio;
use xtask::process::{self, Failure};
use xtask::rzfs::Rzfs;

/// What happens, a command a line. A line that begins with a blank is not shown: it waits for what
/// the one before it has begun, or makes its output short.
const STORY: &str = r#"
# A new pool in an image, and a file in it that is on disk.
zpool create --export --size 256M tank $PWD/tank.img
 mkdir mounted
rzfs mount --foreground tank.img mounted &
 until mountpoint -q mounted; do sleep 0.1; done
seq 1000000 | dd of=mounted/numbers conv=fsync status=none
sha256sum mounted/numbers > sums
# Its process dies. The next one finds everything.
kill -9 $!
 wait $! 2> /dev/null || true
rzfs mount tank.img mounted
sha256sum --check sums
zpool status tank
# A mistake is taken back. A second pool gets a copy.
zfs snapshot tank@before
rm mounted/numbers
zfs rollback tank@before
zpool create --export --size 256M backup $PWD/backup.img
 mkdir copied
 rzfs mount backup.img copied
zfs send tank@before | zfs receive backup/tank
cmp mounted/numbers copied/tank/numbers
 rzfs umount copied
rzfs umount mounted
zdb -e -p tank.img -bcc tank 2> progress | grep leaks
# A pool that OpenZFS made.
rzfs mount -o ro --force garden.img mounted
zfs list garden/notes garden/seeds
ls -m mounted/.zfs/snapshot
 rzfs umount mounted
"#;

/// Tells the story.
pub(crate) fn run() -> Result<(), Failure> {
    setup::run()?;
    let workplace = Workplace::new(&Rzfs::build()?)?;
    let mut shell = workplace.shell(&script(STORY));
    let told = process::run(shell.stdin(Stdio::null()));
    if told.is_err() {
        workplace.unmount("copied");
        workplace.unmount("mounted");
    }
    // What has failed has said why.
    told.map_err(|_| Failure::Checks("the demo".to_owned()))
}

/// The shell script that shows and carries out a story.
fn script(story: &str) -> String {
    let line = |line: &str| match line.chars().next() {
        None => String::new(),
        Some(' ') => format!("{line}\n"),
        Some('#') => format!("echo '{line}'\n"),
        Some(_) => format!("echo '$ {}'\n{line}\n", line.replace('\'', r"'\''")),
    };
    story.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_and_carried_out() {
        let expected = "echo '# One.'\necho '$ it'\\''s'\nit's\n wait\n";
        assert_eq!(script("\n# One.\nit's\n wait\n"), expected);
    }
}
