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
}
