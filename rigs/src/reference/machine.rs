//! The reference machine: a kernel with OpenZFS's module, which judges all pools of a round.

use super::contest::{Contest, limits};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::process::{Failure, repository, run};

const SCRIPT: &str = include_str!("judge.sh");
/// Memory of the machine in MiB; half of it holds images.
const MEMORY: &str = "6000";
/// Room for what the machine gives back; a sparse file.
const ROOM: u64 = 8 << 30;

/// The program that starts the machine: `$RZFS_REFERENCE/vm`, or beside the repository.
fn machine() -> PathBuf {
    let default = || repository().join("../shared/reference");
    std::env::var_os("RZFS_REFERENCE").map_or_else(default, PathBuf::from).join("vm")
}

/// Has the kernel take its turn with every pool that is still in play.
pub(super) fn judge(
    contests: &mut [Contest],
    directory: &Path,
    round: u32,
    timeout: u32,
) -> Result<(), Failure> {
    let (pools, out) = (directory.join("pools"), directory.join(format!("out-{round}")));
    let (there, back) = (directory.join("there.tar"), directory.join("back.tar"));
    let script = directory.join("judge.sh");
    fs::write(&script, SCRIPT).map_err(Failure::file(&script))?;
    let playing: Vec<_> = contests.iter().filter(|contest| contest.is_playing()).collect();
    if playing.is_empty() {
        return Ok(());
    }
    let mut pack = Command::new("tar");
    pack.args(["-cSf"]).arg(&there).arg("-C").arg(&pools);
    for contest in &playing {
        let note = |name: &str, text: &str| {
            let path = contest.directory().join(name);
            fs::write(&path, text).map_err(Failure::file(&path))
        };
        note("pool", contest.pool())?;
        note("round", &round.to_string())?;
        note("limits", &limits())?;
        note("leave", if contest.leaves_log() { "log" } else { "export" })?;
        pack.arg(contest.name());
    }
    run(&mut pack)?;
    let room = File::create(&back).and_then(|file| file.set_len(ROOM));
    room.map_err(Failure::file(&back))?;
    let seconds = timeout.to_string();
    run(Command::new(machine())
        .args(["-m", MEMORY, "-t", &seconds, "-o"])
        .arg(&out)
        .arg("-s")
        .arg(&there)
        .arg("-d")
        .arg(&back)
        .arg(&script)
        // Whoever is being judged then has time to end, and the images to be packed.
        .arg((timeout / 4 * 3).to_string()))?;
    run(Command::new("tar").arg("-xf").arg(&back).arg("-C").arg(&pools))?;
    for path in [&there, &back] {
        fs::remove_file(path).map_err(Failure::file(path))?;
    }
    for contest in contests.iter_mut().filter(|contest| contest.is_playing()) {
        let said = out.join(contest.name());
        contest.kernel_said(&said);
    }
    Ok(())
}
