//! Positions between entries, and the cookies that carry them (spec 03, section 12.9).

use rzfs_format::zap::{HashBits, ZapHash};

/// A position in the order of a ZAP's entries that can be kept for later.
///
/// It survives everything that can happen to a ZAP: changes of other entries, splits, conversion
/// from micro to fat, export and import. Cookies are equal to OpenZFS's; the one after an entry is
/// at least 2^28.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
    /// After the last entry.
    pub const END: Self = Self(u64::MAX);
}

/// A position in the order of entries: before the first that is not less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    pub(crate) hash: ZapHash,
    pub(crate) cd: u32,
}

impl Position {
    /// The position that a cookie carries; `None` is the end.
    pub(crate) fn from_cookie(cookie: Cookie, bits: HashBits) -> Option<Self> {
        if cookie == Cookie::END {
            return None;
        }
        let count = bits.count();
        let cd = u32::try_from(cookie.0 >> count).unwrap_or(u32::MAX);
        let cd = if cd >= bits.max_cd() { 0 } else { cd };
        Some(Self { hash: ZapHash(cookie.0 << (64 - count)), cd })
    }

    /// The cookie for the position right after this one.
    pub(crate) fn cookie_after(self, bits: HashBits) -> Cookie {
        let count = bits.count();
        let top = self.hash.top(count);
        match self.cd.checked_add(1).filter(|cd| *cd < bits.max_cd()) {
            Some(cd) => Cookie(u64::from(cd) << count | top),
            // No cookie can name it: all of the next hash follows.
            None if (top + 1) >> count == 0 => Cookie(top + 1),
            None => Cookie::END,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(hash: u64, cd: u32) -> Cookie {
        Position { hash: ZapHash(hash), cd }.cookie_after(HashBits::Bits28)
    }

    #[test]
    fn cookies_are_those_of_the_spec() {
        assert_eq!(after(0x0fa5_1c10_0000_0000, 0), Cookie(0x10fa_51c1));
        assert_eq!(after(0xe925_2c80_0000_0000, 0), Cookie(0x1e92_52c8));
        let position = Position::from_cookie(Cookie(0x10fa_51c1), HashBits::Bits28);
        assert_eq!(position, Some(Position { hash: ZapHash(0x0fa5_1c10_0000_0000), cd: 1 }));
        assert_eq!(Position::from_cookie(Cookie::END, HashBits::Bits28), None);
    }

    #[test]
    fn a_walk_by_cookies_advances_over_the_largest_differentiators() {
        for bits in [HashBits::Bits28, HashBits::Bits48] {
            let hash = bits.truncate(5 << 60);
            for cd in [0, 0xfffd, 0xfffe, 0xffff, u32::MAX - 1, u32::MAX] {
                let at = Position { hash, cd: cd.min(bits.max_cd()) };
                let next = Position::from_cookie(at.cookie_after(bits), bits).unwrap();
                assert!(next > Position { hash, cd: 0 }, "{cd:#x}");
                assert!(next > at || at.cd == bits.max_cd());
            }
            let last = Position { hash: bits.truncate(u64::MAX), cd: u32::MAX };
            assert_eq!(last.cookie_after(bits), Cookie::END);
        }
    }
}
