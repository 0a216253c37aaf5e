//! In which form blocks are sent.

/// What of the form in which blocks are stored is kept; without, a stream has plain blocks of at most
/// 128 KiB, which every receiver takes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Form {
    /// Blocks beyond 128 KiB stay whole (`-L`).
    pub large_blocks: bool,
    /// Blocks that lie in their pointers are sent as such (`-e`).
    pub embedded: bool,
    /// Compressed blocks are sent as they are stored (`-c`).
    pub compressed: bool,
    /// Encrypted blocks are sent as they are stored, and with them their wrapped keys; what is not
    /// encrypted is sent with all of the above (`-w`).
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
