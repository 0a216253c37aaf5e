//! The ACL that says what a mode says (spec 05, section 7.3).

use super::entry::{AccessMask as Mask, Ace, AceFlags, AceKind, Who};
use crate::dirent::FileKind;

const EVERYONE: u32 =
    Mask::READ_ATTRIBUTES | Mask::READ_ACL | Mask::SYNCHRONIZE | Mask::READ_NAMED_ATTRS;
const OWNER: u32 = EVERYONE
    | Mask::WRITE_ATTRIBUTES
    | Mask::WRITE_ACL
    | Mask::WRITE_OWNER
    | Mask::WRITE_NAMED_ATTRS;

const OWNER_FLAGS: u16 = AceFlags::OWNER;
const GROUP_FLAGS: u16 = AceFlags::GROUP | AceFlags::IDENTIFIER_GROUP;

/// The three to six entries of the trivial ACL of `mode`.
#[must_use]
pub fn trivial(kind: FileKind, mode: u32) -> Vec<Ace> {
    let masks = |shift: u32| permissions(kind, mode >> shift);
    let (owner, group, other) = (masks(6), masks(3), masks(0));
    let allowed_first = owner & !group & other;
    let denied_owner = !owner & (group | other);
    let denied_group = !group & other;
    [
        (AceKind::Allow, OWNER_FLAGS, Who::Owner, allowed_first),
        (AceKind::Deny, OWNER_FLAGS, Who::Owner, denied_owner),
        (AceKind::Deny, GROUP_FLAGS, Who::OwningGroup, denied_group),
        (AceKind::Allow, OWNER_FLAGS, Who::Owner, OWNER | owner),
        (AceKind::Allow, GROUP_FLAGS, Who::OwningGroup, EVERYONE | group),
        (AceKind::Allow, AceFlags::EVERYONE, Who::Everyone, EVERYONE | other),
    ]
    .into_iter()
    .filter(|(.., mask)| *mask != 0)
    .map(|(kind, flags, who, mask)| Ace {
        kind,
        flags: AceFlags(flags),
        mask: Mask(mask),
        who,
        object: None,
    })
    .collect()
}

fn permissions(kind: FileKind, bits: u32) -> u32 {
    let write = if kind == FileKind::Directory {
        Mask::WRITE_DATA | Mask::APPEND_DATA | Mask::DELETE_CHILD
    } else {
        Mask::WRITE_DATA | Mask::APPEND_DATA
    };
    [(4, Mask::READ_DATA), (2, write), (1, Mask::EXECUTE)]
        .into_iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(0, |mask, (_, add)| mask | add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trivial_acls_of_the_spec() {
        let file = FileKind::Regular;
        let directory = FileKind::Directory;
        type Entry = (u16, u16, u32);
        let table: &[(FileKind, u32, &[Entry])] = &[
            (
                file,
                0o604,
                &[
                    (0, 0x1000, 1),
                    (1, 0x2040, 1),
                    (0, 0x1000, 0x1e_019f),
                    (0, 0x2040, 0x12_0088),
                    (0, 0x4000, 0x12_0089),
                ],
            ),
            (
                file,
                0o077,
                &[
                    (1, 0x1000, 0x27),
                    (0, 0x1000, 0x1e_0198),
                    (0, 0x2040, 0x12_00af),
                    (0, 0x4000, 0x12_00af),
                ],
            ),
            (
                file,
                0o777,
                &[(0, 0x1000, 0x1e_01bf), (0, 0x2040, 0x12_00af), (0, 0x4000, 0x12_00af)],
            ),
            (
                directory,
                0o666,
                &[(0, 0x1000, 0x1e_01df), (0, 0x2040, 0x12_00cf), (0, 0x4000, 0x12_00cf)],
            ),
            (
                directory,
                0o755,
                &[(0, 0x1000, 0x1e_01ff), (0, 0x2040, 0x12_00a9), (0, 0x4000, 0x12_00a9)],
            ),
            (
                file,
                0o644,
                &[(0, 0x1000, 0x1e_019f), (0, 0x2040, 0x12_0089), (0, 0x4000, 0x12_0089)],
            ),
        ];
        for (kind, mode, expected) in table {
            let acl: Vec<Entry> = trivial(*kind, *mode)
                .iter()
                .map(|ace| (ace.kind.number(), ace.flags.0, ace.mask.0))
                .collect();
            assert_eq!(&acl, expected, "{kind:?} {mode:o}");
        }
    }
}
