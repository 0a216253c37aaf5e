//! The mode that a list amounts to (RFC 8881, section 6.3.2): the other way round from
//! [`trivial`](super::trivial()).

use super::entry::{AccessMask, Ace, AceFlags, AceKind, Who};
use crate::fuid::Fuid;

/// The permission bits that a list gives the owner, the owning group and everyone else.
///
/// The first entry that says something about a bit decides it. What is only inherited does not
/// count, nor do entries that neither allow nor deny.
#[must_use]
pub fn mode_of(list: &[Ace], owner: Fuid, group: Fuid) -> u32 {
    let is_group = |entry: &Ace| entry.flags.0 & AceFlags::IDENTIFIER_GROUP != 0;
    let of_owner = permissions(list, |entry| match entry.who {
        Who::Owner | Who::Everyone => true,
        Who::Id(id) => id == owner && !is_group(entry),
        Who::OwningGroup => false,
    });
    let of_group = permissions(list, |entry| match entry.who {
        Who::OwningGroup | Who::Everyone => true,
        Who::Id(id) => id == group && is_group(entry),
        Who::Owner => false,
    });
    let of_others = permissions(list, |entry| entry.who == Who::Everyone);
    of_owner << 6 | of_group << 3 | of_others
}

/// The bits that the entries give which `is_about` says are about somebody.
fn permissions(list: &[Ace], is_about: impl Fn(&Ace) -> bool) -> u32 {
    let (mut decided, mut allowed) = (0, 0);
    for entry in list {
        if entry.flags.0 & AceFlags::INHERIT_ONLY != 0 || !is_about(entry) {
            continue;
        }
        let new = bits(entry.mask) & !decided;
        match entry.kind {
            AceKind::Allow => allowed |= new,
            AceKind::Deny => {}
            _ => continue,
        }
        decided |= new;
    }
    allowed
}

fn bits(mask: AccessMask) -> u32 {
    let all = [(AccessMask::READ_DATA, 4), (AccessMask::WRITE_DATA, 2), (AccessMask::EXECUTE, 1)];
    all.into_iter().filter(|(right, _)| mask.0 & right != 0).fold(0, |bits, (_, bit)| bits | bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::trivial;
    use crate::dirent::FileKind;

    fn entry(kind: AceKind, flags: u16, who: Who, mask: u32) -> Ace {
        Ace { kind, flags: AceFlags(flags), mask: AccessMask(mask), who, object: None }
    }

    #[test]
    fn trivial_lists_amount_to_their_modes() {
        for kind in [FileKind::Regular, FileKind::Directory] {
            for mode in 0..0o1000 {
                let list = trivial(kind, mode);
                assert_eq!(mode_of(&list, Fuid(1), Fuid(2)), mode, "{kind:?} {mode:o}");
            }
        }
    }

    #[test]
    fn the_first_entry_decides_and_others_do_not_count() {
        let (owner, group) = (Fuid(10), Fuid(20));
        let list = [
            entry(AceKind::Audit, 0, Who::Everyone, 0x27),
            entry(AceKind::Allow, AceFlags::INHERIT_ONLY, Who::Everyone, 0x27),
            entry(AceKind::Deny, 0, Who::Id(owner), 0x20),
            entry(AceKind::Allow, AceFlags::IDENTIFIER_GROUP, Who::Id(group), 0x2),
            entry(AceKind::Allow, 0, Who::Id(group), 0x20),
            entry(AceKind::Allow, AceFlags::IDENTIFIER_GROUP, Who::Id(Fuid(30)), 0x27),
            entry(AceKind::Allow, 0, Who::Owner, 0x27),
            entry(AceKind::Deny, 0, Who::OwningGroup, 0x2),
            entry(AceKind::Allow, 0, Who::Everyone, 0x1),
        ];
        assert_eq!(mode_of(&list, owner, group), 0o664);
        assert_eq!(mode_of(&[], owner, group), 0);
    }
}
