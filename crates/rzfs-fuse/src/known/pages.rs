//! Which pages of a file the kernel may have.
//!
//! ```text
//!            get            drop (begun)
//! None ────────────▶ Some ──────────────▶ Dropping ── get ──▶ Some
//!                     │                      │
//!    other contents   ▼                      ▼ dropped
//!                  Outdated ── give up      None
//!                     │          │
//!             dropped ▼          ▼
//!                   Some      GivenUp ── dropped ──▶ Some, and once more
//! ```

/// Pages of a file that the kernel may have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum KernelPages {
    #[default]
    None,
    Some,
    /// It is dropping them, and has got no others since it began.
    Dropping,
    /// Perhaps some of contents that are gone: what is stored into these by mappings is gone with them.
    Outdated,
    /// The same, and something that was stored was given up.
    GivenUp,
}

/// What is to be done when the kernel has dropped the pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// All that it had are gone.
    Done,
    /// What was given up meanwhile may have been stored into pages of these contents: the kernel has to
    /// drop them again.
    Again,
}

impl KernelPages {
    /// The kernel gets some.
    pub(super) fn get(&mut self) {
        if matches!(self, Self::None | Self::Dropping) {
            *self = Self::Some;
        }
    }

    /// The kernel is told to drop those that it has; whether it may have any of these contents.
    pub(super) fn begin_to_drop(&mut self) -> bool {
        let may_have = matches!(self, Self::Some | Self::Dropping);
        if may_have {
            *self = Self::Dropping;
        }
        may_have
    }

    /// The kernel has dropped them.
    pub(super) fn note_dropped(&mut self) -> Dropped {
        let dropped = *self;
        *self = match dropped {
            Self::Dropping => Self::None,
            // It may have got others meanwhile.
            Self::Outdated | Self::GivenUp => Self::Some,
            Self::None | Self::Some => dropped,
        };
        match dropped {
            Self::GivenUp => Dropped::Again,
            _ => Dropped::Done,
        }
    }

    /// The file has other contents.
    pub(super) fn outdate(&mut self) {
        if *self != Self::None {
            *self = Self::Outdated;
        }
    }

    /// Something is written that was stored into pages; whether it is given up, as it may have been
    /// stored into contents that are gone.
    pub(super) fn give_up(&mut self) -> bool {
        let is_outdated = matches!(self, Self::Outdated | Self::GivenUp);
        if is_outdated {
            *self = Self::GivenUp;
        }
        is_outdated
    }

    /// What is stored from now on belongs to these contents.
    pub(super) fn keep_all_pages(&mut self) {
        if matches!(self, Self::Outdated | Self::GivenUp) {
            *self = Self::Some;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_come_while_others_are_dropped_are_not_forgotten() {
        let mut pages = KernelPages::None;
        assert!(!pages.begin_to_drop());
        pages.get();
        assert!(pages.begin_to_drop());
        pages.get();
        assert_eq!((pages.note_dropped(), pages), (Dropped::Done, KernelPages::Some));
        assert!(pages.begin_to_drop());
        assert_eq!((pages.note_dropped(), pages), (Dropped::Done, KernelPages::None));
    }

    #[test]
    fn what_was_given_up_is_dropped_once_more() {
        let mut pages = KernelPages::Some;
        assert!(!pages.give_up());
        pages.outdate();
        assert!(!pages.begin_to_drop(), "that is not what is waited for");
        pages.get();
        assert!(pages.give_up() && pages.give_up());
        assert_eq!(pages.note_dropped(), Dropped::Again);
        assert!(!pages.give_up());
        assert_eq!((pages.note_dropped(), pages), (Dropped::Done, KernelPages::Some));
    }

    #[test]
    fn a_file_of_which_the_kernel_has_no_pages_has_none_that_are_outdated() {
        let mut pages = KernelPages::None;
        pages.outdate();
        assert!(!pages.give_up());
        pages.get();
        pages.outdate();
        pages.keep_all_pages();
        assert!(!pages.give_up());
        assert_eq!(pages, KernelPages::Some);
    }
}
