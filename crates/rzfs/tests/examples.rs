//! The examples run and print what they should.

use rzfs::OpenFiles;
use std::path::{Path, PathBuf};
use std::process::Command;

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples")
}

/// Runs an example built by `cargo test` together with the tests: `cargo run` would build it, and
/// its dependencies, again with other features.
fn run(example: &str, words: &[&str]) -> String {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples").join(example);
    let example = example.display().to_string();
    let output = Command::new(&example).args(words).output();
    let output =
        output.unwrap_or_else(|error| panic!("{example} (cargo build --examples): {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_file_is_read_out_of_memory() {
    let image = samples().join("garden.img.zst");
    let text = run("memory", &[image.to_str().unwrap(), "garden/notes@monday", "/beds/south"]);
    assert_eq!(text, "Nothing before the last frost.\n");
}

#[test]
fn a_file_and_a_zap_are_read_from_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("garden.img");
    rzfs_testkit::unpack_sample("garden", &image).unwrap();
    let text = run("read_file", &[image.to_str().unwrap(), "garden/notes", "/today", "4"]);
    assert!(text.starts_with("garden\ngarden/disk\ngarden/notes\n"), "{text}");
    assert!(
        text.contains("\npeas, spinach and radishes under glass.\nThin the spinach.\n"),
        "{text}"
    );
    for name in ["beds = Some(", "diary = Some(", "today = Some("] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn an_image_is_made_with_files_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (image, file) = (dir.path().join("made.img"), dir.path().join("letter"));
    std::fs::write(&file, "Dear reader,\n").unwrap();
    run("make_image", &[image.to_str().unwrap(), file.to_str().unwrap()]);
    let pool = rzfs::PoolOptions::new().device_paths([&image]).open().unwrap();
    let files = pool.file_system("made").unwrap();
    let mut buffer = [0; 64];
    let read = files.open("/letter").unwrap().read_at(0, &mut buffer).unwrap();
    assert_eq!(&buffer[..read], b"Dear reader,\n");
}
