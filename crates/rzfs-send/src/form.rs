//! The form in which blocks are sent.

/// Which properties of the stored form of blocks are kept; without, a stream has plain blocks of at
/// most 128 KiB, which every receiver accepts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Form {
    /// Do not split blocks over 128 KiB (`-L`).
    pub large_blocks: bool,
    /// Send embedded blocks as such (`-e`).
    pub embedded: bool,
    /// Send compressed blocks in stored form (`-c`).
    pub compressed: bool,
    /// Send encrypted blocks in stored form, with their wrapped keys; others with all of the above
    /// (`-w`).
    pub raw: bool,
}

impl Form {
    /// The form of one file system or volume.
    pub(crate) const fn of(self, protection: Sealing) -> Self {
        match (self.raw, protection) {
            (false, _) => self,
            (true, Sealing::Plain) => {
                Self { large_blocks: true, embedded: true, compressed: true, raw: false }
            }
            (true, Sealing::Sealed) => {
                Self { large_blocks: true, embedded: false, compressed: true, raw: true }
            }
        }
    }
}

/// Whether blocks are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sealing {
    Plain,
    Sealed,
}
