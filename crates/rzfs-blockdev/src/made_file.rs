//! Files created for devices, and removed again if they are not used.

use crate::FileIdentity;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A created file. A user who may write a directory on its path can replace it at any time, so it
/// is identified by the directory that it was created in.
#[derive(Debug)]
pub struct MadeFile {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    identity: Option<FileIdentity>,
}

impl MadeFile {
    /// Creates a sparse file of `size` bytes, readable by its owner only: a reader of an image
    /// could read every file in it, and lock it. The path must not exist.
    ///
    /// # Errors
    /// It cannot be created. One that cannot be that large is removed again.
    pub fn create(path: &Path, size: u64) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = above.unwrap_or(Path::new("."));
        let directory = rustix::fs::openat(CWD, above, flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(&directory, &name, flags, mode)?);
        let identity = FileIdentity::of(&file.metadata()?);
        let made = Self { path: path.to_owned(), directory, name, identity };
        match file.set_len(size) {
            Ok(()) => Ok(made),
            Err(error) => {
                // Otherwise an empty file is left.
                let _ = made.remove();
                Err(error)
            }
        }
    }

    /// Where it was made.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is it.
    #[must_use]
    pub fn is(&self, identity: FileIdentity) -> bool {
        self.identity == Some(identity)
    }

    /// Removes it, unless something else has its name by now.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())?;
        let found = FileIdentity::of(&File::from(found).metadata()?);
        if found.is_some_and(|found| self.is(found)) {
            rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn what_was_made_is_taken_away_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("own")).unwrap();
        fs::create_dir(at("others")).unwrap();
        fs::write(at("others/image"), "precious").unwrap();
        let made = MadeFile::create(&at("own/image"), 5000).unwrap();
        let metadata = fs::metadata(at("own/image")).unwrap();
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (5000, 0o600));
        // Another directory, and another file, come in its place.
        fs::rename(at("own"), at("moved")).unwrap();
        symlink(at("others"), at("own")).unwrap();
        made.remove().unwrap();
        assert_eq!(fs::read_to_string(at("others/image")).unwrap(), "precious");
        assert!(!at("moved/image").exists());
        let made = MadeFile::create(&at("moved/image"), 1).unwrap();
        fs::rename(at("others/image"), at("moved/image")).unwrap();
        made.remove().unwrap();
        assert_eq!(fs::read_to_string(at("moved/image")).unwrap(), "precious");
        assert!(MadeFile::create(&at("moved/image"), 1).is_err());
        assert!(MadeFile::create(&at("moved/too large"), u64::MAX).is_err());
        assert!(!at("moved/too large").exists());
    }
}
