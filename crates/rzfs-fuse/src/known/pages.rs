//! The pages of a file that the kernel may have.
//!
//! ```text
//!            get            drop (begun)
//! None ────────────▶ Some ──────────────▶ Dropping ── get ──▶ Some
//!                     │                      │
//!    new contents     ▼                      ▼ dropped
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
    /// It is dropping them, and has got no new ones since.
    Dropping,
    /// Possibly pages of replaced contents: stores through mappings into these are lost with them.
    Outdated,
    /// The same, and a store was discarded.
    GivenUp,
}

/// What to do after the kernel has dropped the pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// Nothing: all its pages are gone.
    Done,
    /// Discarded data may have been stored into pages of the current contents: the kernel must drop
    /// them again.
    Again,
}

impl KernelPages {
    /// The kernel gets pages.
    pub(super) fn get(&mut self) {
        if matches!(self, Self::None | Self::Dropping) {
            *self = Self::Some;
        }
    }

    /// The kernel is told to drop its pages; returns whether it may have current ones.
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
            // It may have got new ones meanwhile.
            Self::Outdated | Self::GivenUp => Self::Some,
            Self::None | Self::Some => dropped,
        };
        match dropped {
            Self::GivenUp => Dropped::Again,
            _ => Dropped::Done,
        }
    }

    /// The contents of the file were replaced.
    pub(super) fn outdate(&mut self) {
        if *self != Self::None {
            *self = Self::Outdated;
        }
    }

    /// Data stored into pages is written back; returns whether to discard it, as it may belong to
    /// replaced contents.
    pub(super) fn give_up(&mut self) -> bool {
        let is_outdated = matches!(self, Self::Outdated | Self::GivenUp);
        if is_outdated {
            *self = Self::GivenUp;
        }
        is_outdated
    }

    /// What is stored from now on belongs to these contents.
    pub(super) fn keep_stores(&mut self) {
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
        pages.keep_stores();
        assert!(!pages.give_up());
        assert_eq!(pages, KernelPages::Some);
    }
}
