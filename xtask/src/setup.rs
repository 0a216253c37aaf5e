//! The Debian packages that tests and demo need, and OpenZFS's zdb, which judges pools.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use xtask::process::{self, Failure, is_installed};

/// Programs and the packages that have them.
const TOOLS: [(&str, &str); 7] = [
    ("bzip2", "bzip2"),
    ("fusermount3", "fuse3"),
    ("getfattr", "attr"),
    ("make", "make"),
    ("python3", "python3"),
    ("setfacl", "acl"),
    ("zstd", "zstd"),
];

/// The package with OpenZFS's zdb, 2.3 or newer.
const JUDGE: &str = "zfsutils-linux";
/// Where apt learns of it, when it has to.
const SOURCES: &str = "/etc/apt/sources.list.d/rzfs-openzfs.sources";

/// The way to the kernel for whoever mounts.
const FUSE: &str = "/dev/fuse";

/// Installs what is missing; without root, names it.
pub(crate) fn run() -> Result<(), Failure> {
    tools()?;
    judge()?;
    fuse()
}

/// Lets everybody mount: udev does it where it runs, which is not so in many containers and small
/// machines that continuous integration gets. Other machines are their owners'.
fn fuse() -> Result<(), Failure> {
    let found = match fs::metadata(FUSE) {
        Err(error) if error.kind() == ErrorKind::NotFound && !is_ci() => {
            println!("{FUSE} is not there: nobody can mount");
            return Ok(());
        }
        found => found.map_err(Failure::file(Path::new(FUSE)))?,
    };
    let mode = found.permissions().mode();
    if mode & 0o006 == 0o006 {
        return Ok(());
    }
    if !is_ci() || !rustix::process::geteuid().is_root() {
        println!("{FUSE} is not for everybody: ordinary users cannot mount");
        return Ok(());
    }
    fs::set_permissions(FUSE, Permissions::from_mode(mode | 0o666))
        .map_err(Failure::file(Path::new(FUSE)))
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

fn tools() -> Result<(), Failure> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(program, _)| !is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() || !is_installed("apt-get") {
        return Err(Failure::MissingPackages(missing.join(" ")));
    }
    install(&[], &missing)
}

fn install(options: &[&str], packages: &[&str]) -> Result<(), Failure> {
    process::run(Command::new("apt-get").args(["-qq", "update"]))?;
    process::run(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-qq", "-y", "install", "--no-install-recommends"])
            .args(options)
            .args(packages),
    )
}

/// Tests can do without the second judge, but not in continuous integration: there it is
/// installed, and where that cannot be, nothing passes. Other machines' package sources are
/// their owners'.
fn judge() -> Result<(), Failure> {
    if is_installed("zdb") || ["/usr/sbin/zdb", "/sbin/zdb"].iter().any(|it| Path::new(it).exists())
    {
        return Ok(());
    }
    if !is_ci() {
        println!("OpenZFS's zdb is not installed ({JUDGE}): it will not be asked about pools");
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() || !is_installed("apt-get") {
        return Err(Failure::MissingPackages(JUDGE.to_owned()));
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let Some(codename) = codename else {
        return Err(Failure::MissingPackages(JUDGE.to_owned()));
    };
    // OpenZFS is in `contrib`; that of Debian 12 is too old for what pools are made with today.
    let suite = match codename {
        "bookworm" => "bookworm-backports".to_owned(),
        newer => newer.to_owned(),
    };
    let sources = Path::new(SOURCES);
    let text = format!(
        "Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main contrib\nSigned-By: {KEYRING}\n",
        mirror()
    );
    fs::write(sources, text).map_err(Failure::file(sources))?;
    install(&["--target-release", &suite], &[JUDGE])
}

/// The keys of Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The mirror that this machine uses already.
fn mirror() -> String {
    let lists = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    let texts = lists.iter().filter_map(|list| fs::read_to_string(list).ok());
    let found = texts.flat_map(|text| first_mirror(&text)).next();
    found.unwrap_or_else(|| "http://deb.debian.org/debian".to_owned())
}

/// The first mirror in a list of sources, of the older or the newer form.
fn first_mirror(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace().filter(|word| !word.starts_with('['));
        let is_source = matches!(words.next(), Some("URIs:" | "deb"));
        words.next().filter(|_| is_source).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_found_in_both_forms() {
        let new = "Types: deb\n# http://old.example/debian\nURIs: http://a.example/debian\n";
        assert_eq!(first_mirror(new).unwrap(), "http://a.example/debian");
        let old =
            "# deb http://no.example x\ndeb [arch=amd64] http://b.example/debian bookworm main\n";
        assert_eq!(first_mirror(old).unwrap(), "http://b.example/debian");
        assert_eq!(first_mirror("# nothing\n"), None);
    }
}
