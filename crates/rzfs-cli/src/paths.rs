//! Paths in a form that the background process can use.

use crate::console::Failure;
use rzfs_blockdev::without_number;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path of a file given as a descriptor of this process (`/dev/fd/3`): others lack that
/// descriptor, and labels store paths. All other paths are unchanged.
fn named(path: PathBuf) -> Result<PathBuf, Failure> {
    let directories = ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"];
    let streams = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];
    let is_descriptor = directories.iter().any(|directory| path.starts_with(directory))
        || streams.iter().any(|stream| path == Path::new(stream));
    if !is_descriptor {
        return Ok(path);
    }
    let refused =
        |reason: &str| Failure::Failed(format!("cannot open {}: {reason}", path.display()));
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let file = identity(&path).map_err(|error| refused(&without_number(&error)))?;
    let name = fs::canonicalize(&path).ok();
    // The name may belong to another file by now.
    let name = name.filter(|name| identity(name).is_ok_and(|found| found == file));
    let unnamed = "a file that is given as a descriptor must have a name, by which others open it";
    name.ok_or_else(|| refused(unnamed))
}

/// A path independent of the working directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

/// A vdev word in a form that another process can use.
pub(crate) fn vdev_word(word: String) -> Result<String, Failure> {
    let word = named(word.into())?;
    Ok(word.to_string_lossy().into_owned())
}

/// The path by which another process finds a device, an image, or a directory of these.
pub(crate) fn device(path: &Path) -> Result<PathBuf, Failure> {
    named(absolute(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_stand_for_files_that_have_names() {
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().canonicalize().unwrap().join("image");
        let open = fs::File::create(&image).unwrap();
        for place in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
            let descriptor = Path::new(place).join(open.as_raw_fd().to_string());
            assert_eq!(device(&descriptor).unwrap(), image);
        }
        let descriptor = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
        // Another file has the old name now.
        fs::rename(&image, directory.path().join("renamed")).unwrap();
        fs::write(&image, "").unwrap();
        assert!(named(descriptor.clone()).is_ok_and(|path| path.ends_with("renamed")));
        fs::remove_file(directory.path().join("renamed")).unwrap();
        let shown = format!("cannot open {}: a file", descriptor.display());
        let refused = named(descriptor).unwrap_err();
        assert!(matches!(refused, Failure::Failed(text) if text.starts_with(&shown)));
        assert_eq!(named("mirror".into()).unwrap(), Path::new("mirror"));
    }
}
