//! Commands whose output OpenZFS 2.3.2 printed for the same pools, imported read-only.
//!
//! ```text
//! $ zfs list g01
//! | standard output
//! ! standard error
//! = exit status
//! ```
//! The longer explanations of a pool's state (`status:` and `action:`) are in our own words. The
//! pools were at `/tmp/v/gNN`; here they may be anywhere, so where a path is shown the column
//! widths are not compared.

use crate::harness::{Outcome, Rzfs, reference};
use std::path::PathBuf;

/// The pools by the short names used in the transcripts.
const POOLS: [(&str, &str); 7] = [
    ("g01", "g01-default"),
    ("g08", "g08-draid2"),
    ("g13", "g13-classes"),
    ("g15", "g15-removed"),
    ("g16", "g16-expanded"),
    ("g17", "g17-checkpoint"),
    ("g22", "g22-v8"),
];

struct Transcript<'a> {
    command: &'a str,
    expected: Outcome,
}

fn parse(text: &str) -> Vec<Transcript<'_>> {
    let mut transcripts: Vec<Transcript<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (mark, rest) = line.split_at(2);
        if mark == "$ " {
            let expected = Outcome { status: 0, out: String::new(), err: String::new() };
            transcripts.push(Transcript { command: rest, expected });
            continue;
        }
        let expected = &mut transcripts.last_mut().unwrap().expected;
        match mark {
            "| " => expected.out += &format!("{rest}\n"),
            "! " => expected.err += &format!("{rest}\n"),
            "= " => expected.status = rest.parse().unwrap(),
            _ => panic!("{line}"),
        }
    }
    transcripts
}

/// The words of a command line; quotes only enclose whole words.
fn words(command: &str) -> Vec<String> {
    command.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// Collapses runs of spaces, unless the columns are as wide as OpenZFS's.
fn columns(text: &str, exact: bool) -> String {
    if exact {
        return text.to_owned();
    }
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        if !(c == ' ' && folded.ends_with(' ')) {
            folded.push(c);
        }
    }
    folded
}

fn directory(pool: &str) -> PathBuf {
    reference(pool).1.first().unwrap().parent().unwrap().to_owned()
}

fn replay(rzfs: &Rzfs, transcript: &Transcript<'_>) -> Option<String> {
    let mut words = words(transcript.command);
    let mut places = Vec::new();
    for (short, name) in POOLS {
        let original = format!("/tmp/v/{short}");
        if transcript.command.contains(short) {
            let place = directory(name);
            if words[1] != "import" {
                words.extend(["-d".to_owned(), place.to_str().unwrap().to_owned()]);
            }
            for word in &mut words {
                *word = word.replace(&original, place.to_str().unwrap());
            }
            places.push((place, original));
        }
    }
    let mut found = rzfs.run(&words);
    for (place, original) in places {
        found.out = found.out.replace(place.to_str().unwrap(), &original);
        found.err = found.err.replace(place.to_str().unwrap(), &original);
    }
    let expected = &transcript.expected;
    let exact = !expected.out.contains("/tmp/v/");
    let agrees = columns(&found.out, exact) == columns(&expected.out, exact)
        && found.err == expected.err
        && found.status == expected.status;
    (!agrees).then(|| format!("$ {}\n{found:#?}\n{expected:#?}", transcript.command))
}

fn replay_all(text: &str, least: usize) {
    let rzfs = Rzfs::new();
    let transcripts = parse(text);
    assert!(transcripts.len() >= least);
    let wrong: Vec<_> = transcripts.iter().filter_map(|one| replay(&rzfs, one)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), transcripts.len(), wrong.join("\n"));
}

/// OpenZFS's usage text mentions scripts, which rzfs does not run.
#[test]
fn zpool() {
    let text = include_str!("../transcripts/zpool.txt");
    let scripts = " [-c [script1,script2,...]]";
    assert_eq!(text.matches(scripts).count(), 1);
    replay_all(&text.replace(scripts, ""), 20);
}

#[test]
fn zfs() {
    replay_all(include_str!("../transcripts/zfs.txt"), 90);
}

/// OpenZFS reports the cache device of g13 as missing, since its image was at another path when the
/// pool was written; rzfs has found it.
#[test]
fn importable_pools() {
    let missed = [
        "| status: Devices are missing.\n",
        "|    see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q\n",
    ];
    let mut text = include_str!("../transcripts/import.txt").to_owned();
    for line in missed {
        assert_eq!(text.matches(line).count(), 1, "of g13");
        text = text.replace(line, "");
    }
    replay_all(&text, 8);
}

/// What rzfs prints about missing log devices, and OpenZFS only when it refuses an import.
const WITHOUT_LOGS: &str = "action: Log devices are missing: use '-m' to import the pool without \
     them, and\n\twithout the last synced changes that only they have.\n";
/// What it prints about other missing devices.
const DESPITE: &str = "action: The pool can be imported without the devices that are missing or \
     damaged,\n\twith less redundancy.\n";

/// Listings of a pool without some of its devices, whose last paths are in the labels.
#[test]
fn importable_pools_with_missing_devices() {
    let rzfs = Rzfs::new();
    let transcripts = parse(include_str!("../transcripts/missing.txt"));
    assert_eq!(transcripts.len(), 3);
    for transcript in transcripts {
        let (_, missing) = transcript.command.split_once("-without-").unwrap();
        let place = rzfs.path(missing);
        std::fs::create_dir(&place).unwrap();
        for image in reference("g13-classes").1 {
            let name = image.file_name().unwrap().to_str().unwrap();
            if !missing.contains(name.trim_end_matches(".img")) {
                std::os::unix::fs::symlink(&image, place.join(name)).unwrap();
            }
        }
        let mut found = rzfs.run(["zpool", "import", "-d", place.to_str().unwrap()]);
        let original = format!("/tmp/v/g13-without-{missing}");
        found.out = columns(&found.out.replace(place.to_str().unwrap(), &original), false);
        assert_eq!(found.out.contains(WITHOUT_LOGS), missing == "45");
        found.out = found.out.replace(WITHOUT_LOGS, DESPITE);
        let expected = columns(&transcript.expected.out, false);
        assert_eq!((found.status, found.out, found.err), (0, expected, String::new()), "{missing}");
    }
}
