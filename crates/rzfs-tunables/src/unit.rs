//! What numbers count.

/// What a tunable's number counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things.
    Count,
    /// Hundredths.
    Percent,
    /// Millionths.
    Millionths,
    /// Powers of two: the number is the exponent.
    Log2,
    /// Transaction groups.
    Txgs,
    /// Passes of the sync of a transaction group.
    Passes,
    /// Seconds.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Thousandths of a millionth of a second.
    Nanoseconds,
    /// 1 for yes, 0 for no.
    Flag,
}

impl Unit {
    /// Its name in lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Count => "number",
            Self::Percent => "percent",
            Self::Millionths => "ppm",
            Self::Log2 => "log2",
            Self::Txgs => "txgs",
            Self::Passes => "passes",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Nanoseconds => "ns",
            Self::Flag => "0 or 1",
        }
    }

    pub(crate) const fn of_what(self) -> &'static str {
        match self {
            Self::Bytes => "a number of bytes, like 128K",
            Self::Count | Self::Log2 => "a number",
            Self::Percent => "a number of percent",
            Self::Millionths => "a number of millionths",
            Self::Txgs => "a number of transaction groups",
            Self::Passes => "a number of passes",
            Self::Seconds => "a number of seconds",
            Self::Milliseconds => "a number of milliseconds",
            Self::Nanoseconds => "a number of nanoseconds",
            Self::Flag => "0 or 1",
        }
    }
}
