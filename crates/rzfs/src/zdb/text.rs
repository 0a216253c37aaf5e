//! Notations of zdb: block pointers, histograms, name-value lists, numbers, times.

pub(crate) mod histogram;
pub(crate) use crate::nvlist_text as nvlist;
pub(crate) mod pointer;

/// How sizes are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberStyle {
    /// At most five characters: `1.50K`.
    Scaled,
    /// All digits (`-P`).
    Plain,
}

impl NumberStyle {
    /// A size or count.
    pub(crate) fn show(self, number: u64) -> String {
        match self {
            Self::Scaled => crate::quantity::nicenum(number),
            Self::Plain => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_unless_all_digits_are_wanted() {
        assert_eq!(NumberStyle::Plain.show(1536), "1536");
        assert_eq!(NumberStyle::Scaled.show(1536), "1.50K");
    }
}
