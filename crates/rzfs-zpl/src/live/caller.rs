//! The callers of changes.

/// The caller of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Privileges beyond the mode bits.
    pub privilege: Privilege,
}

/// Whether a caller has the capabilities of the superuser.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Privilege {
    /// No.
    Ordinary,
    /// Yes.
    Superuser,
}

impl Caller {
    /// The superuser.
    pub const SUPERUSER: Self = Self { uid: 0, gid: 0, privilege: Privilege::Superuser };
}
